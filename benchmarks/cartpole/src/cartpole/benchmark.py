"""`CartPoleBenchmark`: CartPole-v1 with physics parameters that can be chosen."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium

from evopolicygym.benchmark import (
    BenchmarkSpec,
    Episode,
    EpisodeRecord,
    Feedback,
    mean_return_feedback,
    plan_episodes,
)

__all__ = ["CartPoleBenchmark"]

# Of CartPole-v1 (gymnasium/envs/classic_control/cartpole.py).
_POSITION_LIMIT = 2.4  # m
_ANGLE_LIMIT = math.radians(12)
_TIME_STEP = 0.02  # s

# Name → least and most allowed value, unit, meaning. Inside these ranges one step moves the pole
# by less than 12°, so even the last observation of an Episode lies inside the observation space.
_PHYSICS: Mapping[str, tuple[float, float, str, str]] = {
    "gravity": (0.1, 30.0, "m/s^2", "gravitational acceleration"),
    "cart_mass": (0.5, 10.0, "kg", "mass of the cart"),
    "pole_mass": (0.01, 1.0, "kg", "mass of the pole"),
    "pole_half_length": (0.3, 2.0, "m", "distance from the joint to the pole's centre of mass"),
    "force": (1.0, 20.0, "N", "magnitude of every push"),
}

_COMPONENTS: tuple[dict[str, Any], ...] = (
    {
        "index": 0,
        "name": "cart position",
        "unit": "m",
        "range": f"[-{2 * _POSITION_LIMIT}, {2 * _POSITION_LIMIT}]",
        "meaning": "0 is the middle of the track, positive is to the right",
        "ends_beyond": _POSITION_LIMIT,
    },
    {
        "index": 1,
        "name": "cart velocity",
        "unit": "m/s",
        "range": "[-inf, inf]",
        "meaning": "positive is to the right",
    },
    {
        "index": 2,
        "name": "pole angle",
        "unit": "rad",
        "range": f"[-{2 * _ANGLE_LIMIT:.4f}, {2 * _ANGLE_LIMIT:.4f}]",
        "meaning": "0 is upright, positive leans to the right",
        "ends_beyond": _ANGLE_LIMIT,
    },
    {
        "index": 3,
        "name": "pole angular velocity",
        "unit": "rad/s",
        "range": "[-inf, inf]",
        "meaning": "positive turns to the right",
    },
)

_ACTIONS = {"0": "push the cart to the left", "1": "push the cart to the right"}


@dataclass(frozen=True, kw_only=True)
class CartPoleBenchmark:
    """Balance a pole on a cart. Keyword arguments only; the defaults are CartPole-v1.

    Attributes:
        max_episode_steps: Steps after which an Episode is truncated, in [1, 100000].
        gravity: m/s^2, in [0.1, 30].
        cart_mass: kg, in [0.5, 10].
        pole_mass: kg, in [0.01, 1].
        pole_half_length: Metres from the joint to the pole's centre of mass, in [0.3, 2].
        force: Newtons of every push, in [1, 20].

    Raises:
        TypeError: An argument is not a number of the right kind.
        ValueError: An argument is out of its range.
    """

    max_episode_steps: int = 500
    gravity: float = 9.8
    cart_mass: float = 1.0
    pole_mass: float = 0.1
    pole_half_length: float = 0.5
    force: float = 10.0

    def __post_init__(self) -> None:
        steps = self.max_episode_steps
        if type(steps) is not int:
            raise TypeError(f"max_episode_steps is {steps!r}, expected an integer")
        if not 1 <= steps <= 100_000:
            raise ValueError(f"max_episode_steps is {steps}, expected 1 to 100000")
        for name, (least, most, unit, meaning) in _PHYSICS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{name} is {value!r}, expected a number ({meaning}, {unit})")
            if not least <= value <= most:  # NaN fails this, too
                raise ValueError(
                    f"{name} is {value!r}, expected {least:g} to {most:g} {unit} ({meaning})"
                )
            # Equal numbers must give equal digests, so an int becomes the float it denotes.
            object.__setattr__(self, name, float(value))

    @property
    def spec(self) -> BenchmarkSpec:
        """Public description."""
        high = [2 * _POSITION_LIMIT, math.inf, 2 * _ANGLE_LIMIT, math.inf]
        return BenchmarkSpec(
            id="cartpole",
            description=self._description(),
            observation_space={
                "type": "Box",
                "dtype": "float32",
                "shape": [4],
                "low": [-bound for bound in high],
                "high": high,
            },
            action_space={"type": "Discrete", "n": 2},
            max_episode_steps=self.max_episode_steps,
            # Every step pays 1.0 and an Episode has at least one: no completed one returns less.
            failure_return=0.0,
            metadata={
                "observation_components": [dict(component) for component in _COMPONENTS],
                "actions": dict(_ACTIONS),
                "time_step_seconds": _TIME_STEP,
            },
            environment_parameters={
                field.name: getattr(self, field.name)
                for field in fields(self)
                if field.name in _PHYSICS
            },
        )

    def _description(self) -> str:
        components = "\n".join(
            f"  [{c['index']}] {c['name']}, {c['unit']}, in {c['range']}: {c['meaning']}"
            for c in _COMPONENTS
        )
        actions = "\n".join(f"  {number}: {meaning}" for number, meaning in _ACTIONS.items())
        physics = "\n".join(
            f"  {name} = {getattr(self, name):g} {unit}: {meaning}"
            for name, (_, _, unit, meaning) in _PHYSICS.items()
        )
        return f"""\
