"""`make bench`: what isolation, validation and evidence cost, as ratios measured in one run.

Every comparison is interleaved with the bare in-process loop of the same policy and environment,
pinned to the same core, and reported as medians. Writes JSON to the path in the first argument.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium

from evopolicygym import Program
from evopolicygym.benchmark import Benchmark
from evopolicygym.envs import load
from evopolicygym.envs.gymnasium_benchmark import GymnasiumBenchmark
from evopolicygym.evaluation import plan
from evopolicygym.execution import ProcessExecution
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.task import EvaluationSetup, Task, WorkerState

POLICIES = {
    "CartPole-v1": """
class Policy:
    def act(self, observation):
        return 1 if observation[2] + 0.3 * observation[3] + 0.02 * observation[1] > 0 else 0
def make_policy(context):
    return Policy()
""",
    "HalfCheetah-v5": """
import numpy as np
class Policy:
    def __init__(self): self.weights = np.full((6, 17), 0.05)
    def act(self, observation):
        return np.tanh(self.weights @ observation).astype(np.float32)
def make_policy(context):
    return Policy()
""",
    "CarRacing-v3": """
import numpy as np
class Policy:
    def __init__(self): self.action = np.array([0.0, 0.2, 0.0], dtype=np.float32)
    def act(self, observation):
        return self.action
def make_policy(context):
    return Policy()
""",
}
TARGETS = {"CartPole-v1": 4.0, "HalfCheetah-v5": 1.5, "CarRacing-v3": 1.1}
EXECUTION = ProcessExecution.unsafe()


def bare_loop(env_id: str, steps: int, seed: int) -> tuple[float, int]:
    """Play one Episode in this process; return seconds and steps."""
    scope: dict[str, Any] = {}
    exec(compile(POLICIES[env_id], "policy.py", "exec"), scope)
    policy = scope["make_policy"](None)
    env = gymnasium.make(env_id, max_episode_steps=steps)
    observation, _ = env.reset(seed=seed)
    count, done = 0, False
    began = time.perf_counter()
    while not done:
        observation, _, terminated, truncated, _ = env.step(policy.act(observation))
        done = terminated or truncated
        count += 1
    seconds = time.perf_counter() - began
    env.close()
    return seconds, count


class Worker:
    """A worker's own state, in this process: what the pool's workers run, without the pool."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = WorkerState(root, mmap.mmap(-1, 8))
        self.keys = itertools.count()
        self.spools = itertools.count()

    def setup(self, benchmark: Benchmark, source: str) -> EvaluationSetup:
        return EvaluationSetup(
            key=next(self.keys),
            benchmark=cloudpickle.dumps(benchmark),
            program=Program({"policy.py": source.encode()}),
            resource_limits=EXECUTION.resource_limits(),
            episode_timeout=300.0,
        )

    def play(self, setup: EvaluationSetup, benchmark: Benchmark, seed: int) -> tuple[float, int]:
        (episode,) = plan(benchmark, "test", seed=seed, count=1)
        task = Task(0, episode, self.root / "spool" / str(next(self.spools)))
        self.state.prepare(setup)
        began = time.perf_counter()
        outcome = self.state.play(setup, task)
        seconds = time.perf_counter() - began
        if outcome.fault or outcome.failure:
            raise SystemExit(f"{outcome.fault or outcome.failure}")
        return seconds, outcome.steps


def step_cost(worker: Worker, env_id: str, steps: int, rounds: int) -> dict[str, Any]:
    """Compare one step behind the policy boundary with one in the bare loop."""
    full = GymnasiumBenchmark(f"bench/{env_id}", env_id, max_episode_steps=steps)
    single = GymnasiumBenchmark(f"bench/{env_id}/1", env_id, max_episode_steps=1)
    set_full = worker.setup(full, POLICIES[env_id])
    set_single = worker.setup(single, POLICIES[env_id])
    bare_loop(env_id, steps, 0)
    worker.play(set_full, full, 0)
    bare, ours = [], []
    for number in range(rounds):
        seconds, count = bare_loop(env_id, steps, number)
        bare.append(seconds / count)
        once, _ = worker.play(set_single, single, number)
        seconds, count = worker.play(set_full, full, number)
        ours.append((seconds - once) / max(1, count - 1))
    base, cost = statistics.median(bare) * 1e6, statistics.median(ours) * 1e6
    return {
        "bare_us_per_step": base,
        "us_per_step": cost,
        "added_us_per_step": cost - base,
        "ratio": cost / base,
        "target_ratio": TARGETS[env_id],
        "met": cost / base <= TARGETS[env_id] and (env_id != "CartPole-v1" or cost - base <= 60.0),
    }


def fresh_process(worker: Worker, rounds: int) -> dict[str, Any]:
    """Time a policy process from writing its Program to reaping, with one that imports numpy."""
    setup = worker.setup(load("toy"), POLICIES["HalfCheetah-v5"])
    worker.state.prepare(setup)
    program = worker.root / "bench-program"
    context = {
        "observation_space": {"type": "Discrete", "n": 2},
        "action_space": {"type": "Discrete", "n": 2},
        "metadata": {},
        "environment_parameters": {},
        "max_episode_steps": 1,
        "policy_seed": 1,
    }
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        setup.program.write_to(program)
        process = worker.state._zygote.spawn(program, setup.resource_limits, 0)
        process.start(context, 30.0)
        process.finish()
        shutil.rmtree(program)
        times.append((time.perf_counter() - began) * 1e3)
    return {
        "median_ms": statistics.median(times),
        "p95_ms": statistics.quantiles(times, n=20)[-1],
        "target_ms": 12.0,
    }


