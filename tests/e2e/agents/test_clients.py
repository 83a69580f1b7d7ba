"""Full Runs with the real Codex, Claude Code and Kimi Code, offline, against a scripted model.

They are installed by `make test` into `.clients`. Where that was not possible, every test here is
skipped with the reason, and pytest says so at its end.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.agents.provider import FIRST_PROMPT

from ..tools import CLI, SOLVED, TOOLS, check_record, processes, run_file
from .conftest import INSTALLED, missing

CLIENTS = ("codex", "claude", "kimi")
KEY = "dummy-key-4f1d9c"
# How the server knows the driver's own prompts, and not what clients add.
MARKERS = [FIRST_PROMPT, "The Run goes on: `evopolicygym-session finish`"]


needs_clients = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@dataclass(frozen=True)
class Outcome:
    """How a Run ended, and what the model server saw."""

    root: Path
    result: dict[str, Any]
    stderr: str
    totals: dict[str, int]
    requests: list[dict[str, Any]]

    @property
    def agent(self) -> dict[str, Any]:
        agent: dict[str, Any] = run_file(self.root)["agent"]
        return agent

    @property
    def turns(self) -> list[dict[str, Any]]:
        lines = (self.root / "agent" / "turns.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def assert_tokens(self) -> None:
        """What the record says is what the server reported, to the token."""
        tokens, totals = self.agent["tokens"], self.totals
        assert self.agent["tokens_complete"] is True
        assert tokens == {
            "input": totals["input"] - totals["cached"] - totals["cache_creation"],
            "cache_read": totals["cached"],
            "cache_write": totals["cache_creation"],
            "output": totals["output"],
        }


WRITE_POLICY = f"cat > program/policy.py <<'END'\n{SOLVED}END"
READ = [
    {"shell": "head -c 300 TASK.md && cmp TASK.md AGENTS.md && cmp TASK.md CLAUDE.md"},
    {"shell": WRITE_POLICY},
    {"shell": "evopolicygym-session submit program --episodes 0:2 --no-wait"},
    {"shell": "evopolicygym-session wait submission-000001"},
    {"shell": "head -c 300 feedback/latest.json"},
]
FINISH = [
    {"shell": "evopolicygym-session submit program --episodes 2:6"},
    {"shell": "evopolicygym-session finish submission-000002 submission-000001"},
    {"say": "all done"},
]


@pytest.fixture
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Outcome]:
    """Return what plays a Run of a client with a script."""

    def played(
        client: str,
        script: list[list[dict[str, Any]]],
        *options: str,
        settings: str = "",
        executable: Path | None = None,
        **variables: str,
    ) -> Outcome:
        root, home = tmp_path / "record", tmp_path / "home"
        home.mkdir()
        argv = [CLI, "run", "--json", "--env", "toy", "--budget", "8", "--jobs", "1"]
        argv += ["--valid-size", "2", "--final-size", "3", "--root", str(root)]
        argv += ["--agent", client, "--retry-backoff", "0.2", "--agent-timeout", "60"]
        executable = executable or INSTALLED / "bin" / client
        argv += ["--agent-option", f"executable={executable}"]
        argv += [*OPTIONS[client], *options]
        environment = {
            "PATH": f"{TOOLS}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(home),
            "TMPDIR": str(tmp_path / "tmp"),
            "LANG": "C.UTF-8",
            **VARIABLES[client],
            **variables,
        }
        (tmp_path / "tmp").mkdir()
        order = {
            "script": script,
            "markers": MARKERS,
            "subagents": {"count the cells": "ten cells"},
            "files": {str(home / name): text for name, text in FILES[client].items()},
            "argv": argv,
            "environment": environment,
            "cwd": str(tmp_path),
            "timeout": 100,
        }
        done = subprocess.run(
            ["unshare", "-n", sys.executable, str(Path(__file__).with_name("stage.py"))],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outcome = json.loads(done.stdout)
        assert "Traceback" not in outcome["stderr"]
        assert outcome["stdout"].count("\n") == 1, outcome
        result = json.loads(outcome["stdout"])
        assert processes(tmp_path) == {}, "something survived"
        assert run_file(root)["agent"]["no_descendant_survived"] is True
        check_record(root)
        assert_no_secret(root)
        return Outcome(root, result, outcome["stderr"], outcome["totals"], outcome["requests"])

    return played


def assert_no_secret(root: Path) -> None:
    """The key is nowhere in the record."""
    for path in root.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


VARIABLES = {
    "codex": {"SCRIPTED_API_KEY": KEY},
    "claude": {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": "{url}",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    },
    "kimi": {},
}
OPTIONS = {
    "codex": [
        *("--model", "gpt-5.6-luna", "--agent-option", "reasoning_effort=high"),
        *("--agent-option", "inherit=SCRIPTED_API_KEY"),
    ],
    "claude": ["--model", "sonnet", "--agent-option", "effort=high"],
    "kimi": ["--model", "kimi-code/kimi-for-coding"],
}
FILES = {
    "codex": {
        ".codex/config.toml": """\
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
[features]
plugins = false
unbounded_connection_retries = false
"""
    },
    "claude": {},
    "kimi": {
        ".kimi-code/config.toml": f"""\
