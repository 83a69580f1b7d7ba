"""Evaluation: one Program, a finite list of Episodes, one Feedback."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evopolicygym.benchmark import Benchmark, Episode, Failure, Feedback
from evopolicygym.errors import BenchmarkError, ConfigurationError, ExecutionError
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.process import ProcessExecution
from evopolicygym.execution.runtime_directory import runtime_directory
from evopolicygym.execution.task import Task
from evopolicygym.program import Program
from evopolicygym.strict_json import dumps

__all__ = [
    "MAX_EPISODES",
    "EpisodeSummary",
    "EvaluationConfig",
    "EvaluationResult",
    "Evaluator",
    "checked_feedback",
    "evaluate",
    "plan",
    "positive_integer",
    "positive_seconds",
    "split_name",
]

MAX_EPISODES = 1_000_000
"""Most Episodes of one plan; a larger number is taken for a slip."""


_UNWRITTEN_OUTPUT_BYTES = 2_048
"""What a result keeps of each output stream of an Episode that writes no files, bytes."""


def positive_integer(path: str, value: object, *, most: int = MAX_EPISODES, least: int = 1) -> int:
    """Return `value` if it is an integer in `[least, most]`.

    Raises:
        ConfigurationError: Names `path` and the range.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigurationError(f"{path} is {value!r}, expected an integer in [{least}, {most}]")
    return value


def positive_seconds(path: str, value: object) -> float:
    """Return `value` as seconds if it is a finite number > 0.

    Raises:
        ConfigurationError: Names `path` and the range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{path} is {value!r}, expected a number of seconds")
    if not 0 < value <= 10**7:
        raise ConfigurationError(f"{path} is {value!r}, expected seconds in (0, 10000000]")
    return float(value)


def split_name(path: str, value: object) -> None:
    """Check that `value` can name a data split.

    Raises:
        ConfigurationError: It is no text, or empty; names `path`.
    """
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{path} is {value!r}, expected a name such as 'train'")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """What to evaluate on.

    Attributes:
        split: Data split of the Benchmark.
        episodes: Number of Episodes, >= 1.
        seed: Seed of the plan.
        episode_timeout_seconds: Policy time of one Episode, seconds.

    Raises:
        ConfigurationError: A value is out of range.
    """

    split: str = "validation"
    episodes: int = 1
    seed: int = 0
    episode_timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        split_name("$.split", self.split)
        positive_integer("$.episodes", self.episodes)
        positive_integer("$.seed", self.seed, least=0, most=2**63 - 1)
        positive_seconds("$.episode_timeout_seconds", self.episode_timeout_seconds)


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """One Episode of a result.

    Attributes:
        index: Position in the plan; in a Run the public pool index.
        steps: Completed steps.
        total_reward: Sum of the observed rewards.
        score_return: What it counts for, see `BenchmarkSpec.failed_return`.
        terminated: The environment reached a terminal state.
        truncated: It was cut at its step limit.
        failure: The policy's failure, or None.
        environment_error: The Host's fault, or None; then it is not part of the score.
        trajectory_hash: SHA-256 (hex); equal for equal Program, Benchmark and Episode.
    """

    index: int
    steps: int
    total_reward: float
    score_return: float | None
    terminated: bool
    truncated: bool
    failure: Failure | None
    environment_error: str | None
    trajectory_hash: str


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Result of `evaluate`.

    Attributes:
        benchmark_id: Id of the Benchmark.
        environment_digest: Digest of its spec.
        program_digest: Digest of the Program.
        feedback: Public Feedback; `feedback.score` is the primary metric.
        episodes: One summary an Episode, in plan order.
        outcomes: Full outcomes with statistics and captured output, in the same order.
    """

    benchmark_id: str
    environment_digest: str
    program_digest: str
    feedback: Feedback
    episodes: tuple[EpisodeSummary, ...]
    outcomes: tuple[EpisodeOutcome, ...] = field(repr=False)

    @property
    def score(self) -> float | None:
        """Primary metric, or None where nothing could be measured."""
        return self.feedback.score


