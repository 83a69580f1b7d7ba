"""Runs of programs that are asked turn by turn, or may be: `Command` and its three protocols."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evopolicygym import Program
from evopolicygym.agents import Command
from evopolicygym.envs import load
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import AssessmentConfig, RunConfig, RunResult, TerminalReason, run
from evopolicygym.run import driver as driver_module
from evopolicygym.run.agent import Agent
from evopolicygym.run.dialogue import prompt_line
from evopolicygym.run.ledger import episodes_used
from evopolicygym.run.supervisor import MAX_LINE_BYTES
from evopolicygym.skills import AgentSkill

START = Program(
    {
        "policy.py": b"""
class Policy:
    def act(self, observation):
        return 1
def make_policy(context):
    return Policy()
"""
    }
)
PRELUDE = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
from evopolicygym.run.client import SessionClient
client = SessionClient()
def submit(episodes="0"):
    return client.wait(client.submit("program", episodes)["submission_id"])
def prompts():
    for line in sys.stdin.buffer:
        yield json.loads(line)
def put(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
def answer(turn, **rest):
    put(json.dumps({"turn": turn, **rest}).encode() + b"\\n")
"""


@dataclass(frozen=True)
class Played:
    """A Run that has ended, and the parts of its record that tell of the agent.

    Attributes:
        result: What `run` returned.
        run: `run.json`.
        turns: `agent/turns.jsonl`.
        events: `events.jsonl`.
    """

    result: RunResult
    run: dict[str, Any]
    turns: list[dict[str, Any]]
    events: list[dict[str, Any]]

    @property
    def agent(self) -> dict[str, Any]:
        report: dict[str, Any] = self.run["agent"]
        return report

    @property
    def analysis(self) -> Path:
        return self.result.record / "workspace" / "analysis"

    def log(self, name: str = "stdout.txt", process: int = 1) -> bytes:
        return (self.result.record / "agent" / f"process-{process:03d}" / name).read_bytes()

    def each(self, key: str) -> list[Any]:
        """Return what every turn has under a key."""
        return [turn[key] for turn in self.turns]


def strict(data: bytes) -> Any:
    """Decode JSON that knows no NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(data, parse_constant=refuse)


def read(record: Path, result: RunResult) -> Played:
    """Read a record back, strictly."""
    lines = {}
    for name in ("agent/turns.jsonl", "events.jsonl"):
        *complete, rest = (record / name).read_bytes().split(b"\n")
        assert rest == b"", name
        lines[name] = [strict(line) for line in complete]
    document = strict((record / "run.json").read_bytes())
    return Played(result, document, lines["agent/turns.jsonl"], lines["events.jsonl"])


def play_agent(
    tmp_path: Path, agent: Agent, *, skills: Sequence[AgentSkill] = (), **config: Any
) -> Played:
    """Play a Run on `toy` in `tmp_path / record`."""
    settings: dict[str, Any] = {
        "episode_budget": 8,
        "max_submissions": 4,
        "agent_timeout_seconds": 60.0,
        "agent_retry_backoff_seconds": 0.02,
        "jobs": 1,
    }
    result = run(
        START,
        load("toy"),
        agent=agent,
        execution=ProcessExecution.unsafe(),
        record_to=tmp_path / "record",
        config=RunConfig(**(settings | config)),
        skills=skills,
    )
    return read(tmp_path / "record", result)


def play(
    tmp_path: Path, script: str, *arguments: str, protocol: Any = "jsonl", **config: Any
) -> Played:
    """Play a Run with a Python script as its agent."""
    path = tmp_path / "agent.py"
    path.write_text(PRELUDE + script)
    agent = Command([sys.executable, str(path), *arguments], protocol=protocol)
    return play_agent(tmp_path, agent, **config)


# ------------------------------------------------------------------------ jsonl: turns

DILIGENT = """
seen = open("analysis/seen.jsonl", "a")
for prompt in prompts():
    print(json.dumps({**prompt, "pid": os.getpid()}), file=seen, flush=True)
    if prompt["turn"] == 1:
        submit("0:2")
    if prompt["turn"] == 3:
        client.finish(["submission-000001"])
    answer(prompt["turn"], text=f"words {prompt['turn']}")
