"""A model server on loopback that plays a script, for driving real coding agents offline.

It answers OpenAI Responses (`/responses`), OpenAI Chat Completions (`/chat/completions`) and
Anthropic Messages (`/messages`). A script is a list of turns and a turn is a list of steps:

    {"shell": "echo hi"}                      call the client's shell tool
    {"tool": "submit", "arguments": {...}}    call the tool of that name, or of a name ending so
    {"say": "done"}                           answer with text, which ends the turn
    {"sleep": 2.5}                            wait, then go on with the next step
    {"http": 429, "message": "slow down"}     answer with that error
    {"hang": true}                            accept the request and never answer it
    {"cut": true}                             begin to stream, then drop the connection

With `"times": n` the last three happen to the first n requests that come to them, and are passed
over after that; this count is all the server remembers. The rest follows from the request: the turn
is the number of the driver's prompts in it, the step follows from the number of tool results after
the last of these. Clients add user messages of their own (reminders, AGENTS.md), so a prompt of the
driver is known by a marker text. Requests without tools (title makers, probes) get "scripted".
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import select
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]

STEPS = ("shell", "tool", "say", "sleep", "http", "hang", "cut")
SHELLS = ("exec_command", "shell_command", "shell", "Bash", "bash", "run_shell_command")
LONGEST_WAIT = 600.0
"""No request is kept longer than this, whatever the script says."""

ERROR_TYPES = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


@dataclass(frozen=True)
class Usage:
    """What an answer is said to have cost; `input` includes what was read from or put in a cache.

    Only Anthropic Messages can express `cache_creation`, and cannot express `reasoning`.
    """

    input: int = 100
    cached: int = 40
    cache_creation: int = 7
    output: int = 20
    reasoning: int = 5


@dataclass(frozen=True)
class Tool:
    """A tool that the client offers: codex groups its own by namespace, one is not a function."""

    name: str
    schema: Json
    kind: str
    namespace: str | None


@dataclass(frozen=True)
class Call:
    """A tool call to answer with."""

    tool: Tool
    arguments: Json


@dataclass(frozen=True)
class Answer:
    """What to do with a request; `fault` is a step of kind http, hang or cut."""

    turn: int
    step: int
    text: str = ""
    call: Call | None = None
    fault: Json = field(default_factory=dict)
    sleep: float = 0.0

    def summary(self) -> Json:
        if self.fault:
            return self.fault
        if self.call:
            return {"call": self.call.tool.name, "arguments": self.call.arguments}
        return {"say": self.text}


# ---- what the client sent


def _texts(content: Any) -> list[str]:
    parts = content if isinstance(content, list) else [{"text": content}]
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]


def _conversation(api: str, body: Json) -> Iterator[str | None]:
    """The user's texts and, as None, the results of tools, in order."""
    if api == "responses":
        items = body.get("input") or []
        for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
            if str(item.get("type")).endswith("_call_output"):
                yield None
            elif item.get("role") == "user":
                yield from _texts(item.get("content"))
        return
    for message in body.get("messages") or []:
        content = message.get("content")
        if message.get("role") == "tool":
            yield None
        elif message.get("role") == "user":
            for part in content if isinstance(content, list) else []:
                if part.get("type") == "tool_result":
                    yield None
            yield from _texts(content)


def _tools(body: Json) -> dict[str, Tool]:
    found: dict[str, Tool] = {}

    def add(tools: list[Json], namespace: str | None) -> None:
        for tool in tools:
            if tool.get("type") == "namespace":
                add(tool["tools"], tool["name"])
                continue
            spec = tool.get("function") or tool
            name = spec.get("name") or tool["type"]
            schema = spec.get("parameters") or spec.get("input_schema") or {}
            found[name] = Tool(name, schema, tool.get("type") or "function", namespace)

    add(body.get("tools") or [], None)
    # codex hands the tools to some models among the messages ("responses lite").
    items = body.get("input")
    for item in items if isinstance(items, list) else []:
        if item.get("type") == "additional_tools":
            add(item["tools"], None)
    return found


# ---- what to answer


