"""Anchors: what knowing nothing and what a known good policy score, as rows of data.

`anchors.toml` has one table a registered id, written by `evopolicygym anchors --write`;
`core16.toml` holds the paper's figures for Core-16, `experts.toml` those of our own Programs.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

import gymnasium
from pydantic import ConfigDict, TypeAdapter, ValidationError

from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.envs.families import family_of
from evopolicygym.errors import BenchmarkError

__all__ = [
    "LEAST_EPISODES",
    "Anchors",
    "Expert",
    "Measurement",
    "OwnExpert",
    "PaperRow",
    "anchors",
    "anchors_file",
    "anchors_text",
    "core16",
    "documented_expert",
    "own_experts",
    "read_anchors",
    "versions",
]

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

LEAST_EPISODES = 30
"""Fewest Episodes for which a mean gets an interval: the normal one, no t quantiles needed."""

_Z_95 = statistics.NormalDist().inv_cdf(0.975)
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Measurement:
    """The mean return of one Program.

    Attributes:
        mean: Mean return.
        standard_error: Sample standard deviation / sqrt(episodes).
        episodes: Number of Episodes.
    """

    __pydantic_config__ = _STRICT

    mean: float
    standard_error: float
    episodes: int

    @classmethod
    def of(cls, returns: Sequence[float]) -> Measurement:
        """Measure from the returns of at least two Episodes."""
        error = statistics.stdev(returns) / math.sqrt(len(returns))
        mean = math.fsum(returns) / len(returns)
        return cls(round(mean, _DIGITS), round(error, _DIGITS), len(returns))

    @property
    def standard_deviation(self) -> float:
        """Sample standard deviation of one Episode's return."""
        return self.standard_error * math.sqrt(self.episodes)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Normal 95 % interval of the mean, or None for fewer than `LEAST_EPISODES`."""
        if self.episodes < LEAST_EPISODES:
            return None
        half = _Z_95 * self.standard_error
        return self.mean - half, self.mean + half


@dataclass(frozen=True, slots=True)
class Expert:
    """What a good policy scores.

    Attributes:
        value: Mean return.
        kind: `reference`, a result that was reached; `threshold`, one that counts as solved.
        source: Where the figure comes from.
    """

    __pydantic_config__ = _STRICT

    value: float
    kind: Literal["reference", "threshold"]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """One row.

    Attributes:
        benchmark: Id of the Benchmark that was played; its Episodes follow from id, split, seed.
        max_episode_steps: Its step limit.
        split: Data split.
        seed: Seed of the plan.
        random: The uniform random policy.
        noop: The policy of the action nearest to 0.
        expert: A good policy, or None where no figure is known.
        versions: Distribution → version that it was measured with.
    """

    __pydantic_config__ = _STRICT

    benchmark: str
    max_episode_steps: int
    split: str
    seed: int
    random: Measurement
    noop: Measurement
    expert: Expert | None = None
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PaperRow:
    """The paper's figures for one environment of Core-16.

    Attributes:
        random: Mean return of the uniform random policy.
        best: Mean return of the best model's policy.
        best_model: That model.
    """

    __pydantic_config__ = _STRICT

    random: float
    best: float
    best_model: str


@dataclass(frozen=True, slots=True)
class OwnExpert:
    """A Program of ours, played on the Episodes that the row of `anchors.toml` is measured on.

    Attributes:
        program: Name of its directory in `benchmarks/experts`.
        returns: What it reached.
    """

    __pydantic_config__ = _STRICT

    program: str
    returns: Measurement

    @property
    def expert(self) -> Expert:
        """The same as an anchor."""
        mean, error, episodes = astuple(self.returns)
        measured = f"measured: {mean} ± {error}, {episodes} Episodes"
        return Expert(mean, "reference", f"benchmarks/experts/{self.program}, {measured}")


@dataclass(frozen=True, slots=True)
class _Paper:
    __pydantic_config__ = _STRICT

    source: str
    episodes: int
    environments: dict[str, PaperRow]


T = TypeVar("T")


def _checked(kind: TypeAdapter[T], text: str, name: str) -> T:
    try:
        return kind.validate_python(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BenchmarkError(f"{name} is no TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BenchmarkError(f"{name}: {place}: {first['msg']}") from None


def anchors_file() -> Path:
    """Return where the catalog's own rows are."""
    return Path(str(files("evopolicygym.envs").joinpath("anchors.toml")))


