"""The table, from records to numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.analysis.records import read_records
from evopolicygym.analysis.scores import final_score
from evopolicygym.analysis.table import RANDOM, make_table
from evopolicygym.analysis.table_models import CellRow, TableFile
from evopolicygym.envs.anchors import anchors
from evopolicygym.errors import ConfigurationError

from .made_runs import agent, make_run

PAPER = json.loads((Path(__file__).parent / "core16_paper.json").read_text())
ACROBOT = "gymnasium/Acrobot-v1"


def table(root: Path, **options: Any) -> TableFile:
    records, left_out = read_records([root])
    return make_table(records, left_out, **options)


def cell(found: TableFile, entry: str, environment: str = "Acrobot-v1") -> CellRow:
    (one,) = [c for c in found.cells if (c.entry, c.environment) == (entry, environment)]
    return one


def only(name: str = "a") -> dict[str, Any]:
    return {"agent": agent(name)}


# ---------------------------------------------------------------------------------- the paper


def test_the_papers_ranking_from_records(tmp_path: Path) -> None:
    """The paper's random policy plays along as an agent, so that its own numbers are ranked."""
    for entry, row in PAPER["heldout_mean_return"].items():
        for environment, score in row.items():
            who = agent("random-policy") if entry == RANDOM else agent("codex", entry)
            place = tmp_path / entry / environment
            make_run(place, f"gymnasium/{environment}", score, agent=who)
    found = table(tmp_path, random_entry=False)
    expected = {
        "random-policy" if entry == RANDOM else f"codex ({entry})": (total, families)
        for (entry, total), families in zip(
            PAPER["rank_score_core16"].items(), PAPER["rank_score_families"].values(), strict=True
        )
    }
    assert (found.entry_count, found.random_entry, found.ties) == (5, False, "best")
    assert [row.entry for row in found.entries] == list(expected), "the best first"
    for row in found.entries:
        total, families = expected[row.entry]
        assert row.rank_score.value is not None
        assert float(f"{row.rank_score.value:.3f}") == total
        assert row.rank_score.environments == 16
        assert {name: s.value for name, s in row.family_rank_scores.items()} == families
    order = [one for family in PAPER["families"].values() for one in family]
    assert [row.environment for row in found.environments] == order
    assert {row.ranked_entries for row in found.environments} == {5}


# -------------------------------------------------------------------------------------- cells


def test_repeats(tmp_path: Path) -> None:
    row = anchors("Acrobot-v1")
    assert row is not None
    assert row.expert is not None
    values = [-100.0, -70.0, -490.0]
    for seed, value in enumerate(values):
        make_run(tmp_path / str(seed), ACROBOT, value, config={"seed": seed}, episodes=30 + seed)
    one = cell(table(tmp_path), "codex")
    finals = [
        final_score(value, random=row.random.mean, expert=row.expert.value) for value in values
    ]
    assert (one.repeats, one.unscored, one.heldout_episodes) == (3, 0, [30, 31, 32])
    assert one.heldout is not None
    assert one.heldout.model_dump() == {"mean": -220.0, "min": -490.0, "max": -70.0, "n": 3}
    assert one.final_score is not None
    assert one.final_score.mean == pytest.approx(sum(finals) / 3)
    assert (one.final_score.min, one.final_score.max) == (min(finals), max(finals))
    assert (one.rank, one.rank_score) == (1.0, 1.0)
    assert (one.no_final_score, one.no_rank_score) == (None, None)


