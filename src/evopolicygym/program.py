"""Programs: immutable, content-addressed snapshots of a policy directory."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from evopolicygym.errors import ProgramError
from evopolicygym.policy import POLICY_ABI

__all__ = ["ENTRYPOINT", "IGNORED_NAMES", "Program", "ProgramLimits", "read_tree"]

ENTRYPOINT = "policy.py"
"""The file that defines `make_policy(context)`."""

IGNORED_NAMES = frozenset(
    {
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
    }
)
"""Version control, caches and editor litter: never part of a snapshot."""

_IGNORED_SUFFIXES = (".pyc", ".pyo")


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Upper bounds of a snapshot.

    Attributes:
        max_files: Number of files.
        max_total_bytes: Sum of the file sizes, bytes.
        max_file_bytes: Size of one file, bytes.
    """

    max_files: int = 1_000
    max_total_bytes: int = 64 * 2**20
    max_file_bytes: int = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Program:
    """Immutable snapshot of one policy directory; detached from the directory it came from.

    Attributes:
        files: Sorted relative POSIX paths → contents.
    """

    files: Mapping[str, bytes]
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        ordered = MappingProxyType({path: bytes(self.files[path]) for path in sorted(self.files)})
        if ENTRYPOINT not in ordered:
            raise ProgramError(f"{ENTRYPOINT} is missing: it must define make_policy(context)")
        for path in ordered:
            if not all(part not in ("", ".", "..") for part in path.split("/")) or "\0" in path:
                raise ProgramError(f"{path!r} is no relative path below the Program's directory")
        source = ordered[ENTRYPOINT]
        # A star import may bind the name without spelling it; anything else has to spell it.
        if not re.search(rb"\bmake_policy\b|\bimport\s*\*", source):
            raise ProgramError(
                f"{ENTRYPOINT} does not define make_policy: add `def make_policy(context): …` "
                "returning an object with act(observation)"
            )
        object.__setattr__(self, "files", ordered)
        object.__setattr__(self, "digest", _digest(ordered))

    def __reduce__(self) -> tuple[type[Program], tuple[dict[str, bytes]]]:
        return Program, (dict(self.files),)

    def __hash__(self) -> int:
        return hash(self.digest)

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        limits: ProgramLimits = ProgramLimits(),
    ) -> Program:
        """Capture a directory.

        Args:
            path: The policy directory; must hold `policy.py` at its top.
            limits: Upper bounds.

        Raises:
            ProgramError: The directory can't be captured; names the offending path.
        """
        return cls(read_tree(path, limits))

    @property
    def entrypoint(self) -> str:
        """Path of the file that defines `make_policy`."""
        return ENTRYPOINT

    @property
    def policy_abi(self) -> int:
        """Version of the policy contract this snapshot is for."""
        return POLICY_ABI

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self.files)

    @property
    def total_bytes(self) -> int:
        """Sum of the file sizes, bytes."""
        return sum(map(len, self.files.values()))

    def read_bytes(self, path: str) -> bytes:
        """Return the content of one file.

        Raises:
            ProgramError: The snapshot has no such file.
        """
        try:
            return self.files[path]
        except KeyError:
            raise ProgramError(f"this Program has no file {path!r}") from None

    def write_to(self, directory: str | os.PathLike[str]) -> None:
        """Write all files below `directory`, which is created and must be empty.

        Raises:
            ProgramError: The directory exists and is not empty.
        """
        root = Path(directory)
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise ProgramError(f"{root} is not empty: write a Program to a fresh directory")
        for name, content in self.files.items():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over entry point, ABI version and, sorted by path, each length-prefixed file."""
    state = hashlib.sha256()
    for part in (b"evopolicygym.program", ENTRYPOINT.encode(), str(POLICY_ABI).encode()):
        state.update(len(part).to_bytes(8, "big") + part)
    for path, content in files.items():
        name = path.encode()
        state.update(len(name).to_bytes(8, "big") + name)
        state.update(len(content).to_bytes(8, "big") + content)
    return state.hexdigest()


def read_tree(path: str | os.PathLike[str], limits: ProgramLimits) -> dict[str, bytes]:
    """Read a directory of regular files without following anything out of it.

    Args:
        path: Directory; must not itself be a symbolic link.
        limits: Upper bounds.

    Returns:
        Relative POSIX paths → contents.

    Raises:
        ProgramError: A symbolic link, FIFO, device or socket; a hard link to a file outside; a
            file that changed while it was read; names that clash by case or are not UTF-8; a
            limit. The message names the path.
    """
    root = os.fspath(path)
    while root.endswith(("/", "/.")) and root.strip("/."):
        root = root[:-1]  # "link/" and "link/." would be followed
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise ProgramError(f"{root} does not exist: expected a directory") from None
    except OSError as error:
        link = error.errno in (errno.ELOOP, errno.ENOTDIR) and Path(root).is_symlink()
        kind = "a symbolic link" if link else f"not a readable directory ({error.strerror})"
        raise ProgramError(f"{root[:200]} is {kind}: expected a directory") from None
    except ValueError as error:
        raise ProgramError(f"{root[:200]!a} is no path: {error}") from None
    files: dict[str, bytes] = {}
    links: dict[tuple[int, int], list[str]] = {}
    expected_links: dict[tuple[int, int], int] = {}
    folded: dict[str, str] = {}
    total = 0
    try:
        for name, entry, parent in _walk(directory, ""):
            if len(files) >= limits.max_files:
                raise ProgramError(f"more than {limits.max_files} files: {name} is one too many")
            content, info = _read_file(parent, entry, name, limits.max_file_bytes)
            total += len(content)
            if total > limits.max_total_bytes:
                raise ProgramError(
                    f"more than {limits.max_total_bytes} bytes in total, reached at {name}"
                )
            if info.st_nlink > 1:
                inode = (info.st_dev, info.st_ino)
                links.setdefault(inode, []).append(name)
                expected_links[inode] = info.st_nlink
            for prefix in _prefixes(name):
                clash = folded.setdefault(prefix.casefold(), prefix)
                if clash != prefix:
                    raise ProgramError(f"{prefix} and {clash} differ only by case: rename one")
            files[name] = content
    except OSError as error:
        what = os.fsdecode(error.filename or "a file")
        raise ProgramError(f"{what} can't be read: {error.strerror}; submit again") from None
    finally:
        os.close(directory)
    for inode, names in links.items():
        if len(names) != expected_links[inode]:
            raise ProgramError(
                f"{names[0]} is a hard link to a file outside the directory: copy the file instead"
            )
    return files


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split("/")
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


_MAX_DEPTH = 64
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def _walk(directory: int, prefix: str) -> Iterator[tuple[str, str, int]]:
    """Yield `(relative path, entry name, directory fd)` of every file, sorted by name."""
    if prefix.count("/") > _MAX_DEPTH:
        raise ProgramError(f"{prefix} is nested more than {_MAX_DEPTH} directories deep")
    with os.scandir(directory) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name in IGNORED_NAMES or entry.name.endswith(_IGNORED_SUFFIXES):
            continue
        name = prefix + entry.name
        try:
            name.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(name).decode("utf-8", "backslashreplace")
            raise ProgramError(f"{shown}: file names must be UTF-8") from None
        if "\\" in entry.name or any(ord(char) < 32 for char in entry.name):
            raise ProgramError(f"{name!r}: no backslash or control character in file names")
        try:
            mode = os.stat(entry.name, dir_fd=directory, follow_symlinks=False).st_mode
            child = (
                os.open(entry.name, _OPEN_DIRECTORY, dir_fd=directory) if stat.S_ISDIR(mode) else -1
            )
        except OSError as error:
            raise ProgramError(f"{name} can't be read: {error.strerror}; submit again") from None
        if child >= 0:
            try:
                yield from _walk(child, name + "/")
            finally:
                os.close(child)
        elif stat.S_ISREG(mode):
            yield name, entry.name, directory
        else:
            raise ProgramError(f"{name} is {_kind(mode)}: only regular files can be captured")


def _kind(mode: int) -> str:
    for test, word in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    ):
        if test(mode):
            return word
    return "not a regular file"


def _read_file(parent: int, entry: str, name: str, limit: int) -> tuple[bytes, os.stat_result]:
    # O_NONBLOCK: should the entry have become a FIFO since it was listed, open must not hang.
    try:
        fd = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    except OSError as error:
        raise ProgramError(f"{name} can't be read: {error.strerror}") from None
    with os.fdopen(fd, "rb") as file:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise ProgramError(f"{name} is {_kind(before.st_mode)}: expected a regular file")
        if before.st_size > limit:
            raise ProgramError(f"{name} has {before.st_size} bytes, at most {limit} are allowed")
        content = file.read(limit + 1)
        after = os.fstat(fd)
    if len(content) != before.st_size or _version(before) != _version(after):
        raise ProgramError(f"{name} changed while it was being read: submit again")
    return content, before


def _version(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns
