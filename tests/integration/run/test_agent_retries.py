"""A client that does not start, or whose model's provider fails: tried again, never for nothing."""

from __future__ import annotations

import contextlib
import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from evopolicygym.agents import Command
from evopolicygym.agents.transcripts import amount, events, mapping, text
from evopolicygym.errors import ConfigurationError
from evopolicygym.run import AssessmentConfig
from evopolicygym.run.agent import (
    AgentErrorKind,
    AgentEvidence,
    AgentLaunch,
    AgentTask,
    AgentTurn,
    TokenUsage,
    Transcript,
)
from evopolicygym.run.files import read_json

from .test_agent_dialogue import PRELUDE, Played, play_agent

CLIENT = f"""{PRELUDE}
_, home, turn, session_id, message = sys.argv
home, number = Path(home), int((Path(home) / "counter").read_text())
(home / "counter").write_text(str(number + 1))
def note(**more):
    with open(home / "notes.jsonl", "a") as file:
        print(json.dumps({{"turn": int(turn), "session": session_id, "message": message, **more}}),
              file=file)
def begin(**more):
    own = f"session-{{number}}" if session_id == "None" else session_id
    put(json.dumps({{"type": "begin", "session": own, **more}}).encode() + b"\\n")
def close(**more):
    put(json.dumps({{"type": "result", **more}}).encode() + b"\\n")
def fail(kind="provider"):
    close(error=kind, message="no luck")
    sys.exit(1)
def finish():
    client.finish(["submission-000001"])
exec(json.loads((home / "plan.json").read_text())[number])
"""


@dataclass
class Client:
    """A client that keeps sessions; each of its starts does the next thing of a plan.

    Attributes:
        home: Where plan and counter are.
        plan: Python, one script a start.
        broken: Command lines to start instead, used up one by one; None disappears instead.
    """

    home: Path
    plan: Sequence[str]
    broken: list[list[str] | None] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    resumes: Literal["session", "never"] = "session"
    name: str = "client"
    model: str | None = "m-1"

    def __post_init__(self) -> None:
        (self.home / "counter").write_text("0")
        (self.home / "plan.json").write_text(json.dumps(self.plan))
        (self.home / "client.py").write_text(CLIENT)

    def check(self) -> None: ...

    def version(self) -> str | None:
        return "1.2.3"

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        argv: list[str] | None = [sys.executable, str(self.home / "client.py"), str(self.home)]
        if self.broken:
            argv = self.broken.pop(0)
        if argv is None:
            raise ConfigurationError("'client' was not found")
        return AgentLaunch(
            argv=[*argv, str(turn.number), str(turn.session_id), turn.message],
            environment=self.environment,
            closing_events=(("type", "result"),),
        )

    def read(self, evidence: AgentEvidence) -> Transcript:
        found = list(events(evidence.stdout))
        begun = next((event for event in found if event.get("type") == "begin"), {})
        closing = next((event for event in found if event.get("type") == "result"), None)
        said = mapping(closing)
        return Transcript(
            session_id=text(begun.get("session")),
            usage=TokenUsage(input=amount(said["tokens"])) if "tokens" in said else None,
            usage_complete="tokens" in said,
            tool_calls=amount(said.get("tools")),
            final_message=text(said.get("words")),
            error=AgentErrorKind(said["error"]) if "error" in said else None,
            error_message=text(said.get("message")),
            closed=closing is not None,
            begun=bool(found),
        )

    def describe(self) -> Mapping[str, Any]:
        return {}

    @property
    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / "notes.jsonl").read_bytes().splitlines()]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def unscored(played: Played, reason: str, message: str) -> None:
    assert played.run["terminal_reason"] == reason
    assert played.run["message"] == f"{message}; unscored: this Run is no data"
    assert played.run["counts"] is False
    assert played.run["status"] == "failed"
    assert played.run["handed_over_by"] is None
    assert played.run["candidates"] == []
    assert played.result.assessment is None
    assert played.run["assessment_score"] is None


# --------------------------------------------------------------------------- the start


def _garbage(path: Path) -> list[str]:
    path.write_bytes(b"\x01\x02\x03\x04 no program")
    path.chmod(0o755)
    return [str(path)]


def _no_interpreter(path: Path) -> list[str]:
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    return [str(path)]


def _not_executable(path: Path) -> list[str]:
    path.write_text("#!/bin/sh\n")
    return [str(path)]


def _too_long(path: Path) -> list[str]:
    return [sys.executable, "." * 200_000]


BROKEN: list[tuple[Callable[[Path], list[str]], str]] = [
    (_garbage, "the agent did not start: Exec format error"),
    (_no_interpreter, "the agent did not start: No such file or directory"),
    (_not_executable, "the agent did not start: Permission denied"),
    (_too_long, "the agent did not start: Argument list too long"),
    (
        lambda path: ["/bin/sh", "-c", "echo no library >&2; exit 127"],
        "the client did not start: status 127; its last line on stderr: no library",
    ),
]


