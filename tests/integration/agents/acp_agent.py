"""A real ACP agent that does what its script says: `acp_agent.py SCRIPT_JSON`.

The script is an object: `turns`, a list of turns of one step or more each, and what else the
agent should be like. What a step finds out is said as a JSON line in the agent's message.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from acp import RequestError, run_agent
from acp import schema as acp


class Scripted:
    def __init__(self, script: dict[str, Any]) -> None:
        self._script = script
        self._turns = iter(script["turns"])
        self._client: Any = None
        self._cwd = Path()
        self._usage: dict[str, int] | None = None

    def on_connect(self, client: Any) -> None:
        self._client = client

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, **_: Any
    ) -> acp.InitializeResponse:
        assert protocol_version == 1
        assert client_capabilities.fs.read_text_file
        assert client_capabilities.fs.write_text_file
        assert not client_capabilities.terminal
        sessions = acp.SessionCapabilities(close=acp.SessionCloseCapabilities())
        return acp.InitializeResponse(
            protocol_version=self._script.get("version", 1),
            agent_capabilities=acp.AgentCapabilities(session_capabilities=sessions),
            agent_info=acp.Implementation(name=self._script.get("name", "scripted"), version="1"),
        )

    async def new_session(
        self, cwd: str, mcp_servers: Any = None, **_: Any
    ) -> acp.NewSessionResponse:
        if self._script.get("signed_in") is False:
            self._script["signed_in"] = True  # by the next time
            raise RequestError.auth_required()
        self._cwd = Path(cwd)
        self._servers = [server.model_dump(mode="json") for server in mcp_servers or ()]
        return acp.NewSessionResponse(session_id=f"session-{os.getpid()}")

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> None:
        self._mode = mode_id

    async def close_session(self, session_id: str, **_: Any) -> acp.CloseSessionResponse:
        print("closed", session_id, file=sys.stderr)
        return acp.CloseSessionResponse()

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> acp.PromptResponse:
        self._session = session_id
        self._prompt = prompt[0].text
        self._usage = None
        for step in next(self._turns):
            for name, value in step.items():
                await getattr(self, f"do_{name}")(value)
        usage = acp.Usage(**self._usage) if self._usage else None
        return acp.PromptResponse(stop_reason="end_turn", usage=usage)

    async def _update(self, update: Any) -> None:
        await self._client.session_update(session_id=self._session, update=update)

    async def do_say(self, text: str) -> None:
        content = acp.TextContentBlock(type="text", text=text)
        await self._update(
            acp.AgentMessageChunk(session_update="agent_message_chunk", content=content)
        )

    async def _found(self, value: object) -> None:
        await self.do_say(json.dumps(value) + "\n")

    async def do_tell(self, name: str) -> None:
        """Say what the Host told: `prompt`, `session`, `servers` or `mode`."""
        await self._found(getattr(self, f"_{name}"))

    async def do_tool(self, call: dict[str, Any]) -> None:
        await self._update(acp.ToolCallStart(session_update="tool_call", **call))

    async def do_ask(self, call: dict[str, Any]) -> None:
        """Ask for permission; say which option was chosen."""
        offered = call.pop("options", ["allow_always", "allow_once", "reject_once"])
        answer = await self._client.request_permission(
            session_id=self._session,
            tool_call=acp.ToolCallUpdate(**{"tool_call_id": "call-1", **call}),
            options=[acp.PermissionOption(option_id=f"o-{k}", name=k, kind=k) for k in offered],
        )
        await self._found(getattr(answer.outcome, "option_id", answer.outcome.outcome))

    async def do_shell(self, command: str) -> None:
        done = await asyncio.to_thread(
            subprocess.run, command, shell=True, cwd=self._cwd, capture_output=True, text=True
        )
        await self._found([done.returncode, done.stdout, done.stderr])

    async def do_read(self, arguments: dict[str, Any]) -> None:
        await self._request(self._client.read_text_file, arguments)

    async def do_write(self, arguments: dict[str, Any]) -> None:
        await self._request(self._client.write_text_file, arguments)

    async def _request(self, method: Any, arguments: dict[str, Any]) -> None:
        try:
            answer = await method(session_id=self._session, **arguments)
        except RequestError as error:
            await self._found({"error": error.code})
        else:
            await self._found(getattr(answer, "content", "written"))

    async def do_usage(self, usage: dict[str, int]) -> None:
        self._usage = usage

    async def do_cost(self, amount: float) -> None:
        cost = acp.Cost(amount=amount, currency="USD")
        await self._update(
            acp.UsageUpdate(session_update="usage_update", used=1, size=2, cost=cost)
        )

    async def do_fail(self, error: list[Any]) -> None:
        raise RequestError(*error)

    async def do_stubborn(self, _: bool) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    async def do_hang(self, mark: str) -> None:
        await self._found(os.getpid())
        (self._cwd / mark).touch()
        time.sleep(1000)

    async def do_exit(self, status: int) -> None:
        """End and leave a process behind that holds the pipes."""
        subprocess.Popen(["sleep", "4"], start_new_session=True)
        os._exit(status)

    async def do_flood(self, size: int) -> None:
        for _ in range(size // 2**16):
            await self.do_say("\x01é𝄞x" * 2**14)
        await self.do_say("the end")


if __name__ == "__main__":
    agent: Any = Scripted(json.loads(sys.argv[1]))
    asyncio.run(run_agent(agent, use_unstable_protocol=True))  # for session/close
