"""Environments with a vector for a reward: a weighted sum, the vector in `info`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

__all__ = ["WeightedSum", "wrap"]


class WeightedSum(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds up the objectives with equal weights that sum to 1.

    Attributes:
        parameters: `reward_weights`, a weight an objective.
        texts: What the task text says about it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        count = int(np.prod(env.get_wrapper_attr("reward_space").shape))
        self._weights = np.full(count, 1.0 / count)
        self._names = [f"objective_{n}" for n in range(count)]
        self.parameters = {"reward_weights": self._weights.tolist()}
        weights = ", ".join(f"{weight:.6g}" for weight in self._weights)
        self.texts = {
            "Reward": f"The weighted sum of {count} objectives, with the weights {weights}. The "
            "objectives are in `info` of every step, as `reward_components`."
        }

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and replace the vector by its weighted sum."""
        observation, vector, terminated, truncated, info = self.env.step(action)
        objectives = np.asarray(vector, np.float64).ravel()
        components = dict(zip(self._names, objectives.tolist(), strict=True))
        reward = float(self._weights @ objectives)
        info = {**info, "reward_components": components}
        return observation, reward, bool(terminated), bool(truncated), info


def wrap(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Make the reward a number."""
    return WeightedSum(env)
