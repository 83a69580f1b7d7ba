"""`check-envs` and `discover-envs`, as a person and a program use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .tools import CLI, Preloaded, command


def test_ids_that_run_are_said_to_run(tmp_path: Path) -> None:
    options = ["--env", "toy", "--env", "gym/cartpole", "--jobs", "2"]
    done = command(CLI, "check-envs", *options, "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    report = done.json
    assert report["passed"]
    assert report["installation"] is None
    toy, cartpole = report["environments"]
    assert (toy["id"], toy["status"], toy["deterministic"], toy["conforms"]) == (
        *("toy", "ok", True, True),
    )
    assert (cartpole["family"], cartpole["reason"]) == ("gymnasium", "")
    assert cartpole["level"] >= "L3"
    assert cartpole["failure_return_known"]
    assert report["summary"]["gymnasium"]["L3"] == 1
    assert "2/2" in done.stderr


def test_without_isolation_nothing_is_said_about_other_processes(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    done = preloaded("check-envs", "--env", "gym/cartpole", "--no-isolate", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    (row,) = done.json["environments"]
    assert (row["level"], row["deterministic"], row["conforms"]) == ("L2", None, True)


def test_a_table_for_a_person(preloaded: Preloaded, tmp_path: Path) -> None:
    done = preloaded("check-envs", "--env", "gym/cartpole", cwd=tmp_path)
    assert done.code == 0, done.stderr
    for word in ("gym/cartpole", "ok", "by family"):
        assert word in done.stdout


def test_what_is_known_not_to_run_is_expected(preloaded: Preloaded, tmp_path: Path) -> None:
    done = preloaded("check-envs", "--env", "gymnasium/Hopper-v2", "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    (row,) = done.json["environments"]
    assert (row["level"], row["status"]) == ("L0", "expected")
    assert "mujoco_py" in row["known_failure"]


def test_below_the_level_is_exit_code_1(preloaded: Preloaded, tmp_path: Path) -> None:
    # A first step takes longer than this.
    options = ["--env", "gym/cartpole", "--timeout", "0.001", "--json"]
    done = preloaded("check-envs", *options, cwd=tmp_path)
    assert done.code == 1
    (row,) = done.json["environments"]
    assert (row["level"], row["status"]) == ("L0", "failed")
    assert row["reason"] == "load: no end within 0.001 s"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env", "toyy"], "unknown environment 'toyy'. Did you mean 'toy'"),
        (["--env", "gymnasium/CartPole-v9"], "Did you mean 'CartPole-v1'"),
        (["--env", "toy", "--bulk"], "expected --env or --bulk, not both"),
        (["--env", "toy", "--min-level", "L5"], "--min-level is 'L5', expected L0, L1, L2, L3, L4"),
        (["--env", "toy", "--jobs", "0"], "--jobs is 0, expected >= 1"),
        (["--env", "toy", "--limit", "0"], "--limit is 0, expected >= 1"),
        (["--env", "toy", "--timeout", "nan"], "--timeout is nan, expected seconds"),
        (["--family", "minigird"], "Did you mean 'minigrid'"),
        (["--extra", "env-gim"], "Did you mean 'env-gym'"),
        (["--env", "toy", "--family", "ale"], "there is nothing to check"),
    ],
)
def test_bad_input(preloaded: Preloaded, tmp_path: Path, argv: list[str], message: str) -> None:
    done = preloaded("check-envs", *argv, cwd=tmp_path)
    assert done.code == 2
    assert message in done.message
    assert done.stdout == ""


def test_listing_starts_no_check(preloaded: Preloaded, tmp_path: Path) -> None:
    done = preloaded("check-envs", "--discover", "--family", "minigrid", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "gymnasium/MiniGrid-FourRooms-v0" in done.stdout.splitlines()
    assert done.stderr == ""


def test_what_is_installed_is_written_the_same_twice(preloaded: Preloaded, tmp_path: Path) -> None:
    few = ["--bulk", "--family", "gymnasium", "--limit", "2", "--json"]
    checked = preloaded("check-envs", *few, cwd=tmp_path)
    (tmp_path / "checked.json").write_text(checked.stdout)
    pages = []
    for name in ("first", "second"):
        options = ["--output", f"{name}.json", "--markdown", f"{name}.md"]
        done = preloaded("discover-envs", *options, "--checked", "checked.json", cwd=tmp_path)
        assert done.code == 0, done.stderr
        assert f"wrote {name}.json" in done.stdout
        pages.append([(tmp_path / f"{name}.{kind}").read_text() for kind in ("json", "md")])
    assert pages[0] == pages[1]
    document = json.loads(pages[0][0])
    families = {family["name"]: family for family in document["families"]}
    assert families["gymnasium"]["counts"]["checked"] == 2
    assert families["gymnasium"]["versions"].keys() == {"gymnasium"}
    assert "mujoco" in families["gymnasium"]["simulators"]
    rows = {row["id"]: row for row in families["gymnasium"]["environments"]}
    for row in checked.json["environments"]:
        assert rows[row["id"]]["level"] == row["level"]
        assert f"| `{row['id']}` | {row['level']} |" in pages[0][1]
    assert "level" not in rows["gymnasium/CartPole-v1"]
    assert str(tmp_path) not in "".join(pages[0])


def test_a_result_file_that_is_none(preloaded: Preloaded, tmp_path: Path) -> None:
    (tmp_path / "checked.json").write_text('{"installation": null, "environments": [{}]}')
    done = preloaded("discover-envs", "--checked", "checked.json", cwd=tmp_path)
    assert done.code == 2
    assert "--checked checked.json is not what `check-envs [--bulk] --json` prints" in done.message
    done = preloaded("discover-envs", "--checked", "missing.json", cwd=tmp_path)
    assert done.code == 2
    assert "missing.json: No such file or directory" in done.message
