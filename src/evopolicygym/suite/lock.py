"""`suite.lock.json`: what the cells of a suite's root were when it was begun."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evopolicygym.errors import ConfigurationError, RecordError
from evopolicygym.run.files import write_json
from evopolicygym.strict_json import finite, loads

__all__ = ["LOCK_NAME", "LockFile", "hold_to", "read_lock"]

LOCK_NAME = "suite.lock.json"
_SHOWN = 12


class LockFile(BaseModel):
    """The file: cells by name, the digest of all that they are, and the versions they need."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_: Literal["evopolicygym.suite-lock/1"] = Field(
        "evopolicygym.suite-lock/1", alias="schema"
    )
    name: str
    digest: str
    versions: dict[str, str]
    cells: dict[str, dict[str, Any]]


def read_lock(root: Path) -> LockFile | None:
    """Return a root's lock, or None if there is none.

    Raises:
        RecordError: It is damaged, or of another version.
    """
    path = root / LOCK_NAME
    try:
        lock = LockFile.model_validate(loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValidationError, ValueError) as error:
        raise RecordError(f"{path} is no lock of a suite: {error}") from None
    if lock.digest != _digest(lock.versions, lock.cells):
        raise RecordError(f"{path} was changed by hand: its digest does not fit")
    return lock


def hold_to(
    root: Path, name: str, versions: Mapping[str, str], cells: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write the lock, or hold the cells to the one that is there.

    Args:
        root: The suite's root.
        name: The suite's name.
        versions: Package → version.
        cells: Name → identity (`evopolicygym.suite.cells.identity`).

    Raises:
        ConfigurationError: They differ; shows how.
        RecordError: The lock is damaged, or can't be written.
    """
    plain: dict[str, dict[str, Any]] = json.loads(json.dumps(finite(dict(cells))))
    there = read_lock(root)
    if there is None:
        digest = _digest(dict(versions), plain)
        lock = LockFile(
            schema="evopolicygym.suite-lock/1",
            name=name,
            digest=digest,
            versions=dict(versions),
            cells=plain,
        )
        root.mkdir(parents=True, exist_ok=True)
        write_json(root / LOCK_NAME, lock.model_dump(by_alias=True))
        return
    differences = [
        *_differences("versions", there.versions, dict(versions)),
        *_differences("cells", there.cells, plain),
    ]
    if differences:
        rest = len(differences) - _SHOWN
        more = [f"and {rest} more"] if rest > 0 else []
        raise ConfigurationError(
            f"{root} was begun with other cells; its results would not be comparable. Name another "
            f"root, or restore:\n  " + "\n  ".join([*differences[:_SHOWN], *more])
        )


def _digest(versions: Mapping[str, str], cells: Mapping[str, Any]) -> str:
    text = json.dumps([versions, cells], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _differences(place: str, before: Any, now: Any) -> Iterator[str]:
    """Yield a line for each place where two JSON values differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            inner = f"{place}[{key!r}]" if place == "cells" else f"{place}.{key}"
            if key not in now:
                yield f"{inner}: was there, is gone"
            elif key not in before:
                yield f"{inner}: is new"
            else:
                yield from _differences(inner, before[key], now[key])
    elif before != now:
        yield f"{place}: was {_shown(before)}, is {_shown(now)}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:39] + "…"
