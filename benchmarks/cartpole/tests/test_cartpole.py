from __future__ import annotations

import math
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import cartpole
from cartpole import CartPoleBenchmark, baseline_program
from evopolicygym import EvaluationConfig, evaluate
from evopolicygym.benchmark import Episode, EpisodeRecord, Failure, FailureCode
from evopolicygym.execution import ProcessExecution
from evopolicygym.testing import check_benchmark

EPISODE = Episode(environment_seed=7, policy_seed=8)

# The corners of the allowed physics: the fastest and the slowest pole.
WILD = {
    "gravity": 30.0,
    "cart_mass": 0.5,
    "pole_mass": 0.01,
    "pole_half_length": 0.3,
    "force": 20.0,
}
HEAVY = WILD | {"pole_mass": 1.0}
SLOW = {"gravity": 0.1, "cart_mass": 10, "pole_mass": 1.0, "pole_half_length": 2.0, "force": 1}


def play(benchmark: CartPoleBenchmark, choose: Any, episode: Episode = EPISODE) -> Any:
    """Play one Episode; return observations, rewards and the last step."""
    environment = benchmark.make_environment(episode)
    observation, _ = environment.reset()
    observations, rewards, ended = [observation], [], False
    while not ended:
        last = environment.step(choose(observation))
        observation, reward, terminated, truncated, _ = last
        observations.append(observation)
        rewards.append(reward)
        ended = terminated or truncated
    environment.close()
    return observations, rewards, last


# ------------------------------------------------------------------------------- contract


@pytest.mark.parametrize(
    "parameters",
    [{}, {"max_episode_steps": 3}, {"gravity": 1.62}, WILD, HEAVY, SLOW],
    ids=["default", "short", "moon", "wild", "heavy", "slow"],
)
def test_the_contract_holds(parameters: dict[str, Any]) -> None:
    assert check_benchmark(CartPoleBenchmark(**parameters), steps=600).passed


def test_it_is_registered_under_its_id() -> None:
    (point,) = entry_points(group="evopolicygym.benchmarks", name="cartpole")

    assert point.load() is CartPoleBenchmark
    assert point.load()().spec.id == "cartpole"


def test_it_imports_the_public_api_only() -> None:
    allowed = {"evopolicygym", "evopolicygym.benchmark", "evopolicygym.program"}
    imported = set()
    for path in Path(cartpole.__file__).parent.rglob("*.py"):
        imported |= set(re.findall(r"(?m)^\s*(?:from|import) (evopolicygym\S*)", path.read_text()))

    assert imported
    assert imported <= allowed


# ---------------------------------------------------------------------------- constructor


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"max_episode_steps": 0},
            ValueError,
            "max_episode_steps is 0, expected 1 to 100000",
        ),
        ({"max_episode_steps": 10.0}, TypeError, "max_episode_steps is 10.0, expected an integer"),
        ({"max_episode_steps": True}, TypeError, "max_episode_steps is True, expected an integer"),
        (
            {"gravity": -9.8},
            ValueError,
            "gravity is -9.8, expected 0.1 to 30 m/s^2 (gravitational acceleration)",
        ),
        ({"gravity": math.nan}, ValueError, "gravity is nan, expected 0.1 to 30"),
        ({"force": math.inf}, ValueError, "force is inf, expected 1 to 20 N"),
        ({"cart_mass": "1"}, TypeError, "cart_mass is '1', expected a number (mass of the cart"),
        ({"pole_mass": True}, TypeError, "pole_mass is True, expected a number"),
        ({"pole_half_length": None}, TypeError, "pole_half_length is None, expected a number"),
        ({"wind": 1.0}, TypeError, "unexpected keyword argument 'wind'"),
    ],
)
def test_bad_arguments_are_named(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        CartPoleBenchmark(**arguments)

    assert message in str(caught.value)


def test_arguments_are_keywords_and_frozen() -> None:
    with pytest.raises(TypeError):
        CartPoleBenchmark(500)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        CartPoleBenchmark().gravity = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    "change",
    [
        {"gravity": 9.81},
        {"cart_mass": 1.1},
        {"pole_mass": 0.2},
        {"pole_half_length": 0.6},
        {"force": 11.0},
        {"max_episode_steps": 499},
    ],
)
def test_the_digest_covers_every_parameter(change: dict[str, Any]) -> None:
    default, other = CartPoleBenchmark(), CartPoleBenchmark(**change)

    assert other.spec.environment_digest != default.spec.environment_digest
    assert other != default


