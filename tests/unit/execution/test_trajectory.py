from __future__ import annotations

import hashlib
import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evopolicygym.execution.trajectory import (
    INLINE_ITEMS,
    SpoolLimits,
    TrajectorySpool,
    json_value_writer,
)
from evopolicygym.execution.wire import SHARED_THRESHOLD, Encoder
from evopolicygym.policy import Graph

DISCRETE = {"type": "Discrete", "n": 3}


def box(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"type": "Box", "dtype": dtype, "shape": list(shape), "low": -1000, "high": 1000}


Step = tuple[Any, float, bool, bool, dict[str, Any]]
"""Action, reward, terminated, truncated, info."""


def play(
    space: dict[str, Any],
    observations: Sequence[Any],
    steps: Sequence[Step],
    directory: Path | None = None,
    *,
    actions: dict[str, Any] = DISCRETE,
    limits: SpoolLimits = SpoolLimits(),  # noqa: B008 - frozen
    encoder: Encoder | None = None,
) -> tuple[str, bool]:
    """Spool an Episode as the loop does; return its hash and whether it was cut."""
    encoder = encoder or Encoder()
    spool = TrajectorySpool(space, actions, encoder, directory, limits)
    try:
        for t, observation in enumerate(observations):
            spool.observe(observation, encoder.encode(observation))
            if t < len(steps):
                action, reward, terminated, truncated, info = steps[t]
                spool.step(t, action, reward, terminated, truncated, info)
        return spool.close(len(steps)), spool.cut
    except BaseException:
        with suppress(Exception):
            spool.close(0)  # an open file would fail some later test as well
        raise


