"""What bad input gets: exit code 2, a message that says what would be right, nothing written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .tools import CLI, SOLVED, Preloaded, command, files, run_file

pytestmark = pytest.mark.damaged_record()  # records are damaged on purpose

HUGE = str(10**30)
RUN = "run --env toy --budget 8"
EVALUATE = "evaluate solved --env toy"
REPLAY = "replay record submission-000001"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    """A directory with things to get wrong; no test changes it, and all of them check that."""
    home = tmp_path_factory.mktemp("bad-input")
    shutil.copytree(finished, home / "record")
    sources = {
        "solved": SOLVED,
        "nothing": "policy = 1\n",
        "linked": SOLVED,
        "full": None,
    }
    for name, source in sources.items():
        (home / name).mkdir()
        if source is not None:
            (home / name / "policy.py").write_text(source)
    (home / "full" / "notes.txt").write_text("keep me")
    (home / "linked" / "more.py").symlink_to("policy.py")
    (home / "link").symlink_to("solved")
    (home / "file").write_text("keep me")
    (home / "script.sh").write_text("#!/bin/sh\n")
    (home / "script.sh").chmod(0o644)
    return home


def refused(done: Any, place: Path, before: dict[str, bytes | None], *words: str) -> None:
    """Check that a command was refused, told why, and left everything as it was."""
    assert done.code == 2, done
    assert done.stdout == ""
    for word in words:
        assert word in done.message
    assert files(place) == before


# One row a mistake: the arguments, and what the message must name.
USAGE = [
    ("frobnicate", "No such command 'frobnicate'"),
    ("evalute solved --env toy", "Did you mean 'evaluate'?"),
    ("--frob", "No such option: --frob"),
    (f"{RUN} --budgett 8", "--budgett"),
    (f"{RUN} --json=yes", "--json"),
    ("run --env toy", "--budget is missing"),
    ("run --budget 8", "--env is missing"),
    ("evaluate solved", "Missing option '--env'"),
    ("evaluate --env toy", "Missing argument 'program'"),
    ("replay record", "Missing argument 'submission'"),
    ("init", "expected DIRECTORY and --env ID"),
    ("init new", "expected DIRECTORY and --env ID"),
    ("init --env toy", "expected DIRECTORY and --env ID"),
    ("init new --env toy more", "unexpected extra argument"),
    ("doctor more", "unexpected extra argument"),
    ("doctor --frob", "No such option: --frob"),
]

ENVIRONMENTS = [
    (argv.format(env), words)
    for argv in ("run --budget 8 --env {}", "evaluate solved --env {}", "init new --env {}")
    for env, words in (
        ("tooy", "unknown environment 'tooy'. Did you mean 'toy'"),
        ("gym/cartpol", "Did you mean 'gym/cartpole'"),
        ("gymnasium/CartPole-v9", "Did you mean 'CartPole-v1'"),
        ("nothing-like-it", "init --list"),
    )
] + [
    ("run --budget 8 --env gymnasium/", "'' is not registered"),
    ("run --budget 8 --env gymnasium/CartPole-v1/x", "Did you mean 'CartPole-v1'"),
    ("run --budget 8 --env gymnasium/no_such_module:Thing-v0", "not registered"),
    # Known, but this one needs more than is installed.
    ("init new --env gymnasium/GymV21Environment-v0", "can't be created here"),
]

NUMBERS = (
    [
        (f"{argv} {option} {value}", f"{option} is {value}")
        for argv, options in (
            ("run --env toy", ["--budget"]),
            (
                RUN,
                ["--pool", "--max-submissions", "--minimum", "--maximum", "--candidates", "--jobs"],
            ),
            (EVALUATE, ["--episodes", "--jobs"]),
        )
        for option in options
        for value in ("0", "-1", HUGE)
    ]
    + [
        (f"{argv} {value}", f"{argv.split()[-1]} is {value}")
        for argv in (
            f"{RUN} --seed",
            f"{RUN} --valid-size",
            f"{RUN} --final-size",
            f"{EVALUATE} --seed",
        )
        for value in ("-1", HUGE)
    ]
    + [
        ("run --env toy --budget abc", "Invalid value for '--budget'"),
        ("run --env toy --budget 1.5", "Invalid value for '--budget'"),
        ("run --env toy --budget 0x8", "Invalid value for '--budget'"),
        (
            "run --env toy --budget 1000001",
            "--budget is 1000001, expected an integer in [1, 1000000]",
        ),
        (f"{RUN} --seed 9223372036854775808", "--seed is 9223372036854775808"),
        (f"{RUN} --jobs 1025", "--jobs is 1025"),
        (f"{RUN} --timeout abc", "Invalid value for '--timeout'"),
        (f"{RUN} --valid-size 0 --candidates 0", "--candidates is 0"),
        (
            f"{RUN} --minimum 5 --maximum 4",
            "--maximum is 4, expected at least --minimum, which is 5",
        ),
        (f"{RUN} --minimum 9", "--minimum is 9, but --budget is 8"),
        (f"{RUN} --minimum 5 --pool 4", "--minimum is 5, but --pool is 4"),
    ]
)

SECONDS = [
    (f"{command} {option} {value}", f"{option} is {shown}, expected seconds in (0, 10000000]")
    for command, option in (
        *((RUN, "--timeout"), (RUN, "--agent-timeout"), (EVALUATE, "--timeout")),
    )
    for value, shown in (
        *(("nan", "nan"), ("inf", "inf"), ("-inf", "-inf"), ("-1", "-1.0"), ("0", "0.0")),
        *(("1e300", "1e+300"), ("10000001", "10000001.0")),
    )
]

PLACES = [
    (f"{RUN} --root full", "full exists and is not empty"),
    (f"{RUN} --root file", "file exists and is not empty"),
    (f"{RUN} --root file/below/it", "file/below/it can't be created: Not a directory"),
    (f"{RUN} --runs file", "can't be created: Not a directory"),
    (f"{RUN} --root {'x' * 300}", "can't be created: File name too long"),
    (f"{RUN} --runs {'x' * 300}", "File name too long"),
    (f"{RUN} --root new --runs r", "--root replaces the layout: leave out --runs and --exp-id"),
    (f"{RUN} --root new --exp-id e", "--root replaces the layout"),
    (f"{RUN} --model {'x' * 256}", "can't name a directory: expected 1 to 255 bytes"),
    (f"{RUN} --exp-id {'é' * 100}", "can't name a directory"),
    ("init full --env toy", "full exists and is not empty"),
    ("init file --env toy", "file exists and is not empty"),
    ("init file/below/it --env toy", "Not a directory"),
    (f"init {'x' * 300} --env toy", "File name too long"),
    (f"{EVALUATE} --trajectories file", "file"),
    (f"{EVALUATE} --trajectories file/below/it", "file/below/it"),
]

PROGRAMS = [
    (argv.format(program), words)
    for argv in (f"{RUN} --program {{}}", "evaluate {} --env toy")
    for program, words in (
        ("missing", "missing does not exist"),
        ("full", "policy.py is missing"),
        ("nothing", "does not define make_policy"),
        ("linked", "more.py is a symbolic link"),
        ("link", "link is a symbolic link"),
        ("file", "expected a directory"),
        ("x" * 300, "File name too long"),
    )
]

AGENTS = [
    (
        f"{RUN} --agent serch",
        "--agent is 'serch', expected one of search, codex, claude, kimi, acp",
    ),
    (f"{RUN} --agent serch", "Did you mean 'search'?"),
    (f"{RUN} --agent comand -- true", "Did you mean 'command'?"),
    (f"{RUN} --agent command", "needs a program and its arguments"),
    (f"{RUN} --agent command --", "needs a program and its arguments"),
    (f"{RUN} --agent command -- no-such-program x", "'no-such-program' was not found"),
    (f"{RUN} --agent command -- ./script.sh", "'./script.sh' was not found or is not executable"),
    (f"{RUN} --agent command -- ./full", "not executable"),
    (f"{RUN} -- python agent.py", "did you mean --agent command?"),
    (f"{RUN} stray", "the search agent takes no command: 'stray'"),
    (f"{RUN} --agent acp", "needs a program and its arguments"),
    (f"{RUN} --agent acp -- no-such-program x", "'no-such-program' was not found"),
    (
        f"{RUN} --agent codex --agent-option executable=no-such-codex",
        "install it with `npm install -g @openai/codex`",
    ),
    (f"{RUN} --agent-option hidden", "--agent-option is 'hidden', expected NAME=VALUE"),
    (f"{RUN} --agent-option =4", "expected NAME=VALUE"),
    (f"{RUN} --agent-option hiden=4", "Did you mean 'hidden'?"),
    (f"{RUN} --agent-option hidden=four", "--agent-option hidden is 'four', expected a number"),
    (f"{RUN} --agent-option hidden=-1", "--agent-option hidden is -1, expected 0 to 256"),
    (f"{RUN} --agent-option algorithm=best", "--agent-option algorithm is 'best', expected"),
    (
        f"{RUN} --agent codex --agent-option reasoning_effort=hgih",
        "--agent-option reasoning_effort is 'hgih', expected one of none, minimal, low",
    ),
    (f"{RUN} --agent claude --agent-option bare=maybe", "expected true or false"),
    (f"{RUN} --agent claude --agent-option environment=x", "environment.NAME=value"),
    (f"{RUN} --agent command --agent-option protocol=xml -- true", "expected one of auto, jsonl"),
    (f"{RUN} --max-turns 0", "--max-turns is 0"),
    (f"{RUN} --retries -1", "--retries is -1"),
    (f"{RUN} --retry-backoff 0", "--retry-backoff is 0"),
    (f"{RUN} --bind 192.0.2.1", "--bind: '192.0.2.1' is no loopback address"),
    (f"{RUN} --bind 127.0.0.1 --port 65536", "--port is 65536"),
    (f"{RUN} --port 8000", "--bind is not given"),
    (f"{RUN} --skill missing", "missing"),
    (f"{RUN} --skill full", "SKILL.md is missing"),
    (f"{RUN} --prices missing", "missing can't be read"),
    (f"{RUN} --prices file", "file is not valid JSON"),
]

EXECUTIONS = [
    (f"{argv} --execution sandbox", "--execution is 'sandbox', expected unsafe")
    for argv in (RUN, EVALUATE, f"{REPLAY} 0")
]

RECORDS = [
    ("replay missing submission-000001 0", "missing/run.json can't be read"),
    ("replay full submission-000001 0", "full/run.json can't be read"),
    ("replay file submission-000001 0", "file/run.json can't be read"),
    ("replay record submission-000099 0", "no Submission 'submission-000099'; it has submission-0"),
    ("replay record ../submission-000001 0", "no Submission '../submission-000001'"),
    (f"{REPLAY} 7", "submission-000001 has no Episode 7; it has [0"),
    (f"{REPLAY} {HUGE}", f"has no Episode {HUGE}"),
    (f"{REPLAY} -- -1", "has no Episode -1"),
    (f"{REPLAY} one", "Invalid value for 'index'"),
    (f"{EVALUATE} --split=", "--split is ''"),
]

TABLE = [
    *(*USAGE, *ENVIRONMENTS, *NUMBERS, *SECONDS, *PLACES, *PROGRAMS, *AGENTS, *EXECUTIONS),
    *RECORDS,
]


@pytest.mark.parametrize(
    ("line", "words"), TABLE, ids=[line if len(line) < 90 else line[:80] for line, _ in TABLE]
)
def test_refused(preloaded: Preloaded, place: Path, line: str, words: str) -> None:
    before = files(place)
    refused(preloaded(*line.split(), cwd=place), place, before, words)


@pytest.mark.parametrize(
    "option",
    [["--model", ""], ["--exp-id", ""], ["--env", ""], ["--agent", ""], ["--execution", ""]],
)
def test_empty_names_are_refused(preloaded: Preloaded, place: Path, option: list[str]) -> None:
    before = files(place)
    refused(preloaded(*RUN.split(), *option, cwd=place), place, before)


def test_the_installed_script_does_the_same(place: Path) -> None:
    """`Preloaded` is no more than a faster way to start it."""
    before = files(place)
    for line, words in ((f"{RUN} --minimum 9", "--minimum is 9"), ("frobnicate", "frobnicate")):
        refused(command(CLI, *line.split(), cwd=place), place, before, words)


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "--env", "toy", "--budget", "1", "--model", "m\udcff"],
        ["run", "--env", "toy", "--budget", "1", "--exp-id", "e\udcff"],
        ["run", "--env", "e\udcff", "--budget", "1"],
        ["run", "--env", "toy", "--budget", "1", "--root", "r\udcff", "--json"],
        ["run", "--env", "toy", "--budget", "1", "--program", "p\udcff"],
        ["run", "--env", "toy", "--budget", "1", "--agent", "command", "--", "true", "\udcff"],
        ["init", "i\udcff", "--env", "toy", "--json"],
        ["evaluate", "p\udcff", "--env", "toy"],
        ["replay", "r\udcff", "submission-000001", "0"],
        ["replay", "record", "submission-\udcff", "0"],
    ],
    ids=lambda argv: ascii(" ".join(argv)),
)
def test_bytes_that_are_no_text(
    preloaded: Preloaded, tmp_path: Path, finished: Path, argv: list[str]
) -> None:
    """JSON can't hold such a name: it is either used or refused, but never half-way through."""
    shutil.copytree(finished, tmp_path / "record")
    before = files(tmp_path)
    done = preloaded(*argv, cwd=tmp_path)
    assert done.code in (0, 2) or '"reason"' in done.stdout, done
    if done.code == 2:
        assert files(tmp_path) == before


# --------------------------------------------------------------- damaged records

Damage = Callable[[dict[str, Any]], Any]


def _set(*path: str, value: Any) -> Damage:
    def change(document: dict[str, Any]) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


RUN_JSON: dict[str, tuple[bytes | Damage, str]] = {
    "empty": (b"", "run.json is not valid JSON"),
    "torn": (b'{"schema": "evopolicygym.run/1", "sta', "run.json is not valid JSON"),
    "not UTF-8": (b"\xff\xfe\x00", "run.json is not valid JSON"),
    "a list": (b"[1]", "holds list, expected a JSON object"),
    "NaN": (b'{"schema": NaN}', "run.json"),
    "nested without end": (b"[" * 100_000, "run.json"),
    "another version": (_set("schema", value="evopolicygym.run/2"), "$.schema"),
    "a status": (_set("status", value="fine"), "$.status"),
    "an unknown field": (_set("more", value=1), "$.more"),
    "no config": (_set("config", value={}), "run.json"),
    "a timeout that is no number": (
        _set("config", "episode_timeout_seconds", value="x"),
        "episode_timeout_seconds",
    ),
    "a timeout that is out of range": (
        _set("config", "episode_timeout_seconds", value=-1),
        "episode_timeout_seconds",
    ),
    "an unknown benchmark": (_set("benchmark_id", value="tooy"), "Did you mean 'toy'?"),
    "another benchmark": (_set("benchmark_id", value="gym/cartpole"), "environment digest"),
    "no Submissions": (_set("submissions", value=[]), "it has none"),
}


