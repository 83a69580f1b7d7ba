"""`Search`: the built-in agent. It needs no network, no key and no language model."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evopolicygym import __version__
from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import AgentEvidence, AgentLaunch, AgentTask, AgentTurn, Transcript

__all__ = ["Search"]


@dataclass(frozen=True, slots=True)
class Search:
    """Random search or CMA-ES over a small policy; an honest baseline.

    Attributes:
        algorithm: `cma`, `ars` (augmented random search), or `auto` by the number of parameters.
        hidden: Hidden units of the policy; 0 is linear. Discrete observations get a table.
        sigma: Standard deviation of the first draws.
    """

    algorithm: Literal["auto", "cma", "ars"] = "auto"
    hidden: int = 0
    sigma: float = 1.0

    @property
    def name(self) -> str:
        """Kind of agent."""
        return "search"

    @property
    def model(self) -> str | None:
        """There is no model."""
        return None

    def check(self) -> None:
        """Raise `ConfigurationError` if an option is out of range."""
        if self.algorithm not in ("auto", "cma", "ars"):
            raise ConfigurationError(
                f"$.agent.algorithm is {self.algorithm!r}, expected 'auto', 'cma' or 'ars'"
            )
        if not 0 <= self.hidden <= 256:
            raise ConfigurationError(f"$.agent.hidden is {self.hidden}, expected 0 to 256")
        if not 0 < self.sigma < 1_000:
            raise ConfigurationError(f"$.agent.sigma is {self.sigma}, expected a number > 0")

    @property
    def resumes(self) -> Literal["never"]:
        """It searches until the budget is spent, in one turn."""
        return "never"

    def version(self) -> str | None:
        """It is of this package's version."""
        return __version__

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        """Return how to start it."""
        options = json.dumps({**self.describe(), "seed": task.seed})
        command = [sys.executable, "-P", "-m", "evopolicygym.agents.search_agent", options]
        return AgentLaunch(argv=command, environment={"PYTHONDONTWRITEBYTECODE": "1"})

    def read(self, evidence: AgentEvidence) -> Transcript:
        """It leaves nothing behind that needs reading."""
        return Transcript()

    def describe(self) -> Mapping[str, Any]:
        """Return its options."""
        return {"algorithm": self.algorithm, "hidden": self.hidden, "sigma": self.sigma}