def scaling(directory: Path, rounds: int) -> dict[str, Any]:
    """Compare one worker with two on 64 CartPole Episodes, interleaved, pools warm."""
    benchmark = load("gym/cartpole")
    program = Program({"policy.py": POLICIES["CartPole-v1"].encode()})
    tasks = [Task(i, e, None) for i, e in enumerate(plan(benchmark, "test", seed=0, count=64))]
    times: dict[int, list[float]] = {1: [], 2: []}
    pools = {
        jobs: WorkerPool(EXECUTION, jobs=jobs, directory=directory / f"p{jobs}") for jobs in times
    }
    for number in range(rounds + 1):
        for jobs, pool in pools.items():
            began = time.perf_counter()
            pool.play(program, benchmark, tasks, timeout=30.0)
            if number:
                times[jobs].append(time.perf_counter() - began)
    for pool in pools.values():
        pool.close()
    one, two = (statistics.median(times[jobs]) for jobs in (1, 2))
    return {"one_worker_s": one, "two_workers_s": two, "ratio": one / two, "target_ratio": 1.7}


def memory(directory: Path, episodes: int) -> dict[str, Any]:
    """Watch the memory of the Host and its worker over one long evaluation."""
    benchmark = GymnasiumBenchmark("bench/CartPole", "CartPole-v1", max_episode_steps=50)
    program = Program({"policy.py": POLICIES["CartPole-v1"].encode()})
    plan_ = plan(benchmark, "test", seed=0, count=episodes)
    sizes: list[int] = []
    with WorkerPool(EXECUTION, jobs=1, directory=directory / "m") as pool:
        tasks = [Task(i, e, directory / "t" / str(i)) for i, e in enumerate(plan_)]
        pool.play(program, benchmark, tasks, timeout=30.0, on_outcome=lambda _: sizes.append(rss()))
    return {
        "rss_mib_at_10": sizes[9] / 2**20,
        "rss_mib_at_end": sizes[-1] / 2**20,
        "growth_mib": (sizes[-1] - sizes[9]) / 2**20,
        "episodes": episodes,
        "target_mib": 50.0,
    }


def rss() -> int:
    """Return the resident memory of this process and all its descendants, bytes."""
    total, pending = 0, [os.getpid()]
    while pending:
        pid = pending.pop()
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf(
                "SC_PAGE_SIZE"
            )
            for thread in Path(f"/proc/{pid}/task").iterdir():
                pending += map(int, (thread / "children").read_text().split())
        except OSError:
            continue
    return total


def commands(rounds: int) -> dict[str, Any]:
    """Time what people and agents wait for: imports, help and the session's command line."""
    tools = Path(sys.executable).parent
    script = (
        "import subprocess, sys, time\n"
        "times = []\n"
        f"for _ in range({rounds}):\n"
        "    began = time.perf_counter()\n"
        "    subprocess.run(['evopolicygym-session', 'status'], check=True, capture_output=True)\n"
        "    times.append(time.perf_counter() - began)\n"
        "print(sorted(times)[len(times) // 2] * 1e3)\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        agent = Path(directory) / "agent.py"
        agent.write_text(script)
        root = Path(directory) / "run"
        subprocess.run(
            [
                tools / "evopolicygym",
                "run",
                "--env",
                "toy",
                "--budget",
                "4",
                "--root",
                root,
                "--agent",
                "command",
                "--",
                sys.executable,
                agent,
            ],
            check=False,
            capture_output=True,
        )
        status = float((root / "agent" / "process-001" / "stdout.txt").read_text())

    def median_ms(*argv: object) -> float:
        times = []
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run(list(map(str, argv)), check=True, capture_output=True)
            times.append((time.perf_counter() - began) * 1e3)
        return statistics.median(times)

    bare = median_ms(sys.executable, "-c", "pass")
    return {
        "session_status_ms": status,
        "session_status_target_ms": 150.0,
        "help_ms": median_ms(tools / "evopolicygym", "--help"),
        "help_target_ms": 400.0,
        "bare_python_ms": bare,
        "import_added_ms": median_ms(sys.executable, "-c", "import evopolicygym") - bare,
        "import_target_ms": 60.0,
    }


def installed(env_id: str) -> bool:
    try:
        gymnasium.make(env_id).close()
    except gymnasium.error.Error:
        return False
    return True


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "bench.json")
    quick = "--quick" in sys.argv
    results: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)

        def measure(key: str, call: Callable[[], dict[str, Any]]) -> None:
            results[key] = call()
            print(key, json.dumps(results[key]), flush=True)

        measure("commands", lambda: commands(5 if quick else 15))
        measure("scaling", lambda: scaling(directory, 2 if quick else 7))
        measure("memory", lambda: memory(directory, 100 if quick else 1000))
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(allowed)})
        os.environ["OMP_NUM_THREADS"] = "1"
        worker = Worker(directory / "worker")
        measure("fresh_process", lambda: fresh_process(worker, 30 if quick else 200))
        for env_id, steps, rounds in (
            ("CartPole-v1", 500, 25),
            ("HalfCheetah-v5", 1000, 9),
            ("CarRacing-v3", 200, 5),
        ):
            if installed(env_id):
                measure(
                    env_id,
                    lambda e=env_id, s=steps, r=rounds: step_cost(  # type: ignore[misc]
                        worker, e, s if not quick else min(s, 100), r if not quick else 3
                    ),
                )
            else:
                results[env_id] = {"skipped": "install the env-gym extra to measure it"}
        worker.state.close()
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
