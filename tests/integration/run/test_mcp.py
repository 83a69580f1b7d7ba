"""`evopolicygym-session mcp`, asked by the `mcp` package's own client, over a real session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.shared.exceptions import McpError
from mcp.types import (
    CallToolResult,
    CancelledNotification,
    CancelledNotificationParams,
    ClientNotification,
    TextContent,
)

from evopolicygym.run.client import (
    SESSION_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    WORKSPACE_VARIABLE,
    SessionClient,
)
from evopolicygym.run.config import RunConfig, ValidationConfig
from evopolicygym.run.server import SessionServer
from evopolicygym.run.session_models import FinishReceipt, InfoFile, Receipt

from .stand import Stand, served

SESSION = str(Path(sys.executable).parent / "evopolicygym-session")
CONFIG = RunConfig(
    episode_budget=20,
    episode_pool_size=40,
    max_submissions=5,
    validation=ValidationConfig(1, max_candidates=2),
)
Play = Callable[[ClientSession], Awaitable[None]]


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path, CONFIG)


@pytest.fixture
def server(stand: Stand) -> Iterator[SessionServer]:
    with served(stand, bind="127.0.0.1") as server:
        yield server


def variables(stand: Stand, server: SessionServer) -> dict[str, str]:
    return {SESSION_VARIABLE: str(server._path), WORKSPACE_VARIABLE: str(stand.workspace)}


def talk(play: Play, env: dict[str, str], cwd: Path) -> None:
    """Start the MCP server, play with it and let it end."""
    parameters = StdioServerParameters(command=SESSION, args=["mcp"], env=env, cwd=cwd)

    async def run() -> None:
        with anyio.fail_after(60), open(os.devnull, "w") as errors:
            async with (
                stdio_client(parameters, errlog=errors) as streams,
                ClientSession(*streams) as client,
            ):
                started = await client.initialize()
                assert started.serverInfo.name == "evopolicygym"
                assert started.instructions
                await play(client)

    anyio.run(run)


def answered(result: CallToolResult) -> dict[str, Any]:
    """Check that text and structured content are the same object; return it."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    answer = json.loads(block.text)
    assert answer == result.structuredContent
    assert isinstance(answer, dict)
    return answer


