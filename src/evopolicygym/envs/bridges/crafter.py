"""Crafter: an own interface, and worlds that depended on where objects lie in memory."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import gymnasium
import gymnasium.spaces as gs
import numpy as np

from evopolicygym.envs.bridges import declare

__all__ = ["register"]


def register() -> None:
    """Declare the two ids of Crafter under names of their own."""
    for name, reward in (("Reward", True), ("NoReward", False)):
        declare(f"crafter/{name}-v1", _Crafter, max_episode_steps=10_000, reward=reward)


class _Ordered(dict[Any, None]):
    """A set that is iterated in the order in which things came."""

    def add(self, item: Any) -> None:
        self[item] = None

    def remove(self, item: Any) -> None:
        del self[item]


class _Crafter(gymnasium.Env[Any, Any]):
    def __init__(self, reward: bool) -> None:
        from crafter import constants

        self._reward = reward
        self._game: Any = None
        self.observation_space = gs.Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = gs.Discrete(len(constants.actions))
        per_health = "0.1 for each point of health that is won, -0.1 for each that is lost"
        self.texts = {
            "Objective": "Survive in a world that differs by Episode, and unlock "
            f"{len(constants.achievements)} achievements: {', '.join(constants.achievements)}.",
            "Observation": "The image that a player sees: the surroundings, which are 9 cells wide "
            "and 7 high, with the player in the middle, and the inventory below.",
            "Action": "\n".join(f"- `{n}`: {name}" for n, name in enumerate(constants.actions)),
            "Reward": f"{per_health}, and 1 for a step that unlocks achievements."
            if reward
            else "Always 0. What would be rewarded is in `info` as `reward`: "
            f"{per_health}, and 1 for a step that unlocks achievements.",
            "Termination": "The player's health is 0.",
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        self._game = _game(seed, self._reward)
        return self._game.reset(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, over, info = self._game.step(action)
        info = {key: info[key] for key in ("inventory", "achievements", "reward")}
        return observation, float(reward), bool(over), False, info


def _game(seed: int, reward: bool) -> Any:
    from crafter import Env

    game = Env(reward=reward, length=None, seed=seed)
    # The views hold this world, too: it changes its class, not its identity.
    game._world.__class__ = _ordered_world()
    return game


@cache
def _ordered_world() -> type[Any]:
    from crafter import engine

    class World(engine.World):  # type: ignore[misc]
        def reset(self, seed: int | None = None) -> None:
            super().reset(seed)
            self._chunks: Any = defaultdict(_Ordered)

    return World
