"""Reading finished Runs from their directories."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from evopolicygym.benchmark import ScoreDirection
from evopolicygym.errors import ConfigurationError, RecordError
from evopolicygym.run.files import read_json
from evopolicygym.run.models import EpisodesFile, RunFile
from evopolicygym.strict_json import dumps

__all__ = [
    "ConfigFacts",
    "LeftOut",
    "Record",
    "SpecFacts",
    "path_text",
    "read_record",
    "read_records",
]

_RUN_FILE = "run.json"
_RUN_SCHEMA = "evopolicygym.run/1"


class _Facts(BaseModel):
    """What is needed of an open mapping."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class SpecFacts(_Facts):
    """What is needed of the Benchmark's spec."""

    max_episode_steps: int
    primary_metric: str
    score_direction: ScoreDirection


class ConfigFacts(_Facts):
    """What is needed of the Run's limits."""

    seed: int
    assessment: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Record:
    """One Run as its directory tells it.

    Attributes:
        path: The directory, as it was found.
        run: Its `run.json`.
        spec: Part of `run.spec`.
        config: Part of `run.config`.
        heldout_episodes: Episodes that the held-out score is over; Host faults are none of them.
            None where there is no such score.
    """

    path: Path
    run: RunFile
    spec: SpecFacts
    config: ConfigFacts
    heldout_episodes: int | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A directory that is not part of what was read.

    Attributes:
        path: The directory.
        reason: Why, for a person.
    """

    path: Path
    reason: str


def read_records(
    directories: Sequence[Path], *, skip_unreadable: bool = False
) -> tuple[list[Record], list[LeftOut]]:
    """Read every Run at or below the directories, each once, sorted by name.

    A record is a directory with a `run.json`. Nothing is looked for inside a record: an agent can
    write a `run.json` into its workspace. Directories whose names begin with a dot, and links to
    directories, are passed over.

    Args:
        directories: Where to look.
        skip_unreadable: List what can't be read instead of raising.

    Returns:
        The records, and what was left out: exact copies of another record and, with
        `skip_unreadable`, what can't be read.

    Raises:
        ConfigurationError: A directory is none, or there is no record in it.
        RecordError: Something can't be read; names the file and what is wrong with it.
    """
    records: list[Record] = []
    left_out: list[LeftOut] = []
    seen: set[Path] = set()
    first: dict[bytes, Path] = {}
    for directory in directories:
        if not directory.is_dir():
            what = "is no directory" if directory.exists() else "does not exist"
            raise ConfigurationError(f"{directory} {what}: expected a directory with Runs in it")
        found = 0
        for path, error in _found(directory):
            found += 1
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                if error is not None:
                    raise RecordError(f"{path} can't be read: {error.strerror}")
                record = read_record(path)
            except RecordError as problem:
                if not skip_unreadable:
                    raise
                left_out.append(LeftOut(path, str(problem)))
                continue
            content = dumps(record.run.model_dump(mode="json"))
            if content in first:
                left_out.append(LeftOut(path, f"a copy of {first[content]}"))
                continue
            first[content] = path
            records.append(record)
        if not found:
            raise ConfigurationError(
                f"there is no Run in {directory}: expected a {_RUN_FILE} in it, or below"
            )
    return records, left_out


def _found(directory: Path) -> Iterator[tuple[Path, OSError | None]]:
    """Yield the records at or below a directory, and what could not be looked into."""
    errors: list[OSError] = []
    for parent, names, files in os.walk(directory, onerror=errors.append):
        if _RUN_FILE in files:
            names.clear()
            yield Path(parent), None
        names[:] = sorted(name for name in names if not name.startswith("."))
    for error in errors:
        yield Path(error.filename), error


def read_record(path: Path) -> Record:
    """Read one record.

    Raises:
        RecordError: A file is missing, damaged or of another version.
    """
    run_file = path / _RUN_FILE
    document = _read(run_file)
    if document.get("schema") != _RUN_SCHEMA:
        raise RecordError(
            f"{run_file} has the schema {document.get('schema')!r:.60}, expected {_RUN_SCHEMA!r}"
        )
    place = ""
    try:  # in strict mode a score can't be the text "NaN"
        run = RunFile.model_validate_json(dumps(document), strict=True)
        place = "spec."
        spec = SpecFacts.model_validate(run.spec)
        place = "config."
        config = ConfigFacts.model_validate(run.config)
    except ValidationError as error:
        raise _damaged(run_file, place, error) from None
    if run.assessment_score is None:
        return Record(path, run, spec, config, None)
    episodes_file = path / "assessment" / str(run.selected) / "episodes.json"
    try:
        episodes = EpisodesFile.model_validate(_read(episodes_file)).episodes
    except ValidationError as error:
        raise _damaged(episodes_file, "", error) from None
    measured = sum(episode.score_return is not None for episode in episodes)
    return Record(path, run, spec, config, measured)


def _read(path: Path) -> dict[str, object]:
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise RecordError(f"{path} can't be read: it is no regular file")
    return read_json(path)


def _damaged(path: Path, place: str, error: ValidationError) -> RecordError:
    first = error.errors()[0]
    return RecordError(f"{path}: {place}{'.'.join(map(str, first['loc']))}: {first['msg']}")


def path_text(path: object) -> str:
    """Return a path, or what names one, as text that every output can hold."""
    return str(path).encode("utf-8", "backslashreplace").decode()
