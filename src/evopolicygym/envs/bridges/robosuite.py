"""robosuite's environments with Panda arms, without cameras, with flat observations.

They take a seed when they are made, and only then: each is made at its reset.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from itertools import accumulate
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from evopolicygym.envs.bridges import declare

__all__ = ["Robosuite", "register"]

_STEPS = 1_000  # the package's own horizon


class _InOrder(np.random.Generator):
    """Chooses from a list as if it were sorted: the package makes its lists of names from sets."""

    def choice(self, a: Any, *args: Any, **kwargs: Any) -> Any:
        return super().choice(sorted(a) if isinstance(a, list) else a, *args, **kwargs)


def _make(name: str, reward_shaping: bool, seed: int | None) -> Any:
    env = import_module("robosuite").make(
        name,
        robots=["Panda", "Panda"] if "TwoArm" in name else "Panda",
        reward_shaping=reward_shaping,
        seed=seed,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        renderer="mujoco",  # the other one opens a viewer
        hard_reset=False,  # nothing is left to forget: it was made a moment ago
        ignore_done=True,  # the Host keeps the step limit
    )
    env.rng = _InOrder(env.rng.bit_generator)
    return import_module("robosuite.wrappers").GymWrapper(env)


@cache  # it takes an environment, which takes a second
def _about(name: str, reward_shaping: bool) -> tuple[Box, Box, dict[str, str]]:
    """Return the spaces and what the package says about an environment."""
    env = _make(name, reward_shaping, 0)
    objective, reward = (
        inspect.cleandoc(thing.__doc__ or "").partition("Args:")[0].strip()
        for thing in (type(env.env), type(env.env).reward)
    )
    parts = [
        (part.name, np.size(part.obs))
        for key in env.keys
        for part in env.env._observables.values()
        if part.modality == key.removesuffix("-state") and part.is_enabled() and part.is_active()
    ]
    ends = accumulate(size for _, size in parts)
    texts = {
        "Objective": f"robosuite's environment {name}. {objective}",
        "Observation": "First and last element, and what they belong to:\n\n"
        + "\n".join(
            f"- {end - size} to {end - 1}: `{part}`"
            for (part, size), end in zip(parts, ends, strict=True)
        ),
        "Action": "For each arm: displacement of the hand in x, y and z (1 is 0.05 m), rotation "
        "about x, y and z (1 is 0.5 rad), both in the frame of the arm's base; then, if it has a "
        "gripper, above 0 to close it and below 0 to open it. 20 actions a second.",
        "Reward": f"{reward}\n\nReward shaping is {'on' if reward_shaping else 'off'} (some "
        "environments have none).",
        "Termination": "When everything is wiped, the arm touches the table, or a joint is at its "
        "limit."
        if name == "Wipe"
        else "Never before the step limit, done or not.",
        "Notes": "The seed draws where things are, the pose of the arm and, if there is one object "
        "of several (`Single`), which: the observation is of that one, whatever it is named here.",
    }
    env.close()
    low, high = env.action_space.low, env.action_space.high
    # The wrapper says float32, but gives float64.
    return Box(-np.inf, np.inf, env.observation_space.shape, np.float64), Box(low, high), texts


class Robosuite(gymnasium.Env[Any, Any]):
    """Robot arms at a table."""

    _env: Any = None

    def __init__(self, name: str, reward_shaping: bool = True) -> None:
        self._options = name, reward_shaping
        self.observation_space, self.action_space, self.texts = _about(*self._options)
        self.parameters = {"reward_shaping": reward_shaping}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Make the package's environment."""
        super().reset(seed=seed)
        self.close()
        self._env = _make(*self._options, seed)
        observation, info = self._env.reset()  # no seed: it would go to the global generator
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the package's environment."""
        observation, reward, done, _, info = self._env.step(action)
        return observation, float(reward), bool(done), False, info

    def close(self) -> None:
        """Close the package's environment, if there is one."""
        env, self._env = self._env, None
        if env is not None:
            env.close()


def register() -> None:
    """Declare `robosuite/<Name>` for every environment."""
    for name in import_module("robosuite").ALL_ENVIRONMENTS:
        declare(f"robosuite/{name}", Robosuite, _STEPS, name=name)
