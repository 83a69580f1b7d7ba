from __future__ import annotations

import os
import pickle
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evopolicygym.errors import ProgramError
from evopolicygym.program import ENTRYPOINT, IGNORED_NAMES, Program, ProgramLimits, read_tree

SOURCE = b"def make_policy(context):\n    return None\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory that can be captured: `policy.py`, `lib/net.py` and `weights.bin`."""
    root = tmp_path / "tree"
    (root / "lib").mkdir(parents=True)
    (root / "policy.py").write_bytes(SOURCE)
    (root / "lib" / "net.py").write_bytes(b"x = 1\n")
    (root / "weights.bin").write_bytes(bytes(range(256)))
    return root


FILES = {"lib/net.py": b"x = 1\n", "policy.py": SOURCE, "weights.bin": bytes(range(256))}


# ------------------------------------------------------------------------ snapshots


def test_a_directory_becomes_a_program(tree: Path) -> None:
    program = Program.from_directory(tree)
    assert dict(program.files) == FILES
    assert list(program.files) == sorted(FILES)
    assert program.file_count == 3
    assert program.total_bytes == sum(map(len, FILES.values()))
    assert program.entrypoint == ENTRYPOINT == "policy.py"
    assert program.policy_abi == 1
    assert program.read_bytes("weights.bin") == bytes(range(256))
    assert Program.from_directory(str(tree)) == program


def test_unknown_files_are_named(tree: Path) -> None:
    with pytest.raises(ProgramError, match=r"no file 'lib'"):
        Program.from_directory(tree).read_bytes("lib")


def test_a_program_is_detached_from_its_directory(tree: Path) -> None:
    program = Program.from_directory(tree)
    digest = program.digest
    (tree / "policy.py").write_bytes(b"make_policy = 2\n")
    (tree / "new.py").write_bytes(b"")
    (tree / "weights.bin").unlink()
    assert dict(program.files) == FILES
    assert program.digest == digest
    assert Program.from_directory(tree).digest != digest


def test_a_program_is_detached_from_the_mapping_it_was_made_of() -> None:
    content = bytearray(SOURCE)
    files: dict[str, Any] = {"policy.py": content}
    program = Program(files)
    content[0] = 0
    files["other.py"] = b""
    assert dict(program.files) == {"policy.py": SOURCE}


def test_a_program_is_immutable(tree: Path) -> None:
    program = Program.from_directory(tree)
    with pytest.raises(TypeError):
        program.files["policy.py"] = b""  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        program.digest = "0" * 64  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        program.files = {}  # type: ignore[misc]


def test_equal_content_makes_equal_programs(tree: Path) -> None:
    first = Program.from_directory(tree)
    second = Program(dict(reversed(FILES.items())))
    other = Program(FILES | {"lib/net.py": b"x = 2\n"})
    assert first == second
    assert hash(first) == hash(second)
    assert len({first, second, other}) == 2


def test_programs_pickle(tree: Path) -> None:
    program = Program.from_directory(tree)
    again = pickle.loads(pickle.dumps(program))
    assert again == program
    assert again.digest == program.digest
    with pytest.raises(TypeError):
        again.files["policy.py"] = b""


def test_written_programs_are_captured_as_they_were(tree: Path, tmp_path: Path) -> None:
    program = Program.from_directory(tree)
    target = tmp_path / "a" / "b"
    program.write_to(target)
    assert Program.from_directory(target) == program
    assert (target / "lib" / "net.py").read_bytes() == b"x = 1\n"


def test_programs_are_not_written_over_anything(tree: Path, tmp_path: Path) -> None:
    program = Program.from_directory(tree)
    target = tmp_path / "target"
    target.mkdir()
    program.write_to(target)  # empty is fine
    with pytest.raises(ProgramError, match="not empty"):
        program.write_to(target)
    assert Program.from_directory(target) == program


names = st.text("abcdeé_-. 0", min_size=1, max_size=6).filter(
    lambda name: name.strip(".") and not name.endswith((".pyc", ".pyo"))
)


