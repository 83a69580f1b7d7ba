"""Bounded capture of a stream: its beginning and its end are kept, the middle is counted."""

from __future__ import annotations

__all__ = ["OUTPUT_LIMIT", "CappedBuffer"]

OUTPUT_LIMIT = 32 * 2**10
"""Bytes kept of each output stream of a policy, an Episode."""


class CappedBuffer:
    """Keeps the first and the last `limit // 2` bytes of what is written.

    Args:
        limit: Bytes of content kept at most.

    Attributes:
        total: Bytes written so far.
    """

    __slots__ = ("_half", "_head", "_tail", "total")

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def write(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._half :] if self._half else b""
        if len(self._tail) > 4 * self._half:  # trimmed now and then, not on every write
            del self._tail[: -self._half]

    def content(self) -> bytes:
        """Return what was kept, with a marker line where bytes were left out."""
        tail = self._tail[-self._half :] if self._half else bytearray()
        dropped = self.total - len(self._head) - len(tail)
        marker = f"\n[… {dropped} bytes left out …]\n".encode() if dropped else b""
        return bytes(self._head + marker + tail)