class Evaluator:
    """Evaluates Programs on one Benchmark with workers that stay warm in between.

    Args:
        benchmark: The Benchmark.
        pool: Its workers.
        episode_timeout: Policy time of one Episode, seconds.
    """

    def __init__(self, benchmark: Benchmark, pool: WorkerPool, *, episode_timeout: float) -> None:
        self._benchmark = benchmark
        self._spec = benchmark.spec
        self._pool = pool
        self._timeout = episode_timeout

    def evaluate(
        self,
        program: Program,
        episodes: Sequence[tuple[int, Episode]],
        *,
        directory: Path | None = None,
        on_outcome: Callable[[EpisodeOutcome], None] | None = None,
    ) -> EvaluationResult:
        """Play and score.

        Args:
            program: The Program.
            episodes: Pairs of public index and Episode.
            directory: Where trajectories go, one directory an index; None for none.
            on_outcome: Called as each Episode ends.

        Raises:
            BenchmarkError: The Benchmark broke its contract.
            ExecutionError: The workers were closed meanwhile.
        """
        tasks = [
            Task(index, episode, None, _UNWRITTEN_OUTPUT_BYTES)
            if directory is None
            else Task(index, episode, directory / f"{index:06d}")
            for index, episode in episodes
        ]
        outcomes = self._pool.play(
            program, self._benchmark, tasks, timeout=self._timeout, on_outcome=on_outcome
        )
        records = [outcome.record() for outcome in outcomes if outcome.fault is None]
        feedback = checked_feedback(self._benchmark, records)
        return EvaluationResult(
            benchmark_id=self._spec.id,
            environment_digest=self._spec.environment_digest,
            program_digest=program.digest,
            feedback=feedback,
            episodes=tuple(map(_summary, outcomes)),
            outcomes=tuple(outcomes),
        )


def checked_feedback(benchmark: Benchmark, records: Sequence[Any]) -> Feedback:
    """Ask a Benchmark for its Feedback and check what it returned.

    Raises:
        BenchmarkError: It raised, the score is neither finite nor None, or the content is not JSON.
    """
    if not records:
        return Feedback(score=None)
    try:
        feedback = benchmark.feedback(records)
    except Exception as error:
        raise BenchmarkError(f"feedback raised {type(error).__name__}: {error}") from error
    score = feedback.score
    if score is not None and not math.isfinite(score):
        raise BenchmarkError(f"feedback returned the score {score}: expected a finite number")
    try:
        dumps(feedback.content)
    except (TypeError, ValueError, OverflowError) as error:
        raise BenchmarkError(f"feedback returned content that is not JSON: {error}") from error
    return feedback


def _summary(outcome: EpisodeOutcome) -> EpisodeSummary:
    return EpisodeSummary(
        index=outcome.index,
        steps=outcome.steps,
        total_reward=outcome.total_reward,
        score_return=None if outcome.fault else outcome.score_return,
        terminated=outcome.terminated,
        truncated=outcome.truncated,
        failure=outcome.failure,
        environment_error=outcome.fault,
        trajectory_hash=outcome.trajectory_hash,
    )


def plan(benchmark: Benchmark, split: str, *, seed: int, count: int) -> tuple[Episode, ...]:
    """Plan Episodes and check the plan.

    Raises:
        BenchmarkError: Planning raised or returned another number of Episodes.
        ConfigurationError: The Benchmark has no such split.
    """
    try:
        episodes = tuple(benchmark.episodes(split, seed=seed, count=count))
    except (ConfigurationError, BenchmarkError):
        raise
    except Exception as error:
        raise BenchmarkError(
            f"planning split {split!r} raised {type(error).__name__}: {error}"
        ) from error
    if len(episodes) != count:
        raise BenchmarkError(f"planned {len(episodes)} Episodes for {split!r}, expected {count}")
    return episodes


def evaluate(
    program: Program,
    benchmark: Benchmark,
    *,
    execution: ProcessExecution,
    config: EvaluationConfig = EvaluationConfig(),
    jobs: int | None = None,
    directory: str | os.PathLike[str] | None = None,
    on_outcome: Callable[[EpisodeOutcome], None] | None = None,
) -> EvaluationResult:
    """Evaluate one Program on a Benchmark; the result does not depend on `jobs`.

    Args:
        program: The Program.
        benchmark: The Benchmark.
        execution: How policies run.
        config: Split, number of Episodes, seed, time limit.
        jobs: Worker processes; None for one a core.
        directory: Where to write trajectories, one directory an Episode; None for none.
        on_outcome: Called as each Episode ends.

    Raises:
        ConfigurationError: An argument is out of range.
        BenchmarkError: The Benchmark broke its contract.
        ExecutionError: Policies can't be run, or every single Episode met a Host fault.
    """
    if jobs is not None:
        positive_integer("$.jobs", jobs, most=1024)
    episodes = plan(benchmark, config.split, seed=config.seed, count=config.episodes)
    with ExitStack() as stack:
        runtime = stack.enter_context(runtime_directory())
        pool = stack.enter_context(WorkerPool(execution, jobs=jobs, directory=runtime))
        evaluator = Evaluator(benchmark, pool, episode_timeout=config.episode_timeout_seconds)
        result = evaluator.evaluate(
            program,
            list(enumerate(episodes)),
            directory=None if directory is None else Path(directory).absolute(),
            on_outcome=on_outcome,
        )
    faults = [episode.environment_error for episode in result.episodes]
    if all(faults):
        raise ExecutionError(f"every Episode met a Host fault; the first: {faults[0]}")
    return result
