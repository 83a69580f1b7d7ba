"""`suite`: many Runs by one file, whatever happens on the way."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from .tools import CLI, ROOT, Done, check_record, command, environment, processes, wait_until

SMOKE = ROOT / "config" / "smoke-8-suite.toml"


def suite(*argv: str | Path, cwd: Path, timeout: float = 110) -> Done:
    return command(CLI, "suite", *map(str, argv), cwd=cwd, timeout=timeout)


def events(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def cells(done: Done) -> dict[str, dict[str, Any]]:
    last = events(done)[-1]
    return {cell["name"]: cell for cell in last["cells"]}


def scores(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return what each record measured, to the last bit."""
    found = {}
    for path in sorted(root.glob("*/*/*/run.json")):
        run = json.loads(path.read_bytes())
        hashes = [
            episode["trajectory_hash"]
            for file in sorted(path.parent.glob("*/*/episodes.json"))
            for episode in json.loads(file.read_bytes())["episodes"]
        ]
        scored = (run["validation_score"], run["assessment_score"], run["selected"])
        found[path.parent.relative_to(root).as_posix()] = (*scored, *hashes)
    return found


def write(path: Path, **sections: Any) -> Path:
    path.write_text(json.dumps(sections))
    return path


def toy(**more: Any) -> dict[str, Any]:
    return {"env": "toy", "budget": 4, "valid_size": 2, "final_size": 4, **more}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the smoke suite, played without disturbance."""
    home = tmp_path_factory.mktemp("smoke")
    began = time.monotonic()
    done = suite("--config", SMOKE, "--root", "root", cwd=home)
    assert done.code == 0, done
    assert time.monotonic() - began < 100
    assert "2 cells: 2 done" in done.stdout
    return home / "root"


def test_the_smoke_suite_leaves_a_record_each(smoke: Path) -> None:
    names = [*scores(smoke)]
    assert names == ["search/cartpole/smoke-8", "search/toy/smoke-8"]
    for name in names:
        assert check_record(smoke / name) > 5
        config = json.loads((smoke / name / "run.json").read_bytes())["config"]
        assert config["episode_budget"] == 8


def test_played_again_it_does_nothing_and_says_so(smoke: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in smoke.rglob("*.json*")}
    done = suite("--config", SMOKE, "--root", smoke, cwd=smoke.parent)
    assert done.code == 0
    assert "nothing to play: every cell has a record" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in smoke.rglob("*.json*")} == before


def test_status_says_what_became_of_each(smoke: Path) -> None:
    done = command(
        *(CLI, "suite", "status", "--config", SMOKE, "--root", smoke, "--json"), cwd=smoke.parent
    )
    assert done.code == 0
    assert [(cell["name"], cell["state"]) for cell in done.json["cells"]] == [
        ("search/toy/smoke-8", "done"),
        ("search/cartpole/smoke-8", "done"),
    ]
    shown = suite("status", "--config", SMOKE, "--root", smoke, cwd=smoke.parent)
    assert "2 done" in shown.stdout


def test_another_configuration_is_refused_with_the_difference(smoke: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.toml"
    changed.write_text(SMOKE.read_text().replace("budget = 8", "budget = 9"))
    before = scores(smoke)
    done = suite("--config", changed, "--root", smoke, cwd=tmp_path)
    assert done.code == 2
    assert "was begun with other cells" in done.message
    assert "config.episode_budget: was 8, is 9" in done.message
    assert scores(smoke) == before


def test_a_cell_is_played_again_on_request_and_the_old_record_kept(
    smoke: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    shutil.copytree(smoke, root)
    name = "search/toy/smoke-8"
    options = ("--config", SMOKE, "--root", root)
    done = suite(*options, "--force-cell", name, "--json", cwd=tmp_path)
    assert done.code == 0, done
    assert events(done)[-1]["played"] == 1
    assert cells(done)[name]["attempts"] == 1
    assert (root / ".attempts" / name / "001" / "record" / "run.json").exists()
    assert scores(root) == scores(smoke)
    wrong = suite(*options, "--force-cell", "search/toy/smoke-9", cwd=tmp_path)
    assert wrong.code == 2
    assert f"Did you mean '{name}'" in wrong.message


def begun(root: Path) -> int:
    return len(list(root.glob(".attempts/*/*/*/*")))


@pytest.mark.damaged_record("unfinished", "leftover")
def test_killed_three_times_it_ends_in_the_same_scores(smoke: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    argv = [CLI, "suite", "--config", str(SMOKE), "--root", str(root)]
    chance = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen(
            argv,
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before = begun(root)
        while begun(root) == before and process.poll() is None:
            time.sleep(0.05)
        time.sleep(chance.uniform(0.2, 2.0))
        process.kill()
        process.wait()
        wait_until(lambda: not processes(str(root)), 20)
    done = suite(*argv[2:], cwd=tmp_path)
    assert done.code == 0, done
    assert scores(root) == scores(smoke)


def test_interrupted_it_ends_soon_and_goes_on_later(tmp_path: Path) -> None:
    slow = toy(budget=10_000, max_submissions=10_000)
    config = write(tmp_path / "slow.json", run=slow, suite={"name": "s", "root": "root"})
    process = subprocess.Popen(
        [CLI, "suite", "--config", config],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    attempt = tmp_path / "root/.attempts/search/toy/s/001"
    wait_until(lambda: any(attempt.glob("record/submissions/*/submission.json")), 60)
    published = {path.name for path in attempt.glob("record/submissions/*")}
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert time.monotonic() - began < 10
    assert process.returncode == 130, stderr
    assert not processes(str(tmp_path / "root"))
    run = json.loads((attempt / "record/run.json").read_bytes())
    assert (run["terminal_reason"], run["counts"]) == ("interrupted", False)
    assert published <= {path.name for path in attempt.glob("record/submissions/*")}
    done = suite("status", "--config", config, "--json", cwd=tmp_path)
    (cell,) = done.json["cells"]
    assert (cell["state"], cell["attempts"]) == ("crashed", 1)
    assert cell["reason"] == "interrupted"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A suite with agents that fail in every way beside one that does not."""
    home = tmp_path_factory.mktemp("mixed")
    client = home / "client"
    client.write_text("#!/bin/sh\nexit 1\n")
    client.chmod(0o755)
    agents = [
        {"kind": "search"},
        {"kind": "codex", "name": "fails", "binary": str(client), "retry_backoff": 0.1},
        {"kind": "command", "name": "hangs", "args": ["sleep", "1000"]},
        {
            "kind": "command",
            "name": "kills",
            # The supervisor's parent is the cell: the whole cell dies, as if out of memory.
            "args": ["sh", "-c", "kill -9 $(ps -o ppid= -p $PPID)"],
            "retry_backoff": 0.1,
        },
    ]
    config = write(
        home / "mixed.json",
        run=toy(agent_timeout=15.0),
        agent=agents,
        suite={"name": "s", "root": "root", "jobs": 2, "retries": 1},
    )
    return home, suite("--config", config, "--json", cwd=home)


