"""Where Runs are put: `runs/<model>/<env>/<exp-id>/`, with safe reversible names."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote, unquote

from evopolicygym.errors import ConfigurationError

__all__ = ["original_name", "run_directory", "safe_name"]

_MAX_NAME_BYTES = 255  # NAME_MAX of Linux file systems, limits.h


def safe_name(name: str) -> str:
    """Return `name` as one path component; `original_name` undoes it.

    Raises:
        ConfigurationError: It is empty or too long.
    """
    # quote() leaves dots alone, and "." and ".." are no names of their own.
    try:
        quoted = quote(name, safe=" +,=@")
    except UnicodeEncodeError:
        raise ConfigurationError(f"{name[:40]!a} is no UTF-8 text") from None
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if not name or len(quoted) > _MAX_NAME_BYTES:
        raise ConfigurationError(
            f"{name[:40]!r} can't name a directory: expected 1 to {_MAX_NAME_BYTES} bytes"
        )
    return quoted


def original_name(component: str) -> str:
    """Return the name that `safe_name` made `component` from."""
    return unquote(component)


def run_directory(runs: Path, model: str, benchmark_id: str, exp_id: str | None) -> Path:
    """Return the directory of one Run.

    Args:
        runs: Root of all Runs.
        model: Model or agent name.
        benchmark_id: Benchmark id.
        exp_id: Experiment id, or None for the next free `run-001`, `run-002`, ….
    """
    parent = runs / safe_name(model) / safe_name(benchmark_id)
    if exp_id is not None:
        return parent / safe_name(exp_id)
    number = 1
    while os.path.lexists(parent / f"run-{number:03d}"):  # False, not an error, for bad paths
        number += 1
    return parent / f"run-{number:03d}"
