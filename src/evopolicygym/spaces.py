"""Plain-mapping spaces: reading actions and observations against them.

A space is a JSON-like mapping with a `type`; `docs/protocol.md` ("Spaces") lists the fields
of each. This module needs numpy only, because it also runs inside the policy process.

Two directions are compiled once a space, so that the step loop calls plain closures:

* `action_reader(space)`: what a policy returned → the one member it denotes, or
  `InvalidActionError`. Nothing is clipped, repaired, sampled or replaced.
* `observation_writer(space)` / `observation_reader(space)`: what an environment returned → the
  canonical value the wire carries → what the policy receives.

Canonical values: Box, MultiDiscrete and MultiBinary are arrays of the space's dtype and shape,
Discrete is `int`, Text is `str`, Dict is `dict`, Tuple and Sequence are `tuple`, OneOf is
`(branch, value)`, Graph is `evopolicygym.policy.Graph`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from evopolicygym.policy import Graph

__all__ = [
    "InvalidActionError",
    "ObservationError",
    "Space",
    "action_bytes_limit",
    "action_copier",
    "action_reader",
    "array_layout",
    "describe",
    "observation_reader",
    "observation_writer",
    "space_nbytes",
    "validate_space",
]

Space: TypeAlias = Mapping[str, Any]
Convert: TypeAlias = Callable[[Any], Any]

_NUMERIC = "biuf"  # numpy kinds: bool, signed, unsigned, float


class InvalidActionError(ValueError):
    """An action does not denote exactly one member of its space."""


class ObservationError(ValueError):
    """An environment returned an observation outside what its space declares."""


def describe(space: Space) -> str:
    """Return a short human name such as `Box(3,) float32` or `Discrete(2)`."""
    kind = space["type"]
    if kind == "Box":
        return f"Box{tuple(space['shape'])} {space['dtype']}"
    if kind == "Discrete":
        start = space.get("start", 0)
        return f"Discrete({space['n']}{f', start={start}' if start else ''})"
    if kind == "MultiDiscrete":
        return f"MultiDiscrete({space['nvec']})"
    if kind == "MultiBinary":
        return f"MultiBinary({space['shape']})"
    if kind == "Dict":
        return "Dict(" + ", ".join(f"{k}: {describe(v)}" for k, v in space["spaces"].items()) + ")"
    if kind in ("Tuple", "OneOf"):
        return f"{kind}(" + ", ".join(describe(v) for v in space["spaces"]) + ")"
    if kind == "Sequence":
        return f"Sequence({describe(space['space'])})"
    return str(kind)


def validate_space(space: Space, path: str = "$") -> None:
    """Check that a plain mapping is a well-formed space.

    Raises:
        ValueError: Naming the path and what is wrong there.
    """
    try:
        _validate(space, path)
    except (TypeError, AttributeError, KeyError, OverflowError) as error:
        raise ValueError(f"{path} is malformed: {type(error).__name__}: {error}") from None


def _validate(space: Space, path: str) -> None:
    kind = space.get("type") if isinstance(space, Mapping) else None
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise ValueError(f"{path}.type is {kind!r}; known types are {', '.join(sorted(_FIELDS))}")
    missing = [name for name in fields if name not in space]
    if missing:
        raise ValueError(f"{path} ({kind}) lacks {', '.join(missing)}")
    if kind in ("Box", "MultiBinary") and any(type(n) is not int or n < 0 for n in space["shape"]):
        raise ValueError(f"{path}.shape is {space['shape']!r}, expected integers >= 0")
    if kind == "Box":
        _validate_box(space, path)
    elif kind in ("Discrete", "MultiDiscrete"):
        _validate_counts(space, path)
    elif kind == "Text":
        if not 0 <= space["min_length"] <= space["max_length"]:
            raise ValueError(f"{path}: expected 0 <= min_length <= max_length")
    elif kind == "Dict":
        if not isinstance(space["spaces"], Mapping):
            raise ValueError(f"{path}.spaces is no mapping of names to spaces")
        for key, child in space["spaces"].items():
            validate_space(child, f"{path}.spaces.{key}")
    elif kind in ("Tuple", "OneOf"):
        if not isinstance(space["spaces"], list | tuple):
            raise ValueError(f"{path}.spaces is no list of spaces")
        if kind == "OneOf" and not space["spaces"]:
            raise ValueError(f"{path}.spaces is empty: a OneOf needs a branch")
        for index, child in enumerate(space["spaces"]):
            validate_space(child, f"{path}.spaces[{index}]")
    elif kind == "Sequence":
        validate_space(space["space"], f"{path}.space")
    elif kind == "Graph":
        for name in ("node_space", "edge_space"):
            if name == "node_space" or space[name] is not None:
                validate_space(space[name], f"{path}.{name}")
                if space[name]["type"] not in ("Box", "Discrete"):
                    raise ValueError(f"{path}.{name} must be a Box or Discrete")


def _validate_counts(space: Space, path: str) -> None:
    """Check `n` of a Discrete or `nvec` of a MultiDiscrete, and `start`."""
    name = "n" if space["type"] == "Discrete" else "nvec"
    start = space.get("start", 0)
    try:
        counts, first = np.asarray(space[name]), np.asarray(start)
    except ValueError:
        raise ValueError(f"{path}.{name} and start must be rectangular") from None
    if counts.dtype.kind not in "iu" or not counts.size or counts.min() < 1:
        raise ValueError(f"{path}.{name} is {space[name]!r}, expected integers >= 1")
    if name == "n" and counts.shape != ():
        raise ValueError(f"{path}.n is {space['n']!r}, expected one integer")
    if first.dtype.kind not in "iu" or first.shape not in ((), counts.shape):
        raise ValueError(f"{path}.start is {start!r}, expected integers like {name}")


def _validate_box(space: Space, path: str) -> None:
    shape = tuple(space["shape"])
    try:
        known = np.dtype(space["dtype"]).kind in _NUMERIC
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"{path}.dtype is {space['dtype']!r}, expected a real numpy dtype")
    try:
        low, high = (np.asarray(space[side], dtype=np.float64) for side in ("low", "high"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: low and high must be numbers: {error}") from None
    for side, bound in (("low", low), ("high", high)):
        if bound.shape not in ((), shape) and math.prod(shape):
            raise ValueError(f"{path}.{side} has shape {bound.shape}, expected () or {shape}")
    if not (low <= high).all():
        raise ValueError(f"{path}.low is above {path}.high, or one of them is NaN")


_FIELDS: Mapping[str, tuple[str, ...]] = {
    "Box": ("dtype", "shape", "low", "high"),
    "Discrete": ("n",),
    "MultiDiscrete": ("nvec",),
    "MultiBinary": ("shape",),
    "Text": ("min_length", "max_length", "charset"),
    "Dict": ("spaces",),
    "Tuple": ("spaces",),
    "OneOf": ("spaces",),
    "Sequence": ("space",),
    "Graph": ("node_space", "edge_space"),
}


def space_nbytes(space: Space) -> int:
    """Upper bound, in bytes, of the fixed-shape array data in one value of `space`.

    Sequence and Graph count as 0: their size is not known in advance.
    """
    kind = space["type"]
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        dtype, shape = array_layout(space)
        return dtype.itemsize * math.prod(shape)
    if kind == "Dict":
        return sum(space_nbytes(child) for child in space["spaces"].values())
    if kind == "Tuple":
        return sum(space_nbytes(child) for child in space["spaces"])
    if kind == "OneOf":
        return max(space_nbytes(child) for child in space["spaces"])
    return 0


def array_layout(space: Space) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return dtype and shape of the arrays of a Box, MultiDiscrete or MultiBinary."""
    if space["type"] == "Box":
        return np.dtype(space["dtype"]), tuple(int(n) for n in space["shape"])
    if space["type"] == "MultiDiscrete":
        return np.dtype(np.int64), np.shape(space["nvec"])
    return np.dtype(np.int8), tuple(int(n) for n in space["shape"])


