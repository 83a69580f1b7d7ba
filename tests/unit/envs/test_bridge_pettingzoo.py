"""All agents as one policy, on small games written here; real ones where they are installed."""

import random
import sys
import warnings

import gymnasium
import numpy as np
import pytest

from evopolicygym.envs.bridges.pettingzoo import make, register
from evopolicygym.envs.check import _is_missing
from evopolicygym.envs.families import family_of
from evopolicygym.envs.gymnasium_benchmark import GymnasiumBenchmark

pytest.importorskip("pettingzoo")

TURNS = '''
"""
# Turns

| Agents | 2 |

Count up in turn.

### Arguments

None.

#### Rewards

1 for who moves, -3 for who waits.

### Observation

##### Details

A number.
"""

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import AECEnv


class raw_env(AECEnv):
    metadata = {"name": "turns_v1"}
    possible_agents = ["b", "a"]

    def observation_space(self, agent):
        return Dict({"n": Box(2, 9, (2,), np.float32), "k": Discrete(4, start=3)})

    def action_space(self, agent):
        return Discrete(2)

    def observe(self, agent):
        return {"n": np.full(2, 2.0 + len(self.done)), "k": np.int64(5)}

    def reset(self, seed=None, options=None):
        self.done = []
        self.agents = self.possible_agents[:]
        self.agent_selection = "b"
        zeros = dict.fromkeys(self.agents, 0.0)
        self.rewards, self._cumulative_rewards = dict(zeros), dict(zeros)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            return self._was_dead_step(action)
        self.done.append((agent, action))
        self.rewards = {a: 1.0 if a == agent else -3.0 for a in self.agents}
        self.agent_selection = "a" if agent == "b" else "b"
        if len(self.done) == 3:
            self.terminations = dict.fromkeys(self.agents, True)


env = raw_env
'''

TOGETHER = '''
import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv


class raw_env(ParallelEnv):
    """Who chooses 1 leaves."""

    metadata = {"name": "together_v0"}
    possible_agents = [f"x_{n}" for n in range(11)]
    max_cycles = 3

    def observation_space(self, agent):
        return Box(-1, 1, (1,), np.float32)

    def action_space(self, agent):
        from gymnasium.spaces import Discrete

        return Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.frames = self.possible_agents[:], 0
        return dict.fromkeys(self.agents, np.ones(1, np.float32)), {a: {} for a in self.agents}

    def step(self, actions):
        assert list(actions) == self.agents
        self.frames += 1
        left = {a: bool(actions[a]) for a in self.agents}
        late = dict.fromkeys(self.agents, self.frames == self.max_cycles)
        rewards = {a: np.float32(self.frames) for a in self.agents}
        seen = dict.fromkeys(self.agents, np.ones(1, np.float32))
        infos = {a: {} for a in self.agents}
        self.agents = [a for a in self.agents if not (left[a] or late[a])]
        return seen, rewards, left, late, infos


parallel_env = env = raw_env
'''


@pytest.fixture
def games(tmp_path, monkeypatch):
    """A package with two games and one that lacks a package; registered."""
    package = tmp_path / "games_for_tests"
    (package / "deep").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "turns_v1.py": TURNS,
        "deep/__init__.py": "raise AssertionError('imported')",
        "deep/lacking_v2.py": "",
        "lacking_v10.py": "import no_such_package_at_all",
        "together_v0.py": TOGETHER,
        "other_version.py": "raise AssertionError('imported')",
    }.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(gymnasium.registry)
    register("games_for_tests", "no_such_package_at_all.envs", "no_such_package_at_all")
    yield {env_id for env_id in gymnasium.registry if env_id not in before}
    for env_id in set(gymnasium.registry) - before:
        del gymnasium.registry[env_id]
    for module in [name for name in sys.modules if name.startswith("games_for_tests")]:
        del sys.modules[module]


def loaded(env_id):
    return GymnasiumBenchmark(id=env_id, env_id=env_id)


def start(benchmark, seed=5):
    env = benchmark._make()
    return env, env.reset(seed=seed)[0]


def test_every_versioned_module_is_declared_and_none_is_imported(games):
    assert games == {
        f"pettingzoo/{name}" for name in ("turns_v1", "lacking_v2", "lacking_v10", "together_v0")
    }
    assert {name for name in sys.modules if name.startswith("games_for_tests.")} == set()
    assert gymnasium.registry["pettingzoo/lacking_v2"].kwargs == {
        "module": "games_for_tests.deep.lacking_v2"
    }


def test_in_turn_one_agent_is_active_and_the_others_actions_are_ignored(games):
    env, first = start(loaded("pettingzoo/turns_v1"))
    assert list(first["agents"]) == list(env.action_space) == ["b", "a"]
    assert first["active"].tolist() == [1, 0]
    assert first["agents"]["b"]["n"].dtype == np.float32
    assert first["agents"]["b"]["k"] == 5
    # Nearest to 0.
    assert first["agents"]["a"]["n"].tolist() == [2.0, 2.0]
    assert first["agents"]["a"]["k"] == 3
    observation, reward, *flags, info = env.step({"a": 1, "b": 0})
    assert (reward, flags) == (-2.0, [False, False])
    assert info == {"reward_components": {"b": 1.0, "a": -3.0}}
    assert observation["active"].tolist() == [0, 1]
    assert observation["agents"]["a"]["n"].tolist() == [3.0, 3.0]
    env.step({"a": 1, "b": 0})
    observation, reward, *flags, _ = env.step({"a": 0, "b": 1})
    assert (reward, flags) == (-2.0, [True, False])
    assert observation["active"].tolist() == [0, 0]
    assert env.unwrapped._env.done == [("b", 0), ("a", 1), ("b", 1)]
    assert env.observation_space.contains(observation)
    env.close()


