"""What a Run and an agent provider need from each other: plain values and one protocol.

A provider knows how to start its client, how to go on with the same session, and how to read what
the client left behind. Everything else (processes, limits, retries, turns) is the driver's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.dialogue import Answer

__all__ = [
    "Agent",
    "AgentErrorKind",
    "AgentEvidence",
    "AgentLaunch",
    "AgentTask",
    "AgentTurn",
    "McpServer",
    "TokenUsage",
    "Transcript",
    "find_executable",
]


@dataclass(frozen=True, slots=True)
class McpServer:
    """How a client starts the session's MCP server.

    Attributes:
        command: Program.
        args: Its arguments.
        environment: Variables it needs to find the session.
    """

    command: str
    args: Sequence[str]
    environment: Mapping[str, str]

    def configuration(self) -> dict[str, Any]:
        """Return it in the form of most clients' `mcpServers`."""
        server = {"command": self.command, "args": list(self.args), "env": dict(self.environment)}
        return {"mcpServers": {"evopolicygym": server}}


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What stays the same for a provider as long as its Run lasts.

    Attributes:
        workspace: The agent's current directory.
        state: A private directory for what the client keeps between turns; it is gone after the
            Run.
        task: Content of `TASK.md`.
        seed: A seed for agents that draw random numbers; not the Run's.
        max_turns: Most turns that the Run will take.
        mcp: The session as an MCP server, for clients that take one.
    """

    workspace: Path
    state: Path
    task: str
    seed: int
    max_turns: int
    mcp: McpServer


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """One prompt.

    Attributes:
        number: 1, 2, …
        message: What to say to the agent.
        session_id: The client's session to go on with, as its transcript named it; None starts a
            new one.
    """

    number: int
    message: str
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """How to start an agent's process.

    Attributes:
        argv: Program and arguments.
        environment: Variables on top of the inherited ones.
        inherit: Names of further variables to take over from the Host, the only way a credential
            gets to the agent.
        stdin: What the agent reads on standard input; in a dialogue the driver writes that.
        closing_events: Key and value of the JSON lines of stdout after which the client has
            nothing more to say and should exit.
        secret_files: Files of the client that hold credentials: what they hold is kept out of
            the record, too.
        dialogue: `jsonl` speaks one prompt line and one answer line a turn on stdin and stdout;
            `auto` offers that, and takes a program that does not answer so as a one-shot one.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[str] = ()
    stdin: bytes = b""
    closing_events: Sequence[tuple[str, str]] = ()
    secret_files: Sequence[Path] = ()
    dialogue: Literal["jsonl", "auto"] | None = None


class AgentErrorKind(StrEnum):
    """What a client says went wrong between it and its model's provider; closed.

    `REQUEST` is a request that the provider will never take, such as one that is too long.
    """

    AUTH = "auth"
    RATE_LIMIT = "rate_limit"
    PROVIDER = "provider"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one session so far; the four never overlap.

    Attributes:
        input: Read by the model and not taken from a cache or written to one.
        cache_read: Read from a cache.
        cache_write: Read and written to a cache.
        output: Written by the model, reasoning included.
    """

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0

    def __post_init__(self) -> None:
        for name in ("input", "cache_read", "cache_write", "output"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is {value!r}, expected a whole number of tokens")

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            self.input + other.input,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output + other.output,
        )


@dataclass(frozen=True, slots=True)
class AgentEvidence:
    """What one process of a client left behind.

    Attributes:
        stdout: Its standard output, capped: the middle may be missing.
        stderr: Its standard error, capped.
        status: Exit code, or minus the signal number; None if that is not known.
        task: The task it was started with.
        session_id: The session it was to go on with, or None.
        answers: What it answered in a dialogue, in order.
        answered: Whether the last of these answers the newest prompt.
    """

    stdout: Path
    stderr: Path
    status: int | None
    task: AgentTask
    session_id: str | None = None
    answers: Sequence[Answer] = ()
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Transcript:
    """What the evidence says. Whatever a client does not report is None, never 0.

    Attributes:
        session_id: The client's own name for its session.
        model: The model as the client reports it.
        usage: Tokens of the whole session so far, subagents included once.
        usage_complete: Whether that is all, and not only what is known of it.
        several_models: Whether the tokens are of more than one model.
        cost_usd: Cost of the whole session so far, as the client reports it, USD.
        model_calls: Answers of the model in this turn, or None.
        tool_calls: Tools the model called in this turn.
        final_message: The agent's last words in this turn.
        stop_reason: Why the client says that it stopped.
        error: Which kind of provider error ended it, or None.
        error_message: What the client said about that.
        closed: Whether the closing event is there; None for clients that have none.
        begun: Whether the client printed anything of its protocol.
        stop: Whether the agent asked for no further turn.
        files: Files of the client to keep as evidence, by the name to keep them under.
    """

    session_id: str | None = None
    model: str | None = None
    usage: TokenUsage | None = None
    usage_complete: bool = False
    several_models: bool = False
    cost_usd: float | None = None
    model_calls: int | None = None
    tool_calls: int = 0
    final_message: str | None = None
    stop_reason: str | None = None
    error: AgentErrorKind | None = None
    error_message: str | None = None
    closed: bool | None = None
    begun: bool = True
    stop: bool = False
    files: Mapping[str, Path] = field(default_factory=dict)


class Agent(Protocol):
    """A provider; see `evopolicygym.agents`."""

    @property
    def name(self) -> str:
        """Kind of agent, e.g. `command`."""
        ...

    @property
    def model(self) -> str | None:
        """Name of the model behind it, or None."""
        ...

    @property
    def resumes(self) -> Literal["session", "process", "never"]:
        """How it goes on after a turn.

        `session` starts the client again and names the session, `process` keeps one process and
        writes the next prompt to it, `never` can't.
        """
        ...

    def check(self) -> None:
        """Raise `ConfigurationError` if the agent can't be started here."""
        ...

    def version(self) -> str | None:
        """Return the client's own version, or None."""
        ...

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        """Return how to start the process of a turn."""
        ...

    def read(self, evidence: AgentEvidence) -> Transcript:
        """Return what a process of it left behind; never raises on damaged evidence."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return its options for the record: JSON, no secrets."""
        ...


def find_executable(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the path of an executable.

    Raises:
        ConfigurationError: There is none.
    """
    path = (environment or {}).get("PATH", os.environ.get("PATH"))
    found = shutil.which(name, path=path)
    if found is None:
        raise ConfigurationError(
            f"agent executable {name!r} was not found or is not executable: "
            "give a path, or a name on PATH"
        )
    # A relative path is meant from here, not from the workspace it will run in.
    return os.path.abspath(found)  # noqa: PTH100 - resolve() would follow the link of a venv python