def lines(directory: Path) -> list[dict[str, Any]]:
    data = (directory / "trajectory.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line, parse_constant=pytest.fail) for line in data.split(b"\n")[:-1]]


def walk(count: int, *shape: int) -> tuple[list[Any], list[Step]]:
    """Observations that hold their own step number, and the steps between them."""
    observations = [np.full(shape, t, np.float32) for t in range(count + 1)]
    steps: list[Step] = [(t % 3, t / 2, t == count - 1, False, {}) for t in range(count)]
    return observations, steps


# --------------------------------------------------------------------------- lines


def test_one_line_a_step_and_a_final_one(tmp_path: Path) -> None:
    observations = [np.array([t, -t], np.float32) for t in range(3)]
    steps: list[Step] = [
        (2, 0.5, False, False, {"lives": np.int64(3)}),
        (0, -1.0, True, True, {}),
    ]
    play(box(2), observations, steps, tmp_path)
    assert lines(tmp_path) == [
        {
            "t": 0,
            "obs": [0.0, 0.0],
            "action": 2,
            "reward": 0.5,
            "terminated": False,
            "truncated": False,
            "info": {"lives": 3},
        },
        {
            "t": 1,
            "obs": [1.0, -1.0],
            "action": 0,
            "reward": -1.0,
            "terminated": True,
            "truncated": True,
            "info": {},
        },
        {
            "t": 2,
            "obs": [2.0, -2.0],
            "action": None,
            "reward": None,
            "terminated": None,
            "truncated": None,
            "info": {},
        },
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["trajectory.jsonl"]


def test_episode_that_failed_before_its_first_observation(tmp_path: Path) -> None:
    play(box(2), [], [], tmp_path / "new" / "directory")
    assert (tmp_path / "new" / "directory" / "trajectory.jsonl").read_bytes() == b""


def test_episode_that_failed_before_its_first_step(tmp_path: Path) -> None:
    play(DISCRETE, [0], [], tmp_path)
    [line] = lines(tmp_path)
    assert (line["t"], line["obs"], line["action"]) == (0, 0, None)


def test_long_episodes_are_written_in_order(tmp_path: Path) -> None:
    observations, steps = walk(20_000, 1)
    play(box(1), observations, steps, tmp_path)
    assert (tmp_path / "trajectory.jsonl").stat().st_size > 2**20
    assert [line["t"] for line in lines(tmp_path)] == list(range(20_001))
    assert all(line["obs"] == [line["t"]] for line in lines(tmp_path))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_lines_are_strict_json_whatever_the_observation_holds(tmp_path: Path, value: float) -> None:
    play(box(2), [np.array([0, value], np.float32)], [], tmp_path)
    name = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    assert lines(tmp_path)[0]["obs"] == [0.0, name]


@pytest.mark.parametrize(
    "info",
    [
        pytest.param({"nan": float("nan"), "huge": 10**400}, id="numbers"),
        pytest.param({"text": np.str_("text")}, id="numpy text"),
        pytest.param({"text": "\ud800"}, id="lone surrogate"),
        pytest.param({"number": np.longdouble(1)}, id="long double"),
        pytest.param({"huge": 10**5000}, id="5000 digits"),
        pytest.param({1: object()}, id="object"),
        pytest.param({"\ud800": 1}, id="lone surrogate in a key"),
        pytest.param({"k" * 100_000: 1}, id="long key"),
        pytest.param({10**5000: 1}, id="key of 5000 digits"),
        pytest.param({(0, 1): 1, (1, 0): 2, None: 3}, id="other keys"),
    ],
)
def test_no_info_breaks_the_spool(tmp_path: Path, info: dict[str, Any]) -> None:
    play(DISCRETE, [0, 1], [(0, 0.0, False, False, info)], tmp_path)
    first, last = lines(tmp_path)
    assert len(first["info"]) == len(info)
    assert max(map(len, first["info"])) <= 2_001
    assert last["t"] == 1


@pytest.mark.parametrize("what", ["observation", "info"])
def test_what_was_handed_over_may_change_afterwards(tmp_path: Path, what: str) -> None:
    """Environments work on their own arrays in place; of the action they get a copy."""
    found = []
    for name in ("kept", "changed"):
        encoder, space = Encoder(), {"type": "Dict", "spaces": {"a": box(2)}}
        spool = TrajectorySpool(space, box(1), encoder, tmp_path / name, SpoolLimits())
        for t in range(3):
            observation = {"a": np.full(2, t, np.float32)}
            action = np.full(1, t, np.float32)
            info = {"list": [t], "array": np.full(2, t), "deep": {"er": {"value": t}}}
            spool.observe(observation, encoder.encode(observation))
            spool.step(t, action, 0.0, False, False, info)
            if name == "kept":
                continue
            if what == "observation":
                observation["a"][:] = 99
            else:
                info["list"].append(99)
                info["array"][:] = 99
                info["deep"]["er"]["value"] = 99
                info["more"] = 99
        found.append(spool.close(3))
    assert lines(tmp_path / "changed") == lines(tmp_path / "kept")
    assert found[0] == found[1]


def test_statistics_come_along() -> None:
    encoder = Encoder()
    spool = TrajectorySpool(DISCRETE, DISCRETE, encoder, None, SpoolLimits())
    for t in range(1_000):
        spool.observe(0, encoder.encode(0))
        spool.step(t, t % 3, float(t % 5), False, False, {})
    spool.close(1_000)
    assert spool.rewards.summary(2_000.0) == {
        "steps": 1_000,
        "min": 0.0,
        "max": 4.0,
        "mean": 2.0,
        "nonzero": 800,
    }
    assert spool.actions.summary() == {"counts": {"0": 334, "1": 333, "2": 333}}


def test_line_separators_of_other_alphabets_do_not_split_a_line(tmp_path: Path) -> None:
    text = {"type": "Text", "min_length": 0, "max_length": 9, "charset": None}
    play(text, ["a\u2028b\x85c\nd"], [], tmp_path)
    assert [line["obs"] for line in lines(tmp_path)] == ["a\u2028b\x85c\nd"]


# ----------------------------------------------------------------------- JSON values


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (box(), np.array(0.5, np.float32), 0.5),
        (box(0), np.zeros(0, np.float32), []),
        (box(2, 1), np.array([[1], [2]], np.float32), [[1.0], [2.0]]),
        (box(2), np.array([np.inf, -np.inf], np.float32), ["Infinity", "-Infinity"]),
        (box(2, 1), np.array([[np.nan], [0]], np.float32), [["NaN"], [0.0]]),
        (box(2, 1), np.array([[np.inf], [-np.inf]], np.float32), [["Infinity"], ["-Infinity"]]),
        (box(1, 2), np.full((1, 2), 2.0**127, np.float32), [[2.0**127, 2.0**127]]),
        (box(2), np.array([1e308, 1e308]), [1e308, 1e308]),
        (box(dtype="float64"), np.array(np.nan), "NaN"),
        (box(2, dtype="uint8"), np.array([0, 255], np.uint8), [0, 255]),
        ({"type": "MultiDiscrete", "nvec": [2, 3]}, np.array([1, 2]), [1, 2]),
        ({"type": "MultiBinary", "shape": [2]}, np.array([1, 0], np.int8), [1, 0]),
        (DISCRETE, 2, 2),
        ({"type": "Text", "min_length": 0, "max_length": 1, "charset": None}, "ü", "ü"),
        (
            {"type": "Dict", "spaces": {"b": DISCRETE, "a": box(1)}},
            {"b": 1, "a": np.ones(1)},
            {"b": 1, "a": [1.0]},
        ),
        (
            {"type": "Tuple", "spaces": [DISCRETE, box(1)]},
            (1, np.array([np.inf])),
            [1, ["Infinity"]],
        ),
        ({"type": "Sequence", "space": DISCRETE}, (1, 2), [1, 2]),
        ({"type": "OneOf", "spaces": [DISCRETE, box(1)]}, (1, np.array([0.5])), [1, [0.5]]),
        (
            {"type": "Graph", "node_space": box(1), "edge_space": None},
            Graph(np.array([[1.0]]), None, None),
            [[[1.0]], None, None],
        ),
    ],
)
def test_json_value_of_every_space(space: Any, value: Any, expected: Any) -> None:
    text = json.dumps(json_value_writer(space)(value), allow_nan=False)
    assert text == json.dumps(expected)


