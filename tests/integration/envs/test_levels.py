"""The catalog's own environments: every short name and Core-16 earns its level here, each time.

One call of `check-envs` plays them all; a new row of the catalog is tested without anyone
remembering. What they do is compared with what is committed: behaviour never changes under an id.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.envs.catalog import CORE_16, benchmark_id
from evopolicygym.envs.inventory import default_ids, expected_failure
from evopolicygym.envs.levels import calibrations
from evopolicygym.program import Program

ROOT = Path(__file__).parents[3]
IDS = default_ids()
SMOKE = ("toy", "cartpole")
CLI = str(Path(sys.executable).parent / "evopolicygym")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    done = subprocess.run(
        [CLI, "check-envs", "--jobs", "2", "--timeout", "300", "--min-level", "L3", "--json"],
        cwd=tmp_path_factory.mktemp("levels"),
        env=os.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=540,
        check=False,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def rows(report: Any) -> dict[str, Any]:
    return {row["id"]: row for row in report["environments"]}


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    document = json.loads((ROOT / "docs" / "envs" / "discovered.json").read_bytes())
    return {
        row["id"]: {**row, "versions": {**family["versions"], **family["simulators"]}}
        for family in document["families"]
        for row in family["environments"]
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", IDS)
def test_it_earns_its_level(rows: dict[str, Any], name: str) -> None:
    row = rows[name]
    if expected_failure(name):
        pytest.skip(f"{name}: {row['known_failure']} (known_failures.toml)")
    assert row["level"] >= "L3", (row["reason"], row["lacks"])
    improved = name in calibrations() and calibrations()[name].improved
    assert row["level"] == ("L4" if improved else "L3"), row["lacks"]


@pytest.mark.parametrize("name", IDS)
def test_it_does_what_it_did(
    rows: dict[str, Any], committed: dict[str, Any], report: Any, name: str
) -> None:
    """Sums over 100 random steps: last bits of a float may differ between machines, no more."""
    row, before = rows[name], committed[name]
    assert row["environment_digest"] == before["environment_digest"]
    if row["trace"] is None:
        assert expected_failure(name)
        return
    now = {
        **report["installation"]["simulators"],
        **{k: v for f in report["installation"]["families"] for k, v in f["versions"].items()},
    }
    changed = {k: (v, now.get(k)) for k, v in before["versions"].items() if now.get(k, v) != v}
    if changed:
        pytest.skip(f"recorded with other versions: {changed}")
    assert row["trace"] == pytest.approx(before["trace"], rel=1e-5, abs=1e-6)


def test_core_16_and_the_smoke_environments_have_been_worked_on() -> None:
    wanted = {*SMOKE, *map(benchmark_id, CORE_16)}
    assert wanted <= calibrations().keys()


@pytest.mark.parametrize("name", sorted(calibrations()))
def test_the_evidence_of_a_calibration_is_there(name: str) -> None:
    row = calibrations()[name]
    evidence = ROOT / row.evidence
    run = json.loads((evidence / "run.json").read_bytes())
    assert run["benchmark_id"] == name
    assert run["environment_digest"] == row.environment_digest
    assert run["counts"]
    assert run["config"]["episode_budget"] == row.budget
    assert run["assessment_score"] == pytest.approx(row.selected.mean, rel=1e-6, abs=1e-6)
    files = {
        path.relative_to(evidence).as_posix(): path.read_bytes()
        for path in evidence.rglob("*")
        if path.is_file() and path.name != "run.json"
    }
    assert Program(files).files.keys() >= {"policy.py"}
