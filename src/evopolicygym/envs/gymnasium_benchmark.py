"""One adapter for every single-agent environment that is registered with Gymnasium."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from evopolicygym.benchmark import (
    BenchmarkSpec,
    Episode,
    EpisodeRecord,
    Feedback,
    mean_return_feedback,
    plan_episodes,
)
from evopolicygym.envs.families import FAMILIES, bridge_of, family_of, register
from evopolicygym.envs.gymnasium_spaces import (
    action_converter,
    observation_converter,
    space_mapping,
)
from evopolicygym.envs.task_text import generic_text, task_text
from evopolicygym.errors import ConfigurationError, UnknownEnvironmentError, near_miss

__all__ = ["FALLBACK_FAILURE_RETURN", "GymnasiumBenchmark"]

_FALLBACK_STEPS = 1_000
FALLBACK_FAILURE_RETURN = -1.0e6
"""What a failed Episode counts for in an environment whose returns have no known bound."""


class _GymnasiumEnvironment:
    """One Episode of a Gymnasium environment."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        self._env = env
        self._seed = seed
        self._action = action_converter(env.action_space)
        self._observation = observation_converter(env.observation_space)
        # The Host keeps the step limit and the order of calls itself.
        inner = env
        while type(inner) in (TimeLimit, OrderEnforcing):
            inner = inner.env  # type: ignore[attr-defined]
        self._step = inner.step
        if self._action is None and self._observation is None:
            # Nothing to convert: no call in between in the hot loop.
            self.step = inner.step  # type: ignore[method-assign]

    def reset(self) -> tuple[Any, Mapping[str, Any]]:
        observation, info = self._env.reset(seed=self._seed)
        return (self._observation(observation) if self._observation else observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Mapping[str, Any]]:
        observation, *rest = self._step(self._action(action) if self._action else action)
        return (self._observation(observation) if self._observation else observation), *rest

    def close(self) -> None:
        self._env.close()


@dataclass(frozen=True)
class GymnasiumBenchmark:
    """A registered Gymnasium id as a Benchmark.

    Attributes:
        id: Name of the Benchmark.
        env_id: Registered Gymnasium id, e.g. `CartPole-v1`.
        kwargs: Keyword arguments of `gymnasium.make`, public.
        max_episode_steps: Step limit, or None for the registered one.
        worst_return: Least return of a completed Episode: what a failed one counts for. None
            where no bound is known; then it is `FALLBACK_FAILURE_RETURN`.
        description: Task text, or None for one made from the environment's own documentation.
    """

    id: str
    env_id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    worst_return: float | None = None
    description: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_spec", self._make_spec())

    @property
    def spec(self) -> BenchmarkSpec:
        """Public description, from the environment's own spaces."""
        spec: BenchmarkSpec = self._spec  # type: ignore[attr-defined]
        return spec

    def _make(self) -> gymnasium.Env[Any, Any]:
        _register(self.env_id)  # a worker is another process
        options = dict(self.kwargs)
        if self.max_episode_steps is not None:
            options["max_episode_steps"] = self.max_episode_steps
        # gymnasium colours its warnings, whatever they are written to.
        level, gymnasium.logger.min_level = gymnasium.logger.min_level, gymnasium.logger.ERROR
        try:
            with warnings.catch_warnings():
                # What packages think of their own age is nothing that a user here can change.
                warnings.simplefilter("ignore")
                # The passive checker only warns; the wire checks every observation and action.
                env = gymnasium.make(self.env_id, disable_env_checker=True, **options)
                bridge = bridge_of(family_of(self.env_id))
                wrapped: gymnasium.Env[Any, Any] = getattr(bridge, "wrap", lambda env: env)(env)
                return wrapped
        finally:
            gymnasium.logger.min_level = level

    def _make_spec(self) -> BenchmarkSpec:
        try:
            env = self._make()
        except ConfigurationError:  # not registered, or not installed: that says it all
            raise
        except Exception as error:
            raise ConfigurationError(
                f"{self.env_id} can't be created here: {type(error).__name__}: {error}"
            ) from error
        try:
            steps = self.max_episode_steps or _step_limit(env, self.env_id)
            observation, action = map(space_mapping, (env.observation_space, env.action_space))
            parameters, texts = (_said(env, name) for name in ("parameters", "texts"))
            return BenchmarkSpec(
                id=self.id,
                description=self.description
                or task_text(self.env_id, observation, action, steps)
                or generic_text(observation, action, steps, type(env.unwrapped).__doc__, texts),
                observation_space=observation,
                action_space=action,
                max_episode_steps=steps,
                failure_return=(
                    FALLBACK_FAILURE_RETURN if self.worst_return is None else self.worst_return
                ),
                metadata={"gymnasium_id": self.env_id},
                environment_parameters={"env_id": self.env_id, **self.kwargs, **parameters},
            )
        finally:
            env.close()

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        """Plan Episodes that differ by seed."""
        return plan_episodes(self.id, split, seed=seed, count=count)

    def make_environment(self, episode: Episode) -> _GymnasiumEnvironment:
        """Create a fresh environment; it is seeded when it is reset."""
        return _GymnasiumEnvironment(self._make(), episode.environment_seed)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """Score by the mean return."""
        return mean_return_feedback(records)


def _register(env_id: str) -> None:
    """See to it that an id is registered.

    Raises:
        UnknownEnvironmentError: Nothing that is installed registers it; names the nearest ids.
        ConfigurationError: The family it belongs to is not installed.
    """
    if env_id in gymnasium.registry:
        return
    family = family_of(env_id)
    if family is not None:
        register(family)
    if env_id in gymnasium.registry:
        return
    for other in FAMILIES:  # old names are spelled like anything
        with contextlib.suppress(ConfigurationError):
            register(other)
    if env_id not in gymnasium.registry:
        raise UnknownEnvironmentError(
            f"{env_id!r} is not registered with Gymnasium." + near_miss(env_id, gymnasium.registry)
        )


def _said(env: gymnasium.Env[Any, Any], name: str) -> Mapping[str, Any]:
    """Return what a bridge's environment says of itself (`evopolicygym.envs.bridges`)."""
    said: Mapping[str, Any] = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else {}
    return said if isinstance(said, Mapping) else {}


def _step_limit(env: gymnasium.Env[Any, Any], env_id: str) -> int:
    """Find the step limit where the family keeps it (facts/environments.md, 0.9)."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return int(env.spec.max_episode_steps)
    family = family_of(env_id)
    for factors in () if family is None else (family.steps, family.most_steps):
        limit = _product(env, factors)
        if 0 < limit < math.inf:
            return math.ceil(limit)
    return _FALLBACK_STEPS


def _product(env: gymnasium.Env[Any, Any], factors: Sequence[str | int]) -> float:
    """Multiply attributes of the unwrapped environment (`name.name`) and numbers.

    Returns:
        0 where there is nothing to multiply: some of a family have no limit (highway's merge).
    """
    product = float(bool(factors))
    for factor in factors:
        value: Any = factor if isinstance(factor, int) else env.unwrapped
        for name in () if isinstance(factor, int) else factor.split("."):
            value = value.get(name, 0) if isinstance(value, Mapping) else getattr(value, name, 0)
        product *= value
    return product
