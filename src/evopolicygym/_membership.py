"""Members of plain-mapping spaces: is this one, and draw one. Used by the conformance suite."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from evopolicygym.policy import Graph
from evopolicygym.spaces import Space, describe

__all__ = ["outside", "sample_action", "shown"]


def shown(value: Any) -> str:
    """Return a value for a message, shortened."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def outside(space: Space, value: Any) -> str:
    """Return what keeps a raw observation from being a member of `space`, or an empty string."""
    kind = space["type"]
    if kind == "Text":
        return _outside_text(space, value)
    if kind in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        return _outside_array(space, value)
    if kind == "Dict":
        if not isinstance(value, Mapping) or value.keys() != space["spaces"].keys():
            got = sorted(map(str, value)) if isinstance(value, Mapping) else shown(value)
            return f"needs exactly the keys {sorted(space['spaces'])}, got {got}"
        return _first((key, child, value[key]) for key, child in space["spaces"].items())
    if kind == "Graph":
        return _outside_graph(space, value)
    if not isinstance(value, list | tuple):
        return f"needs a tuple for {describe(space)}, got {shown(value)}"
    if kind == "Sequence":
        return _first((index, space["space"], item) for index, item in enumerate(value))
    children = space["spaces"]
    if kind == "Tuple":
        if len(value) != len(children):
            return f"needs {len(children)} items, got {len(value)}"
        return _first((i, *pair) for i, pair in enumerate(zip(children, value, strict=True)))
    if len(value) != 2 or _outside_array({"type": "Discrete", "n": len(children)}, value[0]):
        return f"needs (branch, value) for {describe(space)}, got {shown(value)}"
    return _first([(int(value[0]), children[int(value[0])], value[1])])


def _first(parts: Any) -> str:
    """Return the first problem of `(key, space, value)` triples, with its key."""
    for key, space, value in parts:
        problem = outside(space, value)
        if problem:
            return f"at [{key!r}] {problem}"
    return ""


def _outside_text(space: Space, value: Any) -> str:
    if not isinstance(value, str):
        return f"needs a str, got {shown(value)}"
    if not space["min_length"] <= len(value) <= space["max_length"]:
        return f"needs {space['min_length']} to {space['max_length']} characters, got {len(value)}"
    if space["charset"] is not None and not set(space["charset"]).issuperset(value):
        return f"has characters outside its charset: {sorted(set(value) - set(space['charset']))}"
    return ""


def _bounds(space: Space) -> tuple[np.dtype[Any], tuple[int, ...], Any, Any]:
    """Return dtype, shape, low and high of a space of arrays (Discrete has shape ())."""
    kind = space["type"]
    if kind == "Box":
        dtype, shape = np.dtype(space["dtype"]), tuple(int(n) for n in space["shape"])
        # Integer bounds stay as they are, for a float64 can't hold every int64.
        low = np.asarray(space["low"], dtype if dtype.kind == "f" else None)
        high = np.asarray(space["high"], dtype if dtype.kind == "f" else None)
        return dtype, shape, np.broadcast_to(low, shape), np.broadcast_to(high, shape)
    if kind == "MultiBinary":
        shape = tuple(int(n) for n in space["shape"])
        return np.dtype(np.int8), shape, np.zeros(shape, np.int8), np.ones(shape, np.int8)
    sizes = np.asarray(space["n" if kind == "Discrete" else "nvec"], np.int64)
    low = np.broadcast_to(np.asarray(space.get("start", 0), np.int64), sizes.shape)
    return np.dtype(np.int64), sizes.shape, low, low + sizes - 1


def _outside_array(space: Space, value: Any) -> str:
    dtype, shape, low, high = _bounds(space)
    array = np.asarray(value)
    if array.shape != shape:
        return f"needs shape {shape} for {describe(space)}, got {array.shape} of {array.dtype}"
    if dtype.kind == "f":
        # Arrays must not lose precision; Python numbers have none to declare.
        typed = isinstance(value, np.ndarray | np.generic)
        fits = np.can_cast(array.dtype, dtype) if typed else array.dtype.kind in "biuf"
    else:
        fits = array.dtype.kind in "biu"  # exact, as long as it is inside the bounds
    if array.size and not fits:
        return f"needs {dtype} for {describe(space)}, got {array.dtype}"
    if array.size and array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array = array.astype(dtype)
        if np.isnan(array).any():
            return f"has NaN at index {_where(np.isnan(array))}"
    wrong = ~((array >= low) & (array <= high))
    if wrong.any():
        at = _where(wrong)
        place = f" at index {list(at)}" if at else ""
        return (
            f"needs values in [{low[at]}, {high[at]}] for {describe(space)}, got {array[at]}{place}"
        )
    return ""


def _where(wrong: Any) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(int(np.argmax(wrong)), wrong.shape)))