default_model = "kimi-code/kimi-for-coding"
telemetry = false
[providers."managed:kimi-code"]
type = "kimi"
base_url = "{{url}}/v1"
api_key = "{KEY}"
[models."kimi-code/kimi-for-coding"]
provider = "managed:kimi-code"
model = "kimi-for-coding"
max_context_size = 262144
capabilities = ["thinking", "tool_use"]
[loop_control]
max_attempts_per_step = 1
"""
    },
}

each_client = pytest.mark.parametrize("client", CLIENTS)


@needs_clients
@each_client
def test_a_whole_run(client: str, play: Callable[..., Outcome]) -> None:
    played = play(client, [[*READ, *FINISH]])
    result = played.result
    assert (result["reason"], result["done"], result["counts"]) == ("finished", True, True), played
    assert result["candidates"] == ["submission-000002", "submission-000001"]
    assert result["handed_over_by"] == "agent"
    assert result["validation_score"] is not None
    assert result["assessment_score"] is not None
    assert result["episodes_used"] == 6
    played.assert_tokens()
    agent = played.agent
    assert (agent["turns"], agent["retries"], agent["exit_status"]) == (1, 0, 0)
    assert agent["tool_calls"] == len(READ) + 2
    assert agent["model_calls"] == len(READ) + 3
    assert agent["final_message"] == "all done"
    assert agent["model_reported"]
    assert re.search(r"\d+\.\d+", agent["version"])
    assert (agent["cost_usd"] is not None) == (client == "claude")
    # The model was asked as it should be.
    asked = [row for row in played.requests if row.get("tools")]
    assert any(FIRST_PROMPT in json.dumps(row["body"], ensure_ascii=False) for row in asked)
    assert "# Task: improve a policy for" in json.dumps(asked[1]["body"])
    if client != "kimi":
        assert '"effort": "high"' in json.dumps(asked[0]["body"])
    logs = played.root / "agent" / "process-001"
    assert "all done" in (logs / "stdout.txt").read_text()
    invocation = json.loads((logs / "invocation.json").read_text())
    assert str(played.root) not in json.dumps(invocation)


@needs_clients
@each_client
def test_the_provider_limits_the_rate_twice(client: str, play: Callable[..., Outcome]) -> None:
    refused = {"http": 429, "message": "slow down", "times": 2}
    played = play(client, [[refused, *READ, *FINISH]])
    assert played.result["reason"] == "finished", played
    assert (played.agent["retries"], played.agent["turns"]) == (2, 3)
    assert [turn["reason"] for turn in played.turns] == ["rate_limited", "rate_limited", "finished"]
    assert [turn["attempt"] for turn in played.turns] == [1, 2, 3]
    assert "trying again in 0.20 s" in played.stderr
    assert "trying again in 0.40 s" in played.stderr
    played.assert_tokens()


@needs_clients
@each_client
def test_the_provider_fails_after_a_charge(client: str, play: Callable[..., Outcome]) -> None:
    """Then the same attempt goes on: the same session, the same account."""
    failure = {"http": 500, "message": "scripted outage", "times": 1}
    script = [[*READ, failure], FINISH]
    played = play(client, script, "--max-turns", "2")
    assert played.result["reason"] == "finished", played
    assert played.result["episodes_used"] == 6
    first, second = played.turns
    assert (first["reason"], second["reason"]) == ("provider_error", "finished")
    assert first["session_id"] == second["session_id"] is not None
    assert played.agent["retries"] == 1


@needs_clients
@each_client
def test_the_provider_limits_the_rate_for_ever(client: str, play: Callable[..., Outcome]) -> None:
    played = play(client, [[{"http": 429}]], "--retries", "1")
    result = played.result
    assert (result["reason"], result["done"], result["counts"]) == ("rate_limited", False, False)
    assert result["assessment_score"] is None
    assert "unscored" in result["message"]
    assert played.agent["tokens"] is None


@needs_clients
@each_client
def test_wrong_credentials(client: str, play: Callable[..., Outcome]) -> None:
    played = play(client, [[{"http": 401, "message": "no such key"}]])
    assert (played.result["reason"], played.result["counts"]) == ("auth_failed", False), played
    assert played.agent["retries"] == 0


@needs_clients
@each_client
def test_a_server_that_hangs(client: str, play: Callable[..., Outcome]) -> None:
    played = play(client, [[*READ, {"hang": True}]], "--agent-timeout", "12")
    assert (played.result["reason"], played.result["handed_over_by"]) == ("timed_out", "host")
    assert played.result["assessment_score"] is not None
    assert played.agent["stopped_by_host"] is True
    assert played.agent["tokens"]["output"] > 0, "what was used until then is known"


@needs_clients
@each_client
def test_a_client_that_is_killed(client: str, play: Callable[..., Outcome]) -> None:
    kill = "kill -9 $(ps -o ppid= -p $$ 2>/dev/null || cut -d' ' -f4 /proc/$$/stat); sleep 30"
    played = play(client, [[*READ, {"shell": kill}, {"say": "still here"}]])
    assert (played.result["reason"], played.result["handed_over_by"]) == ("killed", "host"), played
    assert played.agent["exit_status"] == -9
    assert played.result["assessment_score"] is not None


@needs_clients
@each_client
def test_it_stops_without_finish_and_is_asked_again(
    client: str, play: Callable[..., Outcome]
) -> None:
    alone = [*READ, {"say": "I think I am done"}]
    played = play(client, [alone, FINISH], "--max-turns", "3")
    assert played.result["reason"] == "finished", played
    first, second = played.turns
    assert (first["reason"], second["reason"]) == ("exited", "finished")
    assert first["session_id"] == second["session_id"] is not None
    assert "6 of 8 Episodes" in second["message"]
    assert "submission-000001" in second["message"]
    played.assert_tokens()


@needs_clients
@each_client
def test_it_stops_without_finish(client: str, play: Callable[..., Outcome]) -> None:
    played = play(client, [[*READ, {"say": "that is it"}]])
    assert (played.result["reason"], played.result["handed_over_by"]) == ("exited", "host"), played
    assert played.agent["final_message"] == "that is it"


@needs_clients
@each_client
def test_its_final_event_and_then_nothing(
    client: str, play: Callable[..., Outcome], tmp_path: Path
) -> None:
    hanging = tmp_path / "hanging"
    real = INSTALLED / "bin" / client
    hanging.write_text(f'#!/bin/sh\n"{real}" "$@"\n[ "$1" = --version ] || sleep 7313\n')
    hanging.chmod(0o755)
    played = play(client, [[*READ, *FINISH]], executable=hanging)
    result = played.result
    assert (result["reason"], result["counts"]) == ("hung_after_result", True), played
    assert result["handed_over_by"] == "agent"
    assert result["assessment_score"] is not None
    assert processes("sleep 7313") == {}
    played.assert_tokens()


@needs_clients
@each_client
def test_the_session_as_an_mcp_server(client: str, play: Callable[..., Outcome]) -> None:
    script = [
        {"shell": WRITE_POLICY},
        {"tool": "submit", "arguments": {"program": "program", "episodes": "0:4"}},
        {"tool": "status", "arguments": {}},
        {"tool": "finish", "arguments": {"candidates": ["submission-000001"]}},
        {"say": "all done"},
    ]
    played = play(client, [script], "--agent-option", "mcp=true")
    assert played.result["reason"] == "finished", played
    assert played.result["candidates"] == ["submission-000001"]


@needs_clients
@pytest.mark.parametrize("mcp", [False, True])
def test_codex_in_its_own_sandbox(play: Callable[..., Outcome], mcp: bool) -> None:
    options = ["--agent-option", "bypass=false", "--agent-option", f"mcp={mcp}"]
    script = [*READ, *FINISH]
    if mcp:
        script = [
            {"shell": WRITE_POLICY},
            {"tool": "submit", "arguments": {"episodes": "0:4"}},
            {"tool": "finish", "arguments": {"candidates": ["submission-000001"]}},
            {"say": "all done"},
        ]
    played = play("codex", [script], *options)
    assert played.result["reason"] == "finished", played


SUBAGENTS: dict[str, dict[str, Any]] = {
    "codex": {
        "tool": "spawn_agent",
        "arguments": {"message": "count the cells", "task_name": "count"},
    },
    "claude": {
        "tool": "Agent",
        "arguments": {
            **{"description": "count", "prompt": "count the cells"},
            "subagent_type": "general-purpose",
        },
    },
    "kimi": {
        "tool": "Agent",
        "arguments": {
            **{"description": "count", "prompt": "count the cells"},
            "subagent_type": "coder",
        },
    },
}


@needs_clients
@each_client
def test_subagents_are_counted_once(client: str, play: Callable[..., Outcome]) -> None:
    options = ["--agent-option", "bare=false"] if client == "claude" else []
    # A subagent works beside its agent: give it time to come to its end.
    script = [SUBAGENTS[client], {"sleep": 1}, *READ, *FINISH]
    played = play(client, [script], *options)
    assert played.result["reason"] == "finished", played
    alone = [row for row in played.requests if row.get("tools") and row["turn"] == 0]
    assert alone, "no subagent ever asked"
    played.assert_tokens()


@needs_clients
@each_client
def test_a_forged_error_does_not_unmake_a_run(client: str, play: Callable[..., Outcome]) -> None:
    """The agent prints what its client prints when the provider fails, and ends the client."""
    forged = "error: failed to run prompt: provider.rate_limit: 429 slow down"
    kill = "kill -9 $(cut -d' ' -f4 /proc/$$/stat); sleep 30"
    script = [*READ, {"shell": f"echo '{forged}'; {kill}"}]
    played = play(client, [script])
    assert (played.result["reason"], played.result["counts"]) == ("killed", True), played
    assert played.agent["retries"] == 0


@needs_clients
def test_a_prompt_that_is_too_long_is_the_agents_own_doing(play: Callable[..., Outcome]) -> None:
    refused = {"http": 400, "message": "prompt is too long: 250000 tokens"}
    played = play("claude", [[*READ, refused]], "--max-turns", "2")
    assert (played.result["reason"], played.result["counts"]) == ("crashed", True), played
    assert played.agent["retries"] == 0


@needs_clients
def test_claude_in_another_permission_mode(play: Callable[..., Outcome]) -> None:
    submit = {"tool": "submit", "arguments": {"program": "program", "episodes": "0:2"}}
    script = [submit, *READ[:2], *FINISH[:1], {"shell": FINISH[1]["shell"]}, {"say": "done"}]
    options = ["--agent-option", "permission=dontAsk", "--agent-option", "mcp=true"]
    played = play("claude", [script], *options)
    assert played.result["reason"] == "finished", played


@needs_clients
def test_codex_reads_no_foreign_instructions(play: Callable[..., Outcome], tmp_path: Path) -> None:
    """Neither does Kimi Code: a repository around the workspace is not the task."""
    for client in ("codex", "kimi"):
        shutil.rmtree(tmp_path, ignore_errors=True)
        tmp_path.mkdir()
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        (tmp_path / "AGENTS.md").write_text("FOREIGN INSTRUCTIONS")
        played = play(client, [[*READ, *FINISH]])
        assert played.result["reason"] == "finished", (client, played)
        assert not any("FOREIGN INSTRUCTIONS" in json.dumps(row) for row in played.requests)
