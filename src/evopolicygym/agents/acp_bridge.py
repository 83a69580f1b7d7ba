"""The bridge of `Acp`: the line protocol to the Host, the Agent Client Protocol to the agent.

Started as `python -P -m evopolicygym.agents.acp_bridge OPTIONS_JSON PROGRAM ARG…` in the
workspace; all prompts go to one ACP session. Standard output carries answers and nothing else;
what happens in between goes to standard error, a JSON line an event. It exits with 0 at the end of
its input and on SIGTERM, and with 1 if there is no agent to talk to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote, urlsplit

from acp import PROTOCOL_VERSION, Client, RequestError, connect_to_agent
from acp import schema as acp
from pydantic import ValidationError

from evopolicygym.agents.transcripts import cost, error_kind
from evopolicygym.run.agent import AgentErrorKind

__all__ = ["main"]

_MAX_TEXT = 2**17
"""Characters kept of an answer, the last ones: in JSON less than the line protocol's 1 MiB."""

_MAX_LINE_BYTES = 2**24
_MAX_FILE_BYTES = 2**23
_MAX_EVIDENCE = 2**22
_GRACE_SECONDS = 2.0

_PATH_KEY = re.compile(
    r"(?i)(path|file|file_?name|cwd|dir|directory|directorie|folder|uri|root|source|dest|"
    r"destination|target)s?$"
)
_PLACE_KEY = re.compile(r"(?i)(cwd|work\w*dir\w*|dir|directory)$")
_EVIDENCE = (
    "tool_call_id",
    "title",
    "kind",
    "status",
    "raw_input",
    "used",
    "cost",
    "current_mode_id",
)


