"""Reading actions: the one member of a space that a policy's value denotes, or an error."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from evopolicygym.policy import Graph
from evopolicygym.spaces.description import (
    NUMERIC,
    Convert,
    Space,
    array_layout,
    describe,
    feature_layout,
    shown,
)

__all__ = ["InvalidActionError", "action_copier", "action_reader"]


class InvalidActionError(ValueError):
    """An action does not denote exactly one member of its space."""


def action_reader(space: Space) -> Convert:
    """Compile the reader of actions of `space`.

    Returns:
        A function from any value a policy may return to the canonical member it denotes. It
        raises `InvalidActionError` with a message that names space, shape and dtype.
    """
    kind = space["type"]
    return _ACTION_READERS[kind](space)


def _numeric_array(value: Any, space: Space) -> np.ndarray[Any, np.dtype[Any]]:
    if type(value) is not np.ndarray:
        if isinstance(value, str | bytes | Mapping) or value is None:
            raise InvalidActionError(f"{describe(space)} needs numbers, got {shown(value)}")
        try:
            value = np.asarray(value)
        except (ValueError, OverflowError, TypeError) as error:
            raise InvalidActionError(
                f"{describe(space)} needs a rectangular array of numbers, "
                f"got {shown(value)}: {error}"
            ) from None
    if value.dtype.kind not in NUMERIC:
        raise InvalidActionError(f"{describe(space)} needs real numbers, got {shown(value)}")
    return value  # type: ignore[no-any-return]


def _check_shape(
    array: np.ndarray[Any, np.dtype[Any]], shape: tuple[int, ...], space: Space
) -> None:
    if array.shape != shape:
        raise InvalidActionError(
            f"{describe(space)} needs shape {shape}, got shape {array.shape} of {array.dtype}"
        )


def _box_action(space: Space) -> Convert:
    dtype, shape = array_layout(space)
    return (
        _integer_box(space, dtype, shape)
        if dtype.kind in "biu"
        else _float_box(space, dtype, shape)
    )


def _float_box(space: Space, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Convert:
    with np.errstate(over="ignore"):
        low = np.broadcast_to(np.asarray(space["low"], dtype=dtype), shape)
        high = np.broadcast_to(np.asarray(space["high"], dtype=dtype), shape)
    bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())

    def read(value: Any) -> Any:
        array = _numeric_array(value, space)
        _check_shape(array, shape, space)
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        # NaN fails both comparisons; infinities pass an unbounded side and need the second test.
        if not ((cast >= low) & (cast <= high)).all() or not (bounded or np.isfinite(cast).all()):
            _explain_box(array, cast, low, high, space)
        return cast

    # For a handful of numbers with common finite bounds, Python's comparisons are the fastest.
    if not bounded or len(shape) != 1 or not 0 < shape[0] <= 32 or np.ptp(low) or np.ptp(high):
        return read
    lowest, highest = float(low[0]), float(high[0])

    def read_few(value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            items = value.tolist()
            # The sum is NaN if any item is; minimum and maximum alone can miss one.
            if min(items) >= lowest and max(items) <= highest and sum(items) == sum(items):
                return value.copy()
        return read(value)

    return read_few


def _integer_box(space: Space, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Convert:
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low = np.broadcast_to(_integer_bound(space["low"], dtype, least, most), shape)
    high = np.broadcast_to(_integer_bound(space["high"], dtype, least, most), shape)

    def read(value: Any) -> Any:
        array = _numeric_array(value, space)
        _check_shape(array, shape, space)
        if not array.size:
            return array.astype(dtype)
        if array.dtype.kind == "f":
            raise InvalidActionError(f"{describe(space)} needs integers, got {array.dtype}")
        # Extremes as Python integers: numpy compares int64 with uint64 as floats.
        fits = least <= int(array.min()) and int(array.max()) <= most
        cast = array.astype(dtype)
        if not fits or not ((cast >= low) & (cast <= high)).all():
            _explain_box(
                array, array.astype(object), low.astype(object), high.astype(object), space
            )
        return cast

    return read


def _integer_bound(bound: Any, dtype: np.dtype[Any], least: int, most: int) -> Any:
    """Return a bound in the dtype itself; an infinite one is the dtype's own."""
    items = np.asarray(bound, dtype=object)
    exact = [
        (most if item > 0 else least) if abs(item) == np.inf else min(max(int(item), least), most)
        for item in items.ravel().tolist()
    ]
    return np.array(exact, dtype=dtype).reshape(items.shape)


