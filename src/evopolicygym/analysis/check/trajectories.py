"""Trajectories: line by line, the numbers that follow from them, and their hash."""

from __future__ import annotations

import math
import mmap
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evopolicygym.analysis.check.documents import DocumentError, Documents, parsed, regular_bytes
from evopolicygym.analysis.check.finding import FindingCode
from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.execution.trajectory import SpoolLimits, TrajectorySpool
from evopolicygym.execution.wire import SHARED_THRESHOLD, Encoder
from evopolicygym.run.models import EpisodeEntry, FeedbackEpisode, TrajectoryLine
from evopolicygym.spaces import Space, array_layout, space_nbytes
from evopolicygym.strict_json import finite

__all__ = ["check_trajectories"]

_SHARED_SLACK = 4096
"""Bytes of shared memory beyond the arrays' own: part of the hash, docs/protocol.md."""


def check_trajectories(documents: Documents) -> None:
    """Check every written trajectory against its Episode."""
    for name, feedback in documents.feedback.items():
        entries = documents.of("submissions").get(name)
        if entries is None:
            continue
        by_index = {entry.index: entry for entry in entries.episodes}
        home = documents.root / "submissions" / name / "feedback"
        for row in feedback.episodes:
            entry = by_index.get(row.index)
            path = home / "episodes" / f"{row.index:06d}" / "trajectory.jsonl"
            if entry is None or entry.environment_error is not None or not path.is_file():
                continue  # what must be there is checked where paths are
            try:
                _check(documents, path, row, entry)
            except DocumentError as error:
                documents.findings.add(error.code, path, str(error))


def _check(documents: Documents, path: Path, row: FeedbackEpisode, entry: EpisodeEntry) -> None:
    """Check one.

    Raises:
        DocumentError: A line is none, or the lines do not follow each other.
    """
    spec = None if row.trajectory_cut else documents.spec
    play = _Play(spec, path.with_name("observations.npz"))
    for number, line in _lines(path):
        try:
            play.take(line)
        except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
            raise DocumentError(FindingCode.TRAJECTORY, f"line {number} {error}") from None
    findings = documents.findings
    problems = list(play.problems(entry, cut=row.trajectory_cut))
    for problem in problems:
        findings.add(FindingCode.TRAJECTORY, path, problem)
    if play.spool is None or problems:
        return
    recomputed = play.spool.close(play.steps)
    if recomputed != entry.trajectory_hash:
        message = f"has the hash {recomputed}, recorded is {entry.trajectory_hash}"
        findings.add(FindingCode.HASH, path, message)
    for name, told, right in (
        ("rewards", row.rewards, play.spool.rewards.summary(play.total)),
        ("actions", row.actions, play.spool.actions.summary()),
    ):
        if not _alike(told, right):
            message = f"$.{name} of Episode {row.index} is {told}, the trajectory has {right}"
            findings.add(FindingCode.PUBLICATION, path.parents[2] / "feedback.json", message)


def _lines(path: Path) -> Iterator[tuple[int, TrajectoryLine]]:
    try:
        data = regular_bytes(path)
    except OSError as error:
        raise DocumentError(FindingCode.MISSING, f"can't be read: {error.strerror}") from None
    *complete, rest = data.split(b"\n")
    for number, line in enumerate(complete, start=1):
        try:
            yield number, parsed(line, TrajectoryLine)
        except DocumentError as error:
            raise DocumentError(error.code, f"line {number} {error}") from None
    if rest:
        raise DocumentError(FindingCode.JSON, f"line {len(complete) + 1} is torn")


class _Play:
    """Goes through a trajectory as the worker did, so that its own code hashes and counts.

    Args:
        spec: The Run's, or None not to hash.
        arrays: Where large observations are.
    """

    def __init__(self, spec: BenchmarkSpec | None, arrays: Path) -> None:
        self.steps = 0
        self.total = 0.0
        self.terminated = self.truncated = False
        self.final = False
        self.spool: TrajectorySpool | None = None
        if spec is None:
            return
        nbytes = space_nbytes(spec.observation_space)
        shared = mmap.mmap(-1, nbytes + _SHARED_SLACK) if nbytes >= SHARED_THRESHOLD else None
        self._encoder = Encoder(shared)
        self.spool = TrajectorySpool(
            spec.observation_space, spec.action_space, self._encoder, None, SpoolLimits()
        )
        self._observation = _reader(spec.observation_space, _Arrays(arrays))
        self._action = _reader(spec.action_space, _Arrays(arrays))

    def take(self, line: TrajectoryLine) -> None:
        """Take the next line.

        Raises:
            ValueError: It can't follow, or holds what the spaces don't; so do the other errors
                that reading malformed values raises.
        """
        if line.t != self.steps:
            raise ValueError(f"has t {line.t}, expected {self.steps}")
        if self.final:
            raise ValueError("follows the final observation")
        if self.spool is not None:
            observation = self._observation(line.obs)
            self.spool.observe(observation, self._encoder.encode(observation))
        if line.reward is None or line.terminated is None or line.truncated is None:
            rest = (line.action, line.reward, line.terminated, line.truncated)
            if rest != (None,) * 4 or line.info:
                raise ValueError("is neither a step nor a final observation")
            self.final = True
            return
        if self.terminated or self.truncated:
            raise ValueError("is a step after the end")
        if self.spool is not None:
            action = self._action(line.action)
            self.spool.step(self.steps, action, line.reward, line.terminated, line.truncated, {})
        self.terminated, self.truncated = line.terminated, line.truncated
        self.steps += 1
        self.total += line.reward

    def problems(self, entry: EpisodeEntry, *, cut: bool) -> Iterator[str]:
        """Compare all lines with the Episode."""
        if cut and not self.final:  # the rest was played and not written
            if self.steps > entry.steps:
                yield f"has {self.steps} steps, the Episode has {entry.steps}"
            return
        if not self.final and (entry.steps or self.steps or entry.failure is None):
            yield "has no final observation"
        for name in ("steps", "terminated", "truncated"):
            if getattr(self, name) != getattr(entry, name):
                yield f"{name} is {getattr(self, name)}, the Episode has {getattr(entry, name)}"
        if self.total != entry.total_reward:
            yield f"the rewards sum to {self.total}, the Episode has {entry.total_reward}"