@pytest.mark.parametrize(
    ("broken", "message"), BROKEN, ids=["format", "interpreter", "mode", "long", "status"]
)
def test_a_client_that_does_not_start_is_no_data_and_not_tried_again(
    tmp_path: Path, home: Path, broken: Callable[[Path], list[str]], message: str
) -> None:
    argv = broken(home / "client")
    agent = Client(home, [], [argv] * 9)
    played = play_agent(tmp_path, agent, agent_retries=2, assessment=AssessmentConfig(2))
    unscored(played, "start_failed", message)
    (turn,) = played.turns
    assert (turn["reason"], turn["attempt"], turn["session_id"]) == ("start_failed", 1, None)
    status = 127 if "127" in message else None
    assert turn["exit_status"] == played.agent["exit_status"] == status
    assert played.agent["retries"] == 0
    assert played.agent["tokens"] is None
    assert played.agent["no_descendant_survived"] is True
    assert len(agent.broken) == 8


def test_a_client_that_is_never_there_leaves_a_record(tmp_path: Path, home: Path) -> None:
    played = play_agent(tmp_path, Client(home, [], [None] * 9), agent_retries=1)
    unscored(played, "start_failed", "the agent did not start: 'client' was not found")
    assert played.each("reason") == ["start_failed"]
    assert played.each("final_message") == [None]


