"""Every record that a test leaves behind keeps its promises, or the test says which it breaks."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

PASSED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "damaged_record(*codes): leaves records with such findings, or any without codes"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(autouse=True)
def records_are_good(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check every record below `tmp_path` after a test that passed."""
    yield
    arguments: dict[str, Any] = getattr(request.node, "funcargs", {})
    home = arguments.get("tmp_path")
    marker = request.node.get_closest_marker("damaged_record")
    if home is None or not request.node.stash.get(PASSED, False):
        return
    if marker is not None and not marker.args:
        return
    allowed = set(marker.args if marker else ())
    for path in sorted(home.rglob("events.jsonl")):  # made-up records have none
        if (path.parent / "run.json").exists():
            from evopolicygym.analysis.check import check_record

            found = check_record(path.parent)
            assert {finding.code.value for finding in found} <= allowed, found
