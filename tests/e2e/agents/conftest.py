"""Whether the real clients can run here; said once more, and louder, at the end of the tests."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from ..tools import ROOT

INSTALLED = Path(os.environ.get("CLIENTS", ROOT / ".clients"))


@cache
def missing() -> str | None:
    """Return why real clients can't run here, or None."""
    if not (INSTALLED / ".installed").exists():
        noted = INSTALLED / "missing"
        why = noted.read_text().strip() if noted.exists() else "run `make .clients/.installed`"
        return f"the real clients are not installed: {why}"
    done = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"no network namespace can be made here: {done.stderr.strip()}"
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if missing() is not None:
        terminalreporter.section("THE REAL CODING AGENTS WERE NOT TESTED", red=True, bold=True)
        terminalreporter.line(str(missing()), red=True)
