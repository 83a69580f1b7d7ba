from __future__ import annotations

import json
import math
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.run.files import AppendOnlyFile, read_lines
from evopolicygym.strict_json import dumps, finite, json_safe, loads, pretty

NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}


class Number(IntEnum):
    SEVEN = 7


class Word(StrEnum):
    HELLO = "hello"


def strictly(data: bytes) -> Any:
    """Parse with a second parser that refuses NaN and infinities."""
    return json.loads(data.decode("utf-8"), parse_constant=pytest.fail)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
anything = st.recursive(
    plain
    | st.floats()
    | st.integers()
    | st.binary(max_size=4)
    | st.complex_numbers()
    | st.text(st.characters(), max_size=5)  # surrogates included
    | st.sampled_from(
        [
            np.float32("nan"),
            np.float64("inf"),
            np.int8(-3),
            np.uint64(2**64 - 1),
            np.bool_(True),
            np.str_("text"),
            np.bytes_(b"x"),
            np.complex64(1j),
            np.longdouble(0.5),
            np.datetime64("2020-01-01"),
            np.datetime64("2020-01-01", "ns"),
            np.timedelta64(3, "s"),
            np.array([1, np.nan]),
            np.array(["a"]),
            np.array([object()]),
            np.array(0.5, np.longdouble),
            np.zeros((1,) * 9),
            np.zeros(300),
            np.zeros(2, dtype=[("a", "i4")])[0],
            object(),
            int,
            Number.SEVEN,
            Word.HELLO,
        ]
    )
    | st.integers(0, 5_000).map(lambda digits: -(10**digits)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.none(), inner, max_size=3)
    ),
    max_leaves=12,
)


# ------------------------------------------------------------------- dumps and loads


@given(plain)
def test_plain_values_survive(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert strictly(dumps(value)) == value
    assert b"\n" not in dumps(value)


@given(plain)
def test_pretty_is_the_same_value(value: Any) -> None:
    assert loads(pretty(value)) == value
    assert pretty(value).endswith(b"\n")
    assert pretty(value)[-2:] != b"\n\n"


def test_pretty_is_indented() -> None:
    assert pretty({"a": [1, {}]}) == b'{\n  "a": [\n    1,\n    {}\n  ]\n}\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, b'"NaN"'),
        (-math.nan, b'"NaN"'),
        (math.inf, b'"Infinity"'),
        (-math.inf, b'"-Infinity"'),
        (-0.0, b"-0.0"),
        ([1.0, {"a": (math.nan,)}], b'[1.0,{"a":["NaN"]}]'),
        ({1: 2, None: 3}, b'{"1":2,"None":3}'),
        (MappingProxyType({"a": math.inf}), b'{"a":"Infinity"}'),
        (2**64, b"18446744073709551616"),
        (-(10**30), b"-1" + b"0" * 30),
    ],
)
def test_what_is_written(value: Any, text: bytes) -> None:
    assert dumps(value) == text


@pytest.mark.parametrize(
    "text",
    [b"NaN", b"Infinity", b"[-Infinity]", b"1e999", b"", b"{", b"[1,]", b"'a'", b"\xff", b"1 2"],
)
def test_what_is_not_json(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)


@given(st.floats())
def test_finite_changes_nothing_but_the_non_finite(value: float) -> None:
    found = finite(value)
    if math.isfinite(value):
        assert found == value
    else:
        assert found == NAMES.get(value, "NaN")


@pytest.mark.parametrize(
    "text", ["a\u2028b", "a\u2029b", "a\x85b", "\x0b\x0c\x1c\x1d\x1e", "a\nb", "\r\n", "\x00", "𝄞"]
)
def test_no_character_splits_a_line(tmp_path: Path, text: str) -> None:
    file = AppendOnlyFile(tmp_path / "lines.jsonl")
    for number in range(2):
        file.append({"number": number, "text": text, text: "key"})
    file.close()
    expected = [{"number": number, "text": text, text: "key"} for number in range(2)]
    assert read_lines(tmp_path / "lines.jsonl") == expected


