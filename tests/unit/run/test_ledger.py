from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evopolicygym.errors import RecordError
from evopolicygym.run.files import read_lines
from evopolicygym.run.ledger import Ledger, episodes_used
from evopolicygym.run.models import LedgerLine
from evopolicygym.strict_json import dumps


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


def test_a_new_ledger(path: Path) -> None:
    with Ledger(path, budget=10) as ledger:
        assert (ledger.budget, ledger.used, ledger.remaining) == (10, 0, 10)
    assert episodes_used(path) == 0


def test_charges_and_refunds(path: Path) -> None:
    with Ledger(path, budget=10) as ledger:
        ledger.charge("submission-000001", "first", (0, 1, 4))
        assert (ledger.used, ledger.remaining) == (3, 7)
        ledger.refund("submission-000001", "first", [4])
        assert (ledger.used, ledger.remaining) == (2, 8)
        ledger.charge("submission-000002", "second", range(8))
        assert (ledger.used, ledger.remaining) == (10, 0)
    assert episodes_used(path) == 10
    lines = read_lines(path)
    assert [LedgerLine.model_validate(line) for line in lines]
    times = [datetime.fromisoformat(line.pop("time")) for line in lines]
    assert times == sorted(times)
    assert all(time.utcoffset() == timedelta(0) for time in times)
    common = {"schema": "evopolicygym.ledger/1"}
    assert lines == [
        common
        | {
            "sequence": 0,
            "kind": "charge",
            "submission_id": "submission-000001",
            "request_id": "first",
            "episode_indices": [0, 1, 4],
            "episodes_used": 3,
        },
        common
        | {
            "sequence": 1,
            "kind": "refund",
            "submission_id": "submission-000001",
            "request_id": "first",
            "episode_indices": [4],
            "episodes_used": 2,
        },
        common
        | {
            "sequence": 2,
            "kind": "charge",
            "submission_id": "submission-000002",
            "request_id": "second",
            "episode_indices": list(range(8)),
            "episodes_used": 10,
        },
    ]


def test_charges_over_the_budget_write_nothing(path: Path) -> None:
    with Ledger(path, budget=3) as ledger:
        with pytest.raises(ValueError, match="4 Episodes do not fit into 3"):
            ledger.charge("submission-000001", "a", range(4))
        assert path.read_bytes() == b""
        ledger.charge("submission-000001", "a", range(3))
        content = path.read_bytes()
        with pytest.raises(ValueError, match="1 Episodes do not fit into 0"):
            ledger.charge("submission-000002", "b", [0])
        assert path.read_bytes() == content
        assert ledger.used == 3
        ledger.refund("submission-000001", "a", [2])
        ledger.charge("submission-000002", "b", [0])
    assert episodes_used(path) == 3


def test_more_than_was_charged_can_not_be_refunded(path: Path) -> None:
    with Ledger(path, budget=3) as ledger:
        ledger.charge("submission-000001", "a", [0])
        content = path.read_bytes()
        with pytest.raises(ValueError, match="2 Episodes were never charged"):
            ledger.refund("submission-000001", "a", [0, 1])
        assert path.read_bytes() == content
        assert ledger.used == 1


def test_a_charge_is_on_disk_before_the_call_returns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(path, budget=3) as ledger:
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(episodes_used(path)))
        ledger.charge("submission-000001", "a", [0, 1])
        assert synced == [2]
        ledger.refund("submission-000001", "a", [0])
        assert synced == [2, 1]


def test_a_line_that_can_not_be_written_charges_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with Ledger(path, budget=3) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full_disk)
            with pytest.raises(RecordError, match="No space left"):
                ledger.charge("submission-000001", "a", [0])
        assert ledger.used == 0
    assert episodes_used(path) == 0


def test_a_ledger_closes_its_file(path: Path) -> None:
    def is_open() -> bool:
        return path.resolve() in (fd.resolve() for fd in Path("/proc/self/fd").iterdir())

    with Ledger(path, budget=3):
        assert is_open()
    assert not is_open()


def test_a_missing_ledger_is_an_error(path: Path) -> None:
    with pytest.raises(RecordError, match=r"ledger\.jsonl can't be read"):
        episodes_used(path)