def test_uniform_random_is_an_entry_where_there_are_anchors(tmp_path: Path) -> None:
    make_run(tmp_path / "acrobot", ACROBOT, -499.9)
    make_run(tmp_path / "mine", "mine", 0.5, spec={"max_episode_steps": 20})
    found = table(tmp_path)
    row = anchors("Acrobot-v1")
    assert row is not None
    random = cell(found, RANDOM)
    assert random.heldout is not None
    assert (random.heldout.mean, random.heldout_episodes) == (row.random.mean, [256])
    assert random.final_score is not None
    assert (random.final_score.mean, random.rank, random.usage) == (0.0, 1.0, None)
    assert cell(found, "codex").rank == 2.0, "worse than random"
    nowhere = cell(found, RANDOM, "mine")
    reason = "the catalog has no anchors for mine"
    assert (nowhere.heldout, nowhere.no_rank_score, nowhere.no_final_score) == (
        None,
        reason,
        reason,
    )
    alone = cell(found, "codex", "mine")
    assert alone.heldout is not None
    assert (alone.heldout.mean, alone.rank_score) == (0.5, None)
    assert alone.no_rank_score == "no other entry to rank against"
    assert (alone.final_score, alone.no_final_score) == (None, reason)
    assert [(row.environment, row.ranked_entries) for row in found.environments] == [
        *(("Acrobot-v1", 2), ("mine", 0))
    ]
    without = table(tmp_path, random_entry=False)
    assert [row.entry for row in without.entries] == ["codex"]
    assert cell(without, "codex").rank_score is None
    assert cell(without, "codex").final_score == cell(found, "codex").final_score


def test_missing_cells(tmp_path: Path) -> None:
    for name, environments in (("a", (ACROBOT, "x", "y")), ("b", ("x",)), ("c", (ACROBOT, "x"))):
        for place, environment in enumerate(environments):
            make_run(tmp_path / name / str(place), environment, float(-place), agent=agent(name))
    found = table(tmp_path)
    counts = {row.environment: row.ranked_entries for row in found.environments}
    assert counts == {"Acrobot-v1": 3, "x": 3, "y": 0}
    entries = {row.entry: row for row in found.entries}
    scores = {
        entry: (row.rank_score.value, row.rank_score.environments, row.rank_score.of)
        for entry, row in entries.items()
    }
    # In x: b 0, then a and c with -1. In Acrobot-v1: a and c 0, then random.
    assert scores == {"a": (0.75, 2, 3), "b": (1.0, 1, 3), "c": (0.75, 2, 3), RANDOM: (0.0, 1, 3)}
    missing = cell(found, "b")
    assert (missing.repeats, missing.heldout, missing.rank) == (0, None, None)
    assert missing.no_rank_score == missing.no_final_score == "no Run"
    assert any("Not every entry was ranked in the same environments" in n for n in found.notes)


def test_the_tie_rule_reaches_the_ranks(tmp_path: Path) -> None:
    for name, score in (("a", 1.0), ("b", 1.0), ("c", 0.0)):
        make_run(tmp_path / name, "x", score, agent=agent(name))
    for ties, expected in (("best", 1.0), ("average", 0.75), ("worst", 0.5)):
        found = table(tmp_path, ties=ties)
        assert cell(found, "a", "x").rank_score == cell(found, "b", "x").rank_score == expected
        assert found.ties == ties
        assert ties in found.tie_rule or ties == "average"
        assert cell(found, "c", "x").rank_score == 0.0


def test_smaller_is_better_where_scores_are_minimised(tmp_path: Path) -> None:
    for name, score in (("a", 5.0), ("b", 2.0)):
        make_run(
            tmp_path / name, "x", score, agent=agent(name), spec={"score_direction": "minimize"}
        )
    found = table(tmp_path)
    assert [row.entry for row in found.entries] == ["b", "a"]
    assert found.environments[0].score_direction == "minimize"


