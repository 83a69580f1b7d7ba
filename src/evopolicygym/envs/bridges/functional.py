"""Gymnasium's environments on JAX: compile once a process, not once an Episode."""

from __future__ import annotations

import re
from functools import cache
from inspect import cleandoc
from typing import Any

import gymnasium

__all__ = ["wrap"]

_REWARDS = {
    "CartPoleFunctional": "1 a step.",
    "PendulumFunctional": "-(angle² + 0.1 angular velocity² + 0.001 torque²); the angle is 0 "
    "upright.",
    "BlackjackFunctional": "1 for a win, -1 for a loss, else 0.",
    "CliffWalkingFunctional": "-1 a step, -100 for a step into the cliff.",
}


def wrap(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Replace the functions, which are pure, by those that were compiled before."""
    outer: Any = env.unwrapped
    kind: Any = type(outer.func_env)
    if not outer.spec.kwargs:
        outer.func_env = _compiled(kind)
    outer.texts = {
        "Objective": re.sub(r"(?m)^#+ +", "", cleandoc(kind.__doc__ or "")),
        "Reward": _REWARDS.get(kind.__name__, ""),
    }
    return env


@cache
def _compiled(kind: Any) -> Any:
    import jax

    func_env = kind()
    func_env.transform(jax.jit)
    return func_env
