"""The checks behind `evopolicygym.testing`: one method a promise of the Benchmark contract."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from evopolicygym import strict_json
from evopolicygym._membership import outside, sample_action, shown
from evopolicygym.benchmark import (
    Artifact,
    Benchmark,
    BenchmarkSpec,
    Environment,
    Episode,
    EpisodeRecord,
    Failure,
    FailureCode,
    Feedback,
)
from evopolicygym.execution.wire import Encoder
from evopolicygym.spaces import action_reader, describe, observation_writer

__all__ = ["Check", "Suite"]

_WIDE = 100
"""Episodes planned a split to compare plans; planning is cheap, playing is not."""

_COINCIDENCE = 1_000
"""Seeds up to this value may occur in public output by chance."""

_OTHER_ACTIONS = 8
"""Actions tried to tell a refused action from an environment that can't go on."""


class Check(NamedTuple):
    """One promise of the contract.

    Attributes:
        name: Stable name, e.g. `replay`.
        passed: Whether it held.
        message: What was wrong and where; for a passed check a remark or an empty string.
    """

    name: str
    passed: bool
    message: str


class _BrokenError(Exception):
    """A promise is broken; the message says how."""


class _StopError(Exception):
    """The Episode at hand can't be played on; the reason is already noted."""


@dataclass(slots=True)
class _Rollout:
    """One played Episode.

    Attributes:
        where: Its place for messages, e.g. `train[0]`.
        episode: The Episode.
        actions: The sampled actions.
        rewards: One reward a step.
        trace: One entry an observation: its digest and the reward and flags that came with it.
        terminated: The environment reached a terminal state.
        truncated: The environment or the step limit cut it.
    """

    where: str
    episode: Episode
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    trace: list[tuple[bytes, float, bool, bool]] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated

    def record(self, index: int) -> EpisodeRecord:
        total = sum(self.rewards)
        return EpisodeRecord(
            index=index,
            steps=len(self.rewards),
            total_reward=total,
            score_return=total,
            terminated=self.terminated,
            truncated=not self.terminated,  # cut by `steps` looks like cut by the step limit
        )

    def failed_record(self, index: int, steps: int, spec: BenchmarkSpec) -> EpisodeRecord:
        """Return what the Host would record, had the policy failed after `steps` steps."""
        partial = sum(self.rewards[:steps])
        failure = Failure(FailureCode.EXCEPTION, "RuntimeError: conformance suite", steps)
        score = spec.failed_return(partial)
        return EpisodeRecord(index, steps, partial, score, False, False, failure)