"""


@pytest.mark.parametrize("protocol", ["jsonl", "auto"])
def test_one_process_plays_all_turns(tmp_path: Path, protocol: str) -> None:
    played = play(tmp_path, DILIGENT, protocol=protocol, max_turns=5)
    assert played.result.terminal_reason is TerminalReason.FINISHED
    assert played.run["message"] is None
    assert played.run["handed_over_by"] == "agent"
    seen = [strict(line) for line in (played.analysis / "seen.jsonl").read_bytes().splitlines()]
    assert len({one.pop("pid") for one in seen}) == 1
    assert [one["turn"] for one in seen] == [1, 2, 3]
    assert {one["type"] for one in seen} == {"prompt"}
    messages = [one["message"] for one in seen]
    assert messages[0] == (played.result.record / "workspace" / "TASK.md").read_text()
    (submission,) = played.result.submissions
    assert messages[1] == messages[2]
    for fact in (
        "`evopolicygym-session finish` was not called. ",
        "6 of 8 Episodes and 3 submissions are left. ",
        f"Published: submission-000001 (score {submission.score:g}, 2 Episodes). ",
        "`finish` takes published submissions: exactly 1 of them. ",
    ):
        assert fact in messages[1]

    assert played.each("turn") == [1, 2, 3]
    assert played.each("attempt") == [1, 1, 1]
    assert played.each("process") == ["process-001"] * 3
    assert [m.rstrip() for m in played.each("message")] == [m.rstrip() for m in messages]
    assert played.each("final_message") == ["words 1", "words 2", "words 3"]
    assert played.each("reason") == ["exited", "exited", "finished"]
    assert played.each("exit_status") == [None, None, 0]
    assert played.each("stopped_by_host") == [False] * 3
    assert played.each("error") == [None] * 3
    assert (played.agent["turns"], played.agent["retries"]) == (3, 0)
    assert played.agent["no_descendant_survived"] is True
    assert played.log("stdin.txt") == (prompt_line(1, messages[0]) + "\n").encode()


@pytest.mark.parametrize(
    ("work", "more", "reason", "message", "by", "turns"),
    [
        ("", {"stop": True}, "exited", "the agent exited without finish", "host", 1),
        ("submit('1:8')", {}, "budget_exhausted", "the budget was spent without finish", "host", 1),
        ("client.finish(['submission-000001'])", {}, "finished", None, "agent", 1),
        ("", {}, "exited", "the agent exited without finish", "host", 2),
    ],
    ids=["stop", "budget", "finish", "max_turns"],
)
def test_the_turns_end(
    tmp_path: Path,
    work: str,
    more: dict[str, Any],
    reason: str,
    message: str | None,
    by: str,
    turns: int,
) -> None:
    script = f"""
for prompt in prompts():
    if prompt["turn"] == 1:
        submit("0")
        {work}
    answer(prompt["turn"], **{more})
