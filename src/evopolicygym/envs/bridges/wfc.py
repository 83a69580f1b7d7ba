"""MiniGrid's WFC levels: minigrid 3.2 comes without the images that it learns them from.

The images of `assets/wfc` are ours, drawn by `scripts/wfc_patterns.py`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium

__all__ = ["PATTERNS", "Levels", "wrap"]

PATTERNS = Path(__file__).parent.parent / "assets" / "wfc"
_TRIES = 10


class Levels(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Finds the pattern image, and a level for every seed.

    Attributes:
        parameters: `wfc_patterns`, whose image it is: `evopolicygym`'s where minigrid has none.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        inner: Any = env.unwrapped
        path = inner.config.pattern_path
        absent = not path.is_file()
        self.parameters = {"wfc_patterns": "evopolicygym" if absent else "upstream"}
        if absent:
            # A copy, because all environments of a process share their preset.
            inner.config = dataclasses.replace(inner.config, pattern_path=PATTERNS / path.name)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset; where no level came out the generator goes on from where it is."""
        for left in reversed(range(_TRIES)):
            try:
                return self.env.reset(seed=seed, options=options)
            except (RuntimeError, IndexError):  # no solution; no two cells to walk between
                if not left:
                    raise
                seed = None
        raise AssertionError


def wrap(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """See to it that levels can be made."""
    return Levels(env)
