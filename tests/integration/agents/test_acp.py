"""`Acp` and its bridge, with a real agent of the ACP SDK."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evopolicygym import Program
from evopolicygym.agents import Acp
from evopolicygym.agents.acp import NEVER_BEGUN
from evopolicygym.envs import load
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import AssessmentConfig, RunConfig, RunResult, TerminalReason, run
from evopolicygym.run.dialogue import parse_answer, prompt_line
from evopolicygym.run.files import read_json, read_lines
from evopolicygym.run.supervisor import MAX_LINE_BYTES

AGENT = Path(__file__).with_name("acp_agent.py")
Step = dict[str, Any]
OUTSIDE = "/outside/of/it"


class Bridge:
    """The bridge as a Host sees it."""

    def __init__(self, workspace: Path, agent: Sequence[str], **options: Any) -> None:
        self._stderr = workspace.parent / "stderr.txt"
        self._turn = 0
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "evopolicygym.agents.acp_bridge"),
                    json.dumps({"mode": None, "mcp": None, **options}),
                    *agent,
                ],
                cwd=workspace,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    def release(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def prompt(self, message: str = "go on") -> None:
        self._turn += 1
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(prompt_line(self._turn, message).encode() + b"\n")
            self.process.stdin.flush()

    def ask(self, message: str = "go on") -> Any:
        """Play a turn; return the answer."""
        self.prompt(message)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert 0 < len(line) < MAX_LINE_BYTES
        assert set(json.loads(line)) == {"turn", "text", "stop", "data"}
        answer = parse_answer(line.decode())
        assert answer.turn == self._turn
        return answer

    def found(self) -> list[Any]:
        """Play a turn; return what the agent found out."""
        answer = self.ask()
        assert "error" not in answer.data, answer.data
        return [json.loads(line) for line in answer.text.splitlines()]

    def end(self) -> tuple[int, str]:
        """Close the input; return the status and stderr. Nothing more was said."""
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        assert self.process.stdout.read() == b""
        return self.process.wait(10), self._stderr.read_text()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def bridge(workspace: Path) -> Iterator[Callable[..., Bridge]]:
    started: list[Bridge] = []

    def start(*turns: list[Step], options: dict[str, Any] | None = None, **script: Any) -> Bridge:
        agent = [sys.executable, str(AGENT), json.dumps({"turns": turns, **script})]
        started.append(Bridge(workspace, agent, **(options or {})))
        return started[-1]

    yield start
    for one in started:
        one.release()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_two_turns_of_one_session(bridge: Callable[..., Bridge]) -> None:
    server = {"command": "/bin/server", "args": ["mcp"], "environment": {"NAME": "value"}}
    one = bridge(
        [{"tell": "prompt"}, {"tell": "session"}, {"tell": "servers"}, {"tell": "mode"}],
        [{"tell": "prompt"}, {"tell": "session"}],
        options={"mode": "yolo", "mcp": server},
    )
    first = one.ask("  eins\nzwei é\u2028 ")
    second = one.ask("drei")
    prompt, session, servers, mode = (json.loads(line) for line in first.text.splitlines())
    assert prompt == "  eins\nzwei é\u2028 "
    assert mode == "yolo"
    assert [(s["name"], s["command"], s["args"]) for s in servers] == [
        ("evopolicygym", "/bin/server", ["mcp"])
    ]
    assert [(v["name"], v["value"]) for v in servers[0]["env"]] == [("NAME", "value")]
    assert [json.loads(line) for line in second.text.splitlines()] == ["drei", session]
    assert first.data == second.data == {"stop_reason": "end_turn", "tool_calls": 0}
    status, stderr = one.end()
    assert status == 0
    assert stderr == f"closed {session}\n"  # and no noise of a closed event loop
    assert not alive(int(session.removeprefix("session-")))


def test_the_last_prompt_is_still_answered(bridge: Callable[..., Bridge]) -> None:
    one = bridge([{"shell": "sleep 0.5"}, {"say": "done"}])
    one.prompt()
    assert one.process.stdin is not None
    assert one.process.stdout is not None
    one.process.stdin.close()
    assert parse_answer(one.process.stdout.readline().decode()).text.endswith("done")
    assert one.end()[0] == 0


ALLOWED: list[Step] = [
    {"kind": "edit", "locations": [{"path": "WORKSPACE/program/new.py"}]},
    {"kind": "edit", "raw_input": {"file_path": "program/new.py", "content": "/* is no path */"}},
    {"kind": "edit", "content": [{"type": "diff", "path": "WORKSPACE/a", "newText": ""}]},
    {"kind": "delete", "raw_input": {"path": "WORKSPACE/inside/../a"}},
    {"kind": "execute", "raw_input": {"command": "cat /etc/hosts", "cwd": "WORKSPACE"}},
    {"kind": "execute", "title": "ls", "raw_input": {"command": ["ls", "/"]}},
    {"kind": "execute", "raw_input": {"possiblePaths": [OUTSIDE], "env": {"PATH": OUTSIDE}}},
    {"title": "a kind of its own"},
    {"kind": "read", "raw_input": {"path": "inner/a"}},
    {"kind": "edit", "raw_input": {"uri": "file://WORKSPACE/a"}},
    {"raw_input": {"command": "cat /etc/hosts"}},
    {"kind": "edit", "raw_input": {"patch": "*** Update File: program/policy.py\n+/a comment"}},
]
REJECTED: list[Step] = [
    {"kind": "edit", "locations": [{"path": OUTSIDE}]},
    {"kind": "edit", "locations": [{"path": "WORKSPACE/a"}, {"path": OUTSIDE}]},
    {"kind": "edit", "locations": [{"path": "WORKSPACE/../workspace-2/a"}]},
    {"kind": "edit", "raw_input": {"filePath": "../a"}},
    {"kind": "edit", "raw_input": {"edits": [{"absolute_path": OUTSIDE}]}},
    {"kind": "edit", "raw_input": {"changes": {OUTSIDE: {"add": ""}}}},
    {"kind": "edit", "raw_input": {"changes": {"link": {"add": ""}}}},
    {"kind": "edit", "content": [{"type": "diff", "path": OUTSIDE, "newText": ""}]},
    {"kind": "edit", "title": "of nothing that it names"},
    {"kind": "read", "raw_input": {"paths": ["a", "~/a"]}},
    {"kind": "read", "locations": [{"path": "link/a"}]},
    {"kind": "read", "locations": [{"path": "loop/a/../../link"}]},
    {"kind": "read", "locations": [{"path": "deep/../../secret"}]},
    {"kind": "read", "locations": [{"path": "a\0b"}]},
    {"kind": "read", "raw_input": {"anything": OUTSIDE}},
    {"kind": "read", "raw_input": OUTSIDE},
    {"kind": "fetch", "raw_input": {"url": "file:///etc/passwd"}},
    {"kind": "search", "raw_input": {"pattern": "/etc/*"}},
    {"kind": "edit", "locations": [{"path": "a"}], "raw_input": {"patch": "+++ ../run.json"}},
    {"kind": "edit", "raw_input": {"path": "a", "input": "*** Move to: /outside/a"}},
    {"raw_input": {"command": "ls", "cwd": OUTSIDE}},
    {"kind": "edit", "raw_input": {"uri": "file:///outside/%61"}},
    {"kind": "execute", "raw_input": {"command": "ls", "cwd": OUTSIDE}},
    {"kind": "execute", "raw_input": {"command": "ls", "workdir": "inner/../.."}},
    {"kind": "execute", "raw_input": {"command": "ls"}, "locations": [{"path": OUTSIDE}]},
]


def test_permissions(bridge: Callable[..., Bridge], workspace: Path) -> None:
    (workspace / "link").symlink_to(workspace.parent)
    (workspace / "inner").symlink_to(workspace)
    (workspace / "loop").symlink_to("loop")
    (workspace / "1" / "2" / "3").mkdir(parents=True)
    (workspace / "deep").symlink_to("1/2/3")
    asked = json.dumps([*ALLOWED, *REJECTED]).replace("WORKSPACE", str(workspace))
    calls = [{"ask": {"tool_call_id": f"call-{i}", **c}} for i, c in enumerate(json.loads(asked))]
    one = bridge(calls)
    answers = one.found()
    assert answers[: len(ALLOWED)] == ["o-allow_once"] * len(ALLOWED)
    assert answers[len(ALLOWED) :] == ["o-reject_once"] * len(REJECTED)
    status, stderr = one.end()
    assert status == 0
    told = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    assert [line["answer"] for line in told if line["type"] == "permission"] == answers


def test_permission_for_a_call_that_was_described_before(bridge: Callable[..., Bridge]) -> None:
    one = bridge(
        [
            {"tool": {"tool_call_id": "a", "title": "edit", "kind": "edit",
                      "locations": [{"path": OUTSIDE}]}},
            {"tool": {"tool_call_id": "b", "title": "edit", "kind": "edit",
                      "locations": [{"path": "a"}]}},
            {"ask": {"tool_call_id": "a"}},
            {"ask": {"tool_call_id": "b"}},
        ]
    )  # fmt: skip
    answer = one.ask()
    assert answer.text.split() == ['"o-reject_once"', '"o-allow_once"']
    assert answer.data["tool_calls"] == 2
    told = [json.loads(line) for line in one.end()[1].splitlines() if line.startswith("{")]
    assert [line["type"] for line in told] == [*["tool_call"] * 2, *["permission"] * 2]


def test_nothing_is_allowed_for_always(bridge: Callable[..., Bridge]) -> None:
    inside = {"kind": "edit", "locations": [{"path": "a"}]}
    outside = {"kind": "edit", "locations": [{"path": OUTSIDE}]}
    one = bridge(
        [
            {"ask": {**inside, "options": ["allow_always", "reject_once"]}},
            {"ask": {**inside, "options": ["allow_always"]}},
            {"ask": {**outside, "options": ["allow_always", "allow_once"], "tool_call_id": "2"}},
        ]
    )
    assert one.found() == ["o-reject_once", "cancelled", "cancelled"]


def test_files(bridge: Callable[..., Bridge], workspace: Path) -> None:
    secret = workspace.parent / "secret"
    secret.write_text("secret")
    (workspace / "link").symlink_to(secret)
    (workspace / "up").symlink_to("..")
    (workspace / "a").write_text("1\n2\n3\n")
    os.mkfifo(workspace / "pipe")
    outside = [str(secret), "../secret", "link", "up/secret", "up/new", "a/../../secret", "pipe"]
    one = bridge(
        [{"read": {"path": path}} for path in outside],
        [{"write": {"path": path, "content": "x"}} for path in outside],
        [
            {"read": {"path": str(workspace / "a")}},
            {"read": {"path": "a", "line": 2, "limit": 1}},
            {"read": {"path": "missing"}},
            {"write": {"path": str(workspace / "new" / "b"), "content": "é\r\n"}},
        ],
    )
    assert one.found() == [{"error": -32602}] * len(outside)
    assert one.found() == [{"error": -32602}] * len(outside)
    assert one.found() == ["1\n2\n3\n", "2", {"error": -32002}, "written"]
    assert secret.read_text() == "secret"
    assert (workspace / "new" / "b").read_bytes() == "é\r\n".encode()
    assert sorted(path.name for path in workspace.parent.iterdir()) == [
        *("secret", "stderr.txt", "workspace")
    ]


USAGE = {"input_tokens": 60, "output_tokens": 20, "cached_read_tokens": 30,
         "cached_write_tokens": 10, "total_tokens": 120}  # fmt: skip
TOKENS = {"input": 60, "cache_read": 30, "cache_write": 10, "output": 20}


@pytest.mark.parametrize(
    ("name", "usage", "tokens"),
    [
        ("claude-agent", USAGE, TOKENS),
        ("claude-agent", {**USAGE, "thought_tokens": 5}, TOKENS),
        ("claude-agent", {**USAGE, "input_tokens": 100}, TOKENS),
        ("claude-agent", {**USAGE, "output_tokens": 15, "thought_tokens": 5}, TOKENS),
        ("claude-agent", {**USAGE, "total_tokens": 121}, None),
        ("claude-agent", {**USAGE, "input_tokens": 100, "output_tokens": 0, "thought_tokens": 40,
                          "total_tokens": 140}, None),
        ("opencode", USAGE, None),
        ("claude-agent", None, None),
    ],
)  # fmt: skip
def test_usage(
    bridge: Callable[..., Bridge], name: str, usage: dict[str, int] | None, tokens: object
) -> None:
    one = bridge([{"usage": usage}], name=name)
    assert one.ask().data.get("usage") == tokens


def test_cost_of_each_turn(bridge: Callable[..., Bridge]) -> None:
    one = bridge(
        [],
        [{"cost": 0.25}, {"cost": 0.5}],
        [{"cost": 1.25}],
        [{"fail": [-32603, "oops"]}],
        [{"cost": 1.0}],
    )
    costs = [one.ask().data.get("cost_usd") for _ in range(5)]
    assert costs == [None, 0.5, 0.75, 0.0, None]


def test_errors_are_answers(bridge: Callable[..., Bridge]) -> None:
    one = bridge(
        [{"fail": [-32000, "Authentication required"]}],
        [{"say": "hm"}, {"fail": [-32603, "Internal error", {"details": "HTTP 429"}]}],
        [{"fail": [-32603, "Rate limit reached"]}],
        [{"fail": [-32603, "the model is on fire \ud800"]}],
        [{"say": "well"}],
        signed_in=False,
    )
    answers = [one.ask() for _ in range(6)]
    errors = [answer.data.get("error", {}) for answer in answers]
    kinds = [error.get("kind") for error in errors]
    assert kinds == ["auth", "auth", "rate_limit", "rate_limit", "provider", None]
    assert "429" in errors[2]["message"]
    assert errors[4]["message"] == "the model is on fire ?"
    assert [answer.text for answer in answers] == ["", "", "hm", "", "", "well"]
    assert one.end()[0] == 0


def test_an_agent_that_dies_in_a_turn(bridge: Callable[..., Bridge]) -> None:
    one = bridge([{"say": "so"}, {"exit": 7}])
    one.prompt()
    assert one.process.wait(10) == 1
    assert one.end()[1] == "acp bridge: the agent ended with status 7\n"


def test_an_agent_that_dies_between_turns(bridge: Callable[..., Bridge]) -> None:
    one = bridge([{"shell": "(sleep 0.5; kill -9 $PPID) >/dev/null 2>&1 &"}, {"say": "yes"}])
    assert "yes" in one.ask().text
    assert one.process.wait(10) == 1
    assert "the agent ended with status -9" in one.end()[1]


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (["/no/such/agent"], "did not start: No such file"),
        ([sys.executable, "-c", "import sys; sys.exit(3)"], "ended with status 3"),
        ([sys.executable, "-c", "import os, time; os.close(1); time.sleep(1000)"], "is lost"),
        ([sys.executable, str(AGENT), '{"turns": [], "version": 2}'], "speaks version 2"),
    ],
)
def test_no_agent_to_talk_to(workspace: Path, agent: list[str], message: str) -> None:
    one = Bridge(workspace, agent)
    try:
        one.prompt()
        assert one.process.wait(20) == NEVER_BEGUN
        stderr = one.end()[1]
    finally:
        one.release()
    assert message in stderr.splitlines()[-1]


@pytest.mark.parametrize("stubborn", [False, True])
def test_sigterm_ends_a_hanging_agent(
    bridge: Callable[..., Bridge], workspace: Path, stubborn: bool
) -> None:
    pid = workspace / "pid"
    one = bridge(
        [
            *([{"stubborn": True}] if stubborn else []),
            {"shell": f"echo $PPID > {pid}; sleep 4571 >/dev/null 2>&1 & echo $! >> {pid}"},
            {"hang": "hangs"},
        ]
    )
    one.prompt()
    deadline = time.monotonic() + 20
    while not (workspace / "hangs").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    began = time.monotonic()
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(10) == 0
    assert time.monotonic() - began < 4.5, "the Host's grace is 5 s"
    assert not [line for line in pid.read_text().split() if alive(int(line))]
    assert "Event loop" not in one.end()[1]


def test_of_a_flood_the_end_is_kept(bridge: Callable[..., Bridge]) -> None:
    one = bridge([{"flood": 5 * 2**20}], [{"say": "calm"}])
    answer = one.ask()
    assert len(answer.text) == 2**17
    assert answer.text.endswith("\x01é𝄞x" * 1000 + "the end")
    assert one.ask().text == "calm"


def test_evidence_is_bounded(bridge: Callable[..., Bridge]) -> None:
    call = {"tool_call_id": "a", "title": "t" * 9_000, "raw_input": {"content": "x" * 9_000}}
    one = bridge([{"tool": call}] * 3)
    assert one.ask().data["tool_calls"] == 1
    lines = one.end()[1].splitlines()
    assert [len(line) < 1500 for line in lines] == [True] * 4
    assert [json.loads(line)["type"] for line in lines[:3]] == ["tool_call"] * 3


# ------------------------------------------------------------------------- whole Runs

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
SUBMIT = {"shell": "evopolicygym-session submit program --episodes 0:2"}
FINISH = {"shell": "evopolicygym-session finish submission-000001"}


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., RunResult]:
    def play(*turns: list[Step], max_turns: int = 1, retries: int = 3, **script: Any) -> RunResult:
        script = {"turns": turns, "name": "claude-scripted", **script}
        return run(
            START,
            load("toy"),
            agent=Acp([sys.executable, str(AGENT), json.dumps(script)]),
            execution=ProcessExecution.unsafe(),
            record_to=tmp_path / "record",
            config=RunConfig(
                episode_budget=4,
                assessment=AssessmentConfig(2),
                agent_timeout_seconds=60,
                max_turns=max_turns,
                agent_retries=retries,
            ),
        )

    return play


def test_a_run_of_one_turn(play: Callable[..., RunResult]) -> None:
    result = play(
        [
            {"shell": "sleep 4572 >/dev/null 2>&1 & echo $! > analysis/pid"},
            {"tool": {"tool_call_id": "a", "title": "submit"}},
            *(SUBMIT, FINISH, {"usage": USAGE}, {"cost": 0.5}, {"say": "done"}),
        ]
    )
    assert result.terminal_reason is TerminalReason.FINISHED, result.message
    assert result.assessment_score is not None
    agent = read_json(result.record / "run.json")["agent"]
    assert agent["tokens"] == TOKENS
    assert agent["tokens_complete"] is True
    assert agent["cost_usd"] == 0.5
    assert agent["tool_calls"] == 1
    assert agent["stop_reason"] == "end_turn"
    assert agent["final_message"].endswith("done")
    assert agent["exit_status"] == 0
    assert agent["stopped_by_host"] is False
    assert agent["no_descendant_survived"] is True
    assert not alive(int((result.record / "workspace" / "analysis" / "pid").read_text()))


def test_a_run_of_two_turns(play: Callable[..., RunResult]) -> None:
    result = play(
        [SUBMIT, {"usage": USAGE}, {"cost": 0.5}],
        [{"tell": "prompt"}, FINISH, {"usage": USAGE}, {"cost": 0.75}],
        max_turns=2,
    )
    assert result.terminal_reason is TerminalReason.FINISHED, result.message
    agent = read_json(result.record / "run.json")["agent"]
    assert agent["turns"] == 2
    assert agent["tokens"] == {name: 2 * count for name, count in TOKENS.items()}
    assert agent["cost_usd"] == 0.75
    first, second = read_lines(result.record / "agent" / "turns.jsonl")
    assert first["process"] == second["process"]
    assert first["reason"] == "exited"
    heard = json.loads(second["final_message"].splitlines()[0])
    assert heard.startswith("The Run goes on: ")
    assert heard == second["message"]


def test_a_run_whose_provider_refuses(play: Callable[..., RunResult]) -> None:
    result = play([], signed_in=False)
    assert result.terminal_reason is TerminalReason.AUTH_FAILED
    assert "Authentication required" in (result.message or "")
    assert result.final_submission is None


def test_a_run_whose_agent_never_begins(play: Callable[..., RunResult]) -> None:
    result = play([], version=2, retries=0)
    assert result.terminal_reason is TerminalReason.START_FAILED
    assert result.counts is False


def test_a_run_whose_agent_dies(play: Callable[..., RunResult]) -> None:
    result = play([SUBMIT, {"exit": 7}])
    assert result.terminal_reason is TerminalReason.CRASHED
    assert "the agent ended with status 7" in (result.message or "")
    assert result.assessment_score is not None
