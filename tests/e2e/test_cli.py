"""The command line, end to end: real processes, real Runs, real records."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from evopolicygym import __version__
from evopolicygym.envs import known_ids
from evopolicygym.run.layout import original_name
from evopolicygym.run.ledger import episodes_used

from .tools import (
    CLI,
    SOLVED,
    Preloaded,
    check_record,
    command,
    files,
    run_file,
    schema,
)

RESULT = {
    *("done", "reason", "root", "submissions", "episodes_used", "selected"),
    *("validation_score", "assessment_score"),
}
COMMANDS = ["run", "evaluate", "init", "replay", "doctor"]
QUICK = ["--jobs", "1", "--valid-size", "0", "--final-size", "2"]

# --------------------------------------------------------------------------- help


def test_help_names_every_command(tmp_path: Path) -> None:
    done = command(CLI, "--help", cwd=tmp_path)
    assert done.code == 0
    assert done.stderr == ""
    for name in COMMANDS:
        assert re.search(rf"^. {name} ", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(preloaded: Preloaded, tmp_path: Path, name: str) -> None:
    done = preloaded(name, "--help", cwd=tmp_path)
    assert done.code == 0
    assert f"evopolicygym {name}" in done.stdout
    assert "--json" in done.stdout
    assert done.stderr == ""


def test_no_arguments_show_the_help(preloaded: Preloaded, tmp_path: Path) -> None:
    done = preloaded(cwd=tmp_path)
    assert done.code == 2
    assert "Commands" in done.stdout + done.stderr


def test_version(tmp_path: Path) -> None:
    done = command(CLI, "--version", cwd=tmp_path)
    assert (done.code, done.stdout, done.stderr) == (0, f"evopolicygym {__version__}\n", "")


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    line = f"{shlex.quote(str(CLI))} init --list | true"
    done = command("sh", "-c", line, cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")


# ---------------------------------------------------------------------------- run


def test_run_json_is_all_that_stdout_has(tmp_path: Path) -> None:
    options = ["--budget", "8", "--jobs", "2", "--valid-size", "3", "--final-size", "2"]
    done = command(CLI, "run", "--env", "toy", *options, "--json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    result = done.json
    assert result.keys() >= RESULT
    assert result["done"] is True
    assert result["reason"] == "finished"
    root = tmp_path / "runs" / "search" / "toy" / "run-001"
    assert result["root"] == str(root)
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs"]
    document = run_file(root)
    assert result["submissions"] == len(document["submissions"]) >= 2
    assert 0 < result["episodes_used"] <= 8
    assert result["episodes_used"] == document["episodes_used"]
    assert result["episodes_used"] == episodes_used(root / "ledger.jsonl")
    for name in ("selected", "validation_score", "assessment_score"):
        assert result[name] == document[name] is not None
    # Without a terminal, progress is plain lines on stderr.
    assert "without a sandbox" in done.stderr.splitlines()[0]
    for number in range(1, result["submissions"] + 1):
        assert f"submission-{number:06d}  score " in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"assessment: {result['selected']} ")


def test_the_record_is_complete_and_valid(finished: Path) -> None:
    expected = {
        *("run.json", "events.jsonl", "ledger.jsonl", "workspace", "submissions", "agent"),
        *("validation", "assessment"),
    }
    assert {entry.name for entry in finished.iterdir()} == expected
    document = run_file(finished)
    assert document["status"] == "done"
    assert document["agent"]["no_descendant_survived"] is True
    submissions = document["submissions"]
    assert [path.name for path in sorted((finished / "submissions").iterdir())] == submissions
    for name in submissions:
        home = finished / "submissions" / name
        for path in ("submission.json", "episodes.json", "feedback/feedback.json"):
            assert (home / path).is_file()
        assert files(home / "feedback") == files(finished / "workspace" / "feedback" / name)
        assert files(home / "program") == files(home / "feedback" / "program")
    assert (finished / "validation" / "selection.json").is_file()
    assert (finished / "assessment" / "assessment.json").is_file()
    events = [json.loads(line) for line in (finished / "events.jsonl").read_bytes().splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_ended"
    assert kinds.count("submission_published") == len(submissions)
    validated = len(document["candidates"])
    assert kinds.count("episode_ended") == document["episodes_used"] + 4 * validated + 4
    # run.json and both measurements; per Submission 4 files; latest.json; the JSON lines.
    assert check_record(finished) > 3 + 4 * len(submissions) + 1 + len(events)


def test_nothing_private_reaches_the_workspace(finished: Path) -> None:
    seeds: set[str] = set()
    for path in finished.glob("*/*/episodes.json"):
        for row in json.loads(path.read_bytes())["episodes"]:
            seeds |= {str(row["environment_seed"]), str(row["policy_seed"])}
    assert len(seeds) > 10
    for name, content in files(finished / "workspace").items():
        text = (content or b"").decode(errors="replace")
        assert str(finished) not in text, name
        assert not {seed for seed in seeds if re.search(rf"\b{seed}\b", text)}, name


def test_paths_in_a_record_are_relative(finished: Path) -> None:
    # events.jsonl has the agent's command line, which is an input.
    for name in ("run.json", "ledger.jsonl"):
        assert str(finished) not in (finished / name).read_text()
    for path in finished.glob("*/*/*.json"):
        assert str(finished) not in path.read_text()


def test_layout_has_reversible_names_and_the_next_number(tmp_path: Path) -> None:
    model = "lab/model:v2 é"
    options = ["--budget", "2", *QUICK, "--runs", "all", "--model", model]
    home = tmp_path / "all" / "lab%2Fmodel%3Av2 %C3%A9" / "gym%2Fcartpole"
    for taken in ("run-001", "run-002", "smoke"):
        (home / taken).mkdir(parents=True)
    done = command(CLI, "run", "--env", "gym/cartpole", *options, cwd=tmp_path)
    assert done.code == 0, done.stderr
    names = sorted(entry.name for entry in home.iterdir())
    assert names == ["run-001", "run-002", "run-003", "smoke"]
    root = home / "run-003"
    assert [original_name(part) for part in root.relative_to(tmp_path / "all").parts] == [
        *(model, "gym/cartpole", "run-003"),
    ]
    assert run_file(root)["benchmark_id"] == "gym/cartpole"
    assert check_record(root) > 10
    # A person gets a table, and is told where the record is.
    flat = done.stdout.replace("\n", "")
    for word in ("Submission", "Training", "Assessment", "selected", f"Record: {root}"):
        assert word in flat
    (number,) = re.findall(r"(\S+) of 2 Episodes used", done.stdout)
    assert number == str(run_file(root)["episodes_used"])


@pytest.mark.parametrize("name", ["..", ".hidden", "a/../../b", "%2F", "~"])
def test_names_never_lead_out_of_the_layout(
    preloaded: Preloaded, tmp_path: Path, name: str
) -> None:
    options = ["--budget", "1", "--jobs", "1", "--valid-size", "0", "--final-size", "0"]
    names = ["--runs", "all", "--model", name, "--exp-id", name]
    agent = ["--agent", "command", "--", "true"]
    done = preloaded("run", "--env", "toy", *options, *names, "--json", *agent, cwd=tmp_path)
    assert (done.code, done.json["reason"]) == (1, "exited")
    parts = Path(done.json["root"]).relative_to(tmp_path / "all").parts
    assert [original_name(part) for part in parts] == [name, "toy", name]
    assert [entry.name for entry in tmp_path.iterdir()] == ["all"]


SCRIPT = '''\
"""The agent of the seed's command: two submissions, the worse one first."""

