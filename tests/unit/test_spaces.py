from __future__ import annotations

import math
from collections import OrderedDict
from decimal import Decimal
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.execution.wire import Decoder, WireError
from evopolicygym.policy import Graph
from evopolicygym.spaces import (
    InvalidActionError,
    ObservationError,
    action_copier,
    action_reader,
    array_layout,
    describe,
    observation_reader,
    observation_writer,
    space_nbytes,
    validate_space,
)


def box(*shape: int, dtype: str = "float32", low: Any = -1, high: Any = 1) -> dict[str, Any]:
    return {"type": "Box", "dtype": dtype, "shape": list(shape), "low": low, "high": high}


def discrete(n: int, start: int = 0) -> dict[str, Any]:
    return {"type": "Discrete", "n": n, "start": start}


def text(least: int, most: int, charset: str | None = None) -> dict[str, Any]:
    return {"type": "Text", "min_length": least, "max_length": most, "charset": charset}


class Move(IntEnum):
    LEFT = 0
    RIGHT = 1


class Strange:
    """Nothing numpy or the reader knows."""

    def __repr__(self) -> str:
        return "Strange()"


BOX = box(3)
GRID = {"type": "MultiDiscrete", "nvec": [3, 4]}
STARTED = {"type": "MultiDiscrete", "nvec": [[2, 3], [4, 5]], "start": [[0, -1], [10, 0]]}
BITS = {"type": "MultiBinary", "shape": [3]}
BIT_GRID = {"type": "MultiBinary", "shape": [2, 2]}
WORD = text(1, 3, "abc")
ROBOT = {"type": "Dict", "spaces": {"move": discrete(3), "grip": box(2)}}
PAIR = {"type": "Tuple", "spaces": [discrete(3), box(1)]}
MANY = {"type": "Sequence", "space": discrete(3)}
EITHER = {"type": "OneOf", "spaces": [discrete(3), box(2)]}
GRAPH = {"type": "Graph", "node_space": box(2), "edge_space": discrete(4)}
NODES = {"type": "Graph", "node_space": discrete(5, start=1), "edge_space": None}


def array(values: Any, dtype: Any) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=dtype)


def same(first: Any, second: Any) -> bool:
    """Equal in value, type, dtype and shape, all the way down."""
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return (
            first.dtype == second.dtype
            and first.shape == second.shape
            and np.array_equal(first, second)
        )
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


# ------------------------------------------------------------------------- accepted