# --------------------------------------------------------------------- large arrays


@pytest.mark.parametrize("items", [INLINE_ITEMS, INLINE_ITEMS + 1])
def test_only_arrays_of_more_than_inline_items_go_to_the_npz(tmp_path: Path, items: int) -> None:
    observations, steps = walk(2, items)
    play(box(items), observations, steps, tmp_path)
    assert (tmp_path / "observations.npz").exists() is (items > INLINE_ITEMS)
    if items == INLINE_ITEMS:
        assert lines(tmp_path)[1]["obs"] == [1.0] * items
    else:
        assert lines(tmp_path)[1]["obs"] == {"npz": "obs", "row": 1}


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (box(300), [np.full(300, t, np.float32) for t in range(3)]),
        (box(3, 100, dtype="uint8"), [np.full((3, 100), t, np.uint8) for t in range(3)]),
        (box(300, dtype=">f8"), [np.full(300, t, ">f8") for t in range(3)]),
        ({"type": "MultiBinary", "shape": [300]}, [np.full(300, t % 2, np.int8) for t in range(3)]),
        ({"type": "MultiDiscrete", "nvec": [5] * 300}, [np.full(300, t) for t in range(3)]),
    ],
    ids=["Box", "image", "big-endian", "MultiBinary", "MultiDiscrete"],
)
def test_every_large_array_space_goes_to_the_npz(tmp_path: Path, space: Any, values: Any) -> None:
    play(space, values, [(0, 0.0, False, False, {})] * 2, tmp_path)
    assert [line["obs"] for line in lines(tmp_path)] == [
        {"npz": "obs", "row": row} for row in range(3)
    ]
    with np.load(tmp_path / "observations.npz") as arrays:
        assert arrays.files == ["obs"]
        assert arrays["obs"].dtype == values[0].dtype
        assert np.array_equal(arrays["obs"], np.stack(values))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "observations.npz",
        "trajectory.jsonl",
    ]