# ------------------------------------------------------------------------- json_safe


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        ("text", "text"),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), "NaN"),
        (np.int8(-3), -3),
        (np.bool_(False), False),
        (np.str_("text"), "text"),
        (np.longdouble(0.5), 0.5),
        (np.array(2), 2),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.array([0.5, np.inf]), [0.5, "Infinity"]),
        (np.array(["a"]), ["a"]),
        (np.array([0.5], np.longdouble), [0.5]),
        (np.array([None]), "array[1] object"),
        (np.array([1j]), "array[1] complex128"),
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({1: {"a": np.int64(2)}}, {"1": {"a": 2}}),
        (Number.SEVEN, 7),
        (Word.HELLO, "hello"),
        (b"bytes", "bytes"),
        (1j, "complex"),
        (np.complex64(1j), "complex"),
        (object(), "object"),
        (len, "builtin_function_or_method"),
        (Path("/secret"), "PosixPath"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_json_safe(value: Any, expected: Any) -> None:
    found = json_safe(value)
    assert found == expected
    assert dumps(found) == json.dumps(expected, separators=(",", ":")).encode()


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63) + 1])
def test_integers_of_64_bits_stay_numbers(value: int) -> None:
    assert json_safe(value) == value


@pytest.mark.parametrize("value", [2**63, -(2**64), 10**100])
def test_larger_integers_become_text(value: int) -> None:
    assert json_safe(value) == str(value)


@pytest.mark.parametrize("digits", [3_000, 5_000])
def test_even_larger_integers_are_bounded_text(digits: int) -> None:
    for value in (10**digits, -(10**digits)):
        found = json_safe(value)
        assert isinstance(found, str)
        assert len(found) <= 2_001


@pytest.mark.parametrize("length", [1_999, 2_000, 2_001, 100_000])
def test_long_text_is_cut_and_says_so(length: int) -> None:
    text = "x" * length
    assert json_safe(text) == (text if length <= 2_000 else "x" * 2_000 + "…")


@pytest.mark.parametrize("count", [255, 256, 257, 5_000])
@pytest.mark.parametrize("kind", [list, tuple])
def test_long_lists_are_cut_and_say_so(count: int, kind: Any) -> None:
    values = list(range(count))
    assert json_safe(kind(values)) == (values if count <= 256 else [*range(256), "…"])


def test_long_mappings_are_cut() -> None:
    found = json_safe({str(number): number for number in range(1_000)})
    assert found == {str(number): number for number in range(256)}


@pytest.mark.parametrize(("size", "expected"), [(256, [0.0] * 256), (257, "array[257] float64")])
def test_long_arrays_are_described(size: int, expected: Any) -> None:
    assert json_safe(np.zeros(size)) == expected


def test_long_keys_are_cut() -> None:
    assert list(json_safe({"k" * 5_000: 1})) == ["k" * 2_000]


class Color(Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ([2, None, True, 0.5], ["2", "None", "True", "0.5"]),
        ([(0, 1), (1, 0)], ["(0, 1)", "(1, 0)"]),
        ([Color.RED, Color.BLUE], ["Color.RED", "Color.BLUE"]),
        ([np.int64(3), np.str_("a")], ["3", "a"]),
        (["\ud800"], ["\\ud800"]),
    ],
)
def test_keys_stay_apart(keys: list[Any], names: list[str]) -> None:
    found = json_safe({key: number for number, key in enumerate(keys)})
    assert found == {name: number for number, name in enumerate(names)}
    assert strictly(dumps(found)) == found


@pytest.mark.parametrize("wrap", [lambda number: number, lambda number: (number,)])
def test_keys_that_can_not_be_printed(wrap: Any) -> None:
    [key] = json_safe({wrap(10**5000): 1})
    assert len(key) <= 2_001


def test_text_that_grows_when_it_is_made_valid_is_cut_too() -> None:
    found = json_safe("\ud800" * 2_000)
    assert len(found) <= 2_001
    assert strictly(dumps(found)) == found


def nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_deep_nesting_is_cut_and_says_so(kind: str) -> None:
    assert json_safe(nested(6, kind)) == nested(6, kind)
    assert dumps(json_safe(nested(7, kind))) == dumps(nested(6, kind)).replace(b"1", '"…"'.encode())
    assert json_safe(nested(500, kind)) == json_safe(nested(7, kind))


def test_values_that_hold_themselves() -> None:
    value: list[Any] = [1]
    value.append(value)
    assert json_safe(value) == [1, [1, [1, [1, [1, [1, "…"]]]]]]


@given(anything)
def test_anything_becomes_bounded_strict_json(value: Any) -> None:
    def bounded(found: Any, depth: int) -> bool:
        if isinstance(found, str):
            return len(found) <= 2_001
        if isinstance(found, list):
            return depth < 7 and len(found) <= 257 and all(bounded(x, depth + 1) for x in found)
        if isinstance(found, dict):
            return (
                depth < 7
                and len(found) <= 256
                and all(bounded(x, depth + 1) for x in found.values())
            )
        return found is None or isinstance(found, bool | int | float)

    found = strictly(dumps(json_safe(value)))
    assert bounded(found, 0)
    assert loads(dumps(json_safe(value))) == found
