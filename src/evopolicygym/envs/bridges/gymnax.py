"""Gymnax, and Craftax with the same interface: environments as pure functions of JAX."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict
from functools import cache
from inspect import cleandoc, getmodule
from pathlib import Path
from typing import Any

import gymnasium
import gymnasium.spaces as gs
import numpy as np

from evopolicygym.envs.bridges import declare

__all__ = ["keep_compiled", "register"]

_CRAFTAX = ("Symbolic", "Pixels", "Classic-Symbolic", "Classic-Pixels")

# Some of their observations lie outside what they declare.
_UNBOUNDED = ("MemoryChain-bsuite", "UmbrellaChain-bsuite", "MetaMaze-misc", "GaussianBandit-misc")

_REWARDS = {
    "CartPole-v1": "1 a step.",
    "Pendulum-v1": "-(angle² + 0.1 angular velocity² + 0.001 torque²); the angle is 0 upright.",
    "Acrobot-v1": "-1 a step, 0 for the step that reaches the height.",
    "MountainCar-v0": "-1 a step.",
    "MountainCarContinuous-v0": "100 for reaching the goal, less 0.1 action² a step.",
    "Seaquest-MinAtar": "1 for each fish or submarine that is shot; for surfacing with six divers "
    "10 times the share of oxygen that is left, rounded down.",
    "Catch-bsuite": "When the ball reaches the row of the paddle: 1 if it is caught, else -1.",
    "DeepSea-bsuite": "1 for moving right in the last column, less 0.01 / 8 for each move right. "
    "Which of the two actions moves right differs by cell, always in the same way.",
    "MemoryChain-bsuite": "From the query on 1 a step for naming the bit that was shown in the "
    "first step, else -1.",
    "UmbrellaChain-bsuite": "In the last step 1 if the first action was the needed one, else -1; "
    "before that 1 or -1 at random.",
    "DiscountingChain-bsuite": "The first action selects when the only reward comes: after 1, 3, "
    "10, 30 or 100 steps. It is 1.1 for one of them, 1 for the others.",
    "SimpleBandit-bsuite": "The value of the arm that was pulled; the arms have the values 0, 0.1, "
    "…, 1 in an order that differs by Episode.",
    "FourRooms-misc": "1 for reaching the goal.",
    "MetaMaze-misc": "10 for reaching the goal.",
    "PointRobot-misc": "1 a step within 0.2 of the goal, which is not shown.",
    "BernoulliBandit-misc": "0 or 1, at random with the probability of the arm.",
    "GaussianBandit-misc": "0 for the first arm; for the second one a normal deviate whose mean "
    "differs by Episode.",
    "Reacher-misc": "exp(-squared distance of the tip from the goal).",
    "Swimmer-misc": "exp(-squared distance from the goal / 2), less near urchins: times the "
    "product over them of 1 - exp(-30 squared distance).",
    "Pong-misc": "1 a step, 0 for the step in which the ball passes a paddle.",
    "FrozenLake-misc": "1 for reaching the goal.",
    **dict.fromkeys(
        ("Asterix-MinAtar", "Breakout-MinAtar", "Freeway-MinAtar", "SpaceInvaders-MinAtar"),
        "See the objective.",
    ),
}


def register(package: str = "gymnax") -> None:
    """Declare the ids of a package, which has either the registry or the interface of Gymnax."""
    keep_compiled()
    if package == "craftax":
        names = [f"Craftax-{name}-v1" for name in _CRAFTAX]
    else:
        import gymnax

        names = gymnax.registered_envs
    for name in names:
        declare(f"{package}/{name}", _Gymnax, name=name, package=package)


def keep_compiled() -> None:
    """Let JAX keep what it compiles in the user's cache, unless it is told where already.

    Every worker is another process, and Craftax takes minutes to compile.
    """
    import jax

    if jax.config.jax_compilation_cache_dir:
        return
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(caches, "evopolicygym", "jax")
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        jax.config.update("jax_compilation_cache_dir", str(directory))


@cache
def _compiled(name: str, package: str) -> tuple[Any, Any, Any, Any]:
    """Compile once a process: the functions are pure, and compiling them takes up to minutes."""
    import jax

    if package == "craftax":
        from craftax.craftax_env import make_craftax_env_from_name

        env = make_craftax_env_from_name(name, auto_reset=False)
        params = env.default_params
    else:
        import gymnax

        env, params = gymnax.make(name)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, ...]:
        key, own = jax.random.split(key)
        # The package's own `step` would start the next Episode by itself.
        observation, state, reward, done, info = env.step_env(own, state, action, params)
        truncated = env.is_truncated(state, params) if package == "gymnax" else False
        return key, state, (observation, reward, done, truncated, info)

    return env, params, jax.jit(lambda key: env.reset_env(key, params)), jax.jit(step)


class _Gymnax(gymnasium.Env[Any, Any]):
    def __init__(self, name: str, package: str) -> None:
        import jax

        env, params, self._reset, self._step = _compiled(name, package)
        shown, _ = jax.eval_shape(self._reset, jax.random.PRNGKey(0))
        self.observation_space = _space(env.observation_space(params), shown, name in _UNBOUNDED)
        self.action_space = _space(env.action_space(params))
        constants = asdict(params)
        self.time_limit = constants.get("max_steps_in_episode", constants.get("max_timesteps"))
        self._key = self._state = None
        module = getmodule(type(env))
        documentation = (type(env).__doc__, getattr(module, "__doc__", ""))
        self.texts = {
            "Objective": max(map(cleandoc, filter(None, documentation)), key=len, default=""),
            "Reward": _REWARDS.get(name, ""),
            "Notes": "\n".join(f"- `{key}`: {value}" for key, value in constants.items()),
            **(_craftax_texts(module) if package == "craftax" else {}),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        import jax

        super().reset(seed=seed)
        key = jax.random.PRNGKey(int(self.np_random.integers(2**31)) if seed is None else seed)
        self._key, own = jax.random.split(key)
        observation, self._state = self._reset(own)
        return self._plain(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        import jax

        self._key, self._state, result = self._step(self._key, self._state, action)
        observation, reward, terminated, truncated, info = jax.device_get(result)
        # Craftax has dozens of counters, which are 0 but at the end.
        info = {key: value.item() for key, value in info.items() if not value.ndim and value}
        return self._plain(observation), float(reward), bool(terminated), bool(truncated), info

    def _plain(self, value: Any) -> Any:
        return int(value) if isinstance(self.observation_space, gs.Discrete) else np.asarray(value)


def _space(space: Any, shown: Any = None, unbounded: bool = False) -> gs.Space[Any]:
    """Return the space of Gymnasium; what an observation `shown` is like counts more."""
    if not hasattr(space, "low"):
        return gs.Discrete(int(space.n))
    shape, dtype = (shown or space).shape, np.dtype((shown or space).dtype)
    sides = (-np.inf, np.inf) if unbounded else (space.low, space.high)
    low, high = (np.broadcast_to(np.asarray(side, dtype), shape) for side in sides)
    return gs.Box(low, high, shape, dtype.type)


def _craftax_texts(module: Any) -> dict[str, str]:
    """Craftax documents nothing, but names its actions and achievements."""
    weights = getattr(module, "ACHIEVEMENT_REWARD_MAP", None)
    worth = [(a.name, 1 if weights is None else int(weights[a.value])) for a in module.Achievement]
    return {
        "Objective": "Survive in a world of blocks, and collect, build, craft, eat and fight.",
        "Action": "\n".join(f"- `{action.value}`: {action.name}" for action in module.Action),
        "Reward": "0.1 for each point of health that is won, -0.1 for each that is lost; and the "
        f"first time of each achievement: {', '.join(f'{name} {n}' for name, n in worth)}.",
    }
