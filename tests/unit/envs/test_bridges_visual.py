"""Bridges of the packages with images, of those on JAX and of NetHack: same seed, same bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from evopolicygym.envs import load
from evopolicygym.envs.bridges import nle
from evopolicygym.envs.families import FAMILIES, register

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages about their own age

CRAFTER = """
import hashlib
import numpy as np
import crafter
from evopolicygym.envs.bridges.crafter import _game

crafter.Env.render = lambda self, size=None: None  # slow, and draws what is digested here
kept = []
for junk in (0, 999):
    kept += [object() for _ in range(junk)]
    digest, random = hashlib.sha256(), np.random.default_rng(0)
    game = _game(3, reward=True)
    game.reset()
    for _ in range(60):
        _, reward, *_ = game.step(int(random.integers(17)))
        digest.update(game._world._obj_map.tobytes() + repr(float(reward)).encode())
    print(digest.hexdigest())
"""


def made(family: str, env_id: str) -> gymnasium.Env:
    register(next(row for row in FAMILIES if row.name == family))
    return gymnasium.make(env_id, disable_env_checker=True)


def test_crafter_does_not_depend_on_where_objects_lie_in_memory() -> None:
    pytest.importorskip("crafter")
    digests = set()
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        argv = [sys.executable, "-W", "ignore", "-c", CRAFTER]
        done = subprocess.run(argv, capture_output=True, text=True, env=env, check=True)
        assert len(done.stdout.split()) == 2
        digests |= {*done.stdout.split()}
    assert len(digests) == 1


def test_crafter_without_reward_tells_it_in_info() -> None:
    pytest.importorskip("crafter")
    env = made("crafter", "crafter/NoReward-v1")
    env.reset(seed=5)
    steps = [env.step(5) for _ in range(40)]  # picks at the grass until there is a sapling
    assert {reward for _, reward, *_ in steps} == {0.0}
    assert [info["reward"] for *_, info in steps].count(1.0) == 1
    assert steps[-1][4]["achievements"]["collect_sapling"] >= 1
    assert load("gymnasium/crafter/NoReward-v1").spec.max_episode_steps == 10_000


def test_retro_declares_what_has_a_rom_and_frees_the_emulator() -> None:
    pytest.importorskip("stable_retro")
    screens = []
    for _ in range(2):
        env = made("retro", "retro/Airstriker-Genesis-v0")
        env.reset(seed=1)
        screens.append(env.step(np.ones(12, np.int8))[0])
        env.close()
    assert np.array_equal(*screens)
    assert [name for name in gymnasium.registry if name.startswith("retro/")] == [
        "retro/Airstriker-Genesis-v0"
    ]


@pytest.mark.parametrize("name", ["NetHackChallenge-v0", "MiniHack-MultiRoom-N2-v0"])
def test_nethack_takes_seed_and_calendar_from_reset(name: str) -> None:
    pytest.importorskip("nle")
    pytest.importorskip("minihack")
    benchmark = load(f"gymnasium/{name}")
    # Whether the package was registered by the family's row or, as here, by being imported.
    assert nle.wrap(gymnasium.make(name)).unwrapped.spec.kwargs["fix_moon_phase"]
    first, *_, other = benchmark.episodes("train", seed=0, count=2)
    maps = []
    for episode in (first, first, other):
        environment = benchmark.make_environment(episode)
        observation, _ = environment.reset()
        before = observation["chars"].copy()
        for action in (0, 1, 2, 3):
            _, _, terminated, truncated, info = environment.step(action)
            assert (terminated, truncated, info["end_status"]) == (False, False, "RUNNING")
        assert np.array_equal(observation["chars"], before)  # steps leave it alone
        environment.close()
        maps.append(before.tobytes())
    assert maps[0] == maps[1] != maps[2]


def test_nethack_tells_a_step_limit_from_an_end() -> None:
    pytest.importorskip("minihack")
    benchmark = load("gymnasium/MiniHack-Room-5x5-v0")
    environment = benchmark.make_environment(benchmark.episodes("train", seed=0, count=1)[0])
    environment.reset()
    # Against the wall until the game is aborted.
    flags = [environment.step(0)[2:4] for _ in range(benchmark.spec.max_episode_steps)]
    assert {*flags[:-1]} == {(False, False)}
    assert flags[-1] == (False, True)


@pytest.mark.parametrize(("family", "name"), [("gymnax", "Catch-bsuite"), ("jumanji", "Maze-v0")])
def test_jax_environments_repeat_and_end(family: str, name: str) -> None:
    pytest.importorskip(family)
    played = []
    for seed in (1, 1, 2):
        env = made(family, f"{family}/{name}")
        observations = [env.reset(seed=seed)[0]]
        ended = False
        while not ended:
            observation, _, terminated, truncated, _ = env.step(1)
            observations.append(observation)
            ended = terminated or truncated
        assert all(observation in env.observation_space for observation in observations)
        played.append(repr(observations))
    assert played[0] == played[1] != played[2]
