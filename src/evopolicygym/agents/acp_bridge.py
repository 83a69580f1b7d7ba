"""The bridge of `Acp`: the line protocol to the Host, the Agent Client Protocol to the agent.

Started as `python -P -m evopolicygym.agents.acp_bridge OPTIONS_JSON PROGRAM ARG…` in the
workspace; all prompts go to one ACP session. Standard output carries answers and nothing else;
what happens in between goes to standard error, a JSON line an event. It exits with 0 at the end of
its input and on SIGTERM, with 3 if the agent never began a session and with 1 if it was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from acp import PROTOCOL_VERSION, Client, RequestError, connect_to_agent
from acp import schema as acp
from pydantic import ValidationError

from evopolicygym.agents.acp import NEVER_BEGUN
from evopolicygym.agents.acp_workspace import Workspace, report
from evopolicygym.agents.transcripts import error_kind
from evopolicygym.run.agent import AgentErrorKind

__all__ = ["main"]

_MAX_LINE_BYTES = 2**24
_GRACE_SECONDS = 2.0


class _Dialogue:
    """Answers each prompt with a turn of the one ACP session."""

    def __init__(self, options: Mapping[str, Any], process: Any) -> None:
        self._options = options
        self._workspace = Workspace(Path.cwd())
        self._agent = connect_to_agent(
            cast("Client", self._workspace), process.stdin, process.stdout
        )
        self._started: acp.InitializeResponse | None = None
        self._session: str | None = None
        self._cost = 0.0

    @property
    def begun(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    async def play(self, prompts: asyncio.StreamReader, answers: IO[bytes]) -> None:
        """Answer until there are no more prompts; `ConnectionError` if the agent is gone."""
        while line := await prompts.readline():
            prompt = json.loads(line)
            data = await self._turn(prompt["message"])
            answer = {"turn": prompt["turn"], "text": self._workspace.text, "stop": False}
            answer["data"] = data
            # A lone surrogate in what the agent said becomes a question mark.
            answers.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            answers.flush()

    async def close(self) -> None:
        """End the session, if the agent knows how to, and the connection."""
        known = self._started and self._started.agent_capabilities
        sessions = known and known.session_capabilities
        with contextlib.suppress(Exception):
            if self._session is not None and sessions and sessions.close is not None:
                await asyncio.wait_for(self._agent.close_session(self._session), 1.0)
        with contextlib.suppress(Exception):
            await self._agent.close()

    async def _turn(self, message: str) -> dict[str, Any]:
        """Play a turn; return what an answer says besides its text."""
        self._workspace.begin_turn()
        data: dict[str, Any] = {}
        try:
            session = self._session or await self._open()
            block = acp.TextContentBlock(type="text", text=message)
            response = await self._agent.prompt(session_id=session, prompt=[block])
            data["stop_reason"] = response.stop_reason
            data["usage"] = self._usage(response.usage)
        except (RequestError, ValidationError) as error:
            details = getattr(error, "data", None)
            said = str(error) if details is None else f"{error}: {json.dumps(details)}"
            auth = isinstance(error, RequestError) and error.code == _AUTH_REQUIRED
            kind = AgentErrorKind.AUTH if auth else error_kind(said)
            data["error"] = {"kind": kind.value, "message": said[:2000]}
        data["tool_calls"] = len(self._workspace.calls)
        if self._workspace.cost is not None:
            # The agent counts from the beginning of the session.
            spent, self._cost = self._workspace.cost - self._cost, self._workspace.cost
            data["cost_usd"] = spent if spent >= 0 else None
        return {name: value for name, value in data.items() if value is not None}

    async def _open(self) -> str:
        """Begin the session; if that fails, the next prompt tries again."""
        if self._started is None:
            files = acp.FileSystemCapabilities(read_text_file=True, write_text_file=True)
            started = await self._agent.initialize(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=acp.ClientCapabilities(fs=files, terminal=False),
            )
            if started.protocol_version != PROTOCOL_VERSION:
                raise ConnectionError(f"it speaks version {started.protocol_version} of ACP")
            self._started = started
        mcp, mode, servers = self._options["mcp"], self._options["mode"], []
        if mcp is not None:
            env = [acp.EnvVariable(name=k, value=v) for k, v in mcp["environment"].items()]
            command, args = mcp["command"], mcp["args"]
            servers = [acp.McpServerStdio(name="evopolicygym", command=command, args=args, env=env)]
        new = await self._agent.new_session(cwd=str(Path.cwd()), mcp_servers=[*servers])
        if mode is not None:
            await self._agent.set_session_mode(session_id=new.session_id, mode_id=mode)
        self._session = new.session_id
        return new.session_id

    def _usage(self, usage: acp.Usage | None) -> dict[str, int] | None:
        """Return tokens of this turn that don't overlap, or None unless that is certain.

        ACP leaves open whose sum `usage` is: Claude's agent means the turn, copilot the session,
        opencode the last call of the model. Whether `input` holds the cached tokens, and `output`
        the thoughts, follows from the total.
        """
        info = self._started and self._started.agent_info
        if usage is None or info is None or "claude" not in info.name.lower():
            return None
        read, write = usage.cached_read_tokens or 0, usage.cached_write_tokens or 0
        found = {
            (fresh, output)
            for fresh in (usage.input_tokens, usage.input_tokens - read - write)
            for output in (usage.output_tokens, usage.output_tokens + (usage.thought_tokens or 0))
            if fresh >= 0 and fresh + read + write + output == usage.total_tokens
        }
        if len(found) != 1:
            return None
        fresh, output = found.pop()
        return {"input": fresh, "cache_read": read, "cache_write": write, "output": output}


_AUTH_REQUIRED = RequestError.auth_required().code


async def _ended(process: asyncio.SubprocessTransport) -> None:
    """Wait for the end of a process, whoever still holds its pipes."""
    while process.get_returncode() is None:
        await asyncio.sleep(0.05)


async def _end(process: asyncio.SubprocessTransport) -> None:
    """SIGTERM to the agent's process group, a short grace, SIGKILL."""
    for number, grace in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, None)):
        # A launcher can be gone and what it launched still be there.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.get_pid(), number)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_ended(process), grace)
    process.close()
    await asyncio.sleep(0)  # its pipes close before the event loop does


