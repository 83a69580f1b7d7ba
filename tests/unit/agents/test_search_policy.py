from __future__ import annotations

import importlib.util
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evopolicygym.agents import search_policy
from evopolicygym.agents.search_policy import (
    BIAS,
    MAX_FEATURES,
    MAX_TABLE,
    compute,
    flatten,
    output_size,
    parameter_count,
    state,
    table_size,
    to_action,
)
from evopolicygym.policy import PolicyContext
from evopolicygym.spaces import action_reader, validate_space

shapes = st.lists(st.integers(0, 3), max_size=3)
moderate = st.floats(-100, 100, width=16)


def discrete(n: int, start: int = 0) -> dict[str, Any]:
    return {"type": "Discrete", "n": n, "start": start}


@st.composite
def boxes(
    draw: st.DrawFn, dtypes: list[str], bounds: st.SearchStrategy[Any], *, unbounded: bool = False
) -> dict[str, Any]:
    """Boxes with one bound for all items or a bound an item; either side may be open."""

    def pair() -> list[Any]:
        low, high = sorted([draw(bounds), draw(bounds)])
        if unbounded:
            low = -math.inf if draw(st.booleans()) else low
            high = math.inf if draw(st.booleans()) else high
        return [low, high]

    shape = draw(shapes)
    size = math.prod(shape)
    if draw(st.booleans()) or not size:
        low, high = pair()
    else:
        pairs = [pair() for _ in range(size)]
        low, high = (
            np.array([both[side] for both in pairs]).reshape(shape).tolist() for side in (0, 1)
        )
    return {
        "type": "Box",
        "dtype": draw(st.sampled_from(dtypes)),
        "shape": shape,
        "low": low,
        "high": high,
    }


