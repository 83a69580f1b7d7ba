"""Level L4: whether an agent improved on the starter Program, from the records of its Runs.

The starter plays the Assessment Episodes of each Run, so that both Programs were measured on the
same ones. The Runs of the built-in agent on Core-16 and the smoke environments are made by

    evopolicygym suite --config config/small-core16-search-suite.toml
    evopolicygym suite --config config/smoke-128-search-suite.toml
    python benchmarks/calibrate.py runs/small-core16-search runs/smoke-128-search

Writes a row of `src/evopolicygym/envs/calibration.toml` for each, and the selected Program with
the Run's `run.json` below `docs/envs/calibration/`.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evopolicygym.analysis.records import Record, read_records
from evopolicygym.envs import load
from evopolicygym.envs.anchors import Measurement
from evopolicygym.envs.levels import CALIBRATION_FILE, Calibration, calibration_text, calibrations
from evopolicygym.envs.starter import starter_program
from evopolicygym.evaluation import EvaluationConfig, evaluate
from evopolicygym.execution import ProcessExecution
from evopolicygym.program import Program
from evopolicygym.run.files import read_json
from evopolicygym.run.layout import safe_name
from evopolicygym.run.measurement import derive_seed

ROOT = Path(__file__).resolve().parent.parent


def calibrated(record: Record) -> Calibration:
    """Measure the starter on a Run's Assessment Episodes, and keep the Run's evidence."""
    run, config = record.run, record.config
    name, selected = run.benchmark_id, run.selected
    if not run.counts or selected is None or run.agent is None or config.assessment is None:
        raise SystemExit(f"{record.path}: nothing was measured")
    benchmark = load(name)
    if benchmark.spec.environment_digest != run.environment_digest or run.data is not None:
        raise SystemExit(f"{record.path}: {name} is another environment now, or had data splits")
    played = read_json(record.path / "assessment" / selected / "episodes.json")["episodes"]
    before = evaluate(
        starter_program(benchmark),
        benchmark,
        execution=ProcessExecution.unsafe(),
        config=EvaluationConfig(
            split=str(config.assessment["split"]),
            episodes=len(played),
            seed=derive_seed(config.seed, "assessment"),
            episode_timeout_seconds=600.0,
        ),
    )
    for episode in before.episodes:
        if episode.failure or episode.environment_error:
            raise SystemExit(f"{name}: {episode.failure or episode.environment_error}")
    evidence = ROOT / "docs" / "envs" / "calibration" / safe_name(name)
    shutil.rmtree(evidence, ignore_errors=True)
    Program.from_directory(record.path / "submissions" / selected / "program").write_to(evidence)
    shutil.copy(record.path / "run.json", evidence)
    return Calibration(
        environment_digest=run.environment_digest,
        agent=run.agent.name,
        budget=int(str(run.config["episode_budget"])),
        starter=Measurement.of([episode.score_return for episode in before.episodes]),
        selected=Measurement.of(_returns(played)),
        evidence=evidence.relative_to(ROOT).as_posix(),
    )


def _returns(episodes: Sequence[Mapping[str, Any]]) -> list[float]:
    return [float(one["score_return"]) for one in episodes if not one["environment_error"]]


def main() -> None:
    """Calibrate what the records are about."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directories", nargs="+", type=Path, help="directories with records")
    records, _ = read_records(parser.parse_args().directories)
    for record in records:
        name = record.run.benchmark_id
        row = calibrated(record)
        CALIBRATION_FILE.write_text(calibration_text({**calibrations(), name: row}), "utf-8")
        calibrations.cache_clear()
        word = "improved" if row.improved else "not improved"
        print(f"{name}: {word}, {row.starter.mean:g} to {row.selected.mean:g}", flush=True)


if __name__ == "__main__":
    main()
