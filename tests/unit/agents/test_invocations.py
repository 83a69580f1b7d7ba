"""How every provider starts its client: whole launches, as literal lists."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import stat
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym import __version__
from evopolicygym.agents import Acp, ClaudeCode, Codex, Command, KimiCode, Search
from evopolicygym.agents.catalog import PROVIDERS
from evopolicygym.agents.provider import FIRST_PROMPT, Provider
from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import AgentEvidence, AgentLaunch, AgentTask, AgentTurn, McpServer

TASK = "# Task\n\nBe good — \u2028 at it.\n"
FIRST = AgentTurn(1, TASK)
FIRST_STDIN = (
    b"Your task is in TASK.md, in the current directory. Read all of it first, then carry it out."
)
SECOND = AgentTurn(2, "go on — please", "session-1")
RETRIED = AgentTurn(1, "try again", "session-1")
FRESH_SECOND = AgentTurn(2, "go on", None)
MCP = McpServer(
    "/opt/evo py/python", ["-P", "-m", "server", 'a "b" \\ é 😀'], {"EVO_TOKEN": "to\\ken-😀"}
)
NETWORK = [
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    "NODE_EXTRA_CA_CERTS",
]


@dataclass(frozen=True)
class Place:
    """A machine with every client on PATH."""

    bin: Path
    home: Path
    workspace: Path
    state: Path

    def task(self, max_turns: int = 1) -> AgentTask:
        return AgentTask(self.workspace, self.state, TASK, 11, max_turns, MCP)


def executable(path: Path, text: str = "exit 0") -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    here = Place(*(tmp_path / name for name in ("bin", "home", "workspace", "state")))
    for directory in (here.bin, here.home, here.workspace, here.state):
        directory.mkdir()
    for name in ("codex", "claude", "kimi", "agent"):
        executable(here.bin / name, f"echo {name} 1.2.3")
    monkeypatch.setenv("PATH", f"{here.bin}{os.pathsep}{os.defpath}")
    monkeypatch.setenv("HOME", str(here.home))
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "KIMI_CODE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.chdir(tmp_path)
    return here


@dataclass(frozen=True)
class Golden:
    """One launch. `{bin}`, `{home}`, `{state}` and `{python}` stand for paths."""

    name: str
    agent: Any
    argv: Sequence[str]
    turn: AgentTurn = FIRST
    max_turns: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[str] = ()
    stdin: bytes = b""
    closing_events: Sequence[tuple[str, str]] = ()
    secret_files: Sequence[str] = ()
    dialogue: str | None = None


CODEX: dict[str, Any] = {
    "inherit": [*NETWORK, "CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY"],
    "stdin": FIRST_STDIN,
    "closing_events": [("type", "turn.completed"), ("type", "turn.failed")],
    "secret_files": ["{home}/.codex/auth.json", "{home}/.codex/config.toml"],
}
CLAUDE: dict[str, Any] = {
    "environment": {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": "{state}/claude",
    },
    "inherit": [
        *NETWORK,
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
        *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_MAX_RETRIES"),
    ],
    "stdin": FIRST_STDIN,
    "closing_events": [("type", "result")],
    "secret_files": ["{home}/.claude/.credentials.json"],
}
KIMI: dict[str, Any] = {
    "environment": {"KIMI_CODE_HOME": "{state}/kimi", "KIMI_CODE_NO_AUTO_UPDATE": "1"},
    "inherit": [
        *NETWORK,
        *("KIMI_MODEL_NAME", "KIMI_MODEL_API_KEY", "KIMI_MODEL_BASE_URL"),
        *("KIMI_MODEL_PROVIDER_TYPE", "KIMI_MODEL_THINKING_EFFORT"),
        "KIMI_LOOP_MAX_STEPS_PER_TURN",
    ],
    "closing_events": [("type", "session.resume_hint")],
    "secret_files": ["{state}/kimi/config.toml"],
}

GOLDENS = [
    Golden(
        "search",
        Search(),
        [
            *("{python}", "-P", "-m", "evopolicygym.agents.search_agent"),
            '{"algorithm": "auto", "hidden": 0, "sigma": 1.0, "seed": 11}',
        ],
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
    ),
    Golden(
        "search with everything",
        Search(algorithm="ars", hidden=8, sigma=0.5),
        [
            *("{python}", "-P", "-m", "evopolicygym.agents.search_agent"),
            '{"algorithm": "ars", "hidden": 8, "sigma": 0.5, "seed": 11}',
        ],
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
    ),
    Golden(
        "codex",
        Codex(),
        [
            *("{bin}/codex", "exec", "--json", "--skip-git-repo-check"),
            *("-c", "project_root_markers=[]", "-c", "allow_login_shell=false"),
            *("--dangerously-bypass-approvals-and-sandbox", "-"),
        ],
        **CODEX,
    ),
    Golden(
        "codex with everything",
        Codex(
            model="gpt-5.6-luna",
            executable="agent",
            args=["--disable", "plugins"],
            environment={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "CODEX_HOME": "/mine"},
            inherit=["FAKE_KEY"],
            reasoning_effort="xhigh",
            bypass=False,
            home="/codex-home",
        ),
        [
            *("{bin}/agent", "exec", "--json", "--skip-git-repo-check"),
            *("-c", "project_root_markers=[]", "-c", "allow_login_shell=false"),
            *("-c", "sandbox_mode=workspace-write"),
            *("-c", "sandbox_workspace_write.network_access=true"),
            *("-m", "gpt-5.6-luna", "-c", "model_reasoning_effort=xhigh"),
            *("--disable", "plugins", "-"),
        ],
        **{
            **CODEX,
            "environment": {"CODEX_HOME": "/mine", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"},
            "inherit": [*CODEX["inherit"], "FAKE_KEY"],
            "secret_files": ["/codex-home/auth.json", "/codex-home/config.toml"],
        },
    ),
    Golden(
        "codex with a home",
        Codex(home="/codex-home"),
        [
            *("{bin}/codex", "exec", "--json", "--skip-git-repo-check"),
            *("-c", "project_root_markers=[]", "-c", "allow_login_shell=false"),
            *("--dangerously-bypass-approvals-and-sandbox", "-"),
        ],
        **{
            **CODEX,
            "environment": {"CODEX_HOME": "/codex-home"},
            "secret_files": ["/codex-home/auth.json", "/codex-home/config.toml"],
        },
    ),
    Golden(
        "codex resumed",
        Codex(model="m"),
        [
            *("{bin}/codex", "exec", "resume", "session-1", "--json", "--skip-git-repo-check"),
            *("-c", "project_root_markers=[]", "-c", "allow_login_shell=false"),
            *("--dangerously-bypass-approvals-and-sandbox", "-m", "m", "-"),
        ],
        turn=SECOND,
        max_turns=3,
        **{**CODEX, "stdin": b"go on \xe2\x80\x94 please"},
    ),
    Golden(
        "codex retried in its session",
        Codex(),
        [
            *("{bin}/codex", "exec", "resume", "session-1", "--json", "--skip-git-repo-check"),
            *("-c", "project_root_markers=[]", "-c", "allow_login_shell=false"),
            *("--dangerously-bypass-approvals-and-sandbox", "-"),
        ],
        turn=RETRIED,
        **{**CODEX, "stdin": b"try again"},
    ),
    Golden(
        "codex with mcp",
        Codex(mcp=True),
        [
            *("{bin}/codex", "exec", "--json", "--skip-git-repo-check"),
            *("-c", "project_root_markers=[]", "-c", "allow_login_shell=false"),
            *("--dangerously-bypass-approvals-and-sandbox", "-c"),
            'mcp_servers.evopolicygym={command="/opt/evo py/python",'
            'args=["-P", "-m", "server", "a \\"b\\" \\\\ é 😀"],'
            'env={EVO_TOKEN="to\\\\ken-😀"},tool_timeout_sec=3600}',
            "-",
        ],
        **CODEX,
    ),
    Golden(
        "claude",
        ClaudeCode(),
        [
            *("{bin}/claude", "-p", "--output-format", "stream-json", "--verbose", "--bare"),
            *("--no-session-persistence", "--permission-mode", "bypassPermissions"),
        ],
        **CLAUDE,
    ),
    Golden(
        "claude with everything",
        ClaudeCode(
            model="sonnet",
            executable="agent",
            args=["--debug"],
            environment={"CLAUDE_CONFIG_DIR": "/mine", "A": "1"},
            inherit=["B"],
            effort="max",
            bare=False,
            permission="dontAsk",
            tools=["Bash", "Read"],
        ),
        [
            *("{bin}/agent", "-p", "--output-format", "stream-json", "--verbose"),
            *("--no-session-persistence", "--model", "sonnet", "--effort", "max"),
            *("--permission-mode", "dontAsk", "--allowedTools", "Bash,Read", "--debug"),
        ],
        **{
            **CLAUDE,
            "environment": {
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CONFIG_DIR": "/mine",
                "A": "1",
            },
            "inherit": [*CLAUDE["inherit"], "B"],
            "secret_files": ["/mine/.credentials.json"],
        },
    ),
    Golden(
        "claude that is not bare",
        ClaudeCode(bare=False),
        [
            *("{bin}/claude", "-p", "--output-format", "stream-json", "--verbose"),
            *("--no-session-persistence", "--permission-mode", "bypassPermissions"),
        ],
        **{**CLAUDE, "environment": {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}},
    ),
    Golden(
        "claude, first of three turns",
        ClaudeCode(),
        [
            *("{bin}/claude", "-p", "--output-format", "stream-json", "--verbose", "--bare"),
            *("--permission-mode", "bypassPermissions"),
        ],
        max_turns=3,
        **CLAUDE,
    ),
    Golden(
        "claude resumed",
        ClaudeCode(effort="low"),
        [
            *("{bin}/claude", "-p", "--output-format", "stream-json", "--verbose", "--bare"),
            *("--resume", "session-1", "--effort", "low"),
            *("--permission-mode", "bypassPermissions"),
        ],
        turn=SECOND,
        max_turns=3,
        **{**CLAUDE, "stdin": b"go on \xe2\x80\x94 please"},
    ),
    Golden(
        "claude with mcp",
        ClaudeCode(mcp=True, args=["--debug"]),
        [
            *("{bin}/claude", "-p", "--output-format", "stream-json", "--verbose", "--bare"),
            *("--no-session-persistence", "--permission-mode", "bypassPermissions"),
            "--mcp-config",
            '{"mcpServers": {"evopolicygym": {"command": "/opt/evo py/python", '
            '"args": ["-P", "-m", "server", "a \\"b\\" \\\\ \\u00e9 \\ud83d\\ude00"], '
            '"env": {"EVO_TOKEN": "to\\\\ken-\\ud83d\\ude00"}}}}',
            *("--strict-mcp-config", "--debug"),
        ],
        **CLAUDE,
    ),
    Golden(
        "kimi",
        KimiCode(),
        ["{bin}/kimi", "-p", FIRST_STDIN.decode(), "--output-format", "stream-json"],
        **KIMI,
    ),
    Golden(
        "kimi with everything",
        KimiCode(
            model="k2",
            executable="agent",
            args=["--debug"],
            environment={"KIMI_CODE_NO_AUTO_UPDATE": "0", "A": "1"},
            inherit=["B"],
            home="/kimi-home",
        ),
        [
            *("{bin}/agent", "-m", "k2", "-p", FIRST_STDIN.decode()),
            *("--output-format", "stream-json", "--debug"),
        ],
        **{
            **KIMI,
            "environment": {
                "KIMI_CODE_HOME": "/kimi-home",
                "KIMI_CODE_NO_AUTO_UPDATE": "0",
                "A": "1",
            },
            "inherit": [*KIMI["inherit"], "B"],
            "secret_files": ["/kimi-home/config.toml"],
        },
    ),
    Golden(
        "kimi resumed",
        KimiCode(model="k2"),
        [
            *("{bin}/kimi", "-m", "k2", "-S", "session-1", "-p", "go on — please"),
            *("--output-format", "stream-json"),
        ],
        turn=SECOND,
        max_turns=3,
        **KIMI,
    ),
    Golden(
        "kimi with mcp",
        KimiCode(mcp=True),
        ["{bin}/kimi", "-p", FIRST_STDIN.decode(), "--output-format", "stream-json"],
        **KIMI,
    ),
    Golden(
        "acp",
        Acp(["agent", "acp"]),
        [
            *("{python}", "-P", "-m", "evopolicygym.agents.acp_bridge"),
            *('{"mode": null, "mcp": null}', "{bin}/agent", "acp"),
        ],
        dialogue="jsonl",
    ),
    Golden(
        "acp with everything",
        Acp(
            ["agent", "acp", "--fast"],
            environment={"A": "1"},
            inherit=["B"],
            model="m",
            mode="yolo",
            mcp=True,
        ),
        [
            *("{python}", "-P", "-m", "evopolicygym.agents.acp_bridge"),
            '{"mode": "yolo", "mcp": {"command": "/opt/evo py/python", '
            '"args": ["-P", "-m", "server", "a \\"b\\" \\\\ \\u00e9 \\ud83d\\ude00"], '
            '"environment": {"EVO_TOKEN": "to\\\\ken-\\ud83d\\ude00"}}}',
            *("{bin}/agent", "acp", "--fast"),
        ],
        turn=FRESH_SECOND,
        max_turns=3,
        environment={"A": "1"},
        inherit=["B"],
        dialogue="jsonl",
    ),
    Golden(
        "command",
        Command(["agent", "run", "-v"]),
        ["{bin}/agent", "run", "-v"],
        stdin=TASK.encode(),
        dialogue="auto",
    ),
    Golden(
        "command with everything",
        Command(["agent"], environment={"A": "1"}, inherit=["B"], model="m", protocol="jsonl"),
        ["{bin}/agent"],
        turn=FRESH_SECOND,
        max_turns=3,
        environment={"A": "1"},
        inherit=["B"],
        stdin=TASK.encode(),
        dialogue="jsonl",
    ),
    Golden(
        "command that runs once",
        Command(["agent"], protocol="oneshot"),
        ["{bin}/agent"],
        stdin=TASK.encode(),
    ),
]


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_launches(place: Place, golden: Golden) -> None:
    def filled(text: str) -> str:
        for name in ("bin", "home", "state"):
            text = text.replace(f"{{{name}}}", str(getattr(place, name)))
        return text.replace("{python}", sys.executable)

    launch = golden.agent.launch(place.task(golden.max_turns), golden.turn)
    assert type(launch) is AgentLaunch
    assert list(launch.argv) == [filled(argument) for argument in golden.argv]
    assert dict(launch.environment) == {k: filled(v) for k, v in golden.environment.items()}
    assert list(launch.inherit) == list(golden.inherit)
    assert launch.stdin == golden.stdin
    assert list(launch.closing_events) == list(golden.closing_events)
    assert [str(path) for path in launch.secret_files] == list(map(filled, golden.secret_files))
    assert launch.dialogue == golden.dialogue


def test_every_provider_has_goldens() -> None:
    kinds = {type(golden.agent) for golden in GOLDENS}
    assert kinds == set(PROVIDERS.values())
    for kind in kinds:  # at least by default, and with every option not at its default
        agents = [golden.agent for golden in GOLDENS if type(golden.agent) is kind]
        for one in dataclasses.fields(kind):
            if one.name != "argv":
                assert len({repr(getattr(agent, one.name)) for agent in agents}) > 1, one.name


# ------------------------------------------------------------------------------ mcp


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def codex_mcp(launch: AgentLaunch) -> Any:
    values = [a for a in launch.argv if a.startswith("mcp_servers.")]
    assert len(values) == 1
    return tomllib.loads(values[0])["mcp_servers"]["evopolicygym"]


@given(texts, st.lists(texts, max_size=3), st.dictionaries(st.sampled_from(["A", "B_1"]), texts))
def test_codex_gets_a_toml_table(command: str, args: list[str], variables: dict[str, str]) -> None:
    server = McpServer(command, args, variables)
    task = AgentTask(Path("workspace"), Path("state"), TASK, 1, 1, server)
    launch = Codex(executable=sys.executable, mcp=True).launch(task, FIRST)
    assert codex_mcp(launch) == {
        "command": command,
        "args": args,
        "env": variables,
        "tool_timeout_sec": 3600,
    }


@given(texts, st.lists(texts, max_size=3), st.dictionaries(st.sampled_from(["A", "B_1"]), texts))
def test_claude_gets_a_json_object(
    command: str, args: list[str], variables: dict[str, str]
) -> None:
    server = McpServer(command, args, variables)
    task = AgentTask(Path("workspace"), Path("state"), TASK, 1, 1, server)
    launch = ClaudeCode(executable=sys.executable, mcp=True).launch(task, FIRST)
    at = list(launch.argv).index("--mcp-config")
    expected = {"command": command, "args": args, "env": variables}
    assert json.loads(launch.argv[at + 1]) == {"mcpServers": {"evopolicygym": expected}}
    assert launch.argv[at + 2] == "--strict-mcp-config"


def test_kimi_gets_a_file_in_its_home(place: Place) -> None:
    KimiCode(mcp=True).launch(place.task(), FIRST)
    assert json.loads((place.state / "kimi" / "mcp.json").read_text()) == {
        "mcpServers": {
            "evopolicygym": {
                "command": "/opt/evo py/python",
                "args": ["-P", "-m", "server", 'a "b" \\ é 😀'],
                "env": {"EVO_TOKEN": "to\\ken-😀"},
            }
        }
    }


@pytest.mark.parametrize("agent", [Codex(), ClaudeCode(), KimiCode(), Acp(["agent"])])
def test_no_mcp_unless_asked_for(place: Place, agent: Any) -> None:
    launch = agent.launch(place.task(), FIRST)
    assert "server" not in "".join(launch.argv)
    assert "mcpServers" not in "".join(launch.argv)
    assert not (place.state / "kimi" / "mcp.json").exists()


# ---------------------------------------------------------------------------- claude


@pytest.mark.parametrize("permission", ["bypassPermissions", "acceptEdits"])
@pytest.mark.parametrize("user", [0, 1000])
def test_claude_as_root_is_told_of_the_walls(
    place: Place, monkeypatch: pytest.MonkeyPatch, user: int, permission: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    launch = ClaudeCode(permission=permission).launch(place.task(), FIRST)
    told = user == 0 and permission == "bypassPermissions"
    assert launch.environment.get("IS_SANDBOX") == ("1" if told else None)


def test_the_callers_variables_win(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    agent = ClaudeCode(environment={"IS_SANDBOX": "0"})
    assert agent.launch(place.task(), FIRST).environment["IS_SANDBOX"] == "0"


@pytest.mark.parametrize("max_turns", [1, 3])
def test_claude_names_a_session_only_if_it_was_kept(place: Place, max_turns: int) -> None:
    stdout = place.state / "stdout.txt"
    stdout.write_text('{"type":"result","session_id":"s-1","result":"x"}\n')
    evidence = AgentEvidence(stdout, place.state / "none", 0, place.task(max_turns))
    assert ClaudeCode().read(evidence).session_id == (None if max_turns == 1 else "s-1")


# --------------------------------------------------------------------- homes of clients


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def login(place: Place) -> Path:
    """The caller's Kimi home, logged in and with a history."""
    home = place.home / ".kimi-code"
    (home / "credentials" / "deep").mkdir(parents=True)
    (home / "sessions" / "old").mkdir(parents=True)
    files = {
        home / "config.toml": "model = 1\n",
        home / "credentials" / "kimi.json": "secret\n",
        home / "credentials" / "deep" / "er.json": "deeper\n",
        home / "mcp.json": "{}\n",
        home / "sessions" / "old" / "x": "history\n",
    }
    for path, text in files.items():
        path.write_text(text)
        path.chmod(0o600)
    (home / "credentials").chmod(0o700)
    return home


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (mode(path), path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_a_fresh_kimi_home_takes_over_the_login_only(place: Place, login: Path) -> None:
    before = contents(place.home)
    KimiCode().launch(place.task(), FIRST)
    home = place.state / "kimi"
    assert mode(home) == 0o700
    found = contents(home)
    assert sorted(found) == [
        "config.toml",
        "credentials",
        "credentials/deep",
        "credentials/deep/er.json",
        "credentials/kimi.json",
    ]
    assert found["config.toml"] == (0o600, b"model = 1\n")
    assert found["credentials"] == (0o700, b"")
    assert found["credentials/kimi.json"] == (0o600, b"secret\n")
    assert contents(place.home) == before
    (home / "credentials" / "kimi.json").write_text("changed")  # a copy, no link
    assert contents(place.home) == before


def test_a_kimi_home_is_made_once_a_run(place: Place, login: Path) -> None:
    agent, task = KimiCode(mcp=True), place.task(3)
    agent.launch(task, FIRST)
    (place.state / "kimi" / "config.toml").write_text("the client's\n")
    agent.launch(task, SECOND)
    assert (place.state / "kimi" / "config.toml").read_text() == "the client's\n"


def test_a_login_that_is_elsewhere(
    place: Place, login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = place.bin.parent / "elsewhere"
    login.rename(elsewhere)
    monkeypatch.setenv("KIMI_CODE_HOME", str(elsewhere))
    launch = KimiCode().launch(place.task(), FIRST)
    home = place.state / "kimi"
    assert (home / "config.toml").read_text() == "model = 1\n"
    assert not (home / "sessions").exists()
    assert list(launch.secret_files) == [
        home / "config.toml",
        home / "credentials" / "kimi.json",
    ]


def test_a_home_given_as_a_variable_is_the_callers(place: Place, login: Path) -> None:
    before = contents(place.home)
    agent = KimiCode(environment={"KIMI_CODE_HOME": str(login)})
    launch = agent.launch(place.task(), FIRST)
    assert launch.environment["KIMI_CODE_HOME"] == str(login)
    assert contents(place.state) == {}
    assert contents(place.home) == before


def test_a_caller_without_a_login(place: Place) -> None:
    KimiCode().launch(place.task(), FIRST)
    assert contents(place.state) == {"kimi": (0o700, b"")}


def test_a_home_of_the_callers_choice_is_left_alone(place: Place, login: Path) -> None:
    before = contents(place.home)
    KimiCode(home=str(login)).launch(place.task(), FIRST)
    assert contents(place.home) == before
    assert contents(place.state) == {}


def test_kimi_does_not_look_above_the_workspace(place: Place) -> None:
    KimiCode().launch(place.task(), FIRST)
    assert contents(place.workspace) == {".git": (mode(place.workspace / ".git"), b"")}
    assert (place.workspace / ".git").is_dir()
    KimiCode().launch(place.task(), SECOND)  # it may be there already


@pytest.mark.parametrize("what", ["file", "dangling link", "nothing"])
def test_an_agent_that_takes_the_place_of_git_stops_nothing(place: Place, what: str) -> None:
    if what == "file":
        (place.workspace / ".git").write_text("gitdir: elsewhere\n")
    elif what == "dangling link":
        (place.workspace / ".git").symlink_to("nowhere")
    else:
        place.workspace.rmdir()
    launch = KimiCode().launch(place.task(3), SECOND)
    assert launch.argv[0] == str(place.bin / "kimi")


def test_codex_reads_the_home_that_it_ran_in(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = place.state / "stdout.txt"
    stdout.write_text('{"type":"thread.started","thread_id":"t-1"}\n')
    evidence = AgentEvidence(stdout, place.state / "none", 0, place.task())
    line = '{"type":"token_usage_record","payload":{"usage":{"output_tokens":%d}}}\n'
    homes = {name: place.state / name for name in ("option", "variable", "inherited")}
    homes["default"] = place.home / ".codex"
    for number, home in enumerate(homes.values(), start=1):
        (home / "sessions" / "1" / "2" / "3").mkdir(parents=True)
        rollout = home / "sessions" / "1" / "2" / "3" / "rollout-x-t-1.jsonl"
        rollout.write_text(line % number)

    def output(agent: Codex) -> int:
        usage = agent.read(evidence).usage
        assert usage is not None
        return usage.output

    monkeypatch.delenv("CODEX_HOME", raising=False)
    assert output(Codex()) == 4
    monkeypatch.setenv("CODEX_HOME", str(homes["inherited"]))
    assert output(Codex()) == 3
    assert output(Codex(environment={"CODEX_HOME": str(homes["variable"])})) == 2
    assert output(Codex(home=str(homes["option"]))) == 1


# --------------------------------------------------------------------------- prompts


@pytest.mark.parametrize("kind", [Codex, ClaudeCode])
def test_a_long_prompt_goes_through_standard_input(place: Place, kind: type[Provider]) -> None:
    turn = AgentTurn(2, "é" * 2**20, "s")
    launch = kind().launch(place.task(3), turn)  # type: ignore[attr-defined]
    assert launch.stdin == turn.message.encode()
    assert max(map(len, launch.argv)) < 1000


@pytest.mark.parametrize("kind", [Codex, ClaudeCode, KimiCode])
def test_a_long_task_stays_in_its_file(place: Place, kind: type[Provider]) -> None:
    task = dataclasses.replace(place.task(), task="x" * 2**20)
    launch = kind().launch(task, AgentTurn(1, task.task))  # type: ignore[attr-defined]
    said = [*launch.argv, launch.stdin.decode()]
    assert FIRST_PROMPT in said
    assert max(map(len, said)) < 1000


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (AgentTurn(1, "m"), FIRST_PROMPT),
        (AgentTurn(1, "m", "s"), "m"),
        (AgentTurn(2, "m", "s"), "m"),
        (AgentTurn(2, "m"), "m"),
    ],
)
def test_what_is_said(turn: AgentTurn, words: str) -> None:
    assert Provider.prompt(turn) == words


# ----------------------------------------------------------------------- finding it


def test_relative_words_of_a_command_mean_what_they_mean_here(place: Place) -> None:
    for name in ("agent.py", "-agent.py"):
        Path(name).write_text("")
    Path("folder").mkdir()
    executable(Path("mine"))
    argv = Command(["./mine", "agent.py", "-agent.py", "folder", "none.py", "a\tb"]).launch(
        place.task(), FIRST
    )
    here = Path.cwd()
    assert list(argv.argv) == [
        *(str(here / "mine"), str(here / "agent.py"), "-agent.py", "folder", "none.py", "a\tb"),
    ]


def test_path_may_come_from_the_option(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    executable(other / "codex")
    agent = Codex(environment={"PATH": str(other)})
    assert agent.launch(place.task(), FIRST).argv[0] == str(other / "codex")


def test_a_link_to_a_client_is_not_followed(place: Place) -> None:
    (place.bin / "linked").symlink_to("codex")
    assert Codex(executable="linked").found() == str(place.bin / "linked")


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo codex-cli 1.2.3", "codex-cli 1.2.3"),
        ("echo warning; echo; echo '  1.2.3  '; echo", "1.2.3"),
        ("echo broken; exit 1", None),
        ("exit 0", None),
        ("echo 1.2.3 >&2", None),
        ("printf '\\377\\n'", "�"),
        ("head -c 5000 /dev/zero | tr '\\0' x", "x" * 98 + " …"),
        ("cat; echo no input", "no input"),
        ('test "$*" = --version && echo asked', "asked"),
    ],
)
def test_version(place: Place, script: str, version: str | None) -> None:
    executable(place.bin / "codex", script)
    assert Codex().version() == version


