"""The policy zygote: a warm interpreter that forks one child an Episode.

Started by a worker as `python -m evopolicygym.execution.zygote FD SCRATCH_ROOT`. It
runs no agent code. It is the subreaper of everything a policy starts, drains the policy's
stdout and stderr into capped buffers, and sees to it that nothing is left when an Episode ends
or the worker dies.

Control messages are msgpack over SEQPACKET: `spawn` (with the Episode's pipes and, optionally,
the observation memfd as ancillary data), `alive` and `finish`.
"""

from __future__ import annotations

import fcntl
import gc
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
import numpy as np
import numpy.fft  # numpy loads these lazily; inside a child that costs 20 ms an Episode
import numpy.linalg
import numpy.random

from evopolicygym.execution import guest
from evopolicygym.execution.capped import OUTPUT_LIMIT, CappedBuffer
from evopolicygym.execution.process import THREAD_VARIABLES
from evopolicygym.execution.process_tree import (
    become_subreaper,
    die_with_parent,
    kill_children,
    reap,
)

__all__ = ["CONTROL_BYTES", "main"]

CONTROL_BYTES = 1 << 17
"""Largest control message: two capped output streams and a little more."""

_POLICY_VARIABLES = ("LANG", "PYTHONHASHSEED", "PYTHONUNBUFFERED", *THREAD_VARIABLES)
"""What a policy keeps of the zygote's environment; nothing in it names a Host path."""


class _Output:
    """One output stream of the policy."""

    def __init__(self) -> None:
        self.fd, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.fd, False)
        self.buffer = CappedBuffer(OUTPUT_LIMIT)

    def drain(self) -> None:
        """Take what is there; close at the end of the stream."""
        while self.fd >= 0:
            try:
                data = os.read(self.fd, 65536)
            except BlockingIOError:
                return
            if data:
                self.buffer.write(data)
                return
            self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@dataclass(slots=True)
class _Child:
    """The policy process of the current Episode."""

    pid: int
    pidfd: int
    scratch: str
    outputs: tuple[_Output, _Output]

    def pump(self, extra: Sequence[int], timeout: float | None) -> set[int]:
        """Wait for output or for one of `extra`; drain; return what was ready."""
        open_outputs = {output.fd: output for output in self.outputs if output.fd >= 0}
        ready = _wait([*extra, *open_outputs], timeout)
        for fd in ready & open_outputs.keys():
            open_outputs[fd].drain()
        return ready


def _wait(fds: Iterable[int], timeout: float | None) -> set[int]:
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    return {fd for fd, _ in poller.poll(None if timeout is None else timeout * 1000)}


