"""Feedback: what was published is what the Host recorded, in the record and in the workspace."""

from __future__ import annotations

import filecmp
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from evopolicygym.analysis.check.account import Account
from evopolicygym.analysis.check.documents import Documents
from evopolicygym.analysis.check.finding import FindingCode
from evopolicygym.errors import ConfigurationError
from evopolicygym.run.models import EpisodeEntry, FeedbackEpisode, FeedbackFile
from evopolicygym.skills import AgentSkill

__all__ = ["check_feedback", "check_skills", "check_workspace_copies"]

_FILES = {
    "trajectory": "trajectory.jsonl",
    "observations": "observations.npz",
    "stdout": "stdout.txt",
    "stderr": "stderr.txt",
}
"""Fields of a row that name files, and what those are called."""


# ----------------------------------------------------------------------------- feedback.json


def check_feedback(documents: Documents, account: Account | None) -> None:
    """Compare every master copy of `feedback.json` with the private files."""
    for name, feedback in documents.feedback.items():
        place = f"submissions/{name}/feedback/feedback.json"
        for problem in _head_problems(documents, account, name, feedback):
            documents.findings.add(FindingCode.PUBLICATION, place, problem)
        private = documents.of("submissions").get(name)
        if private is not None:
            for problem in _row_problems(feedback, private.episodes):
                documents.findings.add(FindingCode.PUBLICATION, place, problem)
        _check_files(documents, name, feedback)


def _head_problems(
    documents: Documents, account: Account | None, name: str, feedback: FeedbackFile
) -> Iterator[str]:
    expected: dict[str, object] = {"submission_id": name}
    if (spec := documents.spec) is not None:
        expected["benchmark_id"] = spec.id
        expected["primary_metric"] = spec.primary_metric
        expected["score_direction"] = spec.score_direction
    if (submission := documents.submissions.get(name)) is not None:
        expected["program_digest"] = submission.program_digest
        expected["score"] = submission.score
        expected["episode_indices"] = submission.episode_indices
    entry = None if account is None else account.entries.get(name)
    if entry is not None and documents.config is not None:
        expected["episodes_used"] = entry.used_after
        expected["episodes_remaining"] = documents.config.episode_budget - entry.used_after
    for field, value in expected.items():
        if getattr(feedback, field) != value:
            yield f"$.{field} is {getattr(feedback, field)}, the record says {value}"
    indices = [row.index for row in feedback.episodes]
    if indices != feedback.episode_indices:
        yield f"its rows have the indices {indices}, expected {feedback.episode_indices}"
    yield from _statistics_problems(feedback)


def _row_problems(feedback: FeedbackFile, private: list[EpisodeEntry]) -> Iterator[str]:
    entries = {entry.index: entry for entry in private}
    for row in feedback.episodes:
        entry = entries.get(row.index)
        if entry is None:
            continue
        fault = entry.environment_error is not None
        told: dict[str, tuple[object, object]] = {
            "total_reward": (row.total_reward, None if fault else entry.total_reward),
            "score_return": (row.score_return, entry.score_return),
            **{
                name: (getattr(row, name), getattr(entry, name))
                for name in ("steps", "terminated", "truncated", "failure")
            },
        }
        for name, (value, expected) in told.items():
            if value != expected:
                yield f"Episode {row.index}: {name} is {value}, the record says {expected}"
        if (row.environment_error is not None) != fault:
            yield f"Episode {row.index}: environment_error is {row.environment_error}"
        if (row.trajectory is None) != fault:
            yield f"Episode {row.index}: trajectory is {row.trajectory}"


def _statistics_problems(feedback: FeedbackFile) -> Iterator[str]:
    """Recompute the statistics from the rows of the same file."""
    rows = [row for row in feedback.episodes if row.environment_error is None]
    codes = Counter(row.failure.code.value for row in rows if row.failure is not None)
    returns = [row.score_return for row in rows if row.score_return is not None]
    expected: dict[str, Any] = {
        "returns": _distribution(returns),
        "lengths": _distribution([float(row.steps) for row in rows]),
        "terminated": sum(row.terminated for row in rows),
        "truncated": sum(row.truncated for row in rows),
        "failures": dict(codes),
        "environment_errors": len(feedback.episodes) - len(rows),
    }
    for name, value in expected.items():
        told = feedback.statistics.get(name)
        if isinstance(told, Mapping) and name in ("returns", "lengths"):
            told = {key: told.get(key) for key in value}
            same = all(_close(told[key], value[key]) for key in value)
        else:
            same = told == value
        if not same:
            yield f"$.statistics.{name} is {told}, the rows give {value}"


