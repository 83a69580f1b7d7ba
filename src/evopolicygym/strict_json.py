"""Strict JSON: what every record, Feedback and trajectory is written with.

JSON has no NaN and no infinities. Wherever a value may be one, it is written as the string
`"NaN"`, `"Infinity"` or `"-Infinity"`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

__all__ = ["dumps", "finite", "json_key", "json_safe", "loads", "pretty"]

_MAX_ITEMS = 256
_MAX_TEXT = 2_000
_MAX_DEPTH = 6

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def dumps(value: Any) -> bytes:
    """Encode plain values on one line; non-finite floats become strings."""
    return _encode(finite(value))


def loads(data: bytes) -> Any:
    """Decode JSON.

    Raises:
        ValueError: It is not JSON, or nested beyond what Python can hold.
    """
    try:
        return _decode(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def pretty(value: Any) -> bytes:
    """Encode plain values, indented, with a final newline."""
    return msgspec.json.format(dumps(value), indent=2) + b"\n"


def finite(value: Any) -> Any:
    """Return `value` with non-finite floats replaced by their names."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def json_safe(value: Any, depth: int = 0) -> Any:
    """Turn any value an environment may put into `info` into bounded, strict JSON.

    Arrays become lists, unknown objects their type's name; long text, long lists and deep nesting
    are cut and say so.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**63 else _long_integer(value)
    if isinstance(value, float | np.floating):
        return finite(float(value))
    if isinstance(value, str):
        text = _bounded(value)
        return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"
    if isinstance(value, np.bool_ | np.integer):
        return json_safe(value.item(), depth)
    if isinstance(value, np.generic):
        return type(value.item()).__name__
    if depth >= _MAX_DEPTH:
        return "…"
    if isinstance(value, np.ndarray):
        if value.size > _MAX_ITEMS or value.dtype.kind not in "biufU":
            return f"array{list(value.shape)} {value.dtype}"
        return json_safe(value.tolist(), depth)
    if isinstance(value, Mapping):
        items = list(value.items())[:_MAX_ITEMS]
        return {json_key(key): json_safe(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
        cut = [json_safe(item, depth + 1) for item in items[:_MAX_ITEMS]]
        return [*cut, "…"] if len(items) > _MAX_ITEMS else cut
    return type(value).__name__


def json_key(value: Any) -> str:
    """Return a mapping's key as bounded, well-formed text."""
    if isinstance(value, str):
        return _bounded(value)[:_MAX_TEXT]
    if isinstance(value, int | np.integer | np.floating | float):
        return str(json_safe(value))
    try:
        return _bounded(str(value))[:_MAX_TEXT]
    except Exception:
        return type(value).__name__


def _bounded(text: str) -> str:
    """Return well-formed text; a lone surrogate is none."""
    return str(text)[: _MAX_TEXT + 1].encode("utf-8", "backslashreplace").decode()


def _long_integer(value: int) -> str:
    """Beyond 64 bits JSON readers disagree about numbers: write text, of bounded length."""
    if value.bit_length() > 4 * _MAX_TEXT:  # Python refuses to print very long integers
        return f"an integer of {value.bit_length()} bits"
    return str(value) if value.bit_length() < 3 * _MAX_TEXT else hex(value)
