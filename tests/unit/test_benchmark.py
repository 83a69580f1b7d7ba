from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.benchmark import (
    Artifact,
    BenchmarkSpec,
    Episode,
    EpisodeRecord,
    Failure,
    FailureCode,
    Feedback,
    mean_return_feedback,
    plan_episodes,
)
from evopolicygym.errors import BenchmarkError

DISCRETE = {"type": "Discrete", "n": 2}
BOX = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1, -1], "high": 1}


def spec(**changes: Any) -> BenchmarkSpec:
    values: dict[str, Any] = {
        "id": "lab/walk",
        "description": "Walk.",
        "observation_space": BOX,
        "action_space": DISCRETE,
        "max_episode_steps": 100,
        "failure_return": -5.0,
    }
    return BenchmarkSpec(**(values | changes))


def record(score: float, *, failure: Failure | None = None) -> EpisodeRecord:
    return EpisodeRecord(
        index=0,
        steps=1,
        total_reward=99.0,
        score_return=score,
        terminated=True,
        truncated=False,
        failure=failure,
    )


# ----------------------------------------------------------------------------- spec


def test_defaults() -> None:
    found = spec()
    assert found.primary_metric == "mean_return"
    assert found.score_direction == "maximize"
    assert (found.metadata, found.environment_parameters) == ({}, {})


@pytest.mark.parametrize(
    "value",
    [
        spec(),
        Episode(1, 2),
        record(1.0),
        Failure(FailureCode.CRASH, "gone", 3),
        Feedback(score=1.0),
        Artifact("plot.png", b""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_read_only(value: Any) -> None:
    name = fields(value)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, None)
    assert not hasattr(value, "__dict__")


def test_an_episode_of_one_step() -> None:
    assert spec(max_episode_steps=1).max_episode_steps == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"observation_space": {"type": "Ball"}},
            r"^lab/walk: observation_space: \$\.type is 'Ball'",
        ),
        ({"action_space": {"type": "Discrete"}}, r"^lab/walk: action_space: .*lacks n"),
        ({"action_space": None}, r"^lab/walk: action_space: "),
        ({"action_space": {"type": "Dict", "spaces": []}}, r"^lab/walk: action_space: "),
        ({"action_space": {"type": "Dict", "spaces": {"a": {}}}}, r"action_space: \$\.spaces\.a"),
        ({"max_episode_steps": 0}, r"max_episode_steps is 0, expected >= 1"),
        ({"max_episode_steps": -1}, r"max_episode_steps is -1, expected >= 1"),
        ({"failure_return": math.nan}, r"failure_return is nan, expected a finite number"),
        ({"failure_return": -math.inf}, r"failure_return is -inf, expected a finite number"),
        ({"score_direction": "up"}, r"score_direction is 'up'"),
    ],
)
def test_what_a_spec_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        spec(**changes)


@pytest.mark.parametrize(
    ("direction", "larger_is_better"), [("maximize", True), ("minimize", False)]
)
def test_better_is_strict(direction: str, larger_is_better: bool) -> None:
    better = spec(score_direction=direction).better
    assert better(2.0, 1.0) is larger_is_better
    assert better(1.0, 2.0) is not larger_is_better
    assert better(1.0, 1.0) is False


@pytest.mark.parametrize(
    ("direction", "partial", "expected"),
    [
        ("maximize", 10.0, -5.0),
        ("maximize", -5.0, -5.0),
        ("maximize", -7.0, -7.0),
        ("minimize", -10.0, -5.0),
        ("minimize", -5.0, -5.0),
        ("minimize", 3.0, 3.0),
    ],
)
def test_failing_never_pays(direction: str, partial: float, expected: float) -> None:
    assert spec(score_direction=direction).failed_return(partial) == expected


def test_the_environment_digest_never_changes_its_format() -> None:
    found = spec(environment_parameters={"size": 3}, metadata={"family": "lab"})
    assert (
        found.environment_digest
        == "1ea5a17e92e564ff1c87f4bd40246d2ccf1d42b3f2a8387e771ebfb56aeaad76"
    )


