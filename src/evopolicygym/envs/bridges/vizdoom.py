"""ViZDoom: settings of its own, and what a game says of itself in words."""

from __future__ import annotations

from typing import Any

import gymnasium
import gymnasium.spaces as gs

__all__ = ["wrap"]

_PAYS = {
    "living_reward": "a tic",
    "death_reward": "for dying",
    "kill_reward": "for each kill",
    "map_exit_reward": "for leaving the map by its exit",
    "item_reward": "for each item",
    "secret_reward": "for each secret",
    "frag_reward": "for each frag",
    "hit_reward": "for each hit",
    "hit_taken_reward": "for each hit that is taken",
    "damage_made_reward": "for each point of damage that is made",
    "damage_taken_reward": "for each point of damage that is taken",
    "health_reward": "for each point of health",
    "armor_reward": "for each point of armor",
}


def wrap(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Keep games apart; let them say where their time ends, what the buttons are and what pays."""
    outer: Any = env.unwrapped
    game = outer.game
    # Else games write their settings into the working directory, and read what others left there.
    game.set_doom_config_path("/dev/null")
    outer.step_limit = game.get_episode_timeout() / outer.frame_skip
    pays = {words: getattr(game, f"get_{name}")() for name, words in _PAYS.items()}
    variables = [variable.name for variable in game.get_available_game_variables()]
    outer.texts = {
        "Objective": f"Doom, the scenario of `{outer.spec.kwargs['scenario_config_file']}`. A step "
        f"is {outer.frame_skip} of the game's tics, of which a second has 35.",
        "Observation": "`screen` is what the player sees; after the last step everything is 0."
        + "".join(f"\n- `gamevariables` {n}: {name}" for n, name in enumerate(variables)),
        "Action": _buttons(outer),
        "Reward": "The sum of\n\n- what the scenario's own script gives"
        + "".join(f"\n- {number:g} {words}" for words, number in pays.items() if number),
        "Termination": "The player dies, or the scenario's own script ends the Episode.",
    }
    return env


def _buttons(outer: Any) -> str:
    """Name the buttons by their place; those that take an amount come first."""
    names = [button.name for button in outer.game.get_available_buttons()]
    amounts, buttons = names[: outer.num_delta_buttons], names[outer.num_delta_buttons :]
    lines = [f"- amount {n}: {name}" for n, name in enumerate(amounts)]
    space = outer.action_space
    if isinstance(space, gs.Dict):
        space = space["binary"]
    if isinstance(space, gs.Discrete):
        for n, combination in enumerate(outer.button_map):
            held = [name for name, down in zip(buttons, combination, strict=True) if down]
            lines.append(f"- `{n}`: {' + '.join(held) or 'no button'}")
    else:
        lines += [f"- button {n}: {name}" for n, name in enumerate(buttons)]
    return "\n".join(lines)
