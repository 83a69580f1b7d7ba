"""Fixtures of the tests that run real policy processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evopolicygym.execution.pool import WorkerPool

pytest.register_assert_rewrite(f"{__package__}.arena")

from .arena import Arena, execution, processes, wait_until  # noqa: E402


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short private directory; whatever a test starts names it, and all of that must end."""
    path = Path(tempfile.mkdtemp(prefix="epgt-"))
    yield path
    gone = wait_until(lambda: processes(path) == [], 10.0)
    left = processes(path)
    shutil.rmtree(path, ignore_errors=True)
    assert gone, left


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    """One worker for all tests of a module."""
    path = Path(tempfile.mkdtemp(prefix="epgt-"))
    with WorkerPool(execution(), jobs=1, directory=path) as pool:
        yield Arena(pool, path)
    gone = wait_until(lambda: processes(path) == [], 10.0)
    left = processes(path)
    shutil.rmtree(path, ignore_errors=True)
    assert gone, left
