"""Meta-World's 50 tasks, one at a time: what its benchmark MT1 is, made from the seed."""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

from evopolicygym.envs.bridges import declare

__all__ = ["MetaWorld", "register"]

_TEXTS = {
    "Observation": "0 to 2: position of the hand. 3: opening of the gripper, 1 is open. 4 to 6 and "
    "7 to 10: position and quaternion of the first object; 11 to 13 and 14 to 17: of the second; "
    "zeros where there is none; w is first in some tasks and last in others. 18 to 35: elements 0 "
    "to 17 of the step before. 36 to 38: the goal.",
    "Action": "0 to 2: displacement of the hand in x, y and z, 1 is 0.01 m. 3: force that closes "
    "the gripper, negative to open it.",
    "Reward": "The package's dense reward, version 2, made to lie between 0 and 10: it grows as "
    "the task gets done.",
    "Termination": "Never before the step limit, done or not. `success` in `info` is 1 in each "
    "step in which the task is done.",
    "Notes": "The seed draws the positions of the goal and of the objects.",
}


class MetaWorld(gymnasium.Env[Any, Any]):
    """A simulated Sawyer arm with a gripper, moved in position."""

    _env: Any = None

    def __init__(self, task: str) -> None:
        self._task = task
        self._draws = self._make(None)
        self.observation_space = self._draws.sawyer_observation_space
        self.action_space = self._draws.action_space
        what = task.rpartition("-v")[0].replace("-", " ")
        self.texts = {"Objective": f"Meta-World's task {task}: {what}.", **_TEXTS}

    def _make(self, positions: Any) -> Any:
        """Make the package's environment, with these positions."""
        kind = import_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS[self._task]
        env = kind()
        given = {"env_cls": kind, "rand_vec": positions, "partially_observable": False}
        env.set_task(import_module("metaworld.types").Task(self._task, pickle.dumps(given)))
        return env

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Draw positions and make an environment that has them from its beginning.

        The package draws for MT1 in one environment and plays in another: what the first has drawn
        on its way leaves traces.
        """
        super().reset(seed=seed)
        draws = self._draws
        draws.seed(int(self.np_random.integers(2**31)) if seed is None else seed)
        draws._freeze_rand_vec, draws.seeded_rand_vec = False, True
        draws.reset()
        if self._env is not None:
            self._env.close()
        self._env = self._make(draws._last_rand_vec)
        observation, info = self._env.reset()
        space: Any = self.observation_space
        return np.clip(observation, space.low, space.high), info  # as its own step does

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the package's environment."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, float(reward), terminated, truncated, info

    def close(self) -> None:
        """Close what was made."""
        for env in filter(None, (self._draws, self._env)):
            env.close()


def register() -> None:
    """Declare `metaworld/<task>` for every task."""
    limit = import_module("metaworld.sawyer_xyz_env").SawyerXYZEnv.max_path_length
    for task in import_module("metaworld.env_dict").ALL_V3_ENVIRONMENTS:
        declare(f"metaworld/{task}", MetaWorld, limit, task=task)