def _distribution(values: list[float]) -> dict[str, float]:
    if not values:
        return {"count": 0}
    return {
        "count": len(values),
        "mean": statistics.fmean(values),
        "min": min(values),
        "max": max(values),
    }


def _close(first: object, second: float) -> bool:
    return isinstance(first, float | int) and math.isclose(first, second, rel_tol=1e-9)


# -------------------------------------------------------------------------------------- files


def _check_files(documents: Documents, name: str, feedback: FeedbackFile) -> None:
    """Check that every path stays in its directory and that the files are those it names."""
    findings = documents.findings
    place = f"submissions/{name}/feedback"
    home = documents.root / place
    # The oldest Submissions may have lost their trajectories, never the newest.
    retained = (home / "episodes").is_dir() or name == max(documents.submissions, default=name)
    named = {"feedback.json"}
    for path in _paths(feedback):
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            message = f"names {path}, expected a path below its directory"
            findings.add(FindingCode.PATH, f"{place}/feedback.json", message)
            continue
        named.add(str(pure))
        if not (home / pure).is_file() and (retained or pure.parts[0] != "episodes"):
            findings.add(FindingCode.MISSING, f"{place}/{pure}", "is named by feedback.json")
    for row in feedback.episodes:
        for field, file in _FILES.items():
            value, expected = getattr(row, field), f"episodes/{row.index:06d}/{file}"
            if value not in (None, expected) and not PurePosixPath(value).is_absolute():
                message = f"Episode {row.index}: {field} is {value}, expected {expected}"
                findings.add(FindingCode.PUBLICATION, f"{place}/feedback.json", message)
    for path in _files(home):
        if path not in named and not path.startswith("program/"):
            message = "is not named by feedback.json"
            findings.add(FindingCode.PUBLICATION, f"{place}/{path}", message)


def _paths(feedback: FeedbackFile) -> Iterator[str]:
    for row in feedback.episodes:
        yield from _named(row)
    yield from feedback.artifacts


def _named(row: FeedbackEpisode) -> Iterator[str]:
    yield from (value for field in _FILES if (value := getattr(row, field)) is not None)


def _files(home: Path) -> list[str]:
    return sorted(
        path.relative_to(home).as_posix()
        for path in home.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )


# ---------------------------------------------------------------------------------- workspace


def check_workspace_copies(documents: Documents) -> None:
    """Compare what the agent got with the master copies, as far as it has left it there."""
    shown = documents.root / "workspace" / "feedback"
    newest = max(documents.feedback, default=None)
    for name in documents.feedback:
        master, copy = documents.root / "submissions" / name / "feedback", shown / name
        try:
            if any(path.is_symlink() for path in (shown.parent, shown, copy)):
                continue
            for path in _files(master):
                _compare(documents, copy / path, master / path)
            if documents.finished and name == newest and (copy / "feedback.json").is_file():
                _compare(documents, shown / "latest.json", master / "feedback.json")
        except OSError:
            continue  # what the agent locks away is its own affair


def _compare(documents: Documents, copy: Path, master: Path) -> None:
    regular = all(path.is_file() and not path.is_symlink() for path in (copy, master))
    if regular and not filecmp.cmp(copy, master, shallow=False):
        place = master.relative_to(documents.root)
        documents.findings.add(FindingCode.PUBLICATION, copy, f"is not the same as {place}")


def check_skills(documents: Documents) -> None:
    """Compare the digests of skills that are still in the workspace."""
    for skill in [] if documents.run is None else documents.run.skills:
        name = str(skill.get("name"))
        home = documents.root / "workspace" / "skills" / name
        if Path(name).name != name or not home.exists():
            continue
        place = f"workspace/skills/{name}"
        try:
            digest = AgentSkill.from_directory(home).digest
        except ConfigurationError as error:
            message = str(error).replace(f"{documents.root}/", "")
            documents.findings.add(FindingCode.DIGEST, place, message)
        else:
            documents.findings.expect(
                FindingCode.DIGEST, place, "the skill's digest", digest, skill.get("digest")
            )
