"""`Acp`: any agent that speaks the Agent Client Protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Literal

from evopolicygym.agents.command import absolute_argv
from evopolicygym.agents.provider import check_arguments, check_variables, described
from evopolicygym.agents.transcripts.dialogue import read_dialogue
from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import (
    AgentEvidence,
    AgentLaunch,
    AgentTask,
    AgentTurn,
    Transcript,
    find_executable,
)

__all__ = ["NEVER_BEGUN", "Acp"]

NEVER_BEGUN = 3
"""Exit code of the bridge where the agent did not start or opened no session."""


@dataclass(frozen=True, slots=True)
class Acp:
    """An agent that speaks the Agent Client Protocol on stdin and stdout.

    A bridge keeps one ACP session for all turns. It answers permission requests: what stays in
    the workspace is allowed, once; anything else is rejected.

    Attributes:
        argv: Program and arguments, e.g. `("kimi", "acp")`.
        environment: Variables on top of the inherited ones.
        inherit: Names of further variables to take over.
        model: Name for the record and the directory layout, or None.
        mode: Session mode to ask the agent for, or None.
        mcp: Whether the agent also gets the session as an MCP server.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[str] = ()
    model: str | None = None
    mode: str | None = None
    mcp: bool = False

    @property
    def name(self) -> str:
        """Kind of agent."""
        return "acp"

    @property
    def resumes(self) -> Literal["process"]:
        """One process for all turns."""
        return "process"

    def check(self) -> None:
        """Raise `ConfigurationError` if the agent can't be started here."""
        if not self.argv or isinstance(self.argv, str):
            raise ConfigurationError(
                "the acp agent needs a program and its arguments, e.g. -- kimi acp"
            )
        check_arguments(self.argv, "the agent")
        check_variables(self.environment, self.inherit)
        if find_spec("acp") is None:
            raise ConfigurationError(
                "the acp agent needs the package agent-client-protocol: "
                'pip install "evopolicygym[agents]"'
            )
        find_executable(self.argv[0])

    def version(self) -> str | None:
        """Known only once the agent runs."""
        return None

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        """Return how to start the bridge, which starts the agent."""
        server = {
            "command": task.mcp.command,
            "args": list(task.mcp.args),
            "environment": dict(task.mcp.environment),
        }
        options = {"mode": self.mode, "mcp": server if self.mcp else None}
        bridge = [sys.executable, "-P", "-m", "evopolicygym.agents.acp_bridge"]
        return AgentLaunch(
            argv=[*bridge, json.dumps(options), *absolute_argv(self.argv)],
            environment=self.environment,
            inherit=self.inherit,
            dialogue="jsonl",
        )

    def read(self, evidence: AgentEvidence) -> Transcript:
        """Return what the bridge told of it."""
        transcript = read_dialogue(evidence)
        never_begun = evidence.status == NEVER_BEGUN
        return replace(transcript, begun=False) if never_begun else transcript

    def describe(self) -> Mapping[str, Any]:
        """Return its options; environment values may be secrets and stay out."""
        return {
            **described(self.argv, self.environment, self.inherit),
            "mode": self.mode,
            "mcp": self.mcp,
        }
