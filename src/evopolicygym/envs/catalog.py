"""The catalog: environment ids as rows of data.

A row names a registered Gymnasium id, the step limit of the original catalogue
(facts/aliases.json) and the worst return a completed Episode can have, derived from the
environment's documented reward function. That is what a failed Episode counts for.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ALIASES", "Alias"]


@dataclass(frozen=True, slots=True)
class Alias:
    """A short name for a registered id.

    Attributes:
        env_id: Registered Gymnasium id.
        max_episode_steps: Step limit.
        worst_return: No completed Episode returns less.
    """

    env_id: str
    max_episode_steps: int
    worst_return: float


ALIASES: dict[str, Alias] = {
    # Classic Control: reward a step times the step limit
    "gym/acrobot": Alias("Acrobot-v1", 500, -500.0),
    "gym/cartpole": Alias("CartPole-v1", 500, 0.0),
    "gym/mountaincar": Alias("MountainCar-v0", 200, -200.0),
    # -0.1 * action**2 a step, |action| <= 1
    "gym/continuouscar": Alias("MountainCarContinuous-v0", 999, -99.9),
    # at least -(pi**2 + 0.1 * 8**2 + 0.001 * 2**2) = -16.27361 a step, rounded away from zero
    "gym/pendulum": Alias("Pendulum-v1", 200, -3254.73),
    # Toy Text; Blackjack pays once, at the end
    "gym/blackjack": Alias("Blackjack-v1", 200, -1.0),
    "gym/cliff": Alias("CliffWalking-v1", 200, -20_000.0),
    "gym/frozenlake": Alias("FrozenLake-v1", 100, 0.0),
    "gym/taxi": Alias("Taxi-v4", 200, -2_000.0),
}
"""Every alias that a base install can play."""
