"""Levels of an environment: what each asks for, and the recorded evidence for the upper two.

- L0: the id is catalogued or registered, no more.
- L1: it is created, reset with a seed, takes random steps over as many Episodes as they need, and
  is closed; as strict as the Host is when it plays.
- L2: its task text says something under every heading, its spaces can be described, a starter
  Program can be made and its plans are deterministic and disjoint.
- L3: it is deterministic in another process too, conforms to the contract, its `failure_return` is
  a known bound, and `anchors.toml` has its random and expert scores for the same step limit.
- L4: an agent improved on the starter Program: `calibration.toml` has the scores of both on the
  same held-out Episodes and where the Program is, for the environment of the same digest.

No level is written down anywhere: `check-envs` earns it anew from these.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from evopolicygym.benchmark import Benchmark
from evopolicygym.envs.anchors import Measurement, anchors
from evopolicygym.envs.catalog import registered_id
from evopolicygym.errors import BenchmarkError

__all__ = [
    "CALIBRATION_FILE",
    "LEVELS",
    "Calibration",
    "calibration_text",
    "calibrations",
    "supported",
]

LEVELS = ("L0", "L1", "L2", "L3", "L4")
"""All levels, in order."""

CALIBRATION_FILE = Path(str(files("evopolicygym.envs").joinpath("calibration.toml")))
_HEAD = """\
# What an agent made of an environment: Benchmark id → the starter's and the selected Program's mean
# held-out return. Written by `benchmarks/calibrate.py`.
"""
_STANDARD_ERRORS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A Run in which an agent worked on an environment.

    Attributes:
        environment_digest: Of the environment that it was.
        agent: Kind of agent.
        budget: Training Episodes that it had.
        starter: The starter Program's score on the Run's Assessment Episodes.
        selected: The selected Program's score on the same.
        evidence: Directory of that Program and of the Run's `run.json`, from the repository's root.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    environment_digest: str
    agent: str
    budget: int
    starter: Measurement
    selected: Measurement
    evidence: str

    @property
    def improved(self) -> bool:
        """Whether the gain is beyond three standard errors of the difference."""
        gain = self.selected.mean - self.starter.mean
        error = math.hypot(self.selected.standard_error, self.starter.standard_error)
        return gain > _STANDARD_ERRORS * error


@cache
def calibrations() -> Mapping[str, Calibration]:
    """Return the rows of `calibration.toml`: Benchmark id → row.

    Raises:
        BenchmarkError: The file holds what a row can't have; names the place.
    """
    text = CALIBRATION_FILE.read_text("utf-8")
    try:
        return TypeAdapter(dict[str, Calibration]).validate_python(tomllib.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BenchmarkError(f"calibration.toml: {place}: {first['msg']}") from None


def calibration_text(rows: Mapping[str, Calibration]) -> str:
    """Return the TOML document of rows; equal rows give equal text."""
    lines = [_HEAD]
    for name, row in sorted(rows.items()):
        lines.append(f"[{json.dumps(name)}]")
        for key, value in asdict(row).items():
            parts = value.items() if isinstance(value, dict) else ()
            inline = "{ " + ", ".join(f"{k} = {v!r}" for k, v in parts) + " }"
            lines.append(f"{key} = {inline if parts else json.dumps(value)}")
        lines.append("")
    return "\n".join(lines)


def supported(benchmark: Benchmark, bounded: bool) -> tuple[str, str]:
    """Return the level that recorded evidence supports, and what keeps it from the next.

    Args:
        benchmark: The Benchmark.
        bounded: Whether its `failure_return` is known to be a bound.

    Returns:
        L2, L3 or L4, and one line, empty for L4.
    """
    spec = benchmark.spec
    row = anchors(registered_id(spec.id) or spec.id)
    if not bounded:
        return "L2", "L3: failure_return is a stand-in, not a bound"
    if row is None or row.expert is None:
        return "L2", f"L3: no {'anchors' if row is None else 'expert anchor'}"
    if row.max_episode_steps != spec.max_episode_steps:
        steps = f"{row.max_episode_steps} steps, the environment has {spec.max_episode_steps}"
        return "L2", f"L3: the anchors are those of {steps}"
    ran = calibrations().get(spec.id)
    if ran is None:
        return "L3", "L4: no agent has worked on it on record"
    if ran.environment_digest != spec.environment_digest:
        return "L3", "L4: the environment is another one than that of the recorded Run"
    if not ran.improved:
        return "L3", f"L4: {ran.agent} did not improve on the starter Program"
    return "L4", ""
