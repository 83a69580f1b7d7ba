from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.execution.statistics import ActionStatistics, RewardStatistics
from evopolicygym.strict_json import dumps, loads


def box(*shape: int, dtype: str = "float64") -> dict[str, Any]:
    return {"type": "Box", "dtype": dtype, "shape": list(shape), "low": -10, "high": 10}


def of(space: dict[str, Any], actions: Sequence[Any], batch: int = 256) -> dict[str, Any]:
    """Summary of actions that are taken `batch` at a time."""
    statistics = ActionStatistics(space)
    for start in range(0, len(actions), batch):
        statistics.add(actions[start : start + batch])
    return statistics.summary()


# ------------------------------------------------------------------------- rewards


def test_no_rewards() -> None:
    assert RewardStatistics().summary(0.0) == {"steps": 0}


def test_rewards() -> None:
    statistics = RewardStatistics()
    rewards = [0.5, -2.0, 0.0, -0.0, 4.5]
    statistics.add(rewards[:2])
    statistics.add(tuple(rewards[2:]))
    assert statistics.summary(sum(rewards)) == {
        "steps": 5,
        "min": -2.0,
        "max": 4.5,
        "mean": 0.6,
        "nonzero": 3,
    }


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1),
    st.integers(1, 4),
)
def test_rewards_equal_the_plain_formulas(rewards: list[float], batch: int) -> None:
    statistics = RewardStatistics()
    for start in range(0, len(rewards), batch):
        statistics.add(rewards[start : start + batch])
    assert statistics.summary(math.fsum(rewards)) == {
        "steps": len(rewards),
        "min": min(rewards),
        "max": max(rewards),
        "mean": math.fsum(rewards) / len(rewards),
        "nonzero": sum(reward != 0 for reward in rewards),
    }


# ------------------------------------------------------------------------- actions


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_discrete_actions_are_counted(count: int, batch: int) -> None:
    actions = [i % 3 - 1 for i in range(count)]
    counts = of({"type": "Discrete", "n": 3, "start": -1}, actions, batch)
    expected = {str(a): len(range(a + 1, count, 3)) for a in (-1, 0, 1) if a + 1 < count}
    assert counts == {"counts": expected}


def test_the_64_commonest_actions_are_shown_in_numeric_order() -> None:
    # 9 is played once and so are 70 to 99: among equals the smaller numbers are shown.
    actions = [a for a in range(100) if a != 9 and a < 70 for _ in range(2)]
    actions += [9, *range(70, 100)]
    few = [a for a in actions if a >= 10]
    assert list(of({"type": "Discrete", "n": 100}, few)["counts"]) == [
        str(a) for a in range(10, 74)
    ]
    counts = of({"type": "Discrete", "n": 100}, actions)["counts"]
    assert list(counts) == [str(a) for a in range(65) if a != 9]
    assert set(counts.values()) == {2}


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("count", [1, 2, 500])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2), (64,)], ids=str)
def test_array_actions(count: int, shape: tuple[int, ...], batch: int) -> None:
    rng = np.random.default_rng(count)
    actions = rng.integers(-8, 9, (count, *shape)) / 4  # exact in binary
    summary = of(box(*shape), list(actions), batch)
    flat = actions.reshape(count, -1)
    assert summary["min"] == flat.min(0).tolist()
    assert summary["max"] == flat.max(0).tolist()
    assert summary["mean"] == pytest.approx((flat.sum(0) / count).tolist(), rel=1e-12, abs=1e-12)
    assert summary["std"] == pytest.approx(flat.std(0).tolist(), rel=1e-12, abs=1e-12)
    assert list(summary) == ["min", "max", "mean", "std"]


@pytest.mark.parametrize(
    ("space", "actions", "mean"),
    [
        (box(2, dtype="float32"), np.array([[1, -1], [2, 0]], np.float32), [1.5, -0.5]),
        (box(1, dtype="uint8"), np.array([[255], [254]], np.uint8), [254.5]),
        ({"type": "MultiDiscrete", "nvec": [3, 4]}, np.array([[0, 3], [2, 2]]), [1.0, 2.5]),
        ({"type": "MultiBinary", "shape": [2]}, np.array([[0, 1], [1, 1]], np.int8), [0.5, 1.0]),
    ],
    ids=["float32", "uint8", "MultiDiscrete", "MultiBinary"],
)
def test_every_array_space_is_watched(space: Any, actions: Any, mean: list[float]) -> None:
    summary = of(space, list(actions))
    assert summary["mean"] == mean
    assert loads(dumps(summary)) == summary


def test_spread_of_small_integers_is_not_cut_by_their_dtype() -> None:
    summary = of(box(1, dtype="int8"), [np.array([100], np.int8), np.array([-100], np.int8)])
    assert summary == {"min": [-100.0], "max": [100.0], "mean": [0.0], "std": [100.0]}


def test_constant_actions_have_no_spread() -> None:
    assert of(box(1), [np.array([0.1])] * 1000)["std"] == pytest.approx([0.0], abs=1e-8)


def test_spread_of_values_far_from_zero() -> None:
    actions = [np.array([1e8 + i % 2]) for i in range(1000)]
    assert of(box(1), actions)["std"] == pytest.approx([0.5], rel=1e-6)


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (box(65), np.zeros(65)),
        (box(8, 9), np.zeros((8, 9))),
        (box(0), np.zeros(0)),
        ({"type": "Dict", "spaces": {"a": {"type": "Discrete", "n": 2}}}, {"a": 1}),
        ({"type": "Tuple", "spaces": [{"type": "Discrete", "n": 2}]}, (1,)),
        ({"type": "Text", "min_length": 0, "max_length": 3, "charset": None}, "abc"),
    ],
    ids=["65 items", "72 items", "empty", "Dict", "Tuple", "Text"],
)
def test_what_is_not_summarised(space: Any, action: Any) -> None:
    assert of(space, [action] * 600) == {}


def test_no_array_actions() -> None:
    assert of(box(3), []) == {}
