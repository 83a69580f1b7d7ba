"""`evopolicygym check`, end to end, on records of Runs that were played."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .tools import CLI, Preloaded, command, files

pytestmark = pytest.mark.damaged_record()


@pytest.fixture
def records(finished: Path, tmp_path: Path) -> Path:
    """A good record, and one whose first trajectory lacks its last line."""
    shutil.copytree(finished, tmp_path / "runs" / "good")
    shutil.copytree(finished, tmp_path / "runs" / "bad")
    place = "submissions/submission-000001/feedback/episodes/000000/trajectory.jsonl"
    path = tmp_path / "runs" / "bad" / place
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    return tmp_path


def test_good_records(preloaded: Preloaded, finished: Path) -> None:
    before = files(finished)
    done = preloaded("check", finished.name, "--replay", "--json", cwd=finished.parent)
    assert done.code == 0, done
    assert done.json == {
        "schema": "evopolicygym.check/1",
        "replayed": True,
        "findings": 0,
        "records": [{"record": "record", "findings": []}],
    }
    assert "without a sandbox" in done.stderr, "who plays policies again has to be told how"
    assert files(finished) == before
    done = preloaded("check", finished.name, cwd=finished.parent)
    assert (done.code, done.stdout, done.stderr) == (0, "record: good\n", "")


def test_findings(preloaded: Preloaded, records: Path) -> None:
    done = preloaded("check", "runs", "runs/good", "--json", cwd=records)
    assert done.code == 1
    bad, good = done.json["records"]
    assert (bad["record"], good) == ("runs/bad", {"record": "runs/good", "findings": []})
    assert {one["code"] for one in bad["findings"]} == {"trajectory", "publication"}
    assert done.json["findings"] == len(bad["findings"])
    for one in bad["findings"]:
        assert one.keys() == {"code", "path", "message"}
        assert (records / "runs" / "bad" / one["path"]).is_file()
    done = preloaded("check", "runs", cwd=records)
    assert done.code == 1
    assert "runs/good: good" in done.stdout.splitlines()
    assert "has no final observation" in done.stdout
    assert done.stderr == f"{len(bad['findings'])} findings in 1 of 2 records\n"


@pytest.mark.parametrize("directory", ["nowhere", ".", "agent.py"])
def test_where_there_is_no_record(preloaded: Preloaded, tmp_path: Path, directory: str) -> None:
    (tmp_path / "agent.py").touch()
    done = preloaded("check", directory, cwd=tmp_path)
    assert (done.code, done.stdout) == (2, "")
    assert done.message.startswith("error: ")
    assert directory in done.message
    assert "expected" in done.message


def test_the_command_as_installed(records: Path) -> None:
    done = command(CLI, "check", "runs/bad", cwd=records)
    assert done.code == 1, done
    assert done.stdout.startswith("runs/bad: ")
    assert command(CLI, "check", cwd=records).code == 2