F4 = np.float32
ACCEPTED: list[tuple[dict[str, Any], Any, Any]] = [
    # Discrete
    (discrete(2), 0, 0),
    (discrete(2), 1, 1),
    (discrete(2), True, 1),
    (discrete(2), False, 0),
    (discrete(2), Move.RIGHT, 1),
    (discrete(2), np.int64(1), 1),
    (discrete(2), np.uint8(1), 1),
    (discrete(2), np.int8(0), 0),
    (discrete(2), np.bool_(True), 1),
    (discrete(2), np.array(1), 1),
    (discrete(2), np.array(True), 1),
    (discrete(3, start=-1), -1, -1),
    (discrete(3, start=-1), np.int8(1), 1),
    (discrete(2, start=10), 11, 11),
    ({"type": "Discrete", "n": 2}, 1, 1),
    # Box
    (BOX, [0.5, -1.0, 1.0], array([0.5, -1, 1], F4)),
    (BOX, (0.5, -1.0, 1.0), array([0.5, -1, 1], F4)),
    (BOX, [0, 1, -1], array([0, 1, -1], F4)),
    (BOX, [True, False, 0.5], array([1, 0, 0.5], F4)),
    (BOX, [np.float64(0.1), np.int8(1), np.bool_(True)], array([0.1, 1, 1], F4)),
    (BOX, [np.array(0.1), 0, 0], array([0.1, 0, 0], F4)),
    (BOX, array([0.1, 0.2, 0.3], np.float64), array([0.1, 0.2, 0.3], F4)),
    (BOX, array([0.1, 0.2, 0.3], np.longdouble), array([0.1, 0.2, 0.3], F4)),
    (BOX, array([0.5, 0.25, 0], np.float16), array([0.5, 0.25, 0], F4)),
    (BOX, array([0.1, 0.2, 0.3], ">f4"), array([0.1, 0.2, 0.3], F4)),
    (BOX, array([1, 0, 1], np.uint8), array([1, 0, 1], F4)),
    (BOX, array([True, False, True], bool), array([1, 0, 1], F4)),
    (BOX, array([-1, 1, 0.5], F4), array([-1, 1, 0.5], F4)),
    (box(40), np.ones(40, F4), np.ones(40, F4)),
    (box(2, low=[-1, 5], high=[0, 6]), array([0, 6], F4), array([0, 6], F4)),
    (box(2, 2), np.ones((2, 2), F4), np.ones((2, 2), F4)),
    (BOX, np.arange(6, dtype=F4)[::2] / 4, array([0, 0.5, 1], F4)),
    (BOX, np.ma.array([1.0, 0.0, 0.5]), array([1, 0, 0.5], F4)),
    # float64 values outside the bounds that are inside after the cast
    (BOX, [1 + 1e-9, -1 - 1e-9, 0], array([1, -1, 0], F4)),
    (box(1, low=-0.1, high=0.1), [0.1], array([0.1], F4)),
    (box(1, low=-0.1, high=0.1), [float(F4(0.1))], array([0.1], F4)),
    (box(), 0.5, array(0.5, F4)),
    (box(), 1, array(1, F4)),
    (box(), np.float32(0.5), array(0.5, F4)),
    (box(0), [], array([], F4)),
    (box(2, 0), [[], []], np.zeros((2, 0), F4)),
    (box(2, 2), [[0, 1], [0.5, -1]], array([[0, 1], [0.5, -1]], F4)),
    (box(2, 2), np.asfortranarray([[0, 1], [0.5, -1]]), array([[0, 1], [0.5, -1]], F4)),
    (box(2, low=[-1, 5], high=[0, 6]), [-0.5, 5.5], array([-0.5, 5.5], F4)),
    (box(1, low=-math.inf, high=math.inf), [-1e30], array([-1e30], F4)),
    (box(2, low=0, high=math.inf), [0, 3e38], array([0, 3e38], F4)),
    (box(1, dtype="float64"), [0.1], array([0.1], np.float64)),
    (box(1, dtype="float64"), [F4(0.1)], array([float(F4(0.1))], np.float64)),
    (box(1, dtype="float16"), [0.1], array([0.1], np.float16)),
    # integer Box
    (box(2, dtype="uint8", low=0, high=255), [0, 255], array([0, 255], np.uint8)),
    (box(2, dtype="uint8", low=0, high=255), array([0, 255], np.int64), array([0, 255], np.uint8)),
    (box(1, dtype="uint8", low=0, high=255), [True], array([1], np.uint8)),
    (box(1, dtype="int8", low=-128, high=127), [-128], array([-128], np.int8)),
    (box(0, dtype="uint8", low=0, high=255), [], array([], np.uint8)),
    (
        box(2, dtype="int64", low=-(2**63), high=2**63 - 1),
        [-(2**63), 2**63 - 1],
        array([-(2**63), 2**63 - 1], np.int64),
    ),
    (
        box(1, dtype="uint64", low=0, high=2**64 - 1),
        [2**64 - 1],
        array([2**64 - 1], np.uint64),
    ),
    (box(1, dtype="int64", low=0, high=2**53), [2**53], array([2**53], np.int64)),
    # MultiDiscrete
    (GRID, [2, 3], array([2, 3], np.int64)),
    (GRID, (0, 0), array([0, 0], np.int64)),
    (GRID, [True, False], array([1, 0], np.int64)),
    (GRID, array([2, 3], np.uint8), array([2, 3], np.int64)),
    (GRID, [np.int64(2), np.array(1)], array([2, 1], np.int64)),
    (STARTED, [[0, -1], [10, 0]], array([[0, -1], [10, 0]], np.int64)),
    (STARTED, [[1, 1], [13, 4]], array([[1, 1], [13, 4]], np.int64)),
    # MultiBinary
    (BITS, [0, 1, 1], array([0, 1, 1], np.int8)),
    (BITS, [True, False, True], array([1, 0, 1], np.int8)),
    (BITS, array([1, 0, 0], bool), array([1, 0, 0], np.int8)),
    (BITS, array([1, 0, 0], np.uint64), array([1, 0, 0], np.int8)),
    (BIT_GRID, [[0, 1], [1, 0]], array([[0, 1], [1, 0]], np.int8)),
    # Text
    (WORD, "a", "a"),
    (WORD, "cba", "cba"),
    (text(0, 2, ""), "", ""),
    (text(0, 2), "üß", "üß"),
    # Dict
    (ROBOT, {"move": 2, "grip": [0, 1]}, {"move": 2, "grip": array([0, 1], F4)}),
    (ROBOT, {"grip": (0, 1), "move": np.int8(2)}, {"move": 2, "grip": array([0, 1], F4)}),
    (
        ROBOT,
        OrderedDict(move=True, grip=np.zeros(2)),
        {"move": 1, "grip": array([0, 0], F4)},
    ),
    (
        ROBOT,
        MappingProxyType({"move": 0, "grip": [0, 0]}),
        {"move": 0, "grip": array([0, 0], F4)},
    ),
    ({"type": "Dict", "spaces": {}}, {}, {}),
    # Tuple
    (PAIR, (2, [0.5]), (2, array([0.5], F4))),
    (PAIR, [2, [0.5]], (2, array([0.5], F4))),
    ({"type": "Tuple", "spaces": []}, (), ()),
    ({"type": "Tuple", "spaces": [discrete(3)] * 2}, array([1, 2], np.int8), (1, 2)),
    # Sequence
    (MANY, (), ()),
    (MANY, [0, 1, 2, np.int8(1)], (0, 1, 2, 1)),
    (MANY, array([2, 0], np.uint8), (2, 0)),
    ({"type": "Sequence", "space": box(1)}, [[0], [1]], (array([0], F4), array([1], F4))),
    ({"type": "Sequence", "space": box(1)}, np.ones((1, 1)), (array([1], F4),)),
    # OneOf
    (EITHER, (0, 2), (0, 2)),
    (EITHER, [1, [0, 1]], (1, array([0, 1], F4))),
    (EITHER, (np.int64(1), (0, 1)), (1, array([0, 1], F4))),
    (EITHER, (True, (0, 1)), (1, array([0, 1], F4))),
    # Graph
    (
        GRAPH,
        Graph(np.zeros((2, 2)), np.array([3]), np.array([[0, 1]])),
        Graph(np.zeros((2, 2), F4), array([3], np.int64), array([[0, 1]], np.int32)),
    ),
    (
        GRAPH,
        ([[0, 1]], [0, 3], [[0, 0], [0, 0]]),
        Graph(array([[0, 1]], F4), array([0, 3], np.int64), np.zeros((2, 2), np.int32)),
    ),
    (
        GRAPH,
        {"nodes": [[0, 1]], "edges": [3], "edge_links": [[0, 0]]},
        Graph(array([[0, 1]], F4), array([3], np.int64), np.zeros((1, 2), np.int32)),
    ),
    (GRAPH, ([[0, 1]], None, None), Graph(array([[0, 1]], F4), None, None)),
    (
        GRAPH,
        ([[0, 1]], [], np.zeros((0, 2), int)),
        Graph(array([[0, 1]], F4), array([], np.int64), np.zeros((0, 2), np.int32)),
    ),
    (GRAPH, ([], None, None), Graph(np.zeros((0, 2), F4), None, None)),
    (NODES, ([1, 5], None, None), Graph(array([1, 5], np.int64), None, None)),
]


@pytest.mark.parametrize(("space", "value", "expected"), ACCEPTED)
def test_accepted_actions(space: dict[str, Any], value: Any, expected: Any) -> None:
    validate_space(space)
    found = action_reader(space)(value)
    assert same(found, expected), f"got {found!r} ({type(found).__name__})"
    assert same(action_reader(space)(found), expected)  # a canonical value denotes itself


@pytest.mark.parametrize(("space", "value", "expected"), ACCEPTED)
def test_the_input_is_neither_changed_nor_kept(space: Any, value: Any, expected: Any) -> None:
    def arrays(item: Any) -> list[Any]:
        if isinstance(item, np.ndarray):
            return [item]
        parts = item.values() if isinstance(item, dict | MappingProxyType) else item
        return [a for part in parts for a in arrays(part)] if isinstance(item, dict | tuple) else []

    given_arrays, before = arrays(value), [a.copy() for a in arrays(value)]
    found = arrays(action_reader(space)(value))
    assert all(map(np.array_equal, given_arrays, before))
    assert not any(np.shares_memory(a, b) for a in found for b in given_arrays)
    for item in found:
        item[...] = 0  # fresh arrays can be written to
    assert all(map(np.array_equal, given_arrays, before))


