"""Level L4: let the built-in agent work on environments, and record whether it improved on them.

Each environment gets one Run of the `search` agent from its starter Program. The starter then plays
the Run's own Assessment Episodes, so that both Programs were measured on the same ones.

    python benchmarks/calibrate.py                       # Core-16 and the smoke environments
    python benchmarks/calibrate.py --env toy --budget 64

Writes a row of `src/evopolicygym/envs/calibration.toml` for each, and the selected Program with
the Run's `run.json` below `docs/envs/calibration/`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from evopolicygym.agents import Search
from evopolicygym.benchmark import Benchmark
from evopolicygym.envs import load
from evopolicygym.envs.anchors import Measurement
from evopolicygym.envs.catalog import CORE_16, benchmark_id
from evopolicygym.envs.levels import CALIBRATION_FILE, Calibration, calibration_text, calibrations
from evopolicygym.envs.starter import starter_program
from evopolicygym.evaluation import EvaluationConfig, EvaluationResult, evaluate
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import AssessmentConfig, RunConfig, ValidationConfig, run
from evopolicygym.run.layout import safe_name
from evopolicygym.run.measurement import derive_seed

ROOT = Path(__file__).resolve().parent.parent
SMOKE = ("toy", "cartpole")
TIMEOUT = 600.0


def calibrated(benchmark: Benchmark, arguments: argparse.Namespace) -> Calibration:
    """Play one Run and measure the starter on its Assessment Episodes."""
    name = benchmark.spec.id
    execution = ProcessExecution.unsafe()
    starter = starter_program(benchmark)
    with tempfile.TemporaryDirectory() as scratch:
        record = Path(scratch) / "record"
        result = run(
            starter,
            benchmark,
            agent=Search(),
            execution=execution,
            config=RunConfig(
                episode_budget=arguments.budget,
                max_submissions=arguments.budget,
                seed=arguments.seed,
                episode_timeout_seconds=TIMEOUT,
                agent_timeout_seconds=86_400.0,
                validation=ValidationConfig(arguments.validation),
                assessment=AssessmentConfig(arguments.assessment),
            ),
            record_to=record,
        )
        if result.assessment is None or result.final_program is None:
            raise SystemExit(f"{name}: nothing was measured: {result.message}")
        evidence = ROOT / "docs" / "envs" / "calibration" / safe_name(name)
        shutil.rmtree(evidence, ignore_errors=True)
        result.final_program.write_to(evidence)
        shutil.copy(record / "run.json", evidence)
    before = evaluate(
        starter,
        benchmark,
        execution=execution,
        config=EvaluationConfig(
            split="test",
            episodes=arguments.assessment,
            seed=derive_seed(arguments.seed, "assessment"),
            episode_timeout_seconds=TIMEOUT,
        ),
    )
    return Calibration(
        environment_digest=benchmark.spec.environment_digest,
        agent=Search().name,
        budget=arguments.budget,
        starter=measured(name, before),
        selected=measured(name, result.assessment),
        evidence=evidence.relative_to(ROOT).as_posix(),
    )


def measured(name: str, result: EvaluationResult) -> Measurement:
    """Return the mean of an Evaluation in which nothing failed."""
    for episode in result.episodes:
        if episode.failure or episode.environment_error:
            raise SystemExit(f"{name}: {episode.failure or episode.environment_error}")
    return Measurement.of([episode.score_return for episode in result.episodes])


def main() -> None:
    """Calibrate what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", action="append", help="Benchmark id; default: Core-16 and smoke")
    parser.add_argument("--budget", type=int, default=128, help="training Episodes")
    parser.add_argument("--validation", type=int, default=16, help="Episodes a candidate")
    parser.add_argument("--assessment", type=int, default=64, help="held-out Episodes")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.env or [*SMOKE, *map(benchmark_id, CORE_16)]:
        began = time.monotonic()
        row = calibrated(load(name), arguments)
        CALIBRATION_FILE.write_text(calibration_text({**calibrations(), name: row}), "utf-8")
        calibrations.cache_clear()
        told = {key: round(value["mean"], 3) for key, value in asdict(row).items() if key in TOLD}
        word = "improved" if row.improved else "not improved"
        print(f"{name}: {word} {told} {time.monotonic() - began:.0f} s", flush=True)


TOLD = ("starter", "selected")

if __name__ == "__main__":
    sys.exit(main())