class _Zygote:
    """Serves one worker until its control socket closes."""

    def __init__(self, control: socket.socket, scratch_root: str) -> None:
        self._control = control
        self._scratch_root = scratch_root
        self._child: _Child | None = None
        self._count = 0
        # A process that the Environment forked may hold the control socket open.
        self._worker = os.pidfd_open(os.getppid())

    def run(self) -> None:
        """Answer control messages until the worker is gone."""
        watched = (self._control.fileno(), self._worker)
        while True:
            ready = _wait(watched, None) if self._child is None else self._child.pump(watched, None)
            if self._worker in ready:
                self._finish(grace=0.0)
                return
            if self._control.fileno() not in ready:
                continue
            data, fds, _, _ = socket.recv_fds(self._control, CONTROL_BYTES, 3)
            if not data:
                self._finish(grace=0.0)
                return
            request = msgspec.msgpack.decode(data)
            if request["op"] == "spawn":
                self._reply(self._spawn(request, fds))
            elif request["op"] == "alive":
                child = self._child
                ended = child is None or bool(select.select([child.pidfd], [], [], 0)[0])
                self._reply({"alive": not ended})
            else:
                self._reply(self._finish(grace=request["grace"]))

    def _reply(self, message: dict[str, Any]) -> None:
        self._control.send(msgspec.msgpack.encode(message))

    def _spawn(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        self._count += 1
        scratch = f"{self._scratch_root}/{self._count}"
        os.mkdir(scratch, 0o700)  # noqa: PTH102 - pathlib is not loaded here
        outputs = (_Output(), _Output())
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent(parent)
                os.setsid()
                _become_policy(request, fds, scratch, [output.write_end for output in outputs])
            finally:
                os._exit(1)
        for output in outputs:
            os.close(output.write_end)
        for fd in fds:
            os.close(fd)
        self._child = _Child(pid, os.pidfd_open(pid), scratch, outputs)
        return {"pid": pid}

    def _finish(self, grace: float) -> dict[str, Any]:
        """End the child and everything it started; return how it ended and what it printed."""
        child = self._child
        if child is None:
            return {"status": None}
        self._child = None
        deadline = time.monotonic() + grace
        while (left := deadline - time.monotonic()) > 0 and child.pidfd not in child.pump(
            (child.pidfd,), left
        ):
            pass
        own_exit = bool(select.select([child.pidfd], [], [], 0)[0])
        if not own_exit:
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        os.close(child.pidfd)
        clean = reap() or kill_children()
        for output in child.outputs:
            while output.fd >= 0:  # no writer is left, so the end of the stream comes
                select.select([output.fd], [], [], 1.0 if clean else 0.0)
                before = output.buffer.total
                output.drain()
                if output.fd >= 0 and output.buffer.total == before:
                    output.close()
        shutil.rmtree(child.scratch, ignore_errors=True)
        return {
            "status": os.waitstatus_to_exitcode(status),
            "own_exit": own_exit,
            "clean": clean,
            "stdout": child.outputs[0].buffer.content(),
            "stderr": child.outputs[1].buffer.content(),
        }


def _become_policy(
    request: dict[str, Any], fds: list[int], scratch: str, outputs: list[int]
) -> NoReturn:
    """In the forked child: private descriptors, streams, directory and limits; then serve."""
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (outputs[0], 1), (outputs[1], 2)):
        os.dup2(source, target)
    shared = None
    if len(fds) > 2:
        shared = mmap.mmap(fds[2], request["shared_bytes"], prot=mmap.PROT_READ)
    # A policy gets its two pipes and the three standard streams, nothing of the zygote's. The
    # detour keeps a pipe that already sits on 3 or 4 from being overwritten.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in fds[:2]]
    read_fd, write_fd = os.dup2(high[0], 3), os.dup2(high[1], 4)
    os.closerange(5, 4096)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(  # noqa: SIM115
        1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    sys.stderr = open(  # noqa: SIM115
        2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    sys.argv = ["policy.py"]
    os.chdir(scratch)
    kept = {name: os.environ[name] for name in _POLICY_VARIABLES if name in os.environ}
    os.environ.clear()
    os.environ.update(kept | {"PATH": os.defpath, "HOME": scratch, "TMPDIR": scratch})
    sys.dont_write_bytecode = True  # the Program's files are gone after this Episode
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    limits = request["limits"]

    def apply_limits() -> None:
        for name, value in limits.items():
            number = getattr(resource, f"RLIMIT_{name}")
            _, hard = resource.getrlimit(number)
            if hard != resource.RLIM_INFINITY:
                value = min(value, hard - (guest.MEMORY_RESERVE if name == "AS" else 0))
            # Room to say so where the memory ran out: the guest raises the soft limit then.
            room = guest.MEMORY_RESERVE if name == "AS" else 0
            resource.setrlimit(number, (value, value + room))

    guest.serve(read_fd, write_fd, request["program"], shared, apply_limits)


def main(arguments: list[str]) -> None:
    """Run a zygote.

    Args:
        arguments: Control descriptor, scratch directory (removed at the end).
    """
    # Not die_with_parent: a zygote that is killed can't end what a policy left behind. It sees
    # its control socket close instead.
    control, scratch_root = socket.socket(fileno=int(arguments[0])), arguments[1]
    become_subreaper()
    # First use of these is slow; the children inherit them warm.
    np.random.seed(0)
    np.zeros((4, 4)) @ np.zeros(4)
    compile("x = 1", "policy.py", "exec")
    gc.collect()
    gc.freeze()
    control.send(msgspec.msgpack.encode({"ready": True}))
    try:
        _Zygote(control, scratch_root).run()
    finally:
        kill_children()
        shutil.rmtree(scratch_root, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
