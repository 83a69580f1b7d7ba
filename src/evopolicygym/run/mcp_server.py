"""`evopolicygym-session mcp`: the session as tools of the Model Context Protocol, over stdio.

A coding agent's client starts it in the agent's environment and ends it by closing its standard
input. It holds no state: every call is one of `evopolicygym-session`, with the same answer.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import typing
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import SkipJsonSchema

from evopolicygym.run.client import (
    WORKSPACE_VARIABLE,
    RefusedError,
    SessionClient,
    workspace_path,
)

__all__ = ["DEFAULT_WAIT_SECONDS", "serve"]

DEFAULT_WAIT_SECONDS = 50.0
"""Longest wait of a call that names none: clients give up on a tool after 60 s or more."""

_MAX_WAIT_SECONDS = 3600.0
_SLICE_SECONDS = 1.0
"""Longest time a thread waits at a stretch: so long does a closed standard input take effect."""

_INSTRUCTIONS = (
    "The Run that you are in. `status` tells the budget and the limits, `submit` evaluates a "
    "Program on training Episodes that you choose, `finish` ends the search. TASK.md in the "
    "workspace says what is to be achieved."
)


# ------------------------------------------------------------------------------- the tools
#
# A tool is the model of its arguments: its docstring is the tool's description, its schema the
# tool's input schema, and `call` makes the call.


def _no_default(schema: dict[str, Any]) -> None:
    del schema["default"]  # it is null, which the type in the schema does not allow


Seconds = Annotated[float, Field(ge=0, le=_MAX_WAIT_SECONDS, allow_inf_nan=False)]
_WAIT = (
    "Seconds to wait for the end of the evaluation, 0 to 3600. If your client ends tool calls "
    "sooner than that, the answer is lost, not the evaluation."
)


class _Tool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    async def call(self, client: SessionClient) -> dict[str, Any]:
        """Return what `evopolicygym-session` would print."""
        raise NotImplementedError


class _Submit(_Tool):
    """Evaluate a Program on training Episodes and return the receipt, with its score.

    Costs one unit of the Episode budget for every Episode selected (an Episode that is played
    again costs again), and one Submission. A refused call costs nothing.

    Waits wait_seconds for the evaluation (50 unless you say otherwise). A receipt with the status
    "evaluating" says that it goes on: call `wait` with its submission_id. The same holds if this
    call is cut off by your client's tool time-out: nothing is cancelled and everything is charged.
    Then look at `status`, and don't submit again, which would be charged again unless it has the
    same request_id. Once the status is "published", the file that `feedback` names, relative to
    the workspace, tells what happened in every Episode.
    """

    program: str = Field("program", description="directory of the Program in the workspace")
    episodes: str = Field(
        description='training Episodes by index, e.g. "0:8" (0 to 7) or "0:2,4:8"; half-open '
        "ranges and single indices, strictly increasing"
    )
    request_id: str | SkipJsonSchema[None] = Field(
        None,
        json_schema_extra=_no_default,
        description="1 to 64 of A-Z a-z 0-9 . _ -; a submit that is sent again with the same id "
        "and episodes returns the first one's receipt and is charged once",
    )
    wait_seconds: Seconds = Field(DEFAULT_WAIT_SECONDS, description=_WAIT)

    async def call(self, client: SessionClient) -> dict[str, Any]:
        program = workspace_path(self.program, os.environ.get(WORKSPACE_VARIABLE))
        submit = partial(client.submit, program, self.episodes, request_id=self.request_id)
        receipt = await _in_thread(submit)
        if receipt["status"] != "evaluating" or self.wait_seconds == 0:
            return receipt
        return await _settled(client, receipt["submission_id"], self.wait_seconds)


class _Status(_Tool):
    """Tell the budget, the limits, the time left and the receipts of all Submissions so far.

    Costs nothing.
    """

    async def call(self, client: SessionClient) -> dict[str, Any]:
        return await _in_thread(client.info)


class _Wait(_Tool):
    """Wait for the end of a Submission's evaluation and return its receipt.

    Costs nothing and may be repeated. If the evaluation takes longer than the timeout (50 seconds
    unless you say otherwise) or than your client's tool time-out, it goes on: call `wait` again.
    """

    submission_id: str = Field(description="e.g. submission-000001")
    timeout: Seconds = Field(DEFAULT_WAIT_SECONDS, description=_WAIT)

    async def call(self, client: SessionClient) -> dict[str, Any]:
        return await _settled(client, self.submission_id, self.timeout)


class _Finish(_Tool):
    """End the search and hand over candidates: published Submissions, the best first.

    Costs nothing, and is final: nothing can be submitted afterwards. Episodes that are left are
    lost. Refused while a Submission is being evaluated.
    """

    candidates: list[str] = Field(
        description="Submission ids, best first, each once; exactly one unless max_candidates of "
        "`status` is more"
    )

    async def call(self, client: SessionClient) -> dict[str, Any]:
        return await _in_thread(partial(client.finish, self.candidates))


_TOOLS: dict[str, type[_Tool]] = {
    "submit": _Submit,
    "status": _Status,
    "wait": _Wait,
    "finish": _Finish,
}


def _described(name: str, tool: type[_Tool]) -> types.Tool:
    schema = tool.model_json_schema()
    del schema["title"]
    return types.Tool(
        name=name,
        description=schema.pop("description"),
        inputSchema=schema,
        annotations=types.ToolAnnotations(
            readOnlyHint=tool in (_Status, _Wait), destructiveHint=False, openWorldHint=False
        ),
    )


async def _in_thread(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


async def _settled(client: SessionClient, submission_id: str, seconds: float) -> dict[str, Any]:
    """Wait for a Submission as `SessionClient.wait` does, in slices."""
    deadline = time.monotonic() + seconds
    while True:
        rest = max(0.0, min(_SLICE_SECONDS, deadline - time.monotonic()))
        receipt = await _in_thread(partial(client.wait, submission_id, rest))
        if receipt["status"] != "evaluating" or time.monotonic() >= deadline:
            return receipt


def _result(answer: dict[str, Any], *, error: bool) -> types.CallToolResult:
    text = types.TextContent(type="text", text=json.dumps(answer))
    return types.CallToolResult(content=[text], structuredContent=answer, isError=error)


def _refused(code: str, message: str) -> types.CallToolResult:
    readable = message.encode("utf-8", "backslashreplace").decode()  # it may quote any argument
    return _result({"error": {"code": code, "message": readable}}, error=True)


async def _call(
    client: SessionClient, name: str, arguments: dict[str, Any]
) -> types.CallToolResult:
    """Make a call; an answer is an error where the command line's exit code would not be 0."""
    tool = _TOOLS.get(name)
    if tool is None:
        known = ", ".join(_TOOLS)
        return _refused("invalid_request", f"no tool {name[:80]!r}; there are: {known}")
    try:
        answer = await tool.model_validate(arguments).call(client)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return _refused("invalid_request", f"$.{where}: {first['msg']}"[:400])
    except RefusedError as error:
        return _refused(error.code, str(error))
    return _result(answer, error=answer.get("status") == "failed")


