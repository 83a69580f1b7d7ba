"""Data splits: which Episodes a study trains, selects and measures on, written down as files.

A directory of splits holds `train.json`, `valid.json` and `heldout.json`, and `digests.json` with
the SHA-256 of each. `make_splits` makes them from a seed, the same on every machine;
`SplitBenchmark` lets a Run play them. The files hold seeds and are the Host's; `digests.json` holds
no seed. See `docs/protocol.md`, "Data splits".
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeVar

import msgspec

from evopolicygym.benchmark import (
    Benchmark,
    BenchmarkSpec,
    Environment,
    Episode,
    EpisodeRecord,
    Feedback,
)
from evopolicygym.errors import BenchmarkError, ConfigurationError, near_miss
from evopolicygym.strict_json import loads

__all__ = [
    "DIGESTS_SCHEMA",
    "MAX_CASES",
    "SPLIT_NAMES",
    "SPLIT_SCHEMA",
    "SplitBenchmark",
    "Splits",
    "check_seeded",
    "make_splits",
    "read_splits",
    "write_splits",
]

SPLIT_SCHEMA = "evopolicygym.split/1"
DIGESTS_SCHEMA = "evopolicygym.split-digests/1"

SPLIT_NAMES: Mapping[str, str] = {"train": "train", "validation": "valid", "test": "heldout"}
"""What a Benchmark calls a split → what its file is called, less `.json`."""

MAX_CASES = 100_000
"""Most cases of one split."""

_MAX_BYTES = 16 * 1024 * 1024  # a case takes about 60
_MAX_SEED = 2**63 - 1
_MAX_ID = 255
_EPISODE_SEEDS = 2**31
_CODES = {"train": 0, "valid": 1, "heldout": 2}  # those of `plan_episodes`


@dataclass(frozen=True, slots=True)
class Splits:
    """Disjoint sets of Episodes of one Benchmark. Private to the Host.

    Attributes:
        benchmark_id: Id of the Benchmark.
        seed: What they were made from.
        cases: `train`, `valid` and `heldout` → Episodes without a scenario; no environment seed
            occurs twice.
    """

    benchmark_id: str
    seed: int
    cases: Mapping[str, tuple[Episode, ...]]

    @property
    def sizes(self) -> dict[str, int]:
        """Number of cases of each split."""
        return {name: len(cases) for name, cases in self.cases.items()}

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 (hex) of the canonical JSON of each split. Public."""
        return {name: hashlib.sha256(self._split(name)).hexdigest() for name in self.cases}

    def files(self) -> dict[str, bytes]:
        """Return the content of the four files by name."""
        digests = {
            "schema": DIGESTS_SCHEMA,
            "benchmark_id": self.benchmark_id,
            "digests": self.digests,
        }
        splits = {f"{name}.json": self._split(name) for name in self.cases}
        return {**splits, "digests.json": _canonical(digests)}

    def _split(self, name: str) -> bytes:
        cases = [
            {"environment_seed": case.environment_seed, "policy_seed": case.policy_seed}
            for case in self.cases[name]
        ]
        return _canonical(
            {
                "schema": SPLIT_SCHEMA,
                "benchmark_id": self.benchmark_id,
                "split": name,
                "seed": self.seed,
                "cases": cases,
            }
        )