@given(st.dictionaries(names, st.binary(max_size=40), max_size=8))
@settings(max_examples=40)
def test_round_trip_through_any_directory(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    program = Program(
        {f"d/{name}": content for name, content in files.items()} | {"policy.py": SOURCE}
    )
    target = tmp_path_factory.mktemp("written")
    program.write_to(target)
    assert Program.from_directory(target) == program


# --------------------------------------------------------------------------- digest


def test_the_digest_never_changes_its_format() -> None:
    program = Program({"policy.py": SOURCE, "data/é.bin": b"\x00\xff", "empty": b""})
    assert program.digest == "a7b935ce4eb929e7779d0fc465fbf097a8cbe2bc885b52eaeae664025a6b97a9"


@pytest.mark.parametrize(
    "files",
    [
        FILES | {"lib/net.py": b"x = 1\n "},
        FILES | {"lib/net.pyi": b""},
        {("lib/net2.py" if name == "lib/net.py" else name): data for name, data in FILES.items()},
        {name: data for name, data in FILES.items() if name != "weights.bin"},
        FILES | {"lib/net.py": b"", "lib": b"x = 1\n"},
    ],
    ids=["content", "one more", "renamed", "one less", "moved"],
)
def test_the_digest_covers_paths_and_contents(files: dict[str, bytes]) -> None:
    assert Program(files).digest != Program(FILES).digest


def test_paths_and_contents_do_not_run_into_each_other() -> None:
    first = Program({"policy.py": SOURCE, "a": b"bc", "d": b""})
    second = Program({"policy.py": SOURCE, "ab": b"c", "d": b""})
    third = Program({"policy.py": SOURCE, "a": b"b", "cd": b""})
    assert len({first.digest, second.digest, third.digest}) == 3


def test_the_digest_does_not_cover_modes_and_times(tree: Path) -> None:
    digest = Program.from_directory(tree).digest
    (tree / "policy.py").chmod(0o755)
    os.utime(tree / "weights.bin", (1, 1))
    assert Program.from_directory(tree).digest == digest


# ---------------------------------------------------------------------- entry point


def test_a_program_needs_a_policy(tree: Path) -> None:
    (tree / "policy.py").rename(tree / "lib" / "policy.py")
    with pytest.raises(ProgramError, match=r"policy\.py is missing"):
        Program.from_directory(tree)


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"def make_policies(context): ...\n",
        b"def remake_policy(context): ...\n",
        b"import os\n",
    ],
)
def test_a_policy_needs_make_policy(source: bytes) -> None:
    with pytest.raises(ProgramError, match="does not define make_policy"):
        Program({"policy.py": source})


@pytest.mark.parametrize(
    "source",
    [
        SOURCE,
        b"from agent import make_policy\n",
        b"from agent import *\n",
        b"make_policy = lambda context: None\n",
        b"\xff\xfe make_policy",
    ],
)
def test_every_way_to_bind_make_policy(source: bytes) -> None:
    assert Program({"policy.py": source}).read_bytes("policy.py") == source


# -------------------------------------------------------------------------- ignored


@pytest.mark.parametrize("name", [*sorted(IGNORED_NAMES), "old.pyc", "old.pyo"])
@pytest.mark.parametrize("place", [".", "lib"])
def test_ignored_names_are_never_read(tree: Path, name: str, place: str) -> None:
    (tree / place / name).mkdir()
    (tree / place / name / "file").symlink_to("/etc/passwd")
    assert dict(Program.from_directory(tree).files) == FILES
    (tree / place / f"{name}_").write_bytes(b"")
    extra = f"{name}_" if place == "." else f"lib/{name}_"
    assert set(Program.from_directory(tree).files) == {*FILES, extra}


def test_ignored_names_may_be_links(tree: Path) -> None:
    (tree / ".venv").symlink_to("/usr")
    (tree / "a.pyc").symlink_to("/etc/passwd")
    assert dict(Program.from_directory(tree).files) == FILES


