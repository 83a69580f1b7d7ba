"""What a plain-mapping space says: its name, its validity, the layout of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "NUMERIC",
    "Convert",
    "Space",
    "action_bytes_limit",
    "array_layout",
    "describe",
    "feature_layout",
    "shown",
    "space_nbytes",
    "validate_space",
]

Space: TypeAlias = Mapping[str, Any]
Convert: TypeAlias = Callable[[Any], Any]

NUMERIC = "biuf"
"""Kinds of the real numpy dtypes: bool, signed, unsigned, float."""


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
        known = np.dtype(space["dtype"]).kind in NUMERIC
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


def feature_layout(space: Space) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return dtype and shape of one node's or edge's features in a Graph."""
    if space["type"] == "Discrete":
        return np.dtype(np.int64), ()
    return array_layout(space)


def shown(value: Any) -> str:
    """Return a value for a message, shortened."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # thousands of digits, thousands of levels
        text = "a value that can't be printed"
    return f"{text[:80]}{'…' if len(text) > 80 else ''} ({type(value).__name__})"
