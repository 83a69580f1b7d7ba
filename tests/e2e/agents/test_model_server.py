"""The scripted model server, without any client: all that it needs is HTTP."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from .model_server import LONGEST_WAIT, ModelServer, Usage

Json = dict[str, Any]

MARK = "the driver says"
PROMPT = {"role": "user", "content": f"{MARK}: go on"}
NOISE = {"role": "user", "content": "a reminder that the client made up"}
SCRIPT = [[{"shell": "echo hi"}, {"shell": "cat hi"}, {"say": "done"}], [{"say": "again"}]]

PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
SHELL = {
    "responses": {"type": "function", "name": "exec_command", "parameters": {"properties": {}}},
    "chat": {"type": "function", "function": {"name": "Bash", "parameters": {"properties": {}}}},
    "messages": {"name": "Bash", "input_schema": {"properties": {}}},
}
RESULT = {
    "responses": {"type": "function_call_output", "call_id": "1", "output": "hi"},
    "chat": {"role": "tool", "tool_call_id": "1", "content": "hi"},
    "messages": {"role": "user", "content": [{"type": "tool_result", "content": "hi"}]},
}


def body(api: str, *conversation: Json, **more: Any) -> Json:
    where = "input" if api == "responses" else "messages"
    return {"model": "m", "tools": [SHELL[api]], where: list(conversation), **more}


def post(server: ModelServer, path: str, value: Json) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("POST", path, json.dumps(value))
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def ask(server: ModelServer, api: str, *conversation: Json, **more: Any) -> Json:
    """The whole answer, be it streamed or not."""
    status, text = post(server, PATHS[api], body(api, *conversation, **more))
    assert status == 200, text
    if not more.get("stream"):
        return json.loads(text)
    return {"events": [json.loads(row[6:]) for row in text.splitlines() if row[:7] == "data: {"]}


def said(api: str, whole: Json) -> str:
    """The text of an answer, or the command that it calls for."""
    if api == "responses":
        (item,) = whole["output"]
        if item["type"] == "function_call":
            return json.loads(item["arguments"])["command"]
        return item["content"][0]["text"]
    if api == "chat":
        message = whole["choices"][0]["message"]
        if calls := message.get("tool_calls"):
            return json.loads(calls[0]["function"]["arguments"])["command"]
        return message["content"]
    (block,) = whole["content"]
    return block["text"] if block["type"] == "text" else block["input"]["command"]


@pytest.mark.parametrize("api", PATHS)
def test_turns_and_steps_follow_from_the_conversation(api: str) -> None:
    result = RESULT[api]
    with ModelServer(SCRIPT, prompt_markers=[MARK]) as server:
        conversation = [NOISE, PROMPT]
        for expected in ("echo hi", "cat hi", "done"):
            assert said(api, ask(server, api, *conversation)) == expected
            conversation.append(result)
        conversation += [NOISE, PROMPT, NOISE]
        assert said(api, ask(server, api, *conversation)) == "again"
        rows = [(row["turn"], row["step"]) for row in server.requests]
    assert rows == [(1, 0), (1, 1), (1, 2), (2, 0)]


@pytest.mark.parametrize("api", PATHS)
def test_a_stream_ends_with_the_whole_answer_and_its_usage(api: str) -> None:
    with ModelServer(SCRIPT, prompt_markers=[MARK]) as server:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        events = ask(server, api, PROMPT, RESULT[api], RESULT[api], **options)["events"]
    if api == "responses":
        assert events[0]["type"] == "response.created"
        assert events[-1]["type"] == "response.completed"
        assert said(api, events[-1]["response"]) == "done"
        assert events[-1]["response"]["usage"]["input_tokens_details"] == {"cached_tokens": 40}
    elif api == "chat":
        assert events[0]["choices"][0]["delta"]["content"] == "done"
        assert events[1]["choices"][0]["finish_reason"] == "stop"
        assert events[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}
    else:
        types = [event["type"] for event in events]
        assert (types[0], types[-1]) == ("message_start", "message_stop")
        assert events[-2]["usage"] == {
            "input_tokens": 53,
            "cache_read_input_tokens": 40,
            "cache_creation_input_tokens": 7,
            "output_tokens": 20,
        }


def test_two_failures_and_then_it_works() -> None:
    script = [[{"http": 429, "message": "slow down", "times": 2}, {"say": "done"}]]
    with ModelServer(script, prompt_markers=[MARK], usage=Usage(9, 4, 0, 2, 1)) as server:
        for _ in range(2):
            status, text = post(server, PATHS["chat"], body("chat", PROMPT))
            assert status == 429
            assert json.loads(text)["error"]["message"] == "slow down"
        assert said("chat", ask(server, "chat", PROMPT)) == "done"
        # Failures cost nothing.
        assert server.totals == Usage(9, 4, 0, 2, 1)


def test_usage_is_summed_as_far_as_it_was_reported(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with ModelServer(SCRIPT, prompt_markers=[MARK], log=log) as server:
        ask(server, "responses", PROMPT)
        ask(server, "messages", PROMPT)
        ask(server, "chat", PROMPT, stream=True)  # asked for no usage
        assert server.totals == Usage(200, 80, 7, 40, 5)
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [row["usage"] is None for row in rows] == [False, False, True]
    assert Usage(**rows[-1]["totals"]) == server.totals
    assert rows[0]["answer"] == {"call": "exec_command", "arguments": {"command": "echo hi"}}
    assert rows[0]["tools"] == ["exec_command"]
    assert rows[0]["body"]["input"] == [PROMPT]


def test_codex_code_mode_gets_javascript() -> None:
    code = {"type": "custom", "name": "exec"}
    offer = {"type": "namespace", "name": "functions", "tools": [code]}
    lite = {"type": "additional_tools", "tools": [offer]}
    script = [[{"shell": "echo 'hi'"}, {"tool": "submit", "arguments": {"n": 1}}]]
    with ModelServer(script, prompt_markers=[MARK]) as server:
        path, result = PATHS["responses"], {"type": "custom_tool_call_output"}
        first, second = (
            json.loads(post(server, path, {"input": [lite, PROMPT, *results]})[1])["output"][0]
            for results in ([], [result])
        )
    assert (first["type"], first["namespace"]) == ("custom_tool_call", "functions")
    assert "exec_command" in first["input"]
    assert "echo 'hi'" in first["input"]
    assert '"submit"' in second["input"]
    assert '{"n": 1}' in second["input"]


def test_a_tool_is_found_by_the_end_of_its_name() -> None:
    script = [[{"tool": "submit", "arguments": {"n": 1}}]]
    tool = {"name": "mcp__bench__submit", "input_schema": {}}
    with ModelServer(script, prompt_markers=[MARK]) as server:
        whole = ask(server, "messages", PROMPT, tools=[tool])
        assert whole["content"][0]["name"] == "mcp__bench__submit"
        assert whole["content"][0]["input"] == {"n": 1}
        status, text = post(server, PATHS["messages"], body("messages", PROMPT))
        assert status == 400
        assert "no tool for" in text


def test_what_the_script_does_not_foresee() -> None:
    with ModelServer(SCRIPT, prompt_markers=[MARK]) as server:
        assert said("chat", ask(server, "chat", PROMPT, tools=[])) == "scripted"
        assert said("chat", ask(server, "chat", PROMPT, PROMPT, RESULT["chat"])).startswith("The ")
        for prompts in ([NOISE], [PROMPT] * 3):
            status, text = post(server, PATHS["chat"], body("chat", *prompts))
            assert status == 400
            assert "the script has no turn" in text
        assert post(server, "/v1/messages/count_tokens?beta=true", {}) == (
            200,
            '{"input_tokens": 100}',
        )
        assert post(server, "/v1/elsewhere", {})[0] == 404
    with pytest.raises(ValueError, match="exactly one of"):
        ModelServer([[{"say": "a", "shell": "b"}]], prompt_markers=[MARK])
    with pytest.raises(ValueError, match="unknown"):
        ModelServer([[{"say": "a", "time": 2}]], prompt_markers=[MARK])


def test_a_probe_gets_an_empty_answer() -> None:
    with ModelServer(SCRIPT, prompt_markers=[MARK]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("HEAD", "/api/hello")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"")
        connection.close()


def test_a_cut_stream_lacks_its_end_once() -> None:
    script = [[{"sleep": 0.2}, {"cut": True, "times": 1}, {"say": "whole"}]]
    with ModelServer(script, prompt_markers=[MARK]) as server:
        before = time.monotonic()
        events = ask(server, "messages", PROMPT, stream=True)["events"]
        assert time.monotonic() - before > 0.2
        assert [event["type"] for event in events] == ["message_start"]
        assert server.totals == Usage(0, 0, 0, 0, 0)
        assert said("messages", ask(server, "messages", PROMPT)) == "whole"


def test_closing_ends_a_request_that_hangs() -> None:
    outcome: list[object] = []

    def hang() -> None:
        try:
            outcome.append(post(server, PATHS["chat"], body("chat", PROMPT)))
        except (OSError, http.client.HTTPException) as error:
            outcome.append(error)

    with ModelServer([[{"hang": True}]], prompt_markers=[MARK]) as server:
        client = threading.Thread(target=hang)
        client.start()
        while not server.requests:
            time.sleep(0.01)
        assert not outcome
        before = time.monotonic()
    client.join(5)
    assert time.monotonic() - before < 3 < LONGEST_WAIT
    assert isinstance(outcome[0], (OSError, http.client.HTTPException))


def test_as_a_program(tmp_path: Path) -> None:
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_text(json.dumps(SCRIPT))
    program = Path(__file__).with_name("model_server.py")
    options = ["--script", script, "--log", log, "--prompt-marker", MARK, "--usage", '{"input": 9}']
    command = [sys.executable, program, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, port = process.stdout.readline().split()
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=10)
            connection.request("POST", PATHS["chat"], json.dumps(body("chat", PROMPT)))
            answer = json.loads(connection.getresponse().read())
            connection.close()
        finally:
            process.terminate()
    assert word == "PORT"
    assert process.returncode == 0
    assert answer["usage"]["prompt_tokens"] == 9
    assert json.loads(log.read_text())["totals"]["input"] == 9