def test_the_ignored_names_are_pinned() -> None:
    assert {
        ".git",
        ".hg",
        ".svn",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".venv",
        ".DS_Store",
    } == IGNORED_NAMES


def test_empty_directories_leave_no_trace(tree: Path) -> None:
    (tree / "empty" / "deeper").mkdir(parents=True)
    assert dict(Program.from_directory(tree).files) == FILES


# ------------------------------------------------------------------------- refusals


def link_to_a_file(tree: Path) -> None:
    (tree / "lib" / "link.py").symlink_to(tree / "policy.py")


def link_to_nothing(tree: Path) -> None:
    (tree / "lib" / "link.py").symlink_to("nowhere")


def link_to_a_directory(tree: Path) -> None:
    (tree / "linked").symlink_to(tree / "lib")


def fifo(tree: Path) -> None:
    os.mkfifo(tree / "lib" / "pipe")


def hard_link_to_outside(tree: Path) -> None:
    (tree.parent / "secret").write_bytes(b"secret")
    (tree / "lib" / "mine").hardlink_to(tree.parent / "secret")


def hard_links_of_which_one_is_outside(tree: Path) -> None:
    (tree / "lib" / "first").write_bytes(b"x")
    (tree / "lib" / "second").hardlink_to(tree / "lib" / "first")
    (tree.parent / "third").hardlink_to(tree / "lib" / "first")


def files_that_differ_by_case(tree: Path) -> None:
    (tree / "lib" / "Net.py").write_bytes(b"")


def files_that_differ_by_folding(tree: Path) -> None:
    (tree / "straße").write_bytes(b"")
    (tree / "STRASSE").write_bytes(b"")


def directories_that_differ_by_case(tree: Path) -> None:
    (tree / "Lib").mkdir()
    (tree / "Lib" / "other.py").write_bytes(b"")


def file_and_directory_that_differ_by_case(tree: Path) -> None:
    (tree / "LIB").write_bytes(b"")


