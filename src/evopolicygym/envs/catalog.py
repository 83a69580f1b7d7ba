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
    # Differences of a potential, 130 x / 30 - 5 |angle|. x starts at 4.7 and is >= 0 to the end;
    # Box2D turns a body at most pi / 2 a step: -(20.4 + 5 * 1601 * pi / 2). Torque takes at most
    # 4 * 0.028 a step, the end 100.
    "BipedalWalker-v3": -12_900.0,
    # -0.1 a step; -100 instead in the step that leaves the field, the last
    "CarRacing-v3": -200.0,
    # Differences of -100 |position| - 100 |velocity| - 100 |angle| + 20 for the legs. Box2D
    # moves a body at most 2 m and pi / 2 a step: position <= 303, velocity <= 20 in its units,
    # angle <= 1573. Engines take at most 0.3 a step, the end 100. (To rise, then spin: -18 600.)
    "LunarLander-v3": -190_000.0,
    # What runs or swims is paid way / seconds a step, a telescoping sum, less costs. How fast it
    # may be on average is argued from physics. Ant: 60 m/s. A joint reaches sqrt(2 * 150 N m *
    # range / 1 kg m2) < 18 rad/s, a foot 40 m/s even if the torso spins as fast, and only a foot
    # that slides drives the body. Action: 0.5 * 8 a step, contact in v5: 5e-4 * 84.
    "Ant-v4": -64_000.0,
    "Ant-v5": -64_100.0,
    # 91 m/s: motors less damping give at most sum(torque**2 / (4 damping)) = 2600 W, all of it the
    # speed of 14 kg: 4550 m in 50 s. Action: 0.1 * 6 a step; 20 for the torso against the body.
    "HalfCheetah-v4": -91_700.0,
    "HalfCheetah-v5": -91_700.0,
    # 100 m/s end the Episode; action: 1e-3 * 3 a step; a step more, as the last may be faster
    "Hopper-v4": -100_200.0,
    "Hopper-v5": -100_200.0,
    # 75 m/s: friction is 1.9 times the load, which is the weight on average, as z < 2 or it ends:
    # 1.9 * (g / 2 * 8 s**2 + 2 m) = 601 m in 8 s. Action: 1e-3 * 6 a step; 1 m: torso against body.
    "Walker2d-v4": -75_300.0,
    "Walker2d-v5": -75_300.0,
    # The same with friction 1, 15 s: 1106 m; 1.25 times the speed. Action: 0.1 * 17 * 0.4**2 a
    # step, contact in v5: at most 10.
    "Humanoid-v4": -92_500.0,
    "Humanoid-v5": -102_500.0,
    # z / 0.003 + 1 a step, less the same for the action and at most 10 for the impact; the torso
    # does not get below the floor
    "HumanoidStandup-v4": -9_280.0,
    "HumanoidStandup-v5": -9_280.0,
    # Till the last step the tip is 1 to 1.2 m high, and poles that keep it there turn slower than
    # 40 rad/s: 10 - 1.05 - 0.005 * 40**2 is no loss. The last may take 10.3 for the place and 60 at
    # 100 rad/s, three times what 500 N give 19 kg on 2 m of rail.
    "InvertedDoublePendulum-v4": -100.0,
    "InvertedDoublePendulum-v5": -100.0,
    # 1 a step upright, nothing else
    "InvertedPendulum-v4": 0.0,
    "InvertedPendulum-v5": 0.0,
    # 0.1 * 7 * 2**2 a step for the action. The object is pushed within 1 m of the shoulder and
    # slides 0.09 m for each m/s; all joints at torque / damping at once move the tip with 31 m/s:
    # it gets 4.5 m from the goal and 4.7 m, which count half, from the tip.
    "Pusher-v4": -1_000.0,
    "Pusher-v5": -1_000.0,
    # 2 a step for the action, at most 0.21 + 0.2 m between finger and target, 50 steps
    "Reacher-v4": -120.5,
    "Reacher-v5": -120.5,
    # 5 m/s: two joints of 150 N m press the water with 600 N, its drag is 180 N at 1 m/s, so that
    # 2 m/s is what they keep up. Action: 1e-4 * 2 a step.
    "Swimmer-v4": -5_001.0,
    "Swimmer-v5": -5_001.0,
    # reward between 0 and 1 at the end, nothing before
    "MiniGrid-DoorKey-16x16-v0": 0.0,
    "MiniGrid-KeyCorridorS4R3-v0": 0.0,
    "MiniGrid-FourRooms-v0": 0.0,
    "MiniGrid-ObstructedMaze-1Q-v1": 0.0,
    # -sqrt(|dx| / 100 + 0.3 |dy| / 100 + 0.02 (|dcos| + |dsin|)) a step, at least -0.88 within the
    # walls of 70 m by 42 m, 500 steps; -5 in the one that hits them, the last
    "parking-v0": -450.0,
    # normalised to [0, 1] a step, but for a change of lanes in the step that crashes: -0.05 / 1.2
    "roundabout-v0": -0.05,
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
