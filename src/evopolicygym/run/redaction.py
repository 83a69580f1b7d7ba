"""Keeping secrets and Host paths out of a record, by name and by content."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "Redactor",
    "StreamRedactor",
    "is_secret_name",
    "one_line",
    "redacted_argv",
    "secrets_in",
    "secrets_of",
]

_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_\-.])(?:api_?key|key|token|secret|pass|pwd|passw(?:or)?d|passphrase|credentials?"
    r"|auth|authorization|cookie|bearer|pat)(?:$|[_\-.\d])|apikey|token$|secret|password"
)
_SECRET_ENDING = re.compile(r"(?:KEY|PASS|PWD)$")
"""Names of variables that run together, such as `MYKEY`."""

_ASSIGNED = re.compile(r"""["']?([A-Za-z_][\w.\-]*)["']?\s*[:=]\s*["']([^"'\n]+)["']""")
"""`name = "value"` in JSON, TOML and the like."""

_IN_URL = re.compile(r"(?<=://)([^/@\s:]*):([^/@\s]+)(?=@)")
_IN_HEADER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=\-]{6,}")
_KEY_LIKE = re.compile(r"\b(?:sk|pk|ghp|gho|hf|xox[abp])[-_][\w\-]{8,}")

_MIN_SECRET = 6
"""A shorter value would hit ordinary text; nothing that short protects anything."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: str, limit: int) -> str:
    """Return text that a person may be shown: one line, no control characters, cut to `limit`."""
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= limit else f"{text[: limit - 2]} …"


def is_secret_name(name: str) -> bool:
    """Return whether a variable or an option of this name holds a secret."""
    name = name.lstrip("-")
    return _SECRET_NAME.search(name) is not None or _SECRET_ENDING.search(name) is not None


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values in an environment that must not be recorded, with their names."""
    found = {value: name for name, value in environment.items() if is_secret_name(name)}
    for name, value in environment.items():  # e.g. HTTPS_PROXY=http://user:password@host
        found |= {match[2]: name for match in _IN_URL.finditer(value)}
    return {value: name for value, name in found.items() if len(value) >= _MIN_SECRET}


def secrets_in(text: str) -> dict[str, str]:
    """Return the values under secret names in a file of settings, with their names."""
    return {
        match[2]: match[1]
        for match in _ASSIGNED.finditer(text)
        # Settings also name variables, e.g. `env_key = "MY_API_KEY"`: no secrets.
        if is_secret_name(match[1]) and len(match[2]) >= _MIN_SECRET and not match[2].isupper()
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
        # Variables of the environment may hold any bytes.
        return StreamRedactor([(os.fsencode(hidden), word.encode()) for hidden, word in self.pairs])


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
    or `NAME=VALUE`, and so does what looks like a credential inside an argument.
    """
    shown: list[str] = []
    hide_next = False
    for argument in argv:
        name, equals, value = argument.partition("=")
        if hide_next:
            shown.append("[redacted]")
        elif equals and value and re.fullmatch(r"[\w.\-]+", name) and is_secret_name(name):
            shown.append(f"{name}=[redacted]")
        else:
            shown.append(_without_credentials(redactor.text(argument)))
        hide_next = not equals and argument.startswith("-") and is_secret_name(argument)
    return shown


def _without_credentials(text: str) -> str:
    for value in secrets_in(text):
        text = text.replace(value, "[redacted]")
    text = _IN_URL.sub("[redacted]", text)
    text = _IN_HEADER.sub(r"\1 [redacted]", text)
    return _KEY_LIKE.sub("[redacted]", text)
