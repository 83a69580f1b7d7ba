"""How fast the commands must start, in wall time.

Every limit is marked `slow` for the same reason: it is a statement about an idle machine, and
`make test` also runs next to other work. A busy moment is given two more chances.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .tools import CLI, SESSION, StagedRun, environment

ROUNDS = 7
CHANCES = 3


def timed(*argv: str | Path, cwd: Path, **variables: str) -> float:
    """Run a command; return its wall time, seconds."""
    kept = environment(**variables)
    # Bytecode caches are what an installed package has.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    subprocess.run(
        argv, cwd=cwd, env=kept, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    return time.perf_counter() - began


def reaches(limit: float, measure: Callable[[], float]) -> None:
    """Check that the median of some rounds is below a limit, seconds."""
    measure()  # fills the caches
    medians = []
    for _ in range(CHANCES):
        medians.append(statistics.median(measure() for _ in range(ROUNDS)))
        if medians[-1] <= limit:
            return
    shown = ", ".join(f"{median * 1000:.0f} ms" for median in medians)
    raise AssertionError(f"medians of {ROUNDS}: {shown}; the limit is {limit * 1000:.0f} ms")


@pytest.mark.slow  # wall time, and a Run to ask
def test_session_status(tmp_path: Path) -> None:
    with StagedRun(tmp_path, "--budget", "8") as staged:
        reaches(
            0.150,
            lambda: timed(SESSION, "status", cwd=staged.workspace, **staged.variables),
        )
        staged.go()
        staged.end()


@pytest.mark.slow  # wall time
def test_help(tmp_path: Path) -> None:
    reaches(0.400, lambda: timed(CLI, "--help", cwd=tmp_path))


@pytest.mark.slow  # wall time, as the difference of two
def test_import(tmp_path: Path) -> None:
    def difference() -> float:
        bare = timed(sys.executable, "-c", "pass", cwd=tmp_path)
        return timed(sys.executable, "-c", "import evopolicygym", cwd=tmp_path) - bare

    reaches(0.060, difference)
