"""Observations: from the environment to the wire, and from the wire to the policy."""

from __future__ import annotations

from collections.abc import Mapping
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

__all__ = ["ObservationError", "observation_reader", "observation_writer"]


class ObservationError(ValueError):
    """An environment returned an observation outside what its space declares."""


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
                raise ObservationError(f"expected a Dict observation, got {shown(value)}")
            if value.keys() != writers.keys():
                missing = sorted(writers.keys() - value.keys())
                what = f"lacks {', '.join(map(repr, missing))}" if missing else "has other keys"
                raise ObservationError(f"a Dict observation {what}: expected {sorted(writers)}")
            return {key: writer(value[key]) for key, writer in writers.items()}

        return write_dict
    if kind in ("Tuple", "OneOf", "Sequence"):
        return _composite_writer(space)
    node, edge = space["node_space"], space["edge_space"]
    node_dtype, node_shape = feature_layout(node)
    edge_dtype, edge_shape = feature_layout(edge or {"type": "Discrete", "n": 1})

    def write_graph(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != 3:
            raise ObservationError(f"expected (nodes, edges, edge_links), got {shown(value)}")
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


def _composite_writer(space: Space) -> Convert:
    kind = space["type"]
    if kind == "Sequence":
        writer = observation_writer(space["space"])
        return lambda value: [writer(item) for item in value]
    writers = [observation_writer(child) for child in space["spaces"]]
    if kind == "OneOf":

        def write_one_of(value: Any) -> list[Any]:
            if not isinstance(value, list | tuple) or len(value) != 2:
                raise ObservationError(f"expected (branch, value), got {shown(value)}")
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
        raise ObservationError(f"expected an integer, got {shown(value)}") from None
    if number != value:
        raise ObservationError(f"expected an integer, got {shown(value)}")
    return number


def _text_writer(value: Any) -> str:
    if not isinstance(value, str):
        raise ObservationError(f"expected a str, got {shown(value)}")
    return str(value)


def _array_writer(space: Space) -> Convert:
    dtype, shape = array_layout(space)

    def write(value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            return value
        given = np.asarray(value)
        if given.shape != shape or given.dtype.kind not in NUMERIC:
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
