from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evopolicygym.execution.capped import CappedBuffer


def kept(data: bytes, limit: int) -> bytes:
    half = limit // 2
    if len(data) <= 2 * half:
        return data
    marker = f"\n[… {len(data) - 2 * half} bytes left out …]\n".encode()
    return data[:half] + marker + data[len(data) - half :]


def test_nothing_written() -> None:
    buffer = CappedBuffer(10)
    assert (buffer.content(), buffer.total) == (b"", 0)


def test_marker_names_what_is_missing() -> None:
    buffer = CappedBuffer(6)
    buffer.write(b"abcdefghij")
    assert buffer.content().decode() == "abc\n[… 4 bytes left out …]\nhij"
    assert buffer.total == 10


@pytest.mark.parametrize("size", [9, 10, 11])
def test_marker_appears_with_the_first_lost_byte(size: int) -> None:
    buffer = CappedBuffer(10)
    for _ in range(size):
        buffer.write(b"x")
    assert (b"left out" in buffer.content()) is (size > 10)


@given(st.lists(st.binary(max_size=60)), st.integers(0, 41))
@example([bytes(range(256))], 0)
@example([bytes([number]) for number in range(200)], 6)
def test_head_and_tail_are_exact_however_the_stream_is_cut(chunks: list[bytes], limit: int) -> None:
    buffer, written = CappedBuffer(limit), b""
    for chunk in chunks:
        buffer.write(chunk)
        written += chunk
        assert buffer.content() == kept(written, limit)
        assert buffer.total == len(written)


@pytest.mark.parametrize("limit", [0, 1, 2, 1000])
def test_memory_stays_flat(limit: int) -> None:
    buffer, chunk = CappedBuffer(limit), bytes(1000)
    tracemalloc.start()
    try:
        for _ in range(1000):
            buffer.write(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert buffer.total == 1_000_000
