"""`KimiCode`: Moonshot's Kimi Code, one `kimi -p` a turn."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from evopolicygym.agents.provider import Provider, check_home
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
        check_home(self._own_home)
        if self._own_home is not None and self.mcp:
            raise ConfigurationError(
                "$.agent.mcp: Kimi Code takes MCP servers from its home only, and the one given "
                "with $.agent.home is yours: leave out one of the two"
            )
        Provider.check(self)

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        """Return how to start the process of a turn."""
        home = self._home(task)
        if self._own_home is None and not home.exists():
            self._prepare(home, task)
        # It reads AGENTS.md of all directories up to a `.git`: only the workspace's is meant.
        with contextlib.suppress(OSError):  # a file of the agent there, or it removed its workspace
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
            secret_files=[home / "config.toml", *sorted(home.glob("credentials/*.json"))],
        )

    def read(self, evidence: AgentEvidence) -> Transcript:
        """Return what a process of it left behind."""
        own = self._own_home is None
        return read_kimi_code(evidence, self._home(evidence.task), own_home=own)

    @property
    def _own_home(self) -> str | None:
        """The caller's, or None for a fresh one."""
        return self.home or self.environment.get("KIMI_CODE_HOME")

    def _home(self, task: AgentTask) -> Path:
        return Path(self._own_home) if self._own_home else task.state / "kimi"

    def _prepare(self, home: Path, task: AgentTask) -> None:
        home.mkdir(mode=0o700, parents=True)
        named = os.environ.get("KIMI_CODE_HOME")
        login = Path(named) if named else self.user_home() / ".kimi-code"
        for name in _LOGIN_FILES:
            source = login / name
            if source.is_dir():
                shutil.copytree(source, home / name, ignore_dangling_symlinks=True)
            elif source.is_file():
                shutil.copy(source, home / name)
        if self.mcp:
            (home / "mcp.json").write_text(json.dumps(task.mcp.configuration()))
