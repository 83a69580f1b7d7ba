"""What readers make of recorded clients, and of damage."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evopolicygym.agents.transcripts import amount, cost, error_kind, events, text
from evopolicygym.agents.transcripts.claude_code import read_claude_code
from evopolicygym.agents.transcripts.codex import read_codex
from evopolicygym.agents.transcripts.dialogue import read_dialogue
from evopolicygym.agents.transcripts.kimi_code import read_kimi_code
from evopolicygym.run.agent import (
    AgentErrorKind,
    AgentEvidence,
    AgentTask,
    McpServer,
    TokenUsage,
    Transcript,
)
from evopolicygym.run.dialogue import Answer, AnswerError, parse_answer
from evopolicygym.strict_json import dumps

RECORDED = Path(__file__).parent / "recorded"
CASES = sorted(f"{path.parent.name}/{path.name}" for path in RECORDED.glob("*/*"))
TASK = AgentTask(Path("workspace"), Path("state"), "task", 1, 3, McpServer("x", [], {}))
CLIENTS = ("claude", "codex", "dialogue", "kimi")


@dataclass(frozen=True)
class Desk:
    """A place to put evidence."""

    root: Path

    def evidence(self, session_id: str | None = None) -> AgentEvidence:
        return AgentEvidence(
            self.root / "stdout.txt", self.root / "stderr.txt", None, TASK, session_id
        )

    def keep(self, client: str, data: bytes, session: str, agent: str = "main") -> Path:
        """Put a file where the client keeps its token counts."""
        if client == "codex":
            path = (
                self.root / "sessions/2026/11/29" / f"rollout-2026-11-29T19-38-33-{session}.jsonl"
            )
        else:
            path = self.root / "sessions/wd_1" / session / "agents" / agent / "wire.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def say(self, *lines: Any) -> None:
        """Write JSON lines to stdout."""
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (self.root / "stdout.txt").write_bytes(data.encode())

    def read(
        self, client: str, session_id: str | None = None, status: int | None = 1
    ) -> Transcript:
        evidence = replace(self.evidence(session_id), status=status)
        if client == "dialogue":
            answers = self.answers()
            return read_dialogue(replace(evidence, answers=answers, answered=bool(answers)))
        if client == "codex":
            return read_codex(evidence, self.root)
        if client == "kimi":
            return read_kimi_code(evidence, self.root, own_home=True)
        return read_claude_code(evidence)

    def answers(self) -> tuple[Answer, ...]:
        """Return the answers on stdout, one a turn, as the driver takes them."""
        path, found = self.root / "stdout.txt", dict[int, Answer]()
        data = path.read_bytes() if path.is_file() else b""
        for line in data.decode(errors="replace").split("\n"):
            with suppress(AnswerError):
                answer = parse_answer(line)
                found.setdefault(answer.turn, answer)
        return tuple(found.values())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@contextmanager
def fresh_desk() -> Iterator[Desk]:
    with tempfile.TemporaryDirectory() as name:
        yield Desk(Path(name))


def lines_of(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


# -------------------------------------------------------------------- recorded clients


PROVIDER, AUTH, RATE = AgentErrorKind.PROVIDER, AgentErrorKind.AUTH, AgentErrorKind.RATE_LIMIT
REQUEST = AgentErrorKind.REQUEST

CLAUDE_500 = (
    "API Error: 500 scripted failure. This is a server-side issue, usually temporary — try again "
    "in a moment. If it persists, check your inference gateway (127.0.0.1:40000)."
)
CLAUDE_401 = "Failed to authenticate. API Error: 401 scripted failure"
CLAUDE_429 = "API Error: Request rejected (429) · scripted failure"
CLAUDE_CUT = (
    "API Error: Connection dropped (ECONNRESET). Check the gateway set in ANTHROPIC_BASE_URL, "
    "then try again."
)
CODEX_401 = (
    "unexpected status 401 Unauthorized: scripted failure, url: http://127.0.0.1:40000/v1/responses"
)
CODEX_429 = "exceeded retry limit, last status: 429 Too Many Requests"
CODEX_500 = "We’re currently experiencing high demand, which may cause temporary errors."
CODEX_CUT = "stream disconnected before completion: stream closed before response.completed"
KIMI_CUT = (
    "provider.api_error: The API returned an empty response (no content, no tool calls). "
    "Provider: openai, model: kimi-for-coding"
)
KIMI_401 = "provider.auth_error: 401 scripted failure"
KIMI_429 = "provider.rate_limit: 429 scripted failure"
KIMI_500 = "provider.api_error: 500 scripted failure"

SONNET, KIMI_MODEL = "claude-sonnet-5-5", "kimi-code/kimi-for-coding"


def row(
    session: str,
    model: str | None,
    usage: tuple[int, int, int, int] | None,
    complete: bool,
    cost_usd: float | None,
    model_calls: int | None,
    tool_calls: int,
    words: str | None,
    stop: str | None,
    error: AgentErrorKind | None,
    message: str | None,
    closed: bool,
    files: tuple[str, ...] = (),
) -> dict[str, Any]:
    return {
        "session_id": session,
        "model": model,
        "usage": None if usage is None else TokenUsage(*usage),
        "usage_complete": complete,
        "cost_usd": cost_usd,
        "model_calls": model_calls,
        "tool_calls": tool_calls,
        "final_message": words,
        "stop_reason": stop,
        "error": error,
        "error_message": message,
        "closed": closed,
        "begun": True,
        "stop": False,
        "several_models": False,
        "files": files,
    }


def claude(session: str, *rest: Any) -> dict[str, Any]:
    return row(session, SONNET, *rest)


def codex(session: str, *rest: Any, rollout: bool = True) -> dict[str, Any]:
    usage, complete, *others = rest
    files = (f"rollout-2026-11-29T19-38-33-{session}.jsonl",) * rollout
    return row(session, None, usage, complete, None, *others, files)


def kimi(session: str, model: str | None, usage: Any, complete: bool, *rest: Any) -> dict[str, Any]:
    return row(session, model, usage, complete, None, *rest, ("wire-main.jsonl",))


# Session, (model,) usage, complete, (cost,) model calls, tool calls, final message, stop reason,
# error, its message, closed.
RECORDED_TRANSCRIPTS: dict[str, dict[str, Any]] = {
    "claude/success": claude(
        "464050a0-03ea-4932-a1b6-95a70e3c1476",
        *((159, 120, 21, 60), True, 0.0009824999999999999, 3, 2),
        *("all done", "completed", None, None, True),
    ),
    "claude/resume": claude(
        "464050a0-03ea-4932-a1b6-95a70e3c1476",
        *((265, 200, 35, 100), True, 0.0016375, 2, 1),
        *("second", "completed", None, None, True),
    ),
    "claude/http401": claude(
        "e18498e5-92cb-49b3-9977-edbb21776a79",
        *(None, False, None, 0, 0, CLAUDE_401, "api_error", AUTH, CLAUDE_401, True),
    ),
    "claude/http429": claude(
        "9905ab87-de3e-4fb7-9f05-11b57c5bff1e",
        *(None, False, None, 0, 0, CLAUDE_429, "api_error", RATE, CLAUDE_429, True),
    ),
    "claude/http500": claude(
        "194eb610-0847-4894-b13f-19bd59f2ac2a",
        *(None, False, None, 0, 0, CLAUDE_500, "api_error", PROVIDER, CLAUDE_500, True),
    ),
    "claude/late500": claude(
        "2e6f73ee-9fc6-49ac-9cc5-56617c77333e",
        *((53, 40, 7, 20), True, 0.0003275, 1, 1),
        *(CLAUDE_500, "api_error", PROVIDER, CLAUDE_500, True),
    ),
    "claude/cut": claude(
        "79a364f2-11fa-47af-9c5b-2244a23b7b03",
        *((53, 40, 7, 1), True, 0.0001375, 0, 0),
        *(CLAUDE_CUT, "api_error", PROVIDER, CLAUDE_CUT, True),
    ),
    "claude/killed": claude(
        "476de3b7-f477-4045-afc7-220ad7078915",
        *((53, 40, 7, 1), False, None, 1, 1, None, None, None, None, False),
    ),
    "codex/success": codex(
        "01a228d0-f48e-7c72-ab99-03904994fa00",
        *((180, 120, 0, 60), True, 3, 2, "all done", "turn.completed", None, None, True),
    ),
    "codex/resume": codex(
        "01a228d0-f48e-7c72-ab99-03904994fa00",
        *((300, 200, 0, 100), True, 2, 1, "second", "turn.completed", None, None, True),
    ),
    "codex/http401": codex(
        "01a228d0-f793-7d30-9c7f-31c8ba2eeaec",
        *(None, False, None, 0, None, "turn.failed", AUTH, CODEX_401, True),
        rollout=False,
    ),
    "codex/http429": codex(
        "01a228d0-f8b1-7611-9e1a-a23c019769b8",
        *(None, False, None, 0, None, "turn.failed", RATE, CODEX_429, True),
        rollout=False,
    ),
    "codex/http500": codex(
        "01a228d0-f99c-72e1-90c1-61acfd1b04fe",
        *(None, False, None, 0, None, "turn.failed", PROVIDER, CODEX_500, True),
        rollout=False,
    ),
    "codex/late500": codex(
        "01a228d0-fa81-7bc3-ad81-54bfdd74ba7c",
        *((60, 40, 0, 20), True, 1, 1, None, "turn.failed", PROVIDER, CODEX_500, True),
    ),
    "codex/cut": codex(
        "01a228d0-fbd9-7820-b746-5cae0250d2a2",
        *(None, False, None, 0, None, "turn.failed", PROVIDER, CODEX_CUT, True),
    ),
    "codex/killed": codex(
        "01a228d0-fcc2-7261-897c-b7f01a7ac3a2",
        *((60, 40, 0, 20), False, 1, 0, None, None, None, None, False),
    ),
    "kimi/success": kimi(
        "session_cce5ffac-7bfe-4309-9234-b6f2ed020374",
        *(KIMI_MODEL, (180, 120, 0, 60), True, 3, 2),
        *("all done", "session.resume_hint", None, None, True),
    ),
    "kimi/resume": kimi(
        "session_cce5ffac-7bfe-4309-9234-b6f2ed020374",
        *(KIMI_MODEL, (300, 200, 0, 100), True, 2, 1),
        *("second", "session.resume_hint", None, None, True),
    ),
    # Until it succeeds, Kimi Code does not say its session's name: it is that of the directory.
    "kimi/http401": kimi(
        *("session_1", None, None, False, 0, 0, None, KIMI_401, AUTH, KIMI_401, False),
    ),
    "kimi/http429": kimi(
        *("session_1", None, None, False, 0, 0, None, KIMI_429, RATE, KIMI_429, False),
    ),
    "kimi/http500": kimi(
        *("session_1", None, None, False, 0, 0, None, KIMI_500, PROVIDER, KIMI_500, False),
    ),
    "kimi/late500": kimi(
        *("session_1", KIMI_MODEL, (60, 40, 0, 20), False, 1, 1),
        *(None, KIMI_500, PROVIDER, KIMI_500, False),
    ),
    "kimi/cut": kimi(
        *("session_1", None, None, False, 0, 0, None, KIMI_CUT, PROVIDER, KIMI_CUT, False),
    ),
    "kimi/killed": kimi(
        *("session_1", KIMI_MODEL, (60, 40, 0, 20), False, 1, 1, None, None, None, None, False),
    ),
}


def lay_out(desk: Desk, case: str) -> None:
    """Put a recorded case where a Run finds it."""
    source = RECORDED / case
    for name in ("stdout.txt", "stderr.txt"):
        if (source / name).exists():
            shutil.copy(source / name, desk.root / name)
    session = RECORDED_TRANSCRIPTS[case]["session_id"]
    if (source / "rollout.jsonl").exists():
        desk.keep("codex", (source / "rollout.jsonl").read_bytes(), session)
    if (source / "wire.jsonl").exists():
        desk.keep("kimi", (source / "wire.jsonl").read_bytes(), session)


def plain(transcript: Transcript) -> dict[str, Any]:
    found = {name: getattr(transcript, name) for name in Transcript.__dataclass_fields__}
    return {**found, "files": tuple(transcript.files)}


@pytest.mark.parametrize("case", CASES)
def test_no_recorded_case_is_left_out(case: str) -> None:
    assert case in RECORDED_TRANSCRIPTS


@pytest.mark.parametrize("case", RECORDED_TRANSCRIPTS)
def test_recorded_clients(desk: Desk, case: str) -> None:
    lay_out(desk, case)
    assert plain(desk.read(case.partition("/")[0])) == RECORDED_TRANSCRIPTS[case]


@pytest.mark.parametrize("case", RECORDED_TRANSCRIPTS)
def test_a_session_that_was_named_before_changes_nothing(desk: Desk, case: str) -> None:
    lay_out(desk, case)
    expected = RECORDED_TRANSCRIPTS[case]
    found = desk.read(case.partition("/")[0], expected["session_id"])
    assert plain(found) == expected


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("kimi")])
def test_carriage_returns_change_nothing(desk: Desk, case: str) -> None:
    lay_out(desk, case)
    for path in (p for p in desk.root.rglob("*") if p.is_file()):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert plain(desk.read(case.partition("/")[0])) == RECORDED_TRANSCRIPTS[case]


@pytest.mark.parametrize("case", RECORDED_TRANSCRIPTS)
def test_no_final_newline_changes_nothing(desk: Desk, case: str) -> None:
    lay_out(desk, case)
    for path in (p for p in desk.root.rglob("*") if p.is_file()):
        path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert plain(desk.read(case.partition("/")[0])) == RECORDED_TRANSCRIPTS[case]


@pytest.mark.parametrize("case", RECORDED_TRANSCRIPTS)
def test_foreign_lines_change_nothing(desk: Desk, case: str) -> None:
    lay_out(desk, case)
    foreign = b'warning\n[1]\n"x"\nnull\n{"type":\n{}x\n\xff\xfe\n\n  \n{"type":"news","usage":7}\n'
    for path in (p for p in desk.root.rglob("*") if p.suffix == ".jsonl" or "stdout" in p.name):
        path.write_bytes(foreign.join([b"", *path.read_bytes().splitlines(keepends=True), b""]))
    assert plain(desk.read(case.partition("/")[0])) == RECORDED_TRANSCRIPTS[case]


@pytest.mark.parametrize("case", RECORDED_TRANSCRIPTS)
def test_without_the_clients_own_files(desk: Desk, case: str) -> None:
    lay_out(desk, case)
    shutil.rmtree(desk.root / "sessions", ignore_errors=True)
    found, expected = desk.read(case.partition("/")[0]), RECORDED_TRANSCRIPTS[case]
    for name in ("tool_calls", "final_message", "stop_reason", "error", "closed", "begun"):
        assert getattr(found, name) == expected[name]
    assert found.files == {}
    if case.startswith("kimi"):
        assert (found.usage, found.usage_complete) == (None, False)
    if case == "codex/success":  # the thread's own total
        assert (found.usage, found.usage_complete) == (TokenUsage(180, 120, 0, 60), True)
        assert found.model_calls is None


# -------------------------------------------------------------------------- invariants


def holds(found: Transcript) -> Transcript:
    """Check what is true of every transcript."""
    for name in ("session_id", "model", "final_message", "stop_reason", "error_message"):
        value = getattr(found, name)
        assert value is None or (isinstance(value, str) and value)
        assert value is None or value.encode().decode() == value
    assert type(found.tool_calls) is int
    assert found.tool_calls >= 0
    calls = found.model_calls
    assert calls is None or (type(calls) is int and calls >= 0)
    if found.usage is not None:
        for name in ("input", "cache_read", "cache_write", "output"):
            value = getattr(found.usage, name)
            assert type(value) is int
            assert value >= 0
    assert found.cost_usd is None or (math.isfinite(found.cost_usd) and found.cost_usd >= 0)
    assert found.error is None or isinstance(found.error, AgentErrorKind)
    for name in ("usage_complete", "several_models", "begun", "stop"):
        assert type(getattr(found, name)) is bool
    assert found.closed in (None, True, False)
    for name, path in found.files.items():
        assert path.is_file()
        assert Path(name).name == name
    assert dumps({k: v for k, v in plain(found).items() if k != "usage"})
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_at_all(desk: Desk, client: str) -> None:
    found = holds(desk.read(client))
    assert (found.session_id, found.model, found.usage, found.cost_usd) == (None, None, None, None)
    assert (found.tool_calls, found.final_message, found.error) == (0, None, None)
    if client != "dialogue":
        assert (found.begun, found.closed) == (False, False)
    assert holds(desk.read(client, "mine")).session_id == (None if client == "dialogue" else "mine")


FILES_OF_CLIENTS = ["codex", "kimi"]


@pytest.mark.parametrize("client", [*FILES_OF_CLIENTS, "claude", "dialogue"])
def test_directories_where_files_should_be(desk: Desk, client: str) -> None:
    for name in ("stdout.txt", "stderr.txt", "sessions/1/2/3/rollout-x-mine.jsonl"):
        (desk.root / name).mkdir(parents=True)
    (desk.root / "sessions/wd/mine/agents/main/wire.jsonl").mkdir(parents=True)
    assert holds(desk.read(client, "mine")).files == {}


@pytest.mark.parametrize("client", FILES_OF_CLIENTS)
def test_pipes_where_files_should_be(desk: Desk, client: str) -> None:
    # Whoever opens one waits for a writer, for ever if there is none. Here is one.
    path = desk.keep(client, b"", "mine")
    path.unlink()
    os.mkfifo(path)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            os.close(os.open(path, os.O_WRONLY))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = desk.read(client, "mine")
    finally:
        done.set()
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        writer.join(10)
        os.close(reader)
    assert holds(found).files == {}


@given(
    st.sampled_from(CLIENTS),
    st.binary() | st.text().map(str.encode),
    st.binary(),
    st.binary(),
    st.none() | st.text(st.characters(exclude_characters="/\0", codec="ascii"), min_size=1),
)
@settings(max_examples=200)
def test_any_bytes(
    client: str, stdout: bytes, stderr: bytes, kept: bytes, session_id: str | None
) -> None:
    with fresh_desk() as desk:
        (desk.root / "stdout.txt").write_bytes(stdout)
        (desk.root / "stderr.txt").write_bytes(stderr)
        desk.keep("codex", kept, "mine")
        desk.keep("kimi", kept, "mine")
        holds(desk.read(client, session_id))
        holds(desk.read(client, "mine"))


KEYS = sorted(
    {
        *("type", "subtype", "session_id", "thread_id", "message", "content", "id", "usage"),
        *("parent_tool_use_id", "result", "is_error", "api_error_status", "terminal_reason"),
        *("modelUsage", "total_cost_usd", "item", "text", "error", "payload", "turn_id", "model"),
        *("role", "tool_calls", "turn", "stop", "data", "cost_usd", "model_calls", "stop_reason"),
        *("kind", "input_tokens", "cached_input_tokens", "cache_write_input_tokens"),
        *("output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        *("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens"),
        *("inputOther", "inputCacheRead", "inputCacheCreation", "output", "input"),
        *("cache_read", "cache_write"),
    }
)
WORDS = [
    *("system", "init", "assistant", "result", "thread.started", "item.completed", "tool_use"),
    *("turn.completed", "turn.failed", "turn_context", "token_usage_record", "agent_message"),
    *("session.resume_hint", "usage.record", "text", "api_error", "auth", "rate_limit", "mine"),
]
NASTY: list[Any] = [
    *(None, True, False, 0, 1, -1, 10**30, -(10**30), 2**53, 2**64, 0.5, -0.5, 1e308, -1e308),
    *(math.nan, math.inf, -math.inf, "", "7", "-7", "\u2028", "\x85", "\ud800", "\0", "../x"),
    *("*", "[!a]", "**", "x" * 5000, [], {}, [[]], [None], [{}], {"": None}, {"type": "text"}),
]
values = st.recursive(
    st.sampled_from([*NASTY, *WORDS]) | st.text(max_size=3) | st.integers() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=5,
)
known_events = st.fixed_dictionaries(
    {"type": st.sampled_from(WORDS)}, optional={key: values for key in KEYS if key != "type"}
) | st.fixed_dictionaries({"turn": st.integers(-1, 4), "data": values, "text": values})


def damaged(value: Any) -> bytes:
    return json.dumps(value).encode()


@given(
    st.sampled_from(CLIENTS), st.lists(known_events, max_size=4), st.lists(known_events, max_size=3)
)
@settings(max_examples=200)
def test_wrong_types_everywhere(client: str, stdout: list[Any], kept: list[Any]) -> None:
    with fresh_desk() as desk:
        (desk.root / "stdout.txt").write_bytes(b"\n".join(map(damaged, stdout)))
        data = b"\n".join(map(damaged, kept))
        desk.keep("codex", data, "mine")
        desk.keep("kimi", data, "mine")
        holds(desk.read(client))
        holds(desk.read(client, "mine"))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


# Every key of these lines is one that a reader looks at.
TELLING: dict[str, tuple[list[Any], list[Any]]] = {
    "claude": (
        [
            {"type": "system", "subtype": "init", "session_id": "mine", "model": "m"},
            {
                "type": "assistant",
                "message": {
                    "id": "1",
                    "content": [{"type": "text", "text": "hi"}, {"type": "tool_use"}],
                    "usage": {
                        "input_tokens": 1,
                        "cache_read_input_tokens": 2,
                        "cache_creation_input_tokens": 3,
                        "output_tokens": 4,
                    },
                },
                "parent_tool_use_id": None,
            },
            {
                "type": "result",
                "subtype": "success",
                "is_error": True,
                "result": "API Error: 500",
                "api_error_status": 500,
                "terminal_reason": "api_error",
                "total_cost_usd": 0.5,
                "modelUsage": {
                    "m": {
                        "inputTokens": 1,
                        "cacheReadInputTokens": 2,
                        "cacheCreationInputTokens": 3,
                        "outputTokens": 4,
                    }
                },
            },
        ],
        [],
    ),
    "codex": (
        [
            {"type": "thread.started", "thread_id": "mine"},
            {"type": "item.completed", "item": {"type": "command_execution"}},
            {"type": "item.completed", "item": {"type": "agent_message", "text": "hi"}},
            {
                "type": "turn.completed",
                "usage": {
                    "input_tokens": 6,
                    "cached_input_tokens": 2,
                    "cache_write_input_tokens": 3,
                    "output_tokens": 4,
                },
            },
            {"type": "turn.failed", "error": {"message": "500"}},
        ],
        [
            {"type": "turn_context", "payload": {"model": "m"}},
            {
                "type": "token_usage_record",
                "payload": {
                    "turn_id": "t",
                    "usage": {
                        "input_tokens": 6,
                        "cached_input_tokens": 2,
                        "cache_write_input_tokens": 3,
                        "output_tokens": 4,
                    },
                },
            },
        ],
    ),
    "kimi": (
        [
            {"role": "assistant", "content": "hi", "tool_calls": [{}]},
            {"type": "session.resume_hint", "session_id": "mine"},
        ],
        [
            {
                "type": "usage.record",
                "model": "m",
                "usage": {
                    "inputOther": 1,
                    "inputCacheRead": 2,
                    "inputCacheCreation": 3,
                    "output": 4,
                },
            }
        ],
    ),
    "dialogue": (
        [
            {"turn": 1, "text": "one"},
            {
                "turn": 2,
                "text": "hi",
                "stop": True,
                "data": {
                    "usage": {"input": 1, "cache_read": 2, "cache_write": 3, "output": 4},
                    "cost_usd": 0.5,
                    "model": "m",
                    "model_calls": 3,
                    "tool_calls": 1,
                    "stop_reason": "s",
                    "error": {"kind": "auth", "message": "500"},
                },
            },
        ],
        [],
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_key_with_each_wrong_value(desk: Desk, client: str) -> None:
    stdout, kept = TELLING[client]
    whole = [*stdout, *kept]

    def read(lines: list[Any]) -> Transcript:
        data = b"\n".join(map(damaged, lines[: len(stdout)]))
        (desk.root / "stdout.txt").write_bytes(data)
        if client in ("codex", "kimi"):
            desk.keep(client, b"\n".join(map(damaged, lines[len(stdout) :])), "mine")
        return holds(desk.read(client))

    good = read(whole)
    assert good.usage == TokenUsage(1, 2, 3, 4)
    assert (good.final_message, good.tool_calls, good.model) == (
        "API Error: 500" if client == "claude" else "hi",
        1,
        "m",
    )
    for number, line in enumerate(whole):
        for path in _places(line):
            for value in NASTY:
                lines = whole.copy()
                lines[number] = _replaced(line, path, value)
                found = read(lines)
                if found.usage is not None:
                    assert found.usage.cache_read in (0, 1, 2), (path, value)
                    assert found.usage.output in (0, 1, 4), (path, value)


MARKER = "\n[… %d bytes left out …]\n"


@given(st.sampled_from(sorted(RECORDED_TRANSCRIPTS)), st.data())
@settings(max_examples=300)
def test_the_middle_of_an_output_is_missing(case: str, data: st.DataObject) -> None:
    client = case.partition("/")[0]
    with fresh_desk() as desk:
        lay_out(desk, case)
        whole = holds(desk.read(client))
        path = desk.root / "stdout.txt"
        text_of = path.read_bytes()
        head = data.draw(st.integers(0, len(text_of)), label="head")
        tail = data.draw(st.integers(head, len(text_of)), label="tail")
        marker = (MARKER % (tail - head)).encode()
        path.write_bytes(text_of[:head] + marker + text_of[tail:])
        found = holds(desk.read(client))
        assert found.tool_calls <= whole.tool_calls
        assert found.session_id in (whole.session_id, None)
        assert found.error in (whole.error, None)
        if tail <= text_of.rstrip(b"\n").rfind(b"\n") + 1:  # the last line is whole
            assert found.closed == whole.closed
            assert found.error == whole.error
            assert found.final_message in (whole.final_message, None)
            assert found.cost_usd == whole.cost_usd


@given(st.sampled_from(["codex/success", "kimi/success", "kimi/killed"]), st.data())
def test_a_file_of_the_client_that_is_cut(case: str, data: st.DataObject) -> None:
    client = case.partition("/")[0]
    with fresh_desk() as desk:
        lay_out(desk, case)
        whole = desk.read(client)
        path = next(iter(whole.files.values()))
        content = path.read_bytes()
        path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        found = holds(desk.read(client))
        assert found.usage is None or (whole.usage and found.usage.output <= whole.usage.output)
        assert found.final_message == whole.final_message


# ------------------------------------------------------------------------------- lines


def test_lines_end_with_a_line_feed_and_nothing_else(desk: Desk) -> None:
    words = "a\u2028b\u2029c\x85d\x0be\x0cf"
    desk.say({"n": words}, {"n": 2})
    assert list(events(desk.root / "stdout.txt")) == [{"n": words}, {"n": 2}]


@pytest.mark.parametrize("words", ["a\u2028b", "a\x85b", "line\nline", "𝄞"])
def test_what_separates_lines_elsewhere_is_content(desk: Desk, words: str) -> None:
    desk.say({"type": "result", "result": words})
    assert desk.read("claude").final_message == words
    desk.say({"type": "item.completed", "item": {"type": "agent_message", "text": words}})
    assert desk.read("codex").final_message == words
    desk.say({"role": "assistant", "content": words})
    assert desk.read("kimi").final_message == words
    desk.say({"turn": 1, "text": words})
    assert desk.read("dialogue").final_message == words


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"",
            b"[]",
            b"1",
            b"null",
            b'"{}"',
            b"x{}",
            b"{",
            b'{"a"',
            b"{'a':1}",
            b"{}{}",
            b"\xff{}",
        ),
        *(b'{"a":"\xff"}', b"{" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"9" * 10_000 + b"}",  # more digits than Python reads
    ],
    ids=lambda line: line[:12].decode(errors="replace"),
)
def test_lines_that_are_passed_over(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "x").write_bytes(line + b'\n{"ok":1}')
    assert list(events(tmp_path / "x")) == [{"ok": 1}]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"  {}\r", {}),
        (b'{"a":NaN}', {"a": pytest.approx(math.nan, nan_ok=True)}),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'\t{"a":[{}]}', {"a": [{}]}),
    ],
)
def test_lines_that_are_taken(tmp_path: Path, line: bytes, value: Any) -> None:
    (tmp_path / "x").write_bytes(line)
    assert list(events(tmp_path / "x")) == [value]


@pytest.mark.parametrize("depth", [10, 200, 900])
def test_deep_values_under_every_key(desk: Desk, depth: int) -> None:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    for client, (stdout, _) in TELLING.items():
        lines = [_replaced(line, path, 0) for line in stdout for path in _places(line) if path]
        nested = ("[" * depth + "]" * depth).encode()
        (desk.root / "stdout.txt").write_bytes(
            b"\n".join(damaged(line).replace(b": 0", b": " + nested) for line in lines)
        )
        holds(desk.read(client))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((0, 0), (7, 7), (7.0, 7), (7.9, 7), (2**53 - 1, 2**53 - 1)),
        *((2**53, 0), (10**400, 0), (-1, 0), (-0.5, 0), (math.nan, 0), (math.inf, 0)),
        *((True, 0), (None, 0), ("7", 0), ([7], 0), ({}, 0)),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_amounts(value: Any, number: int) -> None:
    found = amount(value)
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((0, 0.0), (1, 1.0), (0.5, 0.5), (999_999_999, 999_999_999.0)),
        *((1e9, None), (10**400, None), (-1e-9, None), (math.nan, None), (math.inf, None)),
        *((True, None), (None, None), ("1", None), ([1], None)),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_costs(value: Any, number: float | None) -> None:
    found = cost(value)
    assert found == number
    assert found is None or type(found) is float


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *(("a", "a"), (" ", " "), ("", None), (1, None), (None, None), (["a"], None), (b"a", None)),
        *(("a\ud800b", "a?b"), ("😀", "😀")),
    ],
)
def test_texts(value: Any, words: str | None) -> None:
    assert text(value) == words


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("unexpected status 401 Unauthorized", AUTH),
        ("API Error: 403 Forbidden", AUTH),
        ("Not logged in · Please run /login", AUTH),
        ("Invalid API key · Fix external API key", AUTH),
        ("provider.auth_error: expired", AUTH),
        ("OAuth token revoked", AUTH),
        ("no credentials found", AUTH),
        ("429", RATE),
        ("429 after 401", RATE),
        ("rate_limit_error", RATE),
        ("Rate limit reached", RATE),
        ("Too many requests", RATE),
        ("You've hit your usage limit.", RATE),
        ("insufficient_quota", RATE),
        ("API Error: 400 prompt is too long", REQUEST),
        ("413", REQUEST),
        ("Input exceeds the context window", REQUEST),
        ("maximum context length is 8", REQUEST),
        ("500 Internal Server Error", PROVIDER),
        ("503", PROVIDER),
        ("the author of 14290 books, page 4010", PROVIDER),
        ("overloaded_error", PROVIDER),
        ("", PROVIDER),
    ],
)
def test_kinds_of_errors(message: str, kind: AgentErrorKind) -> None:
    assert error_kind(message) is kind


# ---------------------------------------------------------------------- session's names


HOSTILE_NAMES = [
    *("../../other", "/etc/passwd", "a/b", "..", ".", "*", "**", "?", "[a-z]*", "o*r", "{other}"),
    *("other\0", "x" * 300, "-", "\u2028", "other\n", "-x"),
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_a_session_named_like_a_path_or_a_pattern_reaches_no_other(desk: Desk, name: str) -> None:
    (desk.root / "stderr.txt").write_bytes(b"")
    record = {"type": "token_usage_record", "payload": {"usage": {"output_tokens": 9}}}
    desk.keep("codex", lines_of(record), "other")
    desk.keep("kimi", lines_of({"type": "usage.record", "usage": {"output": 9}}), "other")
    desk.say({"type": "thread.started", "thread_id": name})
    found = holds(desk.read("codex"))
    assert (found.usage, found.files) == (None, {})
    desk.say({"type": "session.resume_hint", "session_id": name})
    found = holds(desk.read("kimi"))
    assert (found.usage, found.files) == (None, {})
    holds(desk.read("claude", name))


def test_a_thread_is_found_by_its_whole_name(desk: Desk) -> None:
    record = {"type": "token_usage_record", "payload": {"usage": {"output_tokens": 9}}}
    desk.keep("codex", lines_of(record), "01a228d0-f48e-7c72-ab99-03904994fa00")
    desk.say({"type": "thread.started", "thread_id": "a00"})
    assert desk.read("codex").files == {}


def test_directories_with_names_that_no_record_can_hold(desk: Desk) -> None:
    name = os.fsdecode(b"\xff")
    desk.keep("kimi", lines_of({"type": "usage.record", "usage": {}}), name, "x" * 250)
    found = holds(desk.read("kimi"))
    assert all(len(file) < 255 for file in found.files)


# ------------------------------------------------------------------------------- claude


def message(number: str, *content: Any, parent: str | None = None, **usage: int) -> dict[str, Any]:
    return {
        "type": "assistant",
        "message": {"id": number, "content": list(content), "usage": usage},
        "parent_tool_use_id": parent,
        "session_id": "s",
    }


def words(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


TOOL = {"type": "tool_use", "name": "Bash"}


def test_subagents_of_claude_are_counted_once_and_not_heard(desk: Desk) -> None:
    lines = [
        {"type": "system", "subtype": "init", "model": "big", "session_id": "s"},
        message("1", words("let me delegate"), TOOL, input_tokens=10, output_tokens=1),
        message("2", words("looking"), TOOL, parent="toolu_1", input_tokens=20, output_tokens=2),
        message("2", words("subagent's word"), parent="toolu_1", input_tokens=20, output_tokens=5),
    ]
    desk.say(*lines)
    found = holds(desk.read("claude"))
    assert found.final_message == "let me delegate"
    assert (found.tool_calls, found.model_calls) == (2, 2)
    assert (found.usage, found.usage_complete) == (TokenUsage(30, 0, 0, 6), False)
    account = {
        "big": {"inputTokens": 10, "outputTokens": 8},
        "small": {"inputTokens": 20, "outputTokens": 9, "cacheReadInputTokens": 3},
    }
    desk.say(*lines, {"type": "result", "modelUsage": account, "total_cost_usd": 0.25})
    found = holds(desk.read("claude"))
    assert found.final_message == "let me delegate"
    assert (found.usage, found.usage_complete) == (TokenUsage(30, 3, 0, 17), True)
    assert (found.model, found.several_models, found.cost_usd) == ("big", True, 0.25)


def test_a_message_of_claude_in_several_events_is_one(desk: Desk) -> None:
    desk.say(
        message("1", words("one"), input_tokens=5, cache_read_input_tokens=2, output_tokens=1),
        message("1", TOOL, input_tokens=5, cache_read_input_tokens=2, output_tokens=9),
        message("2", words("two"), words(""), cache_creation_input_tokens=4),
        message("3", TOOL),
    )
    found = holds(desk.read("claude"))
    assert found.usage == TokenUsage(5, 2, 4, 9)
    assert (found.model_calls, found.tool_calls, found.final_message) == (2, 2, "two")
    assert (found.closed, found.stop_reason) == (False, None)


@pytest.mark.parametrize(
    ("result", "error", "final"),
    [
        ({"result": "done"}, None, "done"),
        ({"result": ""}, None, "so far"),
        ({"subtype": "error_max_turns", "is_error": True}, None, "error_max_turns"),
        ({"is_error": True, "result": "Not logged in · Please run /login"}, AUTH, None),
        ({"is_error": True, "result": "x", "api_error_status": 529}, PROVIDER, "x"),
        ({"is_error": True, "result": "x", "api_error_status": 429}, RATE, "x"),
        ({"is_error": True, "result": "x", "terminal_reason": "api_error"}, PROVIDER, "x"),
        ({"is_error": False, "result": "x", "api_error_status": 500}, None, "x"),
        ({"is_error": "yes", "result": "401"}, None, "401"),
    ],
)
def test_results_of_claude(
    desk: Desk, result: dict[str, Any], error: AgentErrorKind | None, final: str | None
) -> None:
    desk.say(message("1", words("so far")), {"type": "result", **result})
    found = holds(desk.read("claude"))
    assert (found.error, found.closed) == (error, True)
    assert found.final_message == (final or result["result"])
    failed = result.get("is_error") is True
    assert found.error_message == (found.final_message if failed else None)


def test_an_agent_of_claude_that_worked_was_logged_in(desk: Desk) -> None:
    failed = {"type": "result", "is_error": True, "result": "the server said 401 to my script"}
    desk.say(message("1", TOOL), failed)
    assert desk.read("claude").error is None


@pytest.mark.parametrize("account", [{}, [], [{"inputTokens": 9}], "all", 7, True, None])
def test_what_is_no_account_of_claude_is_none(desk: Desk, account: Any) -> None:
    said = message("1", input_tokens=5, output_tokens=1)
    desk.say(said, {"type": "result", "modelUsage": account})
    found = holds(desk.read("claude"))
    assert (found.usage, found.usage_complete) == (TokenUsage(5, 0, 0, 1), False)


def test_claude_says_0_where_it_knows_no_price(desk: Desk) -> None:
    desk.say({"type": "result", "total_cost_usd": 0})
    assert desk.read("claude").cost_usd is None


# -------------------------------------------------------------------------------- codex


def response(turn: str | None, *counts: int) -> dict[str, Any]:
    names = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
    usage = dict(zip(names, counts, strict=True))
    return {"type": "token_usage_record", "payload": {"root_turn_id": turn, "usage": usage}}


def test_a_killed_turn_of_codex_is_in_the_rollout_only(desk: Desk) -> None:
    desk.say(
        {"type": "thread.started", "thread_id": "t"},
        {"type": "item.started", "item": {"type": "command_execution"}},
    )
    rollout = desk.keep(
        "codex",
        lines_of(
            {"type": "turn_context", "payload": {"model": "gpt-x"}},
            response("1", 100, 40, 10, 20),
            response("1", 200, 90, 0, 30),
            response("2", 300, 100, 0, 40),
            {"type": "event_msg", "payload": {"type": "token_count", "usage": {"input_tokens": 9}}},
        )
        + b'{"type":"token_usage_record","payl',
        "t",
    )
    found = holds(desk.read("codex"))
    assert found.usage == TokenUsage(360, 230, 10, 90)
    assert (found.usage_complete, found.closed, found.model) == (False, False, "gpt-x")
    assert (found.model_calls, found.tool_calls) == (1, 0)
    assert found.files == {rollout.name: rollout}


def test_subagents_of_codex_are_counted_once(desk: Desk) -> None:
    desk.say({"type": "thread.started", "thread_id": "t"}, {"type": "turn.completed"})
    own = {"type": "session_meta", "payload": {"session_id": "t"}}
    model = {"type": "turn_context", "payload": {"model": "big"}}
    other = {"type": "turn_context", "payload": {"model": "small"}}
    desk.keep("codex", lines_of(own, model, response("1", 100, 40, 0, 20)), "t")
    directory = desk.root / "sessions/2026/11/29"
    later = directory / "rollout-2026-11-29T19-39-00-u.jsonl"
    later.write_bytes(lines_of(own, other, response("1", 10, 0, 0, 1), response("1", 10, 0, 0, 1)))
    foreign = directory / "rollout-2026-11-29T19-40-00-v.jsonl"
    session = {"type": "session_meta", "payload": {"session_id": "v"}}
    foreign.write_bytes(lines_of(session, response("1", 9999, 0, 0, 9999)))
    found = holds(desk.read("codex"))
    assert found.usage == TokenUsage(80, 40, 0, 22)
    assert (found.usage_complete, found.model, found.model_calls) == (True, "big", 3)
    assert list(found.files.values())[1:] == [later]


def test_the_rollout_of_codex_has_the_last_word(desk: Desk) -> None:
    account = {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 2}
    desk.say(
        {"type": "thread.started", "thread_id": "t"}, {"type": "turn.completed", "usage": account}
    )
    assert desk.read("codex").usage == TokenUsage(6, 4, 0, 2)
    desk.keep("codex", lines_of(response(None, 100, 40, 0, 20)), "t")
    assert desk.read("codex").usage == TokenUsage(60, 40, 0, 20)
    desk.keep("codex", b"", "t")
    assert desk.read("codex").usage == TokenUsage(6, 4, 0, 2)


@given(*(st.integers(0, 2**53 - 1) for _ in range(4)))
def test_parts_of_usage_never_overlap(whole: int, read: int, write: int, output: int) -> None:
    with fresh_desk() as desk:
        desk.say({"type": "thread.started", "thread_id": "t"})
        desk.keep("codex", lines_of(response("1", whole, read, write, output)), "t")
        usage = desk.read("codex").usage
        assert usage is not None
        assert (usage.cache_read, usage.cache_write, usage.output) == (read, write, output)
        assert usage.input + read + write == max(whole, read + write)


@pytest.mark.parametrize(
    ("kind", "tools"),
    [
        *(("agent_message", 0), ("reasoning", 0), ("error", 0), ("todo_list", 0), ("plan", 0)),
        *(("command_execution", 1), ("file_change", 1), ("mcp_tool_call", 1), ("web_search", 1)),
    ],
)
def test_tools_of_codex(desk: Desk, kind: str, tools: int) -> None:
    desk.say({"type": "item.completed", "item": {"type": kind}})
    assert desk.read("codex").tool_calls == tools


def test_an_error_that_codex_got_over_is_none(desk: Desk) -> None:
    desk.say(
        {"type": "error", "message": "Reconnecting... 1/5 (429)"},
        {"type": "turn.completed", "usage": {}},
    )
    found = holds(desk.read("codex"))
    assert (found.error, found.stop_reason, found.closed) == (None, "turn.completed", True)
    desk.say({"type": "turn.failed", "error": {"message": "429"}}, {"type": "turn.completed"})
    assert desk.read("codex").error is None
    desk.say({"type": "turn.failed", "error": None})
    assert desk.read("codex").error_message == "turn.failed"


# --------------------------------------------------------------------------------- kimi


def recorded(model: str, other: int, output: int) -> bytes:
    usage = {"inputOther": other, "output": output}
    return lines_of({"type": "usage.record", "model": model, "usage": usage})


def test_subagents_of_kimi_are_counted_once_each(desk: Desk) -> None:
    desk.say({"type": "session.resume_hint", "session_id": "s"})
    desk.keep("kimi", recorded("big", 100, 1) + recorded("big", 200, 2), "s")
    desk.keep("kimi", recorded("small", 1000, 10), "s", "sub-1")
    desk.keep("kimi", recorded("small", 2000, 20), "s", "sub-2")
    desk.keep("kimi", recorded("other", 9999, 999), "another")
    found = holds(desk.read("kimi"))
    assert found.usage == TokenUsage(3300, 0, 0, 33)
    assert (found.usage_complete, found.model, found.several_models) == (True, "big", True)
    assert list(found.files) == ["wire-main.jsonl", "wire-sub-1.jsonl", "wire-sub-2.jsonl"]


def test_without_a_name_the_newest_session_of_kimi_is_meant(desk: Desk) -> None:
    (desk.root / "stdout.txt").write_bytes(b"")
    for number, name in enumerate(["old", "newest", "older"]):
        wire = desk.keep("kimi", recorded("m", number, 0), name)
        os.utime(wire.parents[2], (1000 + number % 2 * 50 - number, 1000 + number % 2 * 50))
    found = holds(desk.read("kimi"))
    assert (found.session_id, found.usage) == ("newest", TokenUsage(1, 0, 0, 0))
    assert found.usage_complete is False
    assert desk.read("kimi", "old").usage == TokenUsage(0, 0, 0, 0)
    # In a home that others use, too, the newest may be anybody's.
    theirs = read_kimi_code(desk.evidence(), desk.root, own_home=False)
    assert (theirs.session_id, theirs.usage, theirs.files) == (None, None, {})
    named = read_kimi_code(desk.evidence("old"), desk.root, own_home=False)
    assert named.usage == TokenUsage(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("stderr", "error", "message"),
    [
        (b"", None, None),
        (b"hi\n", None, None),
        (
            b"error: failed to run prompt: provider.api_error: 500\n",
            PROVIDER,
            "provider.api_error: 500",
        ),
        (b"error: failed to run prompt: config is broken\n", None, "config is broken"),
        (b"error: failed to run prompt: provider.x: 401\n1\n2\n", None, None),  # a tool's
        (b"said: error: failed to run prompt: provider.x\n", None, None),
        (
            b"error: failed to run prompt: provider.x: 1\n"
            b"error: failed to run prompt: provider.y: 429",
            RATE,
            "provider.y: 429",
        ),
        (b"\xff\nerror: failed to run prompt: provider.\xff", PROVIDER, "provider.\ufffd"),
        (
            b"x" * 10**6 + b"\nerror: failed to run prompt: provider.auth_error\n" + b"y" * 10**4,
            AUTH,
            "provider.auth_error",
        ),
    ],
    ids=range(9),
)
def test_failures_of_kimi(
    desk: Desk, stderr: bytes, error: AgentErrorKind | None, message: str | None
) -> None:
    (desk.root / "stderr.txt").write_bytes(stderr)
    found = holds(desk.read("kimi"))
    assert (found.error, found.error_message, found.stop_reason) == (error, message, message)
    for status in (0, None):  # a client that did not fail, whatever a tool printed
        assert desk.read("kimi", status=status).error is None
    desk.say({"type": "session.resume_hint", "session_id": "s"})  # it got to its end after all
    assert (desk.read("kimi").error, desk.read("kimi").error_message) == (None, None)


# ----------------------------------------------------------------------------- dialogue


USED = {"input": 1, "cache_read": 2, "cache_write": 3, "output": 4}


def test_a_program_that_does_not_answer(desk: Desk) -> None:
    desk.say({"hello": 1}, {"turn": 0}, {"turn": True}, {"turn": 1, "stop": "no"})
    assert desk.read("dialogue") == Transcript()


def test_answers_of_all_turns_are_added(desk: Desk) -> None:
    desk.say(
        {"turn": 1, "text": "one", "data": {"usage": USED, "cost_usd": 0.25, "model": "a"}},
        {"turn": 1, "text": "again", "data": {"usage": USED, "cost_usd": 9}},
        {
            "turn": 2,
            "text": "two",
            "stop": True,
            "data": {
                **{"usage": USED, "cost_usd": 1, "model": "b", "model_calls": 3, "tool_calls": 2},
                "stop_reason": "tired",
            },
        },
    )
    assert holds(desk.read("dialogue")) == Transcript(
        model="b",
        several_models=True,
        usage=TokenUsage(2, 4, 6, 8),
        usage_complete=True,
        cost_usd=1.25,
        model_calls=3,
        tool_calls=2,
        final_message="two",
        stop_reason="tired",
        stop=True,
    )


@pytest.mark.parametrize(
    ("first", "second", "usage", "complete", "total"),
    [
        ({"usage": USED, "cost_usd": 1}, {}, TokenUsage(1, 2, 3, 4), False, None),
        ({}, {}, None, False, None),
        ({"usage": {}, "cost_usd": 0}, {"usage": {}, "cost_usd": 0}, TokenUsage(), True, 0.0),
        ({"usage": []}, {"usage": USED}, TokenUsage(1, 2, 3, 4), False, None),
        ({"cost_usd": -1}, {"cost_usd": 1}, None, False, None),
        # A turn that was refused costs nothing that anybody would report.
        (
            {"usage": USED, "cost_usd": 1},
            {"error": {"kind": "auth"}},
            TokenUsage(1, 2, 3, 4),
            True,
            1.0,
        ),
        ({"error": {"kind": "auth"}}, {"error": {"kind": "auth"}}, None, True, None),
        # No error is no error, however it is written.
        (
            {"usage": USED, "cost_usd": 1, "error": None},
            {"usage": USED, "cost_usd": 1},
            TokenUsage(2, 4, 6, 8),
            True,
            2.0,
        ),
        (
            {"usage": USED, "cost_usd": 1, "error": None},
            {"error": None},
            TokenUsage(1, 2, 3, 4),
            False,
            None,
        ),
    ],
)
def test_a_part_of_an_account_is_none(
    desk: Desk,
    first: dict[str, Any],
    second: dict[str, Any],
    usage: TokenUsage | None,
    complete: bool,
    total: float | None,
) -> None:
    desk.say({"turn": 1, "data": first}, {"turn": 2, "data": second})
    found = holds(desk.read("dialogue"))
    assert (found.usage, found.usage_complete, found.cost_usd) == (usage, complete, total)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"kind": "auth", "message": "no"}, AUTH, "no"),
        ({"kind": "rate_limit"}, RATE, None),
        ({"kind": "provider", "message": ""}, PROVIDER, None),
        ({"kind": "request"}, REQUEST, None),
        ({"kind": "weird", "message": "hm"}, None, "hm"),
        ({"kind": ["auth"]}, None, None),
        ("auth", None, None),
        (None, None, None),
    ],
)
def test_errors_in_answers(
    desk: Desk, error: Any, kind: AgentErrorKind | None, message: str | None
) -> None:
    desk.say({"turn": 1, "data": {"error": error}})
    found = holds(desk.read("dialogue"))
    assert (found.error, found.error_message) == (kind, message)


def test_readers_are_a_closed_set() -> None:
    readers: dict[str, Callable[..., Transcript]] = {
        "claude_code": read_claude_code,
        "codex": read_codex,
        "dialogue": read_dialogue,
        "kimi_code": read_kimi_code,
    }
    import evopolicygym.agents.transcripts as package

    modules = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == readers.keys()
