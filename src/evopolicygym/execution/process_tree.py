"""Ending a process together with everything it started (Linux).

A process that called `become_subreaper` inherits its orphaned descendants, double-forked and
`setsid` ones included. So "I have no children left" means that none of them survived.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection

__all__ = [
    "become_subreaper",
    "children",
    "die_with_parent",
    "is_subreaper",
    "kill_children",
    "reap",
]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

# Loaded here, not in the calls: the first use of ctypes after a fork is slow (page faults).
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def become_subreaper() -> None:
    """Make orphaned descendants children of this process.

    Raises:
        OSError: The kernel refused.
    """
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def is_subreaper() -> bool:
    """Return whether orphaned descendants come to this process."""
    flag = ctypes.c_int(0)
    return _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.addressof(flag), 0, 0, 0) == 0 and bool(flag)


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when the thread that started it ends.

    Args:
        parent: Process id of the expected parent; if it is gone already, exit now.
    """
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def children(pid: int) -> list[int]:
    """Return the ids of the direct children of `pid`; empty if it is gone."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - pathlib is slow to import
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                found.extend(map(int, file.read().split()))
        except OSError:
            continue
    return found


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    pending = [pid]
    while pending:
        below = children(pending.pop())
        found += below
        pending += below
    return found


def kill_children(*, keep: Collection[int] = (), timeout: float = 10.0) -> bool:
    """SIGKILL and reap every descendant of this (subreaper) process.

    Args:
        keep: Children to leave alone, with all of theirs.
        timeout: Seconds to keep trying; a process in uninterruptible sleep can't be ended.

    Returns:
        Whether none is left.
    """
    deadline = time.monotonic() + timeout
    while True:
        own = [pid for pid in children(os.getpid()) if pid not in keep]
        if not own:
            return True
        victims = own + [pid for child in own for pid in _descendants(child)]
        # Stop all before killing any, so that a fork bomb can't outrun the loop.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for victim in victims:
                try:
                    os.kill(victim, number)
                except OSError:
                    continue
        for pid in own:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)


def reap() -> bool:
    """Collect every child that has ended; return whether there is no child left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False
