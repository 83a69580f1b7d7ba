"""The policy process of the current Episode: start it, ask it for actions, end it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from evopolicygym.benchmark import Failure, FailureCode
from evopolicygym.execution.guest import MAX_MESSAGE, MAX_TRACEBACK, shorten
from evopolicygym.execution.wire import HEADER, MAX_FRAME_BYTES, Decoder, Encoder, Kind, WireError

if TYPE_CHECKING:
    from evopolicygym.execution.zygote_client import SharedMemory, Zygote

__all__ = ["PolicyEnd", "PolicyFailedError", "PolicyProcess"]

_SLICE_SECONDS = 0.25
"""How often a silent policy is checked for having died behind pipes that others hold open."""

_LEAST_FRAME_LIMIT = 1 << 20  # room for failure reports, and for actions of a wrong shape

_CLOSE_GRACE_SECONDS = 2.0
"""How long a process that closed its pipes has to end, so that it counts as ended by itself."""

_READ_BYTES = 1 << 16  # a pipe's capacity
_KIND_BYTE = 4  # position of the kind in a frame
# Enum members are slow to pack and to compare.
_OBSERVATION, _ACTION, _FAILURE = int(Kind.OBSERVATION), int(Kind.ACTION), int(Kind.FAILURE)


_REPORTED_CODES = frozenset(
    {
        FailureCode.IMPORT_ERROR,
        FailureCode.INIT_ERROR,
        FailureCode.EXCEPTION,
        FailureCode.INVALID_ACTION,
        FailureCode.MEMORY_LIMIT,
    }
)
"""What a policy process may say of itself; the worker sees the other failures on its own."""


class PolicyFailedError(Exception):
    """The policy ended its Episode."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class PolicyEnd:
    """How a policy process ended.

    Attributes:
        status: Exit code, or minus the signal number; None if the zygote was lost with it.
        own_exit: Whether it ended before it was told or made to.
        clean: Whether nothing that it started survived.
        stdout: What it printed, capped.
        stderr: The same for stderr.
    """

    status: int | None
    own_exit: bool
    clean: bool
    stdout: bytes
    stderr: bytes