def test_together_those_that_left_are_not_active(games):
    benchmark = loaded("pettingzoo/together_v0")
    assert benchmark.spec.max_episode_steps == 3
    env, first = start(benchmark)
    assert first["active"].tolist() == [1] * 11
    assert list(first["agents"])[-1] == "x_10"  # not sorted as text
    nobody = dict.fromkeys(env.action_space, 0)
    observation, reward, *flags, _ = env.step({**nobody, "x_2": 1})
    assert (reward, flags) == (11.0, [False, False])
    assert observation["active"].tolist() == [1, 1, 0] + [1] * 8
    assert observation["agents"]["x_2"].tolist() == [0.0]
    _, reward, *flags, info = env.step(nobody)
    assert (reward, flags) == (20.0, [False, False])
    assert "x_2" not in info["reward_components"]
    assert env.step(nobody)[1:4] == (30.0, False, True)
    env.close()


def test_all_that_left_is_the_end_of_the_game(games):
    env, _ = start(loaded("pettingzoo/together_v0"))
    assert env.step(dict.fromkeys(env.action_space, 1))[1:4] == (11.0, True, False)
    env.close()


def test_the_text_is_made_of_the_modules_documentation(games):
    text = loaded("pettingzoo/turns_v1").spec.description
    objective, reward = (text.split(f"## {title}\n")[1] for title in ("Objective", "Reward"))
    assert "Count up in turn." in objective.split("\n## ")[0]
    assert "-3 for who waits" in reward.split("\n## ")[0]
    observation = text.split("## Observation\n")[1].split("\n## ")[0]
    assert "**Details**" in observation
    assert "A number." in observation
    assert "| Agents |" not in text
    assert "None." not in text
    assert "Who chooses 1 leaves." in loaded("pettingzoo/together_v0").spec.description


def test_what_is_not_installed_is_missing(games):
    with pytest.raises(Exception, match="can't be created here: ModuleNotFoundError") as caught:
        loaded("pettingzoo/lacking_v10")
    assert _is_missing(caught.value)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("simple_v3", "mpe2"),
        ("collect_treasure_v1", "mpe2"),
        ("battle_v4", "magent2"),
        ("surround_v0", "momaland"),
        ("surround_v2", "pettingzoo"),
        ("mobeach_v0", "momaland"),
        ("multiwalker_v9", "pettingzoo"),
    ],
)
def test_the_family_of_a_name(name, family):
    found = family_of(f"pettingzoo/{name}")
    assert found is not None
    assert found.name == family


def test_an_illegal_action_ends_the_game():
    pytest.importorskip("pygame")
    benchmark = loaded("pettingzoo/tictactoe_v3")
    assert benchmark.spec.max_episode_steps == 9
    assert "any other ends the game" in benchmark.spec.description
    env, _ = start(benchmark)
    observation, reward, *flags, _ = env.step({"player_1": 4, "player_2": 4})
    assert (reward, flags) == (0.0, [False, False])
    assert observation["agents"]["player_2"]["action_mask"].tolist() == [1] * 4 + [0] + [1] * 4
    _, reward, *flags, info = env.step({"player_1": 0, "player_2": 4})
    assert (reward, flags) == (-1.0, [True, False])
    assert info["reward_components"] == {"player_1": 0.0, "player_2": -1.0}
    env.close()


def played(module, seed):
    """Observations and rewards of some random steps, and what is said about it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = make(module)
        seen = [env.reset(seed=seed)[0]]
        env.action_space.seed(1)
        for _ in range(5):
            observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
            seen += [observation, reward]
            if terminated or truncated:
                break
        env.close()
    return repr(seen), reward, (terminated, truncated), info, env


@pytest.fixture(scope="module")
def momaland():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("momaland", exc_type=ImportError)


def test_global_generators_are_left_alone(momaland):
    module = "momaland.envs.beach.mobeach_v0"
    random.seed(1)
    before = random.getstate()
    first = played(module, 3)
    assert random.getstate() == before
    np.random.seed(7)
    state = np.random.get_state()[1].tolist()
    assert played(module, 3)[0] == first[0]
    assert np.random.get_state()[1].tolist() == state
    assert played(module, 4)[0] != first[0]


def test_a_vector_counts_as_its_mean(momaland):
    _, reward, ended, info, env = played("momaland.envs.beach.mobeach_v0", 3)
    components = info["reward_components"]
    assert ended == (True, False)
    assert list(components)[:3] == [f"agent_{n // 2}/objective_{n % 2}" for n in range(3)]
    assert reward == pytest.approx(sum(components.values()) / 2)
    assert env.parameters == {"reward_weights": [0.5, 0.5]}
    assert env.step_limit == 1


def test_an_illegal_action_ends_momalands_games_too(momaland):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = make("momaland.envs.breakthrough.mobreakthrough_v0")
    env.reset(seed=1)
    _, reward, terminated, truncated, _ = env.step({"player_0": 191, "player_1": 0})
    assert (reward, terminated, truncated) == (-1.0, True, False)
    env.close()
