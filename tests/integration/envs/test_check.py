"""Hostile environments cost one row each, and their neighbours nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

HOSTILE = Path(__file__).parent / "hostile.py"
NAMES = (
    *("HangsInReset", "HangsInStep", "Exits", "ExitsPolitely", "Crashes", "Prints", "NotANumber"),
    *("OutOfSpace", "WrongShape", "RaisesInClose", "SeedsTheWorld", "Unseeded", "HashSeeded"),
    *("HugeInfo", "LeavesProcesses", "Meddles", "IsMeddledWith"),
)
HONEST = tuple(f"Honest{number}" for number in range(len(NAMES)))


def _install(site: Path) -> None:
    """Install the hostile environments into a directory, as a distribution would be."""
    shutil.copy(HOSTILE, site / "hostile.py")
    metadata = site / "hostile-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    points = [f"{name} = hostile:{name}Benchmark" for name in (*NAMES, *HONEST)]
    (metadata / "entry_points.txt").write_text(
        "\n".join(["[evopolicygym.benchmarks]", *points]) + "\n"
    )


def _check(site: Path, *argv: str, timeout: float = 100) -> subprocess.CompletedProcess[bytes]:
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [str(Path(sys.executable).parent / "evopolicygym"), "check-envs", *argv],
        cwd=site,
        env={**os.environ, "PYTHONPATH": path, "HOSTILE_MARK": str(site)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    _install(directory)
    return directory


@pytest.fixture(scope="module")
def report(site: Path) -> Any:
    argv = ["--jobs", "2", "--timeout", "4", "--min-level", "L1", "--json"]
    for pair in zip(NAMES, HONEST, strict=True):
        argv += [part for benchmark_id in pair for part in ("--env", benchmark_id)]
    done = _check(site, *argv)
    assert done.returncode == 1, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert len(done.stderr) < 50_000
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def rows(report: Any) -> dict[str, Any]:
    listed = report["environments"]
    assert len(listed) == 2 * len(NAMES)
    return {row["id"]: row for row in listed}


@pytest.mark.parametrize("name", HONEST)
def test_neighbours_are_unaffected(rows: dict[str, Any], name: str) -> None:
    row = rows[name]
    found = (row["level"], row["status"], row["deterministic"], row["conforms"], row["notes"])
    # It documents nothing, so it can't be L2.
    assert found == ("L1", "ok", True, True, [])
    assert row["reason"].startswith("task: ")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("HangsInReset", "smoke: no end within 4 s"),
        ("HangsInStep", "smoke: no end within 4 s"),
        ("Exits", "smoke: the process ended with exit code 0"),
        ("ExitsPolitely", "smoke: SystemExit: enough"),
        ("Crashes", "smoke: the process was ended by SIGSEGV"),
        ("Prints", "smoke: no end within 4 s"),
        ("NotANumber", "smoke: BenchmarkError: an observation has NaN"),
        ("WrongShape", "smoke: ObservationError: "),
        ("RaisesInClose", "smoke: RuntimeError: close failed at …/else"),
        ("Meddles", "smoke: RuntimeError: no more"),
    ],
)
def test_what_does_not_run_fails_with_its_reason(
    rows: dict[str, Any], name: str, reason: str
) -> None:
    row = rows[name]
    assert (row["level"], row["status"]) == ("L0", "failed")
    assert row["reason"].startswith(reason)
    assert len(row["reason"]) < 1_000


@pytest.mark.parametrize(
    ("name", "deterministic", "conforms", "notes"),
    [
        ("OutOfSpace", True, False, []),
        ("SeedsTheWorld", True, True, ["changes the global random state"]),
        ("Unseeded", False, False, ["changes the global random state"]),
        ("HashSeeded", False, True, []),
        ("HugeInfo", True, None, []),
        ("LeavesProcesses", True, True, []),
        (
            *("IsMeddledWith", True, True),
            ["environments that were in the same process before change what it does"],
        ),
    ],
)
def test_what_runs_but_is_peculiar_is_said_so(
    rows: dict[str, Any], name: str, deterministic: bool, conforms: bool, notes: list[str]
) -> None:
    row = rows[name]
    assert (row["level"], row["status"]) == ("L1", "ok")
    found = (row["deterministic"], row["conforms"], row["notes"])
    assert found == (deterministic, conforms, notes), row["reason"]


def test_the_summary_counts_them(report: Any) -> None:
    assert not report["passed"]
    counts = report["summary"]["other"]
    assert (counts["ids"], counts["failed"]) == (34, 10)
    assert (counts["L1"], counts["L2"]) == (24, 0)


def test_no_process_is_left(rows: dict[str, Any], site: Path) -> None:
    def left() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                arguments = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if entry.name.isdigit() and str(site).encode() in arguments:
                found.append(arguments.decode(errors="replace"))
        return found

    deadline = time.monotonic() + 5
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left()


def test_installed_benchmarks_are_checked_by_default(site: Path) -> None:
    done = _check(site, "--family", "other", "--discover", "--json")
    assert done.returncode == 0, done.stderr
    ids = json.loads(done.stdout)["families"]["other"]
    assert {"toy", *NAMES, *HONEST} <= set(ids)


def test_a_sample_of_all_that_is_registered(tmp_path: Path) -> None:
    argv = ("--bulk", "--jobs", "2", "--timeout", "30", "--limit", "21", "--json")
    done = _check(tmp_path, *argv)
    report = json.loads(done.stdout)
    assert len(report["environments"]) == 21
    bad = [row for row in report["environments"] if row["status"] in ("failed", "missing")]
    assert not bad
    assert done.returncode == 0
    assert report["stale_known_failures"] == []