# ------------------------------------------------------------------------------------ missing


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"counts": False, "terminal_reason": "rate_limited"}, "it does not count: rate_limited"),
        ({"counts": False, "terminal_reason": "host_failure"}, "it does not count: host_failure"),
        ({"counts": None, "terminal_reason": None, "status": "running", "agent": None},
         "it has not ended, or was killed"),
        ({"score": None, "selected": None, "terminal_reason": "exited", "status": "failed"},
         "nothing was selected; the search ended with exited"),
        ({"score": None, "status": "failed"}, "no held-out Episode could be measured"),
        ({"score": None, "config": {"assessment": None}}, "it was made without Assessment"),
        ({"agent": None}, "no agent was started"),
    ],
)  # fmt: skip
def test_an_unscored_run_is_missing_data(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    make_run(tmp_path / "good", ACROBOT, -100.0)
    make_run(tmp_path / "other", ACROBOT, -200.0, agent=agent("other"))
    before = table(tmp_path)
    make_run(tmp_path / "unscored", ACROBOT, **({"score": -50.0} | changes))
    found = table(tmp_path)
    (listed,) = [run for run in found.runs if not run.scored]
    assert (listed.record, listed.unscored_reason) == (str(tmp_path / "unscored"), reason)
    assert (listed.heldout, listed.final_score, listed.no_final_score) == (None, None, reason)
    assert listed.terminal_reason == changes.get("terminal_reason", "finished")
    assert found.entries == before.entries
    assert cell(found, "codex").heldout == cell(before, "codex").heldout
    assert cell(found, "codex").usage == cell(before, "codex").usage
    if "agent" not in changes:
        assert cell(found, "codex").unscored == 1


def test_an_entry_with_unscored_runs_only(tmp_path: Path) -> None:
    make_run(tmp_path / "a", ACROBOT, None, counts=False, terminal_reason="auth_failed", **only())
    found = table(tmp_path)
    one = cell(found, "a")
    assert (one.repeats, one.unscored, one.rank, one.heldout, one.usage) == (0, 1, None, None, None)
    assert one.no_rank_score == one.no_final_score == "no scored Run; unscored: 1"
    assert [row.entry for row in found.entries] == ["a", RANDOM], "nobody to rank random against"
    assert {row.rank_score.value for row in found.entries} == {None}
    make_run(tmp_path / "b", ACROBOT, agent=agent("b"))
    assert [row.entry for row in table(tmp_path).entries] == ["b", RANDOM, "a"]


def test_another_step_limit_than_the_anchors(tmp_path: Path) -> None:
    make_run(tmp_path / "a", ACROBOT, -90.0, spec={"max_episode_steps": 200}, **only("a"))
    make_run(tmp_path / "b", ACROBOT, -95.0, spec={"max_episode_steps": 200}, **only("b"))
    found = table(tmp_path)
    reason = "the anchors were measured with a step limit of 500, the Runs with 200"
    assert cell(found, "a").no_final_score == found.environments[0].no_random == reason
    assert (cell(found, "a").rank_score, cell(found, "b").rank_score) == (1.0, 0.0)
    assert not found.random_entry


# ------------------------------------------------------------------------------ what it took


def test_unknown_is_not_zero(tmp_path: Path) -> None:
    tokens = {"input": 10, "cache_read": 20, "cache_write": 0, "output": 5}
    known = agent(tokens=tokens, tokens_complete=True, cost_usd=0.5, estimated_cost_usd=0.25)
    make_run(tmp_path / "0", ACROBOT, agent=known)
    used = cell(table(tmp_path), "codex").usage
    assert used is not None
    assert used.model_dump() == {
        "episodes_used": 100.0,
        "submissions": 1.0,
        "wall_seconds": 60.5,
        "tokens": 35.0,
        "tokens_complete": True,
        "cost_usd": 0.5,
        "estimated_cost_usd": 0.25,
    }
    make_run(tmp_path / "1", ACROBOT, agent=known, ended="soon", episodes_used=50)
    used = cell(table(tmp_path), "codex").usage
    assert used is not None
    assert (used.wall_seconds, used.tokens, used.episodes_used) == (None, 35.0, 75.0)
    make_run(tmp_path / "2", ACROBOT, config={"seed": 2}, agent=agent(tokens=tokens, cost_usd=None))
    used = cell(table(tmp_path), "codex").usage
    assert used is not None
    assert (used.tokens, used.tokens_complete) == (35.0, False)
    assert (used.cost_usd, used.estimated_cost_usd) == (None, None)
    make_run(tmp_path / "3", ACROBOT, config={"seed": 3})
    used = cell(table(tmp_path), "codex").usage
    assert used is not None
    assert used.tokens is None


def test_labels(tmp_path: Path) -> None:
    make_run(tmp_path / "0", agent=agent("codex"))
    make_run(tmp_path / "1", agent=agent("codex", "gpt-5.5", model_reported="gpt-5.5-2026"))
    rows = [(row.entry, row.agent, row.model) for row in table(tmp_path).entries]
    assert sorted(rows, key=str) == [
        ("codex (gpt-5.5)", "codex", "gpt-5.5"),
        ("codex", "codex", None),
        (RANDOM, None, None),
    ]
    make_run(tmp_path / "2", agent=agent(RANDOM))
    with pytest.raises(ConfigurationError, match="an agent is called 'uniform-random'"):
        table(tmp_path)


# --------------------------------------------------------------------------------- comparable

DIGEST = "1" * 64


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"config": {"episode_budget": 64}}, "episode_budget is 128 in {0}, 64 in {1}"),
        (
            {"config": {"validation": {"episodes_per_candidate": 8}}},
            "validation.episodes_per_candidate is 16 in {0}, 8 in {1}",
        ),
        (
            {"config": {"assessment": {"episodes": 9, "split": "test"}}},
            "assessment.episodes is 32 in {0}, 9 in {1}",
        ),
        ({"environment_digest": DIGEST}, "environment_digest is "),
        ({"initial_program_digest": DIGEST}, "initial_program_digest is "),
        ({"data": {"train": DIGEST}}, "data is null in {0}, "),
        ({"env": "gym/acrobot"}, 'benchmark_id is "gym/acrobot" in {1}, "gymnasium/Acrobot-v1" in'),
    ],
)  # fmt: skip
def test_other_settings_are_refused(
    changes: dict[str, Any], difference: str, tmp_path: Path
) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    make_run(places[0], agent=agent("a"))
    make_run(places[1], agent=agent("b"), **changes)
    text = difference.format(*places)
    with pytest.raises(ConfigurationError) as raised:
        table(tmp_path)
    assert f"Acrobot-v1: {text}" in str(raised.value)
    assert "--allow-mixed" in str(raised.value)
    found = table(tmp_path, allow_mixed=True)
    assert found.mixed
    assert any(note.startswith(f"Mixed: Acrobot-v1: {text}") for note in found.notes)
    assert found.environments[0].settings is None
    assert cell(found, "a").heldout is not None