def _explain_box(array: Any, cast: Any, low: Any, high: Any, space: Space) -> None:
    """Raise for the first item that is not finite or out of bounds."""
    inside = (cast >= low) & (cast <= high)
    if cast.dtype.kind == "f":
        inside &= np.isfinite(cast)
    first = int(np.flatnonzero(~inside)[0])
    value = array.ravel()[first]
    at = f" at index {[int(i) for i in np.unravel_index(first, cast.shape)]}" if cast.shape else ""
    if cast.dtype.kind == "f" and not np.isfinite(cast.ravel()[first]):
        raise InvalidActionError(f"{describe(space)} needs finite numbers, got {value}{at}")
    raise InvalidActionError(
        f"{describe(space)} needs values in [{low.ravel()[first]}, {high.ravel()[first]}], "
        f"got {value}{at}"
    )


def _integer(value: Any, space: Space) -> int:
    """Return the integer that a Python or numpy scalar (or 0-d array) denotes."""
    if isinstance(value, int):  # bool included: True denotes 1
        return int(value)
    if isinstance(value, np.ndarray | np.generic):
        if value.shape != ():
            raise InvalidActionError(
                f"{describe(space)} needs one integer, got {shown(np.asarray(value))}"
            )
        if value.dtype.kind in "biu":
            return int(value)
    raise InvalidActionError(f"{describe(space)} needs one integer, got {shown(value)}")


def _discrete_action(space: Space) -> Convert:
    first = int(space.get("start", 0))
    stop = first + int(space["n"])

    def read(value: Any) -> int:
        number = value if type(value) is int else _integer(value, space)
        if first <= number < stop:
            return number
        raise InvalidActionError(
            f"{describe(space)} needs an integer in [{first}, {stop - 1}], got {shown(number)}"
        )

    return read


def _grid_action(space: Space) -> Convert:
    """Reader for MultiDiscrete and MultiBinary: integer arrays with a bound an element."""
    if space["type"] == "MultiDiscrete":
        nvec = np.asarray(space["nvec"], dtype=np.int64)
        low = np.broadcast_to(np.asarray(space.get("start", 0), dtype=np.int64), nvec.shape)
        high = low + nvec - 1
        dtype: np.dtype[Any] = np.dtype(np.int64)
    else:
        shape = tuple(int(n) for n in space["shape"])
        low, high = np.zeros(shape, dtype=np.int64), np.ones(shape, dtype=np.int64)
        dtype = np.dtype(np.int8)

    def read(value: Any) -> Any:
        array = _numeric_array(value, space)
        _check_shape(array, low.shape, space)
        if array.size and array.dtype.kind == "f":
            raise InvalidActionError(f"{describe(space)} needs integers, got {array.dtype}")
        if not ((array >= low) & (array <= high)).all():
            _explain_box(array, array, low, high, space)
        return array.astype(dtype)

    return read


def _text_action(space: Space) -> Convert:
    shortest, longest = int(space["min_length"]), int(space["max_length"])
    charset = None if space["charset"] is None else frozenset(space["charset"])

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise InvalidActionError(f"Text needs a str, got {shown(value)}")
        if not shortest <= len(value) <= longest:
            raise InvalidActionError(
                f"Text needs {shortest} to {longest} characters, got {len(value)}"
            )
        if charset is not None and not charset.issuperset(value):
            stray = sorted(set(value) - charset)[:5]
            raise InvalidActionError(f"Text has characters outside its charset: {stray}")
        return value

    return read


def _dict_action(space: Space) -> Convert:
    readers = {key: action_reader(child) for key, child in space["spaces"].items()}

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or value.keys() != readers.keys():
            got = sorted(map(str, value)) if isinstance(value, Mapping) else shown(value)
            raise InvalidActionError(f"Dict needs exactly the keys {sorted(readers)}, got {got}")
        return {key: _within(reader, value[key], key) for key, reader in readers.items()}

    return read


def _within(reader: Convert, value: Any, where: object) -> Any:
    try:
        return reader(value)
    except InvalidActionError as error:
        raise InvalidActionError(f"[{where!r}] {error}") from None


