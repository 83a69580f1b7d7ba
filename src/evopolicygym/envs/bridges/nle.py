"""NLE and MiniHack: NetHack takes its seed, and its calendar, from elsewhere than `reset`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

__all__ = ["register", "wrap"]

_GOALS = {  # class: objective, reward
    "NLE": ("Score as many points as possible.", "The change of the score."),
    "NetHackScore": ("Score as many points as possible.", "The change of the score"),
    "NetHackChallenge": ("Score as many points as possible.", "The change of the score"),
    "NetHackStaircase": ("Stand on a staircase down.", "1 for success"),
    "NetHackStaircasePet": ("Stand on a staircase down, the pet beside.", "1 for success"),
    "NetHackOracle": ("Stand beside the Oracle.", "1 for success"),
    "NetHackGold": ("Collect gold.", "The change of the gold that is carried"),
    "NetHackEat": ("Eat.", "What the nutrition grows by, if it grows"),
    "NetHackScout": ("Explore.", "How many more cells of the level are known"),
}


def register() -> None:
    """Take moon phase, Friday the 13th and night from the seed instead of the clock."""
    for name, spec in gymnasium.registry.items():
        if name.startswith(("NetHack", "MiniHack-")):
            spec.kwargs["fix_moon_phase"] = True


def wrap(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Seed the game, and tell a step limit from an end."""
    spec = env.spec
    if spec is not None and "fix_moon_phase" not in spec.kwargs:
        # Whatever else imported the package did not come by `register`.
        env.close()
        env = gymnasium.make(spec, disable_env_checker=True, fix_moon_phase=True)
    return _Game(env)


class _Game(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.texts = _texts(env.unwrapped)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        game: Any = self.env.unwrapped
        if seed is not None:
            # The challenge has replaced this method by one that raises.
            vars(game.nethack).pop("set_initial_seeds", None)
            game.nethack.set_initial_seeds(seed, seed, False, None)
            if hasattr(game, "minigrid_env"):  # it draws the map
                game.minigrid_env.reset(seed=seed)
        observation, info = self.env.reset(seed=seed)
        return _copied(observation), _plain(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, ended, truncated, info = self.env.step(action)
        aborted = bool(truncated) or info["end_status"] < 0
        return (
            _copied(observation),
            float(reward),
            bool(ended) and not aborted,
            aborted,
            _plain(info),
        )


def _copied(observation: dict[str, Any]) -> dict[str, Any]:
    """The game writes every observation into the same arrays."""
    return {key: np.array(value) for key, value in observation.items()}


def _plain(info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "end_status": info["end_status"].name}


def _texts(game: Any) -> dict[str, str]:
    from nle import nethack

    actions = (f"- `{n}`: {type(a).__name__} {a.name}" for n, a in enumerate(game.actions))
    stats = {value: key[7:] for key, value in vars(nethack).items() if key.startswith("NLE_BL_")}
    named = ", ".join(f"{n} {stats[n].lower()}" for n in sorted(stats))
    objective, reward = _GOALS.get(type(game).__name__) or _minihack(game)
    penalty = getattr(game, "penalty_step", 0)
    if penalty and not hasattr(type(game), "current_pits"):
        reward += f"; and {penalty:g} for a step in which no time passes in the game."
    return {
        "Objective": f"NetHack. {objective}",
        "Observation": "`chars` is the map in ASCII, `glyphs` the numbers of what is there, "
        "`message` the text above the map, padded with 0; what ends in `_crop` is what is around "
        f"the player. Of `blstats`: {named}.",
        "Action": "\n".join(actions),
        "Reward": reward,
        "Termination": "The game ends, as by death, or the objective is reached.",
    }


def _minihack(game: Any) -> tuple[str, str]:
    """Return objective and reward of MiniHack's environments, which differ in what counts."""
    manager = game.reward_manager
    if hasattr(type(game), "current_pits"):  # Sokoban
        return (
            "Push boulders into all pits, and reach the stairs down.",
            f"1 for success, {game._reward_shaping_coefficient:g} for each pit that is filled, "
            f"{game._time_penalty:g} for each other step.",
        )
    if manager is None:
        goal = f"{game.reward_win:g} for success, {game.reward_lose:g} when it ends without"
        return "Reach the stairs down.", goal
    events = []
    for event in manager.events:
        what = (getattr(event, key, None) for key in ("messages", "loc", "action", "coordinates"))
        role = "ends the Episode" if event.terminal_sufficient else "can be missed"
        role = "needed for success" if event.terminal_required else role
        again = "each time" if event.repeatable else "once"
        shown = ", ".join(str(part) for part in what if part is not None)
        events.append(f"- {event.reward:g} {again} for {type(event).__name__} {shown} ({role})")
    events += [f"- what `{each.__name__}` returns" for each in manager.custom_reward_functions]
    return "Bring about what is rewarded.", "\n".join([*events, "", "The sum of these"])