@pytest.mark.parametrize("damage", RUN_JSON)
def test_damaged_run_json(
    preloaded: Preloaded, tmp_path: Path, finished: Path, damage: str
) -> None:
    root = tmp_path / "record"
    shutil.copytree(finished, root)
    change, words = RUN_JSON[damage]
    if isinstance(change, bytes):
        (root / "run.json").write_bytes(change)
    else:
        document = run_file(root)
        change(document)
        (root / "run.json").write_text(json.dumps(document))
    before = files(tmp_path)
    refused(preloaded(*f"{REPLAY} 0".split(), cwd=tmp_path), tmp_path, before, words)


EPISODES: dict[str, tuple[bytes | Damage, str]] = {
    "empty": (b"", "episodes.json is not valid JSON"),
    "a list": (b"[]", "holds list"),
    "no rows": (_set("episodes", value=[]), "has no Episode 0"),
    "a seed": (
        lambda document: document["episodes"][0].update(environment_seed=-1),
        "$.episodes.0.environment_seed",
    ),
    "another Program": (_set("program_digest", value="0" * 64), "is not the Program that was"),
}


@pytest.mark.parametrize("damage", EPISODES)
def test_damaged_episodes(
    preloaded: Preloaded, tmp_path: Path, finished: Path, damage: str
) -> None:
    root = tmp_path / "record"
    shutil.copytree(finished, root)
    path = root / "submissions" / "submission-000001" / "episodes.json"
    change, words = EPISODES[damage]
    if isinstance(change, bytes):
        path.write_bytes(change)
    else:
        document = json.loads(path.read_bytes())
        change(document)
        path.write_text(json.dumps(document))
    before = files(tmp_path)
    refused(preloaded(*f"{REPLAY} 0".split(), cwd=tmp_path), tmp_path, before, words)


@pytest.mark.parametrize("lost", ["run.json", "submissions/submission-000001", "submissions"])
def test_incomplete_records(
    preloaded: Preloaded, tmp_path: Path, finished: Path, lost: str
) -> None:
    root = tmp_path / "record"
    shutil.copytree(finished, root)
    (root / lost).rename(tmp_path / "lost")
    before = files(tmp_path)
    refused(preloaded(*f"{REPLAY} 0".split(), cwd=tmp_path), tmp_path, before, lost)


def test_a_record_with_a_fifo_is_not_waited_for(
    preloaded: Preloaded, tmp_path: Path, finished: Path
) -> None:
    shutil.copytree(finished, tmp_path / "record")
    program = tmp_path / "record" / "submissions" / "submission-000001" / "program"
    os.mkfifo(program / "pipe")
    done = preloaded(*f"{REPLAY} 0".split(), cwd=tmp_path)
    assert done.code == 2
    assert "pipe is a FIFO" in done.stderr
