"""Publishing a Submission: Feedback, trajectories and Program, in one atomic step.

The record keeps the master copy under `submissions/<id>/feedback/`; the workspace gets its own
copy under `feedback/<id>/`, so that nothing the agent does can reach the record.
"""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from evopolicygym.benchmark import Artifact, BenchmarkSpec, Failure
from evopolicygym.errors import BenchmarkError
from evopolicygym.evaluation import EvaluationResult
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.run.models import FeedbackFile
from evopolicygym.run.session import Submission
from evopolicygym.strict_json import finite, pretty

__all__ = ["RETAINED_BYTES", "failure_entry", "publish", "show", "write_feedback"]

RETAINED_BYTES = 2 * 2**30
"""Trajectory data kept over all Submissions of a Run, in each copy, bytes.

Beyond it the `episodes/` directories of the oldest Submissions are removed; `feedback.json`,
Program and artifacts always stay, and the newest Submission keeps everything.
"""

_PUBLIC_FAULT = "the environment failed in this Episode; it was refunded"


def write_feedback(
    directory: Path,
    spec: BenchmarkSpec,
    submission: Submission,
    result: EvaluationResult,
    *,
    episodes_used: int,
    episodes_remaining: int,
) -> None:
    """Complete a staged feedback directory that already holds the spooled trajectories.

    Args:
        directory: `feedback/`, with `episodes/<index>/` from the workers.
        spec: The Benchmark's spec.
        submission: The settled Submission.
        result: Its evaluation.
        episodes_used: State of the budget after settling.
        episodes_remaining: The same.

    Raises:
        BenchmarkError: The Benchmark's Feedback can't be published.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rows = [_row(directory, outcome) for outcome in result.outcomes]
    submission.program.write_to(directory / "program")
    artifacts = [_write_artifact(directory, artifact) for artifact in result.feedback.artifacts]
    try:
        document = FeedbackFile.model_validate(
            {
                "submission_id": submission.submission_id,
                "program_digest": result.program_digest,
                "benchmark_id": spec.id,
                "primary_metric": spec.primary_metric,
                "score_direction": spec.score_direction,
                "score": result.feedback.score,
                "episode_indices": submission.episode_indices,
                "episodes_used": episodes_used,
                "episodes_remaining": episodes_remaining,
                "statistics": _statistics(result.outcomes),
                "episodes": rows,
                "content": finite(result.feedback.content),
                "artifacts": artifacts,
            }
        )
        data = pretty(document.model_dump(mode="json", by_alias=True))
    except (ValueError, TypeError) as error:
        raise BenchmarkError(f"the Feedback is not plain JSON: {error}") from error
    (directory / "feedback.json").write_bytes(data)


def failure_entry(failure: Failure | None) -> dict[str, Any] | None:
    """Return a failure as JSON."""
    if failure is None:
        return None
    return {
        "code": failure.code.value,
        "message": failure.message,
        "step": failure.step,
        "traceback": failure.traceback,
    }


def _row(directory: Path, outcome: EpisodeOutcome) -> dict[str, Any]:
    home = directory / "episodes" / f"{outcome.index:06d}"
    if outcome.fault is not None:
        shutil.rmtree(home, ignore_errors=True)

    def public(name: str) -> str | None:
        return f"episodes/{home.name}/{name}" if (home / name).exists() else None

    fault = outcome.fault is not None
    return {
        "index": outcome.index,
        "steps": outcome.steps,
        "total_reward": None if fault else outcome.total_reward,
        "score_return": None if fault else outcome.score_return,
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
        "failure": failure_entry(outcome.failure),
        "environment_error": _PUBLIC_FAULT if fault else None,
        "rewards": outcome.rewards,
        "actions": outcome.actions,
        "trajectory": public("trajectory.jsonl"),
        "trajectory_cut": outcome.trajectory_cut,
        "observations": public("observations.npz"),
        "stdout": public("stdout.txt"),
        "stderr": public("stderr.txt"),
    }


def _statistics(outcomes: Sequence[EpisodeOutcome]) -> dict[str, Any]:
    """Summarise the measured Episodes: returns, lengths and how they ended."""
    measured = [outcome for outcome in outcomes if outcome.fault is None]
    codes = Counter(o.failure.code.value for o in measured if o.failure is not None)
    return {
        "returns": _distribution([outcome.score_return for outcome in measured]),
        "lengths": _distribution([float(outcome.steps) for outcome in measured]),
        "terminated": sum(outcome.terminated for outcome in measured),
        "truncated": sum(outcome.truncated for outcome in measured),
        "failures": dict(sorted(codes.items())),
        "environment_errors": len(outcomes) - len(measured),
    }


def _distribution(values: Sequence[float]) -> dict[str, Any]:
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(values) > 1 else []
    return {
        "count": len(values),
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "min": ordered[0],
        "quartiles": quartiles or [ordered[0]] * 3,
        "max": ordered[-1],
    }


def _write_artifact(directory: Path, artifact: Artifact) -> str:
    path = PurePosixPath(artifact.path)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise BenchmarkError(f"artifact path {artifact.path!r} must be relative, without '..'")
    target = directory / "artifacts" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(artifact.data)
    return f"artifacts/{path}"


def publish(staged: Path, record: Path, submission_id: str) -> Path:
    """Move a finished feedback directory into the record; the Submission is published then.

    Args:
        staged: The complete directory; on the record's file system.
        record: `submissions/` of the record.
        submission_id: The Submission.

    Returns:
        The master copy.
    """
    master = record / submission_id / "feedback"
    master.parent.mkdir(parents=True, exist_ok=True)
    staged.rename(master)
    _retain(record, submission_id)
    return master


def show(master: Path, workspace: Path, submission_id: str) -> str | None:
    """Copy published Feedback into the workspace, where the agent may have put anything.

    Args:
        master: What `publish` returned.
        workspace: The workspace's `feedback/`.
        submission_id: The Submission.

    Returns:
        Why the agent can't see it, or None. That is never the Host's fault.
    """
    # Names that nobody can have prepared: nothing is followed, nothing is in the way.
    fresh = workspace / f".{secrets.token_hex(8)}"
    try:
        if workspace.is_symlink() or not workspace.is_dir():
            _clear(workspace)
        workspace.mkdir(parents=True, exist_ok=True)
        shutil.copytree(master, fresh)
        _clear(workspace / submission_id)
        fresh.rename(workspace / submission_id)
        latest = workspace / "latest.json"
        shutil.copyfile(master / "feedback.json", fresh)
        if latest.is_dir() and not latest.is_symlink():
            _clear(latest)
        fresh.replace(latest)
        _retain(workspace, submission_id)
    except OSError as error:
        _clear(fresh)
        return f"{type(error).__name__}: {error.strerror}"
    return None


def _clear(path: Path) -> None:
    """Remove whatever is at `path`, without following it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _retain(root: Path, newest: str) -> None:
    """Drop the oldest trajectories beyond `RETAINED_BYTES`, never the newest Submission's."""
    kept = 0
    for directory in sorted(root.glob("submission-*"), reverse=True):
        if directory.is_symlink():
            continue
        home = directory / "feedback" if (directory / "feedback").is_dir() else directory
        episodes = home / "episodes"
        if episodes.is_symlink() or not episodes.is_dir():
            continue
        kept += sum(
            entry.stat(follow_symlinks=False).st_size
            for parent, _, names in os.walk(episodes)
            for entry in map(Path(parent).joinpath, names)
        )
        if kept > RETAINED_BYTES and directory.name != newest:
            shutil.rmtree(episodes, ignore_errors=True)
