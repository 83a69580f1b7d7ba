"""dm_control as shimmy registers it, with seeds that reach all of it, step limits and texts."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

__all__ = ["DmControl", "register"]

_PREFIX, _STEPS = "dm_control/", 1_000

# Where making draws: the option that takes a seed.
_CHANCE: dict[str, Callable[[int | None], dict[str, Any]]] = {
    **dict.fromkeys(("lqr-lqr_2_1-v0", "lqr-lqr_6_2-v0"), lambda s: {"task_kwargs": {"random": s}}),
    **dict.fromkeys(
        ("CmuHumanoidMazeForage-v0", "CmuHumanoidHeterogeneousForage-v0", "RodentMazeForage-v0"),
        lambda seed: {"random_state": seed},
    ),
}

# What a task pays and when it ends, by the name of its class.
_REWARDS = {
    "LQRLevel": "1 - |positions|^2 / 2 - 0.05 * |action|^2.",
    "GoToTarget": "1 in a step within reach of the target, otherwise 0.",
    "ManyGoalsMaze": "50 for each target that is reached.",
    "ManyHeterogeneousGoalsMaze": "0.01 a step, 30 for each target of one colour and -10 for each "
    "of the other.",
    "TwoTouch": "25 for the first touch and 25 for a second one after the right time; up to 0.25 a "
    "step for a hand near the target.",
}
_ENDS = {
    "LQRLevel": "When the norm of the state is below 1e-6.",
    "RunThroughCorridor": "When more than the feet is on the ground (humanoid), or the walker has "
    "fallen into a gap (rodent).",
    "GoToTarget": "When more than the feet is on the ground.",
    "ManyGoalsMaze": "When all targets are reached; for the humanoid also when more than the feet "
    "is on the ground.",
    "ManyHeterogeneousGoalsMaze": "When all targets are reached, or more than the feet is on the "
    "ground.",
}


@contextlib.contextmanager
def _private(seed: int | None) -> Iterator[None]:
    """Seed NumPy's global generator, which mazes and targets draw from, for a while."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


class DmControl(gymnasium.Env[Any, Any]):
    """A simulation in MuJoCo."""

    def __init__(self, make: Callable[..., Any], name: str, **options: Any) -> None:
        self._make, self._chance = partial(make, **options), _CHANCE.get(name)
        self._error = import_module("dm_control.rl.control").PhysicsError
        self._env = self._made(0)
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        inner = self._env._env
        limit = getattr(inner, "_step_limit", None)  # a composer's environment has no such thing
        if limit is None:
            limit = inner._time_limit / inner.control_timestep()
        self.steps = math.ceil(round(limit, 6)) if math.isfinite(limit) else _STEPS
        self.texts = _texts(name, inner, getattr(make, "keywords", {}).get("env_fn"))

    def _made(self, seed: int | None) -> Any:
        with _private(seed):
            return self._make(**(self._chance(seed) if self._chance else {}))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Reset it; make it anew if that takes the seed."""
        super().reset(seed=seed)
        if self._chance:
            self._env.close()
            self._env = self._made(seed)
        with _private(seed):
            self._last, info = self._env.reset(seed=seed)
        return self._last, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; a simulation that has diverged ends as dm_control can end it, with the reward 0."""
        try:
            self._last, reward, terminated, truncated, info = self._env.step(action)
        except self._error:
            return self._last, 0.0, True, False, {"diverged": True}
        return self._last, float(reward), terminated, truncated, info

    def close(self) -> None:
        """Free the simulation."""
        self._env.close()


def _texts(name: str, inner: Any, function: Any) -> dict[str, str]:
    task = type(inner.task)
    about = inspect.cleandoc((function or task).__doc__ or "").partition("\n\n")[0]
    count = inner.action_spec().shape[0]
    motors = (f"`{inner.physics.model.id2name(n, 'actuator')}`" for n in range(count))
    return {
        "Objective": f"dm_control's environment {name.removesuffix('-v0')}. {about}",
        "Action": "Control of the actuators, in order: " + ", ".join(motors) + ".",
        "Reward": _REWARDS.get(
            task.__name__, "Between 0 and 1 a step, larger the better the task is done."
        ),
        "Termination": _ENDS.get(task.__name__, "Not before the step limit.")
        + " When the simulation diverges, with the reward 0.",
    }


def register() -> None:
    """Put `DmControl` around what shimmy has registered."""
    for spec in gymnasium.registry.values():
        make: Any = spec.entry_point
        if spec.id.startswith(_PREFIX) and getattr(make, "func", None) is not DmControl:
            spec.entry_point = partial(DmControl, make, spec.id.removeprefix(_PREFIX))