@pytest.mark.parametrize(
    "changes", [{"jobs": 9}, {"agent_retries": 9}, {"episode_pool_size": 128}, {"port": 1}]
)
def test_what_changes_no_score_may_differ(changes: dict[str, Any], tmp_path: Path) -> None:
    make_run(tmp_path / "a", agent=agent("a"))
    make_run(tmp_path / "b", agent=agent("b"), config=changes)
    found = table(tmp_path)
    assert not found.mixed
    assert found.environments[0].settings is not None


def test_other_environments_may_differ(tmp_path: Path) -> None:
    make_run(tmp_path / "a", ACROBOT)
    make_run(tmp_path / "b", "gymnasium/Ant-v5", config={"episode_budget": 1}, agent=agent("b"))
    assert not table(tmp_path).mixed


def test_an_unscored_run_may_differ(tmp_path: Path) -> None:
    make_run(tmp_path / "a", ACROBOT)
    make_run(tmp_path / "b", ACROBOT, None, counts=False, config={"episode_budget": 1})
    assert not table(tmp_path).mixed


def test_repeats_have_the_same_options(tmp_path: Path) -> None:
    make_run(tmp_path / "a", agent=agent())
    make_run(tmp_path / "b", agent=agent(description={"options": {"effort": "low"}}))
    text = f'Acrobot-v1, codex: agent\'s options.effort is "high" in {tmp_path / "a"}, "low" in'
    with pytest.raises(ConfigurationError, match="are not comparable") as raised:
        table(tmp_path)
    assert text in str(raised.value)
    assert table(tmp_path, allow_mixed=True).mixed


