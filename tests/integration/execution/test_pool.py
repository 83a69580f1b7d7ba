"""The worker pool: what an Environment or the Host breaks never is the policy's fault."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from evopolicygym.benchmark import (
    BenchmarkSpec,
    Episode,
    EpisodeRecord,
    FailureCode,
    Feedback,
    mean_return_feedback,
)
from evopolicygym.envs import load
from evopolicygym.errors import BenchmarkError, ExecutionError
from evopolicygym.evaluation import EvaluationConfig, Evaluator, evaluate
from evopolicygym.execution import pool as pool_module
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.task import Task

from .arena import execution, in_act, processes, program, wait_until

# The workers can't import this module, so its classes go to them by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

STEPS = 4
PLAIN = program(in_act("pass"))
HANGING = program(in_act("time.sleep(1000)"))


class Walk:
    """Four steps with reward 1; `scenario["do"]` is what goes wrong in `scenario["in"]`."""

    def __init__(self, scenario: Mapping[str, Any], marker: str) -> None:
        self._scenario = scenario
        self._marker = marker
        self._t = 0
        self._maybe("make")

    def _maybe(self, where: str, value: Any = None) -> Any:
        if self._scenario.get("in") != where:
            return value
        deed = self._scenario["do"]
        if self._scenario.get("once"):
            try:
                os.close(os.open(self._marker + where, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return value
        if deed == "raise":
            raise ValueError(f"trouble in {where}")
        if deed == "exit":
            os._exit(11)
        if deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "leave":
            raise SystemExit(12)
        if deed == "sleep":
            time.sleep(self._scenario["seconds"])
            return value
        return self._scenario["value"]

    def reset(self) -> tuple[Any, Mapping[str, Any]]:
        return self._maybe("reset", [0.0, 0.0]), {}

    def step(self, action: int) -> tuple[Any, Any, bool, bool, Mapping[str, Any]]:
        self._t += 1
        observation = [float(self._t), float(action)]
        if self._t == 2:
            self._maybe("step")
            observation = self._maybe("observation", observation)
            return observation, self._maybe("reward", 1.0), False, False, {}
        return observation, 1.0, False, False, {}

    def close(self) -> None:
        self._maybe("close")


@dataclass(frozen=True)
class WalkBenchmark:
    """Benchmark whose Episodes go wrong as their scenario says."""

    marker: str = ""
    extra: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> BenchmarkSpec:
        return BenchmarkSpec(
            id="walk",
            description="Walk.",
            observation_space={
                "type": "Box",
                "dtype": "float32",
                "shape": [2],
                "low": -math.inf,
                "high": math.inf,
            },
            action_space={"type": "Discrete", "n": 3},
            max_episode_steps=STEPS,
            failure_return=-10.0,
            metadata=self.metadata,
        )

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        return [Episode(i, i) for i in range(count)]

    def make_environment(self, episode: Episode) -> Walk:
        return Walk(episode.scenario, self.marker)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        return mean_return_feedback(records)


def _tasks(*scenarios: Mapping[str, Any]) -> list[Task]:
    return [Task(i, Episode(i, i, scenario), None) for i, scenario in enumerate(scenarios)]


def _assert_plain(outcome: EpisodeOutcome, *, attempts: int = 1) -> None:
    assert (outcome.fault, outcome.failure) == (None, None)
    assert (outcome.steps, outcome.total_reward, outcome.score_return) == (STEPS, 4.0, 4.0)
    assert outcome.attempts == attempts


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    directory = tmp_path_factory.mktemp("pool")
    with WorkerPool(execution(), jobs=2, directory=directory) as pool:
        yield pool
    assert wait_until(lambda: processes(directory) == [], 10.0)


# ---------------------------------------------------------------- faults and retries


@pytest.mark.parametrize("deed", ["exit", "kill", "leave", "raise"])
@pytest.mark.parametrize("where", ["make", "reset", "step", "close"])
def test_fault_is_retried_once_in_a_fresh_worker(
    pool: WorkerPool, tmp_path: Path, where: str, deed: str
) -> None:
    benchmark = WalkBenchmark(str(tmp_path / "marker-"))
    tasks = _tasks({}, {"in": where, "do": deed, "once": True}, {})
    first, second, third = pool.play(PLAIN, benchmark, tasks, timeout=10.0)
    assert (tmp_path / f"marker-{where}").exists()
    _assert_plain(second, attempts=2)
    for other in (first, third):
        _assert_plain(other)
    plain = pool.play(PLAIN, benchmark, _tasks({}, {}), timeout=10.0)[1]
    assert second.trajectory_hash == plain.trajectory_hash


_NAN = math.nan
LASTING = [
    ("make", "raise", None, "make_environment raised ValueError: trouble in make"),
    ("reset", "raise", None, "reset raised ValueError: trouble in reset"),
    ("step", "raise", None, "step 1 raised ValueError: trouble in step"),
    ("close", "raise", None, "close raised ValueError: trouble in close"),
    ("step", "exit", None, "the worker process died (exit status 11)"),
    ("step", "kill", None, "the worker process died (exit status -9)"),
    ("reset", "leave", None, "the worker process died (exit status 12)"),
    ("reward", "value", _NAN, "step 1 returned the reward nan"),
    ("reward", "value", math.inf, "step 1 returned the reward inf"),
    ("reward", "value", None, "step 1 raised TypeError"),
    ("observation", "value", [_NAN, 0.0], "observation after 2 steps: NaN"),
    ("observation", "value", [0.0], "observation after 2 steps: expected Box(2,) float32"),
    ("observation", "value", [[0.0, 0.0]], "observation after 2 steps: expected Box(2,) float32"),
    ("observation", "value", "text", "observation after 2 steps: "),
    ("observation", "value", None, "observation after 2 steps: "),
    ("observation", "value", [{}, {}], "observation after 2 steps: "),
    ("reset", "value", [_NAN, 0.0], "observation after 0 steps: NaN"),
    ("reset", "value", [0.0] * 3, "observation after 0 steps: expected Box(2,) float32"),
]


@pytest.mark.parametrize(("where", "deed", "value", "text"), LASTING)
def test_lasting_fault_is_reported_and_harms_no_other_episode(
    pool: WorkerPool, where: str, deed: str, value: Any, text: str
) -> None:
    tasks = _tasks({}, {"in": where, "do": deed, "value": value}, {}, {})
    bad = tasks[1].index
    outcomes = pool.play(PLAIN, WalkBenchmark(), tasks, timeout=10.0)
    assert [outcome.index for outcome in outcomes] == [0, 1, 2, 3]
    for outcome in outcomes:
        if outcome.index != bad:
            _assert_plain(outcome)
    fault = outcomes[bad]
    assert fault.fault is not None
    assert text in fault.fault
    assert (fault.failure, fault.attempts, fault.steps) == (None, 2, 0)


def test_fault_is_no_part_of_the_score(pool: WorkerPool) -> None:
    evaluator = Evaluator(WalkBenchmark(), pool, episode_timeout=10.0)
    episodes = [
        (task.index, task.episode) for task in _tasks({}, {"in": "step", "do": "raise"}, {})
    ]
    seen: list[int] = []
    result = evaluator.evaluate(PLAIN, episodes, on_outcome=lambda o: seen.append(o.index))
    assert sorted(seen) == [0, 1, 2]
    assert result.score == 4.0
    assert result.feedback.content["episodes"] == 2
    assert result.episodes[1].environment_error is not None
    assert result.episodes[1].score_return is None
    assert result.episodes[1].failure is None


def test_fault_comes_before_a_failure_of_the_policy(pool: WorkerPool) -> None:
    # The policy fails in its first act, the environment only when it is closed.
    tasks = _tasks({"in": "close", "do": "raise"}, {})
    bad, failed = pool.play(program(in_act("1 / 0")), WalkBenchmark(), tasks, timeout=10.0)
    assert bad.failure is None
    assert bad.fault is not None
    assert failed.failure is not None
    assert failed.failure.code == FailureCode.EXCEPTION
    assert failed.score_return == -10.0


def test_every_episode_at_fault_stops_an_evaluation() -> None:
    class Broken(WalkBenchmark):
        def make_environment(self, episode: Episode) -> Walk:
            raise RuntimeError("no simulator here")

    with pytest.raises(ExecutionError, match=r"every Episode met a Host fault; .*no simulator"):
        evaluate(
            PLAIN, Broken(), execution=execution(), config=EvaluationConfig(episodes=2), jobs=1
        )


def test_slow_environment_costs_the_policy_no_time(pool: WorkerPool) -> None:
    tasks = _tasks(*({"in": where, "do": "sleep", "seconds": 1.2} for where in ("step", "reset")))
    for outcome in pool.play(PLAIN, WalkBenchmark(), tasks, timeout=1.0):
        _assert_plain(outcome)


def test_benchmark_that_prints_and_warns_disturbs_nothing(pool: WorkerPool) -> None:
    class Loud(WalkBenchmark):
        def make_environment(self, episode: Episode) -> Walk:
            print("x" * 10**6)
            sys.stderr.write("y" * 10**6)
            os.write(1, b"z" * 10**6)
            return super().make_environment(episode)

    for outcome in pool.play(PLAIN, Loud(), _tasks({}, {}), timeout=10.0):
        _assert_plain(outcome)
        assert (outcome.stdout, outcome.stderr) == ("", "")


def test_trajectory_that_cannot_be_written_is_a_fault(pool: WorkerPool, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tasks = [
        Task(0, Episode(0, 0), tmp_path / "file" / "below"),
        Task(1, Episode(1, 1), tmp_path / "fine"),
    ]
    bad, good = pool.play(PLAIN, WalkBenchmark(), tasks, timeout=10.0)
    assert bad.fault is not None
    assert "NotADirectoryError" in bad.fault
    assert bad.failure is None
    _assert_plain(good)
    assert (tmp_path / "fine" / "trajectory.jsonl").read_bytes().count(b"\n") == STEPS + 1


def test_retry_starts_the_trajectory_anew(pool: WorkerPool, tmp_path: Path) -> None:
    benchmark = WalkBenchmark(str(tmp_path / "marker-"))
    scenario = {"in": "step", "do": "kill", "once": True}
    tasks = [
        Task(0, Episode(0, 0, scenario), tmp_path / "a"),
        Task(1, Episode(0, 0), tmp_path / "b"),
    ]
    retried, plain = pool.play(PLAIN, benchmark, tasks, timeout=10.0)
    assert (retried.attempts, plain.attempts) == (2, 1)
    texts = [(tmp_path / name / "trajectory.jsonl").read_bytes() for name in "ab"]
    assert texts[0] == texts[1]


# ---------------------------------------------------------------- what can't be sent


def test_unpicklable_benchmark_is_refused(pool: WorkerPool) -> None:
    with pytest.raises(BenchmarkError, match="can't be pickled for the workers"):
        pool.play(PLAIN, WalkBenchmark(extra=threading.Lock()), _tasks({}), timeout=10.0)
    _assert_plain(pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)[0])


class _OnlyHere:
    """Can be pickled, but not loaded by another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_in, (os.getpid(),)


