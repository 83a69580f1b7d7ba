"""What the author of a Benchmark imports.

A Benchmark is any object with `spec`, `episodes(...)`, `make_environment(...)` and
`feedback(...)`; there is no base class. Run `evopolicygym.testing.check_benchmark` on it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

from evopolicygym.errors import BenchmarkError
from evopolicygym.spaces import Space, validate_space

__all__ = [
    "SPLITS",
    "Artifact",
    "Benchmark",
    "BenchmarkSpec",
    "Environment",
    "Episode",
    "EpisodeRecord",
    "Failure",
    "FailureCode",
    "Feedback",
    "ScoreDirection",
    "mean_return_feedback",
    "plan_episodes",
]

ScoreDirection: TypeAlias = Literal["maximize", "minimize"]


class FailureCode(StrEnum):
    """The closed list of ways in which a policy can end its own Episode."""

    IMPORT_ERROR = "import_error"
    INIT_ERROR = "init_error"
    EXCEPTION = "exception"
    INVALID_ACTION = "invalid_action"
    TIMEOUT = "timeout"
    MEMORY_LIMIT = "memory_limit"
    CRASH = "crash"
    PROTOCOL_ERROR = "protocol_error"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a policy failed.

    Attributes:
        code: One of `FailureCode`.
        message: One line for a person.
        step: Number of completed steps when it failed; 0 before the first.
        traceback: Python traceback without Host paths, or an empty string.
    """

    code: FailureCode
    message: str
    step: int
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class BenchmarkSpec:
    """Public, immutable description of a Benchmark.

    Attributes:
        id: Stable name, e.g. `gym/cartpole`. Behaviour never changes under an id.
        description: Task text for agents: objective, observation, action, reward, termination.
        observation_space: Plain mapping, see `evopolicygym.spaces`.
        action_space: Plain mapping.
        max_episode_steps: Steps after which the Host truncates an Episode, >= 1.
        failure_return: Return of an Episode that the policy failed. No completed Episode may
            score worse, so that failing never pays.
        metadata: Public JSON facts.
        environment_parameters: Public JSON parameters; part of `environment_digest`.
        primary_metric: Name of the score.
        score_direction: Whether larger or smaller scores are better.
    """

    id: str
    description: str
    observation_space: Space
    action_space: Space
    max_episode_steps: int
    failure_return: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    environment_parameters: Mapping[str, Any] = field(default_factory=dict)
    primary_metric: str = "mean_return"
    score_direction: ScoreDirection = "maximize"

    def __post_init__(self) -> None:
        for name in ("observation_space", "action_space"):
            try:
                validate_space(getattr(self, name))
            except (ValueError, TypeError, KeyError) as error:
                raise BenchmarkError(f"{self.id}: {name}: {error}") from None
        if self.max_episode_steps < 1:
            raise BenchmarkError(
                f"{self.id}: max_episode_steps is {self.max_episode_steps}, expected >= 1"
            )
        if not math.isfinite(self.failure_return):
            raise BenchmarkError(
                f"{self.id}: failure_return is {self.failure_return}, expected a finite number"
            )
        if self.score_direction not in ("maximize", "minimize"):
            raise BenchmarkError(f"{self.id}: score_direction is {self.score_direction!r}")

    @property
    def environment_digest(self) -> str:
        """SHA-256 (hex) over id, spaces, parameters, step limit and scoring."""
        identity = {
            "id": self.id,
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "environment_parameters": self.environment_parameters,
            "max_episode_steps": self.max_episode_steps,
            "failure_return": self.failure_return,
            "primary_metric": self.primary_metric,
            "score_direction": self.score_direction,
        }
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def better(self, first: float, second: float) -> bool:
        """Return whether score `first` is strictly better than `second`."""
        return first > second if self.score_direction == "maximize" else first < second

    def failed_return(self, partial_return: float) -> float:
        """Return what a failed Episode counts for: `failure_return`, or worse if it was worse."""
        worst = min if self.score_direction == "maximize" else max
        return worst(self.failure_return, partial_return)


