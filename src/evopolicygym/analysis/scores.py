"""The scores: final score, rank score, and their means. `docs/scoring.md` derives each number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean as exact_mean
from typing import Literal

from evopolicygym.benchmark import ScoreDirection
from evopolicygym.envs.anchors import Anchors, anchors
from evopolicygym.envs.catalog import CORE_16

__all__ = [
    "FAMILIES",
    "MOST",
    "TIE_RULES",
    "MeanScore",
    "Rank",
    "Reference",
    "ScoreMeans",
    "TieRule",
    "final_score",
    "mean",
    "rank_scores",
    "reference",
    "score_means",
]

TieRule = Literal["best", "average", "worst"]

TIE_RULES: Mapping[TieRule, str] = {
    "best": "equal means share the best of their ranks",
    "average": "equal means share the mean of their ranks",
    "worst": "equal means share the worst of their ranks",
}
"""Every tie rule in words. `best` is the paper's (arXiv 2607.02440)."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    name: CORE_16[4 * position : 4 * position + 4]
    for position, name in enumerate(("gym", "mujoco", "minigrid", "robotics_driving"))
}
"""The families of Core-16 (arXiv 2607.02440): name → its four registered ids."""

MOST = 1.2
"""Upper end of the clip: one lucky environment can't make up for many."""


def mean(values: Iterable[float]) -> float:
    """Return the mean, correctly rounded, so that it does not depend on the order."""
    return float(exact_mean(map(float, values)))


# ------------------------------------------------------------------------------- final score


@dataclass(frozen=True, slots=True)
class Reference:
    """What the Runs of one environment are measured against.

    Attributes:
        anchors: The catalog's row, or None where there is none that fits.
        random: Mean return of the uniform random policy, or None.
        expert: Mean return of a good policy, or None where no final score can be made of it.
        no_random: Why `random` is None.
        no_expert: Why `expert` is None.
    """

    anchors: Anchors | None
    random: float | None
    expert: float | None
    no_random: str | None
    no_expert: str | None


def reference(
    environment: str, *, max_episode_steps: int, primary_metric: str, direction: ScoreDirection
) -> Reference:
    """Return the anchors of an environment, as far as they fit the Runs.

    Args:
        environment: Registered id, or the Benchmark's own.
        max_episode_steps: Step limit of the Runs.
        primary_metric: What their scores are.
        direction: Whether larger or smaller scores are better.
    """
    row = anchors(environment)
    if row is None:
        return _unfit(f"the catalog has no anchors for {environment}")
    if row.max_episode_steps != max_episode_steps:
        return _unfit(
            f"the anchors were measured with a step limit of {row.max_episode_steps}, "
            f"the Runs with {max_episode_steps}"
        )
    if primary_metric != "mean_return":
        return _unfit(f"anchors are mean returns, the Runs are scored by {primary_metric}")
    random = row.random.mean
    if row.expert is None:
        return Reference(row, random, None, None, "no expert anchor is known")
    expert = row.expert.value
    if expert == random:
        why = f"the anchors of expert and random are equal, {expert:g}"
    elif (expert > random) != (direction == "maximize"):
        why = f"the expert anchor, {expert:g}, is worse than the random one, {random:g}"
    else:
        return Reference(row, random, expert, None, None)
    return Reference(row, random, None, None, why)


def _unfit(why: str) -> Reference:
    return Reference(None, None, None, why, why)


def final_score(heldout: float, *, random: float, expert: float) -> float:
    """Return `100 * clip((heldout - random) / (expert - random), 0, 1.2)`.

    Where smaller scores are better, the expert's is below the random one, both differences are
    negative, and the formula is the same.

    Args:
        heldout: Mean return on the held-out Episodes.
        random: Mean return of the uniform random policy.
        expert: Mean return of a good policy, not equal to `random`.

    Returns:
        0 for random or worse, 100 for the expert, at most 120.
    """
    share = (heldout - random) / (expert - random)
    return 100 * max(0.0, min(MOST, share))  # in this order 0 is never -0.0


# -------------------------------------------------------------------------------- rank score


@dataclass(frozen=True, slots=True)
class Rank:
    """Place of one entry in one environment.

    Attributes:
        rank: From 1, the best, to N; may be between two integers with the rule `average`.
        score: `1 - (rank - 1) / (N - 1)`, in [0, 1].
    """

    rank: float
    score: float


def rank_scores(
    means: Mapping[str, float], *, direction: ScoreDirection = "maximize", ties: TieRule = "best"
) -> dict[str, Rank]:
    """Rank the entries of one environment (arXiv 2607.02440).

    Args:
        means: Entry → mean score; at least two entries.
        direction: Whether larger or smaller scores are better.
        ties: What equal means share.

    Raises:
        ValueError: There are fewer than two entries.
    """
    entries = len(means)
    if entries < 2:
        raise ValueError(f"{entries} entries can't be ranked, expected at least 2")
    sign = 1 if direction == "maximize" else -1
    ranks: dict[str, Rank] = {}
    for entry, value in means.items():
        best = 1 + sum(sign * other > sign * value for other in means.values())
        worst = sum(sign * other >= sign * value for other in means.values())
        rank = {"best": float(best), "average": (best + worst) / 2, "worst": float(worst)}[ties]
        ranks[entry] = Rank(rank, (entries - rank) / (entries - 1))
    return ranks


# -------------------------------------------------------------------------------------- means


@dataclass(frozen=True, slots=True)
class MeanScore:
    """A mean over environments.

    Attributes:
        value: The mean, or None over no environment.
        environments: How many it is over.
        of: How many there are.
    """

    value: float | None
    environments: int
    of: int


@dataclass(frozen=True, slots=True)
class ScoreMeans:
    """One entry's scores put together.

    Attributes:
        total: Mean over all environments that have a score.
        families: Family of Core-16 → mean over those of its four environments that have one.
    """

    total: MeanScore
    families: Mapping[str, MeanScore]


def score_means(scores: Mapping[str, float | None]) -> ScoreMeans:
    """Return the means of one entry's scores, missing ones left out.

    Args:
        scores: Environment → score, or None where there is none.
    """
    families = {
        name: _mean_score([scores.get(one) for one in members])
        for name, members in FAMILIES.items()
        if not scores.keys().isdisjoint(members)
    }
    return ScoreMeans(_mean_score(list(scores.values())), families)


def _mean_score(scores: list[float | None]) -> MeanScore:
    known = [score for score in scores if score is not None]
    return MeanScore(mean(known) if known else None, len(known), len(scores))
