"""Data splits: made the same everywhere, read with care, played as they are written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym import data
from evopolicygym.benchmark import Episode, plan_episodes
from evopolicygym.data import SplitBenchmark, Splits, make_splits, read_splits, write_splits
from evopolicygym.envs.toy import ToyBenchmark
from evopolicygym.errors import BenchmarkError, ConfigurationError
from evopolicygym.testing import check_benchmark

SIZES = {"train": 64, "valid": 64, "heldout": 256}
SMALL = {"train": 4, "valid": 3, "heldout": 5}
NAMES = ["train", "valid", "heldout"]
FILES = ["digests.json", "heldout.json", "train.json", "valid.json"]

sizes = st.fixed_dictionaries({name: st.integers(1, 40) for name in NAMES})
seeds = st.integers(0, 2**63 - 1)


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


# ----------------------------------------------------------------------------- making

GOLDEN = {
    ("toy", 0): {
        "train": "8a03a64ea1e7f85857a0871bb52951025c138b410287d685e8abd9558d4b9bbc",
        "valid": "0f425a137639efdd803356fe0fe5f2cfd1aa3ff1cc12d4341c05fdd463e189a8",
        "heldout": "79bf9e227f1ff0e41abb0cf415245b8e440247f27bdd74e104cd5b83ac51b179",
    },
    ("gymnasium/Acrobot-v1", 2**63 - 1): {
        "train": "c504a3b505d07142de7c94a708b4e7abcb72fe25f1fb562e6838cb0d45bdef5e",
        "valid": "12a0fc2091af016b68beea39a24742260d9d0a8eb737db575850ee11ea49de4e",
        "heldout": "9d7b843668639fb0543cbddac977afe5b37a766f730915154fc4f2f8bed64745",
    },
}


@pytest.mark.parametrize(("benchmark_id", "seed"), GOLDEN)
def test_the_same_bytes_everywhere(tmp_path: Path, benchmark_id: str, seed: int) -> None:
    splits = make_splits(benchmark_id, seed, SIZES)
    assert splits.digests == GOLDEN[benchmark_id, seed]
    write_splits(tmp_path / "splits", splits)
    for name, digest in splits.digests.items():
        content = (tmp_path / "splits" / f"{name}.json").read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
    assert read_splits(tmp_path / "splits") == splits


def test_cases_are_derived_as_the_protocol_says() -> None:
    def draw(purpose: str, split: str, number: int) -> int:
        text = canonical(["evopolicygym.split/1", purpose, "toy", split, 7, number])
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")

    cases = make_splits("toy", 7, SMALL).cases
    for code, name in enumerate(NAMES):
        for position, case in enumerate(cases[name]):
            assert case.environment_seed == draw("environment", name, position) % 2**29 * 4 + code
            assert case.policy_seed == draw("policy", name, case.environment_seed) % 2**31
            assert case.scenario == {}
    assert make_splits("toy", 0, SMALL).cases["train"][0] == Episode(336201748, 340861203)


@given(seeds, sizes)
def test_deterministic_disjoint_and_in_range(seed: int, sizes: dict[str, int]) -> None:
    splits = make_splits("lab/walk", seed, sizes)
    assert splits == make_splits("lab/walk", seed, dict(reversed(sizes.items())))
    assert splits.sizes == sizes
    drawn = [case.environment_seed for cases in splits.cases.values() for case in cases]
    assert len(set(drawn)) == len(drawn) == sum(sizes.values())
    assert all(0 <= number < 2**31 for number in drawn)
    assert all(0 <= c.policy_seed < 2**31 for cases in splits.cases.values() for c in cases)
    # A smaller split is the beginning of a larger one.
    larger = make_splits("lab/walk", seed, {name: size + 1 for name, size in sizes.items()})
    assert all(larger.cases[name][:-1] == splits.cases[name] for name in NAMES)


@given(seeds, seeds)
def test_no_split_meets_another_one_of_any_seed(first: int, second: int) -> None:
    one, other = (make_splits("lab/walk", seed, SMALL).cases for seed in (first, second))
    planned = {
        name: plan_episodes("lab/walk", split, seed=second, count=5)
        for split, name in data.SPLIT_NAMES.items()
    }
    for name in NAMES:
        mine = {case.environment_seed for case in one[name]}
        for rest in set(NAMES) - {name}:
            assert not mine & {case.environment_seed for case in other[rest]}
            assert not mine & {case.environment_seed for case in planned[rest]}


def test_a_seed_that_was_drawn_before_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_EPISODE_SEEDS", 4 * 8)  # eight environment seeds a split
    cases = make_splits("toy", 0, {"train": 8, "valid": 8, "heldout": 8}).cases
    drawn = sorted(case.environment_seed for split in cases.values() for case in split)
    assert drawn == [seed for seed in range(32) if seed % 4 < 3]


@pytest.mark.parametrize(
    ("benchmark_id", "seed", "sizes", "message"),
    [
        ("", 0, SMALL, r"\$\.benchmark_id is '', expected 1 to 255 printable"),
        ("x" * 256, 0, SMALL, r"\$\.benchmark_id is 'xxx"),
        ("a\udcff", 0, SMALL, r"\$\.benchmark_id is 'a\\udcff'"),
        ("toy", -1, SMALL, r"\$\.seed is -1, expected an integer in \[0, 9223372036854775807\]"),
        ("toy", 2**63, SMALL, r"\$\.seed is 9223372036854775808"),
        ("toy", True, SMALL, r"\$\.seed is True"),
        ("toy", 0, SMALL | {"train": 0}, r"\$\.sizes\.train is 0, expected .* \[1, 100000\]"),
        ("toy", 0, SMALL | {"valid": 100_001}, r"\$\.sizes\.valid is 100001"),
        ("toy", 0, SMALL | {"heldout": 1.0}, r"\$\.sizes\.heldout is 1\.0"),
        ("toy", 0, {"train": 1}, r"\$\.sizes has \['train'\], expected train, valid, heldout"),
        ("toy", 0, SMALL | {"test": 1}, r"\$\.sizes has "),
    ],
)
def test_what_is_not_made(benchmark_id: str, seed: Any, sizes: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        make_splits(benchmark_id, seed, sizes)


# ---------------------------------------------------------------------------- writing


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


OLD, NEW = make_splits("toy", 0, SMALL), make_splits("toy", 1, SMALL)


def test_written_into_a_new_place_an_empty_one_or_on_demand_over_old_ones(tmp_path: Path) -> None:
    write_splits(tmp_path / "a" / "b", OLD)
    assert sorted(content(tmp_path)) == [f"a/b/{name}" for name in FILES]
    (tmp_path / "empty").mkdir()
    write_splits(tmp_path / "empty", OLD)
    (tmp_path / "link").symlink_to("empty")
    with pytest.raises(ConfigurationError, match=r"link exists and is not empty.*--overwrite"):
        write_splits(tmp_path / "link", NEW)
    assert read_splits(tmp_path / "empty") == OLD
    write_splits(tmp_path / "link", NEW, overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert read_splits(tmp_path / "empty") == read_splits(tmp_path / "link") == NEW
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "empty", "link"]


def test_sets_of_splits_go_into_subdirectories(tmp_path: Path) -> None:
    root = tmp_path / "suite"
    write_splits(root, {"x": OLD, "y": NEW})
    assert sorted(content(root)) == [f"{home}/{name}" for home in "xy" for name in FILES]
    write_splits(root, {"x": NEW, "y": NEW}, overwrite=True)
    assert read_splits(root / "x") == NEW
    before = content(root)
    for splits in (OLD, {"x": OLD}):
        with pytest.raises(ConfigurationError, match=r"holds '[xy]', which is none of the files"):
            write_splits(root, splits, overwrite=True)
    assert content(root) == before


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "deeper"])
def test_nothing_else_is_ever_replaced(tmp_path: Path, name: str) -> None:
    root = tmp_path / "splits"
    write_splits(root, OLD)
    if name == "deeper":
        (root / name).mkdir()
    else:
        (root / name).write_text("keep me")
    before = content(tmp_path)
    with pytest.raises(ConfigurationError, match=f"holds '{name}', which is none of the files"):
        write_splits(root, NEW, overwrite=True)
    assert content(tmp_path) == before


def test_places_that_can_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("keep me")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    for root, message in (
        ("file", "file is no directory"),
        ("file/below", "file/below can't be written: file is no directory"),
        ("file/below/it", "file/below/it can't be written: Not a directory"),
        ("loop", "loop can't be written|loop is no directory"),
        ("x" * 300, "can't be written: File name too long"),
        (".", ". holds the current directory"),
        ("..", ".. holds the current directory"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            write_splits(Path(root), OLD, overwrite=True)
    assert content(tmp_path) == {"file": b"keep me"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("call", range(6))
def test_an_interrupted_write_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, call: int
) -> None:
    """Four files are synced, the old directory is moved away, the new one takes its place."""
    root = tmp_path / "splits"
    write_splits(root, OLD)
    calls = []

    def failing(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            calls.append(original)
            if len(calls) == call + 1:
                raise error
            return original(*arguments)

        return wrapper

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing(os.fsync))
        patched.setattr(Path, "rename", failing(Path.rename))
        with pytest.raises((KeyboardInterrupt, ConfigurationError)):
            write_splits(root, NEW, overwrite=True)
    assert len(calls) >= call + 1
    assert read_splits(root) == OLD
    assert list(tmp_path.iterdir()) == [root]


# ---------------------------------------------------------------------------- reading

Change = Callable[[dict[str, Any]], Any]


def put(*path: Any, value: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return change


def drop(key: str) -> Change:
    return lambda document: document.pop(key)


CASE = {"environment_seed": 5, "policy_seed": 6}
MALFORMED: dict[str, tuple[str, bytes | Change, str]] = {
    "empty": ("train", b"", "train.json is not valid JSON"),
    "truncated": ("train", b'{"benchmark_id":"toy","cases":[{"env', "is not valid JSON"),
    "not UTF-8": ("train", b'{"schema": "\xff"}', "is not valid JSON"),
    "nested without end": ("train", b"[" * 100_000, "is not valid JSON"),
    "NaN": ("train", b'{"schema": NaN}', "is not valid JSON"),
    "a list": ("train", b"[1]", "has no schema, expected 'evopolicygym.split/1'"),
    "no schema": ("train", drop("schema"), "has no schema"),
    "next version": (
        "train",
        put("schema", value="evopolicygym.split/2"),
        "has the schema 'evopolicygym.split/2', expected 'evopolicygym.split/1'",
    ),
    "a schema without end": ("train", put("schema", value="x" * 10**6), "has the schema 'xxx"),
    "too many bytes": ("valid", b" " * (16 * 2**20 + 1), "valid.json has more than 16777216 bytes"),
    "too many cases": (
        "valid",
        put("cases", value=[CASE] * 100_001),
        "Expected `array` of length <= 100000 - at `cases`",
    ),
    "no cases": ("valid", put("cases", value=[]), "Expected `array` of length >= 1 - at `cases`"),
    "missing cases": ("valid", drop("cases"), "missing required field `cases`"),
    "cases by name": ("valid", put("cases", value={}), "Expected `array`, got `object`"),
    "an extra key": ("valid", put("more", value=1), "unknown field `more`"),
    "an extra key of a case": (
        "valid",
        put("cases", 1, "scenario", value={}),
        "unknown field `scenario` - at `cases[1]`",
    ),
    "a case without a seed": ("valid", put("cases", 2, value={}), "at `cases[2]`"),
    "a case that is a number": ("valid", put("cases", 0, value=5), "got `int` - at `cases[0]`"),
    "a negative seed": (
        "heldout",
        put("cases", 1, "environment_seed", value=-1),
        "Expected `int` >= 0 - at `cases[1].environment_seed`",
    ),
    "a large seed": ("heldout", put("cases", 1, "policy_seed", value=2**31), "<= 2147483647"),
    "a huge seed": ("heldout", put("cases", 1, "policy_seed", value=10**30), "policy_seed"),
    "a fraction": ("heldout", put("cases", 0, "policy_seed", value=1.0), "got `float`"),
    "a truth": ("heldout", put("cases", 0, "policy_seed", value=True), "got `bool`"),
    "a text": ("heldout", put("cases", 0, "policy_seed", value="1"), "got `str`"),
    "seed of no number": ("train", put("seed", value=None), "got `null` - at `seed`"),
    "seed out of range": ("train", put("seed", value=-1), "Expected `int` >= 0 - at `seed`"),
    "another seed": ("valid", put("seed", value=9), "valid.json was made from another seed than"),
    "another split": (
        "heldout",
        put("split", value="train"),
        "heldout.json holds the split 'train', expected 'heldout'",
    ),
    "another environment": (
        "valid",
        put("benchmark_id", value="gym/taxi"),
        "valid.json is for 'gym/taxi'",
    ),
    "a case twice": (
        "train",
        lambda document: document["cases"].append(document["cases"][1]),
        "train.json $.cases[4] has the environment_seed of train.json $.cases[1]",
    ),
    "a case of another split": (
        "heldout",
        put("cases", 2, "environment_seed", value=OLD.cases["train"][3].environment_seed),
        "heldout.json $.cases[2] has the environment_seed of train.json $.cases[3]",
    ),
    "another environment seed": (
        "valid",
        put("cases", 0, "environment_seed", value=5),
        "valid.json was changed: its digest is ",
    ),
    "another policy seed": ("valid", put("cases", 0, "policy_seed", value=5), "was changed"),
    "one case less": ("heldout", lambda document: document["cases"].pop(), "was changed"),
    "another order": ("heldout", lambda document: document["cases"].reverse(), "was changed"),
    "digests: empty": ("digests", b"", "digests.json is not valid JSON"),
    "digests: a split": ("digests", put("schema", value="evopolicygym.split/1"), "expected 'evo"),
    "digests: extra": ("digests", put("more", value=1), "unknown field `more`"),
    "digests: one missing": ("digests", lambda d: d["digests"].pop("valid"), "`valid` - at `dig"),
    "digests: one more": ("digests", put("digests", "test", value="0" * 64), "field `test`"),
    "digests: no digest": ("digests", put("digests", "train", value="0"), "at `digests.train`"),
    "digests: wrong": ("digests", put("digests", "train", value="0" * 64), "says 000000000000…"),
    "digests: other environment": (
        "digests",
        put("benchmark_id", value="gym/taxi"),
        "train.json is for 'toy'",
    ),
}


@pytest.mark.parametrize("damage", MALFORMED)
def test_malformed(tmp_path: Path, damage: str) -> None:
    write_splits(tmp_path / "splits", OLD)
    name, change, message = MALFORMED[damage]
    path = tmp_path / "splits" / f"{name}.json"
    if isinstance(change, bytes):
        path.write_bytes(change)
    else:
        document = json.loads(path.read_bytes())
        change(document)
        path.write_bytes(json.dumps(document).encode())
    with pytest.raises(ConfigurationError) as caught:
        read_splits(tmp_path / "splits")
    assert message in str(caught.value)
    assert f"{name}.json" in str(caught.value)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("name", FILES)
def test_missing_files(tmp_path: Path, name: str) -> None:
    write_splits(tmp_path / "splits", OLD)
    path = tmp_path / "splits" / name
    path.unlink()
    with pytest.raises(ConfigurationError, match=f"{name} can't be read: No such file.*data make"):
        read_splits(tmp_path / "splits")
    os.mkfifo(path)
    with pytest.raises(ConfigurationError, match=f"{name} is no regular file"):
        read_splits(tmp_path / "splits")


@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers(), st.lists).map(canonical))
def test_any_other_bytes_are_refused(noise: bytes) -> None:
    with TemporaryDirectory() as home:
        for name, data_of_one in OLD.files().items():
            Path(home, name).write_bytes(data_of_one)
        Path(home, "valid.json").write_bytes(noise)
        with pytest.raises(ConfigurationError, match=r"valid\.json"):
            read_splits(home)


@given(st.integers(min_value=0))
def test_every_beginning_of_a_file_is_refused(length: int) -> None:
    with TemporaryDirectory() as home:
        for name, data_of_one in OLD.files().items():
            Path(home, name).write_bytes(data_of_one)
        whole = Path(home, "train.json").read_bytes()
        Path(home, "train.json").write_bytes(whole[: length % len(whole)])
        with pytest.raises(ConfigurationError, match=r"train\.json is not valid JSON"):
            read_splits(home)


def test_layout_and_order_of_keys_are_free(tmp_path: Path) -> None:
    """The digest is that of the canonical text, however an editor leaves it."""
    write_splits(tmp_path / "splits", OLD)
    for path in (tmp_path / "splits").iterdir():
        document = json.loads(path.read_bytes())
        path.write_text(json.dumps(dict(reversed(document.items())), indent=4) + "\n")
    assert read_splits(tmp_path / "splits") == OLD


# ---------------------------------------------------------------------------- playing


class Scenarios(ToyBenchmark):
    def episodes(self, split: str, *, seed: int, count: int) -> list[Episode]:
        return [Episode(1, 2, {"map": "a"})] * count


class Broken(ToyBenchmark):
    def episodes(self, split: str, *, seed: int, count: int) -> list[Episode]:
        raise KeyError(split)


@given(seeds, st.integers(0, 3))
def test_episodes_are_cases_and_none_is_chosen_twice(seed: int, count: int) -> None:
    benchmark = SplitBenchmark(ToyBenchmark(), OLD)
    for split, name in {"train": "train", "validation": "valid", "test": "heldout"}.items():
        chosen = benchmark.episodes(split, seed=seed, count=count)
        assert chosen == benchmark.episodes(split, seed=seed, count=3)[:count]
        assert len({episode.environment_seed for episode in chosen}) == count
        assert set(map(repr, chosen)) <= set(map(repr, OLD.cases[name]))


def test_the_choice_depends_on_the_seed_and_can_take_all() -> None:
    benchmark = SplitBenchmark(ToyBenchmark(), OLD)
    orders = {
        tuple(e.environment_seed for e in benchmark.episodes("test", seed=seed, count=5))
        for seed in range(20)
    }
    assert len(orders) > 10
    assert {frozenset(order) for order in orders} == {
        frozenset(case.environment_seed for case in OLD.cases["heldout"])
    }


def test_the_choice_is_the_one_of_the_protocol() -> None:
    def order(case: Episode) -> bytes:
        return hashlib.sha256(canonical([11, case.environment_seed])).digest()[:8]

    expected = sorted(OLD.cases["heldout"], key=order)[:3]
    assert SplitBenchmark(ToyBenchmark(), OLD).episodes("test", seed=11, count=3) == expected


@pytest.mark.parametrize(
    ("split", "count", "message"),
    [
        ("train", 5, "train.json has 4 cases, 5 Episodes are asked for: .* --train-size 5"),
        ("validation", 4, "valid.json has 3 cases, 4 Episodes"),
        ("test", 6, "heldout.json has 5 cases, 6 Episodes"),
        ("valid", 1, r"\$\.split is 'valid', expected one of train, validation, test.*Did you"),
    ],
)
def test_episodes_that_there_are_not(split: str, count: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SplitBenchmark(ToyBenchmark(), OLD).episodes(split, seed=0, count=count)


def test_benchmarks_that_the_splits_are_not_for() -> None:
    other = make_splits("gym/taxi", 0, SMALL)
    with pytest.raises(ConfigurationError, match=r"are for 'gym/taxi', not for 'toy'.*data make"):
        SplitBenchmark(ToyBenchmark(), other)
    with pytest.raises(ConfigurationError, match="the Episodes of 'toy' have scenarios"):
        SplitBenchmark(Scenarios(), OLD)
    with pytest.raises(BenchmarkError, match="planning split 'train' raised KeyError"):
        SplitBenchmark(Broken(), OLD)


def numbers(value: Any) -> set[int]:
    if isinstance(value, Mapping):
        return {number for item in value.values() for number in numbers(item)}
    if isinstance(value, list | tuple):
        return {number for item in value for number in numbers(item)}
    return {value} if isinstance(value, int) else set()


def test_the_spec_says_nothing_of_the_splits() -> None:
    splits = make_splits("toy", 123_456_789, SMALL)
    benchmark = SplitBenchmark(ToyBenchmark(), splits)
    assert benchmark.spec == ToyBenchmark().spec
    assert benchmark.data_digests == splits.digests


def test_workers_get_the_benchmark_without_its_splits() -> None:
    sent = cloudpickle.dumps(SplitBenchmark(ToyBenchmark(), OLD))
    for cases in OLD.cases.values():
        for case in cases:
            assert case.environment_seed.to_bytes(4, "little") not in sent
    arrived = cloudpickle.loads(sent)
    assert arrived.spec == ToyBenchmark().spec
    with pytest.raises(ConfigurationError, match="the splits stayed in the process"):
        arrived.episodes("train", seed=0, count=1)


def test_the_contract_of_benchmarks_holds() -> None:
    splits = make_splits("toy", 0, SMALL)
    report = check_benchmark(SplitBenchmark(ToyBenchmark(), splits), raise_on_failure=False)
    assert report.passed, str(report)
    assert isinstance(splits, Splits)
