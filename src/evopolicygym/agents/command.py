"""`Command`: any program, run once in the workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import AgentLaunch, AgentTask, find_executable

__all__ = ["Command"]


@dataclass(frozen=True, slots=True)
class Command:
    """Any program as an agent.

    It runs once, in the workspace. It finds its task as `TASK.md`, on standard input and in
    `EVOPOLICYGYM_TASK`, and its session through `evopolicygym-session`.

    Attributes:
        argv: Program and arguments; relative paths are meant from where the Run was started.
        environment: Variables on top of the inherited ones.
        inherit: Names of further variables to take over, e.g. `("OPENAI_API_KEY",)`.
        model: Name for the record and the directory layout, or None.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[str] = ()
    model: str | None = None

    @property
    def name(self) -> str:
        """Kind of agent."""
        return "command"

    def check(self) -> None:
        """Raise `ConfigurationError` if the program can't be found."""
        if not self.argv or isinstance(self.argv, str):
            raise ConfigurationError(
                "the command agent needs a program and its arguments, e.g. -- python agent.py"
            )
        for argument in self.argv:
            if "\0" in argument or argument.encode("utf-8", "replace").decode() != argument:
                raise ConfigurationError(
                    f"argument {argument[:40]!a} of the agent is no UTF-8 text"
                )
        find_executable(self.argv[0])

    def launch(self, task: AgentTask) -> AgentLaunch:
        """Return how to start it."""
        program = find_executable(self.argv[0])
        # The workspace is the current directory there; a script named from here must be found.
        rest = [
            str(Path(argument).absolute())
            if not argument.startswith("-") and os.path.isfile(argument)  # noqa: PTH113 - never raises
            else argument
            for argument in self.argv[1:]
        ]
        return AgentLaunch(
            argv=[program, *rest],
            environment=self.environment,
            inherit=self.inherit,
            stdin=task.task.encode(),
        )

    def describe(self) -> Mapping[str, Any]:
        """Return its options; environment values may be secrets and stay out."""
        return {
            "argv": list(self.argv),
            "environment": sorted(self.environment),
            "inherit": list(self.inherit),
        }