def test_equal_numbers_give_equal_digests() -> None:
    one, same = CartPoleBenchmark(force=10), CartPoleBenchmark(force=10.0)

    assert one == same
    assert one.spec.environment_digest == same.spec.environment_digest


# ------------------------------------------------------------------------- spec and physics


def test_the_default_is_cartpole_v1() -> None:
    benchmark = CartPoleBenchmark()
    reference = gymnasium.make("CartPole-v1")
    space = benchmark.spec.observation_space
    assert isinstance(reference.observation_space, gymnasium.spaces.Box)
    assert np.array_equal(np.float32(space["high"]), reference.observation_space.high)
    assert np.array_equal(np.float32(space["low"]), reference.observation_space.low)
    assert reference.spec is not None
    assert benchmark.spec.max_episode_steps == reference.spec.max_episode_steps

    environment = benchmark.make_environment(EPISODE)
    expected, _ = reference.reset(seed=EPISODE.environment_seed)
    observation, _ = environment.reset()
    ended = False
    while not ended:
        assert np.array_equal(observation, expected)
        action = int(observation[2] + observation[3] > 0)
        expected, reward, terminated, truncated, _ = reference.step(action)
        observation, *rest, _ = environment.step(action)
        assert rest == [reward, terminated, truncated]
        ended = terminated or truncated
    assert np.array_equal(observation, expected)


def described_ranges(text: str) -> list[tuple[float, float]]:
    found = re.findall(r"(?m)^  \[\d\] .*?, in \[(\S+), (\S+)\]:", text)
    return [(float(low), float(high)) for low, high in found]


@pytest.mark.parametrize("parameters", [{}, WILD, SLOW], ids=["default", "wild", "slow"])
def test_what_is_seen_lies_inside_what_the_text_says(parameters: dict[str, Any]) -> None:
    benchmark = CartPoleBenchmark(**parameters)
    text = benchmark.spec.description
    ranges = described_ranges(text)
    assert len(ranges) == 4
    limits = re.search(r"more than (\S+) m away.*?12 degrees \((\S+) rad\)", text, re.DOTALL)
    assert limits is not None
    position_limit, angle_limit = map(float, limits.groups())
    rng = np.random.default_rng(0)

    steps = 0
    for plan in range(10_000):
        if steps >= 2_000:
            break
        episode = Episode(environment_seed=plan, policy_seed=0)
        observations, rewards, last = play(benchmark, lambda _: int(rng.integers(2)), episode)
        steps += len(rewards)
        assert np.abs(observations[0]).max() <= 0.05
        assert all(reward == 1.0 for reward in rewards)
        for observation in observations:
            for value, (low, high) in zip(observation, ranges, strict=True):
                assert low <= value <= high
        for observation in observations[:-1]:
            assert abs(observation[0]) <= position_limit
            assert abs(observation[2]) <= angle_limit + 1e-7  # float32
        if last[2]:
            beyond = [abs(last[0][0]) > position_limit, abs(last[0][2]) > angle_limit]
            names = [n for n, hit in zip(("position", "angle"), beyond, strict=True) if hit]
            assert last[4]["ended_by"] == names
    assert steps >= 2_000


def test_even_the_fastest_pole_stays_inside_the_space() -> None:
    """Swinging the pole as hard as can be, from edge to edge, never leaves the declared Box."""
    for parameters in (WILD, HEAVY):
        benchmark = CartPoleBenchmark(**parameters)
        high = np.float32(benchmark.spec.observation_space["high"])

        def swing(observation: Any) -> int:
            # Let it fall to one side, then drive it across to the other.
            return int(observation[2] < 0) if abs(observation[2]) > 0.1 else swing.last

        for first in (0, 1):
            swing.last = first  # type: ignore[attr-defined]
            for choose in (swing, lambda _, first=first: first):
                observations, _, _ = play(benchmark, choose)
                assert (np.abs(observations) <= high).all()


