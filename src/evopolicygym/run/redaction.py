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
    r"(?:^|[_\-.])(?:key|token|secrets?|pass|pwd|passw(?:or)?ds?|passphrase"
    r"|credentials?|auth|authorization|cookies?|bearer|pat)(?:$|[_\-.\d])"
    r"|[_\-.]keys$|apikeys?|token$|secret|password|.(?:key|pass|pwd)$",
    re.IGNORECASE,
)
_NO_SECRETS = frozenset({"pwd", "oldpwd", "monkey", "turkey", "hotkey", "bypass", "compass"})
"""Names that only look like one."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_ASSIGNED = re.compile(r"""(?<![\w.\-])([A-Za-z_][\w.\-]*)["']?\s*[:=]\s*["']([^"'\n]+)["']""")
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
    name = _HUMP.sub("_", name.lstrip("-"))  # privateKey
    return name.lower() not in _NO_SECRETS and _SECRET_NAME.search(name) is not None


def secrets_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values in an environment that must not be recorded, with their names."""
    found = {value: name for name, value in environment.items() if is_secret_name(name)}
    for name, value in environment.items():  # e.g. HTTPS_PROXY=http://user:password@host
        found |= {match[2]: name for match in _IN_URL.finditer(value)}
    # White space around a value protects nothing, and a line feed ends a line of a dialogue.
    stripped = {value.strip(): name for value, name in found.items()}
    return {value: name for value, name in stripped.items() if len(value) >= _MIN_SECRET}


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
    written = [secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]]
    return list(dict.fromkeys([*written, *(text.replace("/", "\\/") for text in written)]))


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
        self._words = dict(self.pairs)
        self._pattern = re.compile("|".join(re.escape(hidden) for hidden, _ in self.pairs))

    def text(self, text: str) -> str:
        """Return `text` without them."""
        return self._pattern.sub(lambda match: self._words[match[0]], text) if self.pairs else text

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
        self._words = dict(pairs)
        self._pattern = re.compile(b"|".join(re.escape(hidden) for hidden, _ in pairs))
        self._longest = max((len(hidden) for hidden, _ in pairs), default=0)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take the next piece; return what can be passed on."""
        return self._pass_on(self._held + data, last=False) if self._words else data

    def end(self) -> bytes:
        """Return what was held back."""
        return self._pass_on(self._held, last=True)

    def _pass_on(self, data: bytes, *, last: bool) -> bytes:
        passed: list[bytes] = []
        start = 0
        while start < len(data) and self._words:
            match = self._pattern.search(data, start)
            begun = len(data) if last else self._begun(data, start)
            if match is None or begun <= match.start():
                break
            passed += [data[start : match.start()], self._words[match[0]]]
            start = match.end()
        cut = len(data) if last else self._begun(data, start)
        passed.append(data[start:cut])
        self._held = data[cut:]
        return b"".join(passed)

    def _begun(self, data: bytes, start: int) -> int:
        """Return where the beginning of a secret, at the end of `data`, begins."""
        for place in range(max(start, len(data) - self._longest + 1), len(data)):
            rest = data[place:]
            if any(len(hidden) > len(rest) and hidden.startswith(rest) for hidden in self._words):
                return place
        return len(data)


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
        option = not hide_next and not equals and argument.startswith("-")
        hide_next = option and is_secret_name(argument)
    return shown


def _without_credentials(text: str) -> str:
    for value in secrets_in(text):
        text = text.replace(value, "[redacted]")
    text = _IN_URL.sub("[redacted]", text)
    known = _IN_HEADER.sub(r"\1 [redacted]", text)
    name, colon, _ = text.partition(": ")
    if known == text and colon and re.fullmatch(r"[\w\-]+", name) and is_secret_name(name):
        known = f"{name}: [redacted]"  # a header
    text = known
    return _KEY_LIKE.sub("[redacted]", text)
