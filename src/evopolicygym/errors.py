"""Every error that EvoPolicyGym raises on purpose, in one tree.

A person reads these messages: each says what was wrong, where, and what would be right.

```
EvoPolicyGymError
├── ConfigurationError        bad input: usage, configuration, files      (CLI exit code 2)
│   ├── UnknownEnvironmentError
│   ├── ProgramError          a directory that can't become a Program
│   └── SelectorError         an Episode selector that can't be charged
├── BenchmarkError            a Benchmark broke its contract
├── ExecutionError            the Host can't keep its promises             (CLI exit code 1)
├── RecordError               a record is missing, damaged or of another version
└── SessionError              a session request was refused; carries a stable code
```
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "BenchmarkError",
    "ConfigurationError",
    "EvoPolicyGymError",
    "ExecutionError",
    "ProgramError",
    "RecordError",
    "SelectorError",
    "SessionError",
    "UnknownEnvironmentError",
    "near_miss",
]


class EvoPolicyGymError(Exception):
    """Base of every deliberate error."""


class ConfigurationError(EvoPolicyGymError):
    """An input can't be used; nothing was written and nothing was charged."""


class UnknownEnvironmentError(ConfigurationError):
    """No Benchmark has the requested id."""


class ProgramError(ConfigurationError):
    """A directory can't be captured as a Program; the message names the offending path."""


class SelectorError(ConfigurationError):
    """An Episode selector is malformed or reaches outside what may be charged."""


class BenchmarkError(EvoPolicyGymError):
    """A Benchmark returned something that its contract forbids."""


class ExecutionError(EvoPolicyGymError):
    """The Host can't run policies here, or can't keep a promise it made."""


class RecordError(EvoPolicyGymError):
    """A Run's record can't be read or written."""


class SessionError(EvoPolicyGymError):
    """A session request was refused.

    Args:
        code: Stable machine-readable code, see `docs/protocol.md` ("Session errors").
        message: What was wrong and what would be right.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def near_miss(word: str, known: Iterable[str], *, count: int = 3) -> str:
    """Return `" Did you mean …?"` for the closest known words, or an empty string."""
    close = get_close_matches(word, list(known), n=count, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
