"""Games of packages that are written for the old `gym`: Super Mario Bros. and Procgen.

Each is made anew at every reset: Procgen takes a seed when it is made, and only then.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import metadata
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from evopolicygym.envs.bridges import declare

__all__ = ["Mario", "Procgen", "register"]

# The clock of a stage runs out after at most 8020 frames. A game has 32 stages and no limit.
_STAGE_STEPS, _GAME_STEPS = 10_000, 100_000

_PAYS = {  # measured over 96,000 random steps of each game
    "bigfish": "1 for a fish that is eaten",
    "bossfight": "1 when the boss has been hit enough, 10 more when it is destroyed",
    "caveflyer": "10 at the exit, 3 for a target that is destroyed",
    "chaser": "0.04 for an orb",
    "climber": "1 for a star, 10 more for the last one",
    "coinrun": "10 at the coin",
    "dodgeball": "2 for an enemy that is hit, 10 at the unlocked platform",
    "fruitbot": "1 for a fruit, -4 for another object",
    "heist": "10 at the gem",
    "jumper": "10 at the carrot",
    "leaper": "10 at the finish line",
    "maze": "10 at the cheese",
    "miner": "1 for a diamond, 10 at the exit",
    "ninja": "10 at the mushroom",
    "plunder": "1 for an enemy ship that is hit",
    "starpilot": "1 for an enemy that is destroyed",
}
# Read from the games' states; 1000 for the others.
_STEPS = {"bigfish": 6_000, "bossfight": 4_000, "plunder": 4_000, "leaper": 500, "maze": 500}


class _Game(gymnasium.Env[Any, Any]):
    _game: Any = None

    def close(self) -> None:
        """End the game, if there is one."""
        game, self._game = self._game, None
        if game is not None:
            game.close()


class Mario(_Game):
    """Super Mario Bros. with the package's `SIMPLE_MOVEMENT` for actions."""

    def __init__(self, random_stage: bool = False, **options: Any) -> None:
        self._moves = import_module("gym_super_mario_bros.actions").SIMPLE_MOVEMENT
        self._random_stage, self._options = random_stage, options
        self.observation_space = Box(0, 255, (240, 256, 3), np.uint8)
        self.action_space = Discrete(len(self._moves))
        one = random_stage or "target" in options
        end = "dies or has finished the stage" if one else "has no life left"
        chance = "The seed chooses the stage." if random_stage else "Every Episode is the same."
        self.texts = {
            "Objective": "Take Mario to the right, fast and without dying, through "
            + ("one stage of the game." if one else "the game, with its lives."),
            "Observation": "The screen of the console: rows, columns, RGB. A step is a frame.",
            "Action": "Buttons that are held for a frame:\n\n"
            + "\n".join(f"- `{n}`: {' + '.join(move)}" for n, move in enumerate(self._moves)),
            "Reward": "The change of Mario's x position (0 if that is more than 5), minus what "
            "the clock has lost, minus 25 when he dies; not below -15, nor above 15.",
            "Termination": f"When Mario {end}.",
            "Notes": f"The game leaves nothing to chance. {chance} Cut-scenes and waiting are "
            "skipped.",
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start the console, as far as the stage."""
        super().reset(seed=seed)
        self.close()
        given = dict(self._options)
        if self._random_stage:  # as the package's own environment does, which starts all 32
            draw = np.random.RandomState(seed).randint
            given["target"] = (draw(1, 9), draw(1, 5))
        game = import_module("gym_super_mario_bros").SuperMarioBrosEnv(**given)
        self._game = import_module("nes_py.wrappers").JoypadSpace(game, self._moves)
        return self._game.reset().copy(), {}  # it is the console's own memory

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Hold the buttons for a frame."""
        screen, reward, done, info = self._game.step(int(action))
        return screen.copy(), reward, done, False, info


class Procgen(_Game):
    """A Procgen game on the level of the seed."""

    def __init__(self, game: str, distribution_mode: str = "hard") -> None:
        self._make = import_module("procgen.env").ProcgenGym3Env
        self._options = {"env_name": game, "distribution_mode": distribution_mode}
        keys = self._make.get_combos(None)
        self.observation_space = Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = Discrete(len(keys))
        about = re.search(rf"\| `{game}` \| (.+?) *(?:\||$)", _documentation(), re.MULTILINE)
        self.texts = {
            "Objective": about[1] if about else f"Play the Procgen game {game}.",
            "Observation": "What the player sees: rows, columns, RGB.",
            "Action": "Keys that are held; the letters do what the game uses them for:\n\n"
            + "\n".join(f"- `{n}`: {' + '.join(key) or 'none'}" for n, key in enumerate(keys)),
            "Reward": f"{_PAYS.get(game, 'What the game pays')}. Measured: what the game pays for "
            "what random play never reaches is not among it.",
            "Termination": "When the level is completed, the player is lost, or the game's own "
            "time is up. The last observation is the first one of the level again.",
            "Notes": f"The seed chooses the level. Difficulty: {distribution_mode}.",
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Make the level of the seed."""
        super().reset(seed=seed)
        self.close()
        level = int(self.np_random.integers(2**31)) if seed is None else seed % 2**31
        self._game = self._make(
            num=1, num_levels=1, start_level=level, rand_seed=level, num_threads=0, **self._options
        )
        return self._game.observe()[1]["rgb"][0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Hold the keys for a step."""
        self._game.act(np.array([action]))
        reward, seen, first = self._game.observe()
        complete = bool(self._game.get_info()[0]["prev_level_complete"])
        return seen["rgb"][0], float(reward[0]), bool(first[0]), False, {"complete": complete}


def _documentation() -> str:
    described = metadata("procgen2")
    return str(described.get_payload() or described["Description"])  # type: ignore[attr-defined]


def register(package: str) -> None:
    """Declare the environments of a package."""
    if package == "procgen":
        for game in import_module("procgen.env").ENV_NAMES:
            declare(f"procgen/{game}", Procgen, _STEPS.get(game, 1_000), game=game)
        return
    import_module("gym_super_mario_bros")
    for spec in import_module("gym.envs.registration").registry.values():
        module, _, kind = str(spec.entry_point).partition(":")
        if module == "gym_super_mario_bros":
            options = {**spec.kwargs, "random_stage": kind == "SuperMarioBrosRandomStagesEnv"}
            one = options["random_stage"] or "target" in options
            declare(f"mario/{spec.id}", Mario, _STAGE_STEPS if one else _GAME_STEPS, **options)