async def done(client: ClientSession, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.isError, result
    return answered(result)


async def refused(client: ClientSession, name: str, code: str, **arguments: Any) -> str:
    result = await client.call_tool(name, arguments)
    assert result.isError
    answer = answered(result)
    assert answer.keys() == {"error"}
    assert answer["error"]["code"] == code
    message = answer["error"]["message"]
    assert 0 < len(message) < 1000
    return str(message)


def test_tools(stand: Stand, server: SessionServer) -> None:
    async def play(client: ClientSession) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["submit", "status", "wait", "finish"]
        for tool in tools.values():
            assert "osts" in (tool.description or ""), "an agent has to know what a call costs"
            assert tool.inputSchema["type"] == "object"
            assert tool.inputSchema["additionalProperties"] is False
            for field in tool.inputSchema["properties"].values():
                assert field["description"]
                assert field["type"] in ("string", "number", "array"), "no unions"
                assert "default" not in field or field["default"] is not None
            assert tool.annotations is not None
            assert tool.annotations.destructiveHint is False
        for name in ("submit", "wait"):
            assert "time-out" in (tools[name].description or "")
        submit = tools["submit"].inputSchema
        assert list(submit["properties"]) == ["program", "episodes", "request_id", "wait_seconds"]
        assert submit["required"] == ["episodes"]
        assert submit["properties"]["wait_seconds"]["default"] == 50
        assert tools["wait"].inputSchema["required"] == ["submission_id"]
        assert tools["wait"].inputSchema["properties"]["timeout"]["default"] == 50
        assert tools["finish"].inputSchema["required"] == ["candidates"]
        hints = {name: tool.annotations.readOnlyHint for name, tool in tools.items()}  # type: ignore[union-attr]
        assert hints == {"submit": False, "status": True, "wait": True, "finish": False}

    talk(play, variables(stand, server), stand.workspace)


def test_a_whole_session(stand: Stand, server: SessionServer) -> None:
    async def play(client: ClientSession) -> None:
        info = await done(client, "status")
        InfoFile.model_validate(info)
        assert info["episodes_remaining"] == 20
        first = await done(client, "submit", episodes="0:4")
        Receipt.model_validate(first)
        assert (first["status"], first["score"], first["episodes_used"]) == ("published", 4.0, 4)
        # A request id is charged once; null is what some models write for nothing.
        named = {"program": "program", "episodes": "4:6", "request_id": "mine"}
        second = await done(client, "submit", **named)
        assert second == await done(client, "submit", **named, wait_seconds=5)
        third = await done(client, "submit", episodes="6", request_id=None)
        assert third["episodes_used"] == 7
        assert await done(client, "wait", submission_id=third["submission_id"]) == third
        listed = (await done(client, "status"))["submissions"]
        assert [receipt["score"] for receipt in listed] == [4.0, 2.0, 1.0]
        assert listed[-1] == third
        names = [second["submission_id"], first["submission_id"]]
        ended = await done(client, "finish", candidates=names)
        FinishReceipt.model_validate(ended)
        assert ended["candidates"] == names
        assert (await done(client, "status"))["state"] == "finished"
        await refused(client, "submit", "session_closed", episodes="0")
        await refused(client, "finish", "session_closed", candidates=names[:1])

    talk(play, variables(stand, server), stand.workspace)
    assert stand.session.candidates == ("submission-000002", "submission-000001")


def test_an_evaluation_that_takes_long(stand: Stand, server: SessionServer) -> None:
    stand.go.clear()

    async def play(client: ClientSession) -> None:
        receipt = await done(client, "submit", episodes="0:2", wait_seconds=0.2)
        assert (receipt["status"], receipt["score"]) == ("evaluating", None)
        name = receipt["submission_id"]
        assert (await done(client, "wait", submission_id=name, timeout=0))["status"] == "evaluating"
        await refused(client, "submit", "busy", episodes="2:4")
        await refused(client, "finish", "busy", candidates=[name])
        # One that waits keeps no other from being answered.
        ended: list[dict[str, Any]] = []

        async def wait() -> None:
            ended.append(await done(client, "wait", submission_id=name))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            assert (await done(client, "status"))["evaluating"] == name
            assert ended == []
            stand.go.set()
        assert (ended[0]["status"], ended[0]["score"]) == ("published", 2.0)

    talk(play, variables(stand, server), stand.workspace)


def test_a_client_that_gives_up(stand: Stand, server: SessionServer) -> None:
    """As clients do at their tool time-out: nothing is cancelled, and nothing charged twice."""
    stand.go.clear()

    async def play(client: ClientSession) -> None:
        with pytest.raises(McpError, match="Timed out"):
            await client.call_tool(
                "submit", {"episodes": "0:2"}, read_timeout_seconds=timedelta(seconds=0.5)
            )
        while (name := (await done(client, "status"))["evaluating"]) is None:
            await anyio.sleep(0.05)
        given_up = CancelledNotificationParams(requestId=1)  # 0 was `initialize`
        notification = CancelledNotification(params=given_up)
        await client.send_notification(ClientNotification(notification))
        assert (await done(client, "status"))["evaluating"] == name
        stand.go.set()
        assert (await done(client, "wait", submission_id=name))["status"] == "published"

    talk(play, variables(stand, server), stand.workspace)
    assert stand.ledger.used == 2


def test_refusals(stand: Stand, server: SessionServer) -> None:
    async def play(client: ClientSession) -> None:
        await refused(client, "submit", "invalid_selector", episodes="3:1")
        await refused(client, "submit", "over_budget", episodes="0:21", request_id="a")
        message = await refused(client, "submit", "invalid_program", episodes="0", program="none")
        assert str(stand.workspace) not in message
        for program in ("..", ".", "", "../..", "/etc", "~", "x" * 5000, "a\0b", "a\nb"):
            await refused(client, "submit", "invalid_program", episodes="0", program=program)
        await refused(client, "submit", "invalid_request", episodes="0", request_id="a b")
        for name in ("", "submission-000009", "../info", "\u00fc", "x" * 5000):
            await refused(client, "wait", "unknown_submission", submission_id=name)
        await refused(client, "finish", "invalid_candidates", candidates=[])
        await refused(client, "finish", "unknown_submission", candidates=["x"])
        assert (await done(client, "status"))["episodes_used"] == 0

    talk(play, variables(stand, server), stand.workspace)
    assert stand.ledger.used == 0


@pytest.mark.parametrize("place", ["workspace", "elsewhere"])
def test_programs_are_named_from_the_workspace(
    stand: Stand, server: SessionServer, tmp_path: Path, place: str
) -> None:
    """Wherever the client starts the server."""
    inner = stand.workspace / "analysis" / "better"
    inner.mkdir(parents=True)
    (inner / "policy.py").write_text("def make_policy(context): ...\n")
    names = ["analysis/better", "./analysis/better/", "program/../analysis/better", str(inner)]

    async def play(client: ClientSession) -> None:
        for name in names:
            await done(client, "submit", program=name, episodes="0")

    talk(play, variables(stand, server), stand.workspace if place == "workspace" else tmp_path)
    submitted = {submission.program.digest for submission in stand.session.submissions}
    assert len(submitted) == 1


BAD_ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    ("submit", {}),
    ("submit", {"episodes": 3}),
    ("submit", {"episodes": None}),
    ("submit", {"episodes": ["0"]}),
    ("submit", {"episodes": "0", "program": None}),
    ("submit", {"episodes": "0", "program": {"policy.py": ""}}),
    ("submit", {"episodes": "0", "wait_seconds": -1}),
    ("submit", {"episodes": "0", "wait_seconds": 1e300}),
    ("submit", {"episodes": "0", "wait_seconds": "soon"}),
    ("submit", {"episodes": "0", "wait_seconds": "nan"}),
    ("submit", {"episodes": "0", "wait_seconds": None}),
    ("submit", {"episodes": "0", "seed": 1}),
    ("submit", {"episodes": "0", "x" * 5000: 1}),
    ("status", {"verbose": True}),
    ("wait", {}),
    ("wait", {"submission_id": 1}),
    ("wait", {"submission_id": "submission-000001", "timeout": "nan"}),
    ("finish", {}),
    ("finish", {"candidates": "submission-000001"}),
    ("finish", {"candidates": [1]}),
    ("nothing", {}),
    ("x" * 5000, {}),
]


def test_bad_arguments(stand: Stand, server: SessionServer) -> None:
    async def play(client: ClientSession) -> None:
        for name, arguments in BAD_ARGUMENTS:
            await refused(client, name, "invalid_request", **arguments)
        message = await refused(client, "submit", "invalid_request", episodes="0", candidates=[])
        assert message == "$.candidates: Extra inputs are not permitted"
        assert (await done(client, "status"))["episodes_used"] == 0

    talk(play, variables(stand, server), stand.workspace)


def test_a_host_that_fails(stand: Stand, server: SessionServer) -> None:
    """Like the command line, whose exit code is 1 then."""
    stand.broken = True

    async def play(client: ClientSession) -> None:
        result = await client.call_tool("submit", {"episodes": "0"})
        assert result.isError
        assert answered(result)["status"] == "failed"
        await refused(client, "submit", "host_failure", episodes="0")

    talk(play, variables(stand, server), stand.workspace)
    assert stand.ledger.used == 0


def test_over_tcp(stand: Stand, server: SessionServer) -> None:
    assert server.url is not None
    assert server.token is not None
    env = {URL_VARIABLE: server.url, WORKSPACE_VARIABLE: str(stand.workspace)}

    async def play(client: ClientSession) -> None:
        assert (await done(client, "submit", episodes="0"))["status"] == "published"

    async def stranger(client: ClientSession) -> None:
        await refused(client, "status", "unauthorized")

    talk(play, env | {TOKEN_VARIABLE: server.token}, stand.workspace)
    talk(stranger, env | {TOKEN_VARIABLE: "x"}, stand.workspace)


def test_without_a_session(tmp_path: Path) -> None:
    async def play(client: ClientSession) -> None:
        message = await refused(client, "status", "unreachable")
        assert SESSION_VARIABLE in message

    talk(play, {}, tmp_path)


# ----------------------------------------------------------------- the process itself


