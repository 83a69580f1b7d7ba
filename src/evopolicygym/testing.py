"""The conformance suite that the author of a Benchmark runs.

```python
from evopolicygym.testing import check_benchmark

def test_contract():
    check_benchmark(MyBenchmark())
```

It plays a few Episodes in this process with random actions and reports each promise of
`evopolicygym.benchmark` that does not hold. What it can't see in a few Episodes it can't report:
raise `episodes` and `steps` for Benchmarks that end late or seldom.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evopolicygym._conformance import Check, Suite
from evopolicygym._membership import sample_action
from evopolicygym.benchmark import Benchmark
from evopolicygym.errors import BenchmarkError, ConfigurationError

__all__ = ["BenchmarkReport", "Check", "check_benchmark", "sample_action"]


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """Result of `check_benchmark`.

    Attributes:
        benchmark_id: Id of the Benchmark, or its type's name where the spec can't be read.
        checks: Every check that could be run, in order. Checks that need something that is
            already broken are left out.
    """

    benchmark_id: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.passed)

    def __str__(self) -> str:
        failed = len(self.failures)
        verdict = f"{failed} failed" if failed else "all passed"
        width = max((len(check.name) for check in self.checks), default=0)
        lines = [f"{self.benchmark_id}: {len(self.checks)} checks, {verdict}"]
        for check in self.checks:
            state = "ok  " if check.passed else "FAIL"
            lines.append(f"  {state}  {check.name:<{width}}  {check.message}".rstrip())
        return "\n".join(lines)


def check_benchmark(
    benchmark: Benchmark,
    *,
    splits: Sequence[str] = ("train", "validation", "test"),
    episodes: int = 3,
    steps: int = 200,
    seed: int = 0,
    raise_on_failure: bool = True,
) -> BenchmarkReport:
    """Check every promise of the Benchmark contract; starts no process.

    The Benchmark is pickled and unpickled here, as it is on its way to a worker. For a class that
    was defined in a function, script or notebook cloudpickle then resets the class's attributes.

    Args:
        benchmark: The Benchmark.
        splits: Names of its data splits.
        episodes: Episodes played a split, >= 1.
        steps: Most steps of one played Episode, >= 1.
        seed: Seed of the plans and of the random actions, >= 0.
        raise_on_failure: Whether a failed check raises.

    Returns:
        The report. What the Benchmark raises becomes a failed check.

    Raises:
        BenchmarkError: Lists every failed check.
        ConfigurationError: An argument is out of range.
    """
    for name, value, least in (("episodes", episodes, 1), ("steps", steps, 1), ("seed", seed, 0)):
        if type(value) is not int or value < least:
            raise ConfigurationError(f"{name} is {value!r}, expected an integer >= {least}")
    if isinstance(splits, str) or not splits:
        raise ConfigurationError(f"splits is {splits!r}, expected names such as ('train', 'test')")
    suite = Suite(benchmark, tuple(splits), episodes, steps, seed)
    before = random.getstate(), np.random.get_state()
    try:
        suite.run()
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
    report = BenchmarkReport(suite.benchmark_id, suite.checks())
    if raise_on_failure and not report.passed:
        failed = "\n".join(f"- {check.name}: {check.message}" for check in report.failures)
        raise BenchmarkError(
            f"{report.benchmark_id}: {len(report.failures)} of {len(report.checks)} checks "
            f"failed\n{failed}"
        )
    return report
