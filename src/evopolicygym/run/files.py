"""Writing a record: atomic files, durable appends."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evopolicygym.errors import RecordError
from evopolicygym.strict_json import dumps, loads, pretty

__all__ = ["AppendOnlyFile", "read_json", "read_lines", "write_atomically", "write_json"]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part.

    Raises:
        RecordError: It can't be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecordError(f"{path} can't be written: {error.strerror}") from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write strict, indented JSON atomically."""
    write_atomically(path, pretty(value))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        RecordError: Missing, unreadable or not a JSON object.
    """
    try:
        value = loads(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise RecordError(f"{path} holds {type(value).__name__}, expected a JSON object")
    return value


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON-lines file; a last line without its newline was never completed and is left out.

    Lines end with a line feed and nothing else: U+2028 and the like are content.

    Raises:
        RecordError: Missing, unreadable or damaged before its last line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path} can't be read: {error.strerror}") from error
    lines = data.split(b"\n")[:-1]
    values: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            value = loads(line)
        except ValueError as error:
            raise RecordError(f"{path} is damaged at line {number}: {error}") from error
        if not isinstance(value, dict):
            raise RecordError(f"{path} is damaged at line {number}: expected a JSON object")
        values.append(value)
    return values


class AppendOnlyFile:
    """A JSON-lines file that is on disk when `append` returns.

    Args:
        path: The file; created if missing. A torn last line is cut off first.

    Raises:
        RecordError: It can't be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            existing = path.read_bytes() if path.exists() else b""
            keep = existing.rfind(b"\n") + 1
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.ftruncate(self._fd, keep)
            os.lseek(self._fd, keep, os.SEEK_SET)
            os.fsync(self._fd)
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise RecordError(f"{path} can't be opened: {error.strerror}") from error

    def append(self, value: Mapping[str, Any]) -> None:
        """Write one line and wait until it is on disk."""
        data = dumps(value) + b"\n"
        with self._lock:
            if self._fd < 0:
                raise RecordError(f"{self._path} is closed")
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
                os.fsync(self._fd)
            except OSError as error:
                raise RecordError(f"{self._path} can't be written: {error.strerror}") from error

    def close(self) -> None:
        """Close the file; a later `append` is an error."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
