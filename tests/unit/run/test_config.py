from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.config import AssessmentConfig, RunConfig, ValidationConfig


def test_defaults() -> None:
    config = RunConfig()
    assert (config.split, config.max_submissions, config.episode_budget) == ("train", 20, 1_000)
    assert (config.min_episodes_per_submission, config.max_episodes_per_submission) == (1, None)
    assert (config.seed, config.jobs) == (0, None)
    assert (config.episode_timeout_seconds, config.agent_timeout_seconds) == (30.0, 3_600.0)
    assert (config.validation, config.assessment) == (None, None)
    assert ValidationConfig(5) == ValidationConfig(5, split="validation", max_candidates=3)
    assert AssessmentConfig(5) == AssessmentConfig(5, split="test")


def test_the_pool_is_as_large_as_the_budget_unless_it_is_given() -> None:
    assert RunConfig(episode_budget=7).pool_size == 7
    assert RunConfig(episode_budget=7, episode_pool_size=3).pool_size == 3
    assert RunConfig(episode_budget=7, episode_pool_size=30).pool_size == 30


def test_more_than_one_candidate_needs_validation() -> None:
    assert RunConfig().max_candidates == 1
    assert RunConfig(validation=ValidationConfig(5)).max_candidates == 3
    assert RunConfig(validation=ValidationConfig(5, max_candidates=8)).max_candidates == 8


def test_configurations_are_read_only() -> None:
    for config in (RunConfig(), ValidationConfig(1), AssessmentConfig(1)):
        with pytest.raises(FrozenInstanceError):
            config.split = "test"  # type: ignore[misc]


WRONG_INTEGERS = [0, -1, 1.0, 1.5, "1", None, True, math.nan, 10**7, np.float64(3), [1]]


@pytest.mark.parametrize("value", WRONG_INTEGERS, ids=str)
@pytest.mark.parametrize(
    ("kind", "name", "path"),
    [
        (RunConfig, "max_submissions", "$.max_submissions"),
        (RunConfig, "episode_budget", "$.episode_budget"),
        (RunConfig, "episode_pool_size", "$.episode_pool_size"),
        (RunConfig, "min_episodes_per_submission", "$.min_episodes_per_submission"),
        (RunConfig, "max_episodes_per_submission", "$.max_episodes_per_submission"),
        (RunConfig, "jobs", "$.jobs"),
        (ValidationConfig, "episodes_per_candidate", "$.validation.episodes_per_candidate"),
        (ValidationConfig, "max_candidates", "$.validation.max_candidates"),
        (AssessmentConfig, "episodes", "$.assessment.episodes"),
    ],
)
def test_wrong_integers_are_named(kind: Any, name: str, path: str, value: Any) -> None:
    optional = ("episode_pool_size", "max_episodes_per_submission", "jobs")
    if value is None and name in optional:
        assert getattr(kind(**{name: None}), name) is None
        return
    required = {"episodes_per_candidate": 1} if kind is ValidationConfig else {}
    with pytest.raises(ConfigurationError) as caught:
        kind(**(required | {name: value}))
    assert str(caught.value).startswith(f"{path} is {value!r}, expected an integer in [1, ")


@pytest.mark.parametrize(
    ("kind", "name", "most"),
    [
        (RunConfig, "max_submissions", 1_000_000),
        (RunConfig, "episode_budget", 1_000_000),
        (RunConfig, "episode_pool_size", 1_000_000),
        (RunConfig, "max_episodes_per_submission", 1_000_000),
        (RunConfig, "jobs", 1_024),
        (RunConfig, "seed", 2**63 - 1),
        (ValidationConfig, "max_candidates", 1_000),
        (ValidationConfig, "episodes_per_candidate", 1_000_000),
        (AssessmentConfig, "episodes", 1_000_000),
    ],
)
def test_the_largest_integers(kind: Any, name: str, most: int) -> None:
    required = {"episodes_per_candidate": 1} if kind is ValidationConfig else {}
    assert getattr(kind(**(required | {name: most})), name) == most
    with pytest.raises(ConfigurationError, match=rf"expected an integer in \[[01], {most}\]"):
        kind(**(required | {name: most + 1}))


@pytest.mark.parametrize("value", [-1, 1.0, True, None, "0", 2**63], ids=str)
def test_wrong_seeds(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RunConfig(seed=value)
    assert str(caught.value) == (
        f"$.seed is {value!r}, expected an integer in [0, 9223372036854775807]"
    )


@pytest.mark.parametrize("name", ["episode_timeout_seconds", "agent_timeout_seconds"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "30", None, True, 10**8], ids=str)
def test_wrong_seconds(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RunConfig(**{name: value})
    assert str(caught.value).startswith(f"$.{name} is {value!r}, expected ")


@pytest.mark.parametrize("name", ["episode_timeout_seconds", "agent_timeout_seconds"])
@pytest.mark.parametrize("value", [1, 0.001, 10**7])
def test_seconds(name: str, value: float) -> None:
    assert getattr(RunConfig(**{name: value}), name) == value


@pytest.mark.parametrize("value", ["", None, 3, b"train"], ids=repr)
@pytest.mark.parametrize(
    ("kind", "required", "path"),
    [
        (RunConfig, {}, "$.split"),
        (ValidationConfig, {"episodes_per_candidate": 1}, "$.validation.split"),
        (AssessmentConfig, {"episodes": 1}, "$.assessment.split"),
    ],
)
def test_wrong_splits(kind: Any, required: dict[str, Any], path: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        kind(**required, split=value)
    assert str(caught.value) == f"{path} is {value!r}, expected a name such as 'train'"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"min_episodes_per_submission": 5, "max_episodes_per_submission": 4},
            r"^\$\.max_episodes_per_submission is 4, expected at least "
            r"\$\.min_episodes_per_submission, which is 5$",
        ),
        (
            {"min_episodes_per_submission": 5, "episode_budget": 4},
            r"^\$\.min_episodes_per_submission is 5, but \$\.episode_budget is 4: no Submission",
        ),
        (
            {"min_episodes_per_submission": 5, "episode_pool_size": 4},
            r"^\$\.min_episodes_per_submission is 5, but \$\.episode_pool_size is 4: no Submission",
        ),
    ],
)
def test_contradictions_are_named(values: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RunConfig(**values)  # type: ignore[arg-type]
    RunConfig(**dict.fromkeys(values, 5))  # type: ignore[arg-type]
