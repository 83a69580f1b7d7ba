"""Same Program and Episode, same trajectory: whatever the workers, the order and the Host."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evopolicygym.benchmark import Episode
from evopolicygym.envs import known_ids, load
from evopolicygym.evaluation import EvaluationConfig, evaluate, plan
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.task import Task
from evopolicygym.program import Program

from .arena import execution, program

EPISODES = 4
JOBS = (1, 2, 4)

_RANDOM = """
import random
import numpy as np

def sample(space):
    kind = space["type"]
    if kind == "Discrete":
        # A set of str, so that the order depends on the hash seed.
        members = list({str(n) for n in range(space["n"])})
        return int(random.choice(members)) + space.get("start", 0)
    if kind == "Box":
        low, high = np.maximum(space["low"], -5), np.minimum(space["high"], 5)
        return np.random.uniform(low, high, space["shape"])
    raise NotImplementedError(kind)

class Policy:
    def __init__(self, context):
        self.space = context.action_space
        self.weights = np.random.default_rng(context.policy_seed).normal(size=(64, 64))

    def act(self, observation):
        # Some linear algebra: its rounding must not depend on the number of threads.
        if isinstance(observation, dict):
            observation = next(v for v in observation.values() if isinstance(v, np.ndarray))
        scale = (self.weights @ self.weights.T @ np.resize(observation, 64).astype(float)).sum()
        for _ in range(int(abs(scale)) % 3):
            random.random()
        return sample(self.space)

def make_policy(context):
    return Policy(context)