def test_a_canonical_array_is_copied_too() -> None:
    value = array([0.5, 0.5, 0.5], F4)
    found = action_reader(BOX)(value)
    value[:] = 9
    assert found.tolist() == [0.5, 0.5, 0.5]


# ------------------------------------------------------------------------- rejected

REJECTED: list[tuple[dict[str, Any], Any, str]] = [
    # Discrete
    (discrete(2), 2, "Discrete(2) needs an integer in [0, 1], got 2"),
    (discrete(2), -1, "needs an integer in [0, 1], got -1"),
    (discrete(2), 10**30, "needs an integer in [0, 1], got 1000"),
    (discrete(2), np.uint64(2**64 - 1), "got 18446744073709551615"),
    (discrete(2), np.int8(-1), "got -1"),
    (discrete(2), 1.0, "Discrete(2) needs one integer, got 1.0 (float)"),
    (discrete(2), np.float32(1), "needs one integer, got "),
    (discrete(2), np.array(1.0), "needs one integer, got an array of shape () and dtype float64"),
    (discrete(2), math.nan, "needs one integer, got nan (float)"),
    (discrete(2), math.inf, "needs one integer, got inf (float)"),
    (discrete(2), "1", "needs one integer, got '1' (str)"),
    (discrete(2), b"1", "needs one integer, got b'1' (bytes)"),
    (discrete(2), None, "needs one integer, got None (NoneType)"),
    (discrete(2), 1 + 0j, "needs one integer, got (1+0j) (complex)"),
    (discrete(2), Decimal(1), "needs one integer, got Decimal('1') (Decimal)"),
    (discrete(2), [1], "needs one integer, got [1] (list)"),
    (discrete(2), (1,), "needs one integer, got (1,) (tuple)"),
    (discrete(2), {"a": 1}, "needs one integer, got {'a': 1} (dict)"),
    (discrete(2), np.array([1]), "needs one integer, got an array of shape (1,) and dtype int64"),
    (discrete(2), np.array(None), "needs one integer, got an array of shape () and dtype object"),
    (discrete(2), Strange(), "needs one integer, got Strange() (Strange)"),
    (discrete(2), "x" * 1000, "x… (str)"),
    (discrete(3, start=-1), 2, "Discrete(3, start=-1) needs an integer in [-1, 1], got 2"),
    (discrete(3, start=-1), -2, "needs an integer in [-1, 1], got -2"),
    (discrete(2, start=10), 0, "needs an integer in [10, 11], got 0"),
    # Box: shape
    (BOX, [0, 0], "Box(3,) float32 needs shape (3,), got shape (2,) of int64"),
    (BOX, [[0, 0, 0]], "needs shape (3,), got shape (1, 3)"),
    (BOX, np.zeros((3, 1)), "needs shape (3,), got shape (3, 1)"),
    (BOX, [], "needs shape (3,), got shape (0,)"),
    (BOX, 0.5, "needs shape (3,), got shape ()"),
    (BOX, np.float32(0.5), "needs shape (3,), got shape ()"),
    (BOX, np.array(0.5), "needs shape (3,), got shape ()"),
    (box(), [0.5], "Box() float32 needs shape (), got shape (1,)"),
    (box(0), [0.5], "needs shape (0,), got shape (1,)"),
    (BOX, [[0], [0, 0], [0]], "needs a rectangular array of numbers"),
    # Box: values
    (BOX, [1.1, 0, 0], "needs values in [-1.0, 1.0], got 1.1 at index [0]"),
    (BOX, [0, 0, 2], "needs values in [-1.0, 1.0], got 2 at index [2]"),
    (BOX, [0, -1.0001, 0], "got -1.0001 at index [1]"),
    (BOX, [1 + 1e-6, 0, 0], "needs values in [-1.0, 1.0], got 1.000001 at index [0]"),
    (BOX, array([0, 0, 2], np.uint8), "got 2 at index [2]"),
    (BOX, [math.nan, 0, 0], "needs finite numbers, got nan at index [0]"),
    (BOX, [0, math.inf, 0], "needs finite numbers, got inf at index [1]"),
    (BOX, [0, 0, -math.inf], "needs finite numbers, got -inf at index [2]"),
    (BOX, [1e300, 0, 0], "needs finite numbers, got 1e+300 at index [0]"),
    (BOX, array([-1e300, 0, 0], np.float64), "got -1e+300 at index [0]"),
    (
        BOX,
        np.array([np.longdouble("1e4000"), 0, 0]),
        "needs finite numbers, got ",
    ),
    (BOX, [10**30, 0, 0], "needs real numbers, got an array of shape (3,) and dtype object"),
    (box(), 1.5, "needs values in [-1.0, 1.0], got 1.5"),
    (box(), math.nan, "needs finite numbers, got nan"),
    (box(2, 2), [[0, 0], [0, 7]], "got 7 at index [1, 1]"),
    (box(2, low=[-1, 5], high=[0, 6]), [-0.5, 4], "needs values in [5.0, 6.0], got 4.0"),
    (box(1, low=-0.1, high=0.1), [float(np.nextafter(F4(0.1), F4(1)))], "needs values in"),
    (box(1, low=-math.inf, high=math.inf), [math.inf], "needs finite numbers, got inf"),
    (box(1, low=-math.inf, high=math.inf), [-math.inf], "needs finite numbers, got -inf"),
    (box(1, low=-math.inf, high=math.inf), [math.nan], "needs finite numbers, got nan"),
    (box(1, low=-math.inf, high=math.inf), [1e39], "needs finite numbers, got 1e+39"),
    (box(2, low=0, high=math.inf), [0, math.inf], "needs finite numbers, got inf at index [1]"),
    (box(2, low=0, high=math.inf), [0, -1], "needs values in [0.0, inf], got -1 at index [1]"),
    (box(2, low=[-math.inf, 0], high=1), [-math.inf, 0], "got -inf at index [0]"),
    (box(1, dtype="float16", low=-1e4, high=1e4), [10**6], "needs finite numbers, got 1000000"),
    # Box: arrays that are canonical but for one value
    (BOX, array([math.nan, 0, 0], F4), "needs finite numbers, got nan at index [0]"),
    (BOX, array([0, math.nan, 0], F4), "needs finite numbers, got nan at index [1]"),
    (BOX, array([0, 0, math.nan], F4), "needs finite numbers, got nan at index [2]"),
    (BOX, array([0, math.inf, 0], F4), "needs finite numbers, got inf at index [1]"),
    (BOX, array([0, 0, 1.5], F4), "needs values in [-1.0, 1.0], got 1.5 at index [2]"),
    (BOX, array([0, 0, -1.5], F4), "needs values in [-1.0, 1.0], got -1.5 at index [2]"),
    (BOX, array([0, 0], F4), "needs shape (3,), got shape (2,) of float32"),
    (box(40), array([0] * 39 + [2], F4), "got 2.0 at index [39]"),
    (box(2, low=[-1, 5], high=[0, 6]), array([0, 4], F4), "needs values in [5.0, 6.0], got 4.0"),
    # Box: types
    (BOX, "abc", "needs numbers, got 'abc' (str)"),
    (BOX, b"abc", "needs numbers, got b'abc' (bytes)"),
    (BOX, None, "needs numbers, got None (NoneType)"),
    (BOX, {"a": 1}, "needs numbers, got {'a': 1} (dict)"),
    (BOX, ["0", "0", "0"], "needs real numbers, got an array of shape (3,) and dtype <U1"),
    (BOX, ["0", 0, 0], "needs real numbers, got "),
    (BOX, [None, 0, 0], "needs real numbers, got an array of shape (3,) and dtype object"),
    (BOX, array([0, 0, 0], object), "needs real numbers, got an array of shape (3,)"),
    (BOX, array([0, 0, 0], complex), "needs real numbers, got an array of shape (3,) and dtype co"),
    (BOX, [1j, 0, 0], "needs real numbers, got "),
    (BOX, array([b"0"] * 3, "S1"), "needs real numbers, got an array of shape (3,) and dtype |S1"),
    (BOX, array([0, 0, 0], "M8[s]"), "needs real numbers, got an array of shape (3,) and dtype"),
    (BOX, array([0, 0, 0], "m8[s]"), "needs real numbers, got an array of shape (3,) and dtype"),
    (BOX, {0, 1}, "needs real numbers, got an array of shape () and dtype object"),
    (BOX, Strange(), "needs real numbers, got an array of shape () and dtype object"),
    (BOX, [Decimal(0)] * 3, "needs real numbers, got an array of shape (3,) and dtype object"),
    # integer Box
    (box(1, dtype="uint8", low=0, high=255), [0.0], "Box(1,) uint8 needs integers, got float64"),
    (box(1, dtype="uint8", low=0, high=255), np.zeros(1, F4), "needs integers, got float32"),
    (box(1, dtype="uint8", low=0, high=255), [256], "got 256 at index [0]"),
    (box(1, dtype="uint8", low=0, high=255), [-1], "got -1 at index [0]"),
    (box(1, dtype="uint8", low=0, high=255), [10**30], "needs real numbers, got an array"),
    (box(1, dtype="int8", low=-128, high=127), array([128], np.uint8), "got 128 at index [0]"),
    (box(1, dtype="uint64", low=0, high=2**64 - 1), [-1], "got -1 at index [0]"),
    (
        box(1, dtype="int64", low=-(2**63), high=2**63 - 1),
        array([2**63], np.uint64),
        "got 9223372036854775808 at index [0]",
    ),
    (
        box(1, dtype="int64", low=0, high=2**53),
        [2**53 + 1],
        "got 9007199254740993 at index [0]",
    ),
    # MultiDiscrete
    (GRID, [3, 0], "MultiDiscrete([3, 4]) needs values in [0, 2], got 3 at index [0]"),
    (GRID, [0, 4], "needs values in [0, 3], got 4 at index [1]"),
    (GRID, [-1, 0], "needs values in [0, 2], got -1 at index [0]"),
    (GRID, [1.0, 0.0], "needs integers, got float64"),
    (GRID, [0, math.nan], "needs integers, got float64"),
    (GRID, [0], "needs shape (2,), got shape (1,)"),
    (GRID, 0, "needs shape (2,), got shape ()"),
    (GRID, [[0, 0]], "needs shape (2,), got shape (1, 2)"),
    (GRID, "00", "needs numbers, got '00' (str)"),
    (GRID, ["0", "0"], "needs real numbers"),
    (GRID, None, "needs numbers, got None"),
    (GRID, [0, [0]], "needs a rectangular array of numbers"),
    (GRID, [0, 10**30], "needs real numbers, got an array of shape (2,) and dtype object"),
    (GRID, array([0, 2**64 - 1], np.uint64), "needs values in [0, 3], got 18446744073709551615"),
    (STARTED, [[0, 0], [0, 0]], "needs values in [10, 13], got 0 at index [1, 0]"),
    (STARTED, [[0, 2], [10, 0]], "needs values in [-1, 1], got 2 at index [0, 1]"),
    # MultiBinary
    (BITS, [0, 1, 2], "MultiBinary([3]) needs values in [0, 1], got 2 at index [2]"),
    (BITS, [0, -1, 0], "got -1 at index [1]"),
    (BITS, [0.0, 1.0, 0.0], "needs integers, got float64"),
    (BITS, [0, 1], "needs shape (3,), got shape (2,)"),
    (BITS, 0, "needs shape (3,), got shape ()"),
    (BITS, "011", "needs numbers, got '011' (str)"),
    (BIT_GRID, [0, 1, 1, 0], "needs shape (2, 2), got shape (4,)"),
    # Text
    (WORD, "", "Text needs 1 to 3 characters, got 0"),
    (WORD, "aaaa", "Text needs 1 to 3 characters, got 4"),
    (WORD, "abd", "Text has characters outside its charset: ['d']"),
    (WORD, "A", "Text has characters outside its charset: ['A']"),
    (WORD, b"a", "Text needs a str, got b'a' (bytes)"),
    (WORD, 1, "Text needs a str, got 1 (int)"),
    (WORD, None, "Text needs a str, got None"),
    (WORD, ["a"], "Text needs a str, got ['a'] (list)"),
    (WORD, np.array("a"), "Text needs a str, got an array of shape () and dtype <U1"),
    (text(0, 2, ""), "a", "outside its charset: ['a']"),
    (text(0, 2), "üßü", "Text needs 0 to 2 characters, got 3"),
    # Dict
    (ROBOT, {"move": 2}, "Dict needs exactly the keys ['grip', 'move'], got ['move']"),
    (ROBOT, {}, "Dict needs exactly the keys ['grip', 'move'], got []"),
    (ROBOT, {"move": 2, "grip": [0, 1], "x": 1}, "got ['grip', 'move', 'x']"),
    (ROBOT, {"move": 2, 1: [0, 1]}, "got ['1', 'move']"),
    (ROBOT, [2, [0, 1]], "Dict needs exactly the keys ['grip', 'move'], got [2, [0, 1]] (list)"),
    (ROBOT, [("move", 2), ("grip", [0, 1])], "Dict needs exactly the keys"),
    (ROBOT, None, "got None (NoneType)"),
    (ROBOT, {"move": 3, "grip": [0, 1]}, "['move'] Discrete(3) needs an integer in [0, 2], got 3"),
    (ROBOT, {"move": 2, "grip": [0, 9]}, "['grip'] Box(2,) float32 needs values in"),
    # Tuple
    (PAIR, (2,), "Tuple needs 2 items, got 1"),
    (PAIR, (2, [0], 0), "Tuple needs 2 items, got 3"),
    (PAIR, (), "Tuple needs 2 items, got 0"),
    (PAIR, (3, [0]), "[0] Discrete(3) needs an integer in [0, 2], got 3"),
    (PAIR, (2, 0), "[1] Box(1,) float32 needs shape (1,), got shape ()"),
    (PAIR, 2, "Tuple needs a tuple or list, got 2 (int)"),
    (PAIR, "20", "Tuple needs a tuple or list, got '20' (str)"),
    (PAIR, {0: 2, 1: [0]}, "Tuple needs a tuple or list, got "),
    (PAIR, np.array(2), "Tuple needs a tuple or list, got an array of shape ()"),
    (PAIR, None, "Tuple needs a tuple or list, got None"),
    ({"type": "Tuple", "spaces": [text(1, 1)] * 2}, "ab", "Tuple needs a tuple or list"),
    # Sequence
    (MANY, [0, 3], "[1] Discrete(3) needs an integer in [0, 2], got 3"),
    (MANY, [0.0], "[0] Discrete(3) needs one integer"),
    (MANY, 0, "Sequence needs a tuple or list, got 0 (int)"),
    (MANY, "00", "Sequence needs a tuple or list, got '00' (str)"),
    (MANY, {0, 1}, "Sequence needs a tuple or list, got {0, 1} (set)"),
    (MANY, {0: 0}, "Sequence needs a tuple or list, got {0: 0} (dict)"),
    (MANY, None, "Sequence needs a tuple or list, got None"),
    # OneOf
    (EITHER, (2, 0), "OneOf needs a branch in [0, 1], got 2"),
    (EITHER, (-1, [0, 0]), "OneOf needs a branch in [0, 1], got -1"),
    (EITHER, (0.0, 0), "needs one integer, got 0.0 (float)"),
    (EITHER, ("0", 0), "needs one integer, got '0' (str)"),
    (EITHER, (0, 3), "[0] Discrete(3) needs an integer in [0, 2], got 3"),
    (EITHER, (0, [0, 0]), "[0] Discrete(3) needs one integer, got [0, 0] (list)"),
    (EITHER, (1, 0), "[1] Box(2,) float32 needs shape (2,), got shape ()"),
    (EITHER, (0,), "OneOf needs (branch, value), got 1 items"),
    (EITHER, (0, 1, 2), "OneOf needs (branch, value), got 3 items"),
    (EITHER, 0, "OneOf needs a tuple or list, got 0 (int)"),
    # Graph
    (GRAPH, ([[0, 0]], None), "Graph needs (nodes, edges, edge_links)"),
    (GRAPH, 0, "Graph needs a tuple or list, got 0 (int)"),
    (GRAPH, {"nodes": [[0, 0]], "edges": [0]}, "edge_links needs numbers, got None"),
    (GRAPH, {"edges": None}, "Graph needs a tuple or list, got None"),
    (GRAPH, ([[0]], None, None), "[0] Box(2,) float32 needs shape (2,), got shape (1,)"),
    (GRAPH, ([[0, 0], [0, 5]], None, None), "[1] Box(2,) float32 needs values in"),
    (GRAPH, (None, None, None), "Graph needs a tuple or list, got None"),
    (GRAPH, ([[0, 0]], [4], [[0, 0]]), "[0] Discrete(4) needs an integer in [0, 3], got 4"),
    (GRAPH, ([[0, 0]], None, [[0, 0]]), "Graph needs a tuple or list, got None"),
    (GRAPH, ([[0, 0]], [0], [[0, 1]]), "edge_links must be node indices in [0, 0]"),
    (GRAPH, ([[0, 0]], [0], [[-1, 0]]), "edge_links must be node indices in [0, 0]"),
    (GRAPH, ([[0, 0]], [0], [[0.0, 0.0]]), "edge_links must be node indices in [0, 0]"),
    (GRAPH, ([[0, 0]], [0], [0, 0]), "edge_links needs shape (1, 2), got shape (2,)"),
    (GRAPH, ([[0, 0]], [0], [[0, 0], [0, 0]]), "edge_links needs shape (1, 2), got shape (2, 2)"),
    (GRAPH, ([[0, 0]], [0], [["0", "0"]]), "edge_links needs real numbers"),
    (GRAPH, ([[0, 0]], [0], "00"), "edge_links needs numbers, got '00' (str)"),
    (NODES, ([1], [], np.zeros((0, 2), int)), "this Graph has no edges"),
    (NODES, ([1], None, [[0, 0]]), "this Graph has no edges"),
    (NODES, ([0], None, None), "[0] Discrete(5, start=1) needs an integer in [1, 5], got 0"),
    # nested
    (
        {"type": "Dict", "spaces": {"arms": {"type": "Tuple", "spaces": [ROBOT, ROBOT]}}},
        {"arms": [{"move": 0, "grip": [0, 0]}, {"move": 0, "grip": [0, 2]}]},
        "['arms'] [1] ['grip'] Box(2,) float32 needs values in [-1.0, 1.0], got 2 at index [1]",
    ),
]


