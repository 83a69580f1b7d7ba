"""A Run: one agent, one Benchmark, one budget.

Names are resolved on first use, so that the session's command line, which lives in this package,
starts fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evopolicygym.run.agent import Agent, AgentLaunch, AgentTask
    from evopolicygym.run.config import AssessmentConfig, RunConfig, ValidationConfig
    from evopolicygym.run.loop import run
    from evopolicygym.run.models import TerminalReason
    from evopolicygym.run.result import PublishedSubmission, RunEvent, RunResult

__all__ = [
    "Agent",
    "AgentLaunch",
    "AgentTask",
    "AssessmentConfig",
    "PublishedSubmission",
    "RunConfig",
    "RunEvent",
    "RunResult",
    "TerminalReason",
    "ValidationConfig",
    "run",
]

_HOMES = {
    "Agent": "agent",
    "AgentLaunch": "agent",
    "AgentTask": "agent",
    "AssessmentConfig": "config",
    "RunConfig": "config",
    "ValidationConfig": "config",
    "run": "loop",
    "TerminalReason": "models",
    "PublishedSubmission": "result",
    "RunEvent": "result",
    "RunResult": "result",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
