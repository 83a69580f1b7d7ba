"""Short-lived private directories for sockets, scratch and workers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from evopolicygym.errors import ExecutionError

__all__ = ["MAX_SOCKET_PATH", "runtime_directory"]

MAX_SOCKET_PATH = 107
"""Longest path of a Unix socket, bytes: `sun_path` has 108 with the final NUL (unix(7))."""

_LONGEST_NAME = 40  # the longest file name this project puts directly below


@contextlib.contextmanager
def runtime_directory() -> Iterator[Path]:
    """Create a private directory (0700) whose path leaves room for a socket; remove it after.

    Raises:
        ExecutionError: No candidate directory is writable and short enough.
    """
    candidates = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]
    for parent in candidates:
        if not parent or len(os.fsencode(parent)) + 24 + _LONGEST_NAME > MAX_SOCKET_PATH:
            continue
        try:
            _remove_stale(Path(parent))
            unlocked = Path(tempfile.mkdtemp(prefix=".epg-", dir=parent))
            lock = _locked(unlocked)
            directory = unlocked.rename(unlocked.with_name(unlocked.name[1:]))
        except OSError:
            continue
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            if lock is not None:
                os.close(lock)
        return
    raise ExecutionError(
        f"no writable directory for a socket of at most {MAX_SOCKET_PATH} bytes among "
        f"{[c for c in candidates if c]}: set XDG_RUNTIME_DIR to a short one"
    )


def _locked(directory: Path) -> int | None:
    """Lock a directory for as long as this process lives; None if another process holds it."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove_stale(parent: Path) -> None:
    """Remove what Hosts that were killed left behind: nobody holds the lock any more."""
    for directory in parent.glob("epg-*"):
        try:
            lock = _locked(directory)
        except OSError:  # another user's, or gone meanwhile
            continue
        if lock is not None:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)
