"""Levels of MiniGrid that are learned from images: ours, and a level for every seed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

from evopolicygym.envs.bridges.wfc import PATTERNS, Levels, wrap

pytest.importorskip("minigrid")
pytest.importorskip("networkx")
imageio = pytest.importorskip("imageio.v2")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages about their own age

IDS = [
    f"MiniGrid-WFC-{name}-v0"
    for name in (
        *("MazeSimple", "DungeonMazeScaled", "RoomsFabric"),
        *("ObstaclesBlackdots", "ObstaclesAngular", "ObstaclesHogs3"),
    )
]
LEVELS = """
import hashlib, sys
from evopolicygym.envs import load
digest = hashlib.sha256()
benchmark = load(f"gymnasium/{sys.argv[1]}")
for episode in benchmark.episodes("train", seed=0, count=2):
    environment = benchmark.make_environment(episode)
    observation, _ = environment.reset()
    level = environment._env.unwrapped.grid.encode()
    digest.update(level.tobytes() + observation["image"].tobytes())
print(digest.hexdigest())
"""


def made(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    import minigrid  # noqa: F401

    return wrap(gymnasium.make(env_id, disable_env_checker=True, **kwargs))


def reachable(env: gymnasium.Env[Any, Any]) -> int:
    """Return how many cells there are to walk on; the goal is one of them."""
    grid: Any = env.unwrapped
    start = tuple(map(int, grid.agent_pos))
    seen, todo = {start}, [start]
    for x, y in todo:
        for cell in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            there = grid.grid.get(*cell)
            if cell not in seen and (there is None or there.type != "wall"):
                seen.add(cell)
                todo.append(cell)
    kinds = [there.type for cell in seen if (there := grid.grid.get(*cell)) is not None]
    assert kinds == ["goal"]
    return len(seen)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[3] / "scripts/wfc_patterns.py"
    spec = importlib.util.spec_from_file_location("wfc_patterns", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_images_are_what_the_script_draws(script: ModuleType) -> None:
    drawings = {**script.REGISTERED, **script.OTHERS}
    assert {path.stem for path in PATTERNS.iterdir()} == drawings.keys()
    for name, rows in drawings.items():
        np.testing.assert_array_equal(imageio.imread(PATTERNS / f"{name}.png"), script.draw(rows))


def test_every_preset_of_minigrid_has_its_image() -> None:
    from minigrid.envs.wfc.config import WFC_PRESETS_ALL

    names = {config.pattern_path.name for config in WFC_PRESETS_ALL.values()}
    assert names == {path.name for path in PATTERNS.iterdir()}


@pytest.mark.parametrize("env_id", IDS)
def test_a_level_has_a_goal_in_reach(env_id: str) -> None:
    env = made(env_id, size=13)  # 25 by itself: for seconds
    assert env.get_wrapper_attr("parameters") == {"wfc_patterns": "evopolicygym"}
    env.reset(seed=0)
    assert reachable(env) > 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("env_id", IDS)
def test_thirty_levels_in_a_row(env_id: str) -> None:
    for seed in range(30):
        env = made(env_id)
        env.reset(seed=seed)
        assert reachable(env) > 50


@pytest.mark.slow
def test_presets_that_are_not_registered_make_small_levels() -> None:
    from minigrid.envs.wfc.config import WFC_PRESETS_ALL

    for name in WFC_PRESETS_ALL:
        env = made(IDS[0], wfc_config=name, size=13)
        env.reset(seed=0)
        assert reachable(env) > 1


def test_levels_are_the_same_in_other_processes() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        argv = [sys.executable, "-W", "ignore", "-c", LEVELS, IDS[3]]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(argv, capture_output=True, text=True, env=env, check=True)
        digests.add(done.stdout)
    assert len(digests) == 1


def test_images_of_minigrid_itself_come_first_and_presets_stay_as_they_are() -> None:
    from minigrid.envs.wfc.config import WFC_PRESETS, WFCConfig

    before = WFC_PRESETS["MazeSimple"].pattern_path
    made(IDS[0])
    assert WFC_PRESETS["MazeSimple"].pattern_path == before
    env = made(IDS[0], wfc_config=WFCConfig(PATTERNS / "Lake.png"))
    assert env.get_wrapper_attr("parameters") == {"wfc_patterns": "upstream"}


class Stubborn(gymnasium.Env[Any, Any]):
    """Makes no level until the generator is at its third number."""

    class config:
        pattern_path = PATTERNS / "Lake.png"

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        number = int(self.np_random.integers(1000))
        self.failures -= 1
        if self.failures >= 0:
            raise (RuntimeError, IndexError)[self.failures % 2]
        return number, {}


def test_a_seed_without_a_level_gets_the_next_one_of_its_generator() -> None:
    numbers = np.random.Generator(np.random.PCG64(5)).integers(1000, size=3)
    for _ in range(2):
        assert Levels(Stubborn(2)).reset(seed=5)[0] == numbers[2]
    with pytest.raises(RuntimeError):
        Levels(Stubborn(12)).reset(seed=5)