def test_repeats_have_the_same_skills(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", skills=[{"name": "x", "digest": DIGEST}])
    with pytest.raises(ConfigurationError, match="Acrobot-v1, codex: skills is "):
        table(tmp_path)


def test_entries_share_a_seed(tmp_path: Path) -> None:
    for entry, seeds in (("a", (0, 1)), ("b", (1, 2))):
        for seed in seeds:
            make_run(tmp_path / entry / str(seed), config={"seed": seed}, agent=agent(entry))
    assert not table(tmp_path).mixed
    make_run(tmp_path / "c", config={"seed": 0}, agent=agent("c"))
    text = r"Acrobot-v1: b \(seeds 1, 2\) and c \(seeds 0\) have no seed in common"
    with pytest.raises(ConfigurationError, match=text):
        table(tmp_path)
    assert table(tmp_path, allow_mixed=True).mixed


@pytest.mark.parametrize("spec", [{"score_direction": "minimize"}, {"primary_metric": "wins"}])
def test_two_kinds_of_scores_are_never_mixed(spec: dict[str, Any], tmp_path: Path) -> None:
    make_run(tmp_path / "a", agent=agent("a"))
    make_run(tmp_path / "b", agent=agent("b"), spec=spec)
    with pytest.raises(ConfigurationError, match="Runs can't be compared: Acrobot-v1: "):
        table(tmp_path, allow_mixed=True)


def test_mixed_step_limits(tmp_path: Path) -> None:
    make_run(tmp_path / "a", ACROBOT, -90.0)
    make_run(
        tmp_path / "b", ACROBOT, -95.0, spec={"max_episode_steps": 9}, environment_digest=DIGEST
    )
    found = table(tmp_path, allow_mixed=True)
    one = cell(found, "codex")
    assert one.repeats == 2
    assert one.final_score is None, (
        "a mean of one Run of two would not belong to the mean beside it"
    )
    assert one.no_final_score is not None
    assert "the Runs with 9" in one.no_final_score
    assert found.environments[0].no_random == "the Runs have different step limits"
    assert [run.final_score is None for run in found.runs] == [False, True]


def test_other_versions_than_the_anchors_are_noted(tmp_path: Path) -> None:
    row = anchors("Acrobot-v1")
    assert row is not None
    make_run(tmp_path / "a", versions={"gymnasium": row.versions["gymnasium"], "python": "3.99"})
    assert table(tmp_path).notes == []
    make_run(tmp_path / "b", versions={"gymnasium": "0.1"}, config={"seed": 1})
    (note,) = table(tmp_path).notes
    assert note == (
        "Acrobot-v1: anchors and Runs were made with different versions of gymnasium: "
        f"0.1, {row.versions['gymnasium']}."
    )


# ------------------------------------------------------------------------------- the document


def test_equal_runs_give_equal_tables(tmp_path: Path) -> None:
    for seed in range(3):
        for name in ("b", "a"):
            place = tmp_path / name / str(seed)
            make_run(place, ACROBOT, -1.1 * seed, config={"seed": seed}, agent=agent(name))
    records, left_out = read_records([tmp_path])
    documents = {
        json.dumps(make_table(order, left_out).model_dump(mode="json", by_alias=True))
        for order in (records, records[::-1], records[1::2] + records[::2])
    }
    assert len(documents) == 1
    document = json.loads(documents.pop())
    assert document["schema"] == "evopolicygym.table/1"
    assert TableFile.model_validate(document) == make_table(records, left_out)


def test_who_comes_empty_handed_has_the_last_rank(tmp_path: Path) -> None:
    make_run(tmp_path / "a", ACROBOT, -490.0, **only("a"))
    make_run(tmp_path / "b", ACROBOT, None, **only("b"), selected=None, terminal_reason="timed_out")
    make_run(
        tmp_path / "c", ACROBOT, None, **only("c"), counts=False, terminal_reason="rate_limited"
    )
    found = table(tmp_path)
    assert (cell(found, "a").rank, cell(found, RANDOM).rank) == (1.0, 2.0)
    empty, unscored = cell(found, "b"), cell(found, "c")
    assert (empty.rank, empty.rank_score, empty.heldout) == (3.0, 0.0, None)
    assert empty.final_score is None
    assert (unscored.rank, unscored.rank_score) == (None, None)


def test_a_label_names_the_entry(tmp_path: Path) -> None:
    make_run(tmp_path / "a", ACROBOT, -490.0, **only("a"), label="first")
    make_run(tmp_path / "b", ACROBOT, -400.0, **only("a"), label="second")
    assert {row.entry for row in table(tmp_path).entries} == {"first", "second", RANDOM}
