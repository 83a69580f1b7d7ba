from __future__ import annotations

import mmap
import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evopolicygym.execution.wire import (
    HEADER,
    MAX_FRAME_BYTES,
    SHARED_THRESHOLD,
    Decoder,
    Encoder,
    Kind,
    WireError,
)

INLINE, SHARED = 1, 2
DTYPES = [np.dtype(code) for code in "?bBhHiIlLqQefdgFDG"]
SHAPES = [(), (0,), (1,), (7,), (2, 0, 3), (2, 3, 4)]


def same(first: Any, second: Any) -> bool:
    """Whether two decoded values are equal to the bit, NaN included."""
    if isinstance(first, np.ndarray):
        return (
            isinstance(second, np.ndarray)
            and first.dtype == second.dtype
            and first.shape == second.shape
            and first.tobytes() == second.tobytes()
        )
    if type(first) is not type(second):
        return False
    if isinstance(first, float):
        return struct.pack("<d", first) == struct.pack("<d", second)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    return bool(first == second)


def array_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=np.int64))
    return (np.arange(1, count + 1) % 5).astype(dtype).reshape(shape)


def array_header(name: str, shape: object) -> bytes:
    body = msgspec.msgpack.encode((name, shape))
    return bytes([len(body)]) + body


def raw(name: str, shape: object, data: bytes) -> bytes:
    """The payload of one array without msgpack around it."""
    return b"\xc1" + array_header(name, shape) + data


def inline(name: str, shape: object, data: bytes) -> bytes:
    """An array inside msgpack."""
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(INLINE, array_header(name, shape) + data))


def shared(start: int, name: str, shape: object) -> bytes:
    """An array in shared memory."""
    data = array_header(name, shape) + start.to_bytes(8, "little")
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(SHARED, data))


def decode_or_refuse(decoder: Decoder, payload: bytes) -> None:
    """Anything but a value or a `WireError` fails the test."""
    try:
        decoder.decode(payload)
    except WireError:
        pass


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text()
)
arrays = hnp.arrays(
    dtype=st.one_of(
        hnp.boolean_dtypes(),
        hnp.integer_dtypes(endianness="?"),
        hnp.unsigned_integer_dtypes(endianness="?"),
        hnp.floating_dtypes(endianness="?"),
        hnp.complex_number_dtypes(endianness="?"),
    ),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)
values = st.recursive(
    scalars | arrays,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


# ------------------------------------------------------------------------- frames


def test_a_header_is_length_kind_and_number() -> None:
    assert HEADER.pack(3, Kind.ACTION, 7) == bytes([3, 0, 0, 0, 4, 7, 0, 0, 0])
    assert HEADER.size == 9


def test_sizes() -> None:
    assert MAX_FRAME_BYTES == 16 * 1024 * 1024
    assert SHARED_THRESHOLD == 16 * 1024


def test_kinds_never_change_their_number() -> None:
    assert {kind.name: kind.value for kind in Kind} == {
        "START": 1,
        "READY": 2,
        "OBSERVATION": 3,
        "ACTION": 4,
        "FAILURE": 5,
        "END": 6,
    }


# --------------------------------------------------------------------- round trips


@given(values)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    assert same(Decoder().decode(Encoder().encode(value)), value)


@given(st.lists(values, min_size=2, max_size=4))
def test_one_encoder_and_decoder_serve_many_values(sequence: list[Any]) -> None:
    encoder, decoder = Encoder(), Decoder()
    assert all(same(decoder.decode(encoder.encode(value)), value) for value in sequence)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("order", ["=", "S"])
def test_every_numeric_dtype_and_shape(
    dtype: np.dtype[Any], shape: tuple[int, ...], order: Any
) -> None:
    array = array_of(dtype, shape).astype(dtype.newbyteorder(order))
    back = Decoder().decode(Encoder().encode(array))
    assert back.dtype == array.dtype
    assert back.dtype.byteorder == array.dtype.byteorder
    assert back.shape == shape
    assert np.array_equal(back, array)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.arange(12)[::-2],
        np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        np.broadcast_to(np.float32(2.5), (3, 2)),
    ],
    ids=["fortran", "reversed", "transposed", "broadcast"],
)
def test_memory_layout_does_not_matter(array: np.ndarray[Any, Any]) -> None:
    back = Decoder().decode(Encoder().encode(array))
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)