@pytest.mark.parametrize(("space", "value", "message"), REJECTED)
def test_rejected_actions(space: dict[str, Any], value: Any, message: str) -> None:
    validate_space(space)
    with pytest.raises(InvalidActionError) as caught:
        action_reader(space)(value)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("kind", ["Discrete", "Box", "Text", "Dict", "Tuple", "Sequence", "OneOf"])
def test_integers_too_long_to_print_are_invalid_actions(kind: str) -> None:
    number = 10**5000  # str() of it raises ValueError
    space, value = {
        "Discrete": (discrete(2), number),
        "Box": (BOX, [number, 0, 0]),
        "Text": (WORD, number),
        "Dict": (ROBOT, [number]),
        "Tuple": (PAIR, number),
        "Sequence": (MANY, [number]),
        "OneOf": (EITHER, (number, 0)),
    }[kind]
    with pytest.raises(InvalidActionError):
        action_reader(space)(value)


@pytest.mark.parametrize("space", [discrete(2), BOX, GRID, WORD, ROBOT, PAIR, MANY, EITHER, GRAPH])
def test_nesting_as_deep_as_the_wire_carries_is_an_invalid_action(space: dict[str, Any]) -> None:
    # A policy may write to its pipe what it likes. Any other error would count as a Host fault,
    # and its Episode would be refunded.
    read, decode = action_reader(space), Decoder().decode
    for depth in range(33, 1_100):
        try:
            value = decode(b"\x91" * depth + b"\x01")
        except WireError:
            break
        with pytest.raises(InvalidActionError):
            read(value)


