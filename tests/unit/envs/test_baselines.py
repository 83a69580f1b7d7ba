from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from evopolicygym._membership import outside
from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.envs.baselines import noop_program, random_program
from evopolicygym.policy import PolicyContext
from evopolicygym.program import Program
from evopolicygym.spaces import action_reader, validate_space

INFINITY = float("inf")


def box(low: Any, high: Any, shape: list[int], dtype: str = "float32") -> dict[str, Any]:
    return {"type": "Box", "dtype": dtype, "shape": shape, "low": low, "high": high}


SMALL = box(-1.0, 1.0, [3])
THREE = {"type": "Discrete", "n": 3, "start": -1}
LETTERS = {"type": "Text", "min_length": 1, "max_length": 4, "charset": "äb€𝄞"}
SPACES: dict[str, dict[str, Any]] = {
    "Box": SMALL,
    "Box float64": box([[-1.5, 0.1], [2.0, 3.0]], [[0.3, 0.2], [2.0, 9.0]], [2, 2], "float64"),
    "Box float16": box(-0.1, 0.1, [50], "float16"),
    "Box bounded by what float32 rounds": box(0.1, 0.1000001, [9]),
    "Box unbounded": box(-INFINITY, INFINITY, [4]),
    "Box half-bounded": box([0.0, -INFINITY, -1.0], [INFINITY, 2.0, 1.0], [3]),
    "Box without dimensions": box(0.0, 1.0, []),
    "Box without items": box(0.0, 1.0, [0, 3]),
    "Box uint8": box(0, 255, [8, 9, 3], "uint8"),
    "Box int64": box(-(2**63), 2**63 - 1, [3], "int64"),
    "Box of integers without bounds": box(-INFINITY, INFINITY, [3], "int32"),
    "Box bool": box(0, 1, [5], "bool"),
    "Discrete": THREE,
    "MultiDiscrete": {
        "type": "MultiDiscrete",
        "nvec": [[2, 3], [4, 5]],
        "start": [[0, -1], [9, 0]],
    },
    "MultiDiscrete with one start": {"type": "MultiDiscrete", "nvec": [2, 3], "start": 0},
    "MultiBinary": {"type": "MultiBinary", "shape": [2, 3]},
    "Text": LETTERS,
    "Text of anything": {"type": "Text", "min_length": 0, "max_length": 5, "charset": None},
    "Text of nothing": {"type": "Text", "min_length": 0, "max_length": 5, "charset": ""},
    "Dict": {"type": "Dict", "spaces": {"b": THREE, "a": SMALL}},
    "Tuple": {"type": "Tuple", "spaces": [THREE, SMALL, LETTERS]},
    "Tuple empty": {"type": "Tuple", "spaces": []},
    "OneOf": {"type": "OneOf", "spaces": [THREE, SMALL]},
    "Sequence": {"type": "Sequence", "space": SMALL},
    "Graph": {"type": "Graph", "node_space": box(-1.0, 1.0, [2]), "edge_space": THREE},
    "Graph without edges": {"type": "Graph", "node_space": THREE, "edge_space": None},
}
SPACES["nested"] = {
    "type": "Dict",
    "spaces": {
        "parts": {"type": "Tuple", "spaces": [SPACES["Graph"], SPACES["OneOf"]]},
        "many": {"type": "Sequence", "space": {"type": "Dict", "spaces": {"a": THREE}}},
        "deep": {"type": "Dict", "spaces": {"x": SPACES["MultiBinary"], "y": SPACES["Box uint8"]}},
    },
}


def spec(space: dict[str, Any]) -> BenchmarkSpec:
    validate_space(space)
    return BenchmarkSpec(
        id="some/where",
        description="",
        observation_space=THREE,
        action_space=space,
        max_episode_steps=9,
        failure_return=0.0,
    )


def drawn(program: Program, space: dict[str, Any], count: int, seed: int = 1) -> list[Any]:
    scope: dict[str, Any] = {}
    exec(compile(program.files["policy.py"], "policy.py", "exec"), scope)
    context = PolicyContext(THREE, space, {}, {}, 9, seed)
    policy = scope["make_policy"](context)
    return [policy.act(0) for _ in range(count)]


@pytest.mark.parametrize("name", SPACES)
def test_random_actions_are_members(name: str) -> None:
    space = SPACES[name]
    read = action_reader(space)
    for action in drawn(random_program(spec(space)), space, 50):
        assert outside(space, action) == ""
        read(action)


@pytest.mark.parametrize("name", SPACES)
def test_the_policy_seed_decides(name: str) -> None:
    space = SPACES[name]
    program = random_program(spec(space))
    first, again, other = (repr(drawn(program, space, 20, seed)) for seed in (1, 1, 2))
    assert first == again
    fixed = name in ("Tuple empty", "Text of nothing", "Box without items")
    assert (first == other) is fixed


def test_draws_are_uniform() -> None:
    space = SPACES["Discrete"]
    counts = np.unique(drawn(random_program(spec(space)), space, 3_000), return_counts=True)
    assert counts[0].tolist() == [-1, 0, 1]
    assert counts[1].min() > 900  # 1,000 expected, standard deviation 26
    space = box([-1.0, 2.0], [1.0, 6.0], [2])
    actions = np.array(drawn(random_program(spec(space)), space, 3_000))
    shares = (actions - [-1.0, 2.0]) / [2.0, 4.0]
    assert np.abs(np.quantile(shares, [0.1, 0.5, 0.9], axis=0).T - [0.1, 0.5, 0.9]).max() < 0.04
    assert abs(np.corrcoef(shares.T)[0, 1]) < 0.08
    every = list(itertools.product(range(2), range(3)))
    space = SPACES["MultiDiscrete with one start"]
    pairs = [tuple(a) for a in drawn(random_program(spec(space)), space, 600)]
    assert all(pairs.count(pair) > 60 for pair in every)  # 100 expected, standard deviation 9


def test_unbounded_sides_are_as_documented() -> None:
    space = box([-INFINITY, 5.0, -INFINITY], [INFINITY, INFINITY, 5.0], [3])
    mean = np.mean(drawn(random_program(spec(space)), space, 4_000), axis=0)
    assert np.abs(mean - [0.0, 6.0, 4.0]).max() < 0.1  # standard deviation 0.016


@pytest.mark.parametrize("name", SPACES)
def test_the_noop_is_a_member_and_stays(name: str) -> None:
    space = SPACES[name]
    first, second = drawn(noop_program(spec(space)), space, 2)
    assert outside(space, first) == ""
    action_reader(space)(first)
    assert repr(first) == repr(second)


def test_the_noop_is_nearest_to_zero() -> None:
    space = box([-1.0, 2.0, -4.0], [1.0, 3.0, -3.0], [3])
    assert drawn(noop_program(spec(space)), space, 1)[0].tolist() == [0.0, 2.0, -3.0]
    assert drawn(noop_program(spec(THREE)), THREE, 1) == [-1], "as the starter: the first one"
