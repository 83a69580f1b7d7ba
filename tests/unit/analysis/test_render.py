"""The table as text: every format, and what a hostile name can do to it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from evopolicygym.analysis.records import LeftOut, read_records
from evopolicygym.analysis.render import FORMATS, Format, print_table, render
from evopolicygym.analysis.table import RANDOM, make_table
from evopolicygym.analysis.table_models import RunRow, TableFile
from evopolicygym.envs.anchors import anchors

from .made_runs import agent, make_run

KINDS: tuple[Format, ...] = get_args(Format)
HOSTILE = "a_b&c|d$e#f%g{h}\\i~j^k<b>`*\n\x1b[31mred [bold]"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> TableFile:
    root = tmp_path_factory.mktemp("runs")
    for seed, score in enumerate((-100.0, -80.5)):
        make_run(root / "a" / str(seed), score=score, config={"seed": seed}, agent=agent("a"))
    tokens = {"input": 1000, "cache_read": 0, "cache_write": 0, "output": 234}
    cost = {"tokens": tokens, "tokens_complete": True, "estimated_cost_usd": 1.5}
    make_run(root / "b", score=-90.0, agent=agent("b", "m", **cost))
    make_run(root / "mine", "mine", 0.25, agent=agent("a"), spec={"max_episode_steps": 20})
    make_run(root / "bad", score=None, counts=False, terminal_reason="rate_limited",
             message=HOSTILE, agent=agent(HOSTILE))  # fmt: skip
    records, _ = read_records([root])
    return make_table(records, [LeftOut(Path("old"), "a copy of new")], ties="average")


@pytest.fixture(scope="module")
def texts(table: TableFile) -> dict[Format, str]:
    return {kind: render(table, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_says_what_its_numbers_depend_on(
    kind: Format, texts: dict[Format, str]
) -> None:
    text = texts[kind]
    assert "average" in text
    assert "envs/anchors.toml" in text
    assert re.search(r"Entries: 4|\"entry_count\": 4|,average,4,", text)
    assert "uniform random policy, 256 Episodes of split test, seed 0" in text.replace("\n", " ")
    assert "best entry, gpt-5.5; arXiv 2607.02440" in text
    assert "rate_limited" in text.replace("\\", ""), "unscored Runs are listed"
    assert "no anchors for mine" in text
    assert "\x1b" not in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("kind", ["terminal", "markdown", "latex"])
def test_what_a_person_reads(kind: Format, texts: dict[Format, str]) -> None:
    text = re.sub(r"[│┃|&\\ ]+", " ", texts[kind].replace("$-$", "-"))
    assert re.search(r"-90\.25 \[ ?-100\.0, -80\.50 ?\] \(n = 2\)", text), "mean and range"
    assert "-90.00 (n = 1)" in text
    assert re.search(r"b \(m\) 1 0 32 100 1 60 1234 1\.50 \(estimated\)", text)
    assert re.search(r"Acrobot-v1 a 2 0 32 100 1 60 (–|--) (–|--)", text), "unknown is not 0"
    assert "a copy of new" in text
    assert re.search(r"a 0\.500 1 of 2 0\.500 \(1 of 4\) 98\.7 1 of 2", text)


def one_line(text: str) -> str:
    return re.sub(r"[\n\x1b]+", " ", text)


def test_json_is_the_document(table: TableFile, texts: dict[Format, str]) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(texts["json"], parse_constant=refuse)
    assert document["schema"] == "evopolicygym.table/1"
    assert TableFile.model_validate(document) == table


def test_csv_holds_the_same_numbers(table: TableFile, texts: dict[Format, str]) -> None:
    rows = list(csv.DictReader(io.StringIO(texts["csv"])))
    assert {row["row"] for row in rows} == {"total", "family", "cell", "unscored"}
    assert {(row["ties"], row["entry_count"]) for row in rows} == {("average", "4")}
    cells = [row for row in rows if row["row"] == "cell"]
    assert len(cells) == len(table.cells) == 8
    for row, cell in zip(cells, table.cells, strict=True):
        assert (row["entry"], row["environment"]) == (one_line(cell.entry), cell.environment)
        assert row["rank_score"] == ("" if cell.rank_score is None else str(cell.rank_score))
        assert row["heldout_mean"] == ("" if cell.heldout is None else str(cell.heldout.mean))
        assert row["tokens"] == (
            "" if cell.usage is None or cell.usage.tokens is None else str(cell.usage.tokens)
        )
    totals = {row["entry"]: row for row in rows if row["row"] == "total"}
    assert totals["a"]["rank_score"] == "0.5"
    assert (totals["a"]["environments"], totals["a"]["of"]) == ("1", "2")
    assert float(totals[RANDOM]["final_score"]) == 0.0
    acrobot = anchors("Acrobot-v1")
    assert acrobot is not None
    assert float(cells[0]["random"]) == acrobot.random.mean
    (unscored,) = [row for row in rows if row["row"] == "unscored"]
    assert (unscored["entry"], unscored["terminal_reason"]) == (one_line(HOSTILE), "rate_limited")
    assert None not in rows[0], "no row is longer than the header"


def test_equal_tables_give_equal_texts(table: TableFile, texts: dict[Format, str]) -> None:
    again = TableFile.model_validate(table.model_dump(by_alias=True))
    assert {kind: render(again, kind) for kind in KINDS} == texts


def test_a_narrow_terminal_folds_and_drops_nothing(table: TableFile) -> None:
    text = io.StringIO()
    print_table(table, Console(file=text, width=100, color_system=None))
    assert max(map(len, text.getvalue().splitlines())) <= 100
    assert "…" not in text.getvalue()


# -------------------------------------------------------------------------------- hostile text

TEXT = st.text(st.characters(max_codepoint=0x2FF) | st.sampled_from(HOSTILE), max_size=12)


def named(table: TableFile, name: str) -> TableFile:
    """Return a table in which an unscored Run and its record are called something else."""

    def renamed(run: RunRow) -> RunRow:
        changes: dict[str, Any] = {"entry": name, "message": name, "record": name}
        return run if run.scored else run.model_copy(update=changes)

    return table.model_copy(update={"runs": [renamed(run) for run in table.runs]})


@given(name=TEXT)
def test_markdown_keeps_its_columns(name: str, table: TableFile) -> None:
    lines = render(named(table, name), "markdown").split("\n")
    rows = [line for line in lines if line.startswith("|")]
    (start,) = [
        i for i, row in enumerate(rows) if row.startswith("| Environment | Entry | Terminal")
    ]
    for row in rows[start : start + 3]:
        bare = re.sub(r"\\.", "", row)
        assert bare.count("|") == 7
        assert not re.search(r"[`*_<>&$~{}]", bare)


@given(name=TEXT)
def test_latex_has_no_special_characters_of_a_name(name: str, table: TableFile) -> None:
    text = render(named(table, name), "latex")
    (row,) = [line for line in text.splitlines() if "rate\\_limited &" in line]
    commands = r"\\text(backslash|asciitilde|asciicircum|less|greater|bar|quotedbl)\{\}"
    bare = re.sub(commands + r"|\\ldots\{\}|\$(-|\\geq)\$|\\[&%$#_{}]", "", row)
    assert bare.endswith(r" \\")
    bare = bare.removesuffix(r"\\").replace("{[", "[").replace("{*", "*")
    assert bare.count("&") == 5
    assert not re.search(r"[\\$#%_~^<>|\"{]", bare)


@settings(max_examples=20)
@given(name=TEXT)
def test_the_terminal_is_not_driven(name: str, table: TableFile) -> None:
    text = render(named(table, name), "terminal")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_names_are_shown_as_they_are(table: TableFile) -> None:
    assert "[bold]x[/bold] :smile:" in render(named(table, "[bold]x[/bold] :smile:"), "terminal")


def test_endings() -> None:
    assert set(FORMATS.values()) == set(KINDS)