class Raw:
    """The MCP server as a process, for what no proper client does."""

    def __init__(self, env: dict[str, str], **options: Any) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("EVOPOLICYGYM_")}
        self.process = subprocess.Popen(
            [SESSION, "mcp"],
            env=kept | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def __enter__(self) -> Raw:
        info = {"name": "test", "version": "1"}
        parameters = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
        self.send({"id": 0, "method": "initialize", "params": parameters})
        assert self.read()["result"]["protocolVersion"] == "2025-06-18"
        self.send({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        self.process.wait()

    def send(self, message: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        if isinstance(message, dict):
            message = json.dumps({"jsonrpc": "2.0"} | message).encode()
        self.process.stdin.write(message + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def end(self) -> tuple[int, str, str]:
        """Close standard input; return how the process ended."""
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out.decode(), err.decode()


def test_it_ends_with_standard_input(stand: Stand, server: SessionServer) -> None:
    with Raw(variables(stand, server)) as raw:
        assert raw.end() == (0, "", "")


def test_it_ends_while_a_call_waits(stand: Stand, server: SessionServer) -> None:
    stand.go.clear()
    with Raw(variables(stand, server)) as raw:
        call = {"name": "submit", "arguments": {"episodes": "0", "wait_seconds": 3600}}
        raw.send({"id": 1, "method": "tools/call", "params": call})
        client = SessionClient(str(server._path))
        while client.info()["evaluating"] is None:
            time.sleep(0.02)
        assert raw.end() == (0, "", "")
    stand.go.set()
    assert client.wait("submission-000001", 30)["status"] == "published"


def test_it_ends_with_its_reader(stand: Stand, server: SessionServer) -> None:
    with Raw(variables(stand, server)) as raw:
        assert raw.process.stdout is not None
        raw.process.stdout.close()
        raw.send({"id": 1, "method": "tools/list"})
        assert raw.process.stdin is not None
        raw.process.stdin.close()
        assert raw.process.wait(30) == 0
        assert raw.process.stderr is not None
        assert raw.process.stderr.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_a_signal(stand: Stand, server: SessionServer, number: int) -> None:
    with Raw(variables(stand, server)) as raw:
        raw.process.send_signal(number)
        assert raw.process.wait(30) == -number
        assert raw.process.stderr is not None
        assert raw.process.stderr.read() == b""


def test_what_it_cannot_read_and_does_not_know(stand: Stand, server: SessionServer) -> None:
    with Raw(variables(stand, server)) as raw:
        raw.send({"id": 1, "method": "server/discover", "params": {}})  # newer than the library
        assert raw.read()["error"]["code"] == -32601
        raw.send({"id": 2, "method": "resources/list"})
        assert raw.read()["error"]["code"] == -32601
        raw.send({"method": "notifications/unknown"})
        for line in (b"garbage", b"", b"[]", b"\xff", b"1", b"{}", b"[" * 100_000, b'{"id": []}'):
            raw.send(line)
        call = {"name": "submit", "arguments": {"episodes": "\ud800"}}
        raw.send({"id": 3, "method": "tools/call", "params": call})
        answer = raw.read()
        assert (answer["id"], answer["error"]["code"]) == (3, -32700)
        raw.send({"id": 4, "method": "tools/call", "params": {"name": "status", "arguments": []}})
        assert raw.read()["error"]["code"] == -32602
        raw.send({"id": "five", "method": "ping"})
        assert raw.read() == {"jsonrpc": "2.0", "id": "five", "result": {}}
        raw.send(b"garbage at the end")
        code, out, err = raw.end()
    assert (code, out) == (0, "")
    assert "Traceback" not in err


def test_without_the_package(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['mcp'] = None\n"
        "from evopolicygym.run.client import main\n"
        "sys.exit(main(['mcp']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert 'pip install "evopolicygym[agents]"' in line


def test_it_loads_what_it_needs() -> None:
    code = (
        "import sys, evopolicygym.run.mcp_server\n"
        "print({'numpy', 'fastapi', 'gymnasium', 'typer', 'msgspec'} & sys.modules.keys())\n"
        "print({n for n in sys.modules if n.startswith('evopolicygym')} == {'evopolicygym', "
        "'evopolicygym.run', 'evopolicygym.run.client', 'evopolicygym.run.mcp_server'})"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "set()\nTrue\n"
