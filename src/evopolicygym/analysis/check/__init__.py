"""Checking every invariant of a Run's record.

What a record promises is in `docs/protocol.md`; here each promise is looked at again, from the
files alone, and what does not hold is a `Finding`. A record without findings is complete, adds up
and says one thing everywhere. It is no proof against a forger who changes all files together; for
that, play Episodes again (`replay`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from evopolicygym.analysis.check.account import check_account, check_submissions, read_programs
from evopolicygym.analysis.check.documents import read_documents
from evopolicygym.analysis.check.episodes import (
    check_evaluations,
    check_plans,
    load_benchmark,
    planned,
)
from evopolicygym.analysis.check.events import check_events
from evopolicygym.analysis.check.finding import Finding, FindingCode
from evopolicygym.analysis.check.outcome import check_measurements, check_selection, check_summary
from evopolicygym.analysis.check.privacy import check_leftovers, check_paths, check_workspace
from evopolicygym.analysis.check.publication import (
    check_feedback,
    check_skills,
    check_workspace_copies,
)
from evopolicygym.analysis.check.trajectories import check_trajectories
from evopolicygym.errors import ConfigurationError

__all__ = ["Finding", "FindingCode", "check_record", "find_records"]

_FILES = ("run.json", "events.jsonl", "ledger.jsonl")


def find_records(directories: Sequence[Path]) -> list[Path]:
    """Return the records at or below some directories, each once, sorted within each directory.

    A record is a directory with a `run.json`, or with what is left of one. Nothing is looked for
    inside a record. Directories whose names begin with a dot, and links to directories, are
    passed over.

    Raises:
        ConfigurationError: A directory is none, can't be read, or there is no record in it.
    """
    found: dict[Path, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            what = "is no directory" if directory.exists() else "does not exist"
            raise ConfigurationError(f"{directory} {what}: expected a directory with Runs in it")
        records = 0
        for parent, names, files in os.walk(directory, onerror=_refuse):
            if _FILES[0] in files or set(_FILES) <= {*files, _FILES[0]}:
                names.clear()
                records += 1
                found.setdefault(Path(parent).resolve(), Path(parent))
            names[:] = sorted(name for name in names if not name.startswith("."))
        if not records:
            raise ConfigurationError(
                f"there is no Run in {directory}: expected a {_FILES[0]} in it, or below"
            )
    return list(found.values())


def _refuse(error: OSError) -> None:
    raise ConfigurationError(f"{error.filename} can't be read: {error.strerror}") from error


def check_record(path: str | os.PathLike[str], *, replay: bool = False) -> tuple[Finding, ...]:
    """Check one record.

    Nothing is changed. The Run's Benchmark is loaded, if this installation has it, to plan the
    Run's Episodes again; a Run on data splits has only their digests, so its plans are not
    checked. Of a Run without an end, what is there is checked.

    Args:
        path: Directory of the record.
        replay: Also play one Episode of each Submission, and one of Assessment, again. That runs
            the policies of the record with the rights of this process, without a sandbox.

    Returns:
        What is wrong, in the order of the checks; empty for a good record.

    Raises:
        ConfigurationError: There is no record.
        ExecutionError: Policies can't be run here.
    """
    root = Path(path)
    if not any((root / name).is_file() for name in _FILES):
        raise ConfigurationError(f"there is no Run in {root}: expected a {_FILES[0]} in it")
    documents = read_documents(root)
    account = check_account(documents)
    check_submissions(documents, account)
    programs = read_programs(documents)
    check_summary(documents, account)
    check_selection(documents, programs)
    check_measurements(documents)
    check_events(documents, account)
    benchmark = load_benchmark(documents)
    plans = planned(documents, benchmark)
    check_evaluations(documents)
    check_plans(documents, plans)
    check_feedback(documents, account)
    check_trajectories(documents)
    check_workspace_copies(documents)
    check_skills(documents)
    check_workspace(documents, plans)
    check_paths(documents)
    check_leftovers(documents)
    if replay:
        from evopolicygym.analysis.check.replaying import check_replays

        check_replays(documents, benchmark, programs)
    return tuple(documents.findings.made)
