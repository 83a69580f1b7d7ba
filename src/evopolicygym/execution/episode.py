"""Playing one Episode: the loop between a fresh Environment and a fresh policy process."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evopolicygym.benchmark import (
    Benchmark,
    BenchmarkSpec,
    Environment,
    Episode,
    EpisodeRecord,
    Failure,
    FailureCode,
)
from evopolicygym.execution.capped import CappedBuffer
from evopolicygym.execution.policy_process import PolicyFailedError, PolicyProcess
from evopolicygym.execution.trajectory import SpoolLimits, TrajectorySpool
from evopolicygym.spaces import (
    InvalidActionError,
    action_bytes_limit,
    action_copier,
    action_reader,
    observation_writer,
)

__all__ = ["EpisodeOutcome", "HostFaultError", "play_episode", "scrub"]


class HostFaultError(Exception):
    """The Environment or the Host failed; never the policy's fault."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """All that one Episode left, besides its spooled files.

    Attributes:
        index: Public index of the Episode.
        steps: Completed steps.
        total_reward: Sum of the observed rewards.
        score_return: What the Episode counts for.
        terminated: The environment reached a terminal state.
        truncated: The Episode was cut at its step limit.
        failure: The policy's failure, or None.
        fault: The Host's fault, or None; then nothing else here counts.
        trajectory_hash: SHA-256 (hex), see `evopolicygym.execution.trajectory`.
        rewards: Reward statistics, plain JSON.
        actions: Action statistics, plain JSON.
        stdout: What the policy printed, capped, without Host paths; empty where it was written
            to `stdout.txt` beside the trajectory.
        stderr: The same for stderr.
        trajectory_cut: Whether the written trajectory is shorter than the Episode.
        attempts: How often the Episode was started; 2 after a Host fault.
    """

    index: int
    steps: int = 0
    total_reward: float = 0.0
    score_return: float = 0.0
    terminated: bool = False
    truncated: bool = False
    failure: Failure | None = None
    fault: str | None = None
    trajectory_hash: str = ""
    rewards: Mapping[str, Any] = field(default_factory=dict)
    actions: Mapping[str, Any] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    trajectory_cut: bool = False
    attempts: int = 1

    def record(self) -> EpisodeRecord:
        """Return what `Benchmark.feedback` gets to see."""
        return EpisodeRecord(
            index=self.index,
            steps=self.steps,
            total_reward=self.total_reward,
            score_return=self.score_return,
            terminated=self.terminated,
            truncated=self.truncated,
            failure=self.failure,
        )


# One blank on either side, as the caps write it: with any number, a text of blanks alone would take
# the square of its length.
_CUT = re.compile(r"(\s?(?:\[… \d+ bytes left out …\]|… \d+ characters removed …)\s?)")
"""Where the middle of a text was left out: a path may have been cut in two there."""


def scrub(text: str, paths: Sequence[tuple[str, str]]) -> str:
    """Replace Host paths by public words.

    Args:
        text: What a policy printed or raised.
        paths: Pairs of Host path and what to write for it, the longest first.
    """
    parts = _CUT.split(text)
    for mark in range(1, len(parts), 2):
        parts[mark - 1] = _without_begun(parts[mark - 1], paths)
        parts[mark + 1] = _without_ended(parts[mark + 1], paths)
    text = "".join(parts)
    for path, word in paths:
        text = text.replace(path, word)
    # Whatever absolute path is left, e.g. of another library, keeps its last part only.
    return re.sub(r'(?<=File ")/[^"\n]*/(?=[^"/\n]+")', "", text)


def _without_begun(text: str, paths: Sequence[tuple[str, str]]) -> str:
    """Return `text` without the beginning of a Host path at its end."""
    begun = (size for path, _ in paths for size in range(len(path)) if text.endswith(path[:size]))
    return text[: len(text) - max(begun, default=0)]


def _without_ended(text: str, paths: Sequence[tuple[str, str]]) -> str:
    """Return `text` without the end of a Host path at its beginning.

    An end without a slash, such as the digit of a worker's name, may as well be anything else:
    taking it away would make the text depend on where it was played.
    """
    ended = (
        len(path) - start
        for path, _ in paths
        for start in range(1, len(path))
        if "/" in path[start:] and text.startswith(path[start:])
    )
    return text[max(ended, default=0) :]


@dataclass(slots=True)
class _Tally:
    """Mutable state of the Episode that is being played."""

    steps: int = 0
    total: float = 0.0
    terminated: bool = False
    truncated: bool = False


def play_episode(
    benchmark: Benchmark,
    spec: BenchmarkSpec,
    episode: Episode,
    index: int,
    *,
    spawn: Callable[[], PolicyProcess],
    timeout: float,
    directory: Path | None,
    limits: SpoolLimits,
    output_bytes: int,
    paths: Sequence[tuple[str, str]],
    beat: Callable[[], None],
) -> EpisodeOutcome:
    """Play one Episode to its end.

    Args:
        benchmark: Makes the Environment.
        spec: Its spec, read once.
        episode: What determines the Episode.
        index: Public index.
        spawn: Starts the policy process.
        timeout: Seconds of policy time.
        directory: Where to spool the trajectory, or None.
        limits: Bounds of the spool.
        output_bytes: What is kept of each output stream.
        paths: See `scrub`.
        beat: Called once a step; tells the pool that the Episode moves.

    Returns:
        The outcome; Host faults are raised.

    Raises:
        HostFaultError: The Environment failed or returned what its spec forbids.
    """
    # An Environment that draws from the global generators is deterministic all the same.
    random.seed(episode.environment_seed)
    np.random.seed(episode.environment_seed % 2**32)
    environment = _guarded("make_environment", benchmark.make_environment, episode)
    try:
        answer = _guarded("reset", environment.reset)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise HostFaultError("reset did not return the pair (observation, info)")
        observation = answer[0]
        policy = spawn()
        spool = TrajectorySpool(
            spec.observation_space, spec.action_space, policy.encoder, directory, limits
        )
        tally = _Tally()
        failure: Failure | None = None
        try:
            policy.start(_context(spec, episode), timeout, action_bytes_limit(spec.action_space))
            _loop(environment, observation, spec, policy, spool, tally, beat)
        except PolicyFailedError as error:
            failure = error.failure
        finally:
            end = policy.finish()
            trajectory_hash = spool.close(tally.steps)
    finally:
        _guarded("close", environment.close)
    score = spec.failed_return(tally.total) if failure else tally.total
    stdout, stderr = (_text(data, paths, output_bytes) for data in (end.stdout, end.stderr))
    if directory is not None:
        for name, text in (("stdout.txt", stdout), ("stderr.txt", stderr)):
            if text:
                (directory / name).write_text(text, encoding="utf-8", newline="")
        stdout = stderr = ""  # on disk: the Host's memory stays flat
    return EpisodeOutcome(
        index=index,
        steps=tally.steps,
        total_reward=tally.total,
        score_return=score,
        terminated=tally.terminated,
        truncated=tally.truncated,
        failure=_public(failure, paths),
        trajectory_hash=trajectory_hash,
        rewards=spool.rewards.summary(tally.total),
        actions=spool.actions.summary(),
        stdout=stdout,
        stderr=stderr,
        trajectory_cut=spool.cut,
    )


def _loop(
    environment: Environment,
    observation: Any,
    spec: BenchmarkSpec,
    policy: PolicyProcess,
    spool: TrajectorySpool,
    tally: _Tally,
    beat: Callable[[], None],
) -> None:
    """Alternate between policy and environment; every name is local, this is the hot loop."""
    read_action = action_reader(spec.action_space)
    write_observation = observation_writer(spec.observation_space)
    detach = action_copier(spec.action_space)
    encode, act = policy.encoder.encode, policy.act
    observe, spool_step, step_environment = spool.observe, spool.step, environment.step
    limit, isfinite = spec.max_episode_steps, math.isfinite
    count, total = 0, 0.0
    check = _nan_check(spec.observation_space)
    while True:
        try:
            canonical = write_observation(observation)
            check(canonical)
            payload = encode(canonical)
        except (ValueError, TypeError, OverflowError) as error:
            raise HostFaultError(f"observation after {count} steps: {error}") from error
        observe(canonical, payload)
        if tally.terminated or tally.truncated:
            return
        answer = act(payload)
        try:
            action = read_action(answer)
        except (InvalidActionError, ValueError, TypeError, OverflowError) as error:
            raise PolicyFailedError(
                Failure(FailureCode.INVALID_ACTION, f"invalid action: {error}", count)
            ) from None
        beat()
        try:
            observation, reward, terminated, truncated, info = step_environment(detach(action))
            reward = float(reward)
        except Exception as error:
            raise HostFaultError(f"step {count} raised {type(error).__name__}: {error}") from error
        if not isfinite(reward):
            raise HostFaultError(f"step {count} returned the reward {reward}")
        terminated, truncated = bool(terminated), bool(truncated)
        if count + 1 >= limit and not terminated:
            truncated = True
        spool_step(count, action, reward, terminated, truncated, info)
        count += 1
        total += reward
        tally.steps, tally.total = count, total
        tally.terminated, tally.truncated = terminated, truncated


def _nan_check(space: Mapping[str, Any]) -> Callable[[Any], None]:
    """Compile the check that an observation holds no NaN (infinities may be legal values)."""
    if space["type"] == "Box" and np.dtype(space["dtype"]).kind != "f":
        return lambda value: None
    if space["type"] == "Box" and len(space["shape"]) == 1 and space["shape"][0] <= 32:

        def check_small(value: Any) -> None:
            total = sum(value.tolist())
            if total != total and np.isnan(value).any():
                raise ValueError("NaN from the environment")

        return check_small
    if space["type"] == "Box":

        def check_box(value: Any) -> None:
            if np.isnan(value).any():
                raise ValueError("NaN from the environment")

        return check_box
    if space["type"] == "Dict":
        checks = [(key, _nan_check(child)) for key, child in space["spaces"].items()]

        def check_dict(value: Any) -> None:
            for key, check in checks:
                check(value[key])

        return check_dict
    if space["type"] in ("Discrete", "MultiDiscrete", "MultiBinary", "Text"):
        return lambda value: None
    return _check_any


def _check_any(value: Any) -> None:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            _check_any(item)
    elif hasattr(value, "dtype") and value.dtype.kind == "f" and (value != value).any():
        raise ValueError("NaN from the environment")


def _guarded(what: str, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        raise HostFaultError(f"{what} raised {type(error).__name__}: {error}") from error


def _context(spec: BenchmarkSpec, episode: Episode) -> dict[str, Any]:
    return {
        "observation_space": spec.observation_space,
        "action_space": spec.action_space,
        "metadata": spec.metadata,
        "environment_parameters": spec.environment_parameters,
        "max_episode_steps": spec.max_episode_steps,
        "policy_seed": episode.policy_seed,
    }


def _public(failure: Failure | None, paths: Sequence[tuple[str, str]]) -> Failure | None:
    if failure is None:
        return None
    return replace(
        failure,
        message=scrub(failure.message, paths),
        traceback=scrub(failure.traceback, paths),
    )


def _text(data: bytes, paths: Sequence[tuple[str, str]], limit: int) -> str:
    text = scrub(data.decode("utf-8", "replace"), paths)
    # Replacement characters and public words may be longer than what they stand for.
    capped = CappedBuffer(limit)
    capped.write(text.encode())
    return capped.content().decode("utf-8", "replace")
