"""Environments with a vector for a reward: a weighted sum, the vector in `info`."""

from __future__ import annotations

import inspect
import random
import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

__all__ = ["WeightedSum", "wrap"]

_LIMITS = ("MAX_TS", "tree_depth", "time_limit")
_TITLES = {"Observation": "observation", "Action": "action", "Termination": "terminat|episode end"}


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
            **_texts(env.unwrapped),
            "Reward": f"The weighted sum of {count} objectives, with the weights {weights}. The "
            "objectives are in `info` of every step, as `reward_components`.",
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset; some draw from the global generators, which are seeded for that and put back."""
        before = random.getstate(), np.random.get_state()
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed % 2**32)
        try:
            return self.env.reset(seed=seed, options=options)
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            for mine in getattr(self.unwrapped, "mines", ()):  # minecart's ore comes from there
                for ore in mine.distributions:
                    ore.random_state = self.unwrapped.np_random

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and replace the vector by its weighted sum."""
        observation, vector, terminated, truncated, info = self.env.step(action)
        objectives = np.asarray(vector, np.float64).ravel()
        components = dict(zip(self._names, objectives.tolist(), strict=True))
        reward = float(self._weights @ objectives)
        info = {**info, "reward_components": components}
        return observation, reward, bool(terminated), bool(truncated), info


def wrap(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Make the reward a number, and set the step limit that the environment keeps itself."""
    summed = WeightedSum(env)
    inner: Any = env.unwrapped
    limit = next((getattr(inner, name) for name in _LIMITS if hasattr(inner, name)), 0)
    if hasattr(inner, "action_type"):  # highway's
        limit = inner.config["duration"] * inner.config["policy_frequency"]
    if limit and env.spec is not None and env.spec.max_episode_steps is None:
        return TimeLimit(summed, int(limit))
    return summed


def _texts(inner: Any) -> dict[str, str]:
    """Return what the docstring leaves to that of the environment with one objective."""
    if hasattr(inner, "action_type"):  # highway's has none, but names
        actions = getattr(inner.action_type, "actions", {})
        texts = {"Action": "\n".join(f"- `{n}`: {name}" for n, name in actions.items())}
        if type(inner.observation_type).__name__ == "KinematicObservation":
            columns = ", ".join(inner.observation_type.features)
            texts["Observation"] = f"A row a vehicle, yours first: {columns}."
        return texts
    own, *bases = [inspect.cleandoc(cls.__doc__ or "") for cls in type(inner).__mro__]
    sections = [re.split(r"(?m)^## +(.+?) *$", text) for text in (own, *bases[:1])]
    titles = " ".join(sections[0][1::2]).lower()
    found: dict[str, str] = {}
    for title, body in zip(sections[-1][1::2], sections[-1][2::2], strict=True):
        for heading, words in _TITLES.items():
            if re.search(words, title.lower()) and not re.search(words, titles):
                found[heading] = re.sub(r"(?m)^(?=#)", r"\\", body.strip())
    return found