Path("analysis/closed").touch()
"""
    played = play(tmp_path, script, max_turns=2)
    assert played.run["terminal_reason"] == reason
    assert played.run["message"] == message
    assert played.run["handed_over_by"] == by
    assert played.run["counts"] is True
    assert played.each("turn") == list(range(1, turns + 1))
    assert played.turns[-1]["reason"] == reason
    assert played.agent["exit_status"] == 0
    assert (played.analysis / "closed").exists()  # its input was closed, nothing was killed


# --------------------------------------------------------------------- auto and oneshot


@pytest.mark.parametrize(
    ("script", "config"),
    [
        ("", {"max_turns": 3}),
        ("sys.stdin.buffer.read()", {"max_turns": 1}),
        ("print('starting', flush=True); sys.stdin.buffer.read()", {"max_turns": 3}),
        ('put(b\'{"level": "info", "text": "x"}\\n\'); sys.stdin.read()', {"max_turns": 3}),
        ("put(b'\\xff\\xfe\\0\\n'); sys.stdin.buffer.read()", {"max_turns": 3}),
        (f"put(b'x' * {MAX_LINE_BYTES + 1} + b'\\n'); sys.stdin.read()", {"max_turns": 3}),
        ("put(b'\\n\\n[1, 2]\\n'); sys.stdin.buffer.read()", {"max_turns": 3}),
        ("os.close(0); print('no input')", {"max_turns": 3}),
    ],
    ids=["ignores", "reads", "text", "object", "binary", "long", "blank-list", "closes"],
)
def test_auto_runs_a_program_once_that_does_not_answer(
    tmp_path: Path, script: str, config: dict[str, Any]
) -> None:
    played = play(
        tmp_path,
        script + '\nsubmit("0:2")\nprint("done")\nprint(json.dumps({"turn": "none"}))',
        protocol="auto",
        **config,
    )
    assert played.run["terminal_reason"] == "exited"
    assert played.run["message"] == "the agent exited without finish"
    assert played.run["handed_over_by"] == "host"
    assert played.each("turn") == [1]
    assert played.each("exit_status") == [0]
    assert played.each("stopped_by_host") == [False]
    assert played.each("final_message") == [None]
    assert b"done\n" in played.log()
    assert played.agent["tokens"] is None


def test_auto_holds_an_agent_to_the_protocol_once_it_has_answered(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        "for prompt in prompts():\n"
        "    answer(1, text='one') if prompt['turn'] == 1 else put(b'chatter\\n')",
        protocol="auto",
        max_turns=3,
    )
    assert played.run["terminal_reason"] == "crashed"
    assert "protocol error: a line of its output is not JSON" in played.run["message"]
    assert played.each("reason") == ["exited", "crashed"]


def test_oneshot_reads_the_task(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        'Path("analysis/stdin").write_bytes(sys.stdin.buffer.read())\nanswer(1, text="no answer")',
        protocol="oneshot",
        max_turns=3,
    )
    task = (played.result.record / "workspace" / "TASK.md").read_bytes()
    assert (played.analysis / "stdin").read_bytes() == task
    assert played.run["terminal_reason"] == "exited"
    assert played.each("turn") == [1]
    assert played.each("final_message") == [None]


# ------------------------------------------------------------------------- bad answers


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"hello", "is not JSON"),
        (b'{"turn": 1, "data": {"cost_usd": NaN}}', "is not JSON"),
        (b'{"turn": 1, "text": "\\ud800"}', "is not JSON"),
        (b"[" * 100_000, "is not JSON: nested too deeply"),
        (b'{"turn": 1' + b"0" * 10_000 + b"}", "is not JSON"),
        (b'{"turn": 1}\0', "is not JSON"),
        (b'{"turn": 1, "text": "\xff"}', "is not UTF-8 at byte 21"),
        (b"[1]", "is no JSON object"),
        (b"{}", "has turn None, expected the number of a prompt"),
        (b'{"turn": "1"}', "has turn '1', expected the number of a prompt"),
        (b'{"turn": true}', "has turn True, expected the number of a prompt"),
        (b'{"turn": 0}', "has turn 0, expected the number of a prompt"),
        (b'{"turn": 2}', "answers turn 2, but the prompt was 1"),
        (b'{"turn": 1, "text": 5}', "has text of type int, not str"),
        (b'{"turn": 1, "stop": "yes"}', "has stop of type str, not bool"),
        (b'{"turn": 1, "data": []}', "has data of type list, not dict"),
        (
            b'{"turn": 1, "text": "' + b"x" * (MAX_LINE_BYTES - 22) + b'"}',
            f"is longer than {MAX_LINE_BYTES} bytes",
        ),
    ],
    ids=lambda value: repr(value[:24]) if isinstance(value, bytes) else "",
)
def test_a_bad_answer_ends_the_run_and_what_was_published_counts(
    tmp_path: Path, line: bytes, why: str
) -> None:
    if why.startswith("is longer"):
        assert len(line) == MAX_LINE_BYTES + 1
    (tmp_path / "line").write_bytes(line)
    played = play(
        tmp_path,
        "next(prompts()); submit('0')\n"
        "put(b'\\n  \\n' + Path(sys.argv[1]).read_bytes() + b'\\n'); time.sleep(100)",
        str(tmp_path / "line"),
        max_turns=2,
    )
    assert played.run["terminal_reason"] == "crashed"
    assert played.run["message"].startswith(f"protocol error: a line of its output {why}")
    assert len(played.run["message"]) < 500
    assert played.run["handed_over_by"] == "host"
    assert played.run["counts"] is True
    (turn,) = played.turns
    assert turn["reason"] == "crashed"
    assert turn["stopped_by_host"] is True
    assert turn["exit_status"] == -15
    assert turn["error"].startswith(f"a line of its output {why}")


def test_the_message_about_a_bad_answer_is_bounded(tmp_path: Path) -> None:
    played = play(tmp_path, "next(prompts()); answer('x' * 1_000_000); time.sleep(100)")
    assert played.run["terminal_reason"] == "crashed"
    assert len(played.run["message"]) < 500


@pytest.mark.parametrize(
    ("script", "reason", "message", "words", "status"),
    [
        ("", "exited", "the agent exited without finish", None, 0),
        (
            "print('no key', file=sys.stderr); sys.exit(3)",
            "crashed",
            "the agent ended with status 3 without finish; its last line on stderr: no key",
            None,
            3,
        ),
        (
            "put(b'{\"turn\": 1, \"text\": \"bye\"}')",
            "exited",
            "the agent exited without finish",
            "bye",
            0,
        ),
        ("put(b'bye')", "crashed", "protocol error: a line of its output is not JSON", None, 0),
        ("answer(1, text='bye'); sys.exit(3)", "crashed", "the agent ended with sta", "bye", 3),
        (
            "put(b'\\n \\r\\n\\t\\n'); answer(1, text='bye'); sys.stdin.read()",
            "exited",
            "the agent exited without finish",
            "bye",
            0,
        ),
        (
            f"answer(1, text='x' * {MAX_LINE_BYTES - 23}); sys.stdin.read()",
            "exited",
            "the agent exited without finish",
            "x" * 10_000 + f"\n… {MAX_LINE_BYTES - 20_023} characters removed …\n" + "x" * 10_000,
            0,
        ),
    ],
    ids=["silent", "status-3", "no-line-feed", "bad-no-line-feed", "then-3", "blank", "1-MiB"],
)  # fmt: skip
def test_a_turn_that_ends_with_the_process(
    tmp_path: Path, script: str, reason: str, message: str, words: str | None, status: int
) -> None:
    played = play(tmp_path, "next(prompts())\n" + script)
    assert played.run["terminal_reason"] == reason
    assert played.run["message"].startswith(message)
    assert played.run["handed_over_by"] is None
    assert played.each("turn") == [1]
    assert played.each("final_message") == [words]
    assert played.each("exit_status") == [status]
    assert played.agent["final_message"] == words


def test_late_and_double_answers_are_passed_over(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        """
for prompt in prompts():
    number = prompt["turn"]
    if number > 1:
        answer(number - 1, text="late")
    put(b"".join(json.dumps({"turn": number, "text": f"{word} {number}"}).encode() + b"\\n"
                 for word in ("first", "second")))
