"""Bounded running statistics of rewards and actions within one Episode."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from evopolicygym.spaces import Space, array_layout
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

    def add(self, actions: Sequence[Any] | np.ndarray[Any, np.dtype[Any]]) -> None:
        """Take the canonical actions of some consecutive steps, at least one."""
        self._count += len(actions)
        if self._discrete:
            self._counts.update(actions)
        elif self._arrays:
            rows = np.asarray(actions, dtype=np.float64).reshape(len(actions), -1)
            low, high, mean = rows.min(0), rows.max(0), rows.mean(0)
            spread = ((rows - mean) ** 2).sum(0)
            if not self._moments:
                self._moments = [low, high, mean, spread]
                return
            # Merging means and squared deviations loses no digits far from zero (Chan et al. 1983).
            before, new = self._count - len(actions), len(actions)
            delta = mean - self._moments[2]
            self._moments = [
                np.minimum(self._moments[0], low),
                np.maximum(self._moments[1], high),
                self._moments[2] + delta * (new / self._count),
                self._moments[3] + spread + delta**2 * (before * new / self._count),
            ]

    def summary(self) -> dict[str, Any]:
        """Return plain JSON values."""
        if self._discrete:
            common = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
            return {"counts": {str(a): n for a, n in sorted(common[:_MAX_VALUES])}}
        if not self._moments:
            return {}
        low, high, mean, spread = self._moments
        columns = {"min": low, "max": high, "mean": mean, "std": np.sqrt(spread / self._count)}
        return {name: finite(column.tolist()) for name, column in columns.items()}


def _array_size(space: Space) -> int:
    if space["type"] not in ("Box", "MultiDiscrete", "MultiBinary"):
        return 0
    return math.prod(array_layout(space)[1])
