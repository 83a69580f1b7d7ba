"""The conformance suite: good Benchmarks pass, and each check finds what it is there for."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from evopolicygym.benchmark import (
    Artifact,
    Benchmark,
    BenchmarkSpec,
    Episode,
    EpisodeRecord,
    Feedback,
    mean_return_feedback,
    plan_episodes,
)
from evopolicygym.envs import known_ids, load
from evopolicygym.envs.catalog import ALIASES, CORE_16
from evopolicygym.errors import BenchmarkError, ConfigurationError
from evopolicygym.execution.wire import Encoder
from evopolicygym.policy import Graph
from evopolicygym.spaces import Space, action_reader
from evopolicygym.testing import check_benchmark, sample_action

STEPS = 12


class Walk:
    """Move a point towards a target, both in [0, 1]; ends on the target."""

    def __init__(self, episode: Episode) -> None:
        self.seed = episode.environment_seed
        self.count = 0
        self.ended = False

    def observe(self) -> Any:
        return np.array([self.point, self.target], dtype=np.float32)

    def info(self) -> Mapping[str, Any]:
        return {"count": self.count}

    def reward(self) -> Any:
        return 1.0 - abs(self.point - self.target)

    def reset(self) -> Any:
        draw = random.Random(self.seed)
        self.point, self.target = draw.random(), draw.random()
        self.count = 0
        return self.observe(), self.info()

    def step(self, action: Any) -> Any:
        assert not self.ended, "asked after its end"
        assert self.count < STEPS, "asked beyond the step limit"
        self.point = float(np.clip(self.point + 0.2 * action[0], 0.0, 1.0))
        self.count += 1
        self.ended = abs(self.point - self.target) < 0.02
        return self.observe(), self.reward(), self.ended, False, self.info()

    def close(self) -> None:
        pass


class Good:
    """A Benchmark that keeps every promise; the broken ones differ from it in one place."""

    environment: type[Walk] = Walk
    changes: ClassVar[dict[str, Any]] = {}

    @property
    def spec(self) -> BenchmarkSpec:
        spec = BenchmarkSpec(
            id="good",
            description="Move to the target.",
            observation_space={
                "type": "Box",
                "dtype": "float32",
                "shape": [2],
                "low": 0.0,
                "high": 1.0,
            },
            action_space={
                "type": "Box",
                "dtype": "float32",
                "shape": [1],
                "low": -1.0,
                "high": 1.0,
            },
            max_episode_steps=STEPS,
            failure_return=0.0,
        )
        return replace(spec, **self.changes)

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        return plan_episodes("good", split, seed=seed, count=count)

    def make_environment(self, episode: Episode) -> Any:
        return self.environment(episode)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Any:
        return mean_return_feedback(records)


def changed(**changes: Any) -> type[Good]:
    """Make a Benchmark with another spec."""
    return type("Changed", (Good,), {"changes": changes})


def playing(**members: Any) -> type[Good]:
    """Make a Benchmark whose Environment has other members."""
    return type("Playing", (Good,), {"environment": type("Broken", (Walk,), members)})


def planning(alter: Any) -> type[Good]:
    """Make a Benchmark whose plan is altered."""

    def episodes(self: Good, split: str, *, seed: int, count: int) -> Any:
        return alter(split, plan_episodes("good", split, seed=seed, count=count))

    return type("Planning", (Good,), {"episodes": episodes})


def scoring(feedback: Any) -> type[Good]:
    """Make a Benchmark whose Feedback is altered."""
    return type("Scoring", (Good,), {"feedback": lambda self, records: feedback(records)})


def each(alter: Any) -> Any:
    return lambda split, plan: [alter(episode) for episode in plan]


# --------------------------------------------------------------------------- broken pieces


class ChangesWhenPickled(Good):
    def __reduce__(self) -> Any:
        return changed(metadata={"copy": True}), ()


class HoldsALock(Good):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class ChangesAfterPlaying(Good):
    def make_environment(self, episode: Episode) -> Any:
        self.changes = {"max_episode_steps": STEPS - 1}
        return super().make_environment(episode)


class GrowsMetadata(Good):
    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.changes = {"metadata": self.facts}

    def make_environment(self, episode: Episode) -> Any:
        self.changes = {"metadata": {"played": 1}}
        return super().make_environment(episode)


class NeedsPositionalSeed(Good):
    def episodes(self, split: str, number: int, /) -> Any:  # type: ignore[override]
        return ()


class SharedEnvironment(Good):
    only: ClassVar[dict[int, Walk]] = {}

    def make_environment(self, episode: Episode) -> Any:
        walk = self.only.setdefault(episode.environment_seed, Walk(episode))
        walk.ended = False
        return walk


class Counting(Good):
    """Its Feedback depends on how often it was asked."""

    asked = 0

    def feedback(self, records: Sequence[EpisodeRecord]) -> Any:
        self.asked += 1
        return replace(mean_return_feedback(records), content={"asked": self.asked})


class Leaking(Good):
    """Its spec lists the seeds it will plan."""

    def __init__(self, where: str) -> None:
        seeds = [e.environment_seed for e in plan_episodes("good", "test", seed=0, count=3)]
        value = f"The seeds are {seeds}." if where == "description" else {"seeds": seeds}
        self.changes = {where: value}


class LeakingFeedback(Good):
    def feedback(self, records: Sequence[EpisodeRecord]) -> Any:
        seeds = [str(e.environment_seed) for e in self.episodes("test", seed=0, count=3)]
        return replace(mean_return_feedback(records), content={"played": {"seeds": seeds}})


class LeakingScenario(Good):
    """Its scenario is a number that the info repeats inside an array."""

    class Told(Walk):
        def __init__(self, episode: Episode) -> None:
            super().__init__(episode)
            self.level = episode.scenario["level"]

        def info(self) -> Mapping[str, Any]:
            return {"nested": [np.array([1, self.level])]}

    environment = Told

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        plan = plan_episodes("good", split, seed=seed, count=count)
        return [replace(e, scenario={"level": e.environment_seed // 7}) for e in plan]


def refuses_right(self: Walk, action: Any) -> Any:
    if action[0] > 0.5:
        raise ValueError("no fast moves")
    return Walk.step(self, action)


def overwrites(self: Walk, action: Any) -> Any:
    result = Walk.step(self, action)
    action *= 0.5
    return result


def breaks_down(self: Walk, action: Any) -> Any:
    if self.count == 1:
        raise RuntimeError("out of memory")
    return Walk.step(self, action)


def returning(position: int, value: Any) -> Any:
    """Make a `step` that returns something else at one position."""

    def step(self: Walk, action: Any) -> Any:
        result = list(Walk.step(self, action))
        result[position] = value
        return tuple(result)

    return step


def closing(when: Any) -> Any:
    def close(self: Walk) -> None:
        if when(self):
            raise OSError("already gone")

    return close


def noisy(self: Walk) -> Any:
    return 1.0 - abs(self.point - self.target) + np.random.random() * 1e-9


class Drifts(Walk):
    """State of the class outlives the Episode."""

    played: ClassVar[list[int]] = []

    def reset(self) -> Any:
        self.played.append(1)
        observation, info = super().reset()
        return (observation + np.float32(0.001) * len(self.played)).clip(0, 1), info


def drops_failures(records: Sequence[EpisodeRecord]) -> Feedback:
    kept = [record.total_reward for record in records if record.failure is None]
    return Feedback(score=sum(kept) / len(kept) if kept else None)


def content(value: Any) -> type[Good]:
    return scoring(lambda records: replace(mean_return_feedback(records), content=value))


def artifact(path: str) -> type[Good]:
    files = (Artifact(path, b"data"),)
    return scoring(lambda records: replace(mean_return_feedback(records), artifacts=files))


BROKEN: dict[str, list[Any]] = {
    "members": [
        type("NoFeedback", (Good,), {"feedback": None}),
        type("MappingSpec", (Good,), {"spec": {"id": "good"}}),
        type("RaisingSpec", (Good,), {"spec": property(lambda self: 1 / 0)}),
        NeedsPositionalSeed,
    ],
    "spec_json": [
        changed(metadata={"mass": np.float64(1.0)}),
        changed(metadata={"bound": float("nan")}),
        changed(metadata={1: "one"}),
        changed(metadata={"text": "\ud800"}),
        changed(environment_parameters={"size": np.int64(3)}),
        changed(environment_parameters={"big": 2**70}),
        changed(description=" "),
    ],
    "spec_stable": [ChangesAfterPlaying, GrowsMetadata],
    "pickle": [ChangesWhenPickled, HoldsALock],
    "plan_count": [
        planning(lambda split, plan: [*plan, *plan]),
        planning(lambda split, plan: plan[:1]),
        planning(lambda split, plan: 1 / 0),
    ],
    "plan_values": [
        planning(each(lambda e: replace(e, environment_seed=e.environment_seed + 2**31))),
        planning(each(lambda e: replace(e, policy_seed=-1))),
        planning(each(lambda e: replace(e, policy_seed=np.int64(e.policy_seed)))),
        planning(each(lambda e: replace(e, scenario={"speed": np.float32(1)}))),
        planning(lambda split, plan: [0 for _ in plan]),
    ],
    "plan_deterministic": [
        planning(each(lambda e: replace(e, policy_seed=random.randrange(2**31)))),
    ],
    "plan_policy_seeds": [
        planning(each(lambda e: replace(e, policy_seed=e.environment_seed))),
        planning(each(lambda e: replace(e, policy_seed=e.environment_seed // 2 * 2 + 1))),
    ],
    "plan_splits_disjoint": [
        planning(lambda split, plan: plan_episodes("good", "train", seed=0, count=len(plan))),
        planning(each(lambda e: replace(e, environment_seed=e.environment_seed % 9_973))),
    ],
    "private_values": [
        lambda: Leaking("metadata"),
        lambda: Leaking("environment_parameters"),
        lambda: Leaking("description"),
        playing(info=lambda self: {"nested": {"seed": self.seed}}),
        LeakingScenario,
        LeakingFeedback,
    ],
    "environment": [
        playing(reset=lambda self: Walk.reset(self)[0]),
        playing(reset=lambda self: 1 / 0),
        playing(step=lambda self, action: Walk.step(self, action)[:4]),
        playing(info=lambda self: None),
        playing(step=None),
        SharedEnvironment,
        type("RaisingFactory", (Good,), {"make_environment": lambda self, episode: 1 / 0}),
    ],
    "episode_end": [
        playing(step=breaks_down),
        playing(step=lambda self, action: 1 / 0),
    ],
    "actions": [playing(step=refuses_right), playing(step=overwrites)],
    "observations": [
        playing(observe=lambda self: np.array([np.nan, 0.5], np.float32)),
        playing(observe=lambda self: np.array([1.5, 0.5], np.float32)),
        playing(observe=lambda self: np.array([0.5, 0.5], np.float64)),
        playing(observe=lambda self: np.array([0.5], np.float32)),
        playing(observe=lambda self: [[0.5], [0.5, 0.5]]),
        playing(observe=lambda self: None),
    ],
    "rewards": [
        playing(reward=lambda self: float("nan")),
        playing(reward=lambda self: float("inf")),
        playing(reward=lambda self: np.array([1.0])),
        playing(reward=lambda self: "1.0"),
        playing(reward=lambda self: True),
    ],
    "flags": [
        playing(step=returning(3, None)),
        playing(step=returning(3, 0)),
    ],
    "replay": [
        playing(reward=noisy),
        type("Drifting", (Good,), {"environment": Drifts}),
    ],
    "close": [
        playing(close=closing(lambda self: True)),
        playing(close=closing(lambda self: not hasattr(self, "point"))),
        playing(close=closing(lambda self: hasattr(self, "point") and self.count == 0)),
        playing(close=closing(lambda self: self.ended or self.count == STEPS)),
    ],
    "feedback": [
        scoring(lambda records: {"score": 1.0}),
        scoring(lambda records: Feedback(score=float("nan"))),
        scoring(lambda records: Feedback(score=True)),
        scoring(lambda records: 1 / 0),
    ],
    "feedback_empty": [
        scoring(lambda records: Feedback(sum(r.score_return for r in records) / len(records))),
        scoring(lambda records: mean_return_feedback(records) if records else None),
    ],
    "feedback_content": [
        content({"mean": float("nan")}),
        content({"mean": np.float64(1.0)}),
        content(["text"]),
        artifact("../escape.txt"),
        artifact("/etc/passwd"),
        artifact("a//b"),
        artifact(""),
    ],
    "feedback_deterministic": [
        Counting,
        scoring(lambda records: replace(mean_return_feedback(records), content={"x": noise()})),
    ],
    "failing_never_pays": [
        scoring(drops_failures),
        # Negative rewards that a failure cuts short, scored by what was observed.
        type(
            "Partial",
            (playing(reward=lambda self: -1.0),),
            {
                "changes": {"failure_return": -float(STEPS)},
                "feedback": lambda self, records: Feedback(
                    sum(record.total_reward for record in records) if records else None
                ),
            },
        ),
        # Fewer steps are better, and a failed Episode has few.
        type(
            "Fewest",
            (Good,),
            {
                "changes": {"score_direction": "minimize", "failure_return": float(STEPS)},
                "feedback": lambda self, records: Feedback(
                    float(sum(record.steps for record in records)) if records else None
                ),
            },
        ),
    ],
    "failure_return": [changed(failure_return=1_000.0)],
}


def noise() -> float:
    return random.random()


CASES = [
    pytest.param(name, make, id=f"{name}-{number}")
    for name, makers in BROKEN.items()
    for number, make in enumerate(makers)
]


@pytest.mark.parametrize(("name", "make"), CASES)
def test_a_broken_promise_fails_its_check_and_no_other(name: str, make: Any) -> None:
    report = check_benchmark(make(), raise_on_failure=False)

    assert [check.name for check in report.failures] == [name], str(report)
    (failure,) = report.failures
    assert failure.message
    assert "\n" not in failure.message
    assert not report.passed


def test_every_check_has_a_broken_benchmark() -> None:
    report = check_benchmark(Good())

    assert {check.name for check in report.checks} == set(BROKEN)


# -------------------------------------------------------------------------- good Benchmarks


def catalog_benchmark(benchmark_id: str) -> Benchmark:
    try:
        return load(benchmark_id)
    except ConfigurationError as error:
        if "can't be created here" in str(error):
            pytest.skip(str(error))
        raise


_ALIASED = {alias.env_id for alias in ALIASES.values()}


@pytest.mark.parametrize(
    "benchmark_id",
    sorted({*known_ids(), *(f"gymnasium/{name}" for name in CORE_16 if name not in _ALIASED)}),
)
def test_the_catalog_passes(benchmark_id: str) -> None:
    slow = (
        "gym/racing",
        "gymnasium/parking-v0",
        "gymnasium/roundabout-v0",
    )  # 10 ms a step and more
    report = check_benchmark(
        catalog_benchmark(benchmark_id), steps=20 if benchmark_id in slow else 200
    )

    assert report.passed
    assert report.benchmark_id == benchmark_id


@pytest.mark.parametrize("benchmark_id", ["gym/acrobot", "gym/continuouscar"])
def test_long_episodes_pass_to_their_end(benchmark_id: str) -> None:
    report = check_benchmark(load(benchmark_id), splits=("train",), episodes=1, steps=1_000)

    assert not any(check.message for check in report.checks), str(report)


def test_a_minimizing_benchmark_passes() -> None:
    class Distance(playing(reward=lambda self: abs(self.point - self.target))):  # type: ignore[misc]
        changes: ClassVar[dict[str, Any]] = {
            "score_direction": "minimize",
            "failure_return": float(STEPS),
        }

    assert check_benchmark(Distance()).passed


def test_a_finite_data_set_passes() -> None:
    class Finite(Good):
        def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
            if count > 4:
                raise ConfigurationError(f"{split} has 4 Episodes")
            return super().episodes(split, seed=0, count=count)

    assert check_benchmark(Finite()).passed


def test_an_episode_that_does_not_end_in_time_is_remarked_on() -> None:
    report = check_benchmark(load("gym/acrobot"), splits=("train",), episodes=1, steps=5)

    remarks = {check.name: check.message for check in report.checks if check.message}
    assert set(remarks) == {"close", "failing_never_pays", "failure_return"}
    assert all("no Episode ended within 5 steps" in message for message in remarks.values())


class Watched(Walk):
    """Writes down what it is asked."""

    calls: ClassVar[list[list[str]]] = []

    def __init__(self, episode: Episode) -> None:
        super().__init__(episode)
        self.mine: list[str] = []
        self.calls.append(self.mine)

    def reset(self) -> Any:
        self.mine.append("reset")
        return super().reset()

    def step(self, action: Any) -> Any:
        result = super().step(action)
        self.mine.append("end" if self.ended else "step")
        return result

    def close(self) -> None:
        self.mine.append("close")


class Watching(Good):  # of this module, so that its copy shares the class
    environment = Watched


def test_nothing_is_asked_after_an_end_and_close_is_called_once() -> None:
    Watched.calls.clear()

    assert check_benchmark(Watching()).passed

    assert ["close"] in Watched.calls
    assert ["reset", "close"] in Watched.calls
    assert any("end" in asked for asked in Watched.calls)
    for asked in Watched.calls:
        assert asked.count("close") == 1
        assert asked[-1] == "close"
        assert asked.count("step") + asked.count("end") <= STEPS
        assert "end" not in asked[:-2]


# ---------------------------------------------------------------------------------- report


def test_every_failed_check_is_listed_in_the_error() -> None:
    class Worse(Good):
        changes: ClassVar[dict[str, Any]] = {"failure_return": -1.0}
        environment = type("Odd", (Walk,), {"step": returning(3, None), "reward": lambda _: -1.0})

    with pytest.raises(BenchmarkError) as caught:
        check_benchmark(Worse())

    text = str(caught.value)
    assert text.startswith("good: 3 of 24 checks failed\n")
    for name in ("flags", "failing_never_pays", "failure_return"):
        assert f"\n- {name}: " in text


def test_the_report_is_readable() -> None:
    report = check_benchmark(
        playing(reward=lambda self: float("nan"))(), raise_on_failure=False, splits=["train"]
    )

    lines = str(report).splitlines()
    assert lines[0] == f"good: {len(report.checks)} checks, 1 failed"
    assert lines[1] == "  ok    members"
    (line,) = [line for line in lines if "FAIL" in line]
    assert line.split(maxsplit=2)[:2] == ["FAIL", "rewards"]
    assert "train[0]: step 0 returned the reward nan" in line
    assert str(check_benchmark(Good())).startswith("good: 24 checks, all passed\n")


@pytest.mark.parametrize("member", ["episodes", "make_environment", "feedback", "spec"])
def test_nothing_that_a_benchmark_raises_escapes(member: str) -> None:
    def explode(*arguments: Any, **keywords: Any) -> Any:
        raise LookupError("boom")

    value = property(explode) if member == "spec" else explode
    benchmark = type("Exploding", (Good,), {member: value})()

    report = check_benchmark(benchmark, raise_on_failure=False)

    assert report.failures
    assert all("raised LookupError: boom" in check.message for check in report.failures)


def test_where_and_what_is_in_the_message() -> None:
    report = check_benchmark(playing(step=refuses_right)(), raise_on_failure=False)

    (failure,) = report.failures
    assert "raised ValueError: no fast moves, for the action array([" in failure.message
    assert "which is a member of Box(1,) float32" in failure.message


def test_global_generators_are_left_as_they_were() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]

    check_benchmark(Good())

    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index,union-attr]


def test_reports_of_equal_inputs_are_equal() -> None:
    first, second = (
        check_benchmark(playing(reward=noisy)(), seed=3, raise_on_failure=False) for _ in range(2)
    )

    assert first == second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"episodes": 0}, "episodes is 0, expected an integer >= 1"),
        ({"steps": 2.5}, "steps is 2.5, expected an integer >= 1"),
        ({"seed": -1}, "seed is -1, expected an integer >= 0"),
        ({"splits": ()}, "splits is (), expected names"),
        ({"splits": "train"}, "splits is 'train', expected names"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_benchmark(Good(), **arguments)

    assert message in str(caught.value)


def test_importing_it_loads_no_environment_package() -> None:
    code = (
        "import sys, evopolicygym.testing; print([m for m in ('gymnasium',) if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------------------- spaces

INF = float("inf")
NODE = {"type": "Box", "dtype": "float32", "shape": [2], "low": 0.0, "high": 1.0}
THREE = {"type": "Discrete", "n": 3, "start": -1}

SPACES: list[Space] = [
    {"type": "Box", "dtype": "float32", "shape": [3], "low": -0.1, "high": 0.1},
    {"type": "Box", "dtype": "float64", "shape": [2, 2], "low": -1.7e308, "high": 1.7e308},
    {"type": "Box", "dtype": "float32", "shape": [], "low": 0.0, "high": 1.0},
    {"type": "Box", "dtype": "float32", "shape": [4], "low": [-INF, 0, -INF, 1], "high": INF},
    {"type": "Box", "dtype": "float16", "shape": [2], "low": -INF, "high": [0.5, INF]},
    {"type": "Box", "dtype": "uint8", "shape": [2, 3], "low": 0, "high": 255},
    {"type": "Box", "dtype": "int64", "shape": [2], "low": -(2**63), "high": 2**63 - 1},
    {"type": "Box", "dtype": "uint64", "shape": [2], "low": 0, "high": 2**64 - 1},
    {"type": "Box", "dtype": "int32", "shape": [2], "low": -INF, "high": INF},
    {"type": "Box", "dtype": "bool", "shape": [2], "low": 0, "high": 1},
    THREE,
    {"type": "MultiDiscrete", "nvec": [[2, 3], [4, 5]], "start": [[0, 1], [2, -3]]},
    {"type": "MultiDiscrete", "nvec": [2, 9]},
    {"type": "MultiBinary", "shape": [2, 2]},
    {"type": "Text", "min_length": 0, "max_length": 4, "charset": "ab"},
    {"type": "Text", "min_length": 2, "max_length": 10**9, "charset": None},
    {"type": "Dict", "spaces": {"a": THREE, "b": {"type": "Tuple", "spaces": [NODE, THREE]}}},
    {"type": "OneOf", "spaces": [THREE, NODE]},
    {"type": "Sequence", "space": NODE},
    {"type": "Graph", "node_space": NODE, "edge_space": THREE},
    {"type": "Graph", "node_space": THREE, "edge_space": None},
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space["type"])
def test_a_sample_is_read_unchanged(space: Space) -> None:
    rng, again = np.random.default_rng(1), np.random.default_rng(1)
    encode, read = Encoder().encode, action_reader(space)
    seen = set()
    for _ in range(200):
        sample = sample_action(space, rng)
        seen.add(encode(sample))
        assert encode(read(sample)) == encode(sample)
        assert encode(sample_action(space, again)) == encode(sample)
    assert len(seen) > 2


def test_samples_reach_the_bounds() -> None:
    space = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-0.1, 0], "high": [0.1, INF]}
    rng = np.random.default_rng(0)
    samples = np.array([sample_action(space, rng) for _ in range(300)])

    assert (samples[:, 0] == np.float32(-0.1)).any()
    assert (samples[:, 0] == np.float32(0.1)).any()
    assert (samples[:, 1] == 0).any()
    assert np.isfinite(samples).all()


class Showing(Good):
    """Shows one observation, over and over."""

    def __init__(self, space: Space, value: Any) -> None:
        self.changes = {"observation_space": space}
        self.value = value

    def make_environment(self, episode: Episode) -> Any:
        walk = super().make_environment(episode)
        walk.observe = lambda: self.value
        return walk


def array(*items: float, dtype: str = "float32") -> Any:
    return np.array(items, dtype=dtype)


BOX_INF = {"type": "Box", "dtype": "float32", "shape": [1], "low": -INF, "high": INF}
BYTES = {"type": "Box", "dtype": "uint8", "shape": [1], "low": 0, "high": 9}
TEXT = {"type": "Text", "min_length": 1, "max_length": 2, "charset": "ab"}
PAIR = {"type": "Tuple", "spaces": [THREE, NODE]}
ONE_OF = {"type": "OneOf", "spaces": [THREE, TEXT]}
GRAPH = {"type": "Graph", "node_space": NODE, "edge_space": THREE}
NODES = np.zeros((2, 2), np.float32)

INSIDE: list[tuple[Space, Any]] = [
    (BOX_INF, array(INF)),
    (BOX_INF, [3]),
    (BOX_INF, array(3, dtype="float16")),
    (BYTES, array(9, dtype="int64")),
    (THREE, -1),
    (THREE, np.int8(1)),
    ({"type": "MultiDiscrete", "nvec": [2, 3]}, [1, 2]),
    ({"type": "MultiBinary", "shape": [2]}, array(1, 0, dtype="bool")),
    (TEXT, "ab"),
    ({"type": "Text", "min_length": 0, "max_length": 9, "charset": None}, "ä?"),
    (PAIR, (0, array(0, 1))),
    (ONE_OF, (1, "b")),
    ({"type": "Sequence", "space": THREE}, [0, 1, -1]),
    ({"type": "Dict", "spaces": {"a": PAIR}}, {"a": [1, array(1, 1)]}),
    (GRAPH, Graph(NODES, array(0, 1, dtype="int64"), np.array([[0, 1], [1, 1]]))),
    (GRAPH, Graph(NODES, None, None)),
]

OUTSIDE: list[tuple[Space, Any, str]] = [
    (BOX_INF, array(np.nan), "has NaN at index (0,)"),
    (BOX_INF, array(1, dtype="float64"), "needs float32 for Box(1,) float32, got float64"),
    (BOX_INF, ["1"], "needs float32"),
    (BYTES, array(10, dtype="uint8"), "needs values in [0, 9] for Box(1,) uint8, got 10 at"),
    (BYTES, [1.0], "needs uint8"),
    (THREE, 2, "needs values in [-1, 1] for Discrete(3, start=-1), got 2"),
    (THREE, 0.0, "needs int64"),
    (THREE, 10**30, "needs int64"),
    ({"type": "MultiDiscrete", "nvec": [2, 3]}, [2, 2], "got 2 at index [0]"),
    ({"type": "MultiBinary", "shape": [2]}, [0, 2], "needs values in [0, 1]"),
    (TEXT, "abb", "needs 1 to 2 characters, got 3"),
    (TEXT, "xa", "has characters outside its charset: ['x']"),
    (TEXT, 1, "needs a str"),
    (PAIR, (0,), "needs 2 items, got 1"),
    (PAIR, 0, "needs a tuple"),
    (PAIR, (0, array(0, 2)), "at [1] needs values in [0.0, 1.0]"),
    (ONE_OF, (2, "b"), "needs (branch, value)"),
    (ONE_OF, (0, "b"), "at [0] needs int64"),
    ({"type": "Sequence", "space": THREE}, [0, 5], "at [1] needs values"),
    ({"type": "Dict", "spaces": {"a": THREE}}, {"a": 0, "b": 0}, "needs exactly the keys ['a']"),
    ({"type": "Dict", "spaces": {"a": THREE}}, 0, "needs exactly the keys ['a']"),
    (GRAPH, NODES, "needs (nodes, edges, edge_links)"),
    (GRAPH, (NODES, array(0, dtype="int64"), None), "has edges without edge_links"),
    (GRAPH, (NODES, array(0, dtype="int64"), np.array([[0, 2]])), "has edge_links outside [0, 1]"),
    (GRAPH, (NODES, array(0, dtype="int64"), np.array([0, 1])), "needs edge_links of shape (1, 2)"),
    (GRAPH, (NODES + 2, None, None), "at ['nodes[0]'] needs values in [0.0, 1.0]"),
    ({**GRAPH, "edge_space": None}, (NODES, NODES, NODES), "has edges, but its space has none"),
]


@pytest.mark.parametrize(("space", "value"), INSIDE)
def test_members_of_every_space_pass(space: Space, value: Any) -> None:
    assert check_benchmark(Showing(space, value), episodes=1, splits=("train",)).passed


@pytest.mark.parametrize(("space", "value", "message"), OUTSIDE)
def test_observations_outside_their_space_are_found(space: Space, value: Any, message: str) -> None:
    report = check_benchmark(
        Showing(space, value), episodes=1, splits=("train",), raise_on_failure=False
    )

    (failure,) = report.failures
    assert failure.name == "observations"
    assert message in failure.message