""",
        max_turns=3,
    )
    assert played.run["terminal_reason"] == "exited"
    assert played.each("final_message") == ["first 1", "first 2", "first 3"]
    assert played.each("reason") == ["exited"] * 3


def test_an_agent_that_never_answers_is_out_of_time(tmp_path: Path) -> None:
    played = play(
        tmp_path, "next(prompts()); submit('0'); time.sleep(100)", agent_timeout_seconds=2.0
    )
    assert played.run["terminal_reason"] == "timed_out"
    assert played.run["message"] == "the agent did not finish within 2 s"
    assert played.run["handed_over_by"] == "host"
    assert played.each("reason") == ["timed_out"]
    assert played.each("stopped_by_host") == [True]
    assert played.each("exit_status") == [-15]
    assert played.agent["stopped_by_host"] is True


@pytest.mark.parametrize(
    ("script", "reason", "message", "by"),
    [
        (
            "answer(1)",
            "hung_after_result",
            "the agent ended its work without finish, but its process had to be stopped",
            "host",
        ),
        (
            "client.finish(['submission-000001']); answer(1)",
            "hung_after_result",
            "the agent ended its work after finish, but its process had to be stopped",
            "agent",
        ),
        ("client.finish(['submission-000001'])", "finished", None, "agent"),
    ],
    ids=["answered", "finished-and-answered", "finished"],
)
def test_an_agent_that_does_not_exit_is_stopped_and_measured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    reason: str,
    message: str | None,
    by: str,
) -> None:
    monkeypatch.setattr(driver_module, "GRACE_SECONDS", 0.3)
    played = play(
        tmp_path,
        f"next(prompts()); submit('0')\n{script}\ntime.sleep(100)",
        assessment=AssessmentConfig(2),
    )
    assert played.run["terminal_reason"] == reason
    assert played.run["message"] == message
    assert played.run["handed_over_by"] == by
    assert played.run["counts"] is True
    assert played.run["assessment_score"] is not None
    assert played.each("reason") == [reason]
    assert played.each("stopped_by_host") == [True]


# -------------------------------------------------------------------- what it reports


def test_what_an_agent_reports_is_added_up_over_its_turns(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        """
for prompt in prompts():
    number = prompt["turn"]
    answer(number, text="so", data={
        "usage": {"input": 10 * number, "cache_read": 1, "output": 2.0, "cache_write": -5},
        "cost_usd": 0.25, "model": "m-1", "tool_calls": number, "model_calls": 3,
        "stop_reason": "enough", "foreign": [1],
    })
