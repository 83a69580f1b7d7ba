"""`evopolicygym anchors`, and the comparison with the paper that uses the same policy."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from evopolicygym.envs.anchors import anchors_file, read_anchors

from .tools import ROOT, Preloaded, command

FEW = ("--jobs", "1", "--episodes")


def test_it_prints_means_and_intervals(preloaded: Preloaded, tmp_path: Path) -> None:
    done = preloaded("anchors", "--env", "toy", *FEW, "30", "--json", cwd=tmp_path)
    assert done.code == 0, done
    assert (done.json["split"], done.json["seed"], done.json["written"]) == ("test", 0, None)
    (row,) = done.json["anchors"]
    assert row["env_id"] == "toy"
    assert row["expert"]["source"].startswith("benchmarks/experts/toy")
    for policy in (row["random"], row["noop"]):
        low, high = policy["interval"]
        assert low < policy["mean"] < high
        assert policy["episodes"] == 30
    text = preloaded("anchors", "--env", "toy", *FEW, "2", "--seed", "1", cwd=tmp_path)
    assert text.code == 0
    assert "seed 1; normal 95 % interval from 30 Episodes on" in text.stdout
    assert "–" in text.stdout, "no interval of 2"
    assert not list(tmp_path.iterdir())


def test_it_writes_a_row_and_leaves_the_others(preloaded: Preloaded, tmp_path: Path) -> None:
    copy = tmp_path / "rows.toml"
    shutil.copy(anchors_file(), copy)
    before, options = read_anchors(copy), ("--write", "--file", str(copy))
    done = preloaded("anchors", "--env", "gym/cliff", *FEW, "2", *options, cwd=tmp_path)
    assert done.code == 0, done
    assert "written:" in done.stdout
    after, content = read_anchors(copy), copy.read_bytes()
    row = after["CliffWalking-v1"]
    assert (row.benchmark, row.max_episode_steps) == ("gym/cliff", 200)
    assert (row.noop.mean, row.random.episodes) == (-200.0, 2)
    assert row.versions.keys() == {"gymnasium", "numpy"}
    assert before | {"CliffWalking-v1": row} == after
    preloaded("anchors", "--env", "gym/cliff", *FEW, "2", *options, cwd=tmp_path)
    assert copy.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["rows.toml"]


def test_an_expert_that_is_there_stays(preloaded: Preloaded, tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    options = ("--env", "gym/taxi", *FEW, "2", "--write", "--file", path.name)
    assert preloaded("anchors", *options, cwd=tmp_path).code == 0
    text = path.read_text()
    assert 'value = 8.0, kind = "threshold", source = "reward_threshold of Taxi-v4' in text
    path.write_text(text.replace("value = 8.0", "value = 7.9"))
    assert preloaded("anchors", *options, cwd=tmp_path).code == 0
    assert "value = 7.9" in path.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "nothing to measure: give --env ID or --suite core16"),
        (("--env", "toi"), "unknown environment 'toi'. Did you mean 'toy'?"),
        (("--suite", "core-16"), "--suite is 'core-16', expected core16. Did you mean 'core16'?"),
        (("--env", "toy", "--episodes", "1"), "--episodes is 1, expected an integer in [2, "),
        (("--env", "toy", "--seed", "-1"), "--seed is -1"),
        (("--env", "toy", "--jobs", "0"), "--jobs is 0"),
        (("--env", "toy", "--file", "x.toml"), "--file is what --write updates: give both"),
        (("--env", "toy", "--write", "--file", "no/x.toml"), "no/x.toml"),
        (("--env", "toy", "--write", "--file", "."), "Is a directory"),
    ],
)
def test_bad_input(
    options: tuple[str, ...], message: str, preloaded: Preloaded, tmp_path: Path
) -> None:
    done = preloaded("anchors", "--episodes", "2", *options, cwd=tmp_path)
    assert done.code == 2, done
    assert message in done.message
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_not_overwritten(preloaded: Preloaded, tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text("[toy]\nmean = 1\n")
    options = ("--env", "toy", *FEW, "2", "--write", "--file", path.name)
    done = preloaded("anchors", *options, cwd=tmp_path)
    assert done.code == 1
    assert "error: rows.toml: toy." in done.stderr
    assert path.read_text() == "[toy]\nmean = 1\n"


def test_core16_random(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "core16_random.py"
    options = ("figures.json", "--env", "MountainCarContinuous-v0", "--episodes", "4")
    done = command(sys.executable, script, *options, cwd=tmp_path)
    (row,) = json.loads((tmp_path / "figures.json").read_text())["rows"]
    assert abs(row["difference"]) <= row["tolerance"]
    assert (done.code, row["agrees"], row["episodes"]) == (0, True, 4)
    assert "| agrees (4 Episodes, not 256) |" in done.stdout
    done = command(sys.executable, script, *options, "--episodes-of", "Ant-v5=9", cwd=tmp_path)
    assert done.code == 2
    assert "--episodes-of Ant-v5=9: expected one of the environments" in done.stderr