import json
import subprocess
from pathlib import Path

def session(*arguments):
    done = subprocess.run(["evopolicygym-session", *arguments], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)

def submit(source, episodes):
    Path("program/policy.py").write_text(source)
    receipt = session("submit", "program", "--episodes", episodes, "--no-wait")
    receipt = session("wait", receipt["submission_id"])
    feedback = json.loads(Path(receipt["feedback"]).read_text())
    assert feedback == json.loads(Path("feedback/latest.json").read_text())
    assert feedback["score"] == receipt["score"]
    assert [row["index"] for row in feedback["episodes"]] == receipt["episode_indices"]
    return receipt["submission_id"]

assert "budget" in Path("TASK.md").read_text()
stay = """
class Policy:
    def act(self, observation):
        return 1

def make_policy(context):
    return Policy()
"""
worse = submit(stay, "0:3")
better = submit(SOLVED, "0:3,5")
assert session("status")["episodes_remaining"] == 1
session("finish", worse, better)
'''


def test_the_seeds_command_selects_the_better_submission(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(SCRIPT.replace("SOLVED", repr(SOLVED)))
    line = (
        "evopolicygym run --env toy --runs runs --model script --exp-id smoke-001 --budget 8 "
        "--agent command -- python agent.py"
    )
    done = command(*shlex.split(line), cwd=tmp_path)
    root = tmp_path / "runs" / "script" / "toy" / "smoke-001"
    errors = (root / "agent" / "process-001" / "stderr.txt").read_text()
    assert done.code == 0, done.stderr + errors
    document = run_file(root)
    assert document["terminal_reason"] == "finished"
    assert document["handed_over_by"] == "agent"
    assert document["candidates"] == ["submission-000001", "submission-000002"]
    assert document["selected"] == "submission-000002"
    assert document["episodes_used"] == 7 == episodes_used(root / "ledger.jsonl")
    assert document["agent"]["exit_status"] == 0
    assert document["agent"]["model"] == "script"
    scores = json.loads((root / "validation" / "selection.json").read_bytes())["scores"]
    assert scores["submission-000002"] > scores["submission-000001"]
    assert document["validation_score"] == scores["submission-000002"]
    assert re.search(r"submission-000002.*selected", done.stdout)
    assert check_record(root) > 20
    # The same place again is refused: a Run never writes into another one's record.
    before = files(root)
    again = command(*shlex.split(line), cwd=tmp_path)
    assert again.code == 2
    assert "not empty" in again.stderr
    assert files(root) == before


@pytest.mark.parametrize(
    ("script", "reason", "code"),
    [
        ("true", "exited", 1),
        ("exit 3", "crashed", 1),
        ("kill -9 $$", "killed", 1),
        ("evopolicygym-session submit program --episodes 0", "exited", 0),
        ("evopolicygym-session submit program --episodes 0:2", "budget_exhausted", 0),
        ("sleep 60", "timed_out", 1),
    ],
)
def test_how_a_search_can_end(
    preloaded: Preloaded, tmp_path: Path, script: str, reason: str, code: int
) -> None:
    options = ["--budget", "2", *QUICK, "--agent-timeout", "1.5" if "sleep" in script else "60"]
    argv = ["run", "--env", "toy", *options, "--root", "record", "--json"]
    done = preloaded(*argv, "--agent", "command", "--", "sh", "-c", script, cwd=tmp_path)
    assert (done.json["reason"], done.code) == (reason, code)
    assert done.json["done"] is (code == 0)
    document = run_file(tmp_path / "record")
    assert document["terminal_reason"] == reason
    assert document["status"] == ("done" if code == 0 else "failed")
    assert document["handed_over_by"] == ("host" if code == 0 else None)
    assert (document["assessment_score"] is not None) is (code == 0)
    assert check_record(tmp_path / "record") >= 1


def test_an_agent_gets_its_arguments_as_they_are(preloaded: Preloaded, tmp_path: Path) -> None:
    """Coding agents take their whole prompt as one argument."""
    prompt = "improve the policy\n" * 300 + "--help é"
    options = ["--budget", "1", *QUICK, "--root", "record", "--json"]
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    agent = ["--agent", "command", "--", sys.executable, "-c", script, prompt, "--budget", "x"]
    done = preloaded("run", "--env", "toy", *options, *agent, cwd=tmp_path)
    assert done.json["reason"] == "exited", done.stderr
    printed = (tmp_path / "record" / "agent" / "process-001" / "stdout.txt").read_text()
    assert json.loads(printed) == [prompt, "--budget", "x"]


def test_an_initial_program_is_where_the_agent_starts(
    preloaded: Preloaded, tmp_path: Path, solved: Path
) -> None:
    options = ["--budget", "1", *QUICK, "--root", "record", "--program", "solved", "--json"]
    script = "evopolicygym-session submit program --episodes 0"
    agent = ["--agent", "command", "--", "sh", "-c", script]
    done = preloaded("run", "--env", "toy", *options, *agent, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.json["assessment_score"] >= 3
    digest = run_file(tmp_path / "record")["initial_program_digest"]
    submission = tmp_path / "record" / "submissions" / "submission-000001" / "submission.json"
    assert json.loads(submission.read_bytes())["program_digest"] == digest
    assert (solved / "policy.py").read_text() == SOLVED


# ----------------------------------------------------------------- evaluate and init


def test_evaluate(preloaded: Preloaded, tmp_path: Path, solved: Path) -> None:
    argv = ["evaluate", "solved", "--env", "toy", "--episodes", "4"]
    one = preloaded(*argv, "--jobs", "1", "--json", "--trajectories", "kept", cwd=tmp_path)
    two = preloaded(*argv, "--jobs", "2", "--json", cwd=tmp_path)
    assert one.code == two.code == 0, one.stderr
    assert one.stdout == two.stdout
    assert one.json["benchmark_id"] == "toy"
    assert one.json["score"] >= 3
    rows = one.json["episodes"]
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert one.json["score"] == pytest.approx(sum(row["total_reward"] for row in rows) / 4)
    validator = schema("trajectory-line")
    kept = sorted(path.parent.name for path in (tmp_path / "kept").glob("*/trajectory.jsonl"))
    assert kept == ["000000", "000001", "000002", "000003"]
    for row in rows:
        path = tmp_path / "kept" / f"{row['index']:06d}" / "trajectory.jsonl"
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert len(lines) == row["steps"] + 1 == 21
        assert sum(line["reward"] or 0 for line in lines) == row["total_reward"]
        for line in lines:
            validator.validate(line)
    other = preloaded(*argv, "--seed", "1", cwd=tmp_path)
    assert other.code == 0
    for word in ("Episode", "Steps", "Return", "truncated", "0 of 4 failed"):
        assert word in " ".join(other.stdout.split())


def test_evaluate_shows_failures(preloaded: Preloaded, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "policy.py").write_text("def make_policy(context):\n    raise OSError(7)\n")
    argv = ["evaluate", "bad", "--env", "toy", "--episodes", "2", "--jobs", "1"]
    done = preloaded(*argv, cwd=tmp_path)
    assert "init_error" in done.stdout
    assert "2 of 2 failed" in done.stdout
    as_json = preloaded(*argv, "--json", cwd=tmp_path)
    for row in as_json.json["episodes"]:
        assert row["failure"]["code"] == "init_error"
        assert "OSError: 7" in row["failure"]["message"]
        assert str(tmp_path) not in json.dumps(row)


def test_deprecated_ids_write_no_escape_codes(preloaded: Preloaded, tmp_path: Path) -> None:
    """Gymnasium colours its warnings whatever stderr is; `checked` looks for that."""
    done = preloaded("init", "old", "--env", "gymnasium/CartPole-v0", cwd=tmp_path)
    assert done.code == 0


# Pusher-v4 is registered but runs with mujoco < 3 only: see the next test.
@pytest.mark.parametrize(
    "env", [*sorted({*known_ids()} - {"gym/pusher4"}), "gymnasium/CartPole-v1"]
)
def test_init_then_evaluate(preloaded: Preloaded, tmp_path: Path, env: str) -> None:
    done = preloaded("init", "new/policy", "--env", env, cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "wrote new/policy/policy.py",
        f"try it: evopolicygym evaluate new/policy --env {env}",
    ]
    source = (tmp_path / "new" / "policy" / "policy.py").read_text()
    assert "def make_policy(context" in source
    comments = [line for line in source.splitlines() if line.startswith("#")]
    assert len(comments) > 5, "the environment's own description is missing"
    options = ["--episodes", "1", "--jobs", "1", "--json"]
    played = preloaded("evaluate", "new/policy", "--env", env, *options, cwd=tmp_path)
    assert played.code == 0, played.stderr
    (row,) = played.json["episodes"]
    assert row["failure"] is None
    assert row["environment_error"] is None
    assert row["steps"] >= 1


def test_an_environment_that_does_not_run_here_says_why(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    done = preloaded("init", "new", "--env", "gym/pusher4", cwd=tmp_path)
    assert done.code == 2
    assert "Pusher-v4 can't be created here" in done.stderr
    assert "mujoco<3" in done.stderr
    assert not (tmp_path / "new").exists()


def test_init_list(preloaded: Preloaded, tmp_path: Path) -> None:
    done = preloaded("init", "--list", cwd=tmp_path)
    assert done.code == 0
    assert done.stdout.split() == [*known_ids(), "gymnasium/<Registered-Id>"]
    assert preloaded("init", "--list", "--json", cwd=tmp_path).json == {"environments": known_ids()}
    made = preloaded("init", "new", "--env", "toy", "--json", cwd=tmp_path)
    assert made.json.keys() == {"directory", "program_digest"}


# ------------------------------------------------------------------------- replay


@pytest.mark.parametrize("submission", ["submission-000001", "submission-000002"])
def test_replay_agrees(preloaded: Preloaded, finished: Path, submission: str) -> None:
    home = finished / "submissions" / submission
    rows = json.loads((home / "episodes.json").read_bytes())["episodes"]
    before = files(finished)
    row = rows[-1]
    argv = ["replay", str(finished), submission, str(row["index"])]
    plain = preloaded(*argv, cwd=finished.parent)
    assert plain.code == 0, plain.stderr
    assert plain.stdout.splitlines()[-1] == "the hashes agree"
    assert plain.stdout.count(row["trajectory_hash"]) == 2
    done = preloaded(*argv, "--json", cwd=finished.parent)
    assert done.code == 0
    assert done.json["agrees"] is True
    assert done.json["recorded_hash"] == done.json["replayed_hash"] == row["trajectory_hash"]
    assert done.json["recorded_return"] == done.json["replayed_return"] == row["total_reward"]
    assert files(finished) == before


@pytest.mark.damaged_record("digest")
def test_replay_refuses_a_program_that_was_changed(
    preloaded: Preloaded, tmp_path: Path, finished: Path
) -> None:
    root = tmp_path / "record"
    shutil.copytree(finished, root)
    policy = root / "submissions" / "submission-000001" / "program" / "policy.py"
    policy.write_bytes(policy.read_bytes() + b"\n")
    done = preloaded("replay", "record", "submission-000001", "0", cwd=tmp_path)
    assert done.code == 2
    assert "is not the Program that was submitted" in done.stderr
    assert "hash" not in done.stdout


@pytest.mark.damaged_record("hash")
def test_replay_tells_a_difference(preloaded: Preloaded, tmp_path: Path, finished: Path) -> None:
    root = tmp_path / "record"
    shutil.copytree(finished, root)
    path = root / "submissions" / "submission-000001" / "episodes.json"
    document = json.loads(path.read_bytes())
    document["episodes"][0]["trajectory_hash"] = "0" * 64
    path.write_text(json.dumps(document))
    index = str(document["episodes"][0]["index"])
    done = preloaded("replay", "record", "submission-000001", index, cwd=tmp_path)
    assert done.code == 1
    assert done.stdout.splitlines()[-1] == "the hashes DIFFER"
    as_json = preloaded("replay", "record", "submission-000001", index, "--json", cwd=tmp_path)
    assert as_json.code == 1
    assert as_json.json["agrees"] is False
    assert as_json.json["recorded_hash"] == "0" * 64


@pytest.mark.damaged_record("digest")
def test_replay_refuses_another_environment(
    preloaded: Preloaded, tmp_path: Path, finished: Path
) -> None:
    root = tmp_path / "record"
    shutil.copytree(finished, root)
    document = run_file(root)
    document["environment_digest"] = "0" * 64
    (root / "run.json").write_text(json.dumps(document))
    done = preloaded("replay", "record", "submission-000001", "0", cwd=tmp_path)
    assert done.code == 2
    assert "digest" in done.stderr


# ------------------------------------------------------------------------- doctor


def test_doctor(preloaded: Preloaded, tmp_path: Path) -> None:
    done = preloaded("doctor", cwd=tmp_path)
    assert done.code == 0, done.stdout
    assert "one Episode" in done.stdout
    assert "FAILED" not in done.stdout
    as_json = command(CLI, "doctor", "--json", cwd=tmp_path)
    assert as_json.code == 0
    assert as_json.json["passed"] is True
    names = [check["check"] for check in as_json.json["checks"]]
    assert {"python", "packages", "session command", "cores", "one Episode"} <= set(names)
    for check in as_json.json["checks"]:
        assert check.keys() == {"check", "passed", "detail"}
        assert check["passed"] is True
        assert check["detail"]
    assert list(tmp_path.iterdir()) == []
