"""Atari's step limits and texts."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from evopolicygym.envs.bridges.ale import wrap
from evopolicygym.envs.families import FAMILIES, register
from evopolicygym.envs.gymnasium_benchmark import GymnasiumBenchmark

pytest.importorskip("ale_py")
pytestmark = pytest.mark.filterwarnings("ignore")  # of old versions


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    register(next(family for family in FAMILIES if family.name == "ale"))


def benchmark(env_id: str, **kwargs: Any) -> GymnasiumBenchmark:
    return GymnasiumBenchmark(id="x", env_id=env_id, kwargs=kwargs)


@pytest.mark.parametrize(
    ("env_id", "limit"),
    [("ALE/Pong-v5", 27_000), ("Pong-v4", 54_000), ("PongNoFrameskip-v4", 108_000)],
)
def test_the_limit_is_what_108000_frames_come_to(env_id: str, limit: int) -> None:
    assert benchmark(env_id).spec.max_episode_steps == limit


def test_there_are_no_other_limits() -> None:
    specs = [s for s in gymnasium.registry.values() if str(s.entry_point).startswith("ale_py.")]
    assert {spec.max_episode_steps for spec in specs} == {None}
    assert {spec.kwargs["max_num_frames_per_episode"] for spec in specs} == {108_000}
    assert {spec.kwargs["frameskip"] for spec in specs} == {4, 1, (2, 5)}


@pytest.mark.parametrize(("env_id", "limit"), [("ALE/Pong-v5", 101), ("PongNoFrameskip-v4", 403)])
def test_the_game_truncates_at_that_very_step(env_id: str, limit: int) -> None:
    pong = benchmark(env_id, max_num_frames_per_episode=403)
    assert pong.spec.max_episode_steps == limit
    (episode,) = pong.episodes("train", seed=0, count=1)
    env = pong.make_environment(episode)
    env.reset()
    ends = [env.step(0)[2:4] for _ in range(limit)]
    assert ends == [(False, False)] * (limit - 1) + [(False, True)]


def test_no_wrapper_is_left_in_the_hot_loop() -> None:
    pong = benchmark("ALE/Pong-v5")
    (episode,) = pong.episodes("train", seed=0, count=1)
    env = pong.make_environment(episode)
    assert env.step.__self__ is env._env.unwrapped


def test_the_text_says_what_actions_mean_and_how_the_game_is_played() -> None:
    text = benchmark("Skiing-v0").spec.description
    for part in (
        "Play Skiing",
        "- `2`: LEFT",
        "A frame gives minus the time",
        "2 to 4 frames",
        "with probability 0.25",
    ):
        assert part in text
    text = benchmark("ALE/Pong-v5", obs_type="ram", continuous=True).spec.description
    for part in ("The console's memory", "radius of the stick", "A step is 4 frames."):
        assert part in text


def test_every_game_with_a_reward_of_its_own_exists() -> None:
    from ale_py import roms

    from evopolicygym.envs.bridges import ale

    assert ale._REWARDS.keys() <= {*roms.get_all_rom_ids()}


def test_what_is_spelled_like_an_old_name_is_left_alone() -> None:
    env = gymnasium.make("CartPole-v1")
    assert wrap(env) is env