""",
        max_turns=2,
    )
    assert played.agent["tokens"] == {"input": 30, "cache_read": 2, "cache_write": 0, "output": 4}
    assert played.agent["tokens_complete"] is True
    assert played.agent["cost_usd"] == 0.5
    assert played.agent["model_reported"] == "m-1"
    assert played.agent["tool_calls"] == 3
    assert played.agent["model_calls"] == 6
    assert played.agent["stop_reason"] == "enough"
    assert played.agent["error"] is None
    assert played.each("tool_calls") == [1, 2]
    assert played.each("model_calls") == [3, 3]
    assert played.each("stop_reason") == ["enough", "enough"]


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"usage": None, "cost_usd": None, "model": None, "tool_calls": None, "error": None},
        {"usage": "many", "cost_usd": "1", "model": 5, "tool_calls": -1, "error": "bad"},
        {"usage": [], "cost_usd": -1, "model": "", "tool_calls": True, "error": {"kind": ["auth"]}},
    ],
    ids=["empty", "null", "foreign", "odd"],
)
def test_what_an_agent_does_not_report_is_null(tmp_path: Path, data: dict[str, Any]) -> None:
    played = play(tmp_path, f"for prompt in prompts(): answer(1, data={data!r})")
    assert played.run["terminal_reason"] == "exited"
    for name in ("tokens", "cost_usd", "model_calls", "model_reported", "estimated_cost_usd"):
        assert played.agent[name] is None, name
    assert played.agent["tokens_complete"] is False
    assert played.agent["tool_calls"] == 0
    assert played.agent["error"] is None
    assert played.each("final_message") == [None]


def test_part_of_an_account_is_no_account(tmp_path: Path) -> None:
    script = """
for prompt in prompts():
    number = prompt["turn"]
    answer(number, data={"usage": {"input": 7}, "cost_usd": 1} if number == 1 else {})
