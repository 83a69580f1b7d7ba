"""Short-lived private directories for sockets, scratch and workers."""

from __future__ import annotations

import contextlib
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
            directory = Path(tempfile.mkdtemp(prefix=f"epg-{os.getpid()}-", dir=parent))
        except OSError:
            continue
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return
    raise ExecutionError(
        f"no writable directory for a socket of at most {MAX_SOCKET_PATH} bytes among "
        f"{[c for c in candidates if c]}: set XDG_RUNTIME_DIR to a short one"
    )


def _remove_stale(parent: Path) -> None:
    """Remove what Hosts that were killed left behind: their process id is in the name."""
    for directory in parent.glob("epg-*-*"):
        pid = directory.name.split("-")[1]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(directory, ignore_errors=True)
