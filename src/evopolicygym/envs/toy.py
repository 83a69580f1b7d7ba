"""`toy`: the built-in Benchmark without dependencies. Walk to a target on a line."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from evopolicygym.benchmark import (
    BenchmarkSpec,
    Episode,
    EpisodeRecord,
    Feedback,
    mean_return_feedback,
    plan_episodes,
)

__all__ = ["ToyBenchmark"]

_SIZE = 10
_STEPS = 20

_DESCRIPTION = f"""\
## Objective

Stand on the target of a line of cells; the target jumps whenever it is reached.

## Policy Interface

`act(observation)` gets a numpy array and returns an `int`; anything but 0, 1 and 2 fails the
Episode.

## Observation

An int64 array of shape (2,): own cell and target cell, both in [0, {_SIZE - 1}].

## Action

0 = one cell left, 1 = stay, 2 = one cell right. A move off the line has no effect.

## Reward

1.0 whenever a step ends on the target, else 0.0.

## Termination

Never; the Episode is truncated after {_STEPS} steps.

## Notes

At the start and at every jump the cells are drawn uniformly; the target is never the own cell.
"""


class _Line:
    """One Episode of the walk."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._cell = 0
        self._target = 0

    def _jump(self) -> None:
        self._target = self._random.choice([c for c in range(_SIZE) if c != self._cell])

    def reset(self) -> tuple[list[int], Mapping[str, Any]]:
        self._cell = self._random.randrange(_SIZE)
        self._jump()
        return [self._cell, self._target], {}

    def step(self, action: int) -> tuple[list[int], float, bool, bool, Mapping[str, Any]]:
        self._cell = min(_SIZE - 1, max(0, self._cell + action - 1))
        reached = self._cell == self._target
        if reached:
            self._jump()
        return [self._cell, self._target], float(reached), False, False, {}

    def close(self) -> None:
        pass


class ToyBenchmark:
    """A Benchmark that is solved by a two-line policy and unsolved by a constant one."""

    @property
    def spec(self) -> BenchmarkSpec:
        """Public description."""
        return BenchmarkSpec(
            id="toy",
            description=_DESCRIPTION,
            observation_space={"type": "MultiDiscrete", "nvec": [_SIZE, _SIZE]},
            action_space={"type": "Discrete", "n": 3},
            max_episode_steps=_STEPS,
            failure_return=0.0,
        )

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        """Plan Episodes that differ by seed."""
        return plan_episodes("toy", split, seed=seed, count=count)

    def make_environment(self, episode: Episode) -> _Line:
        """Create one Episode's line."""
        return _Line(episode.environment_seed)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """Score by the mean return."""
        return mean_return_feedback(records)
