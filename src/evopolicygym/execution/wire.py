"""Frames between the worker and the policy process.

A frame is a 9-byte header (little-endian: payload length `u32`, kind `u8`, sequence number
`u32`) followed by a payload. A payload is msgpack; arrays inside are extension values: raw bytes
behind a small header of dtype and shape, or, from `SHARED_THRESHOLD` on, an offset into a sealed
memfd. A payload that is one small array, the common case, goes without msgpack: the byte 0xC1,
which msgpack never uses, then header and raw bytes.

The stream strictly alternates, so a byte beyond the expected frame is an early answer.
"""

from __future__ import annotations

import math
import mmap
import re
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
]

HEADER = struct.Struct("<IBI")
MAX_FRAME_BYTES = 16 * 2**20
"""Largest payload either side accepts."""

SHARED_THRESHOLD = 16 * 2**10
"""Observation arrays of at least this many bytes travel through shared memory.

facts/execution.md B3: at 27 KB the socket costs about twice the memfd, below it less than noise.
"""

_INLINE, _SHARED = 1, 2
_RAW_BYTE = 0xC1  # "never used" in the msgpack specification
_RAW = bytes([_RAW_BYTE])
_CACHED_HEADERS = 1024
_NUMERIC_KINDS = "biufc"
_DTYPE_NAME = re.compile(r"[<>|=][biufc][0-9]{1,2}", re.ASCII)


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


class _ArrayHeaders:
    """Cache of the header bytes of (dtype, shape), both ways; a Benchmark has a handful."""

    __slots__ = ("packed", "parsed")

    def __init__(self) -> None:
        self.packed: dict[tuple[np.dtype[Any], tuple[int, ...]], bytes] = {}
        self.parsed: dict[bytes, tuple[np.dtype[Any], tuple[int, ...]]] = {}

    def pack(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
        """Return length (one byte) and body of the header."""
        body = msgspec.msgpack.encode((dtype.str, shape))
        if len(body) > 255:
            raise TypeError(f"an array of shape {shape} can't be sent")
        packed = bytes([len(body)]) + body
        if len(self.packed) < _CACHED_HEADERS:
            self.packed[dtype, shape] = packed
        return packed

    def parse(self, header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return dtype and shape of a header's body."""
        try:
            name, shape = msgspec.msgpack.decode(header, type=tuple[str, tuple[int, ...]])
        except msgspec.DecodeError as error:
            raise WireError(f"bad array header: {error}") from None
        if not _DTYPE_NAME.fullmatch(name) or any(n < 0 for n in shape):
            raise WireError(f"bad array header: {name!r}, {shape}")
        try:
            dtype = np.dtype(name)
        except TypeError as error:
            raise WireError(f"bad array header: {error}") from None
        if dtype.itemsize * math.prod(shape) >= 2**31:
            # numpy computes sizes in machine words; what it can't hold must not get there.
            raise WireError(f"an array of shape {shape} is too large")
        if len(self.parsed) < _CACHED_HEADERS:
            self.parsed[header] = (dtype, shape)
        return dtype, shape


class Encoder:
    """Encodes values; large arrays go to `shared` when there is one.

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
        if type(value) is np.ndarray and (self._shared is None or value.nbytes < SHARED_THRESHOLD):
            header = self._headers.packed.get((value.dtype, value.shape))
            if header is None:
                if value.dtype.kind not in _NUMERIC_KINDS:
                    raise TypeError(f"an array of {value.dtype} can't be sent")
                header = self._headers.pack(value.dtype, value.shape)
            return _RAW + header + value.tobytes()
        return self._encode(value)

    def _hook(self, value: Any) -> msgspec.msgpack.Ext:
        if isinstance(value, np.generic):
            value = np.asarray(value)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in _NUMERIC_KINDS:
            detail = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
            raise TypeError(f"a value of type {type(value).__name__}{detail} can't be sent")
        key = (value.dtype, value.shape)
        header = self._headers.packed.get(key) or self._headers.pack(*key)
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
            return msgspec.msgpack.Ext(_SHARED, header + start.to_bytes(8, "little"))
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

    def decode(self, data: bytes, start: int = 0) -> Any:
        """Return the value of the payload that begins at `start` of `data`.

        Raises:
            WireError: Malformed bytes.
        """
        try:
            if data[start] == _RAW_BYTE:
                return self._array(data, start + 1)
            return self._decode(memoryview(data)[start:])
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, IndexError) as error:
            raise WireError(f"malformed payload: {error}") from None

    def _array(self, data: bytes, start: int) -> Any:
        body = start + 1 + data[start]
        header = data[start + 1 : body]
        dtype, shape = self._headers.parsed.get(header) or self._headers.parse(header)
        try:
            array = np.ndarray(shape, dtype, data, body)
        except (TypeError, ValueError) as error:
            raise WireError(f"array data does not match its header: {error}") from None
        if array.nbytes != len(data) - body:
            raise WireError(f"{len(data) - body} bytes for an array of {array.nbytes}")
        return array.copy()

    def _hook(self, code: int, view: memoryview) -> Any:
        if code == _INLINE:
            return self._array(bytes(view), 0)
        if code != _SHARED or self._shared is None:
            raise WireError(f"unexpected extension {code}")
        data = bytes(view)
        body = 1 + data[0]
        dtype, shape = self._headers.parse(data[1:body])
        offset = int.from_bytes(data[body:], "little")
        if offset + dtype.itemsize * math.prod(shape) > len(self._shared):
            raise WireError("an array outside the shared memory")
        try:
            return np.ndarray(shape, dtype, self._shared, offset).copy()
        except (TypeError, ValueError) as error:
            raise WireError(f"array data does not match its header: {error}") from None