def test_rows_are_aligned_with_the_lines_of_a_nested_observation(tmp_path: Path) -> None:
    inner = {"type": "Dict", "spaces": {"image": box(20, 20, dtype="uint8"), "speed": box(1)}}
    space = {"type": "Dict", "spaces": {"camera": inner, "map": box(300), "goal": DISCRETE}}
    observations = [
        {
            "camera": {
                "image": np.full((20, 20), t, np.uint8),
                "speed": np.full(1, t, np.float32),
            },
            "map": np.full(300, -t, np.float32),
            "goal": t % 3,
        }
        for t in range(6)
    ]
    play(space, observations, [(0, 0.0, False, False, {})] * 5, tmp_path)
    with np.load(tmp_path / "observations.npz") as arrays:
        assert sorted(arrays.files) == ["camera.image", "map"]
        images, maps = arrays["camera.image"], arrays["map"]
    assert (images.shape, maps.shape) == ((6, 20, 20), (6, 300))
    for t, line in enumerate(lines(tmp_path)):
        assert line["obs"] == {
            "camera": {"image": {"npz": "camera.image", "row": t}, "speed": [t]},
            "map": {"npz": "map", "row": t},
            "goal": t % 3,
        }
        assert (images[t] == t).all()
        assert (maps[t] == -t).all()


def test_large_observations_that_never_came(tmp_path: Path) -> None:
    play(box(300), [], [], tmp_path)
    with np.load(tmp_path / "observations.npz") as arrays:
        assert arrays["obs"].shape == (0, 300)


# -------------------------------------------------------------------------- limits


@pytest.mark.parametrize("limit", [0, 1, 500, 5_000, 300_000])
def test_text_is_cut_at_its_limit(tmp_path: Path, limit: int) -> None:
    observations, steps = walk(5_000, 1)
    limits = SpoolLimits(trajectory_bytes=limit)
    _, cut = play(box(1), observations, steps, tmp_path, limits=limits)
    written = lines(tmp_path) if limit > 1 else []
    assert cut
    assert (tmp_path / "trajectory.jsonl").stat().st_size <= limit
    assert [line["t"] for line in written] == list(range(len(written)))
    assert len(written) >= limit // 100 - 1


def test_default_limits() -> None:
    assert INLINE_ITEMS == 256
    assert SpoolLimits() == SpoolLimits(32 * 1024 * 1024, 64 * 1024 * 1024)


def test_text_that_fits_exactly_is_not_cut(tmp_path: Path) -> None:
    observations, steps = walk(50, 1)
    play(box(1), observations, steps, tmp_path / "whole")
    size = (tmp_path / "whole" / "trajectory.jsonl").stat().st_size
    for limit, expected in ((size, False), (size - 1, True)):
        home = tmp_path / str(limit)
        limits = SpoolLimits(trajectory_bytes=limit)
        _, cut = play(box(1), observations, steps, home, limits=limits)
        assert (limit, cut, len(lines(home))) == (limit, expected, 50 if expected else 51)


@pytest.mark.parametrize(("rows", "spare"), [(0, 0), (3, 0), (3, 1199), (6, 0)])
def test_arrays_are_cut_at_their_limit(tmp_path: Path, rows: int, spare: int) -> None:
    observations, steps = walk(5, 300)
    limits = SpoolLimits(observation_bytes=rows * 1200 + spare)
    _, cut = play(box(300), observations, steps, tmp_path, limits=limits)
    assert cut is (rows < 6)
    assert [line["obs"]["row"] for line in lines(tmp_path)] == [
        row if row < rows else None for row in range(6)
    ]
    with np.load(tmp_path / "observations.npz") as arrays:
        assert np.array_equal(arrays["obs"], np.stack(observations)[:rows])


