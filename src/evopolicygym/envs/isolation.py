"""Checks in processes of their own: what crashes, hangs or floods costs one row.

Ids of a family share a process, because importing it takes longer than checking an id of it. When
the process dies or an id takes too long, the process is ended with everything it started, that id
has its row, and the rest goes on in a new process.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from evopolicygym.envs.check import EnvironmentCheck, earned, joined, one_line
from evopolicygym.execution.process_tree import become_subreaper, children, kill_children

__all__ = ["check_isolated"]

_BATCH = 25
_LINE_BYTES = 1 << 16
_TAIL_BYTES = 4_096
_HASH_SEEDS = {False: "1", True: "2"}
"""PYTHONHASHSEED of the checks and of the second digest."""


@dataclass(frozen=True, slots=True)
class _Job:
    """Ids for one process, in order; `again` computes their digests a second time."""

    ids: tuple[str, ...]
    again: bool


class _Child:
    """A process that works on a job."""

    def __init__(self, job: _Job, timeout: float) -> None:
        self.job = job
        self.rest = list(job.ids)
        self.row: EnvironmentCheck | None = None
        self.timed_out = False
        self.deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._line = b""
        self._tail = b""
        argv = [sys.executable, "-P", "-m", "evopolicygym.envs.check", "--progress"]
        argv += ["--budget", str(timeout), *(["--digest"] if job.again else []), "--", *job.ids]
        self.process = subprocess.Popen(
            argv,
            env={**os.environ, "PYTHONHASHSEED": _HASH_SEEDS[job.again]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdout, self.stderr = self.process.stdout.fileno(), self.process.stderr.fileno()
        self.exit = os.pidfd_open(self.process.pid)
        for stream in (self.stdout, self.stderr):
            os.set_blocking(stream, False)

    def read(self, stream: int) -> Iterator[EnvironmentCheck]:
        """Take what there is; yield the rows that are complete. Keeps a bounded part of the rest.

        Raises:
            EOFError: The stream has ended.
        """
        try:
            data = os.read(stream, _LINE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise EOFError
        if stream == self.stderr:
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            return
        *lines, self._line = (self._line + data).split(b"\n")
        self._line = self._line[-_LINE_BYTES:]
        for line in lines:
            row = _parsed(line)
            if row is None or row.id not in self.rest:
                continue  # not from us
            if self.row is None or self.row.id != row.id:
                self.deadline = time.monotonic() + self._timeout
            self.row = row
            if row.stage == "done":
                self.rest.remove(row.id)
                self.row = None
                self.deadline = time.monotonic() + self._timeout
                yield row

    def last_words(self) -> str:
        """Return the last line that it printed."""
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return one_line(lines[-1]) if lines else ""

    def close(self, keep: set[int]) -> int:
        """End it with everything it started; return its exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        # What left the session is ours now; what other processes at work started is still theirs.
        kill_children(keep=keep)
        os.close(self.exit)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        return status


def _parsed(line: bytes) -> EnvironmentCheck | None:
    try:
        value: dict[str, Any] = json.loads(line)
        row = EnvironmentCheck(**{field.name: value[field.name] for field in fields(_BLANK)})
        trace = None if row.trace is None else (row.trace[0], row.trace[1])
        undocumented, notes = tuple(row.undocumented), tuple(row.notes)
        return replace(row, trace=trace, undocumented=undocumented, notes=notes)
    except (ValueError, TypeError, KeyError):
        return None


_BLANK = EnvironmentCheck("")


def check_isolated(
    families: Sequence[Sequence[str]],
    *,
    jobs: int,
    timeout: float,
    report: Callable[[EnvironmentCheck], None] = lambda _: None,
) -> list[EnvironmentCheck]:
    """Check ids in processes of their own.

    This process becomes a subreaper and ends what the checks leave behind; children that it had
    before are left alone.

    Args:
        families: Ids that may share a process.
        jobs: Processes at a time, >= 1.
        timeout: Seconds an id, importing its family included.
        report: Called with each row as it is complete.

    Returns:
        One row an id, in the order of `families`.
    """
    return _Isolation(families, jobs, timeout, report).run()