"""
RANDOM = program(_RANDOM)
LOUD = program(
    _RANDOM.replace(
        "        return sample(self.space)",
        "        print(observation, scale, {'a', 'b'})\n        return sample(self.space)",
    )
)


def _episodes(benchmark_id: str) -> list[tuple[int, Episode]]:
    return list(enumerate(plan(load(benchmark_id), "train", seed=3, count=EPISODES)))


def _play(
    pool: WorkerPool,
    benchmark_id: str,
    made: Program = RANDOM,
    *,
    episodes: list[tuple[int, Episode]] | None = None,
    directory: Path | None = None,
) -> list[EpisodeOutcome]:
    chosen = _episodes(benchmark_id) if episodes is None else episodes
    tasks = [
        Task(index, episode, None if directory is None else directory / str(index))
        for index, episode in chosen
    ]
    outcomes = pool.play(made, load(benchmark_id), tasks, timeout=60.0)
    for outcome in outcomes:
        assert (outcome.fault, outcome.failure, outcome.attempts) == (None, None, 1)
    return outcomes


def _hashes(outcomes: list[EpisodeOutcome]) -> list[str]:
    return [outcome.trajectory_hash for outcome in outcomes]


def _files(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, WorkerPool]]:
    made = {
        jobs: WorkerPool(execution(), jobs=jobs, directory=tmp_path_factory.mktemp("pool"))
        for jobs in JOBS
    }
    yield made
    for pool in made.values():
        pool.close()


class _Baseline(dict[str, list[EpisodeOutcome]]):
    """What one worker plays, for each id that a test asks for."""

    def __init__(self, pool: WorkerPool) -> None:
        super().__init__()
        self._pool = pool

    def __missing__(self, name: str) -> list[EpisodeOutcome]:
        self[name] = _play(self._pool, name)
        return self[name]


@pytest.fixture(scope="module")
def baseline(pools: dict[int, WorkerPool]) -> dict[str, list[EpisodeOutcome]]:
    return _Baseline(pools[1])


QUICK = [
    *("toy", "cartpole", "gym/acrobot", "gym/blackjack", "gym/cartpole", "gym/cliff"),
    *("gym/continuouscar", "gym/frozenlake", "gym/mountaincar", "gym/pendulum", "gym/taxi"),
    *("gym/bipedal", "gym/lunar", "gym/reacher5", "gym/invertedpendulum5", "gym/hopper5"),
    *("gymnasium/MiniGrid-FourRooms-v0", "gymnasium/FetchPush-v4"),
]
"""Ids of every kind that `make test` has the time for; `make test-all` plays all."""

# Pusher-v4 runs with mujoco < 3 only.
EVERY = sorted({*known_ids(), *QUICK} - {"gym/pusher4"})

ids = pytest.mark.parametrize(
    "benchmark_id",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in EVERY],
)


@ids
@pytest.mark.parametrize("jobs", JOBS)
def test_number_of_workers_changes_nothing(
    pools: dict[int, WorkerPool],
    baseline: dict[str, list[EpisodeOutcome]],
    benchmark_id: str,
    jobs: int,
) -> None:
    assert _play(pools[jobs], benchmark_id) == baseline[benchmark_id]


@ids
def test_episodes_differ(baseline: dict[str, list[EpisodeOutcome]], benchmark_id: str) -> None:
    assert len(set(_hashes(baseline[benchmark_id]))) == EPISODES


@ids
def test_order_of_episodes_changes_nothing(
    pools: dict[int, WorkerPool], baseline: dict[str, list[EpisodeOutcome]], benchmark_id: str
) -> None:
    backwards = _play(pools[2], benchmark_id, episodes=_episodes(benchmark_id)[::-1])
    assert backwards[::-1] == baseline[benchmark_id]
    alone = _play(pools[2], benchmark_id, episodes=_episodes(benchmark_id)[2:3])
    assert alone == baseline[benchmark_id][2:3]


@ids
def test_written_trajectories_change_nothing_and_are_the_same(
    pools: dict[int, WorkerPool],
    baseline: dict[str, list[EpisodeOutcome]],
    benchmark_id: str,
    tmp_path: Path,
) -> None:
    first = _play(pools[1], benchmark_id, directory=tmp_path / "first")
    second = _play(pools[4], benchmark_id, directory=tmp_path / "second")
    assert first == second == baseline[benchmark_id]
    files = _files(tmp_path / "first")
    assert set(files) >= {f"{index}/trajectory.jsonl" for index in range(EPISODES)}
    assert files == _files(tmp_path / "second")
    for outcome in first:
        path = tmp_path / "first" / str(outcome.index) / "trajectory.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["t"] for line in lines] == list(range(outcome.steps + 1))
        total = 0.0
        for line in lines[:-1]:  # not sum(): it rounds otherwise from Python 3.12 on
            total += line["reward"]
        assert total == outcome.total_reward


@ids
def test_printing_changes_nothing(
    pools: dict[int, WorkerPool], baseline: dict[str, list[EpisodeOutcome]], benchmark_id: str
) -> None:
    loud = _play(pools[2], benchmark_id, LOUD)
    assert _hashes(loud) == _hashes(baseline[benchmark_id])
    assert all(outcome.stdout for outcome in loud)
    assert [o.stdout for o in loud] == [o.stdout for o in _play(pools[1], benchmark_id, LOUD)]


_HOST = """
import json, pathlib, sys
from evopolicygym.envs import known_ids, load
from evopolicygym.evaluation import EvaluationConfig, evaluate
from evopolicygym.execution import ProcessExecution
from evopolicygym.program import Program

if __name__ == "__main__":
    found = {}
    for name in sys.argv[3:]:
        result = evaluate(
            Program.from_directory(sys.argv[1]),
            load(name),
            execution=ProcessExecution.unsafe(),
            config=EvaluationConfig(split="train", episodes=2, seed=3),
            jobs=int(sys.argv[2]),
        )
        found[name] = [
            result.environment_digest,
            result.program_digest,
            result.score,
            [e.trajectory_hash for e in result.episodes],
        ]
    print(json.dumps(found))
"""


@pytest.mark.timeout(120)
def test_hash_seed_and_environment_of_the_host_change_nothing(
    baseline: dict[str, list[EpisodeOutcome]], tmp_path: Path
) -> None:
    (tmp_path / "host.py").write_text(_HOST)
    RANDOM.write_to(tmp_path / "policy")
    hosts = []
    for seed, jobs, more in (
        ("1", "2", {"LANG": "de_DE.UTF-8", "OMP_NUM_THREADS": "7", "TZ": "Asia/Tokyo"}),
        ("4242", "1", {"OPENBLAS_NUM_THREADS": "2", "LC_ALL": "C", "PYTHONOPTIMIZE": "1"}),
    ):
        hosts.append(
            subprocess.Popen(
                [sys.executable, str(tmp_path / "host.py"), str(tmp_path / "policy"), jobs, *QUICK],
                env=os.environ | {"PYTHONHASHSEED": seed} | more,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=tmp_path,
            )
        )
    results = []
    for host in hosts:
        out, err = host.communicate(timeout=110)
        assert host.returncode == 0, err.decode()
        results.append(json.loads(out))
    assert results[0] == results[1]
    assert set(results[0]) == set(QUICK)
    for name, (environment, made, _, hashes) in results[0].items():
        assert environment == load(name).spec.environment_digest
        assert made == RANDOM.digest
        assert hashes == _hashes(baseline[name])[:2]


# ---------------------------------------------------------------- Episodes know nothing of others

_GLOBAL = """
import builtins, os, random, sys, tempfile
import numpy as np
import helper

