"""`Codex`: OpenAI's Codex CLI, one `codex exec` a turn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from evopolicygym.agents.provider import Provider, check_choice, check_home
from evopolicygym.agents.transcripts.codex import read_codex
from evopolicygym.run.agent import (
    AgentEvidence,
    AgentLaunch,
    AgentTask,
    AgentTurn,
    McpServer,
    Transcript,
)

__all__ = ["Codex"]

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Codex(Provider):
    """Codex CLI, non-interactive; its JSON events are kept as evidence.

    It resumes by `codex exec resume`. Login and settings are those of `CODEX_HOME`.

    Attributes:
        reasoning_effort: How much the model thinks; Codex passes it on unchecked, so it is
            checked here.
        bypass: Whether Codex runs commands without its own sandbox, which lets them write to the
            workspace only. The session can be reached either way.
        home: `CODEX_HOME` for it, absolute; None for the caller's.
    """

    NAME: ClassVar[str] = "codex"
    EXECUTABLE: ClassVar[str] = "codex"
    INSTALL: ClassVar[str] = "npm install -g @openai/codex"
    LOGIN: ClassVar[str] = "codex login, or CODEX_API_KEY"
    VARIABLES: ClassVar[tuple[str, ...]] = (*("CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY"),)

    reasoning_effort: str | None = None
    bypass: bool = True
    home: str | None = None

    @property
    def resumes(self) -> Literal["session"]:
        """By the thread's id, in a new process."""
        return "session"

    def check(self) -> None:
        """Raise `ConfigurationError` if the client can't be started here."""
        check_choice("$.agent.reasoning_effort", self.reasoning_effort, _EFFORTS)
        check_home(self.home)
        Provider.check(self)

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        """Return how to start the process of a turn."""
        argv = [self.found(), "exec"]
        if turn.session_id is not None:
            argv += ["resume", turn.session_id]
        argv += ["--json", "--skip-git-repo-check"]
        # The workspace's AGENTS.md is the task; one of a repository around it is not.
        argv += ["-c", "project_root_markers=[]"]
        # A login shell takes PATH from the system's profile and loses the session's commands.
        argv += ["-c", "allow_login_shell=false"]
        if self.bypass:
            argv += ["--dangerously-bypass-approvals-and-sandbox"]
        else:
            argv += ["-c", "sandbox_mode=workspace-write"]
            argv += ["-c", "sandbox_workspace_write.network_access=true"]
        if self.model is not None:
            argv += ["-m", self.model]
        if self.reasoning_effort is not None:
            argv += ["-c", f"model_reasoning_effort={self.reasoning_effort}"]
        if self.mcp:
            argv += ["-c", f"mcp_servers.evopolicygym={_toml(task.mcp)}"]
        return AgentLaunch(
            argv=[*argv, *self.args, "-"],
            environment={**({"CODEX_HOME": self.home} if self.home else {}), **self.environment},
            inherit=self.inherited,
            stdin=self.prompt(turn).encode(),
            closing_events=[("type", "turn.completed"), ("type", "turn.failed")],
            secret_files=[self._home() / "auth.json", self._home() / "config.toml"],
        )

    def read(self, evidence: AgentEvidence) -> Transcript:
        """Return what a process of it left behind."""
        return read_codex(evidence, self._home())

    def _home(self) -> Path:
        named = self.home or self.variable("CODEX_HOME")
        return Path(named) if named else self.user_home() / ".codex"


_text = json.JSONEncoder(ensure_ascii=False).encode


def _toml(server: McpServer) -> str:
    """Return an MCP server as an inline table; JSON strings are TOML ones, DEL aside."""
    variables = ",".join(f"{name}={_text(v)}" for name, v in server.environment.items())
    command, args = _text(server.command), _text(list(server.args))
    table = f"{{command={command},args={args},env={{{variables}}},tool_timeout_sec=3600}}"
    return table.replace("\x7f", "\\u007f")