@given(
    st.sampled_from([BOX, GRID, BITS, WORD, ROBOT, PAIR, MANY, EITHER, GRAPH, NODES, discrete(3)]),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text("abc\ud800", max_size=4)
        | st.binary(max_size=3)
        | st.sampled_from([np.zeros(3), np.array(1), np.int8(2), np.array([None]), 1j, Strange()]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(st.sampled_from(["move", "grip", "nodes"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
)
def test_any_value_is_one_member_or_an_invalid_action(space: dict[str, Any], value: Any) -> None:
    read = action_reader(space)
    try:
        found = read(value)
    except InvalidActionError:
        return
    assert same(read(found), found)


@given(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(["float32", "float64"]))
def test_a_float_is_cast_before_it_meets_the_bounds(value: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        cast = np.dtype(dtype).type(value)
    inside = bool(-0.1 <= cast <= 0.1) if dtype == "float64" else bool(F4(-0.1) <= cast <= F4(0.1))
    read = action_reader(box(1, dtype=dtype, low=-0.1, high=0.1))
    if inside:
        assert same(read([value]), np.array([cast]))
    else:
        with pytest.raises(InvalidActionError):
            read([value])


@given(
    st.lists(st.floats(-1.5, 1.5, width=32) | st.sampled_from([math.nan, math.inf]), max_size=4),
    st.sampled_from([box(2), box(3), box(4, low=[-1] * 4), box(3, dtype="float64")]),
)
def test_an_array_is_read_like_the_list_of_its_items(items: list[float], space: Any) -> None:
    def outcome(value: Any) -> Any:
        try:
            return read(value)
        except InvalidActionError as error:
            return str(error).split(", got ")[0]

    read = action_reader(space)
    value = np.array(items, space["dtype"])
    found = outcome(value)
    assert same(found, outcome(items))
    assert same(found, outcome(np.array(items, ">f8")))
    inside = len(items) == space["shape"][0] and all(-1 <= item <= 1 for item in items)
    assert isinstance(found, np.ndarray) is inside


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from(["int8", "uint16", "int64", "uint64"]))
def test_an_integer_is_in_an_integer_box_or_refused(value: int, dtype: str) -> None:
    limits = np.iinfo(dtype)
    space = box(1, dtype=dtype, low=int(limits.min), high=int(limits.max))
    if limits.min <= value <= limits.max:
        assert same(action_reader(space)([value]), np.array([value], dtype))
    else:
        with pytest.raises(InvalidActionError):
            action_reader(space)([value])


@pytest.mark.parametrize(("space", "value", "expected"), ACCEPTED)
def test_a_copy_of_an_action_shares_nothing_with_it(space: Any, value: Any, expected: Any) -> None:
    def arrays(item: Any) -> list[Any]:
        if isinstance(item, np.ndarray):
            return [item]
        parts = item.values() if isinstance(item, dict) else item
        return [a for part in parts for a in arrays(part)] if isinstance(item, dict | tuple) else []

    action = action_reader(space)(value)
    copied = action_copier(space)(action)
    assert same(copied, action)
    for item in arrays(copied):
        item[...] = 0
    assert same(action, expected)


@pytest.mark.parametrize(
    ("space", "dtype", "shape"),
    [
        (BOX, "float32", (3,)),
        (box(dtype="uint8"), "uint8", ()),
        (GRID, "int64", (2,)),
        (STARTED, "int64", (2, 2)),
        (BIT_GRID, "int8", (2, 2)),
    ],
)
def test_array_layout(space: dict[str, Any], dtype: str, shape: tuple[int, ...]) -> None:
    assert array_layout(space) == (np.dtype(dtype), shape)


# --------------------------------------------------------------- describing, checking


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (BOX, "Box(3,) float32"),
        (box(), "Box() float32"),
        (box(2, 3, dtype="uint8", low=0), "Box(2, 3) uint8"),
        (discrete(2), "Discrete(2)"),
        ({"type": "Discrete", "n": 2}, "Discrete(2)"),
        (discrete(2, start=-1), "Discrete(2, start=-1)"),
        (GRID, "MultiDiscrete([3, 4])"),
        (BITS, "MultiBinary([3])"),
        (WORD, "Text"),
        (ROBOT, "Dict(move: Discrete(3), grip: Box(2,) float32)"),
        (PAIR, "Tuple(Discrete(3), Box(1,) float32)"),
        (EITHER, "OneOf(Discrete(3), Box(2,) float32)"),
        (MANY, "Sequence(Discrete(3))"),
        (GRAPH, "Graph"),
    ],
)
def test_describe(space: dict[str, Any], text: str) -> None:
    assert describe(space) == text


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (BOX, 12),
        (box(), 4),
        (box(0), 0),
        (box(210, 160, 3, dtype="uint8", low=0, high=255), 100_800),
        (discrete(2), 0),
        (GRID, 16),
        (STARTED, 32),
        (BIT_GRID, 4),
        (WORD, 0),
        (ROBOT, 8),
        ({"type": "Tuple", "spaces": [BOX, GRID, WORD]}, 28),
        ({"type": "OneOf", "spaces": [BOX, GRID, WORD]}, 16),
        (MANY, 0),
        ({"type": "Sequence", "space": BOX}, 0),
        (GRAPH, 0),
        ({"type": "Dict", "spaces": {}}, 0),
        ({"type": "Tuple", "spaces": []}, 0),
    ],
)
def test_space_nbytes(space: dict[str, Any], size: int) -> None:
    assert space_nbytes(space) == size


