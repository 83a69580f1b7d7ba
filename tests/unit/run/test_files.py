from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.errors import RecordError
from evopolicygym.run.files import (
    AppendOnlyFile,
    read_json,
    read_lines,
    write_atomically,
    write_json,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.json"


def full_disk(*_: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


# -------------------------------------------------------------------- atomic writes


def test_files_are_written_and_replaced(path: Path) -> None:
    for content in (b"first", b"", b"third"):
        write_atomically(path, content)
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]


def test_content_is_on_disk_before_it_takes_the_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"old")
    seen: list[tuple[bytes, bytes]] = []

    def fsync(fd: int) -> None:
        seen.append((path.read_bytes(), Path(f"/proc/self/fd/{fd}").read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, b"new")
    assert seen == [(b"old", b"new")]
    assert path.read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_content(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(RecordError, match=r"file\.json can't be written: No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"nowhere/file can't be written: No such file"):
        write_atomically(tmp_path / "nowhere" / "file", b"")


def test_json_is_strict_and_indented(path: Path) -> None:
    write_json(path, {"score": float("nan"), "list": [1, (2.5,)], "text": "ü"})
    text = path.read_text("utf-8")
    assert text == (
        '{\n  "score": "NaN",\n  "list": [\n    1,\n    [\n      2.5\n    ]\n  ],\n'
        '  "text": "ü"\n}\n'
    )
    assert read_json(path) == {"score": "NaN", "list": [1, [2.5]], "text": "ü"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not valid JSON"),
        (b"{", "is not valid JSON"),
        (b'{"a": NaN}', "is not valid JSON"),
        (b'{"a": "\xff"}', "is not valid JSON"),
        (b"[1]", "holds list, expected a JSON object"),
        (b"null", "holds NoneType, expected a JSON object"),
        (b'"text"', "holds str, expected a JSON object"),
    ],
)
def test_damaged_json_is_named(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(RecordError, match=rf"file\.json {message}"):
        read_json(path)


@pytest.mark.parametrize("read", [read_json, read_lines])
def test_missing_files_are_named(path: Path, read: Callable[[Path], object]) -> None:
    with pytest.raises(RecordError, match=r"file\.json can't be read: No such file"):
        read(path)
    path.mkdir()
    with pytest.raises(RecordError, match=r"file\.json can't be read: Is a directory"):
        read(path)


# ---------------------------------------------------------------------------- lines


def test_lines_are_appended_and_continued(path: Path) -> None:
    for number in range(3):
        file = AppendOnlyFile(path)
        file.append({"number": number})
        file.append({"again": number})
        file.close()
    assert read_lines(path) == [{key: number} for number in range(3) for key in ("number", "again")]
    assert path.read_bytes().count(b"\n") == 6


def test_a_new_file_is_empty(path: Path) -> None:
    AppendOnlyFile(path).close()
    assert path.read_bytes() == b""
    assert read_lines(path) == []


def test_a_new_file_and_its_name_are_on_disk_once_it_is_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").resolve())
    )
    AppendOnlyFile(path).close()
    assert synced == [path.resolve(), path.parent.resolve()]
    assert path.stat().st_mode & 0o777 & ~0o644 == 0


def test_a_closed_file_holds_no_descriptor(path: Path) -> None:
    def is_open() -> bool:
        return path.resolve() in (fd.resolve() for fd in Path("/proc/self/fd").iterdir())

    file = AppendOnlyFile(path)
    assert is_open()
    file.close()
    assert not is_open()


def test_a_line_is_on_disk_when_append_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendOnlyFile(path)
    seen: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(path.read_bytes()))
    file.append({"a": 1})
    assert seen == [b'{"a":1}\n']
    file.append({"b": 2})
    assert seen[1] == b'{"a":1}\n{"b":2}\n'
    file.close()


def test_short_writes_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    file = AppendOnlyFile(path)
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    file.append({"text": "long enough"})
    file.close()
    assert path.read_bytes() == b'{"text":"long enough"}\n'


def test_lines_that_can_not_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendOnlyFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        with pytest.raises(RecordError, match=r"file\.json can't be written: No space left"):
            file.append({"a": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(RecordError, match=r"file\.json can't be written: No space left"):
            file.append({"a": 1})
    file.close()


def test_files_that_can_not_be_opened(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"nowhere/x can't be opened: No such file"):
        AppendOnlyFile(tmp_path / "nowhere" / "x")
    with pytest.raises(RecordError, match="can't be opened: Is a directory"):
        AppendOnlyFile(tmp_path)


@pytest.mark.parametrize("torn", [b'{"b', b"{", b'{"b":2}', b"\xff", b"\x00" * 100])
@pytest.mark.parametrize("whole", [b"", b'{"a":1}\n'])
def test_a_torn_last_line_is_left_out_and_cut(path: Path, whole: bytes, torn: bytes) -> None:
    path.write_bytes(whole + torn)
    before = [{"a": 1}] if whole else []
    assert read_lines(path) == before
    assert path.read_bytes() == whole + torn  # reading changes nothing
    file = AppendOnlyFile(path)
    assert path.read_bytes() == whole
    file.append({"c": 3})
    file.close()
    assert read_lines(path) == [*before, {"c": 3}]


@pytest.mark.parametrize("damage", [b"{", b"", b"NaN", b'{"a":1}}', b"\xff", b"\x00\x00"])
def test_damage_before_the_last_line_is_an_error(path: Path, damage: bytes) -> None:
    path.write_bytes(b'{"a":1}\n' + damage + b'\n{"b":2}\n')
    with pytest.raises(RecordError, match=r"file\.json is damaged"):
        read_lines(path)


@pytest.mark.parametrize("line", [b"null", b"[]", b"1", b'"text"'])
def test_lines_that_are_no_objects_are_an_error(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n")
    with pytest.raises(RecordError, match=r"file\.json"):
        read_lines(path)


@given(
    st.lists(st.dictionaries(st.text(), st.text() | st.integers(-9, 9), max_size=3), max_size=5),
    st.data(),
)
def test_a_file_cut_anywhere_keeps_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, Any]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("lines") / "lines.jsonl"
    file = AppendOnlyFile(path)
    for value in values:
        file.append(value)
    file.close()
    content = path.read_bytes()
    assert read_lines(path) == values
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    assert read_lines(path) == values[:whole]
    file = AppendOnlyFile(path)
    file.append({"more": 1})
    file.close()
    assert read_lines(path) == [*values[:whole], {"more": 1}]