def action_bytes_limit(space: Space) -> int | None:
    """Return a generous bound of one encoded action, bytes; None where the space has none.

    Numbers take at most 9 bytes in msgpack, whatever the dtype they are meant for.
    """
    kind = space["type"]
    if kind in ("Sequence", "Graph"):
        return None
    if kind == "Text":
        return 4 * int(space["max_length"]) + 64
    children = space.get("spaces", ())
    parts = [
        action_bytes_limit(child)
        for child in (children.values() if isinstance(children, Mapping) else children)
    ]
    if None in parts:
        return None
    return 256 + 32 * space_nbytes(space) + sum(part or 0 for part in parts)


# ---------------------------------------------------------------------------- actions


def action_reader(space: Space) -> Convert:
    """Compile the reader of actions of `space`.

    Returns:
        A function from any value a policy may return to the canonical member it denotes. It
        raises `InvalidActionError` with a message that names space, shape and dtype.
    """
    kind = space["type"]
    return _ACTION_READERS[kind](space)


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # thousands of digits, thousands of levels
        text = "a value that can't be printed"
    return f"{text[:80]}{'…' if len(text) > 80 else ''} ({type(value).__name__})"


def _numeric_array(value: Any, space: Space) -> np.ndarray[Any, np.dtype[Any]]:
    if type(value) is not np.ndarray:
        if isinstance(value, str | bytes | Mapping) or value is None:
            raise InvalidActionError(f"{describe(space)} needs numbers, got {_shown(value)}")
        try:
            value = np.asarray(value)
        except (ValueError, OverflowError, TypeError) as error:
            raise InvalidActionError(
                f"{describe(space)} needs a rectangular array of numbers, "
                f"got {_shown(value)}: {error}"
            ) from None
    if value.dtype.kind not in _NUMERIC:
        raise InvalidActionError(f"{describe(space)} needs real numbers, got {_shown(value)}")
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
                f"{describe(space)} needs one integer, got {_shown(np.asarray(value))}"
            )
        if value.dtype.kind in "biu":
            return int(value)
    raise InvalidActionError(f"{describe(space)} needs one integer, got {_shown(value)}")


