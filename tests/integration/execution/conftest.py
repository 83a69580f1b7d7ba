"""Fixtures of the tests that run real policy processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evopolicygym.execution.pool import WorkerPool

pytest.register_assert_rewrite(f"{__package__}.arena")

from .arena import Arena, execution, processes, wait_until  # noqa: E402


@contextlib.contextmanager
def _private() -> Iterator[Path]:
    """A short private directory; whatever a test starts names it, and all of that must end."""
    path = Path(tempfile.mkdtemp(prefix="epgt-"))
    try:
        yield path
        gone = wait_until(lambda: processes(path) == [], 10.0)
        assert gone, processes(path)
    finally:
        for process in processes(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A private directory of one test."""
    with _private() as path:
        yield path


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    """One worker for all tests of a module."""
    with _private() as path, WorkerPool(execution(), jobs=1, directory=path) as pool:
        yield Arena(pool, path)