def read_anchors(path: Path) -> dict[str, Anchors]:
    """Read a file of rows: registered id → row.

    Raises:
        BenchmarkError: It is no TOML, or holds what a row can't have; names the place.
    """
    return _checked(TypeAdapter(dict[str, Anchors]), path.read_text("utf-8"), path.name)


@cache
def _catalog() -> Mapping[str, Anchors]:
    return read_anchors(anchors_file())


def anchors(env_id: str) -> Anchors | None:
    """Return the row of a registered id (with or without `gymnasium/`), or None."""
    return _catalog().get(env_id.removeprefix("gymnasium/"))


@cache
def _paper() -> _Paper:
    name = "core16.toml"
    text = files("evopolicygym.envs").joinpath(name).read_text("utf-8")
    return _checked(TypeAdapter(_Paper), text, name)


def core16() -> tuple[Mapping[str, PaperRow], int]:
    """Return the paper's rows by registered id, and the Episodes behind each mean."""
    paper = _paper()
    return paper.environments, paper.episodes


@cache
def own_experts() -> Mapping[str, OwnExpert]:
    """Return the experts that are Programs of ours: registered id → Program and result."""
    name = "experts.toml"
    text = files("evopolicygym.envs").joinpath(name).read_text("utf-8")
    return _checked(TypeAdapter(dict[str, OwnExpert]), text, name)


def documented_expert(spec: BenchmarkSpec) -> Expert | None:
    """Return the paper's best entry, a Program of ours, or the registered `reward_threshold`."""
    env_id = str(spec.metadata.get("gymnasium_id", spec.id))
    row = _paper().environments.get(env_id)
    if row is not None:
        source = f"best entry, {row.best_model}; {_paper().source}"
        return Expert(row.best, "reference", source)
    own = own_experts().get(env_id)
    if own is not None:
        return own.expert
    registered = gymnasium.registry.get(env_id)
    if registered is None or registered.reward_threshold is None:
        return None
    source = f"reward_threshold of {env_id}, gymnasium registry"
    return Expert(float(registered.reward_threshold), "threshold", source)


def versions(spec: BenchmarkSpec) -> dict[str, str]:
    """Return the versions that decide what an environment does: distribution → version."""
    env_id = str(spec.metadata.get("gymnasium_id", ""))
    names = {"numpy"}
    registered = gymnasium.registry.get(env_id)
    if registered is not None:
        family = family_of(env_id)
        names |= {"gymnasium"} | ({family.modules[0].partition(".")[0]} if family else set())
        made_by = str(registered.entry_point)
        names |= {"mujoco"} if "mujoco" in made_by or "robotics" in made_by else set()
        names |= {"box2d"} if "box2d" in made_by else set()
    found: dict[str, str] = {}
    for name in sorted(names):
        with contextlib.suppress(PackageNotFoundError):  # e.g. Box2D under another name
            found[name.replace("_", "-")] = version(name)
    return found


_HEAD = """\
# Anchors by registered id: mean, standard error and number of Episodes of the uniform random and of
# the no-op policy, and what a good policy scores. Written by `evopolicygym anchors --write`.
"""


def anchors_text(rows: Mapping[str, Anchors]) -> str:
    """Return the TOML document of rows; equal rows give equal text."""
    return "\n".join([_HEAD, *(_table(name, rows[name]) for name in sorted(rows))])


def _table(name: str, row: Anchors) -> str:
    lines = [f"[{_string(name)}]", f"benchmark = {_string(row.benchmark)}"]
    lines.append(f"max_episode_steps = {row.max_episode_steps}")
    lines += [f"split = {_string(row.split)}", f"seed = {row.seed}"]
    for policy, measured in (("random", row.random), ("noop", row.noop)):
        lines.append(
            f"{policy} = {{ mean = {measured.mean!r}, standard_error = "
            f"{measured.standard_error!r}, episodes = {measured.episodes} }}"
        )
    if row.expert is not None:
        lines.append(
            f"expert = {{ value = {row.expert.value!r}, kind = {_string(row.expert.kind)}, "
            f"source = {_string(row.expert.source)} }}"
        )
    pairs = (f"{_string(key)} = {_string(row.versions[key])}" for key in sorted(row.versions))
    lines.append(f"versions = {{ {', '.join(pairs)} }}")
    return "\n".join(lines) + "\n"


def _string(value: Any) -> str:
    """A JSON string is a TOML one, as long as nothing is written as a pair of surrogates."""
    return json.dumps(value, ensure_ascii=False)