"""
    played = play(tmp_path, script, max_turns=2)
    assert played.agent["tokens"] == {"input": 7, "cache_read": 0, "cache_write": 0, "output": 0}
    assert played.agent["tokens_complete"] is False
    assert played.agent["cost_usd"] is None


@pytest.mark.parametrize(("status", "reason"), [(0, "exited"), (3, "crashed")])
def test_a_turn_without_an_answer_has_no_words_and_no_calls(
    tmp_path: Path, status: int, reason: str
) -> None:
    played = play(
        tmp_path,
        "for prompt in prompts():\n"
        f"    if prompt['turn'] == 2: sys.exit({status})\n"
        "    answer(1, text='one', data={'tool_calls': 4, 'model_calls': 2})",
        max_turns=3,
    )
    assert played.run["terminal_reason"] == reason
    assert played.each("exit_status") == [None, status]
    assert played.each("final_message") == ["one", None]
    assert played.each("tool_calls") == [4, 0]
    assert played.each("model_calls") == [2, None]
    assert played.agent["tool_calls"] == 4


# ------------------------------------------------------------------ its provider's errors

LIMITED = "data={'error': {'kind': 'rate_limit', 'message': 'slow down'}}"


def test_before_the_first_charge_another_attempt_starts_afresh(tmp_path: Path) -> None:
    home = tmp_path / "a-skill"
    (home / "notes").mkdir(parents=True)
    (home / "SKILL.md").write_text("# a skill")
    (home / "notes" / "a.txt").write_text("x")
    script = f"""
attempts = Path(sys.argv[1])
attempts.write_text(attempts.read_text() + "x")
assert sorted(p.name for p in Path("analysis").iterdir()) == [], os.listdir("analysis")
assert "edited" not in Path("program/policy.py").read_text()
assert Path("skills/a-skill/notes/a.txt").read_text() == "x"
prompt = next(prompts())
assert prompt["turn"] == 1 and prompt["message"] == Path("TASK.md").read_text()
if len(attempts.read_text()) < 3:
    Path("analysis/deep/er").mkdir(parents=True)
    Path("analysis/left").symlink_to("/")
    os.chmod("analysis/deep", 0o500)
    Path("program/policy.py").write_text("edited")
    answer(1, text="no", {LIMITED})
else:
    submit("0:2")
    client.finish(["submission-000001"])
    answer(1, text="yes")
"""
    (tmp_path / "attempts").touch()
    played = play(
        tmp_path,
        script,
        str(tmp_path / "attempts"),
        skills=(AgentSkill.from_directory(home),),
        max_turns=2,
        assessment=AssessmentConfig(2),
    )
    assert played.run["terminal_reason"] == "finished", played.log("stderr.txt").decode()
    assert played.run["counts"] is True
    assert played.run["assessment_score"] is not None
    assert played.each("turn") == [1, 1, 1]
    assert played.each("attempt") == [1, 2, 3]
    assert played.each("process") == [f"process-{n:03d}" for n in (1, 2, 3)]
    assert played.each("reason") == ["rate_limited", "rate_limited", "finished"]
    assert played.each("error") == ["slow down", "slow down", None]
    assert played.agent["retries"] == 2
    assert played.agent["error"] is None
    waits = [e["data"] for e in played.events if e["kind"] == "agent_retry"]
    assert [wait["seconds"] for wait in waits] == [0.02, 0.04]
    assert {wait["reason"] for wait in waits} == {"rate_limited"}
    assert waits[0]["message"] == "the agent's provider limited its rate: slow down"
    assert played.result.episodes_used == 2 == episodes_used(played.result.record / "ledger.jsonl")


RESUMED = f"""
seen = open("analysis/seen.jsonl", "a")
for number, prompt in enumerate(prompts()):
    print(json.dumps({{**prompt, "pid": os.getpid()}}), file=seen, flush=True)
    if number == 0:
        submit("0:2")
    if number < 2:
        answer(prompt["turn"], text=f"no {{number}}", {LIMITED})
    else:
        FINISH
        answer(prompt["turn"], text="yes")
