"""No completed Episode returns less than the catalog says, whatever is played."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from evopolicygym.envs import load
from evopolicygym.envs.catalog import ALIASES, CORE_16, WORST_RETURNS, benchmark_id
from evopolicygym.spaces import Space

Player = Callable[[int], Any]

BENCHMARKS = {alias.env_id: name for name, alias in ALIASES.items()}
BENCHMARKS |= {env_id: benchmark_id(env_id) for env_id in CORE_16}
NOT_HERE = {"Pusher-v4": "needs mujoco < 3"}
SLOW = {"CarRacing-v3": "draws every observation", "roundabout-v0": "30 steps a second"}


def ends(space: Space, rng: np.random.Generator) -> list[Any]:
    """All the lower bounds, all the upper ones, and corners of the space."""
    if space["type"] == "Discrete":
        return list(range(int(space["n"])))
    shape = tuple(space["shape"])
    low, high = (np.broadcast_to(np.asarray(space[end]), shape) for end in ("low", "high"))
    corners = (np.where(rng.random(shape) < 0.5, low, high) for _ in range(14))
    return [np.asarray(one, space["dtype"]) for one in (low, high, *corners)]


def constant(number: int) -> Callable[[list[Any], np.random.Generator], Player]:
    return lambda actions, rng: lambda step: actions[number % len(actions)]


def alternating(actions: list[Any], rng: np.random.Generator) -> Player:
    return lambda step: actions[step % 2]


def bang_bang(actions: list[Any], rng: np.random.Generator) -> Player:
    """Hold one extreme after the other for as many steps."""
    period, order = int(rng.integers(2, 40)), rng.permutation(len(actions))
    return lambda step: actions[order[step // period % len(order)]]


def random(actions: list[Any], rng: np.random.Generator) -> Player:
    return lambda step: actions[int(rng.integers(len(actions)))]


def half_and_half(actions: list[Any], rng: np.random.Generator) -> Player:
    """Do one thing for a third of 1000 steps and another ever after: rise, then spin."""
    first, second = rng.permutation(len(actions))[:2]
    return lambda step: actions[first if step < 370 else second]


FEW = (constant(0), constant(1), alternating, bang_bang)
MANY = (*map(constant, range(4)), alternating, random, half_and_half, *[bang_bang] * 3)


def least(env_id: str, players: Any, count: int) -> float:
    """Return the least return of the players over as many Episodes each."""
    benchmark = load(BENCHMARKS[env_id])
    rng = np.random.default_rng(1)
    actions = ends(benchmark.spec.action_space, rng)
    returns = []
    for episode in benchmark.episodes("test", seed=5, count=count):
        for make in players:
            player, total = make(actions, rng), 0.0
            environment = benchmark.make_environment(episode)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the Host has no say in them either
                environment.reset()
                for step in range(benchmark.spec.max_episode_steps):
                    _, reward, terminated, truncated, _ = environment.step(player(step))
                    total += float(reward)
                    if terminated or truncated:
                        break
                environment.close()
            returns.append(total)
    return min(returns)


def test_every_alias_and_core16_has_a_bound() -> None:
    assert BENCHMARKS.keys() <= WORST_RETURNS.keys()
    for env_id in ("HalfCheetah-v5", "parking-v0"):
        assert load(BENCHMARKS[env_id]).spec.failure_return == WORST_RETURNS[env_id]


@pytest.mark.parametrize("env_id", sorted(BENCHMARKS.keys() - NOT_HERE.keys() - SLOW.keys()))
def test_no_episode_falls_below(env_id: str) -> None:
    assert least(env_id, FEW, 1) >= WORST_RETURNS[env_id]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("env_id", sorted(BENCHMARKS.keys() - NOT_HERE.keys()))
def test_no_episode_of_many_falls_below(env_id: str) -> None:
    count = 1 if env_id in {"parking-v0", *SLOW} else 3
    assert least(env_id, MANY, count) >= WORST_RETURNS[env_id]
