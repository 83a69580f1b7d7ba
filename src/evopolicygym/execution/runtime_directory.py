"""Short-lived private directories for sockets, scratch and workers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from evopolicygym.errors import ExecutionError

__all__ = ["MAX_SOCKET_PATH", "runtime_directory"]

MAX_SOCKET_PATH = 107
"""Longest path of a Unix socket, bytes: `sun_path` has 108 with the final NUL (unix(7))."""

_LOCK_NAME = ".evopolicygym-runtime"
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
            _remove_stale(Path(parent).resolve())
            unlocked = Path(tempfile.mkdtemp(prefix=".epg-", dir=Path(parent).resolve()))
            lock = _locked(unlocked, create=True)
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


def _locked(directory: Path, *, create: bool = False) -> int | None:
    """Lock a directory's lock file for as long as this process lives.

    Returns:
        The open file, or None if another process holds the lock.

    Raises:
        OSError: There is no lock file: the directory is none of ours.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    fd = os.open(directory / _LOCK_NAME, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove_stale(parent: Path) -> None:
    """Remove what Hosts of this user that were killed left behind.

    Only a directory that has our lock file counts, and only if nobody holds the lock.
    """
    for directory in parent.glob("epg-*"):
        try:
            info = directory.lstat()
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
                continue
            lock = _locked(directory)
        except OSError:  # no lock file, or gone meanwhile
            continue
        if lock is not None:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)