def test_a_row_number_is_the_step_also_where_one_array_was_cut(tmp_path: Path) -> None:
    space = {"type": "Dict", "spaces": {"big": box(1000), "small": box(300)}}
    observations = [
        {"big": np.full(1000, t, np.float32), "small": np.full(300, t, np.float32)}
        for t in range(5)
    ]
    limits = SpoolLimits(observation_bytes=2 * (4000 + 1200) + 2 * 1200)
    play(space, observations, [(0, 0.0, False, False, {})] * 4, tmp_path, limits=limits)
    found = [(o["big"]["row"], o["small"]["row"]) for o in (x["obs"] for x in lines(tmp_path))]
    assert found == [(0, 0), (1, 1), (None, 2), (None, 3), (None, None)]
    with np.load(tmp_path / "observations.npz") as arrays:
        assert arrays["small"][:, 0].tolist() == [0, 1, 2, 3]
        assert arrays["big"][:, 0].tolist() == [0, 1]


def test_what_is_cut_is_hashed_all_the_same(tmp_path: Path) -> None:
    observations, steps = walk(50, 300)
    limits = SpoolLimits(trajectory_bytes=100, observation_bytes=5_000)
    whole, whole_cut = play(box(300), observations, steps, tmp_path / "whole")
    short, short_cut = play(box(300), observations, steps, tmp_path / "short", limits=limits)
    assert (whole_cut, short_cut) == (False, True)
    assert whole == short


# ---------------------------------------------------------------------------- hash


def documented(seen: Sequence[bytes], applied: bytes, answered: bytes) -> str:
    parts = (b"evopolicygym.trajectory/1" + b"".join(seen), applied, answered)
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


STEPS: list[Step] = [
    (2, 0.5, False, False, {}),
    (0, -1.0, True, False, {}),
    (1, 2.0, False, True, {}),
    (1, 0.0, True, True, {}),
]
I8 = struct.pack("<4q", 2, 0, 1, 1)
ANSWERED = b"".join(
    struct.pack("<dB", reward, end) for reward, end in ((0.5, 0), (-1.0, 1), (2.0, 2), (0.0, 3))
)


def test_hash_is_the_documented_one() -> None:
    expected = documented([b"\x07", b"\x08", b"\x06", b"\x05", b"\x04"], I8, ANSWERED)
    assert play({"type": "Discrete", "n": 9}, [7, 8, 6, 5, 4], STEPS)[0] == expected


def test_hash_of_other_actions_is_the_documented_one() -> None:
    steps = [(np.array(action, np.float32), *rest) for action, *rest in STEPS]
    expected = documented([b"\x01"] * 5, struct.pack("<4f", 2, 0, 1, 1), ANSWERED)
    assert play(DISCRETE, [1] * 5, steps, actions=box())[0] == expected
    steps = [("a" * action, *rest) for action, *rest in STEPS]
    text = {"type": "Text", "min_length": 0, "max_length": 9, "charset": None}
    expected = documented([b"\x01"] * 5, b"\xa2aa\xa0\xa1a\xa1a", ANSWERED)
    assert play(DISCRETE, [1] * 5, steps, actions=text)[0] == expected


def test_hash_covers_shared_arrays_by_their_raw_bytes() -> None:
    arrays = [np.full(SHARED_THRESHOLD, t, np.uint8) for t in range(5)]
    memory = mmap.mmap(-1, SHARED_THRESHOLD)
    seen = [part for a in arrays for part in (Encoder(memory).encode(a), a.tobytes())]
    found, _ = play(box(SHARED_THRESHOLD, dtype="uint8"), arrays, STEPS, encoder=Encoder(memory))
    assert found == documented(seen, I8, ANSWERED)


