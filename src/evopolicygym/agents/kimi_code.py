"""`KimiCode`: Moonshot's Kimi Code, one `kimi -p` a turn."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from evopolicygym.agents.provider import Provider
from evopolicygym.agents.transcripts.kimi_code import read_kimi_code
from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import AgentEvidence, AgentLaunch, AgentTask, AgentTurn, Transcript

__all__ = ["KimiCode"]

_LOGIN_FILES = ("config.toml", "credentials")
"""What a fresh home takes over from the caller's, so that a login there is good here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KimiCode(Provider):
    """Kimi Code, non-interactive; its JSON messages and wire files are kept as evidence.

    It resumes by `-S`. It has no way to leave nothing behind, so each Run gets a home of its own,
    with the caller's settings and login but without its history; it is gone after the Run.

    Attributes:
        home: `KIMI_CODE_HOME` for it, absolute and kept; None for a fresh one.
    """

    NAME: ClassVar[str] = "kimi"
    EXECUTABLE: ClassVar[str] = "kimi"
    INSTALL: ClassVar[str] = "npm install -g @moonshot-ai/kimi-code"
    LOGIN: ClassVar[str] = "kimi, then /login, or KIMI_MODEL_NAME with KIMI_MODEL_API_KEY"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        *("KIMI_MODEL_NAME", "KIMI_MODEL_API_KEY", "KIMI_MODEL_BASE_URL"),
        *("KIMI_MODEL_PROVIDER_TYPE", "KIMI_MODEL_THINKING_EFFORT"),
        "KIMI_LOOP_MAX_STEPS_PER_TURN",
    )

    home: str | None = None

    @property
    def resumes(self) -> Literal["session"]:
        """By the session's id, in a new process."""
        return "session"

    def check(self) -> None:
        """Raise `ConfigurationError` if the client can't be started here."""
        if self.home is not None and self.mcp:
            raise ConfigurationError(
                "$.agent.mcp: Kimi Code takes MCP servers from its home only, and the one given "
                "with $.agent.home is yours: leave out one of the two"
            )
        Provider.check(self)

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        """Return how to start the process of a turn."""
        home = self._home(task)
        if self.home is None and not home.exists():
            self._prepare(home, task)
        # It reads AGENTS.md of all directories up to a `.git`: only the workspace's is meant.
        with contextlib.suppress(FileExistsError):  # the agent may have put a file there
            (task.workspace / ".git").mkdir()
        argv = [self.found()]
        if self.model is not None:
            argv += ["-m", self.model]
        if turn.session_id is not None:
            argv += ["-S", turn.session_id]
        # It takes a prompt as an argument only.
        argv += ["-p", self.prompt(turn), "--output-format", "stream-json"]
        return AgentLaunch(
            argv=[*argv, *self.args],
            environment={
                "KIMI_CODE_HOME": str(home),
                "KIMI_CODE_NO_AUTO_UPDATE": "1",
                **self.environment,
            },
            inherit=self.inherited,
            closing_events=[("type", "session.resume_hint")],
        )

    def read(self, evidence: AgentEvidence) -> Transcript:
        """Return what a process of it left behind."""
        return read_kimi_code(evidence, self._home(evidence.task))

    def _home(self, task: AgentTask) -> Path:
        return Path(self.home) if self.home is not None else task.state / "kimi"

    def _prepare(self, home: Path, task: AgentTask) -> None:
        home.mkdir(mode=0o700, parents=True)
        login = Path.home() / ".kimi-code"
        for name in _LOGIN_FILES:
            source = login / name
            if source.is_dir():
                shutil.copytree(source, home / name)
            elif source.is_file():
                shutil.copy(source, home / name)
        if self.mcp:
            server = {
                "command": task.mcp.command,
                "args": list(task.mcp.args),
                "env": dict(task.mcp.environment),
            }
            (home / "mcp.json").write_text(json.dumps({"mcpServers": {"evopolicygym": server}}))