@pytest.mark.parametrize("torn", [b"{", b'{"sequence": 1', b"\xff\x00"])
def test_a_torn_last_line_is_cut(path: Path, torn: bytes) -> None:
    with Ledger(path, budget=9) as ledger:
        ledger.charge("submission-000001", "a", [0, 1])
    with path.open("ab") as file:
        file.write(torn)
    assert episodes_used(path) == 2
    with Ledger(path, budget=9) as ledger:
        assert ledger.used == 2
        ledger.charge("submission-000002", "b", [5])
    assert [line["sequence"] for line in read_lines(path)] == [0, 1]
    assert episodes_used(path) == 3


def replaced(line: dict[str, Any], **changes: Any) -> bytes:
    return dumps(line | changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: b"{", "is damaged"),
        (lambda line: b"", "is damaged"),
        (lambda line: b"null", ""),
        (lambda line: b"[]", ""),
        (lambda line: b"{}", "line 2: "),
        (lambda line: replaced(line, sequence=2), "line 2: not a ledger entry in sequence"),
        (lambda line: replaced(line, sequence=0), "line 2: not a ledger entry in sequence"),
        (lambda line: replaced(line, kind="gift"), "line 2: not a ledger entry in sequence"),
        (lambda line: replaced(line, kind=None), "line 2: not a ledger entry in sequence"),
        (lambda line: replaced(line, episode_indices=2), "line 2: not a ledger entry"),
        (
            lambda line: replaced(line, episodes_used=3),
            "line 2: says 3 Episodes used, the entries add up to 4",
        ),
        (
            lambda line: replaced(line, episode_indices=[2]),
            "line 2: says 4 Episodes used, the entries add up to 3",
        ),
        (
            lambda line: replaced(line, kind="refund", episode_indices=[1] * 3, episodes_used=-1),
            "line 2: says -1 Episodes used",
        ),
        (
            lambda line: replaced(line, schema="evopolicygym.ledger/2"),
            "",
        ),
    ],
    ids=[
        "cut short",
        "empty",
        "null",
        "a list",
        "no fields",
        "a later sequence",
        "an earlier sequence",
        "unknown kind",
        "no kind",
        "no indices",
        "wrong total",
        "wrong indices",
        "more refunded than charged",
        "another version",
    ],
)
def test_a_damaged_line_in_the_middle_is_an_error(
    path: Path, damage: Callable[[dict[str, Any]], bytes], message: str
) -> None:
    with Ledger(path, budget=9) as ledger:
        for number in (1, 2, 3):
            ledger.charge(f"submission-00000{number}", str(number), [0, 1])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = damage(read_lines(path)[1]) + b"\n"
    content = b"".join(lines)
    path.write_bytes(content)
    with pytest.raises(RecordError, match=rf"ledger\.jsonl.*{message}"):
        episodes_used(path)
    with pytest.raises(RecordError, match=rf"ledger\.jsonl.*{message}"):
        Ledger(path, budget=9)
    assert path.read_bytes() == content


def test_a_lost_line_is_an_error(path: Path) -> None:
    with Ledger(path, budget=9) as ledger:
        for number in (1, 2, 3):
            ledger.charge(f"submission-00000{number}", str(number), [0])
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in (lines[1:], [lines[0], lines[2]], [lines[1], lines[0], lines[2]]):
        path.write_bytes(b"".join(kept))
        with pytest.raises(RecordError, match=r"line [12]: not a ledger entry in sequence"):
            episodes_used(path)


operations = st.lists(
    st.tuples(st.sampled_from(["charge", "refund", "reopen", "tear"]), st.integers(0, 7)),
    max_size=14,
)


@given(operations, st.integers(0, 20))
@settings(max_examples=60)
def test_any_sequence_adds_up_on_disk(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], budget: int
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    used, lines = 0, 0
    ledger = Ledger(path, budget=budget)
    for kind, count in steps:
        content = path.read_bytes()
        if kind in ("reopen", "tear"):
            ledger.__exit__(None, None, None)
            if kind == "tear":
                path.write_bytes(content + b'{"sequence":0,"kind":"charge"'[: 4 * count + 1])
            ledger = Ledger(path, budget=budget)
            assert path.read_bytes() == content
        else:
            change = count if kind == "charge" else -count
            act = ledger.charge if kind == "charge" else ledger.refund
            if 0 <= used + change <= budget:
                act("submission-000001", "request", range(count))
                used, lines = used + change, lines + 1
            else:
                with pytest.raises(ValueError, match=f"^{count} Episodes"):
                    act("submission-000001", "request", range(count))
                assert path.read_bytes() == content
        assert ledger.used == used == episodes_used(path)
        assert ledger.remaining == budget - used
        assert [line["sequence"] for line in read_lines(path)] == list(range(lines))
    ledger.__exit__(None, None, None)
