"""`evopolicygym data` and `run --data`, end to end."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.data import read_splits
from evopolicygym.envs.catalog import CORE_16
from evopolicygym.run.layout import original_name

from .tools import CLI, Preloaded, check_record, command, files, run_file

FILES = ["digests.json", "heldout.json", "train.json", "valid.json"]
SEED = 912_345_678_901
MAKE = f"data make --env toy --seed {SEED} --train-size 6 --valid-size 5 --heldout-size 7"
FIRST = "submission-000001"
RUN = "run --env toy --budget 6 --valid-size 4 --final-size 7"


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Splits for `toy`: to be read, or to be copied and damaged."""
    home = tmp_path_factory.mktemp("splits-of-toy")
    done = command(CLI, *MAKE.split(), "--root", "splits", cwd=home)
    assert done.code == 0, done
    assert "wrote splits" in done.stdout
    assert str(SEED) not in done.stdout
    return home / "splits"


def refused(done: Any, place: Path, before: dict[str, bytes | None], *words: str) -> None:
    assert done.code == 2, done
    assert done.stdout == ""
    for word in words:
        assert word in done.message
    assert files(place) == before


# ----------------------------------------------------------------------------- make, check


def test_make_and_check(preloaded: Preloaded, tmp_path: Path, splits: Path) -> None:
    assert sorted(path.name for path in splits.iterdir()) == FILES
    made = preloaded(*MAKE.split(), "--root", "a/b", "--json", cwd=tmp_path).json
    assert made["root"] == "a/b"
    (row,) = made["splits"]
    assert row["sizes"] == {"train": 6, "valid": 5, "heldout": 7}
    assert row["digests"] == read_splits(splits).digests
    assert files(tmp_path / "a" / "b") == files(splits)
    checked = preloaded("data", "check", "a/b", "--env", "toy", "--json", cwd=tmp_path).json
    assert checked == {"passed": True, "splits": [row]}
    shown = preloaded("data", "check", "a/b", cwd=tmp_path)
    assert "complete, disjoint and unchanged" in shown.stdout
    assert row["digests"]["heldout"][:12] in shown.stdout


def test_sizes_have_defaults(preloaded: Preloaded, tmp_path: Path) -> None:
    line = "data make --env gym/taxi --seed 0 --root x --json"
    done = preloaded(*line.split(), cwd=tmp_path)
    (row,) = done.json["splits"]
    assert row["sizes"] == {"train": 64, "valid": 64, "heldout": 256}
    assert row["digests"]["train"].startswith("0a1656bb756c")


def test_core16(preloaded: Preloaded, tmp_path: Path) -> None:
    make = f"data make --suite core16 --seed {SEED} --heldout-size 9 --json --root".split()
    made = preloaded(*make, "core16", cwd=tmp_path).json
    assert {row["benchmark_id"] for row in made["splits"]} == {f"gymnasium/{e}" for e in CORE_16}
    homes = sorted((tmp_path / "core16").iterdir())
    assert [original_name(home.name) for home in homes] == [
        read_splits(home).benchmark_id for home in homes
    ]
    checked = preloaded("data", "check", "core16", "--json", cwd=tmp_path).json
    assert {row["directory"] for row in checked["splits"]} == {
        f"core16/{home.name}" for home in homes
    }
    # To the byte, in another process, and again over itself.
    command(CLI, *make, "again", cwd=tmp_path, PYTHONHASHSEED="7")
    assert files(tmp_path / "again") == files(tmp_path / "core16")
    assert preloaded(*make, "again", "--overwrite", cwd=tmp_path).code == 0
    assert files(tmp_path / "again") == files(tmp_path / "core16")
    (homes[3] / "valid.json").unlink()
    before = files(tmp_path)
    done = preloaded("data", "check", "core16", cwd=tmp_path)
    refused(done, tmp_path, before, "valid.json can't be read")


def test_overwrite(preloaded: Preloaded, tmp_path: Path, splits: Path) -> None:
    shutil.copytree(splits, tmp_path / "splits")
    other = [*MAKE.replace(str(SEED), "1").split(), "--root", "splits"]
    before = files(tmp_path)
    done = preloaded(*other, cwd=tmp_path)
    refused(done, tmp_path, before, "splits exists and is not empty", "with --overwrite")
    assert preloaded(*other, "--overwrite", cwd=tmp_path).code == 0
    assert read_splits(tmp_path / "splits").seed == 1
    assert sorted(files(tmp_path)) == ["splits", *(f"splits/{name}" for name in FILES)]