def _load_in(pid: int) -> None:
    if pid != os.getpid():
        raise RuntimeError("not at home")


def test_benchmark_that_cannot_be_loaded_is_a_fault(pool: WorkerPool) -> None:
    outcome = pool.play(PLAIN, WalkBenchmark(extra=_OnlyHere()), _tasks({}), timeout=10.0)[0]
    assert outcome.fault == "loading the Benchmark: RuntimeError: not at home"
    _assert_plain(pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)[0])


def _in_thread(call: Any, seconds: float) -> list[Any]:
    """Return what `call` returned or raised within `seconds`, or an empty list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout=seconds)
    return results


@pytest.mark.timeout(40)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_scenario_that_cannot_be_sent_does_not_hang_the_host(directory: Path) -> None:
    with WorkerPool(execution(), jobs=1, directory=directory) as pool:
        tasks = _tasks({"value": threading.Lock()}, {})
        results = _in_thread(
            lambda: pool.play(PLAIN, WalkBenchmark(), tasks, timeout=5.0), seconds=6.0
        )
        assert results
        assert isinstance(results[0], BenchmarkError)
        _assert_plain(pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)[0])


@pytest.mark.timeout(40)
def test_context_that_cannot_be_sent_is_a_fault(pool: WorkerPool) -> None:
    benchmark = WalkBenchmark(metadata={"huge": 10**30})
    outcome = pool.play(PLAIN, benchmark, _tasks({}), timeout=10.0)[0]
    assert outcome.failure is None
    assert outcome.fault is not None


@pytest.mark.timeout(40)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_workers_that_cannot_be_started_do_not_hang_the_host(directory: Path) -> None:
    (directory / "file").touch()
    with WorkerPool(execution(), jobs=1, directory=directory / "file") as pool:
        results = _in_thread(
            lambda: pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=5.0), seconds=6.0
        )
        assert results
        assert isinstance(results[0], ExecutionError)


# ---------------------------------------------------------------- order and reuse


def test_no_tasks_no_workers(directory: Path) -> None:
    with WorkerPool(execution(), jobs=2, directory=directory) as pool:
        assert pool.play(PLAIN, WalkBenchmark(), [], timeout=1.0) == []
        assert processes(directory) == []
        assert len(pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)) == 1
        assert len(list(directory.glob("worker-*"))) == 1


def test_two_evaluations_at_once_share_the_workers(pool: WorkerPool) -> None:
    other = program(in_act("pass", action="2"))
    plays = [
        (made, [Task(i, Episode(i, i), None) for i in range(8)]) for made in (PLAIN, other) * 2
    ]
    results: dict[int, list[EpisodeOutcome]] = {}
    threads = [
        threading.Thread(
            target=lambda n=n, made=made, tasks=tasks: results.update(
                {n: pool.play(made, WalkBenchmark(), tasks, timeout=10.0)}
            )
        )
        for n, (made, tasks) in enumerate(plays)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60.0)
    hashes = {n: [o.trajectory_hash for o in outcomes] for n, outcomes in results.items()}
    assert hashes[0] == hashes[2]
    assert hashes[1] == hashes[3]
    assert not set(hashes[0]) & set(hashes[1])


def test_observer_that_raises_leaves_the_pool_usable(pool: WorkerPool) -> None:
    def observe(outcome: EpisodeOutcome) -> None:
        raise KeyError("observer")

    with pytest.raises(KeyError, match="observer"):
        pool.play(PLAIN, WalkBenchmark(), _tasks(*[{}] * 6), timeout=10.0, on_outcome=observe)
    for outcome in pool.play(PLAIN, WalkBenchmark(), _tasks({}, {}), timeout=10.0):
        _assert_plain(outcome)


def test_worker_killed_from_outside_is_replaced(directory: Path) -> None:
    with WorkerPool(execution(), jobs=1, directory=directory) as pool:
        pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)
        workers = [p.pid for p in processes(directory) if "execution.worker" in p.command]
        assert len(workers) == 1
        os.kill(workers[0], signal.SIGKILL)
        outcome = pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)[0]
        _assert_plain(outcome, attempts=2)


# ---------------------------------------------------------------- stalls and ends


@pytest.mark.timeout(60)
def test_stalled_environment_is_a_fault(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerPool(execution(), jobs=2, directory=directory) as pool:
        pool.play(PLAIN, WalkBenchmark(), _tasks({}, {}), timeout=10.0)
        monkeypatch.setattr(pool_module, "_STALL_SECONDS", 1.0)
        stall = {"in": "step", "do": "sleep", "seconds": 1000}
        began = time.monotonic()
        bad, good = pool.play(PLAIN, WalkBenchmark(), _tasks(stall, {}), timeout=1.0)
        seconds = time.monotonic() - began
        assert bad.fault is not None
        assert "stood still" in bad.fault
        assert (bad.failure, bad.attempts) == (None, 2)
        assert 4.0 <= seconds < 12.0
        _assert_plain(good)
        monkeypatch.undo()
        _assert_plain(pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)[0])


def _start_and_close(pool: WorkerPool, made: Any, directory: Path, tasks: list[Task]) -> list[Any]:
    """Close the pool while it plays; return what `play` gave."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(pool.play(made, WalkBenchmark(), tasks, timeout=600.0))
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    # Four processes: two workers, each with its zygote; then the policies.
    assert wait_until(lambda: len(processes(directory)) >= 6, 30.0)
    time.sleep(0.3)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 10.0
    thread.join(timeout=5.0)
    assert not thread.is_alive()
    assert wait_until(lambda: processes(directory) == [], 10.0)
    return results


_DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        time.sleep(600)
    os._exit(0)
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("children", ["", _DAEMON], ids=["alone", "with-daemon"])
def test_closing_ends_policies_that_never_answer(directory: Path, children: str) -> None:
    pool = WorkerPool(execution(), jobs=2, directory=directory)
    made = program(in_act(f"{children}\nwhile True: pass"))
    results = _start_and_close(pool, made, directory, _tasks(*[{}] * 5))
    assert isinstance(results[0], ExecutionError)
    assert "closed while Episodes were playing" in str(results[0])


@pytest.mark.timeout(60)
def test_closing_ends_environments_that_never_answer(directory: Path) -> None:
    pool = WorkerPool(execution(), jobs=2, directory=directory)
    stall = {"in": "step", "do": "sleep", "seconds": 1000}
    results = _start_and_close(pool, PLAIN, directory, _tasks(*[stall] * 3))
    assert isinstance(results[0], ExecutionError)


@pytest.mark.timeout(60)
def test_closing_twice_and_closing_an_unused_pool(directory: Path) -> None:
    pool = WorkerPool(execution(), jobs=2, directory=directory)
    pool.close()
    pool = WorkerPool(execution(), jobs=2, directory=directory)
    _assert_plain(pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)[0])
    began = time.monotonic()
    pool.close()
    pool.close()
    assert time.monotonic() - began < 5.0
    assert processes(directory) == []


