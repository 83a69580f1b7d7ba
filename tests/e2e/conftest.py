"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite(f"{__package__}.tools")

from .tools import CLI, SOLVED, Preloaded, command, processes, wait_until  # noqa: E402


@pytest.fixture(scope="session")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preloaded]:
    """The command line, without the time it takes to import it."""
    server = Preloaded(tmp_path_factory.mktemp("preloaded"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a complete Run on `toy`; to be read, or to be copied and damaged."""
    root = tmp_path_factory.mktemp("finished") / "record"
    options = ["--budget", "8", "--jobs", "2", "--valid-size", "4", "--final-size", "4"]
    done = command(CLI, "run", "--env", "toy", *options, "--root", root, cwd=root.parent)
    assert done.code == 0, done.stderr
    return root


@pytest.fixture
def solved(tmp_path: Path) -> Path:
    """A Program that solves `toy`."""
    directory = tmp_path / "solved"
    directory.mkdir()
    (directory / "policy.py").write_text(SOLVED)
    return directory


@pytest.fixture
def marked() -> Iterator[Path]:
    """A short directory to be the TMPDIR of a Host: all that names it must end with the test."""
    path = Path(tempfile.mkdtemp(prefix="epge-"))
    # Where the tests run in the background of a shell, SIGINT is ignored and that is inherited.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield path
    signal.signal(signal.SIGINT, before)
    gone = wait_until(lambda: not processes(path), 10)
    left = processes(path)
    shutil.rmtree(path, ignore_errors=True)
    assert gone, left