class _Isolation:
    """The state of one `check_isolated`."""

    def __init__(
        self,
        families: Sequence[Sequence[str]],
        jobs: int,
        timeout: float,
        report: Callable[[EnvironmentCheck], None],
    ) -> None:
        self._ids = [benchmark_id for ids in families for benchmark_id in ids]
        batches = [
            tuple(ids[at : at + _BATCH]) for ids in families for at in range(0, len(ids), _BATCH)
        ]
        self._queue = deque(_Job(ids, False) for ids in batches)
        self._jobs, self._timeout, self._report = jobs, timeout, report
        self._running: list[_Child] = []
        self._rows: dict[str, EnvironmentCheck] = {}
        self._alone: set[str] = set()

    def run(self) -> list[EnvironmentCheck]:
        become_subreaper()
        before = set(children(os.getpid()))
        try:
            with selectors.DefaultSelector() as selector:
                while self._queue or self._running:
                    while self._queue and len(self._running) < self._jobs:
                        self._start(selector)
                    self._wait(selector, before)
        finally:
            for child in self._running:
                child.close(before | {other.process.pid for other in self._running})
        return [self._rows[benchmark_id] for benchmark_id in self._ids]

    def _start(self, selector: selectors.BaseSelector) -> None:
        child = _Child(self._queue.popleft(), self._timeout)
        self._running.append(child)
        for stream in (child.stdout, child.stderr, child.exit):
            selector.register(stream, selectors.EVENT_READ, child)

    def _wait(self, selector: selectors.BaseSelector, before: set[int]) -> None:
        """Handle what happens next."""
        nearest = min(child.deadline for child in self._running)
        ended: list[_Child] = []
        for key, _ in selector.select(max(0.0, nearest - time.monotonic())):
            child: _Child = key.data
            if key.fd == child.exit:
                ended.append(child)
                continue
            try:
                for row in child.read(key.fd):
                    self._take(child.job, row)
            except EOFError:
                selector.unregister(key.fd)
        now = time.monotonic()
        for child in list(self._running):
            if child not in ended and now > child.deadline:
                child.timed_out = True
                ended.append(child)
        for child in ended:
            for stream in (child.stdout, child.stderr, child.exit):
                with contextlib.suppress(KeyError):
                    selector.unregister(stream)
            self._end(child, before)

    def _take(self, job: _Job, row: EnvironmentCheck) -> None:
        """Note a complete row, or what its second digest says about it."""
        if job.again:
            first = self._rows[row.id]
            same = row.digest == first.digest
            if not same and len(job.ids) > 1:
                # Is it the environment or what else was in its process? Again, by itself.
                self._alone.add(row.id)
                self._queue.appendleft(_Job((row.id,), False))
                return
            reason = f"determinism, another process: {row.reason}" if row.reason else _OTHER_PROCESS
            row = replace(
                first,
                deterministic=same if same or not row.reason else None,
                notes=(*first.notes, *((_NEIGHBOURS,) if same and row.id in self._alone else ())),
                reason=joined(first.reason, "" if same else reason),
                seconds=round(first.seconds + row.seconds, 2),
            )
        if job.again or not row.digest:
            row = earned(row)
            self._report(row)
        self._rows[row.id] = row

    def _end(self, child: _Child, before: set[int]) -> None:
        """Collect a child that has ended, or has to."""
        if not child.timed_out:
            with contextlib.suppress(EOFError):
                for row in child.read(child.stdout):
                    self._take(child.job, row)
            with contextlib.suppress(EOFError):
                list(child.read(child.stderr))
        self._running.remove(child)
        status = child.close(before | {other.process.pid for other in self._running})
        if child.rest:
            culprit = child.rest.pop(0)
            row = child.row or EnvironmentCheck(culprit)
            how = f"no end within {self._timeout:g} s" if child.timed_out else _ending(status)
            said = child.last_words()
            reason = f"{row.stage}: {how}" + (f" ({said})" if said else "")
            self._take(child.job, replace(row, stage="done", reason=joined(row.reason, reason)))
            if child.rest:
                self._queue.appendleft(_Job(tuple(child.rest), child.job.again))
        if not child.job.again:
            done = [i for i in child.job.ids if i in self._rows and self._rows[i].digest]
            if done:
                self._queue.appendleft(_Job(tuple(done), True))


_NEIGHBOURS = "environments that were in the same process before change what it does"
_OTHER_PROCESS = "determinism: another process with another PYTHONHASHSEED differs"


def _ending(status: int) -> str:
    if status >= 0:
        return f"the process ended with exit code {status}"
    try:
        return f"the process was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"the process was ended by signal {-status}"