def test_hash_does_not_depend_on_how_steps_come_together() -> None:
    observations, steps = walk(1_000, 2)
    payloads = [Encoder().encode(observation) for observation in observations]
    applied = struct.pack("<1000q", *(step[0] for step in steps))
    answered = b"".join(struct.pack("<dB", step[1], step[2]) for step in steps)
    assert play(box(2), observations, steps)[0] == documented(payloads, applied, answered)


@pytest.mark.parametrize("shape", [(2,), (300,), (SHARED_THRESHOLD,)], ids=str)
def test_hash_is_the_same_with_and_without_a_directory(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    observations, steps = walk(20, *shape)
    found = {
        play(box(*shape), observations, steps, home, encoder=Encoder(mmap.mmap(-1, 1 << 20)))[0]
        for home in (None, tmp_path)
    }
    assert len(found) == 1


def changes() -> Iterator[Any]:
    """One changed thing at a time, against three equal steps."""
    base: Step = (1, 0.5, False, False, {})
    plain = [np.zeros(4, np.float32) for _ in range(4)]
    for t in range(4):
        other = [*plain]
        other[t] = np.array([0, 0, 0, 1e-6], np.float32)
        yield pytest.param(other, [base] * 3, id=f"observation {t}")
    for t in range(3):
        for name, step in {
            "action": (2, 0.5, False, False, {}),
            "reward": (1, 0.5 + 2**-53, False, False, {}),
            "terminated": (1, 0.5, True, False, {}),
            "truncated": (1, 0.5, False, True, {}),
        }.items():
            steps: list[Any] = [base] * 3
            steps[t] = step
            yield pytest.param(plain, steps, id=f"{name} {t}")
    yield pytest.param(plain[:3], [base] * 2, id="one step less")


@pytest.mark.parametrize(("observations", "steps"), list(changes()))
def test_hash_changes_with_everything_that_was_seen_or_done(
    observations: list[Any], steps: list[Step]
) -> None:
    plain = [np.zeros(4, np.float32)] * 4
    same = play(box(4), plain, [(1, 0.5, False, False, {})] * 3)[0]
    assert play(box(4), [x.copy() for x in plain], [(1, 0.5, False, False, {})] * 3)[0] == same
    assert play(box(4), observations, steps)[0] != same


def test_hash_changes_with_one_byte_in_shared_memory() -> None:
    def hashed(last: int) -> str:
        array = np.zeros(SHARED_THRESHOLD, np.uint8)
        array[-1] = last
        encoder = Encoder(mmap.mmap(-1, SHARED_THRESHOLD))
        return play(box(SHARED_THRESHOLD, dtype="uint8"), [array], [], encoder=encoder)[0]

    assert hashed(0) == hashed(0)
    assert hashed(0) != hashed(1)


def test_hash_does_not_cover_info() -> None:
    found = {
        play(DISCRETE, [0, 1], [(0, 0.0, False, False, info)])[0] for info in ({}, {"time": 1.5})
    }
    assert len(found) == 1


def test_hash_changes_with_an_array_action() -> None:
    space = box(2)
    found = {
        play(DISCRETE, [0, 1], [(np.array(action), 0.0, False, False, {})], actions=space)[0]
        for action in ([0.0, 1.0], [1.0, 0.0], [0.0, 1.0])
    }
    assert len(found) == 2


@pytest.mark.parametrize("size", [2, 300])
def test_equal_episodes_write_equal_files(tmp_path: Path, size: int) -> None:
    for name in ("first", "second"):
        observations, steps = walk(30, size)
        play(box(size), observations, steps, tmp_path / name)
    files = {path.name for path in (tmp_path / "first").iterdir()}
    assert files == {"trajectory.jsonl"} | ({"observations.npz"} if size == 300 else set())
    for name in files:
        first, second = (tmp_path / home / name for home in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
