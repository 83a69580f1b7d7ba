"""The catalog: short names, step limits and worst returns, as rows of data.

Aliases and their step limits are those of the original catalogue (facts/aliases.json). The worst
return of an environment is a bound that no completed Episode falls below, derived from its reward;
that is what a failed Episode counts for. Where no bound is known there is no row.
"""

from __future__ import annotations

from dataclasses import dataclass

from evopolicygym.errors import ConfigurationError, near_miss

__all__ = [
    "ALIASES",
    "CORE_16",
    "WORST_RETURNS",
    "Alias",
    "benchmark_id",
    "registered_id",
    "suite",
]

_PREFIX = "gymnasium/"
_OWN_PREFIX = "pettingzoo/"
"""Ids that are a Benchmark's as they are registered."""


@dataclass(frozen=True, slots=True)
class Alias:
    """A short name for a registered id.

    Attributes:
        env_id: Registered Gymnasium id.
        max_episode_steps: Step limit.
    """

    env_id: str
    max_episode_steps: int


ALIASES: dict[str, Alias] = {
    "gym/acrobot": Alias("Acrobot-v1", 500),
    "gym/cartpole": Alias("CartPole-v1", 500),
    "gym/mountaincar": Alias("MountainCar-v0", 200),
    "gym/continuouscar": Alias("MountainCarContinuous-v0", 999),
    "gym/pendulum": Alias("Pendulum-v1", 200),
    "gym/blackjack": Alias("Blackjack-v1", 200),
    "gym/cliff": Alias("CliffWalking-v1", 200),
    "gym/frozenlake": Alias("FrozenLake-v1", 100),
    "gym/taxi": Alias("Taxi-v4", 200),
    "gym/bipedal": Alias("BipedalWalker-v3", 1600),
    "gym/racing": Alias("CarRacing-v3", 1000),
    "gym/lunar": Alias("LunarLander-v3", 1000),
    "gym/ant4": Alias("Ant-v4", 1000),
    "gym/ant5": Alias("Ant-v5", 1000),
    "gym/halfcheetah4": Alias("HalfCheetah-v4", 1000),
    "gym/halfcheetah5": Alias("HalfCheetah-v5", 1000),
    "gym/hopper4": Alias("Hopper-v4", 1000),
    "gym/hopper5": Alias("Hopper-v5", 1000),
    "gym/humanoid4": Alias("Humanoid-v4", 1000),
    "gym/humanoid5": Alias("Humanoid-v5", 1000),
    "gym/standup4": Alias("HumanoidStandup-v4", 1000),
    "gym/standup5": Alias("HumanoidStandup-v5", 1000),
    "gym/doublependulum4": Alias("InvertedDoublePendulum-v4", 1000),
    "gym/doublependulum5": Alias("InvertedDoublePendulum-v5", 1000),
    "gym/invertedpendulum4": Alias("InvertedPendulum-v4", 1000),
    "gym/invertedpendulum5": Alias("InvertedPendulum-v5", 1000),
    "gym/pusher4": Alias("Pusher-v4", 100),
    "gym/pusher5": Alias("Pusher-v5", 100),
    "gym/reacher4": Alias("Reacher-v4", 50),
    "gym/reacher5": Alias("Reacher-v5", 50),
    "gym/swimmer4": Alias("Swimmer-v4", 1000),
    "gym/swimmer5": Alias("Swimmer-v5", 1000),
    "gym/walker4": Alias("Walker2d-v4", 1000),
    "gym/walker5": Alias("Walker2d-v5", 1000),
}
"""Every short name."""

WORST_RETURNS: dict[str, float] = {
    # reward a step times the step limit
    "Acrobot-v1": -500.0,
    "CartPole-v1": 0.0,
    "MountainCar-v0": -200.0,
    # -0.1 * action**2 a step, |action| <= 1
    "MountainCarContinuous-v0": -99.9,
    # at least -(pi**2 + 0.1 * 8**2 + 0.001 * 2**2) = -16.27361 a step, rounded away from zero
    "Pendulum-v1": -3254.73,
    # pays once, at the end
    "Blackjack-v1": -1.0,
    "CliffWalking-v1": -20_000.0,
    "FrozenLake-v1": 0.0,
    "Taxi-v4": -2_000.0,
    # 1 a step upright, nothing else
    "InvertedPendulum-v4": 0.0,
    "InvertedPendulum-v5": 0.0,
    # reward between 0 and 1 at the end, nothing before
    "MiniGrid-DoorKey-16x16-v0": 0.0,
    "MiniGrid-KeyCorridorS4R3-v0": 0.0,
    "MiniGrid-FourRooms-v0": 0.0,
    "MiniGrid-ObstructedMaze-1Q-v1": 0.0,
    # normalised to [0, 1] a step
    "roundabout-v0": 0.0,
    # -1 a step until the goal, 50 steps
    "FetchPush-v4": -50.0,
    "FetchPickAndPlace-v4": -50.0,
}
"""Registered id → least return of a completed Episode, where a bound is known."""

CORE_16 = (
    *("Acrobot-v1", "MountainCarContinuous-v0", "BipedalWalker-v3", "CarRacing-v3"),
    *("Reacher-v5", "HalfCheetah-v5", "Ant-v5", "Pusher-v5"),
    *("MiniGrid-DoorKey-16x16-v0", "MiniGrid-KeyCorridorS4R3-v0"),
    *("MiniGrid-FourRooms-v0", "MiniGrid-ObstructedMaze-1Q-v1"),
    *("parking-v0", "roundabout-v0", "FetchPush-v4", "FetchPickAndPlace-v4"),
)
"""The 16 environments of the paper's main table, four a family (facts/core16.json)."""


def benchmark_id(env_id: str) -> str:
    """Return the Benchmark id of a registered id."""
    return env_id if env_id.startswith(_OWN_PREFIX) else f"{_PREFIX}{env_id}"


def registered_id(name: str) -> str | None:
    """Return the id that Gymnasium knows a Benchmark id by, or None if it is none of its."""
    if name in ALIASES:
        return ALIASES[name].env_id
    if name.startswith(_OWN_PREFIX):
        return name
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def suite(name: str) -> tuple[str, ...]:
    """Return the Benchmark ids of a named suite.

    Raises:
        ConfigurationError: There is no such suite.
    """
    if name != "core16":
        hint = near_miss(name, ["core16"])
        raise ConfigurationError(f"--suite is {name!r}, expected core16.{hint}")
    return tuple(map(benchmark_id, CORE_16))
