"""Episode selectors: `"0:2,4:8"` means 0, 1, 4, 5, 6, 7."""

from __future__ import annotations

import re
from collections.abc import Sequence

from evopolicygym.errors import SelectorError

__all__ = ["format_selector", "parse_selector"]

_ITEM = re.compile(r"(0|[1-9][0-9]{0,17})(?::(0|[1-9][0-9]{0,17}))?", re.ASCII)


def parse_selector(text: str, *, pool_size: int) -> tuple[int, ...]:
    """Expand a selector.

    Args:
        text: Half-open ranges `a:b` and single indices, separated by commas, without spaces.
        pool_size: Number of Episodes in the pool; every index is below it.

    Returns:
        Strictly increasing indices, at least one.

    Raises:
        SelectorError: Malformed, empty, repeated, overlapping, out of order or out of the pool.
    """
    if not text:
        raise SelectorError('the selector is empty: expected e.g. "0:4" or "0,2,5:8"')
    indices: list[int] = []
    last = -1
    for item in text.split(","):
        shown = repr(item if len(item) <= 40 else item[:40] + "…")
        match = _ITEM.fullmatch(item)
        if match is None:
            raise SelectorError(
                f"{shown} in selector {text[:80]!r} is neither an index nor a range: "
                'expected e.g. "0:4" or "0,2,5:8", without spaces'
            )
        first = int(match[1])
        stop = first + 1 if match[2] is None else int(match[2])
        if stop <= first:
            raise SelectorError(f"range {shown} is empty: ranges are half-open, first < stop")
        if first <= last:
            raise SelectorError(
                f"{shown} begins at {first}, after index {last}: indices must strictly increase"
            )
        if stop > pool_size:
            raise SelectorError(
                f"{shown} reaches index {stop - 1}: the pool has the indices 0 to {pool_size - 1}"
            )
        indices.extend(range(first, stop))
        last = stop - 1
    return tuple(indices)


def format_selector(indices: Sequence[int]) -> str:
    """Return the shortest selector of strictly increasing indices."""
    items: list[str] = []
    start = 0
    for position in range(1, len(indices) + 1):
        if position == len(indices) or indices[position] != indices[position - 1] + 1:
            first, last = indices[start], indices[position - 1]
            items.append(str(first) if first == last else f"{first}:{last + 1}")
            start = position
    return ",".join(items)