def file_name_that_is_not_utf8(tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/lib/caf\xe9.py")).write_bytes(b"")


def directory_name_that_is_not_utf8(tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9")).mkdir()


def backslash(tree: Path) -> None:
    (tree / "lib\\net.py").write_bytes(b"")


def line_feed(tree: Path) -> None:
    (tree / "a\nb").write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (link_to_a_file, r"^lib/link\.py is a symbolic link"),
        (link_to_nothing, r"^lib/link\.py is a symbolic link"),
        (link_to_a_directory, r"^linked is a symbolic link"),
        (fifo, r"^lib/pipe is a FIFO"),
        (hard_link_to_outside, r"^lib/mine is a hard link to a file outside"),
        (hard_links_of_which_one_is_outside, r"^lib/first is a hard link to a file outside"),
        (files_that_differ_by_case, r"^lib/net\.py and lib/Net\.py differ only by case"),
        (files_that_differ_by_folding, r"^straße and STRASSE differ only by case"),
        (directories_that_differ_by_case, r"^lib and Lib differ only by case"),
        (file_and_directory_that_differ_by_case, r"^lib and LIB differ only by case"),
        (file_name_that_is_not_utf8, r"^lib/caf\\xe9\.py: file names must be UTF-8"),
        (directory_name_that_is_not_utf8, r"^caf\\xe9: file names must be UTF-8"),
        (backslash, r"no backslash or control character"),
        (line_feed, r"^'a\\nb': no backslash or control character"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_what_can_not_be_captured(tree: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(tree)
    with pytest.raises(ProgramError, match=message):
        Program.from_directory(tree)


def test_sockets_are_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)  # the full path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("door")
        with pytest.raises(ProgramError, match=r"^door is a socket"):
            Program.from_directory(tree)


@pytest.mark.parametrize(
    ("kind", "words"),
    [(stat.S_IFCHR, "a character device"), (stat.S_IFBLK, "a block device")],
)
def test_devices_are_refused(
    tree: Path, monkeypatch: pytest.MonkeyPatch, kind: int, words: str
) -> None:
    real = os.stat

    def device(path: Any, **options: Any) -> os.stat_result:
        found = real(path, **options)
        return os.stat_result((kind, *found[1:])) if path == "weights.bin" else found

    monkeypatch.setattr(os, "stat", device)
    with pytest.raises(ProgramError, match=f"^weights.bin is {words}"):
        Program.from_directory(tree)


def test_hard_links_with_both_ends_inside_are_fine(tree: Path) -> None:
    (tree / "lib" / "again.bin").hardlink_to(tree / "weights.bin")
    files = Program.from_directory(tree).files
    assert files["lib/again.bin"] == files["weights.bin"] == bytes(range(256))


def test_equal_names_in_different_directories_do_not_clash(tree: Path) -> None:
    (tree / "other").mkdir()
    (tree / "other" / "NET.py").write_bytes(b"")
    assert "other/NET.py" in Program.from_directory(tree).files


@pytest.mark.parametrize("suffix", ["", "/", "/."])
def test_a_linked_root_is_refused(tree: Path, tmp_path: Path, suffix: str) -> None:
    (tmp_path / "link").symlink_to(tree)
    with pytest.raises(ProgramError, match="is a symbolic link: expected a directory"):
        Program.from_directory(f"{tmp_path}/link{suffix}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "does not exist: expected a directory"),
        ("tree/policy.py", r"readable directory.*: expected a directory"),
        ("tree/policy.py/x", r"readable directory.*: expected a directory"),
    ],
)
@pytest.mark.usefixtures("tree")
def test_roots_that_are_no_directories(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        Program.from_directory(tmp_path / name)
    assert name in str(caught.value)


@pytest.mark.parametrize("depth", [64, 65])
def test_nesting_has_a_limit(tree: Path, depth: int) -> None:
    deep = tree.joinpath(*["d"] * depth)
    deep.mkdir(parents=True)
    (deep / "leaf").write_bytes(b"")
    if depth == 64:
        assert "/".join(["d"] * 64 + ["leaf"]) in Program.from_directory(tree).files
    else:
        with pytest.raises(ProgramError, match=r"^d/d/.* is nested more than 64 directories deep"):
            Program.from_directory(tree)


# --------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (ProgramLimits(max_files=2), r"more than 2 files: weights\.bin is one too many"),
        (
            ProgramLimits(max_total_bytes=256 + 6 + len(SOURCE) - 1),
            r"more than \d+ bytes in total, reached at weights\.bin",
        ),
        (
            ProgramLimits(max_file_bytes=255),
            r"^weights\.bin has 256 bytes, at most 255 are allowed",
        ),
    ],
)
def test_limits_are_exact(tree: Path, limits: ProgramLimits, message: str) -> None:
    exact = ProgramLimits(3, 256 + 6 + len(SOURCE), 256)
    assert dict(Program.from_directory(tree, exact).files) == FILES
    with pytest.raises(ProgramError, match=message):
        Program.from_directory(tree, limits)


def test_default_limits() -> None:
    assert ProgramLimits() == ProgramLimits(1_000, 64 * 2**20, 16 * 2**20)


def test_ignored_files_do_not_count(tree: Path) -> None:
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "large").write_bytes(bytes(10_000))
    assert len(read_tree(tree, ProgramLimits(3, 1_000, 256))) == 3


# ------------------------------------------------------------------ while it is read


def during_the_read(
    monkeypatch: pytest.MonkeyPatch, target: Path, change: Callable[[Path], None]
) -> None:
    """Make `change` happen after `target` was opened and its version taken."""
    real, state = os.fstat, {"done": False}

    def fstat(fd: int) -> os.stat_result:
        info = real(fd)
        if info.st_ino == inode and not state["done"]:
            state["done"] = True
            change(target)
        return info

    inode = target.stat().st_ino
    monkeypatch.setattr(os, "fstat", fstat)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shrink(path: Path) -> None:
    os.truncate(path, 3)


