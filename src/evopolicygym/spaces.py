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

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from evopolicygym.policy import Graph

__all__ = [
    "InvalidActionError",
    "ObservationError",
    "Space",
    "action_reader",
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
    kind = space.get("type") if isinstance(space, Mapping) else None
    fields = _FIELDS.get(kind or "")
    if fields is None:
        raise ValueError(f"{path}.type is {kind!r}; known types are {', '.join(sorted(_FIELDS))}")
    missing = [name for name in fields if name not in space]
    if missing:
        raise ValueError(f"{path} ({kind}) lacks {', '.join(missing)}")
    if kind == "Box":
        _validate_box(space, path)
    elif kind in ("Discrete", "MultiDiscrete"):
        name = "n" if kind == "Discrete" else "nvec"
        counts = np.asarray(space[name])
        if counts.dtype.kind not in "iu" or not counts.size or counts.min() < 1:
            raise ValueError(f"{path}.{name} is {space[name]!r}, expected integers >= 1")
    elif kind == "Dict":
        for key, child in space["spaces"].items():
            validate_space(child, f"{path}.spaces.{key}")
    elif kind in ("Tuple", "OneOf"):
        for index, child in enumerate(space["spaces"]):
            validate_space(child, f"{path}.spaces[{index}]")
    elif kind == "Sequence":
        validate_space(space["space"], f"{path}.space")
    elif kind == "Graph":
        validate_space(space["node_space"], f"{path}.node_space")
        if space["edge_space"] is not None:
            validate_space(space["edge_space"], f"{path}.edge_space")


def _validate_box(space: Space, path: str) -> None:
    shape = tuple(space["shape"])
    try:
        known = np.dtype(space["dtype"]).kind in _NUMERIC
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"{path}.dtype is {space['dtype']!r}, expected a real numpy dtype")
    low, high = (np.asarray(space[side], dtype=np.float64) for side in ("low", "high"))
    for side, bound in (("low", low), ("high", high)):
        if bound.shape not in ((), shape):
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
    if kind == "Box":
        count = int(np.prod(space["shape"], dtype=np.int64))
        return count * np.dtype(space["dtype"]).itemsize
    if kind == "MultiDiscrete":
        return 8 * int(np.size(space["nvec"]))
    if kind == "MultiBinary":
        return int(np.prod(space["shape"], dtype=np.int64))
    if kind == "Dict":
        return sum(space_nbytes(child) for child in space["spaces"].values())
    if kind == "Tuple":
        return sum(space_nbytes(child) for child in space["spaces"])
    if kind == "OneOf":
        return max(space_nbytes(child) for child in space["spaces"])
    return 0


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
    text = repr(value)
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
    dtype = np.dtype(space["dtype"])
    shape = tuple(int(n) for n in space["shape"])
    bounds_dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    low = np.broadcast_to(np.asarray(space["low"], dtype=bounds_dtype), shape)
    high = np.broadcast_to(np.asarray(space["high"], dtype=bounds_dtype), shape)
    integer = dtype.kind in "biu"
    bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
    # For a handful of numbers with common finite bounds, Python's comparisons are the fastest.
    few = bounded and not integer and len(shape) == 1 and 0 < shape[0] <= 32
    few = few and bool((low == low[0]).all() and (high == high[0]).all())
    lowest, highest = (float(low[0]), float(high[0])) if few else (0.0, 0.0)

    def read_few(value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            items = value.tolist()
            # The sum is NaN if any item is; minimum and maximum alone can miss one.
            if min(items) >= lowest and max(items) <= highest and sum(items) == sum(items):
                return value.copy()
        return read(value)

    def read(value: Any) -> Any:
        array = value if type(value) is np.ndarray else _numeric_array(value, space)
        if array.dtype.kind not in _NUMERIC:
            array = _numeric_array(array, space)
        if array.shape != shape:
            _check_shape(array, shape, space)
        if integer:
            if array.size and array.dtype.kind == "f":
                raise InvalidActionError(f"{describe(space)} needs integers, got {array.dtype}")
            cast = array
        elif array.dtype == dtype:
            cast = array
        else:
            with np.errstate(over="ignore"):
                cast = array.astype(dtype)
        # NaN fails both comparisons; infinities pass an unbounded side and need the second test.
        if not ((cast >= low) & (cast <= high)).all() or not (bounded or np.isfinite(cast).all()):
            _explain_box(array, cast, low, high, space)
        return cast.astype(dtype)

    return read_few if few else read


def _explain_box(array: Any, cast: Any, low: Any, high: Any, space: Space) -> None:
    flat = cast.reshape(-1).astype(np.float64)
    finite = np.isfinite(flat)
    bad = ~(finite & (flat >= low.reshape(-1)) & (flat <= high.reshape(-1)))
    first = int(np.flatnonzero(bad)[0])
    value = array.reshape(-1)[first]
    where = list(map(int, np.unravel_index(first, cast.shape))) if cast.shape else []
    at = f" at index {where}" if where else ""
    if not finite[first]:
        raise InvalidActionError(f"{describe(space)} needs finite numbers, got {value}{at}")
    raise InvalidActionError(
        f"{describe(space)} needs values in [{low.reshape(-1)[first]}, "
        f"{high.reshape(-1)[first]}], got {value}{at}"
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
            f"{describe(space)} needs an integer in [{first}, {stop - 1}], got {number}"
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
                f"OneOf needs a branch in [0, {len(readers) - 1}], got {branch}"
            )
        return branch, _within(readers[branch], items[1], branch)

    return read


def _graph_action(space: Space) -> Convert:
    node, edge = space["node_space"], space["edge_space"]
    nodes_of = _stack_reader(node)
    edges_of = None if edge is None else _stack_reader(edge)

    def read(value: Any) -> Graph:
        if isinstance(value, Mapping):
            value = (value.get("nodes"), value.get("edges"), value.get("edge_links"))
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
    if space["type"] == "Discrete":
        shape: tuple[int, ...] = ()
        dtype: np.dtype[Any] = np.dtype(np.int64)
    else:
        shape, dtype = tuple(space["shape"]), np.dtype(space["dtype"])

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
            try:
                return {key: writer(value[key]) for key, writer in writers.items()}
            except (KeyError, TypeError, IndexError) as error:
                raise ObservationError(f"a Dict observation lacks {error}") from None

        return write_dict
    if kind in ("Tuple", "OneOf", "Sequence"):
        return _composite_writer(space)
    node = space["node_space"]
    edge = space["edge_space"]
    node_dtype = np.dtype(node.get("dtype", "int64"))
    edge_dtype = np.dtype("int64" if edge is None else edge.get("dtype", "int64"))

    def write_graph(value: Any) -> list[Any]:
        nodes, edges, links = value
        return [
            np.asarray(nodes, dtype=node_dtype),
            None if edges is None else np.asarray(edges, dtype=edge_dtype),
            None if links is None else np.asarray(links, dtype=np.int32),
        ]

    return write_graph


def _composite_writer(space: Space) -> Convert:
    kind = space["type"]
    if kind == "Sequence":
        writer = observation_writer(space["space"])
        return lambda value: [writer(item) for item in value]
    writers = [observation_writer(child) for child in space["spaces"]]
    if kind == "OneOf":
        return lambda value: [int(value[0]), writers[int(value[0])](value[1])]

    def write_tuple(value: Any) -> list[Any]:
        if len(value) != len(writers):
            raise ObservationError(f"expected {len(writers)} items, got {len(value)}")
        return [writer(item) for writer, item in zip(writers, value, strict=True)]

    return write_tuple


def _integer_writer(value: Any) -> int:
    number = int(value)
    if number != value:
        raise ObservationError(f"expected an integer, got {_shown(value)}")
    return number


def _text_writer(value: Any) -> str:
    if not isinstance(value, str):
        raise ObservationError(f"expected a str, got {_shown(value)}")
    return str(value)


def _array_writer(space: Space) -> Convert:
    dtype: np.dtype[Any]
    if space["type"] == "Box":
        dtype, shape = np.dtype(space["dtype"]), tuple(int(n) for n in space["shape"])
    elif space["type"] == "MultiDiscrete":
        dtype, shape = np.dtype(np.int64), np.shape(space["nvec"])
    else:
        dtype, shape = np.dtype(np.int8), tuple(int(n) for n in space["shape"])

    def write(value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value
        given = np.asarray(value)
        if given.shape != shape or given.dtype.kind not in _NUMERIC:
            raise ObservationError(
                f"expected {describe(space)}, got shape {given.shape} of {given.dtype}"
            )
        array = given.astype(dtype)
        if dtype.kind in "iu" and not (array == given).all():
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
