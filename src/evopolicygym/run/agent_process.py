"""One process of an agent, under its supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from evopolicygym.errors import ExecutionError
from evopolicygym.execution.zygote_client import policy_environment, python_module
from evopolicygym.run.agent import AgentLaunch

__all__ = ["INHERITED_VARIABLES", "AgentEnd", "AgentProcess", "Line", "agent_environment"]

INHERITED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR"),
    *("LANG", "LC_ALL", "LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What an agent's environment takes over from the Host's; everything else is asked for by name."""


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


@dataclass(frozen=True, slots=True)
class Line:
    """One line of stdout in a dialogue.

    Attributes:
        text: The line, without its line feed.
        bad: Why there is no text, or None.
    """

    text: str = ""
    bad: str | None = None


def agent_environment(launch: AgentLaunch, session: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of an agent's process.

    Args:
        launch: What the provider asks for.
        session: Variables that lead the agent to its session.
    """
    environment = {
        name: os.environ[name]
        for name in (*INHERITED_VARIABLES, *launch.inherit)
        if name in os.environ
    }
    environment |= {**launch.environment, **session}
    # The session's command line, and a Python with numpy, are first on the agent's path.
    tools = os.path.dirname(os.path.abspath(sys.executable))  # noqa: PTH100, PTH120
    environment["PATH"] = os.pathsep.join([tools, environment.get("PATH", os.defpath)])
    return environment


class AgentProcess:
    """A running agent under its supervisor; use it as a context manager.

    The supervisor is the subreaper of everything the agent starts. When the agent ends, when it is
    told to stop and when this Host dies, it ends all of that.

    Args:
        launch: What to start.
        environment: See `agent_environment`.
        secrets: What is kept out of the logs, by the name it is known by.
        workspace: Current directory of the agent.
        logs: Directory for `stdout.txt` and `stderr.txt`, capped.

    Attributes:
        end: How it ended, or None while it runs.
        closing_seen: `time.monotonic()` of the closing event, or None as long as there is none,
            and again once the client goes on.
        lines: Lines of a dialogue that nobody has taken yet.
    """

    def __init__(
        self,
        launch: AgentLaunch,
        environment: Mapping[str, str],
        *,
        secrets: Mapping[str, str],
        workspace: Path,
        logs: Path,
    ) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "stdin.txt").write_bytes(launch.stdin)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        order = {
            "argv": list(launch.argv),
            "environment": dict(environment),
            "secrets": dict(secrets),
            "workspace": str(workspace),
            "logs": str(logs),
            "closing_events": list(launch.closing_events),
            "dialogue": launch.dialogue,
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
        self._received = b""
        self.end: AgentEnd | None = None
        self.closing_seen: float | None = None
        self.lines: deque[Line] = deque()
        self._muted = False
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
        """Wait up to `timeout` seconds for news; return how the agent ended, or None."""
        if self.end is None and select.select([self._control], [], [], timeout)[0]:
            try:
                data = self._control.recv(1 << 18)
            except OSError:
                data = b""
            if not data:
                # A supervisor that is lost took its knowledge with it: nothing is claimed then.
                self.end = AgentEnd(None, False, "the agent's supervisor was lost")
            self._received += data
            *lines, self._received = self._received.split(b"\n")
            for line in lines:
                self._take(json.loads(line))
        return self.end

    def _take(self, message: dict[str, Any]) -> None:
        if "end" in message:
            self.end = AgentEnd(**message["end"])
        elif "closing" in message:
            self.closing_seen = time.monotonic() if message["closing"] else None
        elif not self._muted:
            self.lines.append(Line(message.get("line", ""), message.get("bad")))

    def prompt(self, line: str) -> None:
        """Write a line to the agent's standard input; does not wait for it to be read."""
        self._order({"prompt": line})

    def close_input(self) -> None:
        """Close the agent's standard input once everything is written."""
        self._order({"close": True})

    def mute(self) -> None:
        """Take no more lines."""
        self._muted = True
        self._order({"mute": True})
        self.lines.clear()

    def _order(self, order: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it is gone; `poll` will say so
            self._control.sendall(json.dumps(order).encode() + b"\n")

    def stop(self, *, grace: float) -> AgentEnd:
        """SIGTERM, wait up to `grace` seconds, SIGKILL everything.

        Raises:
            ExecutionError: The supervisor does not answer.
        """
        self.mute()
        self._order({"stop": grace})
        deadline = time.monotonic() + grace + 30
        while self.poll(max(0.0, deadline - time.monotonic())) is None:
            if time.monotonic() > deadline:
                raise ExecutionError("the agent's supervisor does not answer")
        assert self.end is not None
        return self.end