@pytest.mark.parametrize(
    "space",
    [
        *(space for space, _, _ in ACCEPTED),
        box(2, low=[0, 0], high=1),
        box(2, low=-math.inf, high=math.inf),
    ],
)
def test_well_formed_spaces(space: dict[str, Any]) -> None:
    validate_space(space)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (None, "$.type is None; known types are Box, Dict, Discrete, Graph, MultiBinary"),
        ([], "$.type is None"),
        ({}, "$.type is None"),
        ({"type": None}, "$.type is None"),
        ({"type": "box"}, "$.type is 'box'"),
        ({"type": ["Box"]}, "$.type is ['Box']"),
        ({"type": "Box", "dtype": "float32"}, "$ (Box) lacks shape, low, high"),
        ({"type": "Discrete"}, "$ (Discrete) lacks n"),
        ({"type": "MultiDiscrete"}, "$ (MultiDiscrete) lacks nvec"),
        ({"type": "MultiBinary"}, "$ (MultiBinary) lacks shape"),
        ({"type": "Text", "min_length": 0}, "$ (Text) lacks max_length, charset"),
        ({"type": "Dict"}, "$ (Dict) lacks spaces"),
        ({"type": "Tuple"}, "$ (Tuple) lacks spaces"),
        ({"type": "OneOf"}, "$ (OneOf) lacks spaces"),
        ({"type": "Sequence"}, "$ (Sequence) lacks space"),
        ({"type": "Graph", "node_space": BOX}, "$ (Graph) lacks edge_space"),
        (box(3, low=[0, 0]), "$.low has shape (2,), expected () or (3,)"),
        (box(3, high=[[1, 1, 1]]), "$.high has shape (1, 3), expected () or (3,)"),
        (box(3, low="x"), "$"),
        (box(3, dtype="banana"), "$.dtype"),
        (box(3, dtype="object"), "$.dtype"),
        (box(-1), "$.shape"),
        (discrete(0), "$.n"),
        ({"type": "Discrete", "n": [3]}, "$"),
        ({"type": "Discrete", "n": 3.0}, "$.n"),
        ({"type": "Discrete", "n": True}, "$.n"),
        ({"type": "Discrete", "n": 3, "start": "x"}, "$"),
        ({"type": "Discrete", "n": 3, "start": 0.5}, "$"),
        ({"type": "MultiDiscrete", "nvec": [3, 3], "start": [0, 0, 0]}, "$"),
        ({"type": "MultiDiscrete", "nvec": [[3], [3, 3]]}, "$"),
        ({"type": "MultiBinary", "shape": [-1]}, "$.shape"),
        ({"type": "OneOf", "spaces": []}, "$"),
        (box(2, low=1, high=[2, 0]), "$.low"),
        (box(2, low=math.nan), "$.low"),
        ({"type": "MultiDiscrete", "nvec": [3, 0]}, "$.nvec"),
        (text(3, 2), "$"),
        ({"type": "Dict", "spaces": [BOX]}, "$.spaces"),
        ({"type": "Tuple", "spaces": {"a": BOX}}, "$.spaces"),
        ({"type": "Dict", "spaces": {"a": {}}}, "$.spaces.a.type is None"),
        ({"type": "Tuple", "spaces": [BOX, {}]}, "$.spaces[1].type is None"),
        ({"type": "OneOf", "spaces": [BOX, {}]}, "$.spaces[1].type is None"),
        ({"type": "Sequence", "space": {}}, "$.space.type is None"),
        (GRAPH | {"node_space": {}}, "$.node_space.type is None"),
        (GRAPH | {"edge_space": {}}, "$.edge_space.type is None"),
        (GRAPH | {"node_space": ROBOT}, "$.node_space"),
        (
            {"type": "Dict", "spaces": {"a": {"type": "Tuple", "spaces": [{"type": "Box"}]}}},
            "$.spaces.a.spaces[0] (Box) lacks dtype, shape, low, high",
        ),
    ],
)
def test_malformed_spaces_are_named(space: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^\$") as caught:
        validate_space(space)
    assert str(caught.value).startswith(message)


# --------------------------------------------------------------------- observations


@pytest.mark.parametrize(
    ("space", "value", "written"),
    [
        (BOX, [0, 0.5, 1], array([0, 0.5, 1], F4)),
        (BOX, array([0, 0.5, 1], np.float64), array([0, 0.5, 1], F4)),
        (BOX, [5, -math.inf, math.inf], array([5, -math.inf, math.inf], F4)),
        (box(), 0.5, array(0.5, F4)),
        (box(), F4(0.5), array(0.5, F4)),
        (box(2, dtype="uint8"), [0, 255], array([0, 255], np.uint8)),
        (box(2, dtype="uint8"), array([0, 255], np.int64), array([0, 255], np.uint8)),
        (discrete(3), 2, 2),
        (discrete(3), np.int64(2), 2),
        (discrete(3), np.array(2), 2),
        (discrete(3), True, 1),
        (GRID, [2, 3], array([2, 3], np.int64)),
        (GRID, array([2, 3], np.int8), array([2, 3], np.int64)),
        (BITS, [True, False, 1], array([1, 0, 1], np.int8)),
        (BIT_GRID, np.eye(2, dtype=bool), array([[1, 0], [0, 1]], np.int8)),
        (WORD, "abc", "abc"),
        (WORD, np.str_("abc"), "abc"),
        (ROBOT, {"grip": [0, 1], "move": np.int8(2)}, {"move": 2, "grip": array([0, 1], F4)}),
        (PAIR, (np.int64(2), [1]), [2, array([1], F4)]),
        (MANY, (np.int64(2), 1), [2, 1]),
        (MANY, array([2, 1], np.int8), [2, 1]),
        (MANY, (), []),
        (EITHER, (np.int64(1), [0, 1]), [1, array([0, 1], F4)]),
        (EITHER, (0, np.int64(2)), [0, 2]),
        (
            GRAPH,
            Graph(np.zeros((1, 2)), np.array([3]), np.array([[0, 0]])),
            [np.zeros((1, 2), F4), array([3], np.int64), np.zeros((1, 2), np.int32)],
        ),
        (NODES, (np.array([1, 5]), None, None), [array([1, 5], np.int64), None, None]),
    ],
)
def test_written_observations(space: dict[str, Any], value: Any, written: Any) -> None:
    found = observation_writer(space)(value)
    assert same(found, written), f"got {found!r} ({type(found).__name__})"


@pytest.mark.parametrize(
    ("space", "value"),
    [
        pytest.param(BOX, [0, 0], id="Box of another shape"),
        pytest.param(BOX, 0.0, id="Box without dimensions"),
        pytest.param(BOX, np.zeros((1, 3), F4), id="Box of more dimensions"),
        pytest.param(BOX, ["a", "b", "c"], id="Box of text"),
        pytest.param(BOX, None, id="Box is None"),
        pytest.param(BOX, [[0], [0, 0], [0]], id="ragged Box"),
        pytest.param(BOX, np.zeros(3, complex), id="complex Box"),
        pytest.param(box(2, dtype="uint8"), [0.5, 1.5], id="fractions in an integer Box"),
        pytest.param(box(2, dtype="uint8"), [math.nan, 0], id="NaN in an integer Box"),
        pytest.param(box(2, dtype="uint8"), [-1, 256], id="integer Box does not hold it"),
        pytest.param(box(2, dtype="uint8"), np.array([-1, 256]), id="uint8 does not hold it"),
        pytest.param(GRID, [0], id="MultiDiscrete of another shape"),
        pytest.param(GRID, [0.5, 1], id="fractions in a MultiDiscrete"),
        pytest.param(BITS, [0, 1], id="MultiBinary of another shape"),
        pytest.param(discrete(3), 1.7, id="Discrete is a fraction"),
        pytest.param(discrete(3), "1", id="Discrete is text"),
        pytest.param(discrete(3), None, id="Discrete is None"),
        pytest.param(discrete(3), [1], id="Discrete is a list"),
        pytest.param(discrete(3), np.array([1]), id="Discrete is an array"),
        pytest.param(discrete(3), math.nan, id="Discrete is NaN"),
        pytest.param(discrete(3), math.inf, id="Discrete is infinite"),
        pytest.param(WORD, 123, id="Text is a number"),
        pytest.param(WORD, b"abc", id="Text is bytes"),
        pytest.param(WORD, None, id="Text is None"),
        pytest.param(ROBOT, {"move": 1}, id="Dict lacks a key"),
        pytest.param(ROBOT, {"move": 1, "grip": [0, 0], "x": 1}, id="Dict has another key"),
        pytest.param(ROBOT, [1, [0, 0]], id="Dict is a list"),
        pytest.param(ROBOT, None, id="Dict is None"),
        pytest.param(ROBOT, {"move": 1, "grip": [0]}, id="Dict with a bad value"),
        pytest.param(PAIR, (1,), id="Tuple too short"),
        pytest.param(PAIR, (1, [0], 2), id="Tuple too long"),
        pytest.param(PAIR, 1, id="Tuple is a number"),
        pytest.param(PAIR, None, id="Tuple is None"),
        pytest.param(MANY, 1, id="Sequence is a number"),
        pytest.param(MANY, None, id="Sequence is None"),
        pytest.param(EITHER, (2, 0), id="OneOf without such a branch"),
        pytest.param(EITHER, (-1, [0, 0]), id="OneOf of a negative branch"),
        pytest.param(EITHER, (0,), id="OneOf too short"),
        pytest.param(EITHER, (0, 1, 2), id="OneOf too long"),
        pytest.param(EITHER, None, id="OneOf is None"),
        pytest.param(GRAPH, None, id="Graph is None"),
        pytest.param(GRAPH, (np.zeros((1, 2)), None), id="Graph too short"),
        pytest.param(GRAPH, (np.zeros((1, 3)), None, None), id="nodes of another shape"),
        pytest.param(GRAPH, (np.zeros((1, 2)), [0], [0, 0]), id="edge links of another shape"),
        pytest.param(GRAPH, (np.zeros((1, 2)), [0], None), id="edges without links"),
        pytest.param(NODES, (np.array([1]), [0], [[0, 0]]), id="edges where there are none"),
    ],
)
def test_observations_that_are_not_as_declared(space: dict[str, Any], value: Any) -> None:
    # `ObservationError` is a ValueError; the Episode loop takes all three for a Host fault.
    with pytest.raises((ValueError, TypeError, OverflowError)):
        observation_writer(space)(value)


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (BOX, [0, 0], "expected Box(3,) float32, got shape (2,)"),
        (GRID, [[0, 0]], "expected MultiDiscrete([3, 4]), got shape (1, 2)"),
        (BITS, 1, "expected MultiBinary([3]), got shape ()"),
        (ROBOT, {"move": 1}, "a Dict observation lacks 'grip'"),
        (ROBOT, {"move": 1, "grip": [0]}, "expected Box(2,) float32, got shape (1,)"),
        (PAIR, (1,), "expected 2 items, got 1"),
    ],
)
def test_what_is_wrong_with_an_observation(space: Any, value: Any, message: str) -> None:
    with pytest.raises(ObservationError) as caught:
        observation_writer(space)(value)
    assert str(caught.value).startswith(message)