def _shell_arguments(schema: Json, command: str) -> Json:
    arguments: Json = {}
    for name, spec in (schema.get("properties") or {}).items():
        kind = spec.get("type")
        if name in ("command", "cmd"):
            arguments[name] = ["bash", "-lc", command] if kind == "array" else command
        elif name == "yield_time_ms":
            arguments[name] = 30000  # codex otherwise hands back a slow command unfinished
        elif name in (schema.get("required") or ()):
            arguments[name] = {"boolean": False, "integer": 60000, "number": 60000}.get(kind, "-")
    return arguments or {"command": command}


def _call(step: Json, tools: dict[str, Tool]) -> Call | None:
    code = tools.get("exec")
    if code and code.kind == "custom":  # codex's code mode: one tool, which runs JavaScript
        name, arguments = step.get("tool"), step.get("arguments") or {}
        if name is None:
            name, arguments = "exec_command", {"cmd": step["shell"], "yield_time_ms": 30000}
        wanted = json.dumps(name)
        script = (
            f"const all = ALL_TOOLS.map((tool) => tool.name);"
            f"const name = all.includes({wanted}) ? {wanted}"
            f" : all.find((other) => other.endsWith({wanted}));"
            f"const result = await tools[name]({json.dumps(arguments)});"
            f"text(result.output ?? result);"
        )
        return Call(code, {"input": script})
    if "shell" in step:
        shell = next((tools[name] for name in SHELLS if name in tools), None)
        return Call(shell, _shell_arguments(shell.schema, step["shell"])) if shell else None
    names = sorted(tools, key=lambda name: name != step["tool"])
    found = next((tools[name] for name in names if name.endswith(step["tool"])), None)
    return Call(found, step.get("arguments") or {}) if found else None


def check_script(script: Sequence[Sequence[Json]]) -> None:
    """Raises ValueError unless each step says exactly one thing."""
    for turn in script:
        for step in turn:
            if len(set(STEPS) & step.keys()) != 1:
                raise ValueError(f"a step has exactly one of {', '.join(STEPS)}: {step}")
            if unknown := step.keys() - {*STEPS, "message", "times", "arguments"}:
                raise ValueError(f"unknown {sorted(unknown)} in the step {step}")


# ---- the three wire formats: each as one whole answer, and as the events of a stream


