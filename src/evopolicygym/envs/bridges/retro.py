"""Stable-Retro: console games; of a thousand only those whose ROM is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium

from evopolicygym.envs.bridges import declare

__all__ = ["register"]


def register() -> None:
    """Declare `retro/<Game>` for each game that has its ROM."""
    from stable_retro import data

    for rom in sorted(Path(data.path(), "stable").glob("*/rom.*")):
        if rom.suffix in data.EMU_EXTENSIONS:
            declare(f"retro/{rom.parent.name}", _make, game=rom.parent.name)


def _make(game: str) -> gymnasium.Env[Any, Any]:
    """Start the emulator; a process can have one, so this fails while another is open."""
    import stable_retro
    from stable_retro import data

    stable = data.Integrations.STABLE
    # In the default mode each step opens a window.
    env: Any = stable_retro.make(game, inttype=stable, render_mode="rgb_array")
    scenario = json.loads(Path(data.get_file_path(game, "scenario.json", stable)).read_text())
    env.texts = {
        "Objective": f"Play {game} from its screen. A step is a frame.",
        "Observation": "The screen.",
        "Action": "Buttons that are down:\n"
        + "\n".join(f"- {n}: {button or 'none'}" for n, button in enumerate(env.buttons)),
        "Reward": _quoted(scenario.get("reward")),
        "Termination": _quoted(scenario.get("done")),
        "Notes": "Each Episode starts from the same state; the seed changes nothing.",
    }
    return env  # type: ignore[no-any-return]


def _quoted(rule: Any) -> str:
    return f"By this rule of the package, over variables of the game: `{json.dumps(rule)}`."