@pytest.mark.timeout(60)
def test_a_closed_pool_refuses_to_play(directory: Path) -> None:
    pool = WorkerPool(execution(), jobs=1, directory=directory)
    pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=10.0)
    pool.close()
    results = _in_thread(
        lambda: pool.play(PLAIN, WalkBenchmark(), _tasks({}), timeout=5.0), seconds=6.0
    )
    assert results
    assert isinstance(results[0], ExecutionError)


_HOST = """
import sys
from evopolicygym.envs import load
from evopolicygym.evaluation import EvaluationConfig, evaluate
from evopolicygym.execution import ProcessExecution
from evopolicygym.program import Program

if __name__ == "__main__":
    evaluate(
        Program.from_directory(sys.argv[1]),
        load("toy"),
        execution=ProcessExecution.unsafe(),
        config=EvaluationConfig(episodes=4, episode_timeout_seconds=600.0),
        jobs=2,
    )
"""


def _start_host(directory: Path) -> subprocess.Popen[bytes]:
    """Start a Host whose policies hang, each with a daemon of its own."""
    made = program(in_act(f"{_DAEMON}\nopen('playing', 'w').close()\nwhile True: pass"))
    made.write_to(directory / "policy")
    (directory / "host.py").write_text(textwrap.dedent(_HOST))
    host = subprocess.Popen(
        [sys.executable, str(directory / "host.py"), str(directory / "policy")],
        env=os.environ | {"XDG_RUNTIME_DIR": str(directory)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    playing = "epg-*/worker-*/scratch/*/*/playing"
    assert wait_until(lambda: len(list(directory.glob(playing))) == 2, 30.0)
    # The Host, two workers, two zygotes, two policies, two daemons.
    assert wait_until(lambda: len(processes(directory)) == 9, 5.0)
    return host


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_host(directory: Path, number: signal.Signals) -> None:
    host = _start_host(directory)
    host.send_signal(number)
    host.communicate(timeout=15)
    assert wait_until(lambda: processes(directory) == [], 10.0), processes(directory)


def test_what_a_killed_host_left_is_removed_by_the_next(directory: Path) -> None:
    host = _start_host(directory)
    host.kill()
    host.communicate(timeout=15)
    assert wait_until(lambda: processes(directory) == [], 10.0)
    assert len(list(directory.glob("epg-*"))) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(directory))
        evaluate(PLAIN, load("toy"), execution=execution(), jobs=1)
    assert list(directory.glob("epg-*")) == []