def rewrite_with_equal_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [grow, shrink, rewrite_with_equal_size_and_time])
def test_files_that_change_while_they_are_read(
    tree: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    time.sleep(0.02)  # file times move in ticks of a few milliseconds
    during_the_read(monkeypatch, tree / "weights.bin", change)
    with pytest.raises(ProgramError, match=r"^weights\.bin changed while it was being read"):
        Program.from_directory(tree)
    assert "weights.bin" in Program.from_directory(tree).files


def before_it_is_opened(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[], None]
) -> None:
    """Make `change` happen after the entry `name` was listed, before it is opened."""
    real, state = os.stat, {"done": False}

    def stat_then_change(path: Any, **options: Any) -> os.stat_result:
        info = real(path, **options)
        if path == name and options.get("dir_fd") is not None and not state["done"]:
            state["done"] = True
            change()
        return info

    monkeypatch.setattr(os, "stat", stat_then_change)


def test_files_that_become_links(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap() -> None:
        (tree / "weights.bin").unlink()
        (tree / "weights.bin").symlink_to("/etc/passwd")

    before_it_is_opened(monkeypatch, "weights.bin", swap)
    with pytest.raises(ProgramError, match=r"^weights\.bin can't be read"):
        Program.from_directory(tree)


def test_files_that_become_fifos_do_not_hang(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap() -> None:
        (tree / "weights.bin").unlink()
        os.mkfifo(tree / "weights.bin")

    before_it_is_opened(monkeypatch, "weights.bin", swap)
    with pytest.raises(ProgramError, match=r"^weights\.bin is a FIFO"):
        Program.from_directory(tree)


def test_files_that_disappear_after_the_listing(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_it_is_opened(monkeypatch, "policy.py", (tree / "weights.bin").unlink)
    with pytest.raises(ProgramError, match=r"^weights\.bin "):
        Program.from_directory(tree)


def test_what_disappeared_is_named_by_its_path(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "lib" / "a.py").write_bytes(b"")
    before_it_is_opened(monkeypatch, "a.py", (tree / "lib" / "net.py").unlink)
    with pytest.raises(ProgramError, match=r"^lib/net\.py "):
        Program.from_directory(tree)


def test_files_that_disappear_before_they_are_opened(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_it_is_opened(monkeypatch, "weights.bin", (tree / "weights.bin").unlink)
    with pytest.raises(ProgramError, match=r"^weights\.bin can't be read"):
        Program.from_directory(tree)


def test_directories_that_become_links(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def swap() -> None:
        (tree / "lib").rename(tree.parent / "moved")
        (tree / "lib").symlink_to("/etc")

    before_it_is_opened(monkeypatch, "lib", swap)
    with pytest.raises(ProgramError, match=r"^lib\b"):
        Program.from_directory(tree)


def test_directories_that_can_not_be_opened(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def deny(path: Any, *arguments: Any, **options: Any) -> int:
        if path == "lib":  # root may open everything, so say no in its place
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(ProgramError, match=r"^lib\b"):
        Program.from_directory(tree)


def test_no_descriptor_is_left_open(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    closed: list[int] = []
    real_open, real_close = os.open, os.close

    def note_open(*arguments: Any, **options: Any) -> int:
        opened.append(real_open(*arguments, **options))
        return opened[-1]

    def note_close(fd: int) -> None:
        closed.append(fd)
        real_close(fd)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "close", note_close)
    (tree / "lib" / "pipe").symlink_to("x")
    with pytest.raises(ProgramError):
        Program.from_directory(tree)
    (tree / "lib" / "pipe").unlink()
    Program.from_directory(tree)
    assert len(opened) > 4
    assert len(closed) == 4  # root and `lib`, twice; files close themselves
    monkeypatch.undo()
    inside = [fd.resolve() for fd in Path("/proc/self/fd").iterdir()]
    assert not [path for path in inside if path.is_relative_to(tree.resolve())]
