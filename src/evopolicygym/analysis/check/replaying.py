"""Playing Episodes of a record again and comparing the hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evopolicygym.analysis.check.documents import Documents
from evopolicygym.analysis.check.finding import FindingCode
from evopolicygym.benchmark import Benchmark, Episode, FailureCode
from evopolicygym.evaluation import Evaluator
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.process import ProcessExecution
from evopolicygym.execution.runtime_directory import runtime_directory
from evopolicygym.program import Program
from evopolicygym.run.models import EpisodeEntry

__all__ = ["check_replays"]

_OF_THE_MACHINE = frozenset({FailureCode.TIMEOUT, FailureCode.MEMORY_LIMIT, FailureCode.CRASH})
"""Failures that may come a step earlier or later on another machine."""


def check_replays(
    documents: Documents, benchmark: Benchmark | None, programs: Mapping[str, Program]
) -> None:
    """Play one Episode of each Submission, and of Assessment, again.

    All of them are played by one worker, unlike with `run.replay`, which starts one each.
    """
    chosen = list(_chosen(documents))
    config, findings = documents.config, documents.findings
    if not chosen or config is None:
        return
    if benchmark is None:
        message = "can't be played again: this installation has no such Benchmark"
        findings.add(FindingCode.REPLAY, "run.json", message)
        return
    execution = ProcessExecution.unsafe()
    with runtime_directory() as runtime, WorkerPool(execution, jobs=1, directory=runtime) as pool:
        evaluator = Evaluator(benchmark, pool, episode_timeout=config.episode_timeout_seconds)
        for place, row in chosen:
            name = place.partition("/")[2]
            if name not in programs:  # why is a finding of its own
                continue
            episode = Episode(row.environment_seed, row.policy_seed, row.scenario)
            played = evaluator.evaluate(programs[name], [(row.index, episode)]).episodes[0]
            found = played.environment_error or played.trajectory_hash
            if found != row.trajectory_hash:
                message = (
                    f"Episode {row.index} played again has the hash {found}, recorded is "
                    f"{row.trajectory_hash}"
                )
                findings.add(FindingCode.REPLAY, f"{place}/episodes.json", message)


def _chosen(documents: Documents) -> Iterator[tuple[str, EpisodeEntry]]:
    for place, document in documents.episodes.items():
        if not place.startswith("validation/"):
            row = _best(document.episodes)
            if row is not None:
                yield place, row


def _best(rows: Sequence[EpisodeEntry]) -> EpisodeEntry | None:
    """Return the first Episode that must go the same way again, at best one without a failure."""
    played = [row for row in rows if row.environment_error is None]
    without = [row for row in played if row.failure is None]
    same = [row for row in played if row.failure and row.failure.code not in _OF_THE_MACHINE]
    return next(iter([*without, *same]), None)