def test_an_array_as_declared_is_passed_on_without_a_copy() -> None:
    value = np.zeros(3, F4)
    assert observation_writer(BOX)(value) is value


@pytest.mark.parametrize("space", [BOX, discrete(3), GRID, BITS, WORD, ROBOT])
def test_plain_spaces_need_no_reader(space: dict[str, Any]) -> None:
    assert observation_reader(space) is None


@pytest.mark.parametrize(
    ("space", "wire", "expected"),
    [
        (PAIR, [2, array([1], F4)], (2, array([1], F4))),
        (MANY, [2, 1], (2, 1)),
        (EITHER, [1, array([0, 1], F4)], (1, array([0, 1], F4))),
        (NODES, [array([1], np.int64), None, None], Graph(array([1], np.int64), None, None)),
        (
            {"type": "Dict", "spaces": {"a": PAIR, "b": discrete(3)}},
            {"a": [2, array([1], F4)], "b": 1},
            {"a": (2, array([1], F4)), "b": 1},
        ),
        ({"type": "Tuple", "spaces": [MANY, EITHER]}, [[1], [0, 2]], ((1,), (0, 2))),
        ({"type": "Sequence", "space": PAIR}, [[0, array([1], F4)]], ((0, array([1], F4)),)),
        ({"type": "OneOf", "spaces": [MANY, discrete(3)]}, [0, [1, 2]], (0, (1, 2))),
    ],
)
def test_what_a_policy_receives(space: dict[str, Any], wire: Any, expected: Any) -> None:
    reader = observation_reader(space)
    assert reader is not None
    assert same(reader(wire), expected)
