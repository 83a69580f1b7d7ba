"""Bounded running statistics of rewards and actions within one Episode."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from evopolicygym.spaces import Space
from evopolicygym.strict_json import finite

__all__ = ["ActionStatistics", "RewardStatistics"]

_MAX_VALUES = 64


class RewardStatistics:
    """Minimum, maximum, mean and non-zero count of rewards."""

    def __init__(self) -> None:
        self._count = 0
        self._nonzero = 0
        self._low = math.inf
        self._high = -math.inf

    def add(self, rewards: Sequence[float]) -> None:
        """Take the rewards of some consecutive steps, at least one."""
        self._count += len(rewards)
        self._nonzero += len(rewards) - rewards.count(0.0)
        self._low = min(self._low, min(rewards))
        self._high = max(self._high, max(rewards))

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
        self._discrete = space["type"] == "Discrete"
        self._arrays = 0 < _array_size(space) <= _MAX_VALUES
        self._counts: Counter[int] = Counter()
        self._moments: list[np.ndarray[Any, np.dtype[np.float64]]] = []
        self._count = 0

    def add(self, actions: Sequence[Any]) -> None:
        """Take the canonical actions of some consecutive steps, at least one."""
        self._count += len(actions)
        if self._discrete:
            self._counts.update(actions)
        elif self._arrays:
            rows = np.asarray(actions, dtype=np.float64).reshape(len(actions), -1)
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
        if self._discrete:
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
