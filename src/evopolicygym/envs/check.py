"""What one environment id is good for, found by playing it.

`evopolicygym.envs.levels` says what each level asks for. Three more findings are recorded beside
the level: `deterministic`, `conforms` and `trace`.

`python -P -m evopolicygym.envs.check ID …` prints one JSON line an id; whatever the environments
print goes to stderr. `evopolicygym.envs.isolation` runs that with time limits.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import random
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

import numpy as np

from evopolicygym.benchmark import SPLITS, Benchmark
from evopolicygym.envs import load
from evopolicygym.envs.levels import supported
from evopolicygym.envs.task_text import HEADINGS
from evopolicygym.errors import BenchmarkError, UnknownEnvironmentError
from evopolicygym.spaces import action_reader, describe, observation_writer

__all__ = [
    "EnvironmentCheck",
    "check_environment",
    "earned",
    "joined",
    "one_line",
    "private_stdout",
]

SMOKE_STEPS = 50
DIGEST_STEPS = 100
_CONFORMANCE_STEPS = 50
_REASON_LENGTH = 300


@dataclass(frozen=True, slots=True)
class EnvironmentCheck:
    """What is known about one id.

    Attributes:
        id: Benchmark id.
        level: One of `evopolicygym.envs.levels.LEVELS`.
        stage: The check that was at work last: load, smoke, task, determinism, conformance; `done`
            at the end.
        reason: One line: what kept it from L2, or why a later finding is missing. Empty if nothing.
        unknown: There is no such id.
        missing: A package that it needs is not installed.
        deterministic: Whether equal seeds gave equal bytes: fresh instances, and in another process
            with another PYTHONHASHSEED. None where that was not measured.
        conforms: Whether `evopolicygym.testing.check_benchmark` passed. None: not measured.
        failure_return_known: Whether `failure_return` is a bound and no stand-in.
        undocumented: Headings of the task text where something is "not documented".
        notes: Peculiarities that cost no level.
        digest: SHA-256 (hex) over observations, rewards and flags of `DIGEST_STEPS` random steps.
        environment_digest: Of its spec.
        trace: Sums of the rewards and of all numbers of the observations of those steps. Unlike
            `digest` they can be compared between machines, whose arithmetic differs in last bits.
        supported: Level that recorded evidence supports: L2, L3 or L4.
        lacks: What keeps it from the next level, if nothing in `reason` does.
        seconds: What the checks took.
    """

    id: str
    level: str = "L0"
    stage: str = "load"
    reason: str = ""
    unknown: bool = False
    missing: bool = False
    deterministic: bool | None = None
    conforms: bool | None = None
    failure_return_known: bool | None = None
    undocumented: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str = ""
    environment_digest: str = ""
    trace: tuple[float, float] | None = None
    supported: str = "L2"
    lacks: str = ""
    seconds: float = 0.0


def check_environment(
    benchmark_id: str,
    report: Callable[[EnvironmentCheck], None] = lambda _: None,
    *,
    budget: float = math.inf,
    digest_only: bool = False,
) -> EnvironmentCheck:
    """Check one id in this process.

    Args:
        benchmark_id: As for `evopolicygym.envs.load`.
        report: Called before each stage with what is known so far: the process may not survive it.
        budget: Seconds there are; determinism and conformance are left out where the first 50
            steps say that they would take longer.
        digest_only: Load it and compute `digest`, nothing else.

    Returns:
        What was found. Whatever the environment raises is a finding.
    """
    began = time.monotonic()
    row = EnvironmentCheck(benchmark_id)

    def enter(stage: str, **found: Any) -> None:
        nonlocal row
        seconds = round(time.monotonic() - began, 2)
        row = replace(row, stage=stage, seconds=seconds, **found)
        report(row)

    try:
        enter("load")
        benchmark = load(benchmark_id)
        if digest_only:
            enter("determinism")
            enter("done", digest=_play(benchmark, DIGEST_STEPS).digest)
            return row
        bounded = _has_bound(benchmark)
        digest = benchmark.spec.environment_digest
        enter("smoke", failure_return_known=bounded, environment_digest=digest)
        smoke_began = time.monotonic()
        notes = _play(benchmark, SMOKE_STEPS).notes
        seconds = time.monotonic() - smoke_began
        enter("task", level="L1", notes=notes)
        enter("task", undocumented=_undocumented(benchmark.spec.description))
        _require_task(benchmark)
        level, lacks = supported(benchmark, bounded)
        enter("determinism", level="L2", supported=level, lacks=lacks)
    except (Exception, SystemExit) as error:
        if row.level == "L0":
            unknown = isinstance(error, UnknownEnvironmentError)
            enter("done", reason=_why(row, error), unknown=unknown, missing=_is_missing(error))
            return row
        enter("determinism", reason=_why(row, error))
    needed = seconds * (3 * DIGEST_STEPS + 6 * _CONFORMANCE_STEPS) / SMOKE_STEPS
    if needed > budget:
        said = f"{SMOKE_STEPS} steps took {seconds:.1f} s"
        enter("done", reason=joined(row.reason, f"determinism, conformance: not measured, {said}"))
        return row
    for stage, find in (("determinism", _determinism), ("conformance", _conformance)):
        try:
            enter(stage)
            found = find(benchmark)
        except (Exception, SystemExit) as error:
            found = {"reason": _why(row, error)}
        enter(stage, **{**found, "reason": joined(row.reason, found.get("reason", ""))})
    enter("done")
    return row


def earned(row: EnvironmentCheck) -> EnvironmentCheck:
    """Return a complete row with the level that its findings and the recorded evidence give it."""
    if row.level != "L2":
        return row
    wanting = [n for n in ("deterministic", "conforms") if getattr(row, n) is not True]
    if wanting:
        known = ", ".join(f"{n} is {getattr(row, n)}" for n in wanting)
        return replace(row, lacks=f"L3: {known}")
    return replace(row, level=row.supported)


def one_line(text: str) -> str:
    """Return a message on one line, bounded and without paths of this machine."""
    text = re.sub(r"(?<![\w:/])(?:/[\w.+@-]+){2,}(?=/)", "…", text)
    text = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return text if len(text) <= _REASON_LENGTH else text[: _REASON_LENGTH - 1] + "…"


def joined(*reasons: str) -> str:
    """Return reasons as one text."""
    return "; ".join(filter(None, reasons))


def _why(row: EnvironmentCheck, error: BaseException) -> str:
    return one_line(f"{row.stage}: {type(error).__name__}: {error}")


def _is_missing(error: BaseException) -> bool:
    """Whether an error came from a package that is not installed."""
    cause: BaseException | None = error
    while cause is not None:
        # Gymnasium's own error is known by its name: this module needs no Gymnasium.
        if isinstance(cause, ModuleNotFoundError) or (
            type(cause).__name__ == "DependencyNotInstalled"
        ):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _has_bound(benchmark: Benchmark) -> bool:
    """Whether failing is known never to pay: a Benchmark without a stand-in says so itself."""
    return getattr(benchmark, "worst_return", 0.0) is not None


# ------------------------------------------------------------------------------------- playing


@dataclass(frozen=True, slots=True)
class _Played:
    digest: str
    notes: tuple[str, ...]
    trace: tuple[float, float]


def _play(benchmark: Benchmark, steps: int, stir: int = 1) -> _Played:
    """Take random steps over as many Episodes as they need.

    Args:
        benchmark: The Benchmark.
        steps: Steps in all.
        stir: Seed of the global generators, which no environment should need.

    Returns:
        Digest and sums of all that the environments returned, and notes.

    Raises:
        BenchmarkError: What the Host would not accept: values of another shape or type, NaN.
    """
    from evopolicygym.testing import sample_action

    spec = benchmark.spec
    read, write = action_reader(spec.action_space), observation_writer(spec.observation_space)
    actions, digest = np.random.default_rng(0), hashlib.sha256()
    random.seed(stir)
    np.random.seed(stir)
    before = _global_state()
    taken, rewards, numbers = 0, 0.0, 0.0
    for episode in benchmark.episodes("train", seed=0, count=steps):
        environment = benchmark.make_environment(episode)
        try:
            first = environment.reset()
            if not isinstance(first, tuple) or len(first) != 2:
                raise BenchmarkError("reset did not return the pair (observation, info)")
            _digest(digest.update, write(first[0]))
            for count in range(min(spec.max_episode_steps, steps - taken)):
                action = read(sample_action(spec.action_space, actions))
                observation, reward, terminated, truncated, _ = environment.step(action)
                taken += 1
                if not math.isfinite(reward):
                    raise BenchmarkError(f"step {count} returned the reward {reward}")
                written = write(observation)
                _digest(digest.update, written)
                rewards, numbers = rewards + float(reward), numbers + _sum(written)
                digest.update(struct.pack("<d??", float(reward), bool(terminated), bool(truncated)))
                if terminated or truncated:
                    break
        except BaseException:
            with contextlib.suppress(Exception):  # what came first is what went wrong
                environment.close()
            raise
        environment.close()
        if taken == steps:
            break
    changed = before != _global_state()
    notes = ("changes the global random state",) if changed else ()
    return _Played(digest.hexdigest(), notes, (_rounded(rewards), _rounded(numbers)))


def _global_state() -> tuple[Any, ...]:
    _, keys, position, *_ = np.random.get_state(legacy=True)
    return random.getstate(), np.asarray(keys).tobytes(), position


def _digest(update: Callable[[bytes], None], value: Any) -> None:
    """Feed a canonical value to a digest."""
    if isinstance(value, dict):
        for key, item in value.items():
            update(repr(key).encode())
            _digest(update, item)
    elif isinstance(value, list | tuple):
        update(b"[%d" % len(value))
        for item in value:
            _digest(update, item)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and np.isnan(value).any():
            raise BenchmarkError("an observation has NaN")
        update(f"{value.dtype.str}{value.shape}".encode())
        update(np.ascontiguousarray(value).tobytes())
    else:
        update(repr(value).encode("utf-8", "surrogatepass"))


def _sum(value: Any) -> float:
    """Return the sum of all finite numbers of a canonical value."""
    if isinstance(value, dict):
        return sum(map(_sum, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_sum, value))
    if isinstance(value, np.ndarray):
        return float(np.sum(value, dtype=np.float64, where=np.isfinite(value)))
    return float(value) if isinstance(value, int | float | np.number) else 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.9g}") if math.isfinite(value) else 0.0


def _determinism(benchmark: Benchmark) -> dict[str, Any]:
    """Play twice with fresh instances; another process is compared by who runs this one."""
    first, second = (_play(benchmark, DIGEST_STEPS, stir) for stir in (1, 2))
    if first.digest != second.digest:
        return {
            "deterministic": False,
            "reason": "determinism: two fresh instances with the same seed differ",
        }
    return {"digest": first.digest, "trace": first.trace}


def _conformance(benchmark: Benchmark) -> dict[str, Any]:
    from evopolicygym.testing import check_benchmark

    done = check_benchmark(benchmark, episodes=1, steps=_CONFORMANCE_STEPS, raise_on_failure=False)
    failures = "; ".join(f"{check.name}: {check.message}" for check in done.failures)
    reason = one_line(f"conformance: {failures}") if failures else ""
    return {"conforms": done.passed, "reason": reason}


# ---------------------------------------------------------------------------------------- task


def _sections(description: str) -> dict[str, str]:
    """Return the text under each `## Heading`."""
    pieces = re.split(r"(?m)^## +(.+?) *$", description)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def _undocumented(description: str) -> tuple[str, ...]:
    sections = _sections(description)
    return tuple(h for h in HEADINGS if "not documented" in sections.get(h, "not documented"))


def _require_task(benchmark: Benchmark) -> None:
    """Raise BenchmarkError for whatever keeps an agent from working on this task."""
    from evopolicygym.envs.starter import starter_program

    spec = benchmark.spec
    sections = _sections(spec.description)
    empty = [
        heading
        for heading in HEADINGS
        if not re.sub(r"(?m)^not documented$", "", sections.get(heading, "")).strip()
    ]
    if empty:
        raise BenchmarkError(f"the task text says nothing about {', '.join(empty)}")
    describe(spec.observation_space)
    describe(spec.action_space)
    compile(starter_program(benchmark).files["policy.py"], "policy.py", "exec")
    seen: set[str] = set()
    for split in SPLITS:
        plan, again = (tuple(benchmark.episodes(split, seed=0, count=8)) for _ in range(2))
        if plan != again:
            raise BenchmarkError(f"{split}: equal inputs gave another plan")
        identities = {repr((e.environment_seed, e.scenario)) for e in plan}
        if seen & identities:
            raise BenchmarkError(f"{split} shares Episodes with another split")
        seen |= identities


# --------------------------------------------------------------------------------- own process


@contextlib.contextmanager
def private_stdout() -> Iterator[IO[str]]:
    """Yield what was stdout; until the end everything else that is printed goes to stderr."""
    sys.stdout.flush()
    own = os.dup(1)  # not inherited by programs that are started
    os.dup2(2, 1)
    try:
        with os.fdopen(own, "w", encoding="utf-8", closefd=False) as stream:
            yield stream
    finally:
        sys.stdout.flush()
        os.dup2(own, 1)
        os.close(own)


def main(argv: list[str] | None = None) -> None:
    """Check ids, each in turn, and print a JSON line for each."""
    from evopolicygym.execution.process_tree import (
        become_subreaper,
        die_with_parent,
        kill_children,
    )

    parser = argparse.ArgumentParser(prog="python -P -m evopolicygym.envs.check")
    parser.add_argument("ids", nargs="+", metavar="ID")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds an id")
    parser.add_argument("--digest", action="store_true", help="compute the digest only")
    parser.add_argument("--progress", action="store_true", help="a line before each stage, too")
    options = parser.parse_args(argv)
    die_with_parent(os.getppid())
    become_subreaper()
    with private_stdout() as stream:

        def report(row: EnvironmentCheck) -> None:
            if options.progress or row.stage == "done":
                stream.write(json.dumps(asdict(row)) + "\n")
                stream.flush()

        for benchmark_id in options.ids:
            check_environment(
                benchmark_id, report, budget=options.budget, digest_only=options.digest
            )
            kill_children()
        stream.flush()
        os._exit(0)  # threads and exit handlers of environments have no say


if __name__ == "__main__":
    main()
