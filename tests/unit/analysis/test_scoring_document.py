"""`docs/scoring.md`: its examples are what the code computes, its links lead somewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from evopolicygym.analysis.scores import (
    FAMILIES,
    TieRule,
    final_score,
    mean,
    rank_scores,
    reference,
)
from evopolicygym.analysis.table_models import TableFile

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "scoring.md").read_text()
PLAIN = TEXT.replace("−", "-")
RAW = json.loads((Path(__file__).parent / "core16_paper.json").read_text())["heldout_mean_return"]
NUMBER = r"-?\d+(?:\.\d+)?"


def rows(pattern: str) -> list[re.Match[str]]:
    found = list(re.finditer(rf"^\| {pattern} \|$", PLAIN, re.MULTILINE))
    assert found, pattern
    return found


def anchored(environment: str, steps: int) -> tuple[float, float]:
    found = reference(
        environment, max_episode_steps=steps, primary_metric="mean_return", direction="maximize"
    )
    assert found.random is not None
    assert found.expert is not None
    return found.random, found.expert


def test_final_scores() -> None:
    random, expert = anchored("Acrobot-v1", 500)
    assert f"random = {random} and expert = {expert}." in PLAIN
    examples = rows(rf"({NUMBER}) \| ({NUMBER}) / ({NUMBER}) = ({NUMBER})\S* ?\w* \| ({NUMBER})")
    assert len(examples) == 3
    for heldout, above, range_, share, score in (map(float, row.groups()) for row in examples):
        assert (above, range_) == (pytest.approx(heldout - random), expert - random)
        assert share == round(above / range_, 4)
        assert score == round(final_score(heldout, random=random, expert=expert), 2)


def test_repeats() -> None:
    random, expert = anchored("CartPole-v1", 500)
    assert f"CartPole-v1 with random = {random} and expert = {expert:.0f}." in PLAIN
    values = (158.3125, 49.40625)
    finals = [final_score(value, random=random, expert=expert) for value in values]
    high, low = (f"{final:.2f}" for final in finals)
    assert f"Mean {mean(values):.2f} [49.41, 158.3]" in PLAIN
    assert f"final scores {high} and {low}, mean {mean(finals):.2f} [{low}, {high}]." in PLAIN


def test_ranks() -> None:
    examples = rows(r"([\w.-]+)" + rf" \| ({NUMBER}) \| (\d) \| (\d\.\d\d)" * 2)
    assert [row[1] for row in examples] == list(RAW)
    for environment, first in (("Acrobot-v1", 2), ("MiniGrid-DoorKey-16x16-v0", 5)):
        means = {entry: float(row[environment]) for entry, row in RAW.items()}
        ranks = rank_scores(means)
        for row in examples:
            shown = float(row[first]), float(row[first + 1]), row[first + 2]
            rank = ranks[row[1]]
            assert shown == (means[row[1]], rank.rank, f"{rank.score:.2f}")


@pytest.mark.parametrize("ties", get_args(TieRule))
def test_tie_rules(ties: TieRule) -> None:
    ranks = rank_scores({"a": 3.0, "b": 3.0, "c": 1.0, "d": 0.0}, ties=ties)
    shown = ", ".join(f"{rank.rank:g}" for rank in ranks.values())
    assert re.search(rf"^\| `{ties}`.* \| {re.escape(shown)} \|$", TEXT, re.MULTILINE)


def scores(entry: str, random: float | None = None) -> Iterator[tuple[str, float]]:
    """Yield environment, rank score, from the paper's table, with our random policy or theirs."""
    for environment in RAW[entry]:
        means = {name: float(row[environment]) for name, row in RAW.items()}
        if random is not None and environment == "MiniGrid-DoorKey-16x16-v0":
            means["uniform-random"] = random
        yield environment, rank_scores(means)[entry].score


def test_families_and_total() -> None:
    found = dict(scores("gpt-5.5"))
    for name, members in FAMILIES.items():
        (row,) = rows(rf"{name} \| ([\w, -]+) \| ([\d., ]+) \| ([\d.]+)")
        for member, shown in zip(members, row[1].split(", "), strict=True):
            assert shown in member
        assert row[2] == ", ".join(f"{found[member]:g}" for member in members)
        assert float(row[3]) == mean(found[member] for member in members)
    assert f"Their mean, {mean(found.values())}, is" in TEXT


def test_our_random_policy_breaks_a_tie() -> None:
    row = reference(
        "MiniGrid-DoorKey-16x16-v0",
        max_episode_steps=2560,
        primary_metric="mean_return",
        direction="maximize",
    )
    assert row.random is not None
    assert f"a mean of {row.random}, and" in TEXT
    for entry, shown in (("minimax-m3", "0.516"), ("deepseek-v4-pro", "0.344")):
        assert f"{mean(dict(scores(entry, row.random)).values()):.3f}" == shown
        assert shown in TEXT


def test_the_fields_of_the_document() -> None:
    described = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE)))
    )
    fields = {one.alias or name for name, one in TableFile.model_fields.items()}
    assert fields - {"schema"} <= described


def test_links_lead_somewhere() -> None:
    headings = {
        "#" + re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in TEXT.splitlines()
        if line.startswith("#")
    }
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        path, _, anchor = target.partition("#")
        assert (ROOT / "docs" / path).exists() if path else f"#{anchor}" in headings, target
    for path in re.findall(r"`((?:src|tests)/[\w./-]+)`", TEXT):
        assert (ROOT / path).exists(), path