class PolicyProcess:
    """One Episode's policy: start it, ask it for actions, end it.

    The policy is charged for the time the worker waits for it, and for nothing else.

    Attributes:
        encoder: Encodes observations for this process; the trajectory hash reads its output.
    """

    def __init__(
        self, zygote: Zygote, write_fd: int, read_fd: int, shared: SharedMemory | None
    ) -> None:
        self._zygote = zygote
        self._write_fd = write_fd
        self._read_fd = read_fd
        # A full pipe must not stop the worker; reading is preceded by poll instead.
        os.set_blocking(write_fd, False)
        os.set_blocking(read_fd, False)  # a policy can take its own bytes back after poll saw them
        poller = select.poll()
        poller.register(read_fd, select.POLLIN)
        self._poll = poller.poll
        self._shared = shared
        self._decode = Decoder().decode
        self.encoder = Encoder(shared.map if shared else None)
        self._left = 0.0
        self._slice = 0.0  # how long one poll may take, milliseconds
        self._sequence = 0
        self._most = MAX_FRAME_BYTES
        self._end: PolicyEnd | None = None

    def start(
        self, context: Mapping[str, Any], timeout: float, action_bytes: int | None = None
    ) -> None:
        """Import the Program and build the policy.

        Args:
            context: The fields of `PolicyContext`.
            timeout: Seconds of policy time that the whole Episode has.
            action_bytes: Largest encoded action, or None for `MAX_FRAME_BYTES`.

        Raises:
            PolicyFailedError: It did not get as far as a policy.
        """
        if action_bytes is not None:
            self._most = min(MAX_FRAME_BYTES, max(_LEAST_FRAME_LIMIT, action_bytes))
        self._left = timeout
        self._slice = min(_SLICE_SECONDS, timeout) * 1000
        data = self._exchange(Kind.START, self.encoder.encode({"context": dict(context)}))
        if data[_KIND_BYTE] != Kind.READY:
            raise self._protocol_error(f"frame kind {data[_KIND_BYTE]}, expected READY")

    def act(self, payload: bytes) -> Any:
        """Send an encoded observation, return the decoded action.

        Raises:
            PolicyFailedError: The policy failed instead.
        """
        self._sequence += 1
        data = self._exchange(_OBSERVATION, payload)
        if data[_KIND_BYTE] != _ACTION:
            raise self._protocol_error(f"frame kind {data[_KIND_BYTE]}, expected ACTION")
        try:
            return self._decode(data, 9)
        except (WireError, MemoryError) as error:
            raise self._protocol_error(str(error)) from None

    def finish(self) -> PolicyEnd:
        """End the process and everything it started. Further calls return the same."""
        if self._end is None:
            with contextlib.suppress(OSError):
                os.write(self._write_fd, HEADER.pack(0, Kind.END, 0))
            self._collect(grace=0.5)
        assert self._end is not None
        return self._end

    def _collect(self, grace: float) -> PolicyEnd:
        if self._end is None:
            end = self._zygote.finish(grace)
            if end is None or end["status"] is None:
                self._zygote.close(lost=True)
                self._end = PolicyEnd(None, True, False, b"", b"")
            else:
                self._end = PolicyEnd(**end)
            os.close(self._write_fd)
            os.close(self._read_fd)
            if self._shared is not None:
                self._shared.close()
        return self._end

    def _exchange(self, kind: int, payload: bytes) -> bytes:
        """Send one frame and return the frame that answers it, header included."""
        sequence = self._sequence
        message = HEADER.pack(len(payload), kind, sequence) + payload
        began = monotonic()
        try:
            sent = os.write(self._write_fd, message)
        except BlockingIOError:
            sent = 0
        except OSError:
            raise self._gone() from None
        if sent != len(message):
            self._send_rest(memoryview(message)[sent:], began)
        if not self._poll(self._slice):
            self._wait(began)
        try:
            data = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            data = self._receive(_READ_BYTES, began)
        if len(data) < 9 or HEADER.unpack_from(data)[0] > len(data) - 9:
            data = self._complete(data, began)
        size, answer, echoed = HEADER.unpack_from(data)
        left = self._left = self._left - (monotonic() - began)
        if left < _SLICE_SECONDS:
            if left <= 0:
                raise self._timeout()
            self._slice = left * 1000
        if size != len(data) - 9:
            raise self._protocol_error("an answer that was not asked for")
        if echoed != sequence:
            raise self._protocol_error(f"answer number {echoed}, expected {sequence}")
        if answer == _FAILURE:
            raise self._reported(data)
        return data

    def _check(self, began: float) -> float:
        """After a slice without progress: is there time left, and does the policy still run?

        Returns:
            The next slice, milliseconds.
        """
        left = self._left - (monotonic() - began)
        if left <= 0:
            raise self._timeout()
        if not self._zygote.alive():
            # It ended while a descendant holds its pipes open. Did it still say something?
            if self._poll(0):
                return 0.0
            raise self._gone()
        return min(_SLICE_SECONDS, left) * 1000

    def _wait(self, began: float) -> None:
        """Wait until there is something to read, be it the end of the stream."""
        while not self._poll(self._check(began)):
            pass

    def _receive(self, size: int, began: float) -> bytes:
        while True:
            self._wait(began)
            try:
                data = os.read(self._read_fd, size)
            except BlockingIOError:
                continue
            if not data:
                raise self._gone()
            return data

    def _complete(self, data: bytes, began: float) -> bytes:
        """Receive the rest of a frame that did not come in one piece."""
        if not data:
            raise self._gone()
        parts = bytearray(data)
        size = 9
        while True:
            if len(parts) >= 9:
                size = HEADER.unpack_from(parts)[0] + 9
                if size - 9 > self._most:
                    raise self._protocol_error(f"a frame of {size} bytes")
            if len(parts) >= size:
                return bytes(parts)
            parts += self._receive(min(1 << 20, size - len(parts)), began)

    def _send_rest(self, rest: memoryview, began: float) -> None:
        """Finish a write that the pipe took only part of."""
        writable = select.poll()
        writable.register(self._write_fd, select.POLLOUT)
        while rest:
            while not writable.poll(self._check(began)):
                pass
            try:
                rest = rest[os.write(self._write_fd, rest) :]
            except BlockingIOError:
                continue
            except OSError:
                raise self._gone() from None

    def _failed(self, code: FailureCode, message: str, trace: str = "") -> PolicyFailedError:
        return PolicyFailedError(Failure(code, message, max(0, self._sequence - 1), trace))

    def _timeout(self) -> PolicyFailedError:
        doing = "starting" if self._sequence == 0 else "in act"
        self._collect(grace=0.0)
        return self._failed(FailureCode.TIMEOUT, f"the policy's time ran out while {doing}")

    def _protocol_error(self, what: str) -> PolicyFailedError:
        self._collect(grace=0.0)
        return self._failed(FailureCode.PROTOCOL_ERROR, f"the policy process sent {what}")

    def _gone(self) -> PolicyFailedError:
        """The channel closed: did the process end, or did it only close its descriptors?"""
        end = self._collect(grace=_CLOSE_GRACE_SECONDS)
        if end.status is None:
            return self._failed(FailureCode.CRASH, "the policy process was lost")
        if not end.own_exit:
            return self._failed(FailureCode.PROTOCOL_ERROR, "the policy closed its channel")
        if end.status >= 0:
            return self._failed(FailureCode.CRASH, f"the policy exited with code {end.status}")
        try:
            name = signal.Signals(-end.status).name
        except ValueError:
            name = f"signal {-end.status}"
        return self._failed(FailureCode.CRASH, f"the policy was ended by {name}")

    def _reported(self, data: bytes) -> PolicyFailedError:
        """Read the failure that the policy process reported about itself."""
        try:
            report = self._decode(data, 9)
        except (WireError, MemoryError):
            report = None
        known = isinstance(report, dict) and report.keys() == {"code", "message", "traceback"}
        if not known or not all(isinstance(text, str) for text in report.values()):
            return self._protocol_error("a malformed failure report")
        if report["code"] not in _REPORTED_CODES:
            return self._protocol_error(
                "a malformed failure report: a code that is not its to report"
            )
        return self._failed(
            FailureCode(report["code"]),
            shorten(report["message"], MAX_MESSAGE),
            shorten(report["traceback"], MAX_TRACEBACK, "\n"),
        )
