"""Jumanji: environments as pure functions, whose observations are trees of JAX arrays."""

from __future__ import annotations

import re
from functools import cache
from inspect import cleandoc
from typing import Any

import gymnasium
import gymnasium.spaces as gs
import numpy as np

from evopolicygym.envs.bridges import declare
from evopolicygym.envs.bridges.gymnax import keep_compiled

__all__ = ["register"]

_HEADINGS = ("observation", "action", "reward", "episode termination")
_ITEM = rf"(?m)^ *- `?({'|'.join(_HEADINGS)})`?(?: \(if any\))?(?::| -)"


def register() -> None:
    """Declare `jumanji/<Id>` for each id of Jumanji's own registry."""
    import jumanji

    keep_compiled()
    for name in jumanji.registered_environments():
        declare(f"jumanji/{name}", _Jumanji, name=name)


@cache
def _compiled(name: str) -> tuple[Any, Any, Any]:
    """Compile once a process: the functions are pure, and compiling them takes seconds."""
    import jax
    import jumanji

    env = jumanji.make(name)
    return env, jax.jit(env.reset), jax.jit(env.step)


class _Jumanji(gymnasium.Env[Any, Any]):
    def __init__(self, name: str) -> None:
        from jumanji.specs import jumanji_specs_to_gym_spaces

        env, self._reset, self._step = _compiled(name)
        space: Any = jumanji_specs_to_gym_spaces(env.observation_spec)
        for key, part in space.items():
            if isinstance(part, gs.Discrete):
                # There is -1 for "none yet", and after the last step the count of steps.
                space[key] = gs.Discrete(int(part.n) + 2, start=-1)
        self.observation_space = space
        self.action_space = jumanji_specs_to_gym_spaces(env.action_spec)
        self.time_limit = getattr(env, "time_limit", None) or 0
        self._dtype = env.action_spec.dtype
        self._state: Any = None
        self.texts = _texts(env)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        import jax

        super().reset(seed=seed)
        key = jax.random.PRNGKey(int(self.np_random.integers(2**31)) if seed is None else seed)
        self._state, step = self._reset(key)
        return _plain(self.observation_space, jax.device_get(step.observation)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        import jax

        self._state, step = self._step(self._state, np.asarray(action, self._dtype))
        step = jax.device_get(step)
        # Several agents: an array of rewards and one of discounts.
        ended, reward = bool(step.last()), float(np.sum(step.reward))
        terminated = ended and not np.any(step.discount)
        info = {k: v.item() for k, v in (step.extras or {}).items() if np.ndim(v) == 0}
        observation = _plain(self.observation_space, step.observation)
        return observation, reward, terminated, ended and not terminated, info


def _plain(space: gs.Space[Any], value: Any) -> Any:
    """Return an observation as dicts of numpy arrays, integers where the space is Discrete."""
    if isinstance(space, gs.Dict):
        return {key: _plain(part, getattr(value, key)) for key, part in space.items()}
    return int(value) if isinstance(space, gs.Discrete) else np.asarray(value)


def _texts(env: Any) -> dict[str, str]:
    """Sort what a class's documentation lists by heading; the state is no policy's business."""
    text = cleandoc(type(env).__doc__ or "").partition("```")[0]
    text = re.split(r"(?m)^ *- `?state`?:", text)[0]
    first, *pieces = re.split(_ITEM, text)
    texts = {"Objective": first.strip()}
    for name, body in zip(pieces[0::2], pieces[1::2], strict=True):
        texts[name.split()[-1].capitalize()] = cleandoc(f"\n{body}")
    notes = [f"Here it is the sum over {n} agents." for n in env.reward_spec.shape]
    if hasattr(env, "reward_fn"):
        notes.append(f"The reward function here is `{type(env.reward_fn).__name__}`.")
    texts["Reward"] = "\n\n".join([texts.get("Reward", ""), *notes]).strip()
    return {heading: body for heading, body in texts.items() if body}