@st.composite
def grids(draw: st.DrawFn) -> dict[str, Any]:
    """MultiDiscrete of one or two dimensions, with and without start."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    count = math.prod(shape)
    nvec = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    space = {"type": "MultiDiscrete", "nvec": np.reshape(nvec, shape).tolist()}
    if draw(st.booleans()):
        start = draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count))
        space["start"] = np.reshape(start, shape).tolist()
    return space


KINDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "Discrete": st.builds(discrete, st.integers(1, 30), st.integers(-9, 9)),
    "Discrete without start": st.builds(lambda n: {"type": "Discrete", "n": n}, st.integers(1, 9)),
    "MultiDiscrete": grids(),
    "MultiBinary": st.builds(lambda shape: {"type": "MultiBinary", "shape": shape}, shapes),
    "Text": st.builds(
        lambda least, more, charset: {
            "type": "Text",
            "min_length": least,
            "max_length": least + more,
            "charset": charset,
        },
        st.integers(0, 4),
        st.integers(0, 4),
        st.none() | st.text(min_size=1, max_size=4),
    ),
    "Box": boxes(["float32", "float64"], moderate),
    "Box of float16": boxes(["float16"], moderate),
    "Box of integers": boxes(["int16", "int32", "int64"], st.integers(-1000, 1000)),
    "Box of bytes": boxes(["uint8"], st.integers(0, 255)),
    "Box without bounds": boxes(["float32", "float64"], moderate, unbounded=True),
    "Box of float16 without bounds": boxes(["float16"], moderate, unbounded=True),
    "Box far from zero": boxes(["float32", "float64"], st.floats(-(2.0**100), 2.0**100, width=32)),
    "Box of large integers": boxes(["int64"], st.integers(-(2**40), 2**40)),
    "Box of all integers": st.sampled_from(
        [
            {
                "type": "Box",
                "dtype": dtype,
                "shape": [3],
                "low": int(np.iinfo(dtype).min),
                "high": int(np.iinfo(dtype).max),
            }
            for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
        ]
    ),
    "Graph": st.just({"type": "Graph", "node_space": discrete(3), "edge_space": discrete(2)}),
}
leaves = st.one_of(
    *(KINDS[name] for name in ("Discrete", "MultiDiscrete", "MultiBinary", "Text", "Box"))
)
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.text("abc", max_size=2), inner, max_size=3).map(
            lambda spaces: {"type": "Dict", "spaces": spaces}
        ),
        st.lists(inner, max_size=3).map(lambda spaces: {"type": "Tuple", "spaces": spaces}),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda spaces: {"type": "OneOf", "spaces": spaces}
        ),
        inner.map(lambda space: {"type": "Sequence", "space": space}),
    ),
    max_leaves=6,
)


def check(space: dict[str, Any], data: st.DataObject) -> None:
    """Any finite numbers become an action that the reader accepts as it is."""
    validate_space(space)
    scale = data.draw(st.sampled_from([0.0, 1.0, 1e3, 1e300]))
    seed = data.draw(st.integers(0, 1000))
    numbers = np.random.default_rng(seed).uniform(-1, 1, output_size(space)) * scale
    before = numbers.copy()
    action_reader(space)(to_action(space, numbers))
    assert np.array_equal(numbers, before)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=60)
def test_actions_are_members_of_their_space(kind: str, data: st.DataObject) -> None:
    check(data.draw(KINDS[kind]), data)


@given(nested, st.data())
@settings(max_examples=150)
def test_actions_are_members_of_nested_spaces(space: dict[str, Any], data: st.DataObject) -> None:
    check(space, data)


@pytest.mark.parametrize(
    ("space", "numbers", "action"),
    [
        (discrete(3), [0, 2, 1], 1),
        (discrete(3, start=-1), [0, 1, 2], 1),
        ({"type": "MultiDiscrete", "nvec": [2, 3]}, [1, 0, 0, 0, 1], [0, 2]),
        (
            {"type": "MultiDiscrete", "nvec": [[2], [2]], "start": [[5], [-1]]},
            [0, 1, 1, 0],
            [[6], [-1]],
        ),
        ({"type": "MultiBinary", "shape": [3]}, [-1, 0, 0.1], [0, 0, 1]),
        (
            {"type": "Box", "dtype": "float64", "shape": [3], "low": 0, "high": 4},
            [0, -99, 99],
            [2, 0, 4],
        ),
        (
            {"type": "Box", "dtype": "uint8", "shape": [3], "low": 0, "high": 255},
            [0, -99, 99],
            [128, 0, 255],
        ),
        ({"type": "OneOf", "spaces": [discrete(2), discrete(3)]}, [0, 1, 9, 0, 0, 0, 7], (1, 2)),
        ({"type": "OneOf", "spaces": [discrete(2), discrete(3)]}, [1, 0, 0, 9, 0, 0, 7], (0, 1)),
        ({"type": "Tuple", "spaces": [discrete(2), discrete(3)]}, [0, 1, 0, 0, 1], (1, 2)),
        (
            {"type": "Dict", "spaces": {"b": discrete(2), "a": discrete(3)}},
            [0, 1, 0, 0, 1],
            {"b": 1, "a": 2},
        ),
        ({"type": "Text", "min_length": 2, "max_length": 3, "charset": "xy"}, [], "xx"),
        ({"type": "Sequence", "space": discrete(2)}, [], ()),
    ],
)
def test_what_numbers_stand_for(space: dict[str, Any], numbers: list[float], action: Any) -> None:
    assert output_size(space) == len(numbers)
    found = to_action(space, np.array(numbers, dtype=np.float64))
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == action


# --------------------------------------------------------------------- observations


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (discrete(7), 7),
        (discrete(MAX_TABLE), MAX_TABLE),
        (discrete(MAX_TABLE + 1), None),
        ({"type": "Tuple", "spaces": [discrete(2), discrete(3), discrete(4)]}, 24),
        ({"type": "Tuple", "spaces": [discrete(100), discrete(100)]}, None),
        ({"type": "Tuple", "spaces": [discrete(2), {"type": "MultiBinary", "shape": [1]}]}, None),
        ({"type": "MultiBinary", "shape": [1]}, None),
    ],
)
def test_table_size(space: dict[str, Any], size: int | None) -> None:
    assert table_size(space) == size


def test_every_discrete_observation_has_its_own_row() -> None:
    space = {"type": "Tuple", "spaces": [discrete(2, start=5), discrete(3), discrete(4, start=-1)]}
    observations = [(a, b, c) for a in range(5, 7) for b in range(3) for c in range(-1, 3)]
    assert sorted(state(space, o) for o in observations) == list(range(24))
    assert [state(discrete(3, start=-1), o) for o in (-1, 0, 1)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("space", "observation", "features"),
    [
        (discrete(3, start=1), 2, [0, 1, 0]),
        ({"type": "MultiBinary", "shape": [2, 2]}, np.eye(2), [1, 0, 0, 1]),
        ({"type": "MultiDiscrete", "nvec": [3, 3]}, np.array([2, 0]), [2, 0]),
        (
            {"type": "Dict", "spaces": {"b": discrete(2), "a": discrete(2)}},
            {"b": 1, "a": 0},
            [1, 0, 0, 1],
        ),
        ({"type": "Dict", "spaces": {}}, {}, []),
        ({"type": "Tuple", "spaces": [discrete(2), discrete(2)]}, (1, 0), [0, 1, 1, 0]),
        ({"type": "Text", "min_length": 0, "max_length": 9, "charset": None}, "text", []),
        (
            {"type": "Box", "dtype": "float32", "shape": [2], "low": 0, "high": 1},
            [0.5, 1],
            [0.5, 1],
        ),
    ],
)
def test_features(space: dict[str, Any], observation: Any, features: list[float]) -> None:
    assert flatten(space, observation).tolist() == features


@pytest.mark.parametrize("items", [MAX_FEATURES, MAX_FEATURES + 1, 1_000, 100_800])
def test_large_arrays_are_averaged(items: int) -> None:
    space = {"type": "Box", "dtype": "uint8", "shape": [items], "low": 0, "high": 255}
    features = flatten(space, np.arange(items))
    assert features.shape == (MAX_FEATURES,)
    assert (np.diff(features) > 0).all()
    assert features.mean() == pytest.approx((items - 1) / 2, rel=0.01)
    assert flatten(space, np.full(items, 7)).tolist() == [7.0] * MAX_FEATURES


def test_features_are_finite() -> None:
    space = {"type": "Box", "dtype": "float32", "shape": [3], "low": -math.inf, "high": math.inf}
    features = flatten(space, np.array([math.nan, math.inf, -math.inf], np.float32))
    assert np.isfinite(features).all()


# ------------------------------------------------------------------------- networks


@pytest.mark.parametrize("hidden", [0, 1, 5])
@pytest.mark.parametrize("features", [0, 1, 4])
def test_parameter_vectors_are_used_up(features: int, hidden: int) -> None:
    count = parameter_count(features, hidden, 3)
    vector, inputs = np.arange(count) / 10, np.ones(features)
    assert compute(vector, inputs, hidden, 3).shape == (3,)
    with pytest.raises(ValueError, match="reshape"):
        compute(np.append(vector, [0, 0])[:-1], inputs, hidden, 3)


def test_the_linear_policy() -> None:
    vector = np.array([1.0, 2, 30, 4, 5, 60])
    outputs = compute(vector, np.array([10.0, 100]), 0, 2)
    assert outputs == pytest.approx([210 + 30 * BIAS, 540 + 60 * BIAS])


def test_the_hidden_layer() -> None:
    outputs = compute(np.array([2.0, 1, 3, 4]), np.array([0.5]), 1, 1)
    assert outputs == pytest.approx([3 * math.tanh(1 + BIAS) + 4 * BIAS])


# --------------------------------------------------------------------------- policy


def play(
    directory: Path, observation_space: Any, action_space: Any, observation: Any, **parameters: Any
) -> Any:
    """Import the Program as the policy process does and ask it for one action."""
    directory.mkdir()
    shutil.copy(str(search_policy.__file__), directory / "policy.py")
    np.savez(directory / "parameters.npz", **parameters)
    spec = importlib.util.spec_from_file_location("searched_policy", directory / "policy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    context = PolicyContext(observation_space, action_space, {}, {}, 10, 3)
    return module.make_policy(context).act(observation)


BOX = {"type": "Box", "dtype": "float32", "shape": [2], "low": -1, "high": 1}


def test_the_program_plays_a_linear_policy(tmp_path: Path) -> None:
    action = play(
        tmp_path / "program",
        BOX,
        discrete(2),
        np.array([3, 5], np.float32),
        vectors=np.array([[1.0, 0, 0, 0, 0, 15]]),
        scale=np.array([1.0, 2]),
        hidden=0,
    )
    assert action == 0  # 3 against 15 times the bias


def test_the_program_plays_a_table(tmp_path: Path) -> None:
    action = play(
        tmp_path / "program",
        discrete(3),
        discrete(2),
        1,
        vectors=np.array([[9.0, 0, 0, 1, 9, 0]]),
        scale=np.zeros(0),
        hidden=0,
    )
    assert action == 1


def test_the_policy_seed_picks_one_vector_and_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors = np.array([[1.0, 0], [0, 1], [1, 0], [0, 2], [1, 0]])
    action = play(
        tmp_path / "program",
        discrete(1),
        discrete(2),
        0,
        vectors=vectors[:5],
        scale=np.zeros(0),
        hidden=0,
    )
    assert action == 1
    assert capsys.readouterr().out == "vector 3\n"
