"""Keeping secrets and Host paths out of a record, by name and by content."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Redactor", "StreamRedactor", "is_secret_name", "redacted_argv", "secrets_of"]

_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_\-.])(?:api_?key|key|token|secret|passw(?:or)?d|passphrase|credentials?|auth"
    r"|cookie|bearer|pat)(?:$|[_\-.\d])|apikey|token$|secret|password"
)
_MIN_SECRET = 6
"""A shorter value would hit ordinary text; nothing that short protects anything."""


def is_secret_name(name: str) -> bool:
    """Return whether a variable or an option of this name holds a secret."""
    return _SECRET_NAME.search(name.lstrip("-")) is not None


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values in an environment that must not be recorded, with their names."""
    return {
        value: name
        for name, value in environment.items()
        if is_secret_name(name) and len(value) >= _MIN_SECRET
    }


def _spellings(secret: str) -> list[str]:
    """Return a secret as it may stand in text and in JSON."""
    return list(dict.fromkeys([secret, json.dumps(secret)[1:-1], secret.replace("/", "\\/")]))


class Redactor:
    """Replaces secrets, and whatever else must not be recorded, in text and in JSON values.

    Args:
        secrets: Secret value → the name it is known by.
        places: Path of the Host → what to write for it.
    """

    def __init__(self, secrets: Mapping[str, str], places: Mapping[str, str] | None = None) -> None:
        pairs = [
            (spelling, f"[redacted {name}]")
            for secret, name in secrets.items()
            for spelling in _spellings(secret)
        ]
        pairs += (places or {}).items()
        self.pairs: list[tuple[str, str]] = sorted(pairs, key=lambda pair: -len(pair[0]))

    def text(self, text: str) -> str:
        """Return `text` without them."""
        for hidden, word in self.pairs:
            text = text.replace(hidden, word)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value without them; values under a secret name go as a whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(str(key)): "[redacted]"
                if is_secret_name(str(key)) and isinstance(item, str) and item
                else self.value(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def stream(self) -> StreamRedactor:
        """Return one for a stream of bytes that comes in pieces."""
        return StreamRedactor([(hidden.encode(), word.encode()) for hidden, word in self.pairs])


class StreamRedactor:
    """Redacts a stream of bytes, also where a secret comes in two pieces.

    Args:
        pairs: What to replace and by what, the longest first.
    """

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._pairs = pairs
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next piece; return what can be passed on."""
        data = self._held + data
        for hidden, word in self._pairs:
            data = data.replace(hidden, word)
        held = max((_begun(data, hidden) for hidden, _ in self._pairs), default=0)
        cut = len(data) - held
        self._held = data[cut:]
        return data[:cut]

    def end(self) -> bytes:
        """Return what was held back."""
        held, self._held = self._held, b""
        return held


def _begun(data: bytes, hidden: bytes) -> int:
    """Return how many bytes at the end of `data` may be the beginning of `hidden`."""
    for size in range(min(len(data), len(hidden) - 1), 0, -1):
        if data.endswith(hidden[:size]):
            return size
    return 0


def redacted_argv(argv: Sequence[str], redactor: Redactor) -> list[str]:
    """Return a command line for the record.

    The value of an option with a secret name goes, written as `--api-key VALUE`, `--api-key=VALUE`
    or `NAME=VALUE`.
    """
    shown: list[str] = []
    hide_next = False
    for argument in argv:
        name, equals, value = argument.partition("=")
        if hide_next and not argument.startswith("-"):
            shown.append("[redacted]")
        elif equals and value and re.fullmatch(r"[\w.\-]+", name) and is_secret_name(name):
            shown.append(f"{name}=[redacted]")
        else:
            shown.append(redactor.text(argument))
        hide_next = not equals and argument.startswith("-") and is_secret_name(argument)
    return shown
