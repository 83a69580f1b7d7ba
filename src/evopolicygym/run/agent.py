"""What a Run needs from an agent provider, and how it runs the agent's process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from evopolicygym.errors import ConfigurationError, ExecutionError
from evopolicygym.execution.zygote_client import policy_environment, python_module

__all__ = [
    "INHERITED_VARIABLES",
    "Agent",
    "AgentEnd",
    "AgentLaunch",
    "AgentProcess",
    "AgentTask",
    "find_executable",
]

INHERITED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR"),
    *("LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What an agent's environment takes over from the Host's; everything else is asked for by name."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    """What a provider gets to know when it launches its agent.

    Attributes:
        workspace: The agent's current directory.
        task: Content of `TASK.md`.
        seed: A seed for agents that draw random numbers; not the Run's.
    """

    workspace: Path
    task: str
    seed: int


@dataclass(frozen=True, slots=True)
class AgentLaunch:
    """How to start an agent.

    Attributes:
        argv: Program and arguments.
        environment: Variables on top of the inherited ones.
        inherit: Names of further variables to take over from the Host.
        stdin: What the agent reads on standard input.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[str] = ()
    stdin: bytes = b""


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

    def check(self) -> None:
        """Raise `ConfigurationError` if the agent can't be started here."""
        ...

    def launch(self, task: AgentTask) -> AgentLaunch:
        """Return how to start it."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return its options for the record: JSON, no secrets."""
        ...


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """How an agent process ended.

    Attributes:
        status: Exit code, or minus the signal number; None if that is not known.
        clean: Whether nothing that it started survived, as far as is known.
        error: Why it did not start or was lost, or None.
        started: Whether it ran at all.
    """

    status: int | None
    clean: bool
    error: str | None = None
    started: bool = True


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


class AgentProcess:
    """A running agent under its supervisor; use it as a context manager.

    The supervisor is the subreaper of everything the agent starts. When the agent ends, when it is
    told to stop and when this Host dies, it ends all of that.

    Args:
        launch: What to start.
        workspace: Current directory of the agent.
        logs: Directory for `stdout.txt` and `stderr.txt`, capped.
        session: Variables that lead the agent to its session.
    """

    def __init__(
        self, launch: AgentLaunch, *, workspace: Path, logs: Path, session: Mapping[str, str]
    ) -> None:
        environment = {
            name: os.environ[name]
            for name in (*INHERITED_VARIABLES, *launch.inherit)
            if name in os.environ
        }
        environment |= {**launch.environment, **session}
        # The session's command line, and a Python with numpy, are first on the agent's path.
        tools = os.path.dirname(os.path.abspath(sys.executable))  # noqa: PTH100, PTH120
        environment["PATH"] = os.pathsep.join([tools, environment.get("PATH", os.defpath)])
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "stdin.txt").write_bytes(launch.stdin)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        order = {
            "argv": list(launch.argv),
            "environment": environment,
            "workspace": str(workspace),
            "logs": str(logs),
        }
        with theirs:
            self._process = subprocess.Popen(
                [*python_module("evopolicygym.run.supervisor"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                env=policy_environment(),
                start_new_session=True,
            )
        self._control = ours
        self.end: AgentEnd | None = None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(json.dumps(order).encode())

    def __enter__(self) -> AgentProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.end is None:
            self.stop(grace=0.0)
        self._control.close()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def poll(self, timeout: float) -> AgentEnd | None:
        """Wait up to `timeout` seconds; return how the agent ended, or None while it runs."""
        if self.end is None and select.select([self._control], [], [], timeout)[0]:
            try:
                data = self._control.recv(65536)
            except OSError:
                data = b""
            # A supervisor that is lost took its knowledge with it: nothing is claimed then.
            self.end = (
                AgentEnd(**json.loads(data))
                if data
                else AgentEnd(None, False, "the agent's supervisor was lost")
            )
        return self.end

    def stop(self, *, grace: float) -> AgentEnd:
        """SIGTERM, wait up to `grace` seconds, SIGKILL everything.

        Raises:
            ExecutionError: The supervisor does not answer.
        """
        with contextlib.suppress(OSError):
            self._control.send(json.dumps({"grace": grace}).encode())
        deadline = time.monotonic() + grace + 30
        while self.poll(max(0.0, deadline - time.monotonic())) is None:
            if time.monotonic() > deadline:
                raise ExecutionError("the agent's supervisor does not answer")
        assert self.end is not None
        return self.end