def test_version_of_what_is_not_there(place: Place) -> None:
    assert Codex(executable="nothing").version() is None
    (place.bin / "torn").write_bytes(b"\x7fELF")
    (place.bin / "torn").chmod(0o755)
    assert Codex(executable="torn").version() is None


def test_versions_of_the_others() -> None:
    assert Search().version() == __version__
    assert Acp(["agent"]).version() is None
    assert Command(["agent"]).version() is None


# ----------------------------------------------------------------------------- check


BAD_NAME = "can't name a variable"
NO_TEXT = "is no UTF-8 text"


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (
            Codex(reasoning_effort="huge"),
            "$.agent.reasoning_effort is 'huge', expected one of "
            "none, minimal, low, medium, high, xhigh, max",
        ),
        (Codex(reasoning_effort=""), "$.agent.reasoning_effort is ''"),
        (
            Codex(executable="codexx"),
            "'codexx' was not found or is not executable: install it with "
            "`npm install -g @openai/codex`, or name it with the option executable",
        ),
        (
            Codex(environment={"PATH": "/nowhere"}),
            "'codex' was not found or is not executable: install it with "
            "`npm install -g @openai/codex`, or name it with the option executable",
        ),
        (Codex(executable="./folder"), "'./folder' was not found or is not executable"),
        (Codex(executable="a\0b"), "was not found or is not executable"),
        (Codex(environment={"A=B": "x"}), f"'A=B' {BAD_NAME}"),
        (Codex(environment={"": "x"}), f"'' {BAD_NAME}"),
        (Codex(inherit=["A\0"]), f"'A\\x00' {BAD_NAME}"),
        (Codex(inherit=["é=" + "x" * 99]), f"'\\xe9={'x' * 38}' {BAD_NAME}"),
        (Codex(args=["a\0b"]), f"argument 'a\\x00b' of the codex agent {NO_TEXT}"),
        (Codex(args=["\udcff"]), f"argument '\\udcff' of the codex agent {NO_TEXT}"),
        (
            ClaudeCode(effort="minimal"),
            "$.agent.effort is 'minimal', expected one of low, medium, high, xhigh, max",
        ),
        (
            ClaudeCode(permission="plan"),
            "$.agent.permission is 'plan', expected one of "
            "bypassPermissions, dontAsk, acceptEdits, default",
        ),
        (
            ClaudeCode(executable="nothing"),
            "'nothing' was not found or is not executable: install it with "
            "`npm install -g @anthropic-ai/claude-code`, or name it with the option executable",
        ),
        (ClaudeCode(environment={"=": "x"}), f"'=' {BAD_NAME}"),
        (ClaudeCode(args=["\0"]), f"argument '\\x00' of the claude agent {NO_TEXT}"),
        (
            KimiCode(home="/mine", mcp=True),
            "$.agent.mcp: Kimi Code takes MCP servers from its home only, and the one given with "
            "$.agent.home is yours: leave out one of the two",
        ),
        (
            KimiCode(executable="nothing"),
            "'nothing' was not found or is not executable: install it with "
            "`npm install -g @moonshot-ai/kimi-code`, or name it with the option executable",
        ),
        (KimiCode(inherit=["x=y"]), f"'x=y' {BAD_NAME}"),
        (KimiCode(args=["\0"]), f"argument '\\x00' of the kimi agent {NO_TEXT}"),
        (Acp([]), "the acp agent needs a program and its arguments, e.g. -- kimi acp"),
        (Acp("kimi acp"), "the acp agent needs a program and its arguments, e.g. -- kimi acp"),
        (
            Acp(["nothing"]),
            "agent executable 'nothing' was not found or is not executable: "
            "give a path, or a name on PATH",
        ),
        (Acp(["agent", "\0"]), f"argument '\\x00' of the agent {NO_TEXT}"),
        (
            Command([]),
            "the command agent needs a program and its arguments, e.g. -- python agent.py",
        ),
        (Command("python agent.py"), "the command agent needs a program and its arguments"),
        (
            Command(["agent"], protocol="json"),  # type: ignore[arg-type]
            "$.agent.protocol is 'json', expected one of auto, jsonl, oneshot",
        ),
        (Command(["nothing"]), "agent executable 'nothing' was not found or is not executable"),
        (Command(["agent", "\ud800"]), f"argument '\\ud800' of the agent {NO_TEXT}"),
        (
            Search(algorithm="sgd"),  # type: ignore[arg-type]
            "$.agent.algorithm is 'sgd', expected 'auto', 'cma' or 'ars'",
        ),
        (Search(hidden=-1), "$.agent.hidden is -1, expected 0 to 256"),
        (Search(hidden=257), "$.agent.hidden is 257, expected 0 to 256"),
        (Search(sigma=0.0), "$.agent.sigma is 0.0, expected a number > 0"),
        (Search(sigma=float("nan")), "$.agent.sigma is nan, expected a number > 0"),
        (Search(sigma=float("inf")), "$.agent.sigma is inf, expected a number > 0"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else type(value).__name__,
)
def test_what_is_wrong_with_options(place: Place, agent: Any, message: str) -> None:
    Path("folder").mkdir()
    with pytest.raises(ConfigurationError) as error:
        agent.check()
    assert message in str(error.value)
    assert "\0" not in str(error.value)


