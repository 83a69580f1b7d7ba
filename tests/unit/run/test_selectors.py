from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.errors import SelectorError
from evopolicygym.run.selectors import format_selector, parse_selector


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("0", (0,)),
        ("9", (9,)),
        ("0:1", (0,)),
        ("0:10", tuple(range(10))),
        ("0:2,4:8", (0, 1, 4, 5, 6, 7)),
        ("0,1,2", (0, 1, 2)),
        ("0:2,2:4", (0, 1, 2, 3)),
        ("0,2,5:8,9", (0, 2, 5, 6, 7, 9)),
    ],
)
def test_selectors(text: str, indices: tuple[int, ...]) -> None:
    assert parse_selector(text, pool_size=10) == indices


MALFORMED = "is neither an index nor a range"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the selector is empty"),
        ("3:1", "range '3:1' is empty"),
        ("1:1", "range '1:1' is empty"),
        ("0,0", "'0' begins at 0, after index 0"),
        ("1:2,1", "'1' begins at 1, after index 1"),
        ("0:4,3:6", "'3:6' begins at 3, after index 3"),
        ("5,2", "'2' begins at 2, after index 5"),
        ("9999", "reaches index 9999: the pool has the indices 0 to 9"),
        ("10", "reaches index 10: the pool has the indices 0 to 9"),
        ("9:11", "'9:11' reaches index 10"),
        ("0:999999999999999999", "reaches index 999999999999999998"),
        ("0:1000000000000000000000", MALFORMED),
        (" 1", MALFORMED),
        ("1 ", MALFORMED),
        ("1, 2", MALFORMED),
        ("1\n", MALFORMED),
        ("1,", MALFORMED),
        (",1", MALFORMED),
        ("1,,2", MALFORMED),
        (",", MALFORMED),
        ("1:", MALFORMED),
        (":2", MALFORMED),
        (":", MALFORMED),
        ("1:2:3", MALFORMED),
        ("01", MALFORMED),
        ("0:02", MALFORMED),
        ("00", MALFORMED),
        ("+1", MALFORMED),
        ("-1", MALFORMED),
        ("0:-1", MALFORMED),
        ("0x1", MALFORMED),
        ("1_0", MALFORMED),
        ("1.0", MALFORMED),
        ("1e0", MALFORMED),
        ("１", MALFORMED),
        ("²", MALFORMED),
        ("٣", MALFORMED),
        ("all", MALFORMED),
        ("1;2", MALFORMED),
        ("1\x00", MALFORMED),
    ],
)
def test_bad_selectors_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SelectorError, match=message):
        parse_selector(text, pool_size=10)


def test_a_huge_range_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(SelectorError, match="the pool has the indices 0 to 4"):
        parse_selector("0:99999999999999999", pool_size=5)


def test_long_selectors_are_not_repeated_in_full() -> None:
    with pytest.raises(SelectorError) as caught:
        parse_selector(",".join(["1"] * 10_000 + ["x"]), pool_size=10)
    assert len(str(caught.value)) < 400
    with pytest.raises(SelectorError) as caught:
        parse_selector("x" * 100_000, pool_size=10)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0:2"),
        ([0, 2], "0,2"),
        ((0, 1, 4, 5, 6, 7), "0:2,4:8"),
        (range(100), "0:100"),
        ([0, 2, 3, 5], "0,2:4,5"),
    ],
)
def test_format(indices: list[int], text: str) -> None:
    assert format_selector(indices) == text


@given(st.sets(st.integers(0, 200), min_size=1))
def test_what_is_formatted_is_parsed(chosen: set[int]) -> None:
    indices = tuple(sorted(chosen))
    assert parse_selector(format_selector(indices), pool_size=201) == indices
    assert parse_selector(format_selector(indices), pool_size=indices[-1] + 1) == indices
    with pytest.raises(SelectorError):
        parse_selector(format_selector(indices), pool_size=indices[-1])


@given(st.text("0123456789:,", max_size=8) | st.text(max_size=8), st.integers(1, 40))
def test_any_text_is_increasing_indices_of_the_pool_or_refused(text: str, size: int) -> None:
    try:
        indices = parse_selector(text, pool_size=size)
    except SelectorError:
        return
    assert indices
    assert all(0 <= index < size for index in indices)
    assert all(first < second for first, second in pairwise(indices))
    assert parse_selector(format_selector(indices), pool_size=size) == indices