traces = [
    hasattr(builtins, "seen"), hasattr(np, "seen"), "intruder" in sys.modules,
    helper.COUNT, os.environ.get("SEEN"), os.listdir(), os.listdir(tempfile.gettempdir()),
    os.path.exists(os.path.expanduser("~/seen")), len(sys.path), sys.getrecursionlimit(),
    random.random(), float(np.random.random()), os.nice(0), os.umask(0o077), tempfile.gettempdir()
    == os.getcwd(), len(os.listdir("/proc/self/fd")), np.geterr()["over"], sys.argv, os.getpgid(0)
    == os.getpid(), len(sys.modules),
]
builtins.seen = np.seen = sys.modules["intruder"] = True
helper.COUNT += 1
os.environ["SEEN"] = "yes"
sys.path.append("elsewhere")
sys.setrecursionlimit(5000)
np.seterr(all="raise")
os.nice(1)
for name in ("a", os.path.expanduser("~/seen")):
    open(name, "w").close()
tempfile.mkstemp()
print(traces)

class Policy:
    def act(self, observation):
        return 1

def make_policy(context):
    return Policy()
"""


def test_global_state_of_one_episode_is_invisible_to_the_next(
    pools: dict[int, WorkerPool],
) -> None:
    episode = _episodes("toy")[0][1]
    made = program(_GLOBAL, helper="COUNT = 0\n")
    outcomes = _play(pools[1], "toy", made, episodes=[(index, episode) for index in range(4)])
    assert len({outcome.stdout for outcome in outcomes}) == 1
    assert outcomes[0].stdout.startswith("[False, False, False, 0, None, [], [], False, ")


def test_policy_seeds_differ_between_episodes(pools: dict[int, WorkerPool]) -> None:
    made = program(
        "import random\nimport numpy as np\n"
        "def make_policy(context):\n"
        "    print(context.policy_seed, random.random(), np.random.random())\n"
        "    return type('P', (), {'act': lambda self, observation: 1})()\n"
    )
    texts = [outcome.stdout for outcome in _play(pools[1], "toy", made)]
    assert len({text.split()[1] for text in texts}) == EPISODES
    assert len({text.split()[2] for text in texts}) == EPISODES
    seeds = [str(episode.policy_seed) for _, episode in _episodes("toy")]
    assert [text.split()[0] for text in texts] == seeds


def test_context_tells_no_secret(pools: dict[int, WorkerPool]) -> None:
    made = program(
        "def make_policy(context):\n"
        "    print({name: getattr(context, name) for name in context.__slots__})\n"
        "    return type('P', (), {'act': lambda self, observation: 1})()\n"
    )
    outcome = _play(pools[1], "toy", made)[0]
    spec, episode = load("toy").spec, _episodes("toy")[0][1]
    assert outcome.stdout == f"{_public(spec, episode)}\n"
    assert str(episode.environment_seed) not in outcome.stdout


def _public(spec: object, episode: Episode) -> dict[str, object]:
    names = ("observation_space", "action_space", "metadata", "environment_parameters")
    shown = {name: getattr(spec, name) for name in (*names, "max_episode_steps")}
    return shown | {"policy_seed": episode.policy_seed}


def test_another_temporary_directory_changes_nothing(tmp_path: Path) -> None:
    config = EvaluationConfig(split="train", episodes=2, seed=3)
    here = evaluate(RANDOM, load("toy"), execution=execution(), config=config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path))
        patch.setattr(tempfile, "tempdir", None)
        there = evaluate(RANDOM, load("toy"), execution=execution(), config=config)
    assert here == there