@dataclass(frozen=True, slots=True)
class Episode:
    """Everything that determines one Episode, besides the Program. Private to the Host.

    Attributes:
        environment_seed: Seed of the environment, in `[0, 2**31)`.
        policy_seed: Seed of the policy, in `[0, 2**31)`; tells nothing about the other.
        scenario: Optional parameters of a Benchmark's own making; JSON values.
    """

    environment_seed: int
    policy_seed: int
    scenario: Mapping[str, Any] = field(default_factory=dict)


class Environment(Protocol):
    """One Episode's simulator."""

    def reset(self) -> tuple[Any, Mapping[str, Any]]:
        """Start the Episode; return the first observation and an info mapping."""
        ...

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Apply a valid action; return observation, reward, terminated, truncated and info."""
        ...

    def close(self) -> None:
        """Release everything. Called exactly once, also after a failure."""
        ...


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """What happened in one Episode; input of `Benchmark.feedback`.

    Attributes:
        index: Position in the evaluated list; for a Run's Submission the public pool index.
        steps: Completed steps.
        total_reward: Sum of the rewards that were observed.
        score_return: What the Episode counts for: `total_reward`, or the Benchmark's
            `failed_return` where the policy failed.
        terminated: The environment reached a terminal state.
        truncated: The Episode was cut at its step limit.
        failure: Why the policy failed, or None.
    """

    index: int
    steps: int
    total_reward: float
    score_return: float
    terminated: bool
    truncated: bool
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a Benchmark publishes with its Feedback.

    Attributes:
        path: Relative POSIX path below `artifacts/`.
        data: Content.
    """

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Feedback:
    """Public result of one Evaluation.

    Attributes:
        score: Primary metric, or None where nothing could be measured.
        content: JSON mapping in the Benchmark's own words.
        artifacts: Files.
    """

    score: float | None
    content: Mapping[str, Any] = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()


class Benchmark(Protocol):
    """The contract; structural, so nothing has to be inherited."""

    @property
    def spec(self) -> BenchmarkSpec:
        """Public description; equal on every access."""
        ...

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        """Plan `count` Episodes; equal inputs give equal plans, splits never overlap."""
        ...

    def make_environment(self, episode: Episode) -> Environment:
        """Create a fresh Environment for `episode`."""
        ...

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """Score the Episodes that the Host could measure; may be empty."""
        ...


SPLITS = ("train", "validation", "test")
"""The splits that every Benchmark has and that never share an Episode."""


def plan_episodes(benchmark_id: str, split: str, *, seed: int, count: int) -> tuple[Episode, ...]:
    """Plan seeds for a Benchmark whose Episodes differ by seed alone.

    Environment seeds come from SHA-256 over id, split, seed and position. Their value modulo 4 is
    the split's code (train 0, validation 1, test 2, any other 3), so the three named splits can
    never share a seed, whatever `seed` is. They stay below 2**31, which every known environment
    accepts. Policy seeds come from a separate digest and tell nothing about them.

    Args:
        benchmark_id: Id of the Benchmark.
        split: Name of the data split.
        seed: Any integer.
        count: Number of Episodes, >= 0.
    """
    code = SPLITS.index(split) if split in SPLITS else 3

    def draw(purpose: str, position: int) -> int:
        text = json.dumps([purpose, benchmark_id, split, seed, position])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

    return tuple(
        Episode(
            environment_seed=(draw("environment", i) % 2**29) * 4 + code,
            policy_seed=draw("policy", i) % 2**31,
        )
        for i in range(count)
    )


def mean_return_feedback(records: Sequence[EpisodeRecord]) -> Feedback:
    """Score by the mean of `score_return`; None without records."""
    if not records:
        return Feedback(score=None)
    returns = [record.score_return for record in records]
    failed = sum(record.failure is not None for record in records)
    return Feedback(
        score=math.fsum(returns) / len(returns),
        content={"episodes": len(returns), "failed_episodes": failed},
    )