def test_one_cell_never_stops_the_others(mixed: tuple[Path, Done]) -> None:
    home, done = mixed
    assert done.code == 1
    found = {name.split("/")[0]: cell for name, cell in cells(done).items()}
    assert found["search"]["state"] == "done"
    assert (found["fails"]["state"], found["fails"]["reason"]) == ("unscored", "start_failed")
    assert (found["hangs"]["state"], found["hangs"]["reason"]) == ("failed", "timed_out")
    assert found["kills"]["state"] == "crashed"
    assert "signal 9" in found["kills"]["reason"]
    assert found["fails"]["score"] is found["hangs"]["score"] is None
    assert not processes(str(home / "root"))


def test_what_may_help_is_tried_again_and_no_more(mixed: tuple[Path, Done]) -> None:
    _, done = mixed
    retried = [event["cell"] for event in events(done) if event["kind"] == "cell_retry"]
    assert sorted(retried) == ["fails/toy/s", "kills/toy/s"]


def test_retry_plays_what_it_is_asked_for(mixed: tuple[Path, Done]) -> None:
    home, _ = mixed
    config = str(home / "mixed.json")
    again = suite("retry", "--only", "failed", "--config", config, "--json", cwd=home)
    assert events(again)[-1]["played"] == 1
    started = [event["cell"] for event in events(again) if event["kind"] == "cell_started"]
    assert started == ["hangs/toy/s"]
    none = suite("retry", "--only", "missing", "--config", config, "--json", cwd=home)
    assert events(none)[-1]["played"] == 0
    wrong = suite("retry", "--only", "infro", "--config", config, cwd=home)
    assert wrong.code == 2
    assert "Did you mean 'infra'" in wrong.message


