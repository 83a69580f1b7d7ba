"""What all providers of command-line clients share: options, checks, the first prompt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import AgentLaunch, AgentTurn, find_executable
from evopolicygym.run.agent_process import agent_environment
from evopolicygym.run.redaction import Redactor, one_line, redacted_argv

__all__ = [
    "FIRST_PROMPT",
    "Provider",
    "check_arguments",
    "check_choice",
    "check_home",
    "check_variables",
    "described",
]

FIRST_PROMPT = (
    "Your task is in TASK.md, in the current directory. Read all of it first, then carry it out."
)
"""What a client that can read files is told; `TASK.md` itself may be long."""

_VERSION_SECONDS = 20.0
_NETWORK_VARIABLES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    "NODE_EXTRA_CA_CERTS",
)


def check_arguments(argv: Sequence[str], what: str) -> None:
    """Check that `argv` can be passed to a program.

    Raises:
        ConfigurationError: Names the argument.
    """
    for argument in argv:
        if "\0" in argument or argument.encode("utf-8", "replace").decode() != argument:
            raise ConfigurationError(f"argument {argument[:40]!a} of {what} is no UTF-8 text")


def check_variables(environment: Mapping[str, str], inherit: Sequence[str]) -> None:
    """Check that variables can be set.

    Raises:
        ConfigurationError: Names the variable.
    """
    for name in (*environment, *inherit):
        if not name or "=" in name or "\0" in name:
            raise ConfigurationError(f"{name[:40]!a} can't name a variable")
    for name, value in environment.items():
        if "\0" in value:
            raise ConfigurationError(f"the variable {name} holds a NUL character")


def check_home(home: str | None) -> None:
    """Check that a client's home is absolute: it runs in another directory.

    Raises:
        ConfigurationError: It is not.
    """
    if home is not None and not Path(home).is_absolute():
        raise ConfigurationError(f"$.agent.home is {home!r}, expected an absolute path")


def described(
    argv: Sequence[str], environment: Mapping[str, str], inherit: Sequence[str]
) -> dict[str, Any]:
    """Return how a program is started, for the record; values of variables stay out."""
    return {
        "argv": redacted_argv(argv, Redactor({})),
        "environment": sorted(environment),
        "inherit": list(inherit),
    }


def check_choice(path: str, value: str | None, known: Sequence[str]) -> None:
    """Check that an option is None or one of the words that the client knows.

    Raises:
        ConfigurationError: Names `path` and the words.
    """
    if value is not None and value not in known:
        raise ConfigurationError(f"{path} is {value!r}, expected one of {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Options that every client has.

    Attributes:
        model: Name of the model for the client, or None for the client's own choice.
        executable: Name on PATH or path of the client; None for its usual name.
        args: Further arguments for the client.
        environment: Variables on top of the inherited ones.
        inherit: Names of further variables to take over from the Host.
        mcp: Whether the client also gets the session as an MCP server.
    """

    NAME: ClassVar[str]
    EXECUTABLE: ClassVar[str]
    INSTALL: ClassVar[str]
    LOGIN: ClassVar[str]
    VARIABLES: ClassVar[tuple[str, ...]]

    model: str | None = None
    executable: str | None = None
    args: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[str] = ()
    mcp: bool = False

    @property
    def name(self) -> str:
        """Kind of agent."""
        return self.NAME

    @property
    def inherited(self) -> tuple[str, ...]:
        """Every variable that the client takes over from the Host."""
        return (*_NETWORK_VARIABLES, *self.VARIABLES, *self.inherit)

    def found(self) -> str:
        """Return the path of the client.

        Raises:
            ConfigurationError: It is not installed; says how to install it.
        """
        name = self.executable or self.EXECUTABLE
        try:
            return find_executable(name, self.environment)
        except ConfigurationError:
            raise ConfigurationError(
                f"{name!r} was not found or is not executable: install it with "
                f"`{self.INSTALL}`, or name it with the option executable"
            ) from None

    def check(self) -> None:
        """Raise `ConfigurationError` if the client can't be started here."""
        model = [] if self.model is None else [self.model]
        check_arguments([*model, *self.args], f"the {self.NAME} agent")
        check_variables(self.environment, self.inherit)
        self.found()

    def version(self) -> str | None:
        """Return what the client says its version is, or None."""
        try:
            process = subprocess.Popen(
                [self.found(), "--version"],
                env=agent_environment(AgentLaunch([], self.environment), {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ConfigurationError):
            return None
        with process:
            try:
                said, _ = process.communicate(timeout=_VERSION_SECONDS)
            except subprocess.TimeoutExpired:
                said = b""
            finally:  # a client that hangs, or that left something running, is no reason to wait
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        lines = said.decode(errors="replace").strip().splitlines()
        return one_line(lines[-1], 100) if lines and process.returncode == 0 else None

    def describe(self) -> Mapping[str, Any]:
        """Return the options; values of variables may be secrets and stay out."""
        options = {one.name: getattr(self, one.name) for one in fields(self)}
        options["args"] = redacted_argv(self.args, Redactor({}))
        options["environment"] = sorted(self.environment)
        options["inherit"] = list(self.inherited)
        return {name: str(v) if isinstance(v, Path) else v for name, v in options.items()}

    def variable(self, name: str) -> str | None:
        """Return what a variable will be for the client, or None."""
        return self.environment.get(name) or os.environ.get(name)

    def user_home(self) -> Path:
        """Return what the client takes for the user's home directory."""
        return Path(self.environment.get("HOME") or Path.home())

    @staticmethod
    def prompt(turn: AgentTurn) -> str:
        """Return what to say in a turn."""
        return FIRST_PROMPT if turn.number == 1 and turn.session_id is None else turn.message