"""


def test_after_the_first_charge_the_same_process_goes_on(tmp_path: Path) -> None:
    script = RESUMED.replace("FINISH", "client.finish(['submission-000001'])")
    played = play(tmp_path, script, max_turns=2)
    assert played.run["terminal_reason"] == "finished"
    assert played.run["counts"] is True
    seen = [strict(line) for line in (played.analysis / "seen.jsonl").read_bytes().splitlines()]
    assert len({one["pid"] for one in seen}) == 1
    assert [one["turn"] for one in seen] == [1, 1, 1]
    assert "6 of 8 Episodes" in seen[1]["message"]
    assert "submission-000001 (score" in seen[2]["message"]
    assert played.each("attempt") == [1, 2, 3]
    assert played.each("process") == ["process-001"] * 3
    assert played.each("reason") == ["rate_limited", "rate_limited", "finished"]
    assert played.agent["retries"] == 2
    ledger = (played.result.record / "ledger.jsonl").read_bytes().splitlines()
    assert [strict(line)["episode_indices"] for line in ledger] == [[0, 1]]


def test_after_a_retry_the_new_answer_counts(tmp_path: Path) -> None:
    """The same prompt number is answered again: what it says now is what it says."""
    played = play(tmp_path, RESUMED.replace("FINISH", "pass"), max_turns=2)
    assert played.run["terminal_reason"] == "exited"
    assert played.run["handed_over_by"] == "host"
    assert played.run["counts"] is True
    assert played.each("turn") == [1, 1, 1, 2]
    assert played.each("reason") == ["rate_limited", "rate_limited", "exited", "exited"]
    assert played.each("final_message") == ["no 0", "no 1", "yes", "yes"]
    assert played.each("error") == ["slow down", "slow down", None, None]
    assert played.agent["error"] is None


@pytest.mark.parametrize("charged", [False, True])
@pytest.mark.parametrize(
    ("kind", "reason", "said", "retries"),
    [
        ("rate_limit", "rate_limited", "the agent's provider limited its rate: sorry", 2),
        ("provider", "provider_error", "the agent's provider failed: sorry", 2),
        ("auth", "auth_failed", "the agent's provider refused its credentials: sorry", 0),
    ],
)
def test_a_run_that_its_provider_ended_is_no_data(
    tmp_path: Path, charged: bool, kind: str, reason: str, said: str, retries: int
) -> None:
    script = f"""
for prompt in prompts():
    if {charged} and not client.info()["submissions"]:
        submit("0")
    answer(1, data={{"error": {{"kind": "{kind}", "message": "sorry"}}}})
"""
    played = play(tmp_path, script, agent_retries=2, max_turns=2, assessment=AssessmentConfig(2))
    assert played.run["terminal_reason"] == reason
    assert played.run["counts"] is False
    assert played.run["message"] == f"{said}; unscored: this Run is no data"
    assert played.run["status"] == "failed"
    assert played.run["handed_over_by"] is None
    assert played.run["candidates"] == []
    assert played.run["assessment_score"] is None
    assert played.result.assessment is None
    assert played.agent["retries"] == retries
    assert played.agent["error"] == "sorry"
    assert len(played.turns) == retries + 1
    published = ["submission-000001"] if charged else []
    assert played.run["submissions"] == published
    assert [p.name for p in (played.result.record / "submissions").glob("*")] == published
    processes = {turn["process"] for turn in played.turns}
    assert len(processes) == (1 if charged else retries + 1)


def test_after_the_first_charge_the_last_turn_is_tried_again_too(tmp_path: Path) -> None:
    script = RESUMED.replace("FINISH", "client.finish(['submission-000001'])")
    played = play(tmp_path, script, max_turns=1)
    assert played.run["terminal_reason"] == "finished"
    assert played.each("attempt") == [1, 2, 3]


def test_an_error_beside_finish_does_not_undo_it(tmp_path: Path) -> None:
    script = f"""
for prompt in prompts():
    submit("0")
    client.finish(["submission-000001"])
    answer(1, {LIMITED})
"""
    played = play(tmp_path, script)
    assert played.run["terminal_reason"] == "finished"
    assert played.run["counts"] is True
    assert played.agent["retries"] == 0


def test_the_agent_of_a_turn_that_is_over_costs_no_time(tmp_path: Path) -> None:
    """Three turns of an agent that answers at once take no longer than its process needs."""
    began = time.monotonic()
    played = play(tmp_path, "for prompt in prompts(): answer(prompt['turn'])", max_turns=30)
    assert played.each("turn") == list(range(1, 31))
    assert time.monotonic() - began < 15