def test_the_equations_in_the_text_are_the_dynamics() -> None:
    benchmark = CartPoleBenchmark(gravity=5.0, cart_mass=2.0, pole_mass=0.5, force=7.0)
    names = benchmark.spec.environment_parameters
    text = benchmark.spec.description.split("Dynamics:")[1]
    equations = dict(re.findall(r"(?m)^  (push|angular_acceleration|acceleration) = (.*)$", text))
    second_line = re.search(r"(?m)^ +(/ \(l .*)$", text)
    assert second_line is not None
    equations["angular_acceleration"] += second_line[1]

    observations, _, _ = play(benchmark, lambda observation: 1)
    before, after = np.float64(observations[0]), np.float64(observations[1])
    known: dict[str, Any] = {"sin": math.sin, "cos": math.cos, **names}
    known |= {"angle": before[2], "angular_velocity": before[3], "F": names["force"]}
    known |= {"l": names["pole_half_length"], "total": names["cart_mass"] + names["pole_mass"]}
    for name in ("push", "angular_acceleration", "acceleration"):
        known[name] = eval(equations[name], known)
    rates = [before[1], known["acceleration"], before[3], known["angular_acceleration"]]

    assert after == pytest.approx(before + 0.02 * np.array(rates), abs=1e-6)


def test_metadata_names_the_components_and_the_limits() -> None:
    metadata = CartPoleBenchmark().spec.metadata

    assert [(c["name"], c["unit"]) for c in metadata["observation_components"]] == [
        ("cart position", "m"),
        ("cart velocity", "m/s"),
        ("pole angle", "rad"),
        ("pole angular velocity", "rad/s"),
    ]
    limits = [c.get("ends_beyond") for c in metadata["observation_components"]]
    assert limits == [2.4, None, pytest.approx(math.radians(12)), None]


def test_gravity_changes_what_happens() -> None:
    def final(gravity: float) -> Any:
        return play(CartPoleBenchmark(gravity=gravity), lambda _: 0)[0][-1].tolist()

    assert final(9.8) == final(9.8)
    assert final(9.8) != final(1.62)


# ------------------------------------------------------------------------------- feedback


def record(index: int, steps: int, **end: Any) -> EpisodeRecord:
    failed = end.get("failure") is not None
    score = 0.0 if failed else float(steps)
    return EpisodeRecord(
        index,
        steps,
        float(steps),
        score,
        end.get("terminated", False),
        end.get("truncated", False),
        end.get("failure"),
    )


def test_feedback_tells_how_episodes_ended() -> None:
    feedback = CartPoleBenchmark().feedback(
        [
            record(0, 20, terminated=True),
            record(1, 500, truncated=True),
            record(2, 30, terminated=True),
            record(3, 10, failure=Failure(FailureCode.EXCEPTION, "oops", 10)),
        ]
    )

    assert feedback.score == 137.5
    assert feedback.content == {
        "episodes": 4,
        "failed_episodes": 1,
        "ended_by": {"angle_or_position": 2, "time_limit": 1, "policy_failure": 1},
        "steps": {"min": 10, "median": 25.0, "max": 500},
        "longest_possible": 500,
    }


def test_feedback_of_nothing_is_no_score() -> None:
    assert CartPoleBenchmark().feedback([]).score is None


# ------------------------------------------------------------------------------- baseline


def test_the_baseline_is_weak_and_honest() -> None:
    result = evaluate(
        baseline_program(),
        CartPoleBenchmark(),
        execution=ProcessExecution.unsafe(),
        config=EvaluationConfig(split="validation", episodes=20),
        jobs=2,
    )

    assert result.score is not None
    assert 20 < result.score < 100
    assert all(episode.failure is None for episode in result.episodes)
    assert all(episode.environment_error is None for episode in result.episodes)
    ended_by = result.feedback.content["ended_by"]
    assert ended_by["angle_or_position"] == 20


def test_the_baseline_program_is_always_the_same() -> None:
    assert baseline_program() == baseline_program()
    assert set(baseline_program().files) == {"policy.py"}
