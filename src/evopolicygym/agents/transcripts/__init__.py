"""Readers of what coding agents leave behind: one module a client, and what they share.

A reader never trusts its input: lines may be cut, foreign, huge or missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evopolicygym.run.agent import AgentErrorKind

__all__ = ["amount", "cost", "error_kind", "events", "mapping", "session", "text"]

_AUTH = re.compile(
    r"(?i)\b40[13]\b|unauthori[sz]ed|forbidden|auth(?!or)|api key|log ?in\b|credential"
)
_MAX_LINE_BYTES = 2**25
_MAX_FILE_BYTES = 2**30
_SESSION_ID = re.compile(r"[A-Za-z0-9_][\w.\-]{0,199}", re.ASCII)

_REQUEST = re.compile(
    r"(?i)\b(?:400|413|422)\b|too (?:long|large|many tokens)|context.{0,3}(?:length|window)"
)
_RATE = re.compile(r"(?i)\b429\b|rate.?limit|too many requests|usage limit|quota")


def events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, a line each; other lines are passed over.

    Lines end with a line feed and nothing else: U+2028 and U+0085 are content.
    """
    if not path.is_file():  # a pipe would be waited for
        return
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        for line in iter(lambda: file.readline(_MAX_LINE_BYTES), b""):
            if file.tell() > _MAX_FILE_BYTES:
                return
            if not line.lstrip().startswith(b"{"):
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def text(value: object) -> str | None:
    """Return a string that says something, well-formed, or None."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def session(value: object) -> str | None:
    """Return a client's name for a session, or None: it goes back into a command line."""
    return value if isinstance(value, str) and _SESSION_ID.fullmatch(value) else None


def amount(value: object) -> int:
    """Return a number of tokens or calls; what is no such number counts nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < 2**53 else 0


def cost(value: object) -> float | None:
    """Return a cost, USD, or None where there is no usable number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e9 else None


def error_kind(message: str) -> AgentErrorKind:
    """Return which kind of provider error a client's message tells of."""
    if _RATE.search(message):
        return AgentErrorKind.RATE_LIMIT
    if _AUTH.search(message):
        return AgentErrorKind.AUTH
    if _REQUEST.search(message):
        return AgentErrorKind.REQUEST
    return AgentErrorKind.PROVIDER