def _items(value: Any, space: Space) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, np.ndarray) and value.ndim >= 1:
        return list(value)
    if isinstance(value, list | tuple):
        return value
    raise InvalidActionError(f"{space['type']} needs a tuple or list, got {shown(value)}")


def _tuple_action(space: Space) -> Convert:
    readers = [action_reader(child) for child in space["spaces"]]

    def read(value: Any) -> tuple[Any, ...]:
        items = _items(value, space)
        if len(items) != len(readers):
            raise InvalidActionError(f"Tuple needs {len(readers)} items, got {len(items)}")
        return tuple(
            _within(reader, item, index)
            for index, (reader, item) in enumerate(zip(readers, items, strict=True))
        )

    return read


def _sequence_action(space: Space) -> Convert:
    reader = action_reader(space["space"])

    def read(value: Any) -> tuple[Any, ...]:
        return tuple(_within(reader, v, i) for i, v in enumerate(_items(value, space)))

    return read


def _one_of_action(space: Space) -> Convert:
    readers = [action_reader(child) for child in space["spaces"]]
    branch_space: Space = {"type": "Discrete", "n": len(readers)}

    def read(value: Any) -> tuple[int, Any]:
        items = _items(value, space)
        if len(items) != 2:
            raise InvalidActionError(f"OneOf needs (branch, value), got {len(items)} items")
        branch = _integer(items[0], branch_space)
        if not 0 <= branch < len(readers):
            raise InvalidActionError(
                f"OneOf needs a branch in [0, {len(readers) - 1}], got {shown(branch)}"
            )
        return branch, _within(readers[branch], items[1], branch)

    return read


def _graph_action(space: Space) -> Convert:
    node, edge = space["node_space"], space["edge_space"]
    nodes_of = _stack_reader(node)
    edges_of = None if edge is None else _stack_reader(edge)

    def read(value: Any) -> Graph:
        if isinstance(value, Mapping):
            if not value.keys() <= set(Graph._fields):
                raise InvalidActionError(f"Graph has the keys {Graph._fields}, got {sorted(value)}")
            value = tuple(value.get(name) for name in Graph._fields)
        items = _items(value, space)
        if len(items) != 3:
            raise InvalidActionError("Graph needs (nodes, edges, edge_links)")
        nodes = nodes_of(items[0])
        if edges_of is None or (items[1] is None and items[2] is None):
            if items[1] is not None or items[2] is not None:
                raise InvalidActionError("this Graph has no edges: edges and edge_links are None")
            return Graph(nodes, None, None)
        edges = edges_of(items[1])
        links_space: Space = {"type": "edge_links"}
        links = _numeric_array(items[2], links_space)
        _check_shape(links, (len(edges), 2), links_space)
        if links.size and (links.dtype.kind == "f" or links.min() < 0 or links.max() >= len(nodes)):
            raise InvalidActionError(f"edge_links must be node indices in [0, {len(nodes) - 1}]")
        return Graph(nodes, edges, links.astype(np.int32))

    return read


def _stack_reader(space: Space) -> Convert:
    reader = action_reader(space)
    dtype, shape = feature_layout(space)

    def read(value: Any) -> Any:
        items = [_within(reader, v, i) for i, v in enumerate(_items(value, {"type": "Graph"}))]
        return np.asarray(items, dtype=dtype).reshape(len(items), *shape)

    return read


_ACTION_READERS: Mapping[str, Callable[[Space], Convert]] = {
    "Box": _box_action,
    "Discrete": _discrete_action,
    "MultiDiscrete": _grid_action,
    "MultiBinary": _grid_action,
    "Text": _text_action,
    "Dict": _dict_action,
    "Tuple": _tuple_action,
    "OneOf": _one_of_action,
    "Sequence": _sequence_action,
    "Graph": _graph_action,
}


def action_copier(space: Space) -> Convert:
    """Compile the function that copies a canonical action.

    An environment may change an action in place; what it gets is a copy of what is recorded.
    """
    if space["type"] in ("Discrete", "Text"):
        return lambda action: action
    if space["type"] in ("Box", "MultiDiscrete", "MultiBinary"):
        return np.ndarray.copy
    return copy.deepcopy