@pytest.mark.parametrize("kind", [Acp, Command])
@pytest.mark.parametrize("options", [{"environment": {"A=B": "x"}}, {"inherit": ["A\0"]}])
def test_names_of_variables_of_any_program(
    place: Place, kind: type[Any], options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match="can't name a variable"):
        kind(["agent"], **options).check()


@pytest.mark.parametrize("agent", [Codex(environment={"A": "x\0y"}), Acp(["agent"], {"A": "\0"})])
def test_values_of_variables(place: Place, agent: Any) -> None:
    with pytest.raises(ConfigurationError) as error:
        agent.check()
    assert str(error.value) == "the variable A holds a NUL character"


@pytest.mark.parametrize("kind", [Codex, KimiCode])
def test_a_relative_home(place: Place, kind: type[Any]) -> None:
    with pytest.raises(ConfigurationError) as error:
        kind(home="mine").check()
    assert str(error.value) == "$.agent.home is 'mine', expected an absolute path"


@pytest.mark.parametrize("options", [{"model": "a\0b"}, {"model": "\ud800"}])
def test_what_no_program_can_be_given(place: Place, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Codex(**options).check()


def test_acp_without_its_package(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evopolicygym.agents.acp.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError) as error:
        Acp(["agent"]).check()
    assert str(error.value) == (
        'the acp agent needs the package agent-client-protocol: pip install "evopolicygym[agents]"'
    )


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_good_options(place: Place, golden: Golden) -> None:
    if golden.agent == Acp(["agent", "acp"]):
        pytest.importorskip("acp")
    golden.agent.check()


# -------------------------------------------------------------------------- describe


SECRETS = {"A_VARIABLE": "value-of-a-variable", "MY_TOKEN": "value-of-a-token"}
ARGS = [
    *("--api-key", "secret-word-1", "--token=secret-word-2", "MY_PASSWORD=secret-word-3"),
    *("--verbose", "plain"),
]
SHOWN = [
    *("--api-key", "[redacted]", "--token=[redacted]", "MY_PASSWORD=[redacted]"),
    *("--verbose", "plain"),
]


@pytest.mark.parametrize("kind", [Codex, ClaudeCode, KimiCode])
def test_descriptions_of_clients(kind: type[Provider]) -> None:
    agent = kind(model="m", args=ARGS, environment=SECRETS, inherit=["B"])
    found = json.loads(json.dumps(agent.describe()))
    assert found["args"] == SHOWN
    assert found["environment"] == ["A_VARIABLE", "MY_TOKEN"]
    assert found["inherit"] == [*NETWORK, *kind.VARIABLES, "B"]
    assert found["model"] == "m"
    assert found.keys() == {one.name for one in dataclasses.fields(kind)}


@pytest.mark.parametrize("kind", [Acp, Command])
def test_descriptions_of_programs(kind: type[Any]) -> None:
    found = json.loads(json.dumps(kind(["agent", *ARGS], SECRETS, ["B"]).describe()))
    assert found["argv"] == ["agent", *SHOWN]
    assert found["environment"] == ["A_VARIABLE", "MY_TOKEN"]
    assert found["inherit"] == ["B"]


def test_own_options_are_described() -> None:
    assert Search("ars", 3, 0.5).describe() == {"algorithm": "ars", "hidden": 3, "sigma": 0.5}
    assert Acp(["a"], mode="yolo", mcp=True).describe() == {
        "argv": ["a"],
        "environment": [],
        "inherit": [],
        "mode": "yolo",
        "mcp": True,
    }
    assert Command(["a"], protocol="jsonl").describe()["protocol"] == "jsonl"
    claude = json.loads(json.dumps(ClaudeCode(tools=("Bash",), effort="low").describe()))
    assert (claude["tools"], claude["effort"], claude["bare"]) == (["Bash"], "low", True)
    assert Codex(home="/x").describe()["home"] == "/x"


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_no_description_holds_a_value_of_the_environment(golden: Golden) -> None:
    agent = golden.agent
    if not isinstance(agent, Search):
        agent = dataclasses.replace(agent, environment=SECRETS)
    text = json.dumps(agent.describe())
    assert not any(value in text for value in SECRETS.values())


# ----------------------------------------------------------------------- all of them


def minimal(kind: str) -> Any:
    provider = PROVIDERS[kind]
    return provider(["agent"]) if kind in ("acp", "command") else provider()


@pytest.mark.parametrize("kind", PROVIDERS)
def test_what_every_provider_is(place: Place, kind: str) -> None:
    agent = minimal(kind)
    assert agent.name == kind
    assert agent.model is None
    assert agent.resumes in ("session", "process", "never")
    assert agent.check() is None
    assert agent.version() is None or isinstance(agent.version(), str)
    evidence = AgentEvidence(place.state / "none", place.state / "none", None, place.task())
    transcript = agent.read(evidence)
    assert (transcript.session_id, transcript.usage, transcript.tool_calls) == (None, None, 0)
    json.dumps(agent.describe())
    assert dataclasses.is_dataclass(agent)
    for one in dataclasses.fields(agent):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(agent, one.name, None)


@pytest.mark.parametrize("kind", PROVIDERS)
def test_a_provider_is_one_small_module(kind: str) -> None:
    path = Path(inspect.getfile(PROVIDERS[kind]))
    assert path.parent.name == "agents"
    assert len(path.read_text().splitlines()) < 120, path.name
    assert PROVIDERS[kind].__doc__


def test_how_each_goes_on() -> None:
    assert {kind: minimal(kind).resumes for kind in PROVIDERS} == {
        "search": "never",
        "codex": "session",
        "claude": "session",
        "kimi": "session",
        "acp": "process",
        "command": "process",
    }
    assert Command(["agent"], protocol="oneshot").resumes == "never"
    assert Command(["agent"], protocol="jsonl").resumes == "process"
