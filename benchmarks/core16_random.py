"""Core-16 against the paper: does the uniform random policy score here what it scored there?

Plays it on held-out Episodes of each of the 16 environments and compares the mean with the random
row of arXiv 2607.02440 (32 Episodes). Both means err: they agree iff their difference is within
the 99 % interval of a 32-Episode mean around ours, 2.576 * sqrt(sd^2 / 32 + sd^2 / n). With all 16
right, at least one falls outside in 1 - 0.99^16 = 15 % of such comparisons.

    python benchmarks/core16_random.py result.json
    python benchmarks/core16_random.py result.json --episodes-of CarRacing-v3=64

Prints a table, writes the figures to a file, ends with 1 on a disagreement.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evopolicygym.envs import load
from evopolicygym.envs.anchors import Measurement, core16, versions
from evopolicygym.envs.baselines import random_program
from evopolicygym.envs.catalog import CORE_16
from evopolicygym.evaluation import EvaluationConfig, evaluate
from evopolicygym.execution import ProcessExecution

WANTED = 256
Z_99 = 2.576


def compared(env_id: str, *, episodes: int, seed: int, jobs: int) -> dict[str, Any]:
    """Play one environment and compare its mean with the paper's."""
    benchmark = load(f"gymnasium/{env_id}")
    began = time.perf_counter()
    result = evaluate(
        random_program(benchmark.spec),
        benchmark,
        execution=ProcessExecution.unsafe(),
        config=EvaluationConfig(
            split="test", episodes=episodes, seed=seed, episode_timeout_seconds=600.0
        ),
        jobs=jobs,
    )
    for episode in result.episodes:
        if episode.failure or episode.environment_error:
            raise SystemExit(f"{env_id}: {episode.failure or episode.environment_error}")
    returns = [episode.total_reward for episode in result.episodes]
    ours = Measurement.of(returns)
    rows, paper_episodes = core16()
    difference = ours.mean - rows[env_id].random
    tolerance = Z_99 * math.hypot(
        ours.standard_deviation / math.sqrt(paper_episodes), ours.standard_error
    )
    lengths = [episode.steps for episode in result.episodes]
    return {
        "env_id": env_id,
        **asdict(ours),
        "standard_deviation": ours.standard_deviation,
        "paper": rows[env_id].random,
        "difference": difference,
        "tolerance": tolerance,
        "agrees": abs(difference) <= tolerance,
        "least": min(returns),
        "most": max(returns),
        "mean_steps": sum(lengths) / len(lengths),
        "max_episode_steps": benchmark.spec.max_episode_steps,
        "versions": versions(benchmark.spec),
        "seconds": round(time.perf_counter() - began, 1),
    }


def line(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    few = f" ({row['episodes']} Episodes, not {WANTED})" if row["episodes"] < WANTED else ""
    return (
        f"| {row['env_id']} | {row['mean']:.3f} | {row['standard_deviation']:.3f} "
        f"| {row['episodes']} | {row['paper']:.3f} | {row['difference']:+.3f} "
        f"| {row['tolerance']:.3f} | {'agrees' if row['agrees'] else '**disagrees**'}{few} "
        f"| {row['seconds']:.0f} |"
    )


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description="Core-16: the random policy against the paper's.")
    parser.add_argument("output", type=Path, help="file for the figures, JSON")
    parser.add_argument("--episodes", type=int, default=WANTED, help="Episodes an environment")
    parser.add_argument(
        "--episodes-of", action="append", default=[], metavar="ID=N", help="another number for one"
    )
    parser.add_argument("--env", action="append", choices=CORE_16, help="only these")
    parser.add_argument("--seed", type=int, default=0, help="seed of the plan")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    options = parser.parse_args()
    counts = dict.fromkeys(options.env or CORE_16, options.episodes)
    for pair in options.episodes_of:
        env_id, _, count = pair.partition("=")
        if env_id not in counts or not count.isdecimal():
            parser.error(f"--episodes-of {pair}: expected one of the environments, =, a number")
        counts[env_id] = int(count)
    if min(counts.values()) < 2:
        parser.error("a standard deviation needs 2 Episodes")
    print("| Environment | ours | sd | n | paper | difference | within | verdict | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    for env_id, count in counts.items():
        rows.append(compared(env_id, episodes=count, seed=options.seed, jobs=options.jobs))
        print(line(rows[-1]), flush=True)
        document = {"split": "test", "seed": options.seed, "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["agrees"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
