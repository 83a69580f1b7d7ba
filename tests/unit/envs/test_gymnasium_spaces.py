from __future__ import annotations

import json
from typing import Any

import gymnasium.spaces as gs
import numpy as np
import pytest

from evopolicygym.envs.gymnasium_spaces import (
    action_converter,
    observation_converter,
    space_mapping,
)
from evopolicygym.errors import BenchmarkError
from evopolicygym.execution.wire import Decoder, Encoder
from evopolicygym.spaces import (
    action_reader,
    observation_reader,
    observation_writer,
    validate_space,
)

SMALL = gs.Box(-1, 1, (3,))
SPACES: dict[str, gs.Space[Any]] = {
    "Box float32": SMALL,
    "Box float64": gs.Box(-1.5, 2.5, (2, 2), np.float64),
    "Box float16": gs.Box(-1, 1, (2,), np.float16),
    "Box without dimensions": gs.Box(0, 1, ()),
    "Box without items": gs.Box(0, 1, (0,)),
    "Box without rows": gs.Box(0, 1, (0, 3)),
    "Box unbounded": gs.Box(-np.inf, np.inf, (4,)),
    "Box half-bounded": gs.Box(np.array([0, -np.inf]), np.array([np.inf, 0]), dtype=np.float64),
    "Box with a bound an item": gs.Box(np.array([0, 5], "f4"), np.array([0.1, 6], "f4")),
    "Box image": gs.Box(0, 255, (8, 9, 3), np.uint8),
    "Box int8": gs.Box(-128, 127, (3,), np.int8),
    "Box int64": gs.Box(-5, 10**12, (3,), np.int64),
    "Box of all int64": gs.Box(-(2**63), 2**63 - 2, (3,), np.int64),
    "Discrete": gs.Discrete(5),
    "Discrete with start": gs.Discrete(3, start=-1),
    "Discrete int32": gs.Discrete(3, dtype=np.int32),
    "MultiDiscrete": gs.MultiDiscrete([3, 4]),
    "MultiDiscrete 2-D": gs.MultiDiscrete([[2, 3], [4, 5]]),
    "MultiDiscrete with start": gs.MultiDiscrete([[2, 3], [4, 5]], start=[[0, -1], [10, 0]]),
    "MultiDiscrete int32": gs.MultiDiscrete([3, 4], dtype=np.int32),
    "MultiBinary": gs.MultiBinary(5),
    "MultiBinary 2-D": gs.MultiBinary([2, 3]),
    "Text": gs.Text(6),
    "Text with a charset": gs.Text(5, min_length=2, charset="äb€𝄞"),
    "Text that may be empty": gs.Text(2, min_length=0),
    "Dict": gs.Dict({"b": gs.Discrete(3), "a": SMALL}),
    "Dict nested": gs.Dict({"x": gs.Dict({"y": gs.Dict({"z": gs.MultiBinary(2)})})}),
    "Dict empty": gs.Dict({}),
    "Tuple": gs.Tuple([gs.Discrete(3), SMALL, gs.Text(3)]),
    "Tuple nested": gs.Tuple([gs.Tuple([gs.Tuple([gs.Discrete(2)])]), gs.Dict({"a": SMALL})]),
    "Tuple empty": gs.Tuple([]),
    "OneOf": gs.OneOf([gs.Discrete(3), SMALL, gs.Text(3)]),
    "OneOf nested": gs.OneOf([gs.OneOf([gs.Discrete(2), SMALL]), gs.Tuple([gs.Discrete(3)])]),
    "Sequence of Box": gs.Sequence(SMALL),
    "Sequence of Discrete": gs.Sequence(gs.Discrete(4, start=1)),
    "Sequence of Text": gs.Sequence(gs.Text(3)),
    "Sequence of Sequence": gs.Sequence(gs.Sequence(gs.Discrete(3))),
    "Sequence of Dict": gs.Sequence(gs.Dict({"a": gs.Discrete(2), "b": SMALL})),
    "Sequence stacked, of Box": gs.Sequence(SMALL, stack=True),
    "Sequence stacked, of Discrete": gs.Sequence(gs.Discrete(4), stack=True),
    "Sequence stacked, of MultiBinary": gs.Sequence(gs.MultiBinary(2), stack=True),
    "Sequence stacked, of Dict": gs.Sequence(
        gs.Dict({"a": gs.Discrete(2), "b": SMALL}), stack=True
    ),
    "Sequence stacked, of Tuple": gs.Sequence(gs.Tuple([gs.Discrete(2), SMALL]), stack=True),
    "Graph": gs.Graph(gs.Box(-1, 1, (2,)), gs.Discrete(4)),
    "Graph of Discrete": gs.Graph(gs.Discrete(5), gs.Box(0, 1, (1, 2), np.float64)),
    "Graph without edges": gs.Graph(gs.Box(0, 255, (3,), np.uint8), None),
    "everything": gs.Dict(
        {
            "graphs": gs.Tuple([gs.Graph(SMALL, gs.Discrete(2)), gs.Discrete(2)]),
            "either": gs.OneOf([gs.Sequence(gs.Tuple([gs.Discrete(3), SMALL])), gs.Text(4)]),
            "grid": gs.MultiDiscrete([2, 3], start=[1, -1]),
            "stack": gs.Sequence(SMALL, stack=True),
        }
    ),
}