@pytest.mark.parametrize("value", [np.float32(1.5), np.int8(-3), np.bool_(True), np.float64(0.1)])
def test_numpy_scalars_become_arrays_without_dimensions(value: Any) -> None:
    back = Decoder().decode(Encoder().encode(value))
    assert isinstance(back, np.ndarray)
    assert (back.shape, back.dtype, back.item()) == ((), value.dtype, value.item())


def test_tuples_become_lists() -> None:
    assert Decoder().decode(Encoder().encode((1, ("a", ())))) == [1, ["a", []]]


def test_decoded_arrays_are_fresh_and_writable() -> None:
    payload, decoder = Encoder().encode(np.arange(4)), Decoder()
    first, second = decoder.decode(payload), decoder.decode(payload)
    first[:] = -1
    assert second.tolist() == [0, 1, 2, 3]
    assert decoder.decode(payload).tolist() == [0, 1, 2, 3]
    nested = Encoder().encode([np.arange(4)])
    first, second = decoder.decode(nested)[0], decoder.decode(nested)[0]
    first[:] = -1
    assert second.tolist() == [0, 1, 2, 3]


@given(values, st.binary(max_size=20))
def test_a_payload_may_begin_anywhere(value: Any, before: bytes) -> None:
    payload = Encoder().encode(value)
    assert same(Decoder().decode(before + payload, len(before)), value)


@pytest.mark.parametrize("value", [np.arange(3, dtype=np.uint8), np.float32([[1, 2]])])
def test_a_single_small_array_is_its_header_and_raw_bytes(value: Any) -> None:
    for encoder in (Encoder(), Encoder(mmap.mmap(-1, 4096))):
        payload = encoder.encode(value)
        assert payload == raw(value.dtype.str, value.shape, value.tobytes())
        assert encoder.encode([value])[1:] == inline(value.dtype.str, value.shape, value.tobytes())


def test_more_headers_than_the_cache_holds() -> None:
    encoder, decoder = Encoder(), Decoder()
    for _ in range(2):
        for size in range(1100):
            assert decoder.decode(encoder.encode(np.zeros(size, np.int8))).shape == (size,)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        1 + 2j,
        np.array(["text"]),
        np.array([None]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.str_("text"),
        [{"deep": object()}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_types_that_the_wire_does_not_carry(value: Any) -> None:
    with pytest.raises(TypeError, match="can't be sent"):
        Encoder().encode(value)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, [10**30]])
def test_integers_beyond_64_bits(value: Any) -> None:
    with pytest.raises(OverflowError):
        Encoder().encode(value)


# ------------------------------------------------------------------- shared memory


