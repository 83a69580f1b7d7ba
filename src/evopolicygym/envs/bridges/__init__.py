"""What makes a package's environments Gymnasium's: one small module for each that needs one.

A row of `evopolicygym.envs.families` names its bridge, and what the bridge is told. A bridge may
define:

- `register(*arguments)`: declare ids that the package does not register with Gymnasium itself, and
  mend what would keep the package from running or from being deterministic;
- `wrap(env)`: put something around each environment that was made.

What a bridge's environment says of itself is picked up by the adapter, from these attributes of the
environment or of a wrapper: `texts`, heading of the task text → Markdown; `parameters`, public JSON
values that belong to the environment's identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

__all__ = ["declare"]


def declare(
    env_id: str,
    make: str | Callable[..., gymnasium.Env[Any, Any]],
    max_episode_steps: int | None = None,
    **kwargs: Any,
) -> None:
    """Register an id with Gymnasium, once.

    Args:
        env_id: The id.
        make: What makes the environment, or its place: `module:function`.
        max_episode_steps: Its step limit, if it has one.
        **kwargs: What `make` is called with.
    """
    if env_id not in gymnasium.registry:
        gymnasium.register(
            env_id,
            make,
            max_episode_steps=max_episode_steps,
            disable_env_checker=True,
            kwargs=kwargs,
        )