def test_neighbours_and_jobs_change_no_score_and_a_cap_holds(tmp_path: Path) -> None:
    files = {}
    for jobs, limit in ((1, None), (3, 1), (3, None)):
        agent = {"kind": "search", **({"limit": limit} if limit else {})}
        name = f"{jobs}-{limit}"
        runs = [toy(), toy(env="cartpole"), toy(env="gym/acrobot", max_submissions=2)]
        config = write(
            tmp_path / f"{name}.json",
            run=runs,
            agent=agent,
            suite={"name": "s", "root": name, "jobs": jobs},
        )
        done = suite("--config", config, "--json", cwd=tmp_path)
        assert done.code == 0, done
        files[name] = scores(tmp_path / name)
        if limit:
            at_work = 0
            for event in events(done):
                at_work += {"cell_started": 1, "cell_ended": -1}.get(event["kind"], 0)
                assert at_work <= limit
    assert len(files["1-None"]) == 3
    assert files["1-None"] == files["3-1"] == files["3-None"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--config is missing"),
        (["--config", "none.toml"], "none.toml can't be read: No such file"),
        (["--config", "bad.json"], "$.run.budget is 0, expected >= 1"),
        (["--config", "unknown.json"], "1 cells can't be played: $.run with $.agent: unknown"),
        (["--config", "good.json", "--jobs", "0"], "--jobs is 0, expected"),
        (["status"], "--config is missing"),
    ],
)
def test_bad_input_plays_nothing(tmp_path: Path, argv: list[str], message: str) -> None:
    write(tmp_path / "bad.json", run=toy(budget=0))
    write(tmp_path / "unknown.json", run=toy(env="toyy"))
    write(tmp_path / "good.json", run=toy())
    before = sorted(tmp_path.rglob("*"))
    done = suite(*argv, cwd=tmp_path)
    assert done.code == 2
    assert message in done.message
    assert done.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_says_what_it_may_cost_and_what_is_missing(tmp_path: Path) -> None:
    agents = [{"kind": "search"}, {"kind": "codex", "binary": "/nowhere/codex"}]
    config = write(tmp_path / "plan.json", run=[toy(), toy(env="cartpole")], agent=agents)
    done = suite("--config", config, "--dry-run", "--json", cwd=tmp_path)
    assert done.code == 0
    plan = done.json
    assert plan["at_most"] == {"training": 16, "validation": 24, "assessment": 16}
    missing = {cell["cell"]: cell["missing"] for cell in plan["cells"]}
    assert missing["search/toy/suite"] is None
    assert "/nowhere/codex" in missing["codex/toy/suite"]
    assert [*tmp_path.iterdir()] == [config]
    shown = suite("--config", config, "--dry-run", cwd=tmp_path)
    assert "At most 56 Episodes: 16 training, 24 validation, 16 assessment" in shown.stdout


def test_two_processes_do_not_share_a_root(tmp_path: Path) -> None:
    import fcntl

    config = write(tmp_path / "one.json", run=toy(), suite={"root": "root"})
    (tmp_path / "root").mkdir()
    with (tmp_path / "root/.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = suite("--config", config, cwd=tmp_path)
    assert done.code == 2
    assert "another process plays in root" in done.message


def test_a_run_by_file_with_options_over_it(tmp_path: Path) -> None:
    config = write(tmp_path / "run.json", run=toy(root="record"), agent={"kind": "search"})
    done = command(CLI, "run", "--config", config, "--budget", "6", "--json", cwd=tmp_path)
    assert done.code == 0, done
    run = json.loads((tmp_path / "record/run.json").read_bytes())
    assert run["config"]["episode_budget"] == 6
    assert run["config"]["assessment"]["episodes"] == 4
    many = write(tmp_path / "many.json", run=[toy(), toy(env="cartpole")])
    refused = command(CLI, "run", "--config", many, cwd=tmp_path)
    assert refused.code == 2
    assert "more than one Run: play it with `evopolicygym suite --config" in refused.message
