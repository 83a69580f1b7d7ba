"""Families in virtual environments of their own: a few ids of each extra run there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", ["heavy", "mario", "procgen", "flight"])
def test_a_few_ids_of_an_extra_run_in_its_environment(name: str) -> None:
    program = CHECKOUT / f".venv-{name}" / "bin" / "evopolicygym"
    if not program.exists():
        pytest.skip(f"there is no .venv-{name}: scripts/setup-env.sh --{name} makes it")
    argv = ["check-envs", "--bulk", "--extra", f"env-{name}", "--limit", "4"]
    done = subprocess.run(
        [str(program), *argv, "--timeout", "400", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.stdout, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["passed"], done.stderr.decode()
    rows = [row for row in report["environments"] if row["status"] == "ok"]
    assert rows
    assert not [row["id"] for row in rows if False in (row["deterministic"], row["conforms"])]
