"""Playing the cells of a suite on this machine: so many at once, each in its own process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evopolicygym.errors import ConfigurationError, EvoPolicyGymError, RecordError
from evopolicygym.execution.process import available_cores
from evopolicygym.execution.process_tree import become_subreaper, children, kill_children
from evopolicygym.run.files import write_json
from evopolicygym.run.models import TerminalReason
from evopolicygym.run.outcome import DISPOSITIONS
from evopolicygym.run.record import now
from evopolicygym.strict_json import loads
from evopolicygym.suite.cell import RESULT
from evopolicygym.suite.cells import Cell
from evopolicygym.suite.states import new_attempt, set_aside, write_attempt

__all__ = ["CellEvent", "exclusive", "play_cells"]

_STOP_SECONDS = 8.0
"""How long an interrupted cell has to write its record; a suite ends within 10 s."""
_BACKOFF_SECONDS = 15.0
_TAIL_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class CellEvent:
    """Something that happened to a cell.

    Attributes:
        cell: Its name.
        kind: `cell_started`, `cell_ended`, `cell_retry`, or a Run's event.
        data: JSON values.
    """

    cell: str
    kind: str
    data: Mapping[str, Any]


@dataclass
class _Running:
    cell: Cell
    attempt: Path
    process: subprocess.Popen[bytes]
    tries: int
    result: Mapping[str, Any] | None = None


@dataclass(order=True)
class _Waiting:
    not_before: float
    cell: Cell = field(compare=False)
    tries: int = field(compare=False, default=0)


@contextlib.contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Hold a root, so that no other process plays in it.

    Raises:
        ConfigurationError: Another one does.
        RecordError: The root can't be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = (root / ".lock").open("w")
    except OSError as error:
        raise RecordError(f"{root} can't be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"another process plays in {root}: wait for it") from None
        yield


def play_cells(
    root: Path,
    cells: Sequence[Cell],
    *,
    jobs: int,
    retries: int = 1,
    report: Callable[[CellEvent], None] = lambda _: None,
) -> None:
    """Play cells; one that fails does not stop the others.

    Args:
        root: The suite's root; what has a record there is not looked at.
        cells: What to play.
        jobs: Cells at once, >= 1.
        retries: How often a cell is played again whose end has `retry` in the table of outcomes, or
            whose process crashed.
        report: Gets every event, in this thread.

    Raises:
        KeyboardInterrupt: Interrupted; every cell was ended before.
    """
    _Scheduler(root, cells, jobs, retries, report).run()


class _Scheduler:
    def __init__(
        self,
        root: Path,
        cells: Sequence[Cell],
        jobs: int,
        retries: int,
        report: Callable[[CellEvent], None],
    ) -> None:
        self._root, self._jobs, self._retries, self._report = root, jobs, retries, report
        self._waiting = [_Waiting(0.0, cell) for cell in cells]
        self._running: dict[str, _Running] = {}
        self._lines: queue.SimpleQueue[tuple[str, bytes | None]] = queue.SimpleQueue()
        self._kept: set[int] = set()

    def run(self) -> None:
        become_subreaper()
        self._kept = set(children(os.getpid()))
        try:
            while self._waiting or self._running:
                while (ready := self._next()) is not None:
                    self._start(ready)
                with contextlib.suppress(queue.Empty):
                    name, line = self._lines.get(timeout=0.5)
                    if line is None:
                        self._end(self._running.pop(name))
                    else:
                        self._take(self._running[name], line)
        except BaseException:
            self._stop()
            raise

    def _next(self) -> _Waiting | None:
        """Take the first cell that may start now."""
        if len(self._running) >= self._jobs:
            return None
        at_work = Counter(running.cell.provider for running in self._running.values())
        for waiting in self._waiting:
            limit = waiting.cell.agent.limit
            capped = limit is not None and at_work[waiting.cell.provider] >= limit
            if waiting.not_before <= time.monotonic() and not capped:
                self._waiting.remove(waiting)
                return waiting
        return None

    def _start(self, waiting: _Waiting) -> None:
        cell = waiting.cell
        attempt = new_attempt(self._root, cell.name)
        settings = cell.settings
        if settings.jobs is None:
            # Never changes a score; more workers than cores would only slow all cells down.
            workers = max(1, available_cores() // self._jobs)
            settings = settings.model_copy(update={"jobs": workers})
        write_json(
            attempt / "job.json",
            {
                "run": settings.model_dump(exclude_none=True),
                "agent": cell.agent.model_dump(exclude_none=True),
                "server": cell.server.model_dump(exclude_none=True),
            },
        )
        argv = [sys.executable, "-P", "-m", "evopolicygym.suite.cell"]
        with (attempt / "stderr.txt").open("wb") as stderr:
            process = subprocess.Popen(
                [*argv, str(attempt / "job.json"), str(attempt / "record")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C reaches it through us, once
            )
        self._running[cell.name] = _Running(cell, attempt, process, waiting.tries)
        threading.Thread(target=self._read, args=(cell.name, process), daemon=True).start()
        self._report(CellEvent(cell.name, "cell_started", {"attempt": waiting.tries + 1}))

    def _read(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put((name, line))
        self._lines.put((name, None))

    def _take(self, running: _Running, line: bytes) -> None:
        try:
            event = loads(line)
            kind, data = event["kind"], event["data"]
        except (ValueError, TypeError, KeyError):
            return
        if kind == RESULT:
            running.result = data
        else:
            self._report(CellEvent(running.cell.name, kind, data))

    def _end(self, running: _Running) -> None:
        """Put the record in its place, or note why there is none."""
        cell, status = running.cell, running.process.wait()
        others = {other.process.pid for other in self._running.values()}
        kill_children(keep=self._kept | others)
        if running.result is None:
            reason = _ending(status, running.attempt / "stderr.txt")
            write_attempt(running.attempt, cell.name, reason, now())
            # What can't be configured now can't be in a minute.
            again = status != 2
        else:
            record = self._root / cell.name
            record.parent.mkdir(parents=True, exist_ok=True)
            (running.attempt / "record").rename(record)
            for name in ("job.json", "stderr.txt"):
                (running.attempt / name).unlink()
            running.attempt.rmdir()
            reason = str(running.result["reason"])
            again = DISPOSITIONS[TerminalReason(reason)].retry
        if again and running.tries < self._retries:
            if running.result is not None:
                set_aside(self._root, cell.name, reason, now())
            seconds = (cell.agent.retry_backoff or _BACKOFF_SECONDS) * 2**running.tries
            self._waiting.append(_Waiting(time.monotonic() + seconds, cell, running.tries + 1))
            self._report(CellEvent(cell.name, "cell_retry", {"reason": reason, "seconds": seconds}))
            return
        ended = running.result or {"reason": reason, "counts": False, "score": None}
        self._report(CellEvent(cell.name, "cell_ended", ended))

    def _stop(self) -> None:
        """End every cell: first with a word, then without."""
        for running in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                running.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + _STOP_SECONDS
        for running in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(max(0.0, deadline - time.monotonic()))
        for running in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.wait()
            with contextlib.suppress(EvoPolicyGymError, OSError):
                write_attempt(running.attempt, running.cell.name, "interrupted", now())
        kill_children(keep=self._kept)


def _ending(status: int, stderr: Path) -> str:
    """Return how a process without a result ended, with its last line."""
    try:
        lines = stderr.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    how = f"signal {-status}" if status < 0 else f"exit code {status}"
    return f"the cell's process ended with {how}" + (f": {lines[-1][:300]}" if lines else "")
