"""The scores, against the paper's table and against what must hold of any numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from evopolicygym.analysis import scores
from evopolicygym.analysis.scores import (
    FAMILIES,
    TIE_RULES,
    Reference,
    TieRule,
    final_score,
    mean,
    rank_scores,
    reference,
    score_means,
)
from evopolicygym.envs.anchors import Anchors, Expert, anchors

PAPER = json.loads((Path(__file__).parent / "core16_paper.json").read_text())
ENVIRONMENTS = [one for family in PAPER["families"].values() for one in family]
NUMBERS = st.floats(-1e6, 1e6)
MEANS = st.dictionaries(st.text(max_size=3), st.integers(-3, 3).map(float), min_size=2, max_size=8)
RULES = st.sampled_from(get_args(TieRule))


# ---------------------------------------------------------------------------------- the paper


@pytest.fixture(scope="module")
def ranked() -> dict[str, dict[str, float]]:
    """Entry → environment → rank score, from the paper's raw table."""
    raw = PAPER["heldout_mean_return"]
    found: dict[str, dict[str, float]] = {entry: {} for entry in raw}
    for environment in ENVIRONMENTS:
        ranks = rank_scores({entry: float(raw[entry][environment]) for entry in raw})
        for entry, rank in ranks.items():
            found[entry][environment] = rank.score
    return found


@pytest.mark.parametrize(
    ("entry", "total"),
    [
        ("gpt-5.5", "0.891"),
        ("claude-opus-4.7", "0.750"),
        ("minimax-m3", "0.531"),
        ("deepseek-v4-pro", "0.359"),
        ("uniform-random", "0.109"),
    ],
)
def test_the_papers_rank_scores(
    entry: str, total: str, ranked: dict[str, dict[str, float]]
) -> None:
    means = score_means(ranked[entry])
    assert means.total.value is not None
    assert f"{means.total.value:.3f}" == total
    assert float(total) == PAPER["rank_score_core16"][entry]
    assert (means.total.environments, means.total.of) == (16, 16)
    found = {name: score.value for name, score in means.families.items()}
    assert found == PAPER["rank_score_families"][entry]
    assert mean(found.values()) == means.total.value


def test_the_families_are_the_papers() -> None:
    assert {name: list(members) for name, members in FAMILIES.items()} == PAPER["families"]


# -------------------------------------------------------------------------------- final score


def test_final_score_of_negative_returns() -> None:
    assert final_score(-75.0, random=-100.0, expert=-50.0) == 50.0
    assert final_score(-150.0, random=-100.0, expert=-50.0) == 0.0
    assert final_score(-10.0, random=-100.0, expert=-50.0) == 120.0
    assert final_score(25.0, random=-100.0, expert=150.0) == 50.0


def test_final_score_of_minimised_scores() -> None:
    assert final_score(30.0, random=50.0, expert=10.0) == 50.0
    assert final_score(60.0, random=50.0, expert=10.0) == 0.0
    assert final_score(0.0, random=50.0, expert=10.0) == 120.0


@given(NUMBERS, NUMBERS, NUMBERS)
def test_final_score_has_fixed_points_and_ends(
    heldout: float, random: float, expert: float
) -> None:
    assume(random != expert)
    score = final_score(heldout, random=random, expert=expert)
    assert 0.0 <= score <= 120.0
    assert str(final_score(random, random=random, expert=expert)) == "0.0", "never -0.0"
    assert final_score(expert, random=random, expert=expert) == 100.0
    assert score == final_score(-heldout, random=-random, expert=-expert), "minimised"


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_a_better_mean_never_scores_less(
    one: float, other: float, random: float, expert: float
) -> None:
    assume(random != expert)
    worse, better = sorted((one, other), reverse=expert < random)
    scored = [final_score(value, random=random, expert=expert) for value in (worse, better)]
    assert scored == sorted(scored)


# ---------------------------------------------------------------------------------- reference


def acrobot(**changes: Any) -> Reference:
    known: dict[str, Any] = {
        "max_episode_steps": 500,
        "primary_metric": "mean_return",
        "direction": "maximize",
    }
    return reference("Acrobot-v1", **{**known, **changes})


def test_reference_of_a_known_environment() -> None:
    row = anchors("Acrobot-v1")
    assert row is not None
    assert row.expert is not None
    expected = Reference(row, row.random.mean, row.expert.value, None, None)
    assert acrobot() == expected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"max_episode_steps": 200},
            "the anchors were measured with a step limit of 500, the Runs with 200",
        ),
        ({"primary_metric": "wins"}, "anchors are mean returns, the Runs are scored by wins"),
    ],
)
def test_anchors_that_do_not_fit(changes: dict[str, Any], reason: str) -> None:
    assert acrobot(**changes) == Reference(None, None, None, reason, reason)


