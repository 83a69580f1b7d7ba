"""The worker's handle on its policy zygote."""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evopolicygym.execution.policy_process import PolicyProcess
from evopolicygym.execution.process import THREAD_VARIABLES
from evopolicygym.execution.process_tree import children, is_subreaper, kill_children
from evopolicygym.execution.zygote import CONTROL_BYTES

__all__ = ["SharedMemory", "Zygote", "policy_environment", "python_module"]

_START_SECONDS = 120.0  # importing numpy on a machine that is very busy


def policy_environment() -> dict[str, str]:
    """Environment of every worker and policy: nothing of the Host's but what Python needs.

    The hash seed is fixed, so that set and dict order never make a score differ; numeric
    libraries get one thread, because parallelism is more workers.
    """
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    # What a machine tells BLAS about its processor belongs together, and must be the same in every
    # process: with a part of it sums differ in the last bit, or OpenBLAS crashes.
    kept |= {name: value for name, value in os.environ.items() if name.startswith("OPENBLAS_")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(THREAD_VARIABLES, "1"),
    }


def python_module(name: str) -> list[str]:
    """Return the command that runs a module of ours; `-P` keeps the directory it runs in out."""
    return [sys.executable, "-P", "-m", name]


class Zygote:
    """A running zygote; restarted by the next `spawn` if it was lost.

    Args:
        scratch_root: Directory for the policies' scratch directories; removed at the end.
    """

    def __init__(self, scratch_root: Path) -> None:
        self._scratch_root = scratch_root
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._generation = 0
        self._ready = False
        self._bystanders: frozenset[int] = frozenset()
        self._start()

    def _start(self) -> None:
        self._generation += 1
        self._ready = False
        root = self._root = self._scratch_root / str(self._generation)
        root.mkdir(parents=True, mode=0o700)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*python_module("evopolicygym.execution.zygote"), str(theirs.fileno()), root],
                pass_fds=[theirs.fileno()],
                env=policy_environment(),
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None,
                start_new_session=True,
            )
        ours.settimeout(_START_SECONDS)
        self._control = ours

    def wait_ready(self) -> None:
        """Wait until the zygote has imported what policies need; at once if it has.

        Raises:
            OSError: It did not start.
        """
        if not self._ready and self._receive() is None:
            raise OSError("the policy zygote did not start; its error is on stderr")
        self._ready = True

    def _receive(self) -> dict[str, Any] | None:
        assert self._control is not None
        data = self._control.recv(CONTROL_BYTES)
        return msgspec.msgpack.decode(data) if data else None

    def _request(
        self, message: dict[str, Any], fds: tuple[int, ...] = (), *, patience: float = 15.0
    ) -> dict[str, Any] | None:
        """Send one control message; None means that the zygote is gone, or was stopped."""
        assert self._control is not None
        try:
            self._control.settimeout(patience)
            socket.send_fds(self._control, [msgspec.msgpack.encode(message)], fds)
            return self._receive()
        except OSError:
            return None

    def spawn(self, program: Path, limits: Mapping[str, int], shared_bytes: int) -> PolicyProcess:
        """Fork a policy process for one Episode.

        Args:
            program: Directory that holds the Program's files.
            limits: Resource limits, see `ProcessExecution.resource_limits`.
            shared_bytes: Room for large observation arrays, bytes; 0 for none.

        Raises:
            OSError: The zygote can't be reached, also not after a restart.
        """
        shared = SharedMemory(shared_bytes) if shared_bytes else None
        request = {
            "op": "spawn",
            "program": str(program),
            "limits": dict(limits),
            "shared_bytes": shared_bytes,
        }
        # Whatever an Environment has started by now is not the policy's.
        self._bystanders = frozenset(children(os.getpid()))
        to_policy, from_policy = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        try:
            fds = (to_policy[0], from_policy[1], *([shared.fd] if shared else []))
            reply = self._request(request, fds)
            if reply is None:
                self.close(lost=True)
                self._start()
                self.wait_ready()
                reply = self._request(request, fds)
        finally:
            os.close(to_policy[0])
            os.close(from_policy[1])
        if reply is None:
            raise OSError("the policy zygote can't be reached")
        return PolicyProcess(self, to_policy[1], from_policy[0], shared)

    def alive(self) -> bool:
        """Return whether the current policy process still runs."""
        reply = self._request({"op": "alive"})
        return bool(reply and reply["alive"])

    def finish(self, grace: float) -> dict[str, Any] | None:
        """End the current policy process with all it started; None if the zygote was lost."""
        return self._request({"op": "finish", "grace": grace}, patience=grace + 20.0)

    def close(self, *, lost: bool = False) -> None:
        """End the zygote; it ends what is left of its policy first.

        Args:
            lost: It was killed or stopped and can't end anything: that is done here then.
        """
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(timeout=0 if lost else 15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if lost and is_subreaper():
            kill_children(keep=self._bystanders)
        shutil.rmtree(self._root, ignore_errors=True)


class SharedMemory:
    """A sealed memfd: writable here, read-only for whoever maps it later.

    Without the seals a policy could shrink it under the worker, which dies of SIGBUS then
    (facts/execution.md A3, trap 9).
    """

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("observations", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        self.map = mmap.mmap(self.fd, size)
        seals = (
            fcntl.F_SEAL_SHRINK
            | fcntl.F_SEAL_GROW
            | 0x10  # F_SEAL_FUTURE_WRITE, linux/fcntl.h; not in Python's fcntl before 3.13
            | fcntl.F_SEAL_SEAL
        )
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def close(self) -> None:
        """Close the descriptor; the map goes with the last reference to it."""
        os.close(self.fd)
