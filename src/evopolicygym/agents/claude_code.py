"""`ClaudeCode`: Anthropic's Claude Code, one `claude -p` a turn."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

from evopolicygym.agents.provider import Provider, check_choice
from evopolicygym.agents.transcripts.claude_code import read_claude_code
from evopolicygym.run.agent import AgentEvidence, AgentLaunch, AgentTask, AgentTurn, Transcript

__all__ = ["ClaudeCode"]

_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_PERMISSIONS = ("bypassPermissions", "dontAsk", "acceptEdits", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeCode(Provider):
    """Claude Code, non-interactive; its stream of JSON messages is kept as evidence.

    A Run of one turn persists no session. With more turns it resumes by `--resume`, from a
    directory that is gone after the Run.

    Attributes:
        effort: How much the model thinks.
        bare: Whether it runs without hooks, plugins, memory and the caller's settings. It then
            takes its login from `ANTHROPIC_API_KEY` only.
        permission: Its permission mode.
        tools: Tools that need no permission, for modes other than `bypassPermissions`.
    """

    NAME: ClassVar[str] = "claude"
    EXECUTABLE: ClassVar[str] = "claude"
    INSTALL: ClassVar[str] = "npm install -g @anthropic-ai/claude-code"
    LOGIN: ClassVar[str] = "ANTHROPIC_API_KEY; with bare=false also claude /login"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"),
        *("CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_MAX_RETRIES"),
    )

    effort: str | None = None
    bare: bool = True
    permission: str = "bypassPermissions"
    tools: Sequence[str] = ("Bash", "Edit", "Write", "Read")

    @property
    def resumes(self) -> Literal["session"]:
        """By the session's id, in a new process."""
        return "session"

    def check(self) -> None:
        """Raise `ConfigurationError` if the client can't be started here."""
        check_choice("$.agent.effort", self.effort, _EFFORTS)
        check_choice("$.agent.permission", self.permission, _PERMISSIONS)
        Provider.check(self)

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        """Return how to start the process of a turn."""
        environment = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        argv = [self.found(), "-p", "--output-format", "stream-json", "--verbose"]
        if self.bare:
            argv += ["--bare"]
            environment["CLAUDE_CONFIG_DIR"] = str(task.state / "claude")
        if task.max_turns == 1:
            argv += ["--no-session-persistence"]
        elif turn.session_id is not None:
            argv += ["--resume", turn.session_id]
        if self.model is not None:
            argv += ["--model", self.model]
        if self.effort is not None:
            argv += ["--effort", self.effort]
        argv += ["--permission-mode", self.permission]
        if self.permission != "bypassPermissions":
            tools = [*self.tools, *(["mcp__evopolicygym"] if self.mcp else [])]
            argv += ["--allowedTools", ",".join(tools)]
        elif os.geteuid() == 0:
            # As root it refuses that mode unless it is told that somebody took care of the walls.
            environment["IS_SANDBOX"] = "1"
        if self.mcp:
            servers = json.dumps(task.mcp.configuration())
            argv += ["--mcp-config", servers, "--strict-mcp-config"]
        return AgentLaunch(
            argv=[*argv, *self.args],
            environment={**environment, **self.environment},
            inherit=self.inherited,
            stdin=self.prompt(turn).encode(),
            closing_events=[("type", "result")],
            secret_files=[self._home() / ".credentials.json"],
        )

    def _home(self) -> Path:
        named = self.variable("CLAUDE_CONFIG_DIR")
        return Path(named) if named else self.user_home() / ".claude"

    def read(self, evidence: AgentEvidence) -> Transcript:
        """Return what a process of it left behind."""
        transcript = read_claude_code(evidence)
        # What was not persisted can't be resumed.
        return transcript if evidence.task.max_turns > 1 else replace(transcript, session_id=None)