def test_an_environment_without_anchors() -> None:
    found = reference(
        "mine", max_episode_steps=20, primary_metric="mean_return", direction="maximize"
    )
    reason = "the catalog has no anchors for mine"
    assert found == Reference(None, None, None, reason, reason)


@pytest.mark.parametrize(
    ("expert", "direction", "reason"),
    [
        (None, "maximize", "no expert anchor is known"),
        (2.5, "maximize", "the anchors of expert and random are equal, 2.5"),
        (2.0, "maximize", "the expert anchor, 2, is worse than the random one, 2.5"),
        (3.0, "minimize", "the expert anchor, 3, is worse than the random one, 2.5"),
        (3.0, "maximize", None),
        (2.0, "minimize", None),
    ],
)
def test_an_expert_must_be_better_than_random(
    expert: float | None, direction: Any, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = _row(2.5, expert)
    monkeypatch.setattr(scores, "anchors", {"Acrobot-v1": row}.get)
    kept = expert if reason is None else None
    assert acrobot(direction=direction) == Reference(row, 2.5, kept, None, reason)


def _row(random: float, expert: float | None) -> Anchors:
    from dataclasses import replace

    row = anchors("Acrobot-v1")
    assert row is not None
    known = None if expert is None else Expert(expert, "reference", "a test")
    return replace(row, random=replace(row.random, mean=random), expert=known)


# --------------------------------------------------------------------------------- rank score


def test_ranks_by_hand() -> None:
    means = {"a": 3.0, "b": 1.0, "c": 3.0, "d": 0.0, "e": 3.0}
    expected = {
        "best": {"a": 1.0, "b": 4.0, "c": 1.0, "d": 5.0, "e": 1.0},
        "average": {"a": 2.0, "b": 4.0, "c": 2.0, "d": 5.0, "e": 2.0},
        "worst": {"a": 3.0, "b": 4.0, "c": 3.0, "d": 5.0, "e": 3.0},
    }
    assert expected.keys() == TIE_RULES.keys() == set(get_args(TieRule))
    for ties in get_args(TieRule):
        ranks = rank_scores(means, ties=ties)
        assert {entry: rank.rank for entry, rank in ranks.items()} == expected[ties]
        assert ranks["b"].score == 0.25
        assert ranks["d"].score == 0.0
    assert rank_scores(means)["a"].score == 1.0, "the default is the paper's"
    assert rank_scores(means, ties="average")["a"].score == 0.75


@given(MEANS, RULES)
def test_a_score_is_linear_in_the_rank(means: dict[str, float], ties: TieRule) -> None:
    for rank in rank_scores(means, ties=ties).values():
        assert 1 <= rank.rank <= len(means)
        assert rank.score == pytest.approx(1 - (rank.rank - 1) / (len(means) - 1))


@given(MEANS)
def test_rules_differ_in_ties_only(means: dict[str, float]) -> None:
    best, average, worst = (rank_scores(means, ties=ties) for ties in get_args(TieRule))
    for entry, value in means.items():
        tied = list(means.values()).count(value)
        assert worst[entry].rank - best[entry].rank == tied - 1
        assert 2 * average[entry].rank == best[entry].rank + worst[entry].rank
    total = sum(rank.rank for rank in average.values())
    assert total == len(means) * (len(means) + 1) / 2


@given(MEANS, RULES)
def test_minimising_is_maximising_the_negative(means: dict[str, float], ties: TieRule) -> None:
    negative = {entry: -value for entry, value in means.items()}
    assert rank_scores(means, direction="minimize", ties=ties) == rank_scores(negative, ties=ties)


@given(MEANS, RULES)
def test_ranks_do_not_depend_on_the_order(means: dict[str, float], ties: TieRule) -> None:
    turned = dict(reversed(means.items()))
    assert rank_scores(means, ties=ties) == rank_scores(turned, ties=ties)


@pytest.mark.parametrize("means", [{}, {"a": 1.0}])
def test_one_entry_has_no_rank(means: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected at least 2"):
        rank_scores(means)


# -------------------------------------------------------------------------------------- means


def test_missing_scores_are_not_zero() -> None:
    found = score_means({"Acrobot-v1": 0.5, "CarRacing-v3": None, "toy": 1.0, "Ant-v5": None})
    assert (found.total.value, found.total.environments, found.total.of) == (0.75, 2, 4)
    assert found.families.keys() == {"gym", "mujoco"}
    gym, mujoco = found.families["gym"], found.families["mujoco"]
    assert (gym.value, gym.environments, gym.of) == (0.5, 1, 4)
    assert (mujoco.value, mujoco.environments, mujoco.of) == (None, 0, 4)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6))
def test_means_do_not_depend_on_the_order(values: list[float]) -> None:
    assert mean(values) == mean(sorted(values))
    assert min(values) <= mean(values) <= max(values)