## Objective

Keep a pole upright on a cart by pushing the cart left or right, for as long as possible. The pole
turns freely on the cart; the track has no friction.

## Policy Interface

`act(observation)` gets a numpy array and returns an `int`; anything but 0 and 1 fails the Episode.

## Observation

A float32 array of shape (4,), the full state:
{components}
At the start each of the four is drawn uniformly from [-0.05, 0.05].

## Action

An integer. There is no "do nothing":
{actions}

## Reward

1.0 for every step, including the one that ends the Episode. The return of an Episode is its number
of steps, so at most {self.max_episode_steps}; an Episode that the policy fails counts 0.

## Termination

As soon as the cart is more than {_POSITION_LIMIT} m away from the middle, or the pole
more than 12 degrees ({_ANGLE_LIMIT:.8f} rad) away from upright. Otherwise the Episode is truncated
after {self.max_episode_steps} steps. The last step's info says under "ended_by" which limit was
passed: "position", "angle" or both.

## Notes

Dynamics: explicit Euler steps of {_TIME_STEP} s with the parameters
{physics}
With total = cart_mass + pole_mass, l = pole_half_length and F = force for action 1, -force for 0:
  push = (F + pole_mass * l * angular_velocity**2 * sin(angle)) / total
  angular_acceleration = (gravity * sin(angle) - cos(angle) * push)
                         / (l * (4/3 - pole_mass * cos(angle)**2 / total))
  acceleration = push - pole_mass * l * angular_acceleration * cos(angle) / total
"""

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        """Plan Episodes that differ by seed."""
        return plan_episodes("cartpole", split, seed=seed, count=count)

    def make_environment(self, episode: Episode) -> _CartPole:
        """Create one Episode's cart."""
        return _CartPole(self, episode.environment_seed)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """Score by the mean return; tell how the Episodes ended and how long they lasted."""
        feedback = mean_return_feedback(records)
        if not records:
            return feedback
        # A record tells an end by a limit from one by time; which limit is in the trajectory.
        ended_by = {
            "angle_or_position": sum(record.terminated for record in records),
            "time_limit": sum(record.truncated and not record.terminated for record in records),
            "policy_failure": sum(record.failure is not None for record in records),
        }
        steps = [record.steps for record in records]
        content = {
            **feedback.content,
            "ended_by": ended_by,
            "steps": {
                "min": min(steps),
                "median": statistics.median(steps),
                "max": max(steps),
            },
            "longest_possible": self.max_episode_steps,
        }
        return Feedback(score=feedback.score, content=content)


class _CartPole:
    """One Episode."""

    def __init__(self, benchmark: CartPoleBenchmark, seed: int) -> None:
        self._env: gymnasium.Env[Any, Any] = gymnasium.make(
            "CartPole-v1",
            max_episode_steps=benchmark.max_episode_steps,
            disable_env_checker=True,  # the Host checks actions and observations itself
        )
        self._seed = seed
        physics: Any = self._env.unwrapped
        self._physics = physics
        physics.gravity = benchmark.gravity
        physics.masscart = benchmark.cart_mass
        physics.masspole = benchmark.pole_mass
        physics.length = benchmark.pole_half_length
        physics.force_mag = benchmark.force
        # What CartPoleEnv derives from them in its constructor.
        physics.total_mass = physics.masspole + physics.masscart
        physics.polemass_length = physics.masspole * physics.length

    def reset(self) -> tuple[Any, Mapping[str, Any]]:
        return self._env.reset(seed=self._seed)

    def step(self, action: int) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        observation, reward, terminated, truncated, info = self._env.step(action)
        if terminated:
            info = {**info, "ended_by": self._limits_passed()}
        return observation, float(reward), terminated, truncated, info

    def _limits_passed(self) -> list[str]:
        position, _, angle, _ = self._physics.state
        passed = {
            "position": abs(position) > self._physics.x_threshold,
            "angle": abs(angle) > self._physics.theta_threshold_radians,
        }
        return [name for name, beyond in passed.items() if beyond]

    def close(self) -> None:
        self._env.close()
