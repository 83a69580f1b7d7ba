"""What has become of the cells of a suite, read from disk alone.

A cell's record takes its place when its Run has ended. Before, and where it never ends, it is an
attempt: `root/.attempts/<name>/<number>/` with `attempt.json` and what there is of a record. An
old record that is played again moves there too. So nothing that was published is ever deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evopolicygym.errors import RecordError
from evopolicygym.run.files import read_json, write_json
from evopolicygym.run.models import RunFile

__all__ = [
    "ATTEMPTS",
    "AttemptFile",
    "CellState",
    "State",
    "attempts_of",
    "new_attempt",
    "set_aside",
    "state_of",
    "write_attempt",
]

ATTEMPTS = ".attempts"


class State(StrEnum):
    """What a cell can be."""

    DONE = "done"
    """Its Run has a score."""
    FAILED = "failed"
    """Its Run is data, but has no score: nothing was handed over that could be measured."""
    UNSCORED = "unscored"
    """Its Run is no data: its agent's provider, its start or the Host failed."""
    CRASHED = "crashed"
    """Its process ended without a Run; it is played again."""
    MISSING = "missing"
    """It was not played to its end; it is played again."""


@dataclass(frozen=True, slots=True)
class CellState:
    """What has become of one cell.

    Attributes:
        name: Its name.
        state: In one word.
        reason: Why the search ended, or why the process did; empty if nothing is known.
        score: Held-out score, or None.
        episodes: Episodes used, or None.
        attempts: How often it was begun and did not become the cell's record.
    """

    name: str
    state: State
    reason: str = ""
    score: float | None = None
    episodes: int | None = None
    attempts: int = 0


class AttemptFile(BaseModel):
    """`attempt.json`: how an attempt ended."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_: Literal["evopolicygym.suite-attempt/1"] = Field(
        default="evopolicygym.suite-attempt/1", alias="schema"
    )
    cell: str
    ended: str
    reason: str


def state_of(root: Path, name: str) -> CellState:
    """Read what has become of a cell.

    Raises:
        RecordError: Its record is damaged.
    """
    tries = attempts_of(root, name)
    path = root / name / "run.json"
    if not (root / name).exists():
        reason = _last_words(tries)
        return CellState(
            name, State.CRASHED if reason else State.MISSING, reason, attempts=len(tries)
        )
    try:
        run = RunFile.model_validate(read_json(path))
    except ValidationError as error:
        raise RecordError(f"{path} is no record of a Run: {error.error_count()} errors") from None
    reason = "" if run.terminal_reason is None else str(run.terminal_reason)
    if not run.counts:
        state = State.UNSCORED
    else:
        state = State.DONE if run.assessment_score is not None else State.FAILED
        if run.status == "done":
            state = State.DONE
    return CellState(
        name, state, reason, run.assessment_score, run.episodes_used, attempts=len(tries)
    )


def attempts_of(root: Path, name: str) -> Sequence[Path]:
    """Return the directories of a cell's attempts, the oldest first."""
    home = root / ATTEMPTS / name
    return sorted(path for path in home.iterdir() if path.name.isdigit()) if home.is_dir() else []


def _last_words(tries: Sequence[Path]) -> str:
    if not tries or not (tries[-1] / "attempt.json").exists():
        return ""
    try:
        return AttemptFile.model_validate(read_json(tries[-1] / "attempt.json")).reason
    except ValidationError:
        return ""


def new_attempt(root: Path, name: str) -> Path:
    """Create the directory of a cell's next attempt."""
    home = root / ATTEMPTS / name
    home.mkdir(parents=True, exist_ok=True)
    tries = attempts_of(root, name)
    path = home / f"{int(tries[-1].name) + 1 if tries else 1:03d}"
    path.mkdir()
    return path


def set_aside(root: Path, name: str, reason: str, ended: str) -> None:
    """Move a cell's record among its attempts, so that the cell can be played again."""
    attempt = new_attempt(root, name)
    (root / name).rename(attempt / "record")
    write_attempt(attempt, name, reason, ended)


def write_attempt(attempt: Path, name: str, reason: str, ended: str) -> None:
    """Note how an attempt ended."""
    document: Any = AttemptFile(
        schema="evopolicygym.suite-attempt/1", cell=name, ended=ended, reason=reason
    )
    write_json(attempt / "attempt.json", document.model_dump(by_alias=True))