def same(first: Any, second: Any) -> bool:
    """Equal values in equal containers; integers may be of any type."""
    if isinstance(first, np.ndarray) and first.shape != ():
        return (
            isinstance(second, np.ndarray)
            and first.shape == second.shape
            and first.dtype.kind == second.dtype.kind
            and np.array_equal(first, second)
        )
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, tuple):
        return (
            type(first) is type(second)
            and len(first) == len(second)
            and all(map(same, first, second))
        )
    return bool(first == second)


def convert(converter: Any, value: Any) -> Any:
    return value if converter is None else converter(value)


def samples(space: gs.Space[Any], count: int = 25) -> list[Any]:
    space.seed(12345)
    return [space.sample() for _ in range(count)]


@pytest.mark.parametrize("name", SPACES)
def test_samples_travel_to_the_policy_and_back(name: str) -> None:
    space = SPACES[name]
    mapping = json.loads(json.dumps(space_mapping(space)))  # as the record and the wire carry it
    validate_space(mapping)
    observe = observation_converter(space)
    write, restore = observation_writer(mapping), observation_reader(mapping)
    read, act = action_reader(mapping), action_converter(space)
    to_policy, from_policy = Encoder(), Encoder()
    for sample in samples(space):
        sent = to_policy.encode(write(convert(observe, sample)))
        seen = convert(restore, Decoder().decode(sent))
        action = read(seen)
        assert same(action, read(Decoder().decode(from_policy.encode(seen))))
        found = convert(act, action)
        assert space.contains(found), f"{found!r} is not in {space}"
        assert same(sample, found), f"{found!r}, sampled {sample!r}"


@pytest.mark.parametrize("name", SPACES)
def test_samples_are_not_changed_on_the_way(name: str) -> None:
    space = SPACES[name]
    mapping = space_mapping(space)
    observe, act = observation_converter(space), action_converter(space)
    for sample, twin in zip(samples(space, 5), samples(space, 5), strict=True):
        canonical = convert(observe, sample)
        observation_writer(mapping)(canonical)
        convert(act, action_reader(mapping)(canonical))
        assert same(sample, twin)


# ------------------------------------------------------------------------- mappings


