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
from types import ModuleType

from evopolicygym.errors import ConfigurationError

__all__ = ["FAMILIES", "Family", "bridge_of", "family_of", "install_hint", "register"]


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
        bridge: Module of `evopolicygym.envs.bridges` that makes the family's environments
            Gymnasium's, and what it is told; empty if they are.
    """

    name: str
    extra: str
    modules: tuple[str, ...]
    ids: str
    steps: tuple[str, ...] = ()
    most_steps: tuple[str | int, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    bridge: tuple[str, ...] = ()


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
        "minigrid-wfc",
        "env-compatible",
        ("minigrid", "networkx", "imageio"),
        r"MiniGrid-WFC-",
        ("max_steps",),
        bridge=("wfc",),
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
        "mo-gymnasium",
        "env-compatible",
        ("mo_gymnasium",),
        r"(?:mo-|deep-sea-treasure|minecart|four-room|resource-gathering|fishwood"
        r"|breakable-bottles|fruit-tree|water-reservoir)",
        variables={
            "MUJOCO_GL": "egl",
            "SDL_VIDEODRIVER": "offscreen",
            "SDL_AUDIODRIVER": "dummy",  # minecart opens whatever SDL has
        },
        bridge=("multi_objective",),
    ),
    Family(
        "robotics",
        "env-compatible",
        ("gymnasium_robotics",),
        r"(?:Fetch|Hand|Adroit|Franka|PointMaze|AntMaze)",
        variables={"MUJOCO_GL": "egl"},
    ),
    Family(
        "miniworld",
        "env-visual",
        ("miniworld",),
        r"MiniWorld-",
        ("max_episode_steps",),
        variables={"PYGLET_HEADLESS": "true"},
    ),
    Family(
        "vizdoom",
        "env-visual",
        ("vizdoom.gymnasium_wrapper",),
        r"Vizdoom",
        ("step_limit",),
        bridge=("vizdoom",),
    ),
    Family("crafter", "env-visual", ("crafter",), r"crafter/", bridge=("crafter",)),
    Family("retro", "env-visual", ("stable_retro",), r"retro/", bridge=("retro",)),
    Family(
        "mpe2",
        "env-multi",
        ("mpe2",),
        r"pettingzoo/(?:simple_|collect_treasure_)",
        ("step_limit",),
        variables={"SDL_VIDEODRIVER": "offscreen"},
        bridge=("pettingzoo", "mpe2"),
    ),
    Family(
        "magent2",
        "env-multi",
        ("magent2",),
        r"pettingzoo/(?:adversarial_pursuit|battle|battlefield|combined_arms|gather|tiger_deer)_v",
        ("step_limit",),
        bridge=("pettingzoo", "magent2.environments"),
    ),
    Family(
        "momaland",
        "env-multi",
        ("momaland",),
        # Atari's surround is at v2.
        r"pettingzoo/(?:mo|(?:catch|escort|surround)_v0)",
        ("step_limit",),
        variables={"SDL_VIDEODRIVER": "offscreen"},
        bridge=("pettingzoo", "momaland.envs"),
    ),
    Family(
        "pettingzoo",
        "env-compatible",
        ("pettingzoo",),
        r"pettingzoo/",
        ("step_limit",),
        variables={"SDL_VIDEODRIVER": "offscreen"},
        bridge=(
            "pettingzoo",
            *("pettingzoo.classic", "pettingzoo.butterfly", "pettingzoo.sisl", "pettingzoo.atari"),
        ),
    ),
    Family(
        "browsergym",
        "env-web",
        ("browsergym.miniwob",),
        r"browsergym/miniwob\.",
        bridge=("browsergym",),
    ),
    Family(
        "metaworld",
        "env-heavy",
        ("metaworld",),
        r"metaworld/|Meta-World/",
        variables={"MUJOCO_GL": "egl"},
        bridge=("metaworld",),
    ),
    Family(
        "dm_control",
        "env-heavy",
        ("dm_control", "shimmy"),
        r"dm_control/",
        ("steps",),
        variables={"MUJOCO_GL": "egl"},
        bridge=("dm_control",),
    ),
    Family(
        "robosuite",
        "env-heavy",
        ("robosuite",),
        r"robosuite/",
        variables={"MUJOCO_GL": "egl"},
        bridge=("robosuite",),
    ),
    # JAX: one kind of device, so that equal seeds give equal bytes wherever there is a GPU, too.
    Family(
        "gymnasium-jax",
        "env-jax",
        ("jax", "gymnasium"),
        r"(?:phys2d|tabular)/",
        variables={"JAX_PLATFORMS": "cpu"},
        bridge=("functional",),
    ),
    Family(
        "jumanji",
        "env-jax",
        ("jumanji",),
        r"jumanji/",
        ("time_limit",),
        variables={"JAX_PLATFORMS": "cpu"},
        bridge=("jumanji",),
    ),
    Family(
        "gymnax",
        "env-jax",
        ("gymnax",),
        r"gymnax/",
        ("time_limit",),
        variables={"JAX_PLATFORMS": "cpu"},
        bridge=("gymnax",),
    ),
    Family(
        "craftax",
        "env-jax",
        ("craftax",),
        r"craftax/",
        ("time_limit",),
        variables={"JAX_PLATFORMS": "cpu"},
        bridge=("gymnax", "craftax"),
    ),
    Family("nle", "env-nethack", ("nle",), r"NetHack", ("_max_episode_steps",), bridge=("nle",)),
    Family(
        "minihack",
        "env-nethack",
        ("minihack",),
        r"MiniHack-",
        ("_max_episode_steps",),
        bridge=("nle",),
    ),
    Family("mario", "env-mario", ("gym_super_mario_bros",), r"mario/", bridge=("old_gym", "mario")),
    Family("procgen", "env-procgen", ("procgen",), r"procgen/", bridge=("old_gym", "procgen")),
    Family("pyflyt", "env-flight", ("PyFlyt.gym_envs",), r"PyFlyt/", ("max_steps",)),
    # Old names are spelled like anything: last.
    Family(
        "ale",
        "env-gym",
        ("ale_py",),
        r"ALE/|.*(?:NoFrameskip|Deterministic|-ram)?-v[045]$",
        bridge=("ale",),
    ),
)
"""Every family, the most particular before those whose ids look alike."""


def family_of(env_id: str) -> Family | None:
    """Return the family that an id looks like one of, or None."""
    return next((family for family in FAMILIES if re.match(family.ids, env_id)), None)


def bridge_of(family: Family | None) -> ModuleType | None:
    """Return the module of a family's bridge, or None."""
    if family is None or not family.bridge:
        return None
    return importlib.import_module(f"evopolicygym.envs.bridges.{family.bridge[0]}")


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
            for module in family.modules:
                importlib.import_module(module)
            bridge = bridge_of(family)
            if bridge is not None and hasattr(bridge, "register"):
                bridge.register(*family.bridge[1:])
    except Exception as error:
        raise ConfigurationError(
            f"the family {family.name} can't be imported here: {type(error).__name__}: {error}"
        ) from error
