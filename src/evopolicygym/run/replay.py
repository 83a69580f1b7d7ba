"""Playing one Episode of a record again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evopolicygym.benchmark import Benchmark, Episode
from evopolicygym.errors import ConfigurationError, RecordError
from evopolicygym.evaluation import EpisodeSummary, Evaluator, positive_seconds
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.process import ProcessExecution
from evopolicygym.execution.runtime_directory import runtime_directory
from evopolicygym.program import Program
from evopolicygym.run.files import read_json
from evopolicygym.run.models import EpisodesFile, RunFile

__all__ = ["ReplayResult", "read_run", "replay"]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A played Episode beside the recorded one.

    Attributes:
        recorded_hash: Trajectory hash in the record.
        episode: The Episode as it was played now.
        recorded_return: Total reward in the record.
    """

    recorded_hash: str
    recorded_return: float
    episode: EpisodeSummary

    @property
    def agrees(self) -> bool:
        """Whether both trajectories are identical bit for bit."""
        return self.recorded_hash == self.episode.trajectory_hash


def read_run(record: str | os.PathLike[str]) -> RunFile:
    """Read and check `run.json`.

    Raises:
        RecordError: It is missing or not a run file of this version.
    """
    path = Path(record) / "run.json"
    document: RunFile = _validated(RunFile, path)
    return document


def _validated(model: Any, path: Path) -> Any:
    try:
        return model.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path}: $.{where}: {first['msg']}") from None


def replay(
    record: str | os.PathLike[str],
    submission_id: str,
    index: int,
    benchmark: Benchmark,
    *,
    execution: ProcessExecution,
) -> ReplayResult:
    """Play one recorded Episode of a Submission again.

    Args:
        record: The Run's directory.
        submission_id: `submission-000001`, ….
        index: Pool index; must be one that the Submission was charged for.
        benchmark: The Run's Benchmark.
        execution: How the policy runs.

    Raises:
        ConfigurationError: The record has no such Submission or Episode, or the Benchmark is
            not the Run's.
        RecordError: The record is damaged.
    """
    run = read_run(record)
    if benchmark.spec.environment_digest != run.environment_digest:
        raise ConfigurationError(
            f"the Benchmark {benchmark.spec.id!r} has the environment digest "
            f"{benchmark.spec.environment_digest[:12]}…, the record was made with "
            f"{run.environment_digest[:12]}… of {run.benchmark_id!r}"
        )
    home = Path(record) / "submissions" / submission_id
    if submission_id not in run.submissions:
        raise ConfigurationError(
            f"{record} has no Submission {submission_id!r}; "
            f"it has {', '.join(run.submissions) or 'none'}"
        )
    episodes: EpisodesFile = _validated(EpisodesFile, home / "episodes.json")
    recorded = {episode.index: episode for episode in episodes.episodes}
    if index not in recorded:
        raise ConfigurationError(
            f"{submission_id} has no Episode {index}; it has {sorted(recorded)}"
        )
    program = Program.from_directory(home / "program")
    if program.digest != episodes.program_digest:
        raise RecordError(f"{home / 'program'} is not the Program that was submitted")
    row = recorded[index]
    episode = Episode(row.environment_seed, row.policy_seed, row.scenario)
    try:
        timeout = positive_seconds(
            "$.config.episode_timeout_seconds", run.config.get("episode_timeout_seconds")
        )
    except ConfigurationError as error:
        raise RecordError(f"{Path(record) / 'run.json'}: {error}") from None
    with runtime_directory() as runtime, WorkerPool(execution, jobs=1, directory=runtime) as pool:
        result = Evaluator(benchmark, pool, episode_timeout=timeout).evaluate(
            program, [(index, episode)]
        )
    return ReplayResult(row.trajectory_hash, row.total_reward, result.episodes[0])
