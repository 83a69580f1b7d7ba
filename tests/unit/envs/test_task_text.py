"""The written task texts against the environments they describe."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import gymnasium.spaces as gs
import numpy as np
import pytest

from evopolicygym.envs import task_text as module
from evopolicygym.envs.catalog import ALIASES
from evopolicygym.envs.gymnasium_spaces import space_mapping
from evopolicygym.envs.task_text import HEADINGS, generic_text, observation_ranges, task_text
from evopolicygym.errors import BenchmarkError

pytestmark = pytest.mark.filterwarnings("ignore")  # of old versions and of the families' imports

# Registered id: step limit of the original catalogue, or of the environment for Core-16
MUJOCO = dict.fromkeys(
    f"{name}-v{version}"
    for name in (
        *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "Swimmer", "Walker2d"),
        *("InvertedDoublePendulum", "InvertedPendulum", "Pusher", "Reacher"),
    )
    for version in (4, 5)
)
LIMITS = {
    **{"Acrobot-v1": 500, "CartPole-v1": 500, "MountainCar-v0": 200, "Pendulum-v1": 200},
    **{"MountainCarContinuous-v0": 999, "Blackjack-v1": 200, "CliffWalking-v1": 200},
    **{"FrozenLake-v1": 100, "Taxi-v4": 200},
    **{"BipedalWalker-v3": 1600, "CarRacing-v3": 1000, "LunarLander-v3": 1000},
    **{name: {"Pu": 100, "Re": 50}.get(name[:2], 1000) for name in MUJOCO},
    **{"MiniGrid-DoorKey-16x16-v0": 2560, "MiniGrid-KeyCorridorS4R3-v0": 480},
    **{"MiniGrid-FourRooms-v0": 100, "MiniGrid-ObstructedMaze-1Q-v1": 720},
    **{"parking-v0": 500, "roundabout-v0": 11, "FetchPush-v4": 50, "FetchPickAndPlace-v4": 50},
}
PACKAGES = {
    **{"BipedalWalker-v3": ("Box2D",), "LunarLander-v3": ("Box2D",)},
    **{"CarRacing-v3": ("Box2D", "pygame")},
    **dict.fromkeys(MUJOCO, ("mujoco",)),
    **{name: ("minigrid",) for name in LIMITS if name.startswith("MiniGrid")},
    **dict.fromkeys(("parking-v0", "roundabout-v0"), ("highway_env",)),
    **dict.fromkeys(("FetchPush-v4", "FetchPickAndPlace-v4"), ("gymnasium_robotics",)),
}
# 2,000 random steps each, fewer where a step takes more than some milliseconds: CarRacing draws
# its state (about 70 steps/s), highway-env simulates in Python (parking 90, roundabout 18),
# Fetch has 20 simulation steps a step (450).
STEPS = {
    **{"CarRacing-v3": 120, "parking-v0": 150, "roundabout-v0": 33},
    **{"FetchPush-v4": 300, "FetchPickAndPlace-v4": 300},
}
INTEGER = {"type": "Discrete", "n": 2}
every_id = pytest.mark.parametrize("env_id", LIMITS)


def sections(text: str) -> dict[str, str]:
    pieces = re.split(r"(?m)^## (.+)\n", text)
    assert pieces[0] == ""
    assert tuple(pieces[1::2]) == HEADINGS
    return dict(zip(pieces[1::2], map(str.strip, pieces[2::2]), strict=True))


@cache
def environment(env_id: str) -> gymnasium.Env[Any, Any]:
    for package in PACKAGES.get(env_id, ()):
        pytest.importorskip(package, reason=f"{env_id} needs {package}")
    if env_id == "Pusher-v4" and not str(pytest.importorskip("mujoco").__version__) < "3":
        pytest.skip("Pusher-v4 needs mujoco < 3")
    level, gymnasium.logger.min_level = gymnasium.logger.min_level, gymnasium.logger.ERROR
    try:
        return gymnasium.make(env_id, disable_env_checker=True)
    finally:
        gymnasium.logger.min_level = level


def mapping(space: gs.Space[Any]) -> dict[str, Any]:
    """The plain mapping, also of MiniGrid's mission, which is a space class of its own."""
    if isinstance(space, gs.Dict):
        return {"type": "Dict", "spaces": {k: mapping(v) for k, v in space.items()}}
    if type(space).__module__.startswith("minigrid"):
        return {"type": "Text", "min_length": 0, "max_length": 99, "charset": "abc"}
    return space_mapping(space)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, gs.Dict | gs.Tuple):
        value = value.spaces
    if isinstance(value, Mapping | tuple | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in items:
            yield from leaves(part, f"{path}/{key}".strip("/"))
    else:
        yield path, value


def declared(env_id: str) -> dict[tuple[str, int], tuple[float, float]]:
    bounds: dict[tuple[str, int], tuple[float, float]] = {}
    for path, space in leaves(environment(env_id).observation_space):
        if isinstance(space, gs.Box):
            sides = zip(space.low.flat, space.high.flat, strict=True)
            bounds |= {(path, n): (float(lo), float(hi)) for n, (lo, hi) in enumerate(sides)}
        elif isinstance(space, gs.Discrete):
            bounds[path, 0] = (float(space.start), float(space.start + space.n - 1))
    return bounds


def test_every_alias_of_the_catalog_is_here() -> None:
    limits = {alias.env_id: alias.max_episode_steps for alias in ALIASES.values()}
    assert limits.items() <= LIMITS.items()


@every_id
def test_seven_headings(env_id: str) -> None:
    text = task_text(env_id, INTEGER, INTEGER, LIMITS[env_id])
    assert text is not None
    assert all(sections(text).values())
    assert text == task_text(f"gymnasium/{env_id}", INTEGER, INTEGER, LIMITS[env_id])
    assert f"Truncated after {LIMITS[env_id]} steps." in sections(text)["Termination"]


@every_id
def test_step_limit(env_id: str) -> None:
    env = environment(env_id)
    inner: Any = env.unwrapped
    config = getattr(inner, "config", None) or {"duration": 0, "policy_frequency": 0}
    own = [getattr(inner, "max_steps", 0), config["duration"] * config["policy_frequency"]]
    if env_id in ("Blackjack-v1", "CliffWalking-v1"):  # the catalogue sets one
        assert env.spec is not None
        assert env.spec.max_episode_steps is None
    else:
        assert LIMITS[env_id] in [env.spec and env.spec.max_episode_steps, *own]
    text = task_text(env_id, INTEGER, INTEGER, 10**6) or ""
    assert (f"{LIMITS[env_id]} steps." in text) == (LIMITS[env_id] in own)


@every_id
def test_components_and_bounds_are_the_spaces(env_id: str) -> None:
    env, said = environment(env_id), observation_ranges(env_id)
    bounds = declared(env_id)
    assert said.keys() == bounds.keys()
    texts: dict[str, list[str]] = {}
    for block in module._texts()[env_id]["observation"]:
        assert block.get("components") or block["about"]
        rows = block.get("components", []) * module._repeat(block)
        assert all(row[0] and row[1] and row[4] for row in rows)
        texts.setdefault(block["path"], []).extend(row[4] for row in rows)
    for (path, index), own in bounds.items():
        for mine, other, sign in zip(said[path, index], own, (-1, 1), strict=True):
            if not math.isclose(mine, other, rel_tol=1e-6, abs_tol=1e-9):
                assert mine * sign < other * sign
                assert math.isinf(other) or "space" in texts[path][index].lower()
    text = task_text(env_id, mapping(env.observation_space), mapping(env.action_space), 9)
    assert text is not None
    interface = sections(text)["Policy Interface"]
    assert all(f"`{path}`" in interface for path, _ in said if path and not path.isdigit())


@every_id
def test_action_meanings_are_complete(env_id: str) -> None:
    space = environment(env_id).action_space
    rows = module._texts()[env_id]["action"]
    if isinstance(space, gs.Discrete):
        assert len(rows) == space.n
        assert all(isinstance(row, str) and row for row in rows)
    else:
        assert isinstance(space, gs.Box)
        assert [row[2] for row in rows] == pytest.approx(space.low.tolist())
        assert [row[3] for row in rows] == pytest.approx(space.high.tolist())
        assert all(row[0] and row[1] for row in rows)


@every_id
def test_random_steps_stay_inside(env_id: str) -> None:
    env, said = environment(env_id), observation_ranges(env_id)
    env.action_space.seed(0)
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    seed, over = 0, True
    for _ in range(STEPS.get(env_id, 2000)):
        if over:
            observation, _ = env.reset(seed=seed)
            seed, over = seed + 1, False
        else:
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            over = terminated or truncated
        for path, value in leaves(observation):
            if not isinstance(value, str):
                low[path] = np.minimum(low.get(path, value), value)
                high[path] = np.maximum(high.get(path, value), value)
    seen = {
        (path, index): (float(least), float(np.ravel(high[path])[index]))
        for path in low
        for index, least in enumerate(np.ravel(low[path]))
    }
    assert seen.keys() == said.keys()
    outside = {
        key: (seen[key], said[key])
        for key in said
        if seen[key][0] < said[key][0] - 1e-6 or seen[key][1] > said[key][1] + 1e-6
    }
    assert not outside


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ("[A-v0]\nobjektive = 'x'", "objektive"),
        ("[A-v0]\nobjective = 'x'", "reward"),
        ("[[A-v0.observation]]\nname = 'x'", "name"),
        ("[A-v0]\naction = [['x', 'm', 2, 1, '']]", "'x'"),
        ("[A-v0]\nextends = 'B-v0'\nabout = {x = ''}", "unknown"),
    ],
)
def test_malformed_data_is_refused(
    entry: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.toml").write_text(entry)
    monkeypatch.setattr(module, "files", lambda package: tmp_path)
    monkeypatch.setattr(module, "_texts", module._texts.__wrapped__)
    with pytest.raises(BenchmarkError, match=word):
        task_text("A-v0", INTEGER, INTEGER, 1)


def test_unknown_id_has_no_text() -> None:
    assert task_text("CartPole-v99", INTEGER, INTEGER, 1) is None


def test_generic_text_of_documented_environment() -> None:
    env = gymnasium.make("CartPole-v1")
    spaces = [space_mapping(s) for s in (env.observation_space, env.action_space)]
    found = sections(generic_text(*spaces, 500, type(env.unwrapped).__doc__))
    env.close()
    assert all(found.values())
    assert "cart-pole" in found["Objective"]
    assert "shape `(4,)`" in found["Policy Interface"]
    assert "| 1 | not documented | -inf | inf |" in found["Observation"]
    assert "| 0 | not documented | 0 | 1 |" in found["Action"]
    assert "`+1`" in found["Reward"]
    assert "12°" in found["Termination"]
    assert "500 steps" in found["Termination"]


def test_generic_text_of_anything_invents_nothing() -> None:
    space = gs.Dict(
        {
            "box": gs.Box(np.array([0, 0, 1], "f4"), np.array([1, 1, 2], "f4")),
            "nested": gs.Tuple([gs.Discrete(3, start=-1), gs.MultiBinary([2, 2])]),
            "many": gs.MultiDiscrete([[2, 3], [4, 5]]),
            "text": gs.Text(4),
            "either": gs.OneOf([gs.Discrete(2), gs.Box(0, 255, (8, 8), np.uint8)]),
            "sequence": gs.Sequence(gs.Discrete(2)),
            "graph": gs.Graph(gs.Discrete(2), None),
            "empty": gs.Dict({}),
        }
    )
    plain = space_mapping(space)
    found = sections(generic_text(plain, plain, 7, None))
    assert all(found.values())
    rows = re.findall(r"(?m)^\| (.+?) \| not documented \| (.+) \| (.+) \|$", found["Observation"])
    assert {name: bounds for name, *bounds in rows} | {"": []} == {
        "": [],
        "box 0 to 1": ["0.0", "1.0"],
        "box 2": ["1.0", "2.0"],
        "nested/0 0": ["-1", "1"],
        "nested/1 0 to 3": ["0", "1"],
        "many 0": ["0", "1"],
        "many 1": ["0", "2"],
        "many 2": ["0", "3"],
        "many 3": ["0", "4"],
        "text 0": ["not documented", "not documented"],
        "either/0 0": ["0", "1"],
        "either/1 0 to 63": ["0", "255"],
        "sequence 0": ["not documented", "not documented"],
        "graph 0": ["not documented", "not documented"],
        "empty 0": ["not documented", "not documented"],
    }
    assert found["Objective"] == found["Reward"] == "not documented"