@pytest.mark.parametrize("shape", [(SHARED_THRESHOLD // 4,), (SHARED_THRESHOLD // 64, 16)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_arrays_travel_through_shared_memory(shape: tuple[int, ...], order: Any) -> None:
    memory = mmap.mmap(-1, 1 << 16)
    array = np.asarray(
        np.arange(SHARED_THRESHOLD // 4, dtype=np.float32).reshape(shape), order=order
    )
    encoder = Encoder(memory)
    payload = encoder.encode(array)
    assert len(payload) < 100
    assert [bytes(part) for part in encoder.shared_parts] == [array.tobytes()]
    assert memory[: array.nbytes] == array.tobytes()
    back = Decoder(memory).decode(payload)
    assert back.dtype == np.float32
    assert np.array_equal(back, array)


def test_arrays_below_the_threshold_stay_inline() -> None:
    encoder = Encoder(mmap.mmap(-1, 1 << 16))
    array = np.arange(SHARED_THRESHOLD - 1, dtype=np.uint8)
    payload = encoder.encode(array)
    assert encoder.shared_parts == []
    assert same(Decoder().decode(payload), array)


def test_arrays_that_do_not_fit_any_more_stay_inline() -> None:
    memory = mmap.mmap(-1, 2 * SHARED_THRESHOLD)
    encoder = Encoder(memory)
    value = [np.full(SHARED_THRESHOLD, number, np.uint8) for number in (1, 2, 3)]
    payload = encoder.encode(value)
    assert [part[0] for part in encoder.shared_parts] == [1, 2]
    assert SHARED_THRESHOLD < len(payload) < 2 * SHARED_THRESHOLD
    assert same(Decoder(memory).decode(payload), value)


def test_next_value_uses_the_memory_from_its_start() -> None:
    memory = mmap.mmap(-1, SHARED_THRESHOLD)
    encoder, decoder = Encoder(memory), Decoder(memory)
    for number in range(3):
        array = np.full(SHARED_THRESHOLD, number, np.uint8)
        back = decoder.decode(encoder.encode(array))
        assert [bytes(part) for part in encoder.shared_parts] == [array.tobytes()]
        assert same(back, array)
    for small in (5, np.zeros(3), [np.zeros(3)]):
        encoder.encode(np.zeros(SHARED_THRESHOLD, np.uint8))
        assert len(encoder.shared_parts) == 1
        assert same(decoder.decode(encoder.encode(small)), small)
        assert encoder.shared_parts == []


def test_decoded_arrays_are_detached_from_the_memory() -> None:
    memory = mmap.mmap(-1, SHARED_THRESHOLD)
    array = np.full(SHARED_THRESHOLD, 7, np.uint8)
    back = Decoder(memory).decode(Encoder(memory).encode(array))
    memory[:SHARED_THRESHOLD] = bytes(SHARED_THRESHOLD)
    assert same(back, array)


def test_shared_arrays_are_aligned() -> None:
    memory = mmap.mmap(-1, 1 << 20)
    encoder = Encoder(memory)
    odd, next_one = np.ones(SHARED_THRESHOLD + 1, np.uint8), np.full(SHARED_THRESHOLD, 3.0)
    value = {"odd": odd, "next": next_one}
    assert same(Decoder(memory).decode(encoder.encode(value)), value)
    start = (SHARED_THRESHOLD + 1 + 63) // 64 * 64
    assert memory[start : start + 8] == struct.pack("<d", 3.0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["<f4", ">f8", "|u1", "<i8", "|b1"]),
            st.integers(SHARED_THRESHOLD // 8 - 3, SHARED_THRESHOLD + 3),
        ),
        max_size=6,
    ),
    st.integers(1, 12 * SHARED_THRESHOLD),
)
@settings(max_examples=40)
def test_any_mix_of_shared_and_inline_arrays(parts: list[tuple[str, int]], size: int) -> None:
    memory = mmap.mmap(-1, size)
    value = [array_of(np.dtype(name), (count,)) for name, count in parts]
    encoder = Encoder(memory)
    assert same(Decoder(memory).decode(encoder.encode(value)), value)
    large = [array.tobytes() for array in value if array.nbytes >= SHARED_THRESHOLD]
    assert len(encoder.shared_parts) <= len(large)
    assert all(bytes(part) in large for part in encoder.shared_parts)


# ----------------------------------------------------------------- malformed bytes


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x01\x01", id="two values"),
        pytest.param(b"\x91\xc1", id="reserved byte"),
        pytest.param(b"\xa1\xff", id="not UTF-8"),
        pytest.param(b"\x92\x01", id="list too short"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="list of 4 billion items"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="map of 4 billion items"),
        pytest.param(b"\xdb\xff\xff\xff\xff", id="text of 4 GB"),
        pytest.param(b"\x91" * 100_000 + b"\x01", id="nested without end"),
        pytest.param(b"\x81\x80\x01", id="a map as a key"),
        pytest.param(b"\x81" + inline("<f8", (), bytes(8)) + b"\x01", id="an array as a key"),
        pytest.param(b"\xd7\xff" + b"\xff" * 8, id="bad time stamp"),
        pytest.param(b"\xd4\x05\x00", id="unknown extension"),
        pytest.param(b"\xc7\x00\x01", id="extension without a header"),
        pytest.param(b"\xd5\x01\xff\xff", id="extension with a header too long"),
        pytest.param(b"\xc1", id="array without a header"),
        pytest.param(b"\xc1\x00", id="array with an empty header"),
        pytest.param(b"\xc1\xff\x92", id="array with a header too long"),
        pytest.param(shared(0, "<f8", (1,)), id="shared without memory"),
        pytest.param(b"\xc7\x00\x02", id="shared without a header"),
    ],
)
def test_malformed_payloads_are_wire_errors(payload: bytes) -> None:
    with pytest.raises(WireError):
        Decoder().decode(payload)


