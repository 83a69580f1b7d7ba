"""Between Gymnasium's space objects and plain-mapping spaces, and between their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium.spaces as gs
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from evopolicygym.errors import BenchmarkError

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))

__all__ = ["action_converter", "observation_converter", "space_mapping"]


def space_mapping(space: gs.Space[Any]) -> dict[str, Any]:
    """Return the plain mapping of a Gymnasium space.

    Raises:
        BenchmarkError: A space type that has no plain mapping.
    """
    if isinstance(space, gs.Box):
        return {
            "type": "Box",
            "dtype": str(space.dtype),
            "shape": list(space.shape),
            "low": _bound(space.low),
            "high": _bound(space.high),
        }
    if isinstance(space, gs.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gs.MultiDiscrete):
        start = np.asarray(space.start).tolist()
        return {"type": "MultiDiscrete", "nvec": np.asarray(space.nvec).tolist(), "start": start}
    if isinstance(space, gs.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, gs.Text):
        return {
            "type": "Text",
            "min_length": space.min_length,
            "max_length": space.max_length,
            "charset": "".join(sorted(space.character_set)),
        }
    if isinstance(space, gs.Dict):
        return {"type": "Dict", "spaces": {str(k): space_mapping(v) for k, v in space.items()}}
    if isinstance(space, gs.Tuple | gs.OneOf):
        return {"type": type(space).__name__, "spaces": [space_mapping(s) for s in space.spaces]}
    if isinstance(space, gs.Sequence):
        return {"type": "Sequence", "space": space_mapping(space.feature_space)}
    if isinstance(space, gs.Graph):
        edge = None if space.edge_space is None else space_mapping(space.edge_space)
        return {"type": "Graph", "node_space": space_mapping(space.node_space), "edge_space": edge}
    # MiniGrid's and, derived from it, BabyAI's: sentences, without a length of theirs.
    if any(base.__name__ == "MissionSpace" for base in type(space).__mro__):
        return {"type": "Text", "min_length": 0, "max_length": 1024, "charset": _PRINTABLE}
    raise BenchmarkError(f"a space of type {type(space).__name__} is not supported")


def _bound(values: Any) -> Any:
    """Full list for small shapes; one number where all are equal and the list would be long."""
    if not values.size:
        return 0
    if (values == values.flat[0]).all():
        return values.flat[0].item()
    return values.tolist()


def action_converter(space: gs.Space[Any]) -> Callable[[Any], Any] | None:
    """Compile the function from canonical actions to what the environment expects.

    Returns:
        None where they are the same.
    """
    return _converter(space, _to_gymnasium)


def observation_converter(space: gs.Space[Any]) -> Callable[[Any], Any] | None:
    """Compile the function from the environment's observations to canonical ones."""
    return _converter(space, _from_gymnasium)


def _converter(
    space: gs.Space[Any], leaf: Callable[[gs.Space[Any]], Callable[[Any], Any] | None]
) -> Callable[[Any], Any] | None:
    """Apply `leaf` converters wherever they are needed inside nested spaces."""
    own = leaf(space)
    if own is not None:
        return own
    if isinstance(space, gs.Dict):
        parts = {str(key): _converter(child, leaf) for key, child in space.items()}
        if all(part is None for part in parts.values()):
            return None
        return lambda value: {key: _apply(parts[key], item) for key, item in value.items()}
    if isinstance(space, gs.Tuple):
        items = [_converter(child, leaf) for child in space.spaces]
        if all(item is None for item in items):
            return None
        return lambda value: tuple(map(_apply, items, value))
    if isinstance(space, gs.OneOf):
        branches = [_converter(child, leaf) for child in space.spaces]
        return lambda value: (np.int64(value[0]), _apply(branches[int(value[0])], value[1]))
    return None


def _apply(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _to_gymnasium(space: gs.Space[Any]) -> Callable[[Any], Any] | None:
    if isinstance(space, gs.MultiDiscrete) and space.dtype != np.int64:
        dtype = space.dtype
        return lambda value: value.astype(dtype)
    if isinstance(space, gs.Graph):
        return lambda value: gs.GraphInstance(*value)
    if isinstance(space, gs.Sequence):
        item = _converter(space.feature_space, _to_gymnasium)
        if not space.stack:
            return lambda value: tuple(_apply(item, v) for v in value)
        feature = space.feature_space

        def stack(value: Any) -> Any:
            items = [_apply(item, v) for v in value]
            batch: Any = create_empty_array(feature, len(items))
            return concatenate(feature, items, batch)

        return stack
    return None


def _from_gymnasium(space: gs.Space[Any]) -> Callable[[Any], Any] | None:
    if isinstance(space, gs.Sequence):
        item = _converter(space.feature_space, _from_gymnasium)
        if not space.stack:
            return lambda value: tuple(_apply(item, v) for v in value)
        batched = space.stacked_feature_space
        return lambda value: tuple(_apply(item, v) for v in iterate(batched, value))
    return None
