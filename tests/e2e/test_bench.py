"""`make bench` works and reports what it promises; the figures themselves depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_bench_reports_every_figure(tmp_path: Path) -> None:
    target = tmp_path / "bench.json"
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "speed.py", target, "--quick"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(target.read_text())
    for name in ("CartPole-v1", "HalfCheetah-v5", "CarRacing-v3"):
        assert results[name]["bare_us_per_step"] > 0
        assert results[name]["ratio"] > 0
    assert results["fresh_process"]["median_ms"] > 0
    assert results["scaling"]["ratio"] > 0
    assert results["memory"]["rss_mib_at_end"] > 0
    assert results["commands"]["session_status_ms"] > 0