def test_the_environment_digest_does_not_depend_on_the_order_of_keys() -> None:
    first = spec(environment_parameters={"a": 1, "b": [2]})
    second = spec(
        environment_parameters={"b": [2], "a": 1}, action_space={"n": 2, "type": "Discrete"}
    )
    assert first.environment_digest == second.environment_digest


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "lab/run"},
        {"observation_space": BOX | {"high": 2}},
        {"action_space": {"type": "Discrete", "n": 3}},
        {"environment_parameters": {"size": 4}},
        {"max_episode_steps": 101},
        {"failure_return": -6.0},
        {"primary_metric": "median"},
        {"score_direction": "minimize"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_the_environment_digest_covers_what_a_score_depends_on(changes: dict[str, Any]) -> None:
    assert spec(**changes).environment_digest != spec().environment_digest


@pytest.mark.parametrize("changes", [{"description": "Run."}, {"metadata": {"author": "x"}}])
def test_the_environment_digest_does_not_cover_words(changes: dict[str, Any]) -> None:
    assert spec(**changes).environment_digest == spec().environment_digest


# ----------------------------------------------------------------------------- plan


def test_one_plan_never_changes() -> None:
    assert plan_episodes("gym/cartpole", "train", seed=7, count=3) == (
        Episode(environment_seed=613650444, policy_seed=1680925026),
        Episode(environment_seed=1543734004, policy_seed=896352149),
        Episode(environment_seed=1639206432, policy_seed=1393969398),
    )


@given(
    st.text(max_size=8),
    st.sampled_from(["train", "validation", "test", "extra", ""]),
    st.integers(),
    st.integers(0, 20),
)
def test_plans_are_functions_of_their_arguments(
    name: str, split: str, seed: int, count: int
) -> None:
    plan = plan_episodes(name, split, seed=seed, count=count)
    assert len(plan) == count
    assert plan == plan_episodes(name, split, seed=seed, count=count)
    assert plan == plan_episodes(name, split, seed=seed, count=count + 5)[:count]
    for episode in plan:
        assert 0 <= episode.environment_seed < 2**31
        assert 0 <= episode.policy_seed < 2**31
        assert episode.scenario == {}


@given(st.lists(st.integers(), min_size=4, max_size=4), st.integers(1, 60))
def test_splits_never_share_an_environment_seed(seeds: list[int], count: int) -> None:
    found = [
        {episode.environment_seed for episode in plan_episodes("x", split, seed=seed, count=count)}
        for split, seed in zip(["train", "validation", "test", "extra"], seeds, strict=True)
    ]
    assert sum(map(len, found)) == len(set().union(*found))
    for code, chosen in enumerate(found):
        assert {seed % 4 for seed in chosen} == {code}


@pytest.mark.parametrize(
    "other",
    [
        lambda: plan_episodes("other", "train", seed=0, count=50),
        lambda: plan_episodes("x", "validation", seed=0, count=50),
        lambda: plan_episodes("x", "train", seed=1, count=50),
        lambda: plan_episodes("x", "train", seed=-1, count=50),
    ],
    ids=["id", "split", "seed", "negative seed"],
)
def test_every_argument_counts(other: Callable[[], tuple[Episode, ...]]) -> None:
    plan = plan_episodes("x", "train", seed=0, count=50)
    for field in ("environment_seed", "policy_seed"):
        first, second = ({getattr(e, field) for e in episodes} for episodes in (plan, other()))
        assert not first & second


def test_seeds_within_a_plan_differ_and_tell_nothing_about_each_other() -> None:
    plan = plan_episodes("x", "train", seed=0, count=1_000)
    assert len({e.environment_seed for e in plan}) == 1_000
    assert len({e.policy_seed for e in plan}) == 1_000
    # Half of the policy seeds are odd, whatever the environment seeds are.
    assert 400 < sum(e.policy_seed % 2 for e in plan) < 600
    assert not {e.environment_seed for e in plan} & {e.policy_seed for e in plan}


# ------------------------------------------------------------------------- feedback


def test_nothing_measured_has_no_score() -> None:
    assert mean_return_feedback([]) == Feedback(score=None, content={}, artifacts=())


def test_the_score_is_the_mean_of_what_episodes_count_for() -> None:
    failure = Failure(FailureCode.CRASH, "gone", 3)
    feedback = mean_return_feedback([record(1.0), record(-5.0, failure=failure), record(0.5)])
    assert feedback.score == pytest.approx(-3.5 / 3)
    assert feedback.content == {"episodes": 3, "failed_episodes": 1}


def test_the_mean_does_not_depend_on_the_order() -> None:
    records = [record(value) for value in (1e16, 1.0, -1e16, 3.0)]
    assert mean_return_feedback(records).score == 1.0
    assert mean_return_feedback(records[::-1]).score == 1.0


# ------------------------------------------------------------------------- failures


def test_the_failure_codes_are_closed() -> None:
    assert [code.value for code in FailureCode] == [
        "import_error",
        "init_error",
        "exception",
        "invalid_action",
        "timeout",
        "memory_limit",
        "crash",
        "protocol_error",
    ]
    with pytest.raises(ValueError, match="host_fault"):
        FailureCode("host_fault")


def test_records_are_values() -> None:
    assert replace(record(1.0), score_return=2.0) == record(2.0)
    assert Failure(FailureCode.TIMEOUT, "slow", 1).traceback == ""