def _discrete_action(space: Space) -> Convert:
    first = int(space.get("start", 0))
    stop = first + int(space["n"])

    def read(value: Any) -> int:
        number = value if type(value) is int else _integer(value, space)
        if first <= number < stop:
            return number
        raise InvalidActionError(
            f"{describe(space)} needs an integer in [{first}, {stop - 1}], got {_shown(number)}"
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
            raise InvalidActionError(f"Text needs a str, got {_shown(value)}")
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
            got = sorted(map(str, value)) if isinstance(value, Mapping) else _shown(value)
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
    raise InvalidActionError(f"{space['type']} needs a tuple or list, got {_shown(value)}")


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
                f"OneOf needs a branch in [0, {len(readers) - 1}], got {_shown(branch)}"
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
    dtype, shape = _feature_layout(space)

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


# ----------------------------------------------------------------------- observations


def observation_writer(space: Space) -> Convert:
    """Compile the function from an environment's observation to its canonical value.

    The result holds only numbers, str, arrays of the declared dtype, dict, list and tuple, so the
    wire can carry it. It raises `ObservationError` where shape, keys or type are not as declared.
    Bounds are not checked here (the conformance suite does): a step must stay cheap.
    """
    kind = space["type"]
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        return _array_writer(space)
    if kind == "Discrete":
        return _integer_writer
    if kind == "Text":
        return _text_writer
    if kind == "Dict":
        writers = {key: observation_writer(child) for key, child in space["spaces"].items()}

        def write_dict(value: Any) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                raise ObservationError(f"expected a Dict observation, got {_shown(value)}")
            if value.keys() != writers.keys():
                missing = sorted(writers.keys() - value.keys())
                what = f"lacks {', '.join(map(repr, missing))}" if missing else "has other keys"
                raise ObservationError(f"a Dict observation {what}: expected {sorted(writers)}")
            return {key: writer(value[key]) for key, writer in writers.items()}

        return write_dict
    if kind in ("Tuple", "OneOf", "Sequence"):
        return _composite_writer(space)
    node, edge = space["node_space"], space["edge_space"]
    node_dtype, node_shape = _feature_layout(node)
    edge_dtype, edge_shape = _feature_layout(edge or {"type": "Discrete", "n": 1})

    def write_graph(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != 3:
            raise ObservationError(f"expected (nodes, edges, edge_links), got {_shown(value)}")
        nodes = np.asarray(value[0], dtype=node_dtype)
        edges = None if value[1] is None else np.asarray(value[1], dtype=edge_dtype)
        links = None if value[2] is None else np.asarray(value[2], dtype=np.int32)
        if edge is None and edges is not None:
            raise ObservationError("this Graph has no edges: edges and edge_links are None")
        if nodes.shape[1:] != node_shape or (edges is not None and edges.shape[1:] != edge_shape):
            raise ObservationError(f"nodes or edges are not of shape {node_shape}, {edge_shape}")
        if (edges is None) != (links is None) or (
            edges is not None and links is not None and links.shape != (len(edges), 2)
        ):
            raise ObservationError("edge_links must be one pair of node indices an edge")
        return [nodes, edges, links]

    return write_graph


def _feature_layout(space: Space) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if space["type"] == "Discrete":
        return np.dtype(np.int64), ()
    return array_layout(space)


def _composite_writer(space: Space) -> Convert:
    kind = space["type"]
    if kind == "Sequence":
        writer = observation_writer(space["space"])
        return lambda value: [writer(item) for item in value]
    writers = [observation_writer(child) for child in space["spaces"]]
    if kind == "OneOf":

        def write_one_of(value: Any) -> list[Any]:
            if not isinstance(value, list | tuple) or len(value) != 2:
                raise ObservationError(f"expected (branch, value), got {_shown(value)}")
            branch = _integer_writer(value[0])
            if not 0 <= branch < len(writers):
                raise ObservationError(f"branch {branch} is outside [0, {len(writers) - 1}]")
            return [branch, writers[branch](value[1])]

        return write_one_of

    def write_tuple(value: Any) -> list[Any]:
        if len(value) != len(writers):
            raise ObservationError(f"expected {len(writers)} items, got {len(value)}")
        return [writer(item) for writer, item in zip(writers, value, strict=True)]

    return write_tuple


def _integer_writer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ObservationError(f"expected an integer, got {_shown(value)}") from None
    if number != value:
        raise ObservationError(f"expected an integer, got {_shown(value)}")
    return number


def _text_writer(value: Any) -> str:
    if not isinstance(value, str):
        raise ObservationError(f"expected a str, got {_shown(value)}")
    return str(value)


def _array_writer(space: Space) -> Convert:
    dtype, shape = array_layout(space)

    def write(value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value
        given = np.asarray(value)
        if given.shape != shape or given.dtype.kind not in _NUMERIC:
            raise ObservationError(
                f"expected {describe(space)}, got shape {given.shape} of {given.dtype}"
            )
        with np.errstate(invalid="ignore", over="ignore"):
            array = given.astype(dtype)
        if dtype.kind in "biu" and not (array == given).all():
            raise ObservationError(f"expected {describe(space)}, got values it can't hold")
        return array

    return write


def observation_reader(space: Space) -> Convert | None:
    """Compile the policy-side inverse of `observation_writer`.

    Returns:
        None where the wire value already is what the policy receives (every space without
        Tuple, OneOf, Sequence or Graph inside).
    """
    kind = space["type"]
    if kind == "Dict":
        readers = {key: observation_reader(child) for key, child in space["spaces"].items()}
        if all(reader is None for reader in readers.values()):
            return None
        return lambda value: {
            key: value[key] if reader is None else reader(value[key])
            for key, reader in readers.items()
        }
    if kind in ("Tuple", "OneOf"):
        parts = [observation_reader(child) for child in space["spaces"]]
        if kind == "OneOf":
            return lambda value: (value[0], _apply(parts[value[0]], value[1]))
        return lambda value: tuple(map(_apply, parts, value))
    if kind == "Sequence":
        part = observation_reader(space["space"])
        return lambda value: tuple(_apply(part, item) for item in value)
    if kind == "Graph":
        return lambda value: Graph(*value)
    return None


def _apply(reader: Convert | None, value: Any) -> Any:
    return value if reader is None else reader(value)
