"""The ledger: an append-only account of every Episode charged or refunded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from evopolicygym.errors import RecordError
from evopolicygym.run.files import AppendOnlyFile, read_lines
from evopolicygym.run.models import LEDGER_SCHEMA

__all__ = ["Ledger", "episodes_used"]


class Ledger:
    """Keeps a Run's Episode budget; every line is on disk before the call returns.

    Args:
        path: `ledger.jsonl`; an existing file is continued.
        budget: Episodes that may be in use at a time.

    Raises:
        RecordError: The file can't be opened, or does not add up.
    """

    def __init__(self, path: Path, *, budget: int) -> None:
        self.budget = budget
        entries = read_lines(path) if path.exists() else []
        self.used = _replay(entries, path)
        self._sequence = len(entries)
        self._file = AppendOnlyFile(path)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def remaining(self) -> int:
        """Episodes that can still be charged."""
        return self.budget - self.used

    def charge(self, submission_id: str, request_id: str, indices: Sequence[int]) -> None:
        """Charge one unit an index.

        Raises:
            ValueError: It would exceed the budget; nothing is charged.
            RecordError: The line could not be written.
        """
        if len(indices) > self.remaining:
            raise ValueError(f"{len(indices)} Episodes do not fit into {self.remaining}")
        self._append("charge", submission_id, request_id, indices, len(indices))

    def refund(self, submission_id: str, request_id: str, indices: Sequence[int]) -> None:
        """Give back the units of Episodes that met a Host fault.

        Raises:
            ValueError: More would be refunded than was charged.
            RecordError: The line could not be written.
        """
        if len(indices) > self.used:
            raise ValueError(f"{len(indices)} Episodes were never charged")
        self._append("refund", submission_id, request_id, indices, -len(indices))

    def _append(
        self, kind: str, submission_id: str, request_id: str, indices: Sequence[int], change: int
    ) -> None:
        self._file.append(
            {
                "schema": LEDGER_SCHEMA,
                "sequence": self._sequence,
                "time": datetime.now(UTC).isoformat(),
                "kind": kind,
                "submission_id": submission_id,
                "request_id": request_id,
                "episode_indices": list(indices),
                "episodes_used": self.used + change,
            }
        )
        self._sequence += 1
        self.used += change


def _replay(entries: Sequence[dict[str, object]], path: Path) -> int:
    used = 0
    for number, entry in enumerate(entries):
        indices = entry.get("episode_indices")
        sign = {"charge": 1, "refund": -1}.get(str(entry.get("kind")))
        known = entry.get("schema") == LEDGER_SCHEMA and entry.get("sequence") == number
        if not isinstance(indices, list) or sign is None or not known:
            raise RecordError(f"{path}, line {number + 1}: not a ledger entry in sequence")
        used += sign * len(indices)
        if used < 0 or entry.get("episodes_used") != used:
            raise RecordError(
                f"{path}, line {number + 1}: says {entry.get('episodes_used')} Episodes used, "
                f"the entries add up to {used}"
            )
    return used


def episodes_used(path: Path) -> int:
    """Recompute from disk how many Episodes a Run has used.

    Raises:
        RecordError: The ledger is missing or does not add up.
    """
    return _replay(read_lines(path), path)
