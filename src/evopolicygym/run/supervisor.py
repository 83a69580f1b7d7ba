"""The agent's supervisor: starts one program and sees to it that nothing of it is left.

Started as `python -m evopolicygym.run.supervisor FD`, with the order as JSON on stdin. The
control socket carries JSON lines. To the supervisor: `{"stop": grace}`, and in a dialogue
`{"prompt": line}`, `{"close": true}` (end of the agent's input) and `{"mute": true}` (its lines
are of no more interest). From it: `{"closing": true}` after the closing event, and false if the
client goes on after it, in a dialogue
`{"line": text}` or `{"bad": why}` for each line of stdout, and last `{"end": …}`. If the socket
closes, the Host is gone and everything ends at once.
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
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from evopolicygym.execution.process_tree import become_subreaper, kill_children, reap
from evopolicygym.run.redaction import Redactor, StreamRedactor

__all__ = ["MAX_LINE_BYTES", "main"]

MAX_LINE_BYTES = 2**20
"""Longest line that an agent may answer with."""

_PIECE_BYTES = 2**16
_PIPE_BYTES = 2**22  # more than a pipe holds: /proc/sys/fs/pipe-max-size is 1 MiB
_HEAD_BYTES = 16 * 2**20
_TAIL_BYTES = 2**20


class _Log:
    """A file that keeps the first 16 MiB and the last MiB of a stream."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._written = 0
        self._tail = bytearray()
        self._dropped = 0

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        room = _HEAD_BYTES - self._written
        if room > 0:
            self._file.write(data[:room])
            self._written += len(data[:room])
        self._tail += data[max(0, room) :]
        if len(self._tail) > 4 * _TAIL_BYTES:
            self._dropped += len(self._tail) - _TAIL_BYTES
            del self._tail[:-_TAIL_BYTES]

    def close(self) -> None:
        """Write the tail, with a marker where bytes were left out."""
        self._dropped += max(0, len(self._tail) - _TAIL_BYTES)
        if self._dropped:
            self._file.write(f"\n[… {self._dropped} bytes left out …]\n".encode())
        self._file.write(bytes(self._tail[-_TAIL_BYTES:]))
        self._file.close()


class _Lines:
    """Cuts a stream into lines in bounded memory.

    Args:
        limit: Bytes of a line that are kept; of a longer one, the beginning.
        on_line: Gets each line, and whether it was longer.
    """

    def __init__(self, limit: int, on_line: Callable[[bytes, bool], None]) -> None:
        self._limit = limit
        self._on_line = on_line
        self._line = bytearray()
        self._longer = False

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        # A line feed ends a line and nothing else: U+2028 and U+0085 are content.
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            self._flush()
        self._add(rest)

    def close(self) -> None:
        """Take what came after the last line feed as a line, too."""
        if self._line:
            self._flush()

    def _add(self, part: bytes) -> None:
        room = self._limit - len(self._line)
        self._longer = self._longer or len(part) > room
        self._line += part[: max(0, room)]

    def _flush(self) -> None:
        self._on_line(bytes(self._line), self._longer)
        self._line.clear()
        self._longer = False