@pytest.mark.parametrize("form", [raw, inline])
@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        pytest.param("<f8", (2,), 15, id="too few bytes"),
        pytest.param("<f8", (2,), 17, id="too many bytes"),
        pytest.param("<f8", (2,), 24, id="one item too many"),
        pytest.param("<f8", (0,), 8, id="bytes of an empty array"),
        pytest.param("<f8", (-1,), 8, id="negative dimension"),
        pytest.param("<f8", (-1, -1), 8, id="two negative dimensions"),
        pytest.param("<f8", (2**62, 4), 8, id="size overflows"),
        pytest.param("<f8", (2**61, 8), 0, id="size overflows to 0"),
        pytest.param("<f8", (2**63,), 8, id="dimension overflows"),
        pytest.param("<f8", (2**64 - 1,), 8, id="largest dimension"),
        pytest.param("<f8", (1,) * 65, 8, id="65 dimensions"),
        pytest.param("<f8", ("1",), 8, id="dimension is text"),
        pytest.param("<f8", (1.5,), 8, id="dimension is a fraction"),
        pytest.param("<f8", (None,), 8, id="dimension is nothing"),
        pytest.param("<f8", 1, 8, id="shape is a number"),
        pytest.param("|O", (1,), 8, id="object"),
        pytest.param("<U2", (1,), 8, id="text"),
        pytest.param("|S8", (1,), 8, id="bytes"),
        pytest.param("<M8[s]", (1,), 8, id="date"),
        pytest.param("|V8", (1,), 8, id="void"),
        pytest.param("<f4,<f4", (1,), 8, id="record"),
        pytest.param("2f4", (1,), 8, id="array of arrays"),
        pytest.param("", (1,), 8, id="empty dtype"),
        pytest.param("nonsense", (1,), 8, id="unknown dtype"),
        pytest.param(",", (1,), 8, id="dtype is a comma"),
        pytest.param("(1,", (1,), 8, id="dtype is an open parenthesis"),
        pytest.param("a", (1,), 8, id="deprecated dtype"),
        pytest.param("é", (1,), 8, id="dtype not ASCII"),
    ],
)
def test_malformed_arrays_are_wire_errors(form: Any, name: str, shape: Any, size: int) -> None:
    assert Decoder().decode(form("<f8", (1,), bytes(8))) == [0.0]
    with pytest.raises(WireError):
        Decoder().decode(form(name, shape, bytes(size)))


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(shared(SHARED_THRESHOLD - 7, "<f8", (1,)), id="ends outside"),
        pytest.param(shared(SHARED_THRESHOLD, "<f8", (1,)), id="starts outside"),
        pytest.param(shared(2**63 - 1, "<f8", (1,)), id="far outside"),
        pytest.param(shared(2**63, "<f8", (1,)), id="offset overflows"),
        pytest.param(shared(2**64 - 1, "<f8", (1,)), id="largest offset"),
        pytest.param(shared(0, "<f8", (2**61,)), id="huge"),
    ],
)
def test_shared_arrays_outside_the_memory_are_wire_errors(payload: bytes) -> None:
    with pytest.raises(WireError):
        Decoder(mmap.mmap(-1, SHARED_THRESHOLD)).decode(payload)


def test_shared_array_at_the_end_of_the_memory() -> None:
    memory = mmap.mmap(-1, SHARED_THRESHOLD)
    memory[-8:] = struct.pack("<d", 1.5)
    payload = shared(SHARED_THRESHOLD - 8, "<f8", (1,))
    assert Decoder(memory).decode(payload).tolist() == [1.5]


@given(values, st.data())
def test_cut_payloads_are_wire_errors(value: Any, data: st.DataObject) -> None:
    payload = Encoder().encode(value)
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(WireError):
        Decoder().decode(payload[:cut])


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_are_a_value_or_a_wire_error(payload: bytes) -> None:
    decode_or_refuse(Decoder(mmap.mmap(-1, 4096)), payload)


@given(arrays | st.lists(arrays, max_size=3), st.data())
@settings(max_examples=300)
def test_damaged_payloads_are_a_value_or_a_wire_error(value: Any, data: st.DataObject) -> None:
    payload = bytearray(Encoder().encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(Decoder(mmap.mmap(-1, 4096)), bytes(payload))


@given(
    st.text(st.sampled_from("<>=|?bBiIuUfFcCdDegqQaSOVmMtT0123489()[]{},:;' \x00"), max_size=5),
    st.lists(st.integers(-(2**63), 2**64 - 1) | st.integers(0, 3), max_size=4),
    st.integers(0, 2**64 - 1) | st.integers(0, 4096),
    st.sampled_from([raw, inline, shared]),
)
@settings(max_examples=500)
def test_any_array_header_is_an_array_or_a_wire_error(
    name: str, shape: list[int], start: int, form: Any
) -> None:
    payload = shared(start, name, shape) if form is shared else form(name, shape, bytes(start % 64))
    decode_or_refuse(Decoder(mmap.mmap(-1, 4096)), payload)