def _canonical(value: Any) -> bytes:
    """Return ASCII JSON with sorted keys and no spaces: the same from every Python."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


# ------------------------------------------------------------------------------------ making


def make_splits(benchmark_id: str, seed: int, sizes: Mapping[str, int]) -> Splits:
    """Make splits; equal arguments give equal splits everywhere.

    Environment seeds come from SHA-256 over id, split, seed and position; one that a split has
    already is passed over. Their value modulo 4 is the split's code, as in `plan_episodes`, so
    splits never share one, whatever their seeds. A policy seed comes from SHA-256 over id, split,
    seed and its environment seed: who doesn't know `seed` learns nothing from it.

    Args:
        benchmark_id: Id of the Benchmark.
        seed: In `[0, 2**63)`.
        sizes: Number of cases of `train`, `valid` and `heldout`, each in `[1, MAX_CASES]`.

    Raises:
        ConfigurationError: An argument is out of range.
    """
    if not benchmark_id or not benchmark_id.isprintable() or len(benchmark_id) > _MAX_ID:
        raise ConfigurationError(
            f"$.benchmark_id is {benchmark_id[:40]!a}, expected 1 to {_MAX_ID} printable characters"
        )
    _check_integer("$.seed", seed, 0, _MAX_SEED)
    if sizes.keys() != _CODES.keys():
        raise ConfigurationError(f"$.sizes has {sorted(sizes)}, expected {', '.join(_CODES)}")
    for name, size in sizes.items():
        _check_integer(f"$.sizes.{name}", size, 1, MAX_CASES)
    cases = {name: _draw_cases(benchmark_id, name, seed, sizes[name]) for name in _CODES}
    return Splits(benchmark_id, seed, cases)


def _check_integer(path: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ConfigurationError(f"{path} is {value!r}, expected an integer in [{least}, {most}]")


def _draw_cases(benchmark_id: str, name: str, seed: int, size: int) -> tuple[Episode, ...]:
    def draw(purpose: str, number: int) -> int:
        return _hashed([SPLIT_SCHEMA, purpose, benchmark_id, name, seed, number])

    chosen: dict[int, Episode] = {}
    position = 0
    while len(chosen) < size:
        environment_seed = draw("environment", position) % (_EPISODE_SEEDS // 4) * 4 + _CODES[name]
        position += 1
        if environment_seed not in chosen:
            policy_seed = draw("policy", environment_seed) % _EPISODE_SEEDS
            chosen[environment_seed] = Episode(environment_seed, policy_seed)
    return tuple(chosen.values())


def _hashed(value: Any) -> int:
    return int.from_bytes(hashlib.sha256(_canonical(value)).digest()[:8], "big")


# ----------------------------------------------------------------------------------- writing


def write_splits(
    root: Path, splits: Splits | Mapping[str, Splits], *, overwrite: bool = False
) -> None:
    """Write splits into a directory, all or nothing.

    They are written beside it and then take its place by rename. Until then, and where that fails,
    the directory is as it was. A process that is killed leaves a hidden `.NAME.…` beside it, which
    holds the old files if it was killed between the two renames.

    Args:
        root: The directory; new, or empty.
        splits: Splits for `root` itself, or for subdirectories by name.
        overwrite: Whether files of an earlier call may be replaced. Nothing else ever is.

    Raises:
        ConfigurationError: `root` is in use, or can't be written; it is as it was.
    """
    sets = {".": splits} if isinstance(splits, Splits) else splits
    files = {
        Path(directory) / name: content
        for directory, of_one in sets.items()
        for name, content in of_one.files().items()
    }
    try:
        place = root.resolve()
        _check_place(root, place, files, overwrite)
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{place.name[:64]}.", dir=place.parent) as scratch:
            new, old = Path(scratch) / "new", Path(scratch) / "old"
            for path, content in files.items():
                (new / path).parent.mkdir(parents=True, exist_ok=True)
                with (new / path).open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            try:
                if place.exists():
                    place.rename(old)
                new.rename(place)
            except BaseException:
                if old.exists() and not place.exists():
                    old.rename(place)
                raise
    except (OSError, RuntimeError) as error:  # resolve() raises RuntimeError for a loop of links
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{root} can't be written: {reason}") from error


def _check_place(root: Path, place: Path, files: Mapping[Path, bytes], overwrite: bool) -> None:
    if place.parent.is_file():
        raise ConfigurationError(f"{root} can't be written: {root.parent} is no directory")
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise ConfigurationError(f"{root} is no directory: name a new or an empty directory")
    if Path.cwd().is_relative_to(place):
        raise ConfigurationError(f"{root} holds the current directory: name one below it")
    if not overwrite and any(place.iterdir()):
        raise ConfigurationError(
            f"{root} exists and is not empty: name a new or an empty directory, or replace the "
            "splits in it with --overwrite"
        )
    known = {*files, *(parent for path in files for parent in path.parents)}
    stranger = _stranger(place, place, known)
    if stranger is not None:
        raise ConfigurationError(
            f"{root} holds {str(stranger)!r}, which is none of the files to replace: name another "
            "directory, or remove it"
        )


def _stranger(directory: Path, place: Path, known: set[Path]) -> Path | None:
    """Return something below `place` that is not in `known`; it is looked for no further."""
    for path in sorted(directory.iterdir()):
        relative = path.relative_to(place)
        if relative not in known:
            return relative
        if path.is_dir() and not path.is_symlink():
            found = _stranger(path, place, known)
            if found is not None:
                return found
    return None


# ----------------------------------------------------------------------------------- reading

_Seed = Annotated[int, msgspec.Meta(ge=0, lt=_EPISODE_SEEDS)]
_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=_MAX_ID)]


class _Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    environment_seed: _Seed
    policy_seed: _Seed


class _SplitFile(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"schema_": "schema"}
):
    schema_: str
    benchmark_id: _Id
    split: str
    seed: Annotated[int, msgspec.Meta(ge=0, le=_MAX_SEED)]
    cases: Annotated[tuple[_Case, ...], msgspec.Meta(min_length=1, max_length=MAX_CASES)]


class _Digests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    train: _Digest
    valid: _Digest
    heldout: _Digest


class _DigestsFile(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"schema_": "schema"}
):
    schema_: str
    benchmark_id: _Id
    digests: _Digests


_File = TypeVar("_File", _SplitFile, _DigestsFile)


def read_splits(directory: str | os.PathLike[str]) -> Splits:
    """Read the four files of a directory and check them.

    Raises:
        ConfigurationError: A file is missing, too large, not what it should be, of another
            version, Benchmark or seed than the others, or not what `digests.json` says; or a case
            occurs twice.
    """
    home = Path(directory)
    digests = _read(home / "digests.json", _DigestsFile, DIGESTS_SCHEMA)
    files = {name: _read(home / f"{name}.json", _SplitFile, SPLIT_SCHEMA) for name in _CODES}
    seed = files["train"].seed
    owners: dict[int, str] = {}
    for name, file in files.items():
        path = home / f"{name}.json"
        if file.split != name:
            raise ConfigurationError(f"{path} holds the split {file.split!r}, expected {name!r}")
        if file.benchmark_id != digests.benchmark_id:
            raise ConfigurationError(
                f"{path} is for {file.benchmark_id!r}, {home / 'digests.json'} for "
                f"{digests.benchmark_id!r}: expected the same"
            )
        if file.seed != seed:
            raise ConfigurationError(
                f"{path} was made from another seed than {home / 'train.json'}: expected the same"
            )
        for index, case in enumerate(file.cases):
            here = f"{name}.json $.cases[{index}]"
            owner = owners.setdefault(case.environment_seed, here)
            if owner != here:
                raise ConfigurationError(
                    f"{home}: {here} has the environment_seed of {owner}: expected another one in "
                    "every case of every split"
                )
    splits = Splits(
        digests.benchmark_id,
        seed,
        {
            name: tuple(Episode(case.environment_seed, case.policy_seed) for case in file.cases)
            for name, file in files.items()
        },
    )
    for name, found in splits.digests.items():
        expected = getattr(digests.digests, name)
        if found != expected:
            raise ConfigurationError(
                f"{home / f'{name}.json'} was changed: its digest is {found[:12]}…, "
                f"digests.json says {expected[:12]}…"
            )
    return splits


def _read(path: Path, kind: type[_File], schema: str) -> _File:
    """Read one file of one kind.

    Raises:
        ConfigurationError: See `read_splits`.
    """
    try:
        if path.exists() and not path.is_file():  # a FIFO would never end
            raise ConfigurationError(f"{path} is no regular file")
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be read: {error.strerror}; expected what `evopolicygym data make` writes"
        ) from error
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(f"{path} has more than {_MAX_BYTES} bytes: this is no split")
    try:
        document = loads(data)
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid JSON: {error}") from None
    found = document.get("schema") if isinstance(document, dict) else None
    if found != schema:
        shown = f"the schema {found!r:.60}" if found is not None else "no schema"
        raise ConfigurationError(f"{path} has {shown}, expected {schema!r}")
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        # The command line takes `$.seed` for its own option.
        raise ConfigurationError(f"{path}: {str(error).replace('`$.', '`')}") from None


# ----------------------------------------------------------------------------------- playing


@dataclass(frozen=True)
class SplitBenchmark:
    """A Benchmark whose Episodes come from splits; all else is the Benchmark's own.

    `train` is played from `train.json`, `validation` from `valid.json`, `test` from `heldout.json`.
    The spec is the Benchmark's own: an Episode is played, and replayed from a record, bit for bit
    as without splits. Records keep `data_digests`. The agent is not told: it could make splits
    from seeds that come to mind until a digest agrees.

    The splits stay in this process: what workers get is the Benchmark alone.

    Attributes:
        benchmark: The Benchmark. Its Episodes must differ by seed alone.
        splits: Its splits; None in a worker.

    Raises:
        ConfigurationError: The splits belong to another Benchmark, or it plans scenarios.
    """

    benchmark: Benchmark
    splits: Splits | None

    def __post_init__(self) -> None:
        spec = self.benchmark.spec
        if self.splits is not None:
            if self.splits.benchmark_id != spec.id:
                raise ConfigurationError(
                    f"the splits are for {self.splits.benchmark_id!r}, not for {spec.id!r}: make "
                    "others with `evopolicygym data make`, or name the environment that they are "
                    "for"
                )
            check_seeded(self.benchmark)

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitBenchmark, (self.benchmark, None)

    @property
    def spec(self) -> BenchmarkSpec:
        """Public description."""
        return self.benchmark.spec

    @property
    def data_digests(self) -> Mapping[str, str] | None:
        """Digest of each split, for the record."""
        return None if self.splits is None else self.splits.digests

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        """Choose `count` cases of a split by `seed`, none of them twice.

        Raises:
            ConfigurationError: There is no such split, or it has fewer cases.
        """
        if self.splits is None:
            raise ConfigurationError("the splits stayed in the process that read them: read again")
        if split not in SPLIT_NAMES:
            raise ConfigurationError(
                f"$.split is {split!r}, expected one of {', '.join(SPLIT_NAMES)} with data splits."
                + near_miss(split, SPLIT_NAMES)
            )
        name = SPLIT_NAMES[split]
        cases = self.splits.cases[name]
        if count > len(cases):
            raise ConfigurationError(
                f"{name}.json has {len(cases)} cases, {count} Episodes are asked for: ask for at "
                f"most {len(cases)}, or make splits with --{name}-size {count}"
            )
        return sorted(cases, key=lambda case: _hashed([seed, case.environment_seed]))[:count]

    def make_environment(self, episode: Episode) -> Environment:
        """Create the Benchmark's own Environment."""
        return self.benchmark.make_environment(episode)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        """Score as the Benchmark does."""
        return self.benchmark.feedback(records)


def check_seeded(benchmark: Benchmark) -> None:
    """Check that the Episodes of a Benchmark differ by seed alone.

    Raises:
        ConfigurationError: They have scenarios, which splits of seeds can't hold.
        BenchmarkError: Planning raised.
    """
    try:
        planned = benchmark.episodes("train", seed=0, count=1)
    except (ConfigurationError, BenchmarkError):
        raise
    except Exception as error:
        raise BenchmarkError(
            f"planning split 'train' raised {type(error).__name__}: {error}"
        ) from error
    if any(episode.scenario for episode in planned):
        raise ConfigurationError(
            f"the Episodes of {benchmark.spec.id!r} have scenarios: data splits are for Benchmarks "
            "whose Episodes differ by seed alone"
        )