class Suite:
    """The checks of one Benchmark and what they share."""

    def __init__(
        self, benchmark: Benchmark, splits: tuple[str, ...], episodes: int, steps: int, seed: int
    ) -> None:
        self.benchmark_id = type(benchmark).__name__
        self._benchmark = benchmark
        self._clone = benchmark  # what a worker gets, see _check_pickle
        self._splits = splits
        self._episodes = episodes
        self._steps = steps
        self._seed = seed
        self._results: dict[str, Check] = {}
        self._plans: dict[str, tuple[Episode, ...]] = {}
        self._secrets: set[int] = set()
        self._rollouts: list[_Rollout] = []
        self._stirred = 0
        self._encode = Encoder().encode

    def checks(self) -> tuple[Check, ...]:
        return tuple(self._results.values())

    def _fail(self, name: str, message: str) -> None:
        """Note a failure; the first one of a check is the one that is reported."""
        if self._results.setdefault(name, Check(name, True, "")).passed:
            self._results[name] = Check(name, False, " ".join(message.split()))

    def _ok(self, name: str) -> bool:
        return self._results[name].passed

    @contextlib.contextmanager
    def _check(self, name: str) -> Iterator[None]:
        self._results.setdefault(name, Check(name, True, ""))
        try:
            yield
        except _BrokenError as error:
            self._fail(name, str(error))
        except Exception as error:
            self._fail(name, _raised(error))

    def _stir(self) -> None:
        """Move the global generators, so that whatever draws from them unseeded shows itself."""
        self._stirred += 1
        random.seed(self._stirred)
        np.random.seed(self._stirred)

    def _remark(self, name: str, message: str) -> None:
        if name in self._results and self._ok(name):
            self._results[name] = Check(name, True, message)

    def run(self) -> None:
        self._check_members()
        if not self._ok("members"):
            return
        self._check_spec_json()
        if not self._ok("spec_json"):
            return
        self._check_pickle()
        if self._check_plans():
            self._check_private_spec()
            self._play()
            self._check_replay()
            self._check_close()
            if self._rollouts:
                self._check_feedback()
        self._check_spec_stable()

    # ---------------------------------------------------------------------- spec and plan

    def _check_members(self) -> None:
        with self._check("members"):
            spec: object = self._benchmark.spec
            if not isinstance(spec, BenchmarkSpec):
                raise _BrokenError(f"spec is {shown(spec)}, expected a BenchmarkSpec")
            self._spec = spec
            self.benchmark_id = str(spec.id)
            for name, arguments, keywords in (
                ("episodes", ("train",), {"seed": 0, "count": 1}),
                ("make_environment", (None,), {}),
                ("feedback", ([],), {}),
            ):
                member = getattr(self._benchmark, name, None)
                if not callable(member):
                    raise _BrokenError(f"{name} is missing, expected a method")
                try:
                    inspect.signature(member).bind(*arguments, **keywords)
                except TypeError as error:
                    raise _BrokenError(f"{name} can't be called as documented: {error}") from None

    def _check_spec_json(self) -> None:
        """Records and contexts hold the spec: it must be strict JSON and fit the wire."""
        with self._check("spec_json"):
            spec = self._spec
            for name in ("id", "description", "primary_metric"):
                value = getattr(spec, name)
                if not isinstance(value, str) or not value.strip():
                    raise _BrokenError(f"spec.{name} is {shown(value)}, expected text")
            for name in ("metadata", "environment_parameters"):
                _require_json(getattr(spec, name), f"spec.{name}")
            for name in ("observation_space", "action_space"):  # their bounds may be infinite
                _require_json(getattr(spec, name), f"spec.{name}", infinities=True)
            for name in ("max_episode_steps", "failure_return"):
                _require_json(getattr(spec, name), f"spec.{name}")
            if not isinstance(spec.metadata, Mapping):
                raise _BrokenError(f"spec.metadata is {shown(spec.metadata)}, expected a mapping")
            self._encode([spec.observation_space, spec.action_space, spec.metadata])
            self._encode(spec.environment_parameters)
            self._digest = spec.environment_digest
            self._read = action_reader(spec.action_space)
            self._write = observation_writer(spec.observation_space)

    def _check_spec_stable(self) -> None:
        with self._check("spec_stable"):
            for when in ("after playing", "on two accesses in a row"):
                again = self._benchmark.spec
                if again.environment_digest != self._digest:
                    raise _BrokenError(f"environment_digest changed {when}")
                if again != self._spec:
                    raise _BrokenError(f"spec is not equal {when}")

    def _check_pickle(self) -> None:
        with self._check("pickle"):
            clone = cloudpickle.loads(cloudpickle.dumps(self._benchmark))
            if clone.spec.environment_digest != self._digest:
                raise _BrokenError("environment_digest changes when the Benchmark is pickled")
            if clone.spec != self._spec:
                raise _BrokenError("spec is not equal after the Benchmark was pickled")
            self._clone = clone

    def _plan(self, split: str, count: int, seed: int | None = None) -> tuple[Episode, ...]:
        self._stir()
        seed = self._seed if seed is None else seed
        return tuple(self._benchmark.episodes(split, seed=seed, count=count))

    def _wide_plan(self, split: str, seed: int) -> tuple[Episode, ...]:
        """Plan many Episodes, or few where a finite data set has no more."""
        try:
            return self._plan(split, max(_WIDE, self._episodes), seed)
        except Exception:
            return self._plan(split, self._episodes, seed)

    def _check_plans(self) -> bool:
        """Check the plans; return whether there is something to play."""
        with self._check("plan_count"):
            for split in self._splits:
                for count in sorted({1, self._episodes}):
                    plan = self._plan(split, count)
                    if len(plan) != count:
                        raise _BrokenError(
                            f"{split}: {len(plan)} Episodes were planned, expected {count}"
                        )
                self._plans[split] = plan
        if not self._ok("plan_count"):
            return False
        with self._check("plan_values"):
            for split, plan in self._plans.items():
                for index, episode in enumerate(plan):
                    _require_episode(episode, f"{split}[{index}]")
        if not all(isinstance(e, Episode) for plan in self._plans.values() for e in plan):
            return False
        with self._check("plan_deterministic"):
            for split, plan in self._plans.items():
                if self._plan(split, self._episodes) != plan:
                    raise _BrokenError(f"{split}: equal inputs gave another plan")
        with self._check("plan_policy_seeds"):
            for split, plan in self._plans.items():
                for index, episode in enumerate(plan):
                    if episode.policy_seed == episode.environment_seed:
                        raise _BrokenError(
                            f"{split}[{index}]: policy_seed equals environment_seed, so the "
                            "policy would know it"
                        )
                gaps = {e.policy_seed - e.environment_seed for e in plan}
                if len(gaps) == 1 and len({e.environment_seed for e in plan}) > 1:
                    raise _BrokenError(
                        f"{split}: policy_seed always is environment_seed {gaps.pop():+d}, so the "
                        "policy could work it out"
                    )
        with self._check("plan_splits_disjoint"):
            self._check_disjoint()
        played = [episode for plan in self._plans.values() for episode in plan]
        values = [[episode.environment_seed, episode.scenario] for episode in played]
        self._secrets = {value for value in _integers(values) if value > _COINCIDENCE}
        return True

    def _check_disjoint(self) -> None:
        """No split may share an Episode with another one, not even under another seed."""
        owners: dict[str, str] = {}
        for seed in (self._seed, self._seed + 1):
            for split in self._splits:
                for episode in self._wide_plan(split, seed):
                    identity = [episode.environment_seed, episode.scenario]
                    key = json.dumps(identity, sort_keys=True, default=repr)
                    owner = owners.setdefault(key, split)
                    if owner != split:
                        raise _BrokenError(
                            f"{owner!r} and {split!r} share an Episode: environment_seed "
                            f"{episode.environment_seed}, scenario {shown(episode.scenario)}"
                        )

    # ------------------------------------------------------------------------------- play

    def _play(self) -> None:
        """Play every planned Episode once and note what is wrong on the way."""
        for name in ("environment", "episode_end", "actions", "observations", "rewards", "flags"):
            with self._check(name):
                pass
        for number, (split, plan) in enumerate(self._plans.items()):
            for index, episode in enumerate(plan):
                rollout = _Rollout(f"{split}[{index}]", episode)
                rng = np.random.default_rng([self._seed, number, index])
                with contextlib.suppress(_StopError):
                    self._play_one(rollout, rng)
                    self._rollouts.append(rollout)

    def _stop(self, name: str, message: str) -> _StopError:
        self._fail(name, message)
        return _StopError()

    def _call(self, name: str, where: str, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:
            raise self._stop(name, f"{where} {_raised(error)}") from None

    def _play_one(self, rollout: _Rollout, rng: np.random.Generator) -> None:
        where = rollout.where
        self._stir()
        make = self._benchmark.make_environment
        environment = self._call("environment", f"{where}: make_environment", make, rollout.episode)
        for name in ("reset", "step", "close"):
            if not callable(getattr(environment, name, None)):
                raise self._stop("environment", f"{where}: the Environment has no method {name}")
        try:
            self._step_through(environment, rollout, rng)
        finally:
            self._close(environment, f"{where}: after {len(rollout.rewards)} steps")

    def _step_through(
        self, environment: Environment, rollout: _Rollout, rng: np.random.Generator
    ) -> None:
        where, limit = rollout.where, self._spec.max_episode_steps
        first = self._call("environment", f"{where}: reset", environment.reset)
        if not (isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], Mapping)):
            raise self._stop(
                "environment",
                f"{where}: reset returned {shown(first)}, expected (observation, info mapping)",
            )
        self._see(rollout, f"{where}: reset", first[0], 0.0, False, False, first[1])
        for count in range(min(self._steps, limit)):
            at = f"{where}: step {count}"
            sample, action = self._sample(at, rng)
            sent = self._encode(action)
            try:
                result: object = environment.step(action)
            except Exception as error:
                raise self._blame(rollout, at, sample, error, rng) from None
            if self._encode(action) != sent:
                self._fail("actions", f"{at} changed the action it was given")
            if not (
                isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], Mapping)
            ):
                raise self._stop(
                    "environment",
                    f"{at} returned {shown(result)}, expected (observation, reward, terminated, "
                    "truncated, info mapping)",
                )
            observation, reward, terminated, truncated, info = result
            if not _is_number(reward) or not math.isfinite(reward):
                raise self._stop(
                    "rewards", f"{at} returned the reward {shown(reward)}, expected a finite float"
                )
            for flag, value in (("terminated", terminated), ("truncated", truncated)):
                if not isinstance(value, bool | np.bool_):
                    self._fail("flags", f"{at}: {flag} is {shown(value)}, expected a bool")
            terminated = bool(terminated)
            truncated = bool(truncated) or (count + 1 == limit and not terminated)
            rollout.actions.append(sample)
            rollout.rewards.append(float(reward))
            self._see(rollout, at, observation, float(reward), terminated, truncated, info)
            rollout.terminated, rollout.truncated = terminated, truncated
            if rollout.ended:
                return

    def _sample(self, at: str, rng: np.random.Generator) -> tuple[Any, Any]:
        """Draw an action; return it and what the Host would hand to the Environment."""
        space = self._spec.action_space
        sample = self._call("actions", f"{at}: sample_action", sample_action, space, rng)
        action = self._call("actions", f"{at}: action_reader", self._read, sample)
        if self._encode(action) != self._encode(sample):
            self._fail("actions", f"{at}: {shown(sample)} was read as {shown(action)}")
        return sample, action

    def _see(
        self,
        rollout: _Rollout,
        at: str,
        observation: Any,
        reward: float,
        terminated: bool,
        truncated: bool,
        info: Mapping[str, Any],
    ) -> None:
        space = self._spec.observation_space
        problem = self._call("observations", f"{at}: observation", outside, space, observation)
        if problem:
            self._fail("observations", f"{at}: the observation {problem}")
        digest = self._call("observations", f"{at}: observation", self._fingerprint, observation)
        rollout.trace.append((digest, reward, terminated, truncated))
        self._search(f"the info of {at}", info)

    def _fingerprint(self, observation: Any) -> bytes:
        return hashlib.sha256(self._encode(self._write(observation))).digest()

    def _blame(
        self,
        rollout: _Rollout,
        at: str,
        sample: Any,
        error: Exception,
        rng: np.random.Generator,
    ) -> _StopError:
        """Tell an action that the environment refuses from an Episode that can't go on."""
        refused = f"{at} {_raised(error)}"
        for _ in range(_OTHER_ACTIONS):
            other, _action = self._sample(at, rng)
            if self._encode(other) != self._encode(sample) and self._survives(rollout, other):
                return self._stop(
                    "actions",
                    f"{refused}, for the action {shown(sample)}, which is a member of "
                    f"{describe(self._spec.action_space)}; {shown(other)} was accepted there",
                )
        return self._stop(
            "episode_end",
            f"{refused}, whatever the action, though no end had been reported and an Episode may "
            f"have {self._spec.max_episode_steps} steps",
        )

    def _survives(self, rollout: _Rollout, action: Any) -> bool:
        """Return whether `action` is accepted after the actions of `rollout`."""
        try:
            environment = self._benchmark.make_environment(rollout.episode)
            with contextlib.closing(environment):
                environment.reset()
                for earlier in [*rollout.actions, action]:
                    environment.step(self._read(earlier))
        except Exception:
            return False
        return True

    def _check_replay(self) -> None:
        """Fresh environments of the pickled Benchmark must repeat every byte, in any order."""
        with self._check("replay"):
            for rollout in reversed(self._rollouts):
                self._stir()
                for count, again in enumerate(self._retrace(rollout)):
                    before = rollout.trace[count]
                    names = ("observation", "reward", "terminated", "truncated")
                    changed = [n for n, a, b in zip(names, before, again, strict=True) if a != b]
                    if changed:
                        at = f"step {count - 1}" if count else "reset"
                        raise _BrokenError(
                            f"{rollout.where}: {at}: {', '.join(changed)} differs when the same "
                            "Episode is played again with the same actions"
                        )

    def _retrace(self, rollout: _Rollout) -> Iterator[tuple[bytes, float, bool, bool]]:
        environment = self._clone.make_environment(rollout.episode)
        try:
            observation, _ = environment.reset()
            yield self._fingerprint(observation), 0.0, False, False
            for count, action in enumerate(rollout.actions):
                observation, reward, ended, cut, _ = environment.step(self._read(action))
                at_limit = count + 1 == self._spec.max_episode_steps and not ended
                yield self._fingerprint(observation), float(reward), bool(ended), cut or at_limit
        finally:
            with contextlib.suppress(Exception):  # the check `close` reports it
                environment.close()

    def _close(self, environment: Environment, where: str) -> None:
        with self._check("close"):
            try:
                environment.close()
            except Exception as error:
                raise _BrokenError(f"{where}: close {_raised(error)}") from None

    def _check_close(self) -> None:
        """Close right after `make_environment` and right after `reset`."""
        episode = self._plans[self._splits[0]][0]
        with self._check("environment"):
            unused = self._benchmark.make_environment(episode)
            self._close(unused, "before reset")
            environment = self._benchmark.make_environment(episode)
            if environment is unused:
                raise _BrokenError("make_environment returned an Environment that it gave before")
            with contextlib.suppress(Exception):  # a failing reset has been reported
                environment.reset()
            self._close(environment, "after reset")
        if not any(rollout.ended for rollout in self._rollouts):
            self._remark("close", self._unseen())

    def _unseen(self) -> str:
        return f"no Episode ended within {self._steps} steps: raise `steps` to check more"

    # --------------------------------------------------------------------------- feedback

    def _feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        self._stir()
        feedback: object = self._benchmark.feedback(records)
        if not isinstance(feedback, Feedback):
            raise _BrokenError(f"feedback returned {shown(feedback)}, expected a Feedback")
        return feedback

    def _check_feedback(self) -> None:
        spec, rollouts = self._spec, self._rollouts
        records = [rollout.record(index) for index, rollout in enumerate(rollouts)]
        halves = [len(rollout.rewards) // 2 for rollout in rollouts]
        all_failed = [
            rollout.failed_record(index, half, spec)
            for index, (rollout, half) in enumerate(zip(rollouts, halves, strict=True))
        ]
        cases = (("completed Episodes", records), ("failed Episodes", all_failed))
        with self._check("feedback"):
            for case, listed in cases:
                _require_score(self._feedback(listed).score, case)
        if not self._ok("feedback"):
            return
        with self._check("feedback_empty"):
            _require_score(self._feedback([]).score, "an empty list")
        with self._check("feedback_content"):
            for case, listed in cases:
                _require_content(self._feedback(listed), case)
        with self._check("feedback_deterministic"):
            for case, listed in cases:
                # repr, because a NaN that another check reports is not equal to itself
                if repr(self._feedback(listed)) != repr(self._feedback(listed)):
                    raise _BrokenError(f"two calls with the same {case} differ")
        with self._check("failing_never_pays"):
            self._check_failing(records)
        with self._check("failure_return"):
            for rollout, record in zip(rollouts, records, strict=True):
                if rollout.ended and spec.better(spec.failure_return, record.total_reward):
                    raise _BrokenError(
                        f"{rollout.where}: a completed Episode returned {record.total_reward:g}, "
                        f"worse than failure_return {spec.failure_return:g}: failing would pay"
                    )
        if not any(rollout.ended for rollout in rollouts):
            for name in ("failing_never_pays", "failure_return"):
                self._remark(name, self._unseen())
        with self._check("private_values"):
            for case, listed in cases:
                self._search(f"the Feedback of {case}", self._feedback(listed).content)

    def _check_failing(self, records: list[EpisodeRecord]) -> None:
        """Compare lists that differ in one Episode: completed as observed, or failed earlier."""
        for index, rollout in enumerate(self._rollouts):
            if not rollout.ended:
                continue
            length = len(rollout.rewards)
            for steps in sorted({0, length // 2, length - 1}):
                failed = rollout.failed_record(index, steps, self._spec)
                among = [*records[:index], failed, *records[index + 1 :]]
                for honest, cheating in ((records, among), ([records[index]], [failed])):
                    completed = self._feedback(honest).score
                    score = self._feedback(cheating).score
                    if _pays(self._spec, score, completed):
                        raise _BrokenError(
                            f"{rollout.where}: failing after {steps} of {length} steps raises the "
                            f"score of {len(honest)} Episodes from {completed} to {score}"
                        )

    # ---------------------------------------------------------------------------- privacy

    def _check_private_spec(self) -> None:
        with self._check("private_values"):
            spec = self._spec
            self._search("spec.metadata", spec.metadata)
            self._search("spec.environment_parameters", spec.environment_parameters)
            self._search("spec.description", spec.description)

    def _search(self, where: str, value: Any) -> None:
        for number in _integers(value):
            if number in self._secrets:
                self._fail(
                    "private_values",
                    f"{where} holds {number}, an environment_seed or scenario value of an Episode",
                )


# -------------------------------------------------------------------------- small helpers


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {error}"


def _is_number(value: Any) -> bool:
    # numpy's bool is neither; a Python bool is an int, but no score and no reward.
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _pays(spec: BenchmarkSpec, failed: float | None, completed: float | None) -> bool:
    if failed is None or completed is None:
        return failed is not None
    # Scores that differ by rounding alone are equal.
    return spec.better(failed, completed) and not math.isclose(failed, completed, rel_tol=1e-9)


def _require_score(score: object, case: str) -> None:
    if score is None:
        return
    if not _is_number(score) or not math.isfinite(score):  # type: ignore[arg-type]
        raise _BrokenError(f"{case}: score is {shown(score)}, expected a finite float or None")


def _require_content(feedback: Feedback, case: str) -> None:
    content: object = feedback.content
    if not isinstance(content, Mapping):
        raise _BrokenError(f"{case}: content is {shown(content)}, expected a mapping")
    _require_json(content, f"{case}: content")
    seen: set[str] = set()
    for artifact in feedback.artifacts:
        if not isinstance(artifact, Artifact) or not isinstance(artifact.data, bytes):
            raise _BrokenError(f"{case}: {shown(artifact)} is no Artifact with bytes")
        parts = artifact.path.split("/")
        if artifact.path in seen or not all(parts) or {".", ".."} & set(parts):
            raise _BrokenError(
                f"{case}: artifact path {artifact.path!r}, expected a relative POSIX path, not "
                "used twice"
            )
        seen.add(artifact.path)


def _require_episode(episode: object, where: str) -> None:
    if not isinstance(episode, Episode):
        raise _BrokenError(f"{where} is {shown(episode)}, expected an Episode")
    for name in ("environment_seed", "policy_seed"):
        value = getattr(episode, name)
        if type(value) is not int or not 0 <= value < 2**31:
            raise _BrokenError(f"{where}: {name} is {shown(value)}, expected an int in [0, 2**31)")
    if not isinstance(episode.scenario, Mapping):
        raise _BrokenError(f"{where}: scenario is {shown(episode.scenario)}, expected a mapping")
    _require_json(episode.scenario, f"{where}: scenario")


def _require_json(value: Any, path: str, *, infinities: bool = False) -> None:
    """Raise `_BrokenError` with the path of whatever strict JSON can't hold."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise _BrokenError(f"{path} has the key {shown(key)}, expected a str")
            _require_json(item, f"{path}.{key}", infinities=infinities)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _require_json(item, f"{path}[{index}]", infinities=infinities)
    elif type(value) is float:
        if math.isnan(value) or (math.isinf(value) and not infinities):
            raise _BrokenError(f"{path} is {value}, which JSON does not have")
    elif type(value) is int:
        if not -(2**63) <= value < 2**64:
            raise _BrokenError(f"{path} is {value}, beyond 64 bits")
    elif value is not None and type(value) not in (bool, str):
        raise _BrokenError(f"{path} is {shown(value)}, expected a plain JSON value")
    else:
        strict_json.dumps(value)  # text may still hold lone surrogates


def _integers(value: Any) -> Iterator[int]:
    """Yield every whole number inside a value, also those spelled out in text."""
    if isinstance(value, str):
        yield from map(int, re.findall(r"(?<!\d)\d{1,19}(?!\d)", value))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _integers(key)
            yield from _integers(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _integers(item)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "iu":
            yield from value[value > _COINCIDENCE].tolist()
        elif value.dtype.kind in "OU":
            yield from _integers(value.tolist())
    elif isinstance(value, int | np.integer):
        yield int(value)


# ------------------------------------------------------------------------------ observations