BAD = [
    ("data frobnicate", "No such command 'frobnicate'"),
    ("data make --env toy --root x", "Missing option '--seed'"),
    ("data make --env toy --seed 0", "Missing option '--root'"),
    ("data make --root x --seed 0", "expected one of --env ID and --suite core16"),
    ("data make --root x --seed 0 --env toy --suite core16", "expected one of --env ID and"),
    ("data make --root x --seed 0 --suite core17", "--suite is 'core17', expected core16"),
    ("data make --root x --seed 0 --env tooy", "Did you mean 'toy'"),
    ("data make --root x --seed -1 --env toy", "--seed is -1, expected an integer in [0,"),
    (f"data make --root x --seed {10**30} --env toy", f"--seed is {10**30}"),
    ("data make --root x --seed abc --env toy", "Invalid value for '--seed'"),
    *(
        (f"data make --root x --seed 0 --env toy {option} {value}", f"{option} is {value}")
        for option in ("--train-size", "--valid-size", "--heldout-size")
        for value in ("0", "-1", "100001", str(10**30))
    ),
    ("data make --root full --seed 0 --env toy", "full exists and is not empty"),
    ("data make --root full --seed 0 --env toy --overwrite", "full holds 'notes.txt'"),
    ("data make --root full --seed 0 --suite core16 --overwrite", "full holds 'notes.txt'"),
    ("data make --root file --seed 0 --env toy --overwrite", "file is no directory"),
    ("data make --root file/x --seed 0 --env toy", "file is no directory"),
    ("data make --root . --seed 0 --env toy --overwrite", ". holds the current directory"),
    (f"data make --root {'x' * 300} --seed 0 --env toy", "File name too long"),
    ("data make --root splits --seed 0 --suite core16 --overwrite", "splits holds 'digests.json'"),
    ("data check", "Missing argument 'directory'"),
    ("data check missing", "missing/digests.json can't be read: No such file or directory"),
    ("data check file", "file/digests.json can't be read: Not a directory"),
    ("data check full", "full/digests.json can't be read"),
    ("data check splits --env gym/taxi", "splits is for 'toy', --env is 'gym/taxi'"),
    ("data check splits --env tooy", "Did you mean 'toy'?"),
    ("data check damaged", "got `str` - at `seed`"),
    (f"{RUN} --data missing", "missing/digests.json can't be read"),
    (f"{RUN} --data full", "full/digests.json can't be read"),
    (f"{RUN} --data damaged", "damaged/train.json: Expected `int`"),
    (f"{RUN} --data splits".replace("toy", "gym/cartpole"), "for 'toy', not for 'gym/cartpole'"),
    (f"{RUN} --data splits --budget 8", "train.json has 6 cases, 8 Episodes are asked for"),
    (f"{RUN} --data splits --pool 7", "train.json has 6 cases, 7 Episodes"),
    (f"{RUN} --data splits --valid-size 6", "valid.json has 5 cases, 6 Episodes"),
    (f"{RUN} --data splits --final-size 8", "heldout.json has 7 cases, 8 Episodes"),
]


@pytest.mark.parametrize(("line", "words"), BAD, ids=[line[:80] for line, _ in BAD])
def test_refused(preloaded: Preloaded, tmp_path: Path, splits: Path, line: str, words: str) -> None:
    shutil.copytree(splits, tmp_path / "splits")
    shutil.copytree(splits, tmp_path / "damaged")
    path = tmp_path / "damaged" / "train.json"
    path.write_text(path.read_text().replace(str(SEED), '"many"'))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("keep me")
    (tmp_path / "file").write_text("keep me")
    before = files(tmp_path)
    refused(preloaded(*line.split(), cwd=tmp_path), tmp_path, before, words)