def _named_paths(value: object, keys: re.Pattern[str], key: str = "") -> Iterator[str]:
    """Yield the paths that a tool's input names under keys of a kind."""
    if isinstance(value, str) and keys.search(key):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _named_paths(item, keys, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            if "/" in name or key in ("changes", "files"):
                yield name
            yield from _named_paths(item, keys, name)


class _Workspace:
    """ACP's client: answers what the agent asks for and hears what it tells of its work.

    Attributes:
        calls: Kinds of the tool calls of this turn.
        cost: Cost of the session so far as the agent reports it, USD, or None.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._evidence = 0
        self.cost: float | None = None
        self.begin_turn()

    def begin_turn(self) -> None:
        """Forget the last turn."""
        self._text: list[str] = []
        self._size = 0
        self._paths: dict[str, set[str]] = {}
        self.calls: dict[str, str | None] = {}

    @property
    def text(self) -> str:
        """What the agent said in this turn, or the end of it."""
        return "".join(self._text)[-_MAX_TEXT:]

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Hear what the agent tells."""
        if isinstance(update, acp.AgentMessageChunk):
            if isinstance(update.content, acp.TextContentBlock):
                self._say(update.content.text)
            return
        if isinstance(update, acp.ToolCallStart | acp.ToolCallProgress):
            self._hear_of(update)
        elif isinstance(update, acp.UsageUpdate):
            if update.cost is not None and update.cost.currency == "USD":
                self.cost = cost(update.cost.amount)
        elif not isinstance(update, acp.CurrentModeUpdate):
            return
        told = update.model_dump(mode="json", exclude_none=True, include=set(_EVIDENCE))
        self._note(update.session_update, told)

    def _say(self, text: str) -> None:
        self._text.append(text)
        self._size += len(text)
        if self._size > 4 * _MAX_TEXT:
            self._text = [self.text]
            self._size = _MAX_TEXT

    def _note(self, event: str, told: Mapping[str, Any]) -> None:
        """Print an event as evidence."""
        texts = {name: json.dumps(value) for name, value in told.items()}
        short = {name: told[name] if len(t) <= 400 else t[:400] for name, t in texts.items()}
        line = json.dumps({"type": event, **short})
        self._evidence += len(line)
        if self._evidence <= _MAX_EVIDENCE:
            _report(line)

    # ------------------------------------------------------------------ permissions

    def _hear_of(self, call: acp.ToolCall | acp.ToolCallUpdate) -> set[str]:
        """Return the paths that a tool call ever named."""
        self.calls[call.tool_call_id] = call.kind or self.calls.get(call.tool_call_id)
        paths = self._paths.setdefault(call.tool_call_id, set())
        paths.update(place.path for place in call.locations or ())
        paths.update(part.path for part in call.content or () if part.type == "diff")
        # Of a command only the place counts: what else an agent read out of its text is a guess.
        command = self.calls[call.tool_call_id] == "execute"
        paths.update(_named_paths(call.raw_input, _PLACE_KEY if command else _PATH_KEY))
        return paths

    async def request_permission(
        self,
        session_id: str,
        tool_call: acp.ToolCallUpdate,
        options: list[acp.PermissionOption],
        **_: Any,
    ) -> acp.RequestPermissionResponse:
        """Allow, once, what names no path out of the workspace."""
        paths = self._hear_of(tool_call)
        outside = sorted(path for path in paths if self._resolve(path) is None)
        # A change has to say of what.
        change = self.calls[tool_call.tool_call_id] in ("edit", "delete", "move")
        allowed = not outside and (bool(paths) or not change)
        ids = {option.kind: option.option_id for option in options}
        chosen = (ids.get("allow_once") if allowed else None) or ids.get("reject_once")
        told = {"tool_call_id": tool_call.tool_call_id, "answer": chosen, "outside": outside}
        self._note("permission", told)
        outcome: acp.DeniedOutcome | acp.AllowedOutcome = acp.DeniedOutcome(outcome="cancelled")
        if chosen is not None:
            outcome = acp.AllowedOutcome(outcome="selected", option_id=chosen)
        return acp.RequestPermissionResponse(outcome=outcome)

    # ------------------------------------------------------------------------ files

    def _resolve(self, path: str) -> Path | None:
        """Return the real path of what is in the workspace, or None."""
        try:
            if path.startswith("file:"):
                path = unquote(urlsplit(path).path)
            given = self._root / Path(path).expanduser()
            real = given.resolve()
            # For some programs `link/..` is where they came from, and `resolve` stops in a loop.
            ways = (real, real.resolve(), Path(os.path.normpath(given)).resolve())
        except (OSError, RuntimeError, ValueError):  # a loop of links, no home, a NUL
            return None
        return real if all(way.is_relative_to(self._root) for way in ways) else None

    def _file(self, path: str) -> Path:
        real = self._resolve(path)
        if real is None or (real.exists() and not real.is_file()):
            raise RequestError.invalid_params({"path": path, "reason": "no file of the workspace"})
        return real

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> acp.ReadTextFileResponse:
        """Read a file of the workspace."""
        real = self._file(path)
        if not real.exists():
            raise RequestError.resource_not_found(path)
        if real.stat().st_size > _MAX_FILE_BYTES:
            raise RequestError.internal_error({"reason": f"more than {_MAX_FILE_BYTES} bytes"})
        start = max((line or 1) - 1, 0)
        lines = real.read_bytes().decode(errors="replace").split("\n")
        lines = lines[start : None if limit is None else start + limit]
        return acp.ReadTextFileResponse(content="\n".join(lines))

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> acp.WriteTextFileResponse:
        """Write a file of the workspace."""
        real = self._file(path)
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_bytes(content.encode())
        return acp.WriteTextFileResponse()


class _Dialogue:
    """Answers each prompt with a turn of the one ACP session."""

    def __init__(self, options: Mapping[str, Any], process: Any) -> None:
        self._options = options
        self._workspace = _Workspace(Path.cwd())
        self._agent = connect_to_agent(
            cast("Client", self._workspace), process.stdin, process.stdout
        )
        self._started: acp.InitializeResponse | None = None
        self._session: str | None = None
        self._cost = 0.0

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


def _report(line: str) -> None:
    # The agent may have made the shared pipe non-blocking; then it can be full.
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


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
        _report(f"acp bridge: the agent did not start: {error.strerror}")
        return 1
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
    if lost is not None:
        how = f"is lost: {lost}" if status is None else f"ended with status {status}"
        _report(f"acp bridge: the agent {how}")
    return int(lost is not None)


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
