"""Bounded running statistics of rewards and actions within one Episode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from evopolicygym.spaces import Space
from evopolicygym.strict_json import finite

__all__ = ["ActionStatistics", "RewardStatistics"]

_BATCH = 512
_MAX_VALUES = 64


class RewardStatistics:
    """Minimum, maximum, mean and non-zero count of rewards."""

    def __init__(self) -> None:
        self._count = 0
        self._nonzero = 0
        self._low = math.inf
        self._high = -math.inf

    def add(self, reward: float) -> None:
        """Take the reward of one step."""
        self._count += 1
        if reward:
            self._nonzero += 1
        if reward < self._low:
            self._low = reward
        if reward > self._high:
            self._high = reward

    def summary(self, total: float) -> dict[str, Any]:
        """Return plain JSON values; `total` is the sum of the rewards."""
        if not self._count:
            return {"steps": 0}
        return {
            "steps": self._count,
            "min": self._low,
            "max": self._high,
            "mean": total / self._count,
            "nonzero": self._nonzero,
        }


class ActionStatistics:
    """Counts of discrete actions; mean, extremes and spread of continuous ones."""

    def __init__(self, space: Space) -> None:
        self._kind = space["type"]
        self._batch: list[Any] = []
        self._counts: dict[int, int] = {}
        self._moments: list[np.ndarray[Any, np.dtype[np.float64]]] = []
        self._count = 0
        self._arrays = 0 < _array_size(space) <= _MAX_VALUES
        self._watched = self._arrays or self._kind == "Discrete"

    def add(self, action: Any) -> None:
        """Take the action of one step."""
        if self._watched:
            self._batch.append(action)
            if len(self._batch) >= _BATCH:
                self._fold()

    def _fold(self) -> None:
        batch, self._batch = self._batch, []
        self._count += len(batch)
        if self._kind == "Discrete":
            for action in batch:
                self._counts[action] = self._counts.get(action, 0) + 1
        elif batch:
            rows = np.asarray(batch, dtype=np.float64).reshape(len(batch), -1)
            new = [rows.min(0), rows.max(0), rows.sum(0), (rows**2).sum(0)]
            if not self._moments:
                self._moments = new
            else:
                low, high, total, squares = self._moments
                self._moments = [
                    np.minimum(low, new[0]),
                    np.maximum(high, new[1]),
                    total + new[2],
                    squares + new[3],
                ]

    def summary(self) -> dict[str, Any]:
        """Return plain JSON values."""
        self._fold()
        if self._kind == "Discrete":
            common = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
            return {"counts": {str(a): n for a, n in sorted(common[:_MAX_VALUES])}}
        if not self._moments:
            return {}
        low, high, total, squares = self._moments
        mean = total / self._count
        std = np.sqrt(np.maximum(squares / self._count - mean**2, 0.0))
        columns = {"min": low, "max": high, "mean": mean, "std": std}
        return {name: finite(column.tolist()) for name, column in columns.items()}


def _array_size(space: Space) -> int:
    if space["type"] == "MultiDiscrete":
        return int(np.size(space["nvec"]))
    if space["type"] in ("Box", "MultiBinary"):
        return int(np.prod(space["shape"], dtype=np.int64))
    return 0
