"""Finding and reading records."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evopolicygym.analysis.records import LeftOut, read_record, read_records
from evopolicygym.errors import ConfigurationError, RecordError
from evopolicygym.run.files import read_json, write_json

from .made_runs import make_run


def names(directories: list[Path], root: Path) -> list[str]:
    records, left_out = read_records(directories)
    assert not left_out
    return [str(record.path.relative_to(root)) for record in records]


def test_what_a_record_tells(tmp_path: Path) -> None:
    record = read_record(make_run(tmp_path / "run", episodes=8, faults=3))
    assert record.path == tmp_path / "run"
    assert record.run.assessment_score == -100.0
    assert (record.spec.max_episode_steps, record.spec.score_direction) == (500, "maximize")
    assert (record.config.seed, record.heldout_episodes) == (0, 5)
    assert read_record(make_run(tmp_path / "none", score=None)).heldout_episodes is None


def test_they_are_found_at_any_depth_in_order_and_once(tmp_path: Path) -> None:
    for seed, name in enumerate(("b/2", "b/1", "a", "c/d/e/f")):
        make_run(tmp_path / name, config={"seed": seed})
    expected = ["a", "b/1", "b/2", "c/d/e/f"]
    assert names([tmp_path], tmp_path) == expected
    assert names([tmp_path / "b", tmp_path, tmp_path / "b" / "1"], tmp_path) == [
        *("b/1", "b/2", "a", "c/d/e/f")
    ]
    assert names([tmp_path / "a"], tmp_path) == ["a"], "a record itself"


def test_nothing_is_looked_for_where_an_agent_writes(tmp_path: Path) -> None:
    record = make_run(tmp_path / "run")
    make_run(record / "workspace" / "forged", score=0.0)
    assert names([tmp_path], tmp_path) == ["run"]


def test_hidden_directories_and_links_are_passed_over(tmp_path: Path) -> None:
    record = make_run(tmp_path / "runs" / "one")
    make_run(tmp_path / "runs" / ".old" / "one", config={"seed": 1})
    (tmp_path / "runs" / "link").symlink_to(make_run(tmp_path / "else", config={"seed": 2}))
    (tmp_path / "way").symlink_to(tmp_path / "runs")
    assert names([tmp_path / "runs"], tmp_path) == ["runs/one"]
    records, _ = read_records([tmp_path / "way"])
    assert [one.path.resolve() for one in records] == [record]


def test_a_copy_is_not_a_repeat(tmp_path: Path) -> None:
    first = make_run(tmp_path / "runs")
    shutil.copytree(first, tmp_path / "z-backup")
    records, left_out = read_records([tmp_path])
    assert [record.path for record in records] == [first]
    assert left_out == [LeftOut(tmp_path / "z-backup", f"a copy of {first}")]


def test_directories_without_records(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, message in (
        ("missing", "missing does not exist: expected a directory with Runs in it"),
        ("file", "file is no directory: expected"),
        (".", "there is no Run in .*: expected a run.json in it, or below"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            read_records([tmp_path / name])


def _text(name: str, text: str) -> Callable[[Path], object]:
    return lambda root: (root / name).write_text(text)


def _changed(**changes: object) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        write_json(root / "run.json", read_json(root / "run.json") | changes)

    return change


def _pipe(root: Path) -> None:
    (root / "run.json").unlink()
    os.mkfifo(root / "run.json")


EPISODES = "assessment/submission-000001/episodes.json"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_text("run.json", "{"), "run.json is not valid JSON"),
        (_text("run.json", "[]"), "run.json holds list, expected a JSON object"),
        (_text("run.json", '{"assessment_score": NaN}'), "run.json is not valid JSON"),
        (_text("run.json", "[" * 100_000), "run.json is not valid JSON: "),
        (_text("run.json", "{}"), "run.json has the schema None, expected 'evopolicygym.run/1'"),
        (_changed(schema="evopolicygym.run/2"), "has the schema 'evopolicygym.run/2', expected"),
        (_changed(assessment_score="NaN"), "run.json: assessment_score: Input should be a valid"),
        (_changed(counts="yes"), "run.json: counts: Input should be a valid boolean"),
        (_changed(status="fine"), "run.json: status: Input should be 'running', 'done' or"),
        (_changed(more=1), "run.json: more: Extra inputs are not permitted"),
        (_changed(spec={}), "run.json: spec.max_episode_steps: Field required"),
        (_changed(config={"assessment": None, "seed": "0"}), "run.json: config.seed: Input should"),
        (lambda root: (root / EPISODES).unlink(), "episodes.json can't be read: No such file"),
        (_text(EPISODES, "{}"), "episodes.json: split: Field required"),
        (_changed(selected=None), "assessment/None/episodes.json can't be read"),
        (_pipe, "run.json can't be read: it is no regular file"),
    ],
)
def test_what_cannot_be_read(
    damage: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    good = make_run(tmp_path / "good")
    bad = make_run(tmp_path / "bad", config={"seed": 1})
    damage(bad)
    with pytest.raises(RecordError) as raised:
        read_records([tmp_path])
    assert message in str(raised.value)
    assert str(bad) in str(raised.value)
    records, left_out = read_records([tmp_path], skip_unreadable=True)
    assert [record.path for record in records] == [good]
    assert left_out == [LeftOut(bad, str(raised.value))]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_a_directory_that_cannot_be_looked_into(tmp_path: Path) -> None:
    make_run(tmp_path / "good")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    with pytest.raises(RecordError, match="closed can't be read: Permission denied"):
        read_records([tmp_path])
    _, left_out = read_records([tmp_path], skip_unreadable=True)
    assert [one.path for one in left_out] == [closed]