@pytest.mark.parametrize("argv", [[*MAKE.split(), "--root", "\udcff"], ["data", "check", "\udcff"]])
def test_bytes_that_are_no_text(preloaded: Preloaded, tmp_path: Path, argv: list[str]) -> None:
    refused(preloaded(*argv, cwd=tmp_path), tmp_path, {}, "no UTF-8 text")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_make_that_is_stopped_leaves_the_old_files(
    tmp_path: Path, splits: Path, number: int
) -> None:
    """It stops itself when it has written half of the new ones."""
    shutil.copytree(splits, tmp_path / "splits")
    before = files(tmp_path)
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import evopolicygym.cli.main as cli\n"
        "synced = []\n"
        "def stop(descriptor):\n"
        "    synced.append(descriptor)\n"
        f"    if len(synced) == 2: os.kill(os.getpid(), {int(number)})\n"
        "os.fsync = stop\n"
        "cli.main()\n"
    )
    argv = [*MAKE.replace(str(SEED), "1").split(), "--root", "splits", "--overwrite"]
    done = command(sys.executable, "-c", code, *argv, cwd=tmp_path)
    left = {name: data for name, data in files(tmp_path).items() if not name.startswith(".")}
    assert left == before
    if number == signal.SIGKILL:  # what it leaves is hidden, and in nobody's way
        assert done.code == -signal.SIGKILL
        assert command(CLI, *argv, cwd=tmp_path).code == 0
    else:
        assert (done.code, done.stdout) == (130, "")
        assert files(tmp_path) == before


# ------------------------------------------------------------------------------------- run


def played(path: Path) -> list[tuple[int, int]]:
    episodes = json.loads(path.read_bytes())["episodes"]
    return [(row["environment_seed"], row["policy_seed"]) for row in episodes]


def results(root: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(root)): json.loads(path.read_bytes())
        for path in sorted(root.rglob("episodes.json"))
    }


# What this policy does depends on all that its context says.
CURIOUS = """\
import zlib

class Policy:
    def __init__(self, context):
        self.offset = zlib.crc32(repr((context.metadata, context.policy_seed)).encode())

    def act(self, observation):
        return (self.offset + int(sum(observation))) % 3

def make_policy(context):
    return Policy(context)
"""


def curious_run(home: Path, splits: Path, jobs: int) -> Path:
    """Play a Run on splits that are gone afterwards; return its record."""
    shutil.copytree(splits, home / "secret-place")
    (home / "initial").mkdir()
    (home / "initial" / "policy.py").write_text(CURIOUS)
    agent = (
        f"evopolicygym-session submit program --episodes 0:6 && evopolicygym-session finish {FIRST}"
    )
    line = f"{RUN} --data secret-place --seed 3 --jobs {jobs} --program initial --root record"
    argv = [*line.split(), "--agent", "command", "--", "sh", "-c", agent]
    done = command(CLI, *argv, cwd=home)
    assert done.code == 0, done
    shutil.rmtree(home / "secret-place")
    return home / "record"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory, splits: Path) -> Path:
    """The record of a Run on splits."""
    return curious_run(tmp_path_factory.mktemp("run-on-splits"), splits, jobs=1)


def test_a_run_plays_what_the_files_hold(record: Path, splits: Path) -> None:
    assert check_record(record) > 5
    for home, name, count in (
        ("submissions", "train", 6),
        ("validation", "valid", 4),
        ("assessment", "heldout", 7),
    ):
        document = json.loads((splits / f"{name}.json").read_bytes())
        cases = {(case["environment_seed"], case["policy_seed"]) for case in document["cases"]}
        seen = played(record / home / FIRST / "episodes.json")
        assert len(seen) == len(set(seen)) == count
        assert set(seen) <= cases


def test_a_record_names_the_digests_and_nothing_private(record: Path, splits: Path) -> None:
    digests = json.loads((splits / "digests.json").read_bytes())["digests"]
    assert run_file(record)["data"] == digests
    for path, content in files(record / "workspace").items():
        assert not any(digest.encode() in (content or b"") for digest in digests.values()), path
    seeds = {
        str(case["environment_seed"])
        for name in ("train", "valid", "heldout")
        for case in json.loads((splits / f"{name}.json").read_bytes())["cases"]
    }
    for name, content in files(record).items():
        text = (content or b"").decode(errors="replace")
        assert str(SEED) not in text, name
        assert "secret-place" not in text, name
        if not name.endswith("episodes.json"):
            assert not [seed for seed in seeds if seed in text], name


@pytest.mark.parametrize("index", [0, 3, 5])
def test_replay_needs_no_splits(preloaded: Preloaded, record: Path, index: int) -> None:
    """Not even for a policy that acts on all that it is told."""
    line = f"replay record {FIRST} {index} --json"
    done = preloaded(*line.split(), cwd=record.parent)
    assert (done.code, done.json["agrees"]) == (0, True)


def test_the_result_does_not_depend_on_the_workers(
    tmp_path: Path, record: Path, splits: Path
) -> None:
    one, two = results(record), results(curious_run(tmp_path, splits, jobs=2))
    assert len(one) == 3
    assert one == two
