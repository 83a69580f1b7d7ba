"""What an ACP agent may see and do: files of the workspace, permissions, and what is noted."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import RequestError
from acp import schema as acp

from evopolicygym.agents.transcripts import cost

__all__ = ["Workspace", "report"]

_MAX_TEXT = 2**17
"""Characters kept of an answer, the last ones: in JSON less than the line protocol's 1 MiB."""

_MAX_FILE_BYTES = 2**23
_MAX_EVIDENCE = 2**22

_PATH = re.compile(r"(?:/|~|\.\.?(?:/|$)|file:)\S*|\S*/\.\.(?:/\S*)?")
"""What is a path whatever it is called: absolute, of a home, of this or the directory above."""

_PATCHED = re.compile(
    r"(?m)^(?:\*\*\* (?:Add|Update|Delete) File: |\*\*\* Move to: |\+\+\+ |--- )(\S+)"
)
"""Files that a patch names."""

_PATH_KEY = re.compile(
    r"(?i)(path|file|file_?name|cwd|dir|directory|directorie|folder|uri|url|root|source|src|dest|"
    r"destination|target|pattern|glob)s?$"
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


def report(line: str) -> None:
    """Print a line to standard error."""
    # The agent may have made the shared pipe non-blocking; then it can be full.
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _named_paths(value: object, key: str = "") -> Iterator[str]:
    """Yield the paths that a tool's input names: under keys of that kind, or plainly."""
    if isinstance(value, str):
        if _PATH_KEY.search(key) or _PATH.fullmatch(value):
            yield value
        yield from _PATCHED.findall(value)
    elif isinstance(value, list):
        for item in value:
            yield from _named_paths(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            if "/" in name or key in ("changes", "files"):
                yield name
            yield from _named_paths(item, name)


def _places(value: object, key: str = "") -> Iterator[str]:
    """Yield the directories that a command's input names. What its text says is a guess."""
    if isinstance(value, str) and _PLACE_KEY.search(key):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _places(item, key)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _places(item, name)


class Workspace:
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
            report(line)

    # ------------------------------------------------------------------ permissions

    def _hear_of(self, call: acp.ToolCall | acp.ToolCallUpdate) -> set[str]:
        """Return the paths that a tool call ever named."""
        self.calls[call.tool_call_id] = call.kind or self.calls.get(call.tool_call_id)
        paths = self._paths.setdefault(call.tool_call_id, set())
        paths.update(place.path for place in call.locations or ())
        paths.update(part.path for part in call.content or () if part.type == "diff")
        kind, given = self.calls[call.tool_call_id], call.raw_input
        if kind is None and isinstance(given, dict) and {"command", "cmd"} & given.keys():
            kind = "execute"
        paths.update(_places(given) if kind == "execute" else _named_paths(given))
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