async def _run(options: Mapping[str, Any], argv: Sequence[str], answers: IO[bytes]) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    prompts = asyncio.StreamReader(_MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(prompts), sys.stdin)
    try:
        process, streams = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(_MAX_LINE_BYTES, loop),
            *argv,
            stderr=None,
            start_new_session=True,
        )
    except OSError as error:
        report(f"acp bridge: the agent did not start: {error.strerror}")
        return NEVER_BEGUN
    dialogue = _Dialogue(options, streams)
    play = asyncio.create_task(dialogue.play(prompts, answers))
    tasks = {play, asyncio.create_task(_ended(process)), asyncio.create_task(stop.wait())}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if not stop.is_set() and not (play.done() and play.exception() is None):
        # A last answer may still be on its way; a closed pipe comes before the status.
        await asyncio.wait(tasks, timeout=0.5)
    status, lost = process.get_returncode(), None
    if not stop.is_set():
        lost = play.exception() if play.done() else ConnectionError("its process is gone")
    play.cancel()
    await dialogue.close()
    await _end(process)
    if lost is None:
        return 0
    how = f"is lost: {lost}" if status is None else f"ended with status {status}"
    report(f"acp bridge: the agent {how}")
    return 1 if dialogue.begun else NEVER_BEGUN


def main(arguments: Sequence[str]) -> int:
    """Bridge until there are no more prompts.

    Args:
        arguments: Options, JSON; program; its arguments.
    """
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # whatever else is printed here is no answer
        return asyncio.run(_run(json.loads(arguments[0]), arguments[1:], answers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