def _outside_graph(space: Space, value: Any) -> str:
    if not isinstance(value, tuple) or len(value) != 3:
        return f"needs (nodes, edges, edge_links), got {shown(value)}"
    nodes, edges, links = value
    if (edges is None) != (links is None):
        return "has edges without edge_links or edge_links without edges"
    parts = [(f"nodes[{i}]", space["node_space"], node) for i, node in enumerate(nodes)]
    if edges is not None:
        if space["edge_space"] is None:
            return "has edges, but its space has none"
        if np.shape(links) != (len(edges), 2):
            return f"needs edge_links of shape {(len(edges), 2)}, got {np.shape(links)}"
        if len(edges) and not 0 <= np.min(links) <= np.max(links) < len(nodes):
            return f"has edge_links outside [0, {len(nodes) - 1}]"
        parts += [(f"edges[{i}]", space["edge_space"], edge) for i, edge in enumerate(edges)]
    return _first(parts)


# ----------------------------------------------------------------------------------- actions


def sample_action(space: Space, rng: np.random.Generator) -> Any:
    """Draw one canonical member of a plain-mapping space.

    Finite bounds of a Box are uniform, with one draw in eight of an element exactly on a bound;
    unbounded sides are normal or exponential, as in Gymnasium. Text, Sequence and Graph stay
    short. Equal generators give equal actions.

    Args:
        space: Plain mapping, see `evopolicygym.spaces`.
        rng: Seeded generator.

    Returns:
        What `action_reader(space)` returns for it, too.
    """
    kind = space["type"]
    if kind == "Box":
        return _sample_box(space, rng)
    if kind == "Discrete":
        return int(space.get("start", 0)) + int(rng.integers(int(space["n"])))
    if kind in ("MultiDiscrete", "MultiBinary"):
        dtype, _, low, high = _bounds(space)
        return np.asarray(rng.integers(low, high, endpoint=True), dtype)
    if kind == "Text":
        shortest = int(space["min_length"])
        longest = min(int(space["max_length"]), shortest + 16)
        charset = "abcdefghijklmnopqrstuvwxyz" if space["charset"] is None else space["charset"]
        letters = sorted(charset)
        size = int(rng.integers(shortest, longest, endpoint=True)) if letters else 0
        return "".join(letters[int(rng.integers(len(letters)))] for _ in range(size))
    if kind == "Dict":
        return {key: sample_action(child, rng) for key, child in space["spaces"].items()}
    if kind == "Tuple":
        return tuple(sample_action(child, rng) for child in space["spaces"])
    if kind == "OneOf":
        branch = int(rng.integers(len(space["spaces"])))
        return branch, sample_action(space["spaces"][branch], rng)
    if kind == "Sequence":
        return tuple(sample_action(space["space"], rng) for _ in range(int(rng.integers(5))))
    nodes = int(rng.integers(1, 6))
    if space["edge_space"] is None:
        return Graph(_sample_stack(space["node_space"], nodes, rng), None, None)
    edges = int(rng.integers(6))
    return Graph(
        _sample_stack(space["node_space"], nodes, rng),
        _sample_stack(space["edge_space"], edges, rng),
        rng.integers(nodes, size=(edges, 2)).astype(np.int32),
    )


def _sample_box(space: Space, rng: np.random.Generator) -> Any:
    dtype, shape, low, high = _bounds(space)
    if dtype.kind != "f":
        kind = np.iinfo(dtype) if dtype.kind in "iu" else None
        least, most = (0, 1) if kind is None else (int(kind.min), int(kind.max))
        # Python integers, because bounds may be infinite floats or beyond the dtype.
        first = [least if x < least else int(x) for x in low.reshape(-1).tolist()]
        last = [most if x > most else int(x) for x in high.reshape(-1).tolist()]
        drawn = rng.integers(np.array(first, dtype), np.array(last, dtype), None, dtype, True)
        return drawn.reshape(shape)
    below, above = np.isfinite(low), np.isfinite(high)
    floor = np.where(below, low, 0.0).astype(np.float64)
    ceiling = np.where(above, high, 0.0).astype(np.float64)
    part, tail, edge = rng.random(shape), rng.exponential(size=shape), rng.random(shape)
    inside = floor * (1.0 - part) + ceiling * part
    one_sided = np.where(
        below, floor + tail, np.where(above, ceiling - tail, rng.normal(0, 1, shape))
    )
    values = np.where(below & above, inside, one_sided)
    values = np.where(below & (edge < 1 / 16), floor, values)
    values = np.where(above & (edge >= 15 / 16), ceiling, values)
    with np.errstate(over="ignore"):
        cast = values.astype(dtype)
    return np.asarray(np.clip(cast, low, high), dtype)  # rounding may have left the bounds


def _sample_stack(space: Space, count: int, rng: np.random.Generator) -> Any:
    dtype, shape, _, _ = _bounds(space)
    items = [sample_action(space, rng) for _ in range(count)]
    return np.asarray(items, dtype).reshape(count, *shape)
