"""`evopolicygym table`, end to end, on Runs that were played."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from evopolicygym.run.files import read_json, write_json

from .tools import Preloaded, files

pytestmark = pytest.mark.damaged_record()  # some records are edited

RUN = ("run", "--env", "gym/cartpole", "--jobs", "1", "--valid-size", "2", "--final-size", "4")


@pytest.fixture(scope="module")
def runs(preloaded: Preloaded, finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two environments, one of them with anchors, and an agent that hands over nothing."""
    home = tmp_path_factory.mktemp("table")
    shutil.copytree(finished, home / "runs" / "toy")
    searched = preloaded(*RUN, "--budget", "4", "--root", "runs/search", cwd=home)
    assert searched.code == 0, searched
    options = ("--budget", "4", "--root", "runs/true", "--agent", "command", "--", "true")
    assert preloaded(*RUN, *options, cwd=home).code == 1
    return home


def changed(source: Path, target: Path, **changes: object) -> None:
    shutil.copytree(source, target)
    write_json(target / "run.json", read_json(target / "run.json") | changes)


def test_a_table_of_runs(preloaded: Preloaded, runs: Path) -> None:
    before = files(runs)
    table = preloaded("table", "runs", "--json", cwd=runs).json
    assert table["schema"] == "evopolicygym.table/1"
    assert (table["ties"], table["entry_count"], table["mixed"]) == ("best", 3, False)
    assert [row["entry"] for row in table["entries"]][-1] == "command", "it handed over nothing"
    cells = {(cell["entry"], cell["environment"]): cell for cell in table["cells"]}
    assert len(cells) == 6
    score = read_json(runs / "runs" / "search" / "run.json")["assessment_score"]
    found = cells["search", "CartPole-v1"]
    assert found["heldout"] == {"mean": score, "min": score, "max": score, "n": 1}
    assert found["heldout_episodes"] == [4]
    ranks = [cells[one, "CartPole-v1"]["rank_score"] for one in ("search", "uniform-random")]
    assert ranks == ([1.0, 0.5] if score > 21.410156 else [0.5, 1.0])
    assert cells["command", "CartPole-v1"]["rank_score"] == 0.0
    expected = 100 * max(0.0, min(1.2, (score - 21.410156) / (475.0 - 21.410156)))
    assert found["final_score"]["mean"] == pytest.approx(expected)
    assert found["usage"]["episodes_used"] == 4.0
    assert (found["usage"]["tokens"], found["usage"]["cost_usd"]) == (None, None)
    toy = cells["search", "toy"]
    assert toy["heldout"]["n"] == 1
    assert toy["final_score"]["n"] == 1
    (unscored,) = [run for run in table["runs"] if not run["scored"]]
    assert (unscored["record"], unscored["terminal_reason"]) == ("runs/true", "exited")
    assert unscored["unscored_reason"] == "nothing was selected; the search ended with exited"
    assert files(runs) == before, "nothing was written"


def test_to_a_person(preloaded: Preloaded, runs: Path) -> None:
    done = preloaded("table", "runs", "--ties", "worst", "--no-random", cwd=runs)
    assert done.code == 0, done
    assert "Ties: worst, equal means share the worst of their ranks." in done.stdout
    assert "Entries: 2, agents only." in done.stdout
    assert "uniform-random" not in done.stdout
    assert "Unscored Runs: missing data, not 0" in done.stdout
    assert "reward_threshold of CartPole-v1" in done.stdout


def test_into_files(preloaded: Preloaded, runs: Path, tmp_path: Path) -> None:
    source = str(runs / "runs")
    starts = {
        "t.md": "**Ranking",
        "t.csv": "row,entry,environment,",
        "t.json": '{\n  "schema": "evopolicygym.table/1",',
        "t.tex": "\\begin{table}",
        "t.txt": "Ranking",
        "t": "Ranking",
    }
    for name, start in starts.items():
        done = preloaded("table", source, "--output", name, cwd=tmp_path)
        assert (done.code, done.stdout) == (0, f"wrote {name}\n"), done
        assert (tmp_path / name).read_text().startswith(start)
    for kind, name in (
        ("markdown", "t.md"),
        ("csv", "t.csv"),
        ("json", "t.json"),
        ("latex", "t.tex"),
    ):
        shown = preloaded("table", source, "--format", kind, cwd=tmp_path)
        assert shown.stdout == (tmp_path / name).read_text()
    done = preloaded("table", source, "--output", "t.md", "--format", "csv", "--json", cwd=tmp_path)
    assert done.json == json.loads((tmp_path / "t.json").read_text())
    assert (tmp_path / "t.md").read_text() == (tmp_path / "t.csv").read_text()


def test_other_settings_are_refused(preloaded: Preloaded, runs: Path, tmp_path: Path) -> None:
    good = runs / "runs" / "search"
    config = read_json(good / "run.json")["config"]
    shutil.copytree(good, tmp_path / "a")
    changed(good, tmp_path / "b", config=config | {"episode_budget": 9, "seed": 1})
    done = preloaded("table", ".", cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert "CartPole-v1: episode_budget is 4 in a, 9 in b" in done.message
    table = preloaded("table", ".", "--allow-mixed", "--json", cwd=tmp_path).json
    assert table["mixed"]
    assert table["cells"][0]["repeats"] == 2


def test_what_cannot_be_read(preloaded: Preloaded, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "runs" / "search", tmp_path / "a")
    changed(tmp_path / "a", tmp_path / "b", schema="evopolicygym.run/9")
    done = preloaded("table", ".", cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert "b/run.json has the schema 'evopolicygym.run/9', expected" in done.message
    table = preloaded("table", ".", "--skip-unreadable", "--json", cwd=tmp_path).json
    (left_out,) = table["left_out"]
    assert left_out["record"] == "b"
    assert len(table["runs"]) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("no",), "no does not exist: expected a directory with Runs in it"),
        ((".",), "there is no Run in .: expected a run.json in it, or below"),
        (
            ("RUNS", "--format", "html"),
            "--format is 'html', expected terminal, markdown, csv, json",
        ),
        (("RUNS", "--format", "latx"), "Did you mean 'latex'?"),
        (("RUNS", "--ties", "first"), "--ties is 'first', expected best, average or worst."),
        (("RUNS", "--json", "--format", "csv"), "--json prints JSON: leave out --format"),
        (("RUNS", "--output", "no/t.md"), "no/t.md can't be written: No such file or directory"),
        ((), "Missing argument"),
    ],
)
def test_bad_input(
    options: tuple[str, ...], message: str, preloaded: Preloaded, runs: Path, tmp_path: Path
) -> None:
    named = [str(runs / "runs") if option == "RUNS" else option for option in options]
    done = preloaded("table", *named, cwd=tmp_path)
    assert (done.code, done.stdout) == (2, ""), done
    assert message in done.message
    assert not list(tmp_path.iterdir())
