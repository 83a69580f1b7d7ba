"""Frames between the worker and the policy process.

A frame is a 9-byte header (little-endian: payload length `u32`, kind `u8`, sequence number
`u32`) followed by a msgpack payload. Arrays are msgpack extension values: raw bytes behind a
small header of dtype and shape, or, above `SHARED_THRESHOLD`, an offset into a sealed memfd.

The stream strictly alternates, so a byte beyond the expected frame is an early answer.
"""

from __future__ import annotations

import mmap
import struct
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

__all__ = [
    "HEADER",
    "MAX_FRAME_BYTES",
    "SHARED_THRESHOLD",
    "Decoder",
    "Encoder",
    "Kind",
    "WireError",
    "frame",
]

HEADER = struct.Struct("<IBI")
MAX_FRAME_BYTES = 64 * 2**20
"""Largest payload either side accepts."""

SHARED_THRESHOLD = 16 * 2**10
"""Observation arrays of at least this many bytes travel through shared memory.

facts/execution.md B3: at 27 KB the socket costs about twice the memfd, below it less than noise.
"""

_INLINE, _SHARED = 1, 2
_NUMERIC_KINDS = "biufc"


class Kind(IntEnum):
    """What a frame carries."""

    START = 1  # worker → policy: context, seeds
    READY = 2  # policy → worker: the policy is built
    OBSERVATION = 3  # worker → policy
    ACTION = 4  # policy → worker
    FAILURE = 5  # policy → worker: code, message, traceback
    END = 6  # worker → policy: the Episode is over


class WireError(ValueError):
    """Bytes that are not a well-formed frame or value."""


def frame(kind: Kind, sequence: int, payload: bytes) -> bytes:
    """Return the bytes of one frame."""
    return HEADER.pack(len(payload), kind, sequence) + payload


class _ArrayHeaders:
    """Cache of the header bytes of (dtype, shape), both ways; a Benchmark has a handful."""

    __slots__ = ("_packed", "_parsed")

    def __init__(self) -> None:
        self._packed: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._parsed: dict[bytes, tuple[np.dtype[Any], tuple[int, ...]]] = {}

    def pack(self, array: np.ndarray[Any, np.dtype[Any]]) -> bytes:
        key = (array.dtype.str, array.shape)
        packed = self._packed.get(key)
        if packed is None:
            body = msgspec.msgpack.encode((key[0], key[1]))
            packed = len(body).to_bytes(2, "little") + body
            if len(self._packed) < 1024:
                self._packed[key] = packed
        return packed

    def parse(self, header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
        parsed = self._parsed.get(header)
        if parsed is None:
            try:
                name, shape = msgspec.msgpack.decode(header, type=tuple[str, tuple[int, ...]])
                dtype = np.dtype(name)
            except (msgspec.DecodeError, TypeError, ValueError) as error:
                raise WireError(f"bad array header: {error}") from None
            if dtype.kind not in _NUMERIC_KINDS or any(n < 0 for n in shape):
                raise WireError(f"bad array header: {name!r}, {shape}")
            parsed = (dtype, shape)
            if len(self._parsed) < 1024:
                self._parsed[header] = parsed
        return parsed


class Encoder:
    """Encodes values to msgpack; large arrays go to `shared` when there is one.

    Attributes:
        shared_parts: Raw bytes of the arrays that the last `encode` put into shared memory, in
            order; the trajectory hash covers them.
    """

    def __init__(self, shared: mmap.mmap | None = None) -> None:
        self._shared = shared
        self._offset = 0
        self._headers = _ArrayHeaders()
        self.shared_parts: list[memoryview] = []
        self._encode = msgspec.msgpack.Encoder(enc_hook=self._hook).encode

    def encode(self, value: Any) -> bytes:
        """Return the payload of `value`.

        Raises:
            TypeError: A type the wire does not carry.
            OverflowError: An integer beyond 64 bits.
        """
        if self._offset:
            self._offset = 0
            self.shared_parts.clear()
        return self._encode(value)

    def _hook(self, value: Any) -> msgspec.msgpack.Ext:
        if isinstance(value, np.generic):
            value = np.asarray(value)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in _NUMERIC_KINDS:
            detail = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
            raise TypeError(f"a value of type {type(value).__name__}{detail} can't be sent")
        header = self._headers.pack(value)
        if (
            self._shared is not None
            and value.nbytes >= SHARED_THRESHOLD
            and self._offset + value.nbytes <= len(self._shared)
        ):
            start = self._offset
            # Align the next array: numpy reads aligned buffers faster.
            self._offset = (start + value.nbytes + 63) & ~63
            view = memoryview(self._shared)[start : start + value.nbytes]
            np.ndarray(value.shape, value.dtype, buffer=view)[...] = value
            self.shared_parts.append(view)
            return msgspec.msgpack.Ext(_SHARED, start.to_bytes(8, "little") + header)
        return msgspec.msgpack.Ext(_INLINE, header + value.tobytes())


class Decoder:
    """Decodes payloads; arrays are fresh, writable copies.

    Args:
        shared: The mapped memfd that `_SHARED` values point into, if this side has one.
    """

    def __init__(self, shared: mmap.mmap | None = None) -> None:
        self._shared = shared
        self._headers = _ArrayHeaders()
        self._decode = msgspec.msgpack.Decoder(ext_hook=self._hook).decode

    def decode(self, payload: bytes | memoryview) -> Any:
        """Return the value of a payload.

        Raises:
            WireError: Malformed bytes.
        """
        try:
            return self._decode(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise WireError(f"malformed payload: {error}") from None

    def _hook(self, code: int, data: memoryview) -> Any:
        start = 0
        if code == _SHARED:
            start = int.from_bytes(data[:8], "little")
            data = data[8:]
        elif code != _INLINE:
            raise WireError(f"unknown extension {code}")
        length = int.from_bytes(data[:2], "little") + 2
        dtype, shape = self._headers.parse(bytes(data[2:length]))
        try:
            if code == _INLINE:
                return np.ndarray(shape, dtype, buffer=data[length:]).copy()
            if self._shared is None:
                raise WireError("a shared array on a side without shared memory")
            return np.ndarray(shape, dtype, buffer=self._shared, offset=start).copy()
        except (TypeError, ValueError) as error:
            raise WireError(f"array data does not match its header: {error}") from None
