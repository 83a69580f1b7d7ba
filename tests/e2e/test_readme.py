"""The README does what it says: its SDK example runs as it is written, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from evopolicygym.run.files import read_json

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_sdk_example_runs_as_written(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert "finished ['submission-000001'" in done.stdout
    document = read_json(tmp_path / "runs" / "cartpole-001" / "run.json")
    assert document["benchmark_id"] == "cartpole"
    assert document["status"] == "done"
    before = float(re.search(r"baseline: ([\d.]+)", done.stdout)[1])  # type: ignore[index]
    assert document["assessment_score"] > before


def test_it_opens_with_the_two_commands() -> None:
    assert re.match(r"# EvoPolicyGym\n\n```\nmake demo\nmake test\n```\n", README)


def test_the_demo_reaches_what_it_promises(tmp_path: Path) -> None:
    """The command of `make demo`, as the Makefile has it."""
    (line,) = re.findall(r"\$\(RUN\)/evopolicygym (run .*)", (ROOT / "Makefile").read_text())
    arguments = line.replace("runs/demo", str(tmp_path / "demo")).split()
    assert arguments[:5] == ["run", "--env", "gym/cartpole", "--budget", "64"]
    tool = Path(sys.executable).parent / "evopolicygym"
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert "Assessment" in done.stdout
    assert f"Record: {tmp_path / 'demo'}" in done.stdout.replace("\n", "")
    document = read_json(tmp_path / "demo" / "run.json")
    assert document["terminal_reason"] == "finished"
    assert document["validation_score"] is not None
    assert document["assessment_score"] >= 400


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"^evopolicygym ((?:data )?[a-z-]+)", README, re.MULTILINE)))
)
def test_commands_of_the_readme_exist(command: str) -> None:
    tool = Path(sys.executable).parent / "evopolicygym"
    done = subprocess.run(
        [tool, *command.split(), "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "--json" in done.stdout


def test_the_example_agent_of_the_readme_works(tmp_path: Path) -> None:
    (line,) = re.findall(r"^evopolicygym (run .*agent\.py)$", README, re.MULTILINE)
    tools = Path(sys.executable).parent
    arguments = line.replace("-- python", f"--root {tmp_path / 'run'} -- {sys.executable}").split()
    done = subprocess.run(
        [tools / "evopolicygym", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    document = read_json(tmp_path / "run" / "run.json")
    assert document["terminal_reason"] == "finished"
    assert document["assessment_score"] >= 400
