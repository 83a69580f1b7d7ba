from __future__ import annotations

from pathlib import Path

import pytest

from evopolicygym.benchmark import SPLITS
from evopolicygym.envs import load
from evopolicygym.envs.anchors import (
    LEAST_EPISODES,
    Anchors,
    Expert,
    Measurement,
    OwnExpert,
    anchors,
    anchors_file,
    anchors_text,
    core16,
    documented_expert,
    own_experts,
    read_anchors,
)
from evopolicygym.envs.catalog import ALIASES, CORE_16, WORST_RETURNS
from evopolicygym.errors import BenchmarkError

ROWS = read_anchors(anchors_file())
MEASURED = Measurement(-1.5, 0.25, 64)
ROW = Anchors(
    benchmark="gym/some",
    max_episode_steps=9,
    split="test",
    seed=3,
    random=MEASURED,
    noop=Measurement(1e-07, 0.0, 64),
    expert=Expert(2.0, "threshold", 'said by "someone", é'),
    versions={"numpy": "2", "gymnasium": "1.4"},
)
TEXT = anchors_text({"Some-v1": ROW})


def test_the_file_is_what_write_would_write() -> None:
    assert anchors_file().read_text("utf-8") == anchors_text(ROWS)


@pytest.mark.parametrize("env_id", CORE_16)
def test_core16_has_anchors(env_id: str) -> None:
    row = anchors(env_id)
    assert row is not None
    assert row == anchors(f"gymnasium/{env_id}")
    paper = core16()[0][env_id]
    assert row.expert is not None
    assert (row.expert.value, row.expert.kind) == (paper.best, "reference")
    assert paper.best_model in row.expert.source
    assert "arXiv 2607.02440" in row.expert.source


def test_the_paper_has_exactly_core16() -> None:
    rows, episodes = core16()
    assert rows.keys() == set(CORE_16)
    assert episodes == 32
    assert all(row.random < row.best for row in rows.values())


def test_every_alias_has_an_expert() -> None:
    named = {alias.env_id for alias in ALIASES.values()}
    named.remove("Pusher-v4")  # needs mujoco < 3
    assert not [env_id for env_id in sorted(named) if ROWS[env_id].expert is None]


def test_programs_of_our_own() -> None:
    for env_id, own in own_experts().items():
        row = ROWS[env_id]
        assert row.expert == own.expert
        # All are paired: the same Episodes.
        assert own.returns.episodes == 256
        assert f"benchmarks/experts/{own.program}, measured: " in own.expert.source
        assert own.returns.mean > row.noop.mean
    own = OwnExpert("some", Measurement(1.5, 0.25, 64))
    source = "benchmarks/experts/some, measured: 1.5 ± 0.25, 64 Episodes"
    assert own.expert == Expert(1.5, "reference", source)


def test_what_is_documented() -> None:
    names = ("gym/cliff", "gym/taxi", "toy")
    found = {name: documented_expert(load(name).spec) for name in names}
    assert found["gym/cliff"] == own_experts()["CliffWalking-v1"].expert
    assert found["gym/taxi"] == ROWS["Taxi-v4"].expert
    assert found["toy"] == own_experts()["toy"].expert
    assert documented_expert(load("gymnasium/CliffWalkingSlippery-v1").spec) is None


@pytest.mark.parametrize("env_id", ROWS)
def test_rows_are_sound(env_id: str) -> None:
    row = ROWS[env_id]
    assert row.split == SPLITS[2]
    # Names of Benchmarks are the catalog's.
    alias = ALIASES.get(row.benchmark)
    own = env_id in ("toy", "cartpole")
    assert row.benchmark == env_id if own else {"numpy", "gymnasium"} <= row.versions.keys()
    known = row.benchmark == f"gymnasium/{env_id}" or (alias and alias.env_id == env_id)
    assert own or known
    assert alias is None or alias.max_episode_steps == row.max_episode_steps
    for measured in (row.random, row.noop):
        assert measured.episodes >= LEAST_EPISODES
        assert measured.standard_error >= 0.0
        assert measured.mean >= WORST_RETURNS.get(env_id, 0.0)
    if row.expert is not None:  # every one of them is to be maximised
        assert row.expert.source.strip()
        assert row.random.mean < row.expert.value


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    rows = {"B-v0": ROW, 'ALE/"odd"': ROW, "A-v0": ROW}
    path.write_text(anchors_text(rows), "utf-8")
    assert read_anchors(path) == rows
    assert anchors_text(read_anchors(path)) == path.read_text("utf-8")
    assert list(read_anchors(path)) == sorted(rows)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seed = 3", "seed = 3\nsede = 3", "Some-v1.sede: Unexpected keyword"),
        ("mean = -1.5", "mean = -1.5, median = 0.0", "Some-v1.random.median: Unexpected"),
        ("seed = 3\n", "", "Some-v1.seed: Field required"),
        ("mean = -1.5", "mean = nan", "Some-v1.random.mean: Input should be a finite number"),
        ('"threshold"', '"rumour"', "Some-v1.expert.kind: "),
        ("seed = 3", "seed = three", "rows.toml is no TOML"),
    ],
)
def test_a_wrong_file_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in TEXT
    path = tmp_path / "rows.toml"
    path.write_text(TEXT.replace(old, new), "utf-8")
    with pytest.raises(BenchmarkError) as refused:
        read_anchors(path)
    assert message in str(refused.value)


def test_a_measurement() -> None:
    assert Measurement.of([1.0, 2.0, 3.0, 4.0]) == Measurement(2.5, 0.645497, 4)
    assert Measurement.of([1.0, 2.0]).interval is None, "too few for the normal distribution"
    assert MEASURED.standard_deviation == 2.0
    assert MEASURED.interval == pytest.approx((-1.98999, -1.01001), abs=1e-5)
    assert anchors("No-Such-Id-v0") is None
