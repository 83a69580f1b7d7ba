"""The agent's supervisor: starts one program and sees to it that nothing of it is left.

Started as `python -m evopolicygym.run.supervisor FD`, with the order as JSON on stdin. The
control socket carries `{"grace": seconds}` one way, meaning stop, and the end of the agent the
other way. If it closes, the Host is gone and everything ends at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from evopolicygym.execution.process_tree import become_subreaper, kill_children, reap

__all__ = ["main"]

_HEAD_BYTES = 16 * 2**20
_TAIL_BYTES = 2**20


class _Log:
    """One output stream of the agent: the first 16 MiB and the last MiB go to a file."""

    def __init__(self, pipe: IO[bytes], path: Path) -> None:
        self.fd = pipe.fileno()
        self._pipe = pipe
        self._file = path.open("wb", buffering=0)
        self._written = 0
        self._tail = bytearray()
        self._dropped = 0
        os.set_blocking(self.fd, False)

    def pump(self) -> bool:
        """Take what is there; return False at the end of the stream."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return True
        room = _HEAD_BYTES - self._written
        if room > 0:
            self._file.write(data[:room])
            self._written += len(data[:room])
        self._tail += data[max(0, room) :]
        if len(self._tail) > 4 * _TAIL_BYTES:
            self._dropped += len(self._tail) - _TAIL_BYTES
            del self._tail[:-_TAIL_BYTES]
        return bool(data)

    def close(self) -> None:
        """Write the tail, with a marker where bytes were left out."""
        self._dropped += max(0, len(self._tail) - _TAIL_BYTES)
        if self._dropped:
            self._file.write(f"\n[… {self._dropped} bytes left out …]\n".encode())
        self._file.write(bytes(self._tail[-_TAIL_BYTES:]))
        self._file.close()
        self._pipe.close()


def _start(order: dict[str, Any], logs: Path) -> subprocess.Popen[bytes]:
    with (logs / "stdin.txt").open("rb") as stdin:
        return subprocess.Popen(
            order["argv"],
            env=order["environment"],
            cwd=order["workspace"],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )


def _supervise(control: socket.socket, agent: subprocess.Popen[bytes], logs: Path) -> int:
    """Pump output until the agent ends, is told to stop or the Host is gone."""
    assert agent.stdout is not None
    assert agent.stderr is not None
    streams = [_Log(agent.stdout, logs / "stdout.txt"), _Log(agent.stderr, logs / "stderr.txt")]
    by_fd = {stream.fd: stream for stream in streams}
    pidfd = os.pidfd_open(agent.pid)
    poller = select.poll()
    for fd in (control.fileno(), pidfd, *by_fd):
        poller.register(fd, select.POLLIN)
    deadline: float | None = None
    ended = False
    while not ended and (deadline is None or time.monotonic() < deadline):
        wait = None if deadline is None else max(1.0, (deadline - time.monotonic()) * 1000)
        for fd, _ in poller.poll(wait):
            if fd in by_fd:
                if not by_fd[fd].pump():
                    poller.unregister(fd)
            elif fd == pidfd:
                ended = True
            else:
                message = control.recv(4096)
                poller.unregister(fd)
                grace = json.loads(message)["grace"] if message else 0.0
                deadline = time.monotonic() + grace
                if grace > 0:
                    _signal_group(agent.pid, signal.SIGTERM)
    if not ended:
        _signal_group(agent.pid, signal.SIGKILL)
    status = agent.wait()
    clean = reap() or kill_children()
    for stream in streams:
        while clean and stream.pump():  # no writer is left, so this ends
            pass
        stream.close()
    os.close(pidfd)
    control.send(json.dumps({"status": status, "clean": clean}).encode())
    return status


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        pass


def main(arguments: list[str]) -> None:
    """Supervise one agent.

    Args:
        arguments: Control descriptor.
    """
    control = socket.socket(fileno=int(arguments[0]))
    become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = json.loads(sys.stdin.buffer.read())
    logs = Path(order["logs"])
    try:
        try:
            agent = _start(order, logs)
        except OSError as error:
            report: dict[str, Any] = {"status": None, "clean": True, "started": False}
            report["error"] = str(error.strerror or error)
            control.send(json.dumps(report).encode())
            return
        _supervise(control, agent, logs)
    except BrokenPipeError:
        pass  # the Host is gone
    finally:
        kill_children()


if __name__ == "__main__":
    main(sys.argv[1:])