# ----------------------------------------------------------------- from JSON to canonical values


class _Arrays:
    """The arrays of `observations.npz`, read as they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}

    def row(self, reference: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[Any]]:
        """Return the array that a line refers to.

        Raises:
            ValueError: There is none.
        """
        key, number = reference["npz"], reference["row"]
        if type(key) is not str or type(number) is not int or number < 0:
            raise ValueError(f"refers to {reference}")
        if key not in self._found:
            try:
                with np.load(self._path, allow_pickle=False) as archive:
                    self._found[key] = archive[key]
            except (OSError, zipfile.BadZipFile, EOFError, ValueError, KeyError) as error:
                raise ValueError(f"needs {key} of observations.npz: {error}") from None
        return self._found[key][number]  # type: ignore[no-any-return]


def _reader(space: Space, arrays: _Arrays) -> Callable[[Any], Any]:
    """Compile the inverse of `execution.trajectory.json_value_writer`."""
    kind = space["type"]
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        return _array_reader(*array_layout(space), arrays)
    if kind == "Dict":
        readers = {name: _reader(child, arrays) for name, child in space["spaces"].items()}

        def read_dict(value: Any) -> Any:
            if value.keys() != readers.keys():
                raise ValueError(f"has the keys {sorted(value)}, expected {sorted(readers)}")
            return {name: read(value[name]) for name, read in readers.items()}

        return read_dict
    if kind in ("Tuple", "OneOf"):
        parts = [_reader(child, arrays) for child in space["spaces"]]
        if kind == "OneOf":
            return lambda value: [value[0], parts[value[0]](value[1])]
        return lambda value: [read(item) for read, item in zip(parts, value, strict=True)]
    if kind == "Sequence":
        part = _reader(space["space"], arrays)
        return lambda value: [part(item) for item in value]
    if kind == "Graph":
        return _graph_reader(space, arrays)
    return _read_text if kind == "Text" else _read_integer


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"has {value!r}, expected text")
    return value


def _read_integer(value: Any) -> int:
    # Whatever a space allows, integers are sent in 64 bits.
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError(f"has {value!r}, expected an integer of 64 bits")
    return value


def _array_reader(
    dtype: np.dtype[Any], shape: tuple[int, ...], arrays: _Arrays
) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, dict):
            array = arrays.row(value)
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(f"refers to an array {array.dtype}{list(array.shape)}")
            return np.ascontiguousarray(array)
        with np.errstate(over="ignore"):  # what overflows is not the same when it is written
            array = np.array(_floats(value) if dtype.kind == "f" else value, dtype=dtype)
        if array.shape != shape or finite(array.tolist()) != value:
            raise ValueError(f"has values that no {dtype}{list(shape)} holds")
        return array

    return read


def _graph_reader(space: Space, arrays: _Arrays) -> Callable[[Any], Any]:
    def features(child: Space | None) -> tuple[np.dtype[Any], tuple[int, ...]]:
        if child is None or child["type"] == "Discrete":
            return np.dtype(np.int64), ()
        return array_layout(child)

    layouts = [
        features(space["node_space"]),
        features(space["edge_space"]),
        (np.dtype(np.int32), (2,)),
    ]

    def read(value: Any) -> Any:
        return [
            None if part is None else _array_reader(dtype, (len(part), *shape), arrays)(part)
            for part, (dtype, shape) in zip(value, layouts, strict=True)
        ]

    return read


def _floats(value: Any) -> Any:
    """Return nested lists with the infinities, which JSON writes as text."""
    if isinstance(value, list):
        return [_floats(item) for item in value]
    return float(value) if isinstance(value, str) else value


def _alike(first: Any, second: Any) -> bool:
    """Whether JSON values are equal but for how machines round sums."""
    if isinstance(first, float | int) and isinstance(second, float | int):
        return first == second or math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_alike(first[k], second[k]) for k in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_alike, first, second))
    return bool(first == second)
