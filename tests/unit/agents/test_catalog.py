"""Providers by name, with options as text."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from evopolicygym.agents import Acp, ClaudeCode, Codex, Command, KimiCode, Search
from evopolicygym.agents.catalog import PROVIDERS, create, option_names
from evopolicygym.errors import ConfigurationError

SHARED = ["executable", "args", "environment", "inherit", "mcp"]


@pytest.mark.parametrize(
    ("kind", "provider", "names"),
    [
        ("search", Search, ["algorithm", "hidden", "sigma"]),
        ("codex", Codex, [*SHARED, "reasoning_effort", "bypass", "home"]),
        ("claude", ClaudeCode, [*SHARED, "effort", "bare", "permission", "tools"]),
        ("kimi", KimiCode, [*SHARED, "home"]),
        ("acp", Acp, ["environment", "inherit", "mode", "mcp"]),
        ("command", Command, ["environment", "inherit", "protocol"]),
    ],
)
def test_the_catalog(kind: str, provider: type[Any], names: list[str]) -> None:
    assert PROVIDERS[kind] is provider
    assert option_names(kind) == names


def test_the_catalog_is_complete() -> None:
    assert list(PROVIDERS) == ["search", "codex", "claude", "kimi", "acp", "command"]


@pytest.mark.parametrize("kind", PROVIDERS)
def test_nothing_but_a_kind(kind: str) -> None:
    agent = create(kind)
    assert type(agent) is PROVIDERS[kind]
    assert agent.name == kind
    assert agent.model is None


@pytest.mark.parametrize("kind", ["codex", "claude", "kimi", "acp", "command"])
def test_a_model(kind: str) -> None:
    assert create(kind, model="m").model == "m"


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        (
            "search",
            {"algorithm": "ars", "hidden": "8", "sigma": "0.5"},
            Search(algorithm="ars", hidden=8, sigma=0.5),
        ),
        (
            "search",
            {"algorithm": "cma", "hidden": 8, "sigma": 0.5},
            Search(algorithm="cma", hidden=8, sigma=0.5),
        ),
        ("search", {"sigma": 2}, Search(sigma=2)),
        ("search", {"sigma": "1e-1"}, Search(sigma=0.1)),
        ("search", {"hidden": " 3 "}, Search(hidden=3)),
        ("codex", {"bypass": "false"}, Codex(args=[], bypass=False)),
        ("codex", {"bypass": False}, Codex(args=[], bypass=False)),
        ("codex", {"bypass": "No"}, Codex(args=[], bypass=False)),
        ("codex", {"bypass": "0"}, Codex(args=[], bypass=False)),
        ("codex", {"mcp": "TRUE"}, Codex(args=[], mcp=True)),
        ("codex", {"mcp": "yes"}, Codex(args=[], mcp=True)),
        ("codex", {"mcp": "1"}, Codex(args=[], mcp=True)),
        ("codex", {"mcp": 1}, Codex(args=[], mcp=True)),
        (
            "codex",
            {"reasoning_effort": "high", "home": "/x", "executable": "c"},
            Codex(args=[], reasoning_effort="high", home="/x", executable="c"),
        ),
        ("codex", {"inherit": "A,B"}, Codex(args=[], inherit=("A", "B"))),
        ("codex", {"inherit": ["A", "B"]}, Codex(args=[], inherit=("A", "B"))),
        ("codex", {"inherit": ("A",)}, Codex(args=[], inherit=("A",))),
        ("codex", {"inherit": ""}, Codex(args=[], inherit=())),
        ("codex", {"inherit": ",A,,B,"}, Codex(args=[], inherit=("A", "B"))),
        ("codex", {"inherit": []}, Codex(args=[], inherit=())),
        ("codex", {"args": "--a,b"}, Codex(args=["--a", "b"])),
        (
            "codex",
            {"environment.A": "1", "environment.B.C": "x=y,z"},
            Codex(args=[], environment={"A": "1", "B.C": "x=y,z"}),
        ),
        ("codex", {"environment": {"A": "1"}}, Codex(args=[], environment={"A": "1"})),
        (
            "codex",
            {"environment": MappingProxyType({"A": "1", "B": "2"}), "environment.B": "3"},
            Codex(args=[], environment={"A": "1", "B": "3"}),
        ),
        ("codex", {"environment.A": ""}, Codex(args=[], environment={"A": ""})),
        ("codex", {"environment": {}}, Codex(args=[])),
        (
            "claude",
            {"bare": "no", "permission": "dontAsk", "tools": "Bash,Read", "effort": "low"},
            ClaudeCode(
                args=[], bare=False, permission="dontAsk", tools=("Bash", "Read"), effort="low"
            ),
        ),
        ("kimi", {"home": "/x", "mcp": "false"}, KimiCode(args=[], home="/x")),
        ("acp", {"mode": "yolo", "mcp": True}, Acp((), mode="yolo", mcp=True)),
        ("command", {"protocol": "oneshot"}, Command((), protocol="oneshot")),
        # Of a word that a client does not know, `check` says so.
        ("codex", {"reasoning_effort": "huge"}, Codex(args=[], reasoning_effort="huge")),
        ("search", {"algorithm": "sgd"}, Search(algorithm="sgd")),  # type: ignore[arg-type]
    ],
)
def test_options(kind: str, options: dict[str, Any], expected: Any) -> None:
    found = create(kind, options=options)
    assert found == expected
    for name in options:  # equality does not tell 1 from True
        value = getattr(found, name.partition(".")[0])
        assert type(value) is type(getattr(expected, name.partition(".")[0]))


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0"])
def test_numbers_out_of_range_are_for_check(value: str) -> None:
    with pytest.raises(ConfigurationError, match="sigma"):
        create("search", options={"sigma": value}).check()


def test_further_arguments() -> None:
    agent = create("codex", options={"args": ["-x"]}, argv=["--", "y,z"])
    assert agent == Codex(args=["-x", "--", "y,z"])
    assert create("acp", argv=["kimi", "acp"]) == Acp(("kimi", "acp"))
    assert create("command", argv=["python", "a.py"], model="m") == Command(
        ("python", "a.py"), model="m"
    )


def test_what_was_given_is_not_changed() -> None:
    environment, args, options = {"A": "1"}, ["-x"], {}
    options = {"environment": environment, "environment.B": "2", "args": args}
    create("codex", options=options, argv=["y"])
    assert environment == {"A": "1"}
    assert args == ["-x"]
    assert list(options) == ["environment", "environment.B", "args"]


ALL = "search, codex, claude, kimi, acp, command"
CODEX_OPTIONS = "executable, args, environment, inherit, mcp, reasoning_effort, bypass, home"


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("codx", {}, f"$.agent.kind is 'codx', expected one of {ALL}. Did you mean 'codex'?"),
        ("Claude", {}, f"$.agent.kind is 'Claude', expected one of {ALL}. Did you mean 'claude'?"),
        ("gemini", {}, f"$.agent.kind is 'gemini', expected one of {ALL}."),
        ("", {}, f"$.agent.kind is '', expected one of {ALL}."),
        (
            "codex",
            {"reasoning": "high"},
            "$.agent.reasoning: the codex agent has no such option, expected one of "
            f"{CODEX_OPTIONS}. Did you mean 'reasoning_effort'?",
        ),
        (
            "codex",
            {"xyz.A": "high"},
            f"$.agent.xyz.A: the codex agent has no such option, expected one of {CODEX_OPTIONS}.",
        ),
        (
            "search",
            {"seed": "1"},
            "$.agent.seed: the search agent has no such option, expected one of "
            "algorithm, hidden, sigma.",
        ),
        (
            "search",
            {"model": "m"},
            "$.agent.model: the search agent has no such option, expected one of "
            "algorithm, hidden, sigma.",
        ),
        (
            "command",
            {"argv": "python"},
            "$.agent.argv: the command agent has no such option, expected one of "
            "environment, inherit, protocol.",
        ),
        (
            "claude",
            {"NAME": "x"},
            "$.agent.NAME: the claude agent has no such option, expected one of executable, args, "
            "environment, inherit, mcp, effort, bare, permission, tools.",
        ),
        (
            "codex",
            {"environment": "A=1"},
            "$.agent.environment: expected text under a name, e.g. environment.NAME=value",
        ),
        (
            "codex",
            {"environment.": "1"},
            "$.agent.environment.: expected text under a name, e.g. environment.NAME=value",
        ),
        (
            "acp",
            {"environment.A": 1},
            "$.agent.environment.A: expected text under a name, e.g. environment.NAME=value",
        ),
        (
            "codex",
            {"environment": {"A": None}},
            "$.agent.environment: expected text under a name, e.g. environment.NAME=value",
        ),
        ("codex", {"home.x": "y"}, "$.agent.home.x: home is one value, it has no parts"),
        ("codex", {"inherit.A": "B"}, "$.agent.inherit.A: inherit is one value, it has no parts"),
        ("codex", {"inherit": 1}, "$.agent.inherit is 1, expected a list of words: one,two"),
        (
            "codex",
            {"args": ["a", 1]},
            "$.agent.args is ['a', 1], expected a list of words: one,two",
        ),
        ("claude", {"tools": {}}, "$.agent.tools is {}, expected a list of words: one,two"),
        ("codex", {"bypass": "maybe"}, "$.agent.bypass is 'maybe', expected true or false"),
        ("codex", {"bypass": ""}, "$.agent.bypass is '', expected true or false"),
        ("acp", {"mcp": 2}, "$.agent.mcp is 2, expected true or false"),
        ("acp", {"mcp": None}, "$.agent.mcp is None, expected true or false"),
        ("search", {"hidden": "many"}, "$.agent.hidden is 'many', expected a number"),
        ("search", {"hidden": "1.5"}, "$.agent.hidden is '1.5', expected a number"),
        ("search", {"hidden": 1.5}, "$.agent.hidden is 1.5, expected a number"),
        ("search", {"hidden": True}, "$.agent.hidden is True, expected a number"),
        ("search", {"hidden": ""}, "$.agent.hidden is '', expected a number"),
        ("search", {"sigma": "wide"}, "$.agent.sigma is 'wide', expected a number"),
        ("search", {"sigma": False}, "$.agent.sigma is False, expected a number"),
        ("search", {"sigma": [1]}, "$.agent.sigma is [1], expected a number"),
        ("search", {"algorithm": 1}, "$.agent.algorithm is 1, expected text"),
        ("codex", {"executable": True}, "$.agent.executable is True, expected text"),
        ("codex", {"reasoning_effort": 3}, "$.agent.reasoning_effort is 3, expected text"),
        ("claude", {"permission": ["x"]}, "$.agent.permission is ['x'], expected text"),
        ("acp", {"mode": 1.5}, "$.agent.mode is 1.5, expected text"),
        ("command", {"protocol": 1}, "$.agent.protocol is 1, expected text"),
    ],
    ids=lambda value: value[:50] if isinstance(value, str) else None,
)
def test_what_is_wrong(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        create(kind, options=options)
    assert str(error.value) == message


def test_a_command_for_the_search_agent() -> None:
    with pytest.raises(ConfigurationError) as error:
        create("search", argv=["python", "my agent.py"])
    assert str(error.value) == (
        "the search agent takes no command: \"python 'my agent.py'\"; "
        "did you mean $.agent.kind command?"
    )


@pytest.mark.parametrize(
    ("kind", "name"), [("codex", "home"), ("codex", "executable"), ("acp", "mode")]
)
def test_none_is_a_value_of_its_own_type(kind: str, name: str) -> None:
    assert getattr(create(kind, options={name: None}), name) is None


def test_a_model_for_the_search_agent_only_names_the_run() -> None:
    assert create("search", model="gpt") == create("search")
