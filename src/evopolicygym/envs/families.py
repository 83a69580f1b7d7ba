"""Families of environments: which package registers them, and what is peculiar about each.

Facts and figures are measured: facts/environments.md. Environments are made anew for every
Episode, so nothing has to be done for those that `reset(seed)` does not bring back
(BipedalWalker, Meta-World).
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

from evopolicygym.errors import ConfigurationError

__all__ = ["FAMILIES", "Family", "family_of", "install_hint", "register"]


@dataclass(frozen=True, slots=True)
class Family:
    """One family.

    Attributes:
        name: Its name here.
        extra: Extra of this package that installs it.
        modules: What has to be imported, so that its ids are registered.
        ids: Regular expression of its ids, from their beginning.
        steps: Where it keeps its step limit when it registers none: attributes of the unwrapped
            environment, multiplied.
        most_steps: The same for families where each reset sets another limit, and there is none
            before: attributes and numbers that make a bound on all of them.
        variables: Environment variables it needs before it is imported, unless they are set.
    """

    name: str
    extra: str
    modules: tuple[str, ...]
    ids: str
    steps: tuple[str, ...] = ()
    most_steps: tuple[str | int, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


FAMILIES: tuple[Family, ...] = (
    Family(
        "gymnasium",
        "env-gym",
        ("gymnasium",),
        r"(?:Acrobot|CartPole|MountainCar|Pendulum|Blackjack|CliffWalking|FrozenLake|Taxi"
        r"|BipedalWalker|CarRacing|LunarLander|Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup"
        r"|InvertedDoublePendulum|InvertedPendulum|Pusher|Reacher|Swimmer|Walker2d)"
        r"(?:Continuous|Hardcore|8x8|Slippery)*-v\d+$",
        # Without a display MuJoCo's first frame fails and the second one aborts the process.
        variables={"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "offscreen"},
    ),
    Family(
        "minigrid",
        "env-compatible",
        ("minigrid",),
        r"MiniGrid-|BabyAI-",
        ("max_steps",),
        # BabyAI: a step a cell of the maze for each walk of a mission, and no mission has more than
        # 8 of them (two pairs of instructions, each to put one thing next to another).
        (8, "room_size", "room_size", "num_rows", "num_cols"),
    ),
    Family(
        "highway",
        "env-compatible",
        ("highway_env",),
        r"(?:highway|merge|roundabout|parking|intersection|racetrack|exit|lane-keeping|two-way"
        r"|u-turn)-",
        ("config.duration", "config.policy_frequency"),
        # Under the driver "dummy" it draws black frames.
        variables={"SDL_VIDEODRIVER": "offscreen"},
    ),
    Family(
        "robotics",
        "env-compatible",
        ("gymnasium_robotics",),
        r"(?:Fetch|Hand|Adroit|Franka|PointMaze|AntMaze)",
        variables={"MUJOCO_GL": "egl"},
    ),
    Family("ale", "env-gym", ("ale_py",), r"ALE/|.*(?:NoFrameskip|Deterministic|-ram)?-v[045]$"),
    Family(
        "miniworld",
        "env-visual",
        ("miniworld",),
        r"MiniWorld-",
        ("max_episode_steps",),
        variables={"PYGLET_HEADLESS": "true"},
    ),
    Family("vizdoom", "env-visual", ("vizdoom.gymnasium_wrapper",), r"Vizdoom"),
)
"""Every family that registers its environments with Gymnasium, the most particular first."""


def family_of(env_id: str) -> Family | None:
    """Return the family that an id looks like one of, or None."""
    return next((family for family in FAMILIES if re.match(family.ids, env_id)), None)


def install_hint(family: Family) -> str:
    """Return how to get a family."""
    return f'the family {family.name} is not installed: pip install "evopolicygym[{family.extra}]"'


def register(family: Family) -> None:
    """Import what registers a family's ids.

    Raises:
        ConfigurationError: It is not installed, or can't be imported; says what to do.
    """
    for name, value in family.variables.items():
        os.environ.setdefault(name, value)
    for module in family.modules:
        if find_spec(module.partition(".")[0]) is None:
            raise ConfigurationError(install_hint(family))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(module)
        except Exception as error:
            raise ConfigurationError(
                f"the family {family.name} can't be imported here: {type(error).__name__}: {error}"
            ) from error
