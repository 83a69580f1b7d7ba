"""Vectors of rewards as one number; mo-gymnasium's own where it is installed."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from evopolicygym.envs.bridges.multi_objective import wrap

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages about their own age


class Base(gymnasium.Env[Any, Any]):
    """Base.

    ## Action Space
    One of three.

    ### Details
    None.

    ## Rewards
    Of the one objective.

    ## Episode End
    Never.
    """


class TwoGoals(Base):
    """Two goals.

    ## Observation Space
    A number.
    """

    observation_space = Box(0, 1, (1,))
    action_space = Discrete(3)
    reward_space = Box(-1, 1, (2,))
    time_limit = 7

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.array([random.random() * np.random.random()], np.float32), {}

    def step(self, action: int) -> Any:
        return np.zeros(1, np.float32), np.array([1, -action]), np.bool_(0), np.bool_(1), {"k": 1}


gymnasium.register("two-goals-v0", lambda **_: TwoGoals(), disable_env_checker=True)


def test_the_reward_is_the_mean_and_the_objectives_are_in_info() -> None:
    env = wrap(gymnasium.make("two-goals-v0"))
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(2)
    assert (reward, terminated, truncated) == (-0.5, False, True)
    assert type(reward) is float
    assert type(terminated) is bool
    assert info == {"k": 1, "reward_components": {"objective_0": 1.0, "objective_1": -2.0}}
    assert env.get_wrapper_attr("parameters") == {"reward_weights": [0.5, 0.5]}


def test_the_limit_that_the_environment_keeps_itself_is_set_unless_there_is_one() -> None:
    for given, limit in ((None, 7), (3, 3)):
        env = wrap(gymnasium.make("two-goals-v0", max_episode_steps=given))
        assert env.spec is not None
        assert env.spec.max_episode_steps == limit


def test_what_the_docstring_lacks_comes_from_the_one_that_it_is_made_from() -> None:
    texts = wrap(gymnasium.make("two-goals-v0")).get_wrapper_attr("texts")
    assert texts.keys() == {"Action", "Reward", "Termination"}
    assert texts["Action"].startswith("One of three.")
    assert "\n#" not in texts["Action"]  # no heading of the task text
    assert texts["Termination"] == "Never."
    assert texts["Reward"].startswith("The weighted sum of 2 objectives")


def test_the_global_generators_are_seeded_for_a_reset_and_put_back() -> None:
    first = []
    for stir in (1, 2):
        random.seed(stir)
        np.random.seed(stir)
        before = random.getstate(), np.random.get_state()[1].tobytes()
        first.append(wrap(gymnasium.make("two-goals-v0")).reset(seed=2**40)[0].item())
        assert before == (random.getstate(), np.random.get_state()[1].tobytes())
    assert first[0] == first[1]


def played(name: str, stir: int, actions: list[int]) -> list[Any]:
    from evopolicygym.envs import load

    np.random.seed(stir)
    benchmark = load(f"gymnasium/{name}")
    (episode,) = benchmark.episodes("train", seed=0, count=1)
    env = benchmark.make_environment(episode)
    seen = [env.reset()[0], *(env.step(action)[0] for action in actions)]
    env.close()
    return [np.asarray(item) for item in seen]


@pytest.mark.parametrize("name", ["minecart-v0", "minecart-rgb-v0"])
def test_minecart_draws_ore_and_mines_from_the_seed(name: str) -> None:
    pytest.importorskip("mo_gymnasium")
    drive_to_a_mine_and_dig = [3, 3, 3, 5, 5, 4, 0, 0, 0]
    one, two = (played(name, stir, drive_to_a_mine_and_dig) for stir in (1, 2))
    assert all(map(np.array_equal, one, two))
    if name == "minecart-v0":
        assert one[-1][-2:].min() > 0  # there was ore


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("fishwood-v0", 200),
        ("fruit-tree-v0", 6),
        ("water-reservoir-v0", 100),
        ("mo-highway-v0", 40),
    ],
)
def test_step_limits_of_environments_that_register_none(name: str, steps: int) -> None:
    pytest.importorskip("mo_gymnasium")
    from evopolicygym.envs import load

    spec = load(f"gymnasium/{name}").spec
    assert spec.max_episode_steps == steps
    if name == "mo-highway-v0":
        assert "- `3`: FASTER" in spec.description


def test_highway_with_other_spaces_says_less() -> None:
    pytest.importorskip("mo_gymnasium")
    from evopolicygym.envs.gymnasium_benchmark import GymnasiumBenchmark

    config = {"action": {"type": "ContinuousAction"}, "observation": {"type": "OccupancyGrid"}}
    made = GymnasiumBenchmark(id="x", env_id="mo-highway-v0", kwargs={"config": config})
    assert "yours first" not in made.spec.description