class _Output:
    """One output stream of the agent."""

    def __init__(
        self, pipe: IO[bytes], log: _Log, redactor: StreamRedactor, lines: _Lines | None
    ) -> None:
        self.fd = pipe.fileno()
        self._pipe = pipe
        self._log = log
        self._redactor = redactor
        self.lines = lines
        os.set_blocking(self.fd, False)

    def pump(self) -> bytes | None:
        """Take and return the next piece; empty at the end of the stream, None if nothing came."""
        try:
            data = os.read(self.fd, _PIECE_BYTES)
        except BlockingIOError:
            return None
        self._take(self._redactor.feed(data))
        return data

    def close(self) -> None:
        """Take what is in the pipe; whoever still holds its other end writes on unheard."""
        for _ in range(_PIPE_BYTES // _PIECE_BYTES):
            if not self.pump():
                break
        self._take(self._redactor.end())
        if self.lines is not None:
            self.lines.close()
        self._log.close()
        self._pipe.close()

    def _take(self, data: bytes) -> None:
        self._log.write(data)
        if self.lines is not None:
            self.lines.write(data)


class _Input:
    """What the agent reads in a dialogue; writing never waits for it."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.fd = pipe.fileno()
        self._pipe = pipe
        self._pending = bytearray()
        self._closing = False
        os.set_blocking(self.fd, False)

    @property
    def waiting(self) -> bool:
        """Whether there is something to write or to close."""
        return not self._pipe.closed and (bool(self._pending) or self._closing)

    def send(self, data: bytes) -> None:
        """Write soon."""
        self._pending += data

    def close(self) -> None:
        """Close once everything is written."""
        self._closing = True

    def pump(self) -> None:
        """Write what fits."""
        try:
            while self._pending:
                del self._pending[: os.write(self.fd, self._pending[: 1 << 16])]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the agent does not read
            self._pending.clear()
            self._closing = True
        if self._closing:
            try:
                self._pipe.close()
            except BrokenPipeError:
                pass


class _Supervisor:
    """One agent process and its Host."""

    def __init__(self, control: socket.socket, order: dict[str, Any]) -> None:
        self._control = control
        self._order = order
        self._logs = Path(order["logs"])
        self._received = b""
        self._deadline: float | None = None
        self._muted = order["dialogue"] is None
        self._closing_events = [(key, value) for key, value in order["closing_events"]]
        self._closed = False
        self._input: _Input | None = None
        self._agent = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        dialogue = self._order["dialogue"] is not None
        with (self._logs / "stdin.txt").open("rb") as stdin:
            agent = subprocess.Popen(
                self._order["argv"],
                env=self._order["environment"],
                cwd=self._order["workspace"],
                stdin=subprocess.PIPE if dialogue else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        if agent.stdin is not None:
            self._input = _Input(agent.stdin)
            self._input.send((self._logs / "stdin.txt").read_bytes())
        return agent

    def _say(self, message: dict[str, Any]) -> None:
        self._control.sendall(json.dumps(message).encode() + b"\n")

    def _on_line(self, line: bytes, longer: bool) -> None:
        closing = not longer and self._is_closing(line)
        if line.strip() and (
            closing or self._closed
        ):  # a client that goes on has not come to its end
            self._say({"closing": closing})
            self._closed = closing
        if self._muted:
            return
        if longer:
            self._say({"bad": f"is longer than {MAX_LINE_BYTES} bytes"})
            return
        try:
            self._say({"line": line.decode()})
        except UnicodeDecodeError as error:
            self._say({"bad": f"is not UTF-8 at byte {error.start}"})

    def _is_closing(self, line: bytes) -> bool:
        if not any(value.encode() in line for _, value in self._closing_events):
            return False
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(event, dict) and any(
            event.get(key) == value for key, value in self._closing_events
        )

    def _outputs(self) -> list[_Output]:
        redactor = Redactor(self._order["secrets"])
        assert self._agent.stdout is not None
        assert self._agent.stderr is not None
        watched = not self._muted or self._closing_events
        lines = _Lines(MAX_LINE_BYTES, self._on_line) if watched else None
        return [
            _Output(self._agent.stdout, _Log(self._logs / "stdout.txt"), redactor.stream(), lines),
            _Output(self._agent.stderr, _Log(self._logs / "stderr.txt"), redactor.stream(), None),
        ]

    def run(self) -> None:
        """Pump until the agent ends, is told to stop or the Host is gone."""
        outputs = self._outputs()
        by_fd = {stream.fd: stream for stream in outputs}
        pidfd = os.pidfd_open(self._agent.pid)
        poller = select.poll()
        for fd in (self._control.fileno(), pidfd, *by_fd):
            poller.register(fd, select.POLLIN)
        ended = False
        while not ended and (self._deadline is None or time.monotonic() < self._deadline):
            for fd, _ in self._poll(poller):
                if fd in by_fd:
                    if by_fd[fd].pump() == b"":
                        poller.unregister(fd)
                elif fd == pidfd:
                    ended = True
                elif fd == self._control.fileno():
                    if not self._obey():
                        poller.unregister(fd)
                elif self._input is not None:
                    self._input.pump()
                    if not self._input.waiting:
                        poller.unregister(fd)
        if not ended:
            _signal_group(self._agent.pid, signal.SIGKILL)
        status = self._agent.wait()
        clean = reap() or kill_children()
        for stream in outputs:
            stream.close()
        os.close(pidfd)
        self._say({"end": {"status": status, "clean": clean}})

    def _poll(self, poller: select.poll) -> list[tuple[int, int]]:
        if self._input is not None and self._input.waiting:
            poller.register(self._input.fd, select.POLLOUT)
        if self._deadline is None:
            return poller.poll()
        return poller.poll(max(1.0, (self._deadline - time.monotonic()) * 1000))

    def _obey(self) -> bool:
        """Take orders; return False once the Host has none any more."""
        data = self._control.recv(1 << 16)
        self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "prompt" in order and self._input is not None:
                self._input.send(order["prompt"].encode() + b"\n")
            elif "close" in order and self._input is not None:
                self._input.close()
            elif "mute" in order:
                self._muted = True
            elif "stop" in order:
                self._stop(order["stop"])
        if not data:  # the Host is gone
            self._stop(0.0)
        return bool(data)

    def _stop(self, grace: float) -> None:
        self._deadline = time.monotonic() + grace
        if grace > 0:
            _signal_group(self._agent.pid, signal.SIGTERM)


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
    try:
        try:
            supervisor = _Supervisor(control, order)
        except (OSError, ValueError) as error:  # no such program, or a NUL in an argument
            end: dict[str, Any] = {"status": None, "clean": True, "started": False}
            end["error"] = str(getattr(error, "strerror", None) or error)
            control.sendall(json.dumps({"end": end}).encode() + b"\n")
            return
        supervisor.run()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the Host is gone
    finally:
        kill_children()


if __name__ == "__main__":
    main(sys.argv[1:])
