"""`Command`: any program, asked once or turn by turn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from evopolicygym.agents.provider import (
    check_arguments,
    check_choice,
    check_variables,
    described,
)
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

__all__ = ["Command", "absolute_argv"]


def absolute_argv(argv: Sequence[str]) -> list[str]:
    """Return a command line that means in the workspace what it means here.

    Raises:
        ConfigurationError: The program can't be found.
    """
    return [
        find_executable(argv[0]),
        *(
            str(Path(argument).absolute())
            if not argument.startswith("-") and os.path.isfile(argument)  # noqa: PTH113 - never raises
            else argument
            for argument in argv[1:]
        ),
    ]


@dataclass(frozen=True, slots=True)
class Command:
    """Any program as an agent, in the workspace.

    It finds its task as `TASK.md` and in `EVOPOLICYGYM_TASK`, and its session through
    `evopolicygym-session`. What it reads and writes besides is up to `protocol`.

    Attributes:
        argv: Program and arguments; relative paths are meant from where the Run was started.
        environment: Variables on top of the inherited ones.
        inherit: Names of further variables to take over, e.g. `("OPENAI_API_KEY",)`.
        model: Name for the record and the directory layout, or None.
        protocol: `jsonl` reads one prompt line and writes one answer line a turn; `oneshot` reads
            the task to its end and runs once; `auto` is offered the first prompt line and is
            taken as one-shot if it does not answer so.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: Sequence[str] = ()
    model: str | None = None
    protocol: Literal["auto", "jsonl", "oneshot"] = "auto"

    @property
    def name(self) -> str:
        """Kind of agent."""
        return "command"

    @property
    def resumes(self) -> Literal["process", "never"]:
        """One process for all turns, if it speaks the protocol."""
        return "never" if self.protocol == "oneshot" else "process"

    def check(self) -> None:
        """Raise `ConfigurationError` if the program can't be found."""
        if not self.argv or isinstance(self.argv, str):
            raise ConfigurationError(
                "the command agent needs a program and its arguments, e.g. -- python agent.py"
            )
        check_choice("$.agent.protocol", self.protocol, ("auto", "jsonl", "oneshot"))
        check_arguments(self.argv, "the agent")
        check_variables(self.environment, self.inherit)
        find_executable(self.argv[0])

    def version(self) -> str | None:
        """It has no version that anybody knows."""
        return None

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        """Return how to start it."""
        return AgentLaunch(
            argv=absolute_argv(self.argv),
            environment=self.environment,
            inherit=self.inherit,
            stdin=task.task.encode(),
            dialogue=None if self.protocol == "oneshot" else self.protocol,
        )

    def read(self, evidence: AgentEvidence) -> Transcript:
        """Return what it answered."""
        return Transcript() if self.protocol == "oneshot" else read_dialogue(evidence)

    def describe(self) -> Mapping[str, Any]:
        """Return its options; environment values may be secrets and stay out."""
        return {
            **described(self.argv, self.environment, self.inherit),
            "protocol": self.protocol,
        }