def test_a_client_that_disappears_between_turns_said_nothing(tmp_path: Path, home: Path) -> None:
    plan = ["begin(); submit(); close(words='one', tools=3)"] * 2
    agent = Client(home, plan)
    launch = agent.launch

    def vanish(task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        if turn.number == 2:
            raise ConfigurationError("'client' was not found")
        return launch(task, turn)

    agent.launch = vanish  # type: ignore[method-assign]
    played = play_agent(tmp_path, agent, agent_retries=1, max_turns=2)
    assert played.run["terminal_reason"] == "crashed"
    assert played.run["message"] == "the agent did not start: 'client' was not found"
    assert played.run["counts"] is True
    assert played.each("reason") == ["exited", "crashed"]
    assert played.each("final_message") == ["one", None]
    assert played.agent["tool_calls"] == 3


@pytest.mark.parametrize("environment", [{"NAME": "a\0b"}, {"A=B": "c"}, {"A\0B": "c"}])
def test_variables_that_no_process_can_have_are_refused(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError):
        play_agent(tmp_path, Command([sys.executable, "-c", ""], environment=environment))
    assert not (tmp_path / "record").exists()


# --------------------------------------------------------------------- provider errors


@pytest.mark.parametrize("kind", ["provider", "rate_limit"])
def test_before_the_first_charge_a_new_session_begins(
    tmp_path: Path, home: Path, kind: str
) -> None:
    first = f"""
note(left=os.listdir("analysis"))
Path("analysis/left").touch()
begin()
fail("{kind}")
"""
    last = "note(left=os.listdir('analysis')); begin(); submit(); finish(); close(words='so')"
    agent = Client(home, [first, first, last])
    played = play_agent(tmp_path, agent, max_turns=2)
    assert played.run["terminal_reason"] == "finished"
    assert played.run["counts"] is True
    assert [note["session"] for note in agent.notes] == ["None"] * 3
    assert [note["turn"] for note in agent.notes] == [1, 1, 1]
    assert [note["left"] for note in agent.notes] == [[], [], []]
    task = (played.result.record / "workspace" / "TASK.md").read_text()
    assert {note["message"] for note in agent.notes} == {task}
    assert played.each("session_id") == ["session-0", "session-1", "session-2"]
    reason = {"provider": "provider_error", "rate_limit": "rate_limited"}[kind]
    assert played.each("reason") == [reason, reason, "finished"]
    assert played.each("error") == ["no luck", "no luck", None]
    assert played.each("exit_status") == [1, 1, 0]
    assert played.agent["retries"] == 2


def test_after_the_first_charge_the_session_goes_on(tmp_path: Path, home: Path) -> None:
    plan = [
        "note(); begin(); submit('0:2'); Path('analysis/mine').touch(); fail()",
        "note(); begin(); fail('rate_limit')",
        "note(); begin(); assert Path('analysis/mine').exists(); close(words='a turn')",
        "note(); begin(); finish(); close(words='so')",
    ]
    agent = Client(home, plan)
    played = play_agent(tmp_path, agent, max_turns=2)
    assert played.run["terminal_reason"] == "finished", played.run["message"]
    assert played.run["counts"] is True
    assert [note["session"] for note in agent.notes] == ["None"] + ["session-0"] * 3
    assert [note["turn"] for note in agent.notes] == [1, 1, 1, 2]
    for note in agent.notes[1:]:
        assert "6 of 8 Episodes and 3 submissions are left" in note["message"]
        assert "Published: submission-000001 (score" in note["message"]
    assert played.each("session_id") == ["session-0"] * 4
    assert played.each("attempt") == [1, 2, 3, 3]
    assert played.each("turn") == [1, 1, 1, 2]
    assert played.each("reason") == ["provider_error", "rate_limited", "exited", "finished"]
    assert played.each("final_message") == [None, None, "a turn", "so"]
    assert played.result.episodes_used == 2
    assert played.agent["retries"] == 2


@pytest.mark.parametrize(
    ("begin", "resumes"), [("", "session"), ("begin()", "never")], ids=["no-session", "never"]
)
def test_after_the_first_charge_what_cannot_go_on_ends(
    tmp_path: Path, home: Path, begin: str, resumes: Any
) -> None:
    agent = Client(home, [f"{begin}; submit('0:2'); fail()".lstrip("; ")], resumes=resumes)
    played = play_agent(tmp_path, agent, assessment=AssessmentConfig(2))
    unscored(played, "provider_error", "the agent's provider failed: no luck")
    assert played.each("reason") == ["provider_error"]
    assert played.agent["retries"] == 0
    assert played.run["submissions"] == ["submission-000001"]
    assert played.result.episodes_used == 2
    kept = played.result.record / "submissions" / "submission-000001"
    assert (kept / "submission.json").exists()
    assert (kept / "program" / "policy.py").exists()
    assert (kept / "feedback" / "feedback.json").exists()


def test_a_session_is_not_lost_by_a_process_that_does_not_name_it(
    tmp_path: Path, home: Path
) -> None:
    plan = ["begin(); submit(); fail()", "fail()", "begin(); finish(); note(); close()"]
    agent = Client(home, plan)
    played = play_agent(tmp_path, agent)
    assert played.run["terminal_reason"] == "finished", played.run["message"]
    assert [note["session"] for note in agent.notes] == ["session-0"]
    assert played.agent["retries"] == 2


REMOVE = "import shutil; shutil.rmtree(os.getcwd())"
REPLACE = f"home = os.getcwd(); {REMOVE}; os.symlink('/no/such/place', home)"
LINK = f"home = os.getcwd(); {REMOVE}; os.symlink(sys.argv[1], home)"


@pytest.mark.parametrize(
    "damage",
    [REMOVE, REPLACE, LINK],
    ids=["gone", "dangling", "link"],
)
def test_a_fresh_workspace_takes_the_place_of_whatever_is_there(
    tmp_path: Path, home: Path, damage: str
) -> None:
    (home / "sub").mkdir(mode=0o700)
    (home / "sub" / "file").touch()
    plan = [
        f"begin(); close(error='provider'); {damage}; sys.exit(1)",
        "begin(); submit(); finish(); close()",
    ]
    played = play_agent(tmp_path, Client(home, plan))
    assert played.run["terminal_reason"] == "finished"
    assert not (played.result.record / "workspace").is_symlink()
    assert (home / "sub" / "file").exists()
    assert stat.S_IMODE((home / "sub").stat().st_mode) == 0o700


def test_an_agent_cannot_unmake_its_run_by_what_it_does_to_its_workspace(
    tmp_path: Path, home: Path
) -> None:
    """A bad score is a score, also where the next turn finds no directory to start in."""
    plan = [f"begin(); submit(); close(); {REMOVE}", "begin(); close()"]
    played = play_agent(tmp_path, Client(home, plan), max_turns=2, assessment=AssessmentConfig(2))
    assert played.run["counts"] is True, played.run["message"]
    assert played.run["handed_over_by"] == "host"
    assert played.run["assessment_score"] is not None


def test_retries_are_counted_over_all_turns(tmp_path: Path, home: Path) -> None:
    plan = [
        "begin(); submit(); fail()",
        "begin(); close()",
        "begin(); fail()",
        "begin(); fail()",
    ]
    played = play_agent(tmp_path, Client(home, plan), max_turns=3, agent_retries=2)
    unscored(played, "provider_error", "the agent's provider failed: no luck")
    assert played.each("turn") == [1, 1, 2, 2]
    assert played.each("attempt") == [1, 2, 2, 3]
    waits = [event["data"]["seconds"] for event in played.events if event["kind"] == "agent_retry"]
    assert waits == [0.02, 0.04]


@pytest.mark.parametrize(
    ("script", "reason", "counts"),
    [
        ("submit(); finish(); fail()", "finished", True),
        ("submit(); finish(); fail('auth')", "finished", True),
        ("submit('0:8'); fail()", "budget_exhausted", True),
        ("submit(); fail('auth')", "auth_failed", False),
        ("submit(); sys.exit(3)", "crashed", True),
        ("submit(); os.kill(os.getpid(), 9)", "killed", True),
        ("submit()", "crashed", True),
        ("submit(); client.submit('program', '1'); close()", "exited", True),
    ],
    ids=["finish", "finish-auth", "spent", "auth", "crash", "kill", "cut", "evaluating"],
)
def test_what_is_not_tried_again(
    tmp_path: Path, home: Path, script: str, reason: str, counts: bool
) -> None:
    agent = Client(home, [f"begin(); {script}", "begin(); close(words='again')"])
    played = play_agent(tmp_path, agent, assessment=AssessmentConfig(2))
    assert played.run["terminal_reason"] == reason, played.run["message"]
    assert played.run["counts"] is counts
    assert (played.run["assessment_score"] is not None) is counts
    assert played.each("reason") == [reason]
    assert played.agent["retries"] == 0
    assert (home / "counter").read_text() == "1"


def test_tokens_of_sessions_are_neither_lost_nor_counted_twice(tmp_path: Path, home: Path) -> None:
    plan = [
        "begin(); close(error='provider', tokens=10); sys.exit(1)",
        "begin(); submit(); close(error='provider', tokens=20); sys.exit(1)",
        "begin(); finish(); close(tokens=50)",
    ]
    played = play_agent(tmp_path, Client(home, plan))
    assert played.run["terminal_reason"] == "finished"
    assert played.each("session_id") == ["session-0", "session-1", "session-1"]
    assert played.agent["tokens"]["input"] == 10 + 50
    assert played.agent["tokens_complete"] is True


# ---------------------------------------------------------------------------- the waits


def test_waiting_for_a_provider_is_not_the_agents_time(tmp_path: Path, home: Path) -> None:
    """The deadline, as the agent is told it, moves by just what the Host waited."""
    told = "note(deadline=time.monotonic() + client.info()['seconds_remaining']); begin(); "
    plan = [told + "fail()", told + "submit(); fail()", told + "finish(); close()"]
    agent = Client(home, plan)
    played = play_agent(tmp_path, agent, agent_retry_backoff_seconds=0.4)
    assert played.run["terminal_reason"] == "finished", played.run["message"]
    first, second, third = (note["deadline"] for note in agent.notes)
    assert second - first == pytest.approx(0.4, abs=0.2)
    assert third - second == pytest.approx(0.8, abs=0.2)
    assert played.agent["wall_seconds"] > 1.2


HOST = """
import sys
from evopolicygym import Program
from evopolicygym.agents import Command
from evopolicygym.envs import load
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import RunConfig, run
record, *argv = sys.argv[1:]
run(Program({"policy.py": b"def make_policy(context): ..."}), load("toy"),
    agent=Command(argv, protocol="jsonl"), execution=ProcessExecution.unsafe(), record_to=record,
    config=RunConfig(episode_budget=5, agent_timeout_seconds=90, max_turns=2, jobs=1,
                     agent_retry_backoff_seconds=80))
"""


@contextlib.contextmanager
def waiting_host(tmp_path: Path, work: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a Host that waits 80 seconds before it tries again."""
    (tmp_path / "host.py").write_text(HOST)
    (tmp_path / "agent.py").write_text(
        f"{PRELUDE}\nfor prompt in prompts():\n    {work}\n"
        "    answer(1, data={'error': {'kind': 'provider', 'message': 'no luck'}})"
    )
    argv = [str(tmp_path / "record"), sys.executable, str(tmp_path / "agent.py")]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "host.py"), *argv], stderr=subprocess.DEVNULL
    )
    events = tmp_path / "record" / "events.jsonl"
    try:
        deadline = time.monotonic() + 30
        while not (events.exists() and b'"agent_retry"' in events.read_bytes()):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def agents(tmp_path: Path) -> list[Path]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if str(tmp_path / "agent.py").encode() in arguments[:2]:
                    found.append(entry)
    return found


@pytest.mark.parametrize(("work", "running"), [("pass", 0), ("submit('0')", 1)])
def test_an_interrupt_while_waiting_ends_at_once(tmp_path: Path, work: str, running: int) -> None:
    with waiting_host(tmp_path, work) as process:
        time.sleep(0.1)
        assert len(agents(tmp_path)) == running
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert time.monotonic() - began < 5
    assert agents(tmp_path) == []
    document = read_json(tmp_path / "record" / "run.json")
    assert document["terminal_reason"] == "interrupted"
    assert document["message"] == "interrupted"
    assert document["status"] == "failed"
    assert document["counts"] is False
    assert document["agent"]["retries"] == 1
    assert document["agent"]["no_descendant_survived"] is True
    assert document["episodes_used"] == running
