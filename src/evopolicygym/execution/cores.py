"""One core a worker, shared fairly between all workers of this user on this machine.

A strict ping-pong across cores is 2-10x slower than on one (facts/execution.md B2, B5), so a
worker, its zygote and its policy are pinned together. Which core is settled by file locks: they
also hold between unrelated Runs, and the kernel drops them when a worker dies.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO

__all__ = ["pin_to_free_core"]

_held: list[IO[str]] = []


def pin_to_free_core() -> int | None:
    """Pin this process to a core that no other worker holds.

    Returns:
        The core, or None where all are taken; then the scheduler places this worker.
    """
    directory = Path(tempfile.gettempdir()) / f"evopolicygym-cores-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        for core in sorted(os.sched_getaffinity(0)):
            lock = (directory / str(core)).open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            os.sched_setaffinity(0, {core})
            _held.append(lock)  # the lock lives as long as this process
            return core
    except OSError:
        pass
    return None