def _responses(body: Json, answer: Answer, usage: Usage, n: int) -> tuple[Json, list[Json]]:
    if call := answer.call:
        kind, key, given = "function_call", "arguments", json.dumps(call.arguments)
        if call.tool.kind == "custom":
            kind, key, given = "custom_tool_call", "input", call.arguments["input"]
        item: Json = {"type": kind, "id": f"item_{n}", "call_id": f"call_{n}"}
        item |= {"name": call.tool.name, key: given, "status": "completed"}
        if call.tool.namespace:
            item["namespace"] = call.tool.namespace
        begun = item | {key: "", "status": "in_progress"}
        deltas: list[Json] = []
    else:
        item = {"type": "message", "id": f"item_{n}", "role": "assistant", "status": "completed"}
        begun = item | {"content": [], "status": "in_progress"}
        item["content"] = [{"type": "output_text", "text": answer.text, "annotations": []}]
        delta = {"type": "response.output_text.delta", "delta": answer.text}
        deltas = [delta | {"output_index": 0, "content_index": 0, "item_id": item["id"]}]
    opened = {"id": f"resp_{n}", "object": "response", "created_at": int(time.time())}
    opened |= {"model": body.get("model"), "status": "in_progress", "output": []}
    counts: Json = {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
    whole: Json = opened | {"status": "completed", "output": [item], "usage": counts}
    events: list[Json] = [
        {"type": "response.created", "response": opened},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *deltas,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return whole, [event | {"sequence_number": i} for i, event in enumerate(events)]


def _chat(body: Json, answer: Answer, usage: Usage, n: int) -> tuple[Json, list[Json]]:
    message: Json = {"role": "assistant", "content": answer.text}
    if call := answer.call:
        function = {"name": call.tool.name, "arguments": json.dumps(call.arguments)}
        calls = [{"id": f"call_{n}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    counts = {
        "prompt_tokens": usage.input,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens": usage.output,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }
    head = {"id": f"chat_{n}", "created": int(time.time()), "model": body.get("model")}
    chunk = head | {"object": "chat.completion.chunk"}
    reason = "tool_calls" if answer.call else "stop"
    whole = head | {"object": "chat.completion", "usage": counts}
    whole["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
    delta = dict(message)
    if answer.call:
        delta["tool_calls"] = [{"index": 0, **message["tool_calls"][0]}]
    events = [
        chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
    ]
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append(chunk | {"choices": [], "usage": counts})
    return whole, events


def _messages(body: Json, answer: Answer, usage: Usage, n: int) -> tuple[Json, list[Json]]:
    block: Json = {"type": "text", "text": answer.text}
    begun, delta = block | {"text": ""}, {"type": "text_delta", "text": answer.text}
    if call := answer.call:
        block = {"type": "tool_use", "id": f"toolu_{n}", "name": call.tool.name}
        block["input"] = call.arguments
        begun = block | {"input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
    counts = {
        "input_tokens": usage.input - usage.cached - usage.cache_creation,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_creation,
        "output_tokens": usage.output,
    }
    stop = {"stop_reason": "tool_use" if answer.call else "end_turn", "stop_sequence": None}
    whole: Json = {"id": f"msg_{n}", "type": "message", "role": "assistant", **stop}
    whole |= {"model": body.get("model"), "content": [block], "usage": counts}
    early: Json = {"content": [], "stop_reason": None, "usage": counts | {"output_tokens": 1}}
    events: list[Json] = [
        {"type": "message_start", "message": whole | early},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": counts},
        {"type": "message_stop"},
    ]
    return whole, events


APIS = {"responses": _responses, "chat/completions": _chat, "messages": _messages}


# ---- the server


class ModelServer(ThreadingHTTPServer):
    """Serves from a thread of its own from the moment it is made until `close`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        script: Sequence[Sequence[Json]],
        *,
        prompt_markers: Sequence[str],
        subagents: Mapping[str, str] | None = None,
        usage: Usage = Usage(),
        log: Path | None = None,
        port: int = 0,
    ) -> None:
        check_script(script)
        self.script, self.prompt_markers, self.usage = script, tuple(prompt_markers), usage
        self.subagents = dict(subagents or {})
        """What subagents are told → what they answer."""
        self.totals = Usage(0, 0, 0, 0, 0)
        """The sum of the usage that was reported to clients."""
        self.requests: list[Json] = []
        """A row for each request, as in the log file."""
        self.closing, self.numbers = threading.Event(), itertools.count(1)
        self._log, self._lock = log, threading.Lock()
        self._faults: Counter[tuple[int, int]] = Counter()
        self._open: dict[threading.Thread, socket.socket] = {}
        super().__init__(("127.0.0.1", port), _Handler)
        self.port: int = self.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._serving = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._serving.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving, and drop every connection that is left."""
        self.closing.set()
        self.shutdown()
        self._serving.join()
        self.server_close()
        with self._lock:
            left = dict(self._open)
        for thread, connection in left.items():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(5)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[threading.current_thread()] = request
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._open[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may go away whenever they like; anything else is a bug worth a traceback."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def plan(self, api: str, body: Json, tools: dict[str, Tool]) -> Answer:
        turn = results = 0
        for text in _conversation(api, body):
            if text is None:
                results += 1
            elif any(marker in text for marker in self.prompt_markers):
                turn, results = turn + 1, 0
        answer = Answer(turn, results)
        if not tools:
            return replace(answer, text="scripted")
        if turn == 0:  # not of the driver, so of a subagent
            said = json.dumps(body)
            for words, text in self.subagents.items():
                if words in said:
                    return replace(answer, text=text)
        if not 1 <= turn <= len(self.script):
            message = f"the script has no turn {turn}"
            return replace(answer, fault={"http": 400, "message": message})
        called = 0
        for index, step in enumerate(self.script[turn - 1]):
            here = called == results
            if "shell" in step or "tool" in step:
                if here:
                    call, missing = _call(step, tools), f"no tool for {step} among {sorted(tools)}"
                    if call is None:
                        return replace(answer, fault={"http": 400, "message": missing})
                    return replace(answer, call=call)
                called += 1
            elif here and "say" in step:
                return replace(answer, text=step["say"])
            elif here and "sleep" in step:
                answer = replace(answer, sleep=answer.sleep + step["sleep"])
            elif here:
                with self._lock:
                    self._faults[turn, index] += 1
                    came = self._faults[turn, index]
                if came <= step.get("times", came):
                    return replace(answer, fault=step)
        return replace(answer, text="The script ends here.")

    def note(self, row: Json, reported: Usage | None = None) -> None:
        """Record a request, and add what its answer reports to the totals."""
        with self._lock:
            if reported:
                sums = {k: v + asdict(self.totals)[k] for k, v in asdict(reported).items()}
                self.totals = Usage(**sums)
            usage = asdict(reported) if reported else None
            self.requests.append({**row, "usage": usage, "totals": asdict(self.totals)})
            if self._log:
                with self._log.open("a") as file:
                    file.write(json.dumps(self.requests[-1]) + "\n")


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"
    timeout = 60  # for reading a request and for writing the answer

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.server.note({"method": self.command, "path": self.path})
        self._send(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

    do_GET = do_HEAD

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        row: Json = {"method": "POST", "path": self.path}
        row["headers"] = {name.lower(): value for name, value in self.headers.items()}
        path = self.path.partition("?")[0]
        api = next((api for api in APIS if path.endswith(f"/{api}")), None)
        if api is None:
            self.server.note({**row, "body": body})
            if path.endswith("/count_tokens"):
                self._send(200, {"input_tokens": self.server.usage.input})
            else:
                self._fail(404, f"no {path} here")
            return
        tools = _tools(body)
        answer = self.server.plan(api, body, tools)
        row |= {"tools": sorted(tools), "turn": answer.turn, "step": answer.step}
        row |= {"answer": answer.summary(), "body": body}
        usage = self.server.usage
        whole, events = APIS[api](body, answer, usage, next(self.server.numbers))
        stream = body.get("stream", False)
        silent = api == "chat/completions" and stream and "usage" not in events[-1]
        can_say = replace(usage, **{"reasoning" if api == "messages" else "cache_creation": 0})
        self.server.note(row, None if answer.fault or silent else can_say)
        if not self._wait(answer.sleep):
            return
        if "http" in answer.fault:
            self._fail(answer.fault["http"], answer.fault.get("message", "scripted failure"))
        elif "hang" in answer.fault:
            self._wait(LONGEST_WAIT)
        elif stream:
            self._stream(events[:1] if answer.fault else events, named=api != "chat/completions")
            if api == "chat/completions" and not answer.fault:
                self.wfile.write(b"data: [DONE]\n\n")
        elif not answer.fault:
            self._send(200, whole)
        self.close_connection = True

    def _wait(self, seconds: float) -> bool:
        """Whether the client is still there after so long."""
        until = time.monotonic() + min(seconds, LONGEST_WAIT)
        while (left := until - time.monotonic()) > 0:
            if self.server.closing.wait(min(left, 0.1)):
                break
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                break
        else:
            return True
        self.close_connection = True
        return False

    def _send(self, status: int, value: Json) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")  # no thread waits for a request that never comes
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _fail(self, status: int, message: str) -> None:
        kind = ERROR_TYPES.get(status, "api_error")
        error = {"type": kind, "code": kind, "message": message}
        self._send(status, {"type": "error", "error": error})

    def _stream(self, events: list[Json], *, named: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if named else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model server on loopback.")
    parser.add_argument("--script", type=Path, required=True, help="a JSON file, a list of turns")
    parser.add_argument("--prompt-marker", action="append", required=True, metavar="TEXT")
    parser.add_argument("--log", type=Path, help="gets one JSON line for each request")
    parser.add_argument("--usage", type=json.loads, default={}, help="such as '{\"input\": 9}'")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ModelServer(
        json.loads(options.script.read_text()),
        prompt_markers=options.prompt_marker,
        usage=Usage(**options.usage),
        log=options.log,
        port=options.port,
    ) as server:
        print(f"PORT {server.port}", flush=True)
        stop.wait()


if __name__ == "__main__":
    main()