# ------------------------------------------------------------------------------ the server


def _server(client: SessionClient) -> Server[Any, Any]:
    server: Server[Any, Any] = Server(
        "evopolicygym", version=version("evopolicygym"), instructions=_INSTRUCTIONS
    )
    listed = [_described(name, tool) for name, tool in _TOOLS.items()]

    async def on_list(request: types.ListToolsRequest) -> types.ServerResult:
        return types.ServerResult(types.ListToolsResult(tools=listed))

    async def on_call(request: types.CallToolRequest) -> types.ServerResult:
        arguments = request.params.arguments or {}
        return types.ServerResult(await _call(client, request.params.name, arguments))

    # Not by the library's decorators: they would refuse bad arguments in words of their own.
    server.request_handlers[types.ListToolsRequest] = on_list
    server.request_handlers[types.CallToolRequest] = on_call
    return server


_METHODS = {
    method
    for request in typing.get_args(types.ClientRequest.model_fields["root"].annotation)
    for method in typing.get_args(request.model_fields["method"].annotation)
}
"""Every method that the library knows."""

_Incoming = SessionMessage | Exception


async def _relay(
    incoming: MemoryObjectReceiveStream[_Incoming],
    valid: MemoryObjectSendStream[_Incoming],
    answers: MemoryObjectSendStream[SessionMessage],
) -> None:
    """Pass messages on, except for those that the library does not answer as it should.

    It calls an unknown method "invalid parameters", which tells nothing to a client that probes
    for a newer protocol, and never answers a request that it can't read.
    """
    async with incoming, valid, answers:
        async for message in incoming:
            refusal = _unreadable(message) if isinstance(message, Exception) else _unknown(message)
            if refusal is not None:
                await answers.send(SessionMessage(types.JSONRPCMessage(refusal)))
            elif isinstance(message, SessionMessage):
                await valid.send(message)


def _unknown(message: SessionMessage) -> types.JSONRPCError | None:
    request = message.message.root
    if not isinstance(request, types.JSONRPCRequest) or request.method in _METHODS:
        return None
    error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")
    return types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)


def _unreadable(cause: Exception) -> types.JSONRPCError | None:
    """Return the answer to a line that is no message, or None if nobody waits for one."""
    logging.error("a line on standard input is no JSON-RPC message")
    if not isinstance(cause, ValidationError):
        return None
    try:
        # Such as a text with half a surrogate pair, which is JSON for some.
        number = json.loads(cause.errors()[0]["input"])["id"]
        error = types.ErrorData(code=types.PARSE_ERROR, message="Parse error")
        return types.JSONRPCError(jsonrpc="2.0", id=number, error=error)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


async def _serve(client: SessionClient) -> None:
    server = _server(client)
    sender, receiver = anyio.create_memory_object_stream[_Incoming](0)
    async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:
        tasks.start_soon(_relay, incoming, sender, outgoing.clone())
        await server.run(receiver, outgoing, server.create_initialization_options())


def serve() -> int:
    """Serve standard input and output until standard input is closed; return the exit code."""
    # Nothing is left behind, and a thread that reads standard input can't be interrupted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    logging.basicConfig(stream=sys.stderr, level=logging.ERROR, format="%(name)s: %(message)s")
    try:
        anyio.run(_serve, SessionClient())
    except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        # The client is gone, or closed its end first. What is still buffered can't be written when
        # the interpreter ends, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