@pytest.mark.parametrize(
    ("space", "mapping"),
    [
        (
            gs.Box(-1, 1, (2,)),
            {"type": "Box", "dtype": "float32", "shape": [2], "low": -1.0, "high": 1.0},
        ),
        (
            gs.Box(np.array([0, 1], "f4"), np.array([2, 2], "f4")),
            {"type": "Box", "dtype": "float32", "shape": [2], "low": [0.0, 1.0], "high": 2.0},
        ),
        (
            gs.Box(-np.inf, np.inf, (), np.float64),
            {"type": "Box", "dtype": "float64", "shape": [], "low": -np.inf, "high": np.inf},
        ),
        (
            gs.Box(0, 255, (2, 2, 3), np.uint8),
            {"type": "Box", "dtype": "uint8", "shape": [2, 2, 3], "low": 0, "high": 255},
        ),
        (gs.Discrete(3, start=-1), {"type": "Discrete", "n": 3, "start": -1}),
        (
            gs.MultiDiscrete([[2, 3]], start=[[0, 5]]),
            {"type": "MultiDiscrete", "nvec": [[2, 3]], "start": [[0, 5]]},
        ),
        (gs.MultiBinary(3), {"type": "MultiBinary", "shape": [3]}),
        (gs.MultiBinary([2, 3]), {"type": "MultiBinary", "shape": [2, 3]}),
        (
            gs.Text(4, min_length=2, charset="cab"),
            {"type": "Text", "min_length": 2, "max_length": 4, "charset": "abc"},
        ),
        (
            gs.Dict({"b": gs.Discrete(2), "a": gs.MultiBinary(1)}),
            {
                "type": "Dict",
                "spaces": {
                    "a": {"type": "MultiBinary", "shape": [1]},
                    "b": {"type": "Discrete", "n": 2, "start": 0},
                },
            },
        ),
        (
            gs.Tuple([gs.Discrete(2)]),
            {"type": "Tuple", "spaces": [{"type": "Discrete", "n": 2, "start": 0}]},
        ),
        (
            gs.OneOf([gs.Discrete(2)]),
            {"type": "OneOf", "spaces": [{"type": "Discrete", "n": 2, "start": 0}]},
        ),
        (
            gs.Sequence(gs.Discrete(2)),
            {"type": "Sequence", "space": {"type": "Discrete", "n": 2, "start": 0}},
        ),
        (
            gs.Graph(gs.Discrete(2), None),
            {
                "type": "Graph",
                "node_space": {"type": "Discrete", "n": 2, "start": 0},
                "edge_space": None,
            },
        ),
        (
            gs.Graph(gs.Discrete(2), gs.Discrete(3)),
            {
                "type": "Graph",
                "node_space": {"type": "Discrete", "n": 2, "start": 0},
                "edge_space": {"type": "Discrete", "n": 3, "start": 0},
            },
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_mappings(space: gs.Space[Any], mapping: dict[str, Any]) -> None:
    found = space_mapping(space)
    assert found == mapping
    assert json.dumps(found) == json.dumps(mapping)  # plain numbers of the same kind and order


def test_mappings_do_not_depend_on_the_hash_seed() -> None:
    charset = "".join(chr(code) for code in range(100, 400))
    assert space_mapping(gs.Text(3, charset=charset))["charset"] == charset


@pytest.mark.parametrize(
    "wrap", [lambda s: s, lambda s: gs.Dict({"a": s}), lambda s: gs.Tuple([gs.Discrete(2), s])]
)
def test_unknown_space_types_are_refused(wrap: Any) -> None:
    class Ball(gs.Space[float]):
        pass

    with pytest.raises(BenchmarkError, match="a space of type Ball is not supported"):
        space_mapping(wrap(Ball()))


# ----------------------------------------------------------------------- converters


@pytest.mark.parametrize(
    "name",
    ["Box float32", "Discrete", "MultiDiscrete", "MultiBinary", "Text", "Dict", "Tuple"],
)
def test_the_common_spaces_need_no_conversion(name: str) -> None:
    assert action_converter(SPACES[name]) is None
    assert observation_converter(SPACES[name]) is None


def test_what_environments_expect() -> None:
    graph = action_converter(SPACES["Graph"])
    assert graph is not None
    assert type(graph((np.zeros((1, 2)), None, None))) is gs.GraphInstance
    stacked = action_converter(SPACES["Sequence stacked, of Box"])
    assert stacked is not None
    found = stacked((np.zeros(3, np.float32), np.ones(3, np.float32)))
    assert (found.shape, found.dtype) == ((2, 3), np.float32)
    either = action_converter(SPACES["OneOf"])
    assert either is not None
    branch, value = either((1, np.zeros(3)))
    assert type(branch) is np.int64
    assert (int(branch), value.shape) == (1, (3,))


def test_stacked_observations_become_tuples() -> None:
    convert_stack = observation_converter(SPACES["Sequence stacked, of Box"])
    assert convert_stack is not None
    found = convert_stack(np.array([[0, 0, 0], [1, 1, 1]], np.float32))
    assert isinstance(found, tuple)
    assert [item.tolist() for item in found] == [[0, 0, 0], [1, 1, 1]]
