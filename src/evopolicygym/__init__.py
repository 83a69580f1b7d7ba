"""EvoPolicyGym: can a coding agent improve a policy from a limited budget of feedback?

Importing this package loads nothing else; names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evopolicygym.evaluation import EvaluationConfig, EvaluationResult, evaluate
    from evopolicygym.program import Program, ProgramLimits

__version__ = "0.3.0"

__all__ = [
    "EvaluationConfig",
    "EvaluationResult",
    "Program",
    "ProgramLimits",
    "__version__",
    "evaluate",
]

_HOMES = {
    "EvaluationConfig": "evopolicygym.evaluation",
    "EvaluationResult": "evopolicygym.evaluation",
    "evaluate": "evopolicygym.evaluation",
    "Program": "evopolicygym.program",
    "ProgramLimits": "evopolicygym.program",
}


def __getattr__(name: str) -> Any:
    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(importlib.import_module(home), name)
