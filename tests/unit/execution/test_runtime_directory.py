"""Private directories: short, removed, and never somebody else's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evopolicygym.errors import ExecutionError
from evopolicygym.execution.runtime_directory import MAX_SOCKET_PATH, runtime_directory

SOURCE = "from evopolicygym.execution.runtime_directory import runtime_directory"


@pytest.fixture
def parent(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    import shutil
    import tempfile

    short = Path(tempfile.mkdtemp(prefix="rt-", dir="/tmp"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    yield short  # type: ignore[misc]
    shutil.rmtree(short, ignore_errors=True)


def test_it_is_private_short_and_removed(parent: Path) -> None:
    with runtime_directory() as directory:
        assert directory.parent == parent
        assert directory.stat().st_mode & 0o777 == 0o700
        assert len(str(directory / "session.sock")) <= MAX_SOCKET_PATH
    assert not directory.exists()


def test_what_is_not_ours_stays(parent: Path) -> None:
    for name in ("epg-data", "epg-1-x", "epg-file"):
        (parent / name).mkdir() if name != "epg-file" else (parent / name).touch()
    (parent / "epg-data" / "precious").touch()
    (parent / "epg-link").symlink_to(parent / "epg-data")
    with runtime_directory():
        pass
    assert sorted(p.name for p in parent.iterdir()) == [
        "epg-1-x",
        "epg-data",
        "epg-file",
        "epg-link",
    ]
    assert (parent / "epg-data" / "precious").exists()


def test_directories_in_use_stay_and_stale_ones_go(parent: Path) -> None:
    code = f"{SOURCE}\nimport os\nwith runtime_directory() as d:\n    os._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(list(parent.glob("epg-*"))) == 1
    with runtime_directory() as first, runtime_directory() as second:
        assert sorted(parent.glob("epg-*")) == sorted([first, second])


def test_a_link_is_resolved(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (parent / "real").mkdir()
    (parent / "link").symlink_to(parent / "real")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(parent / "link"))
    with runtime_directory() as directory:
        assert directory.parent == parent / "real"


def test_no_directory_is_short_enough(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere/at/all")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "x" * 200)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: (_ for _ in ()).throw(OSError))
    with pytest.raises(ExecutionError, match="XDG_RUNTIME_DIR"), runtime_directory():
        pass
