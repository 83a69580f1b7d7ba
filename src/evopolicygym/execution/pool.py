"""A pool of worker processes that survives a dying worker.

One thread a worker hands out Episodes and waits. A worker that dies or stands still costs one
attempt of the one Episode it was playing: the Episode is tried once more in a fresh worker, and
after that it is reported as the Host's fault.
"""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import queue
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

from evopolicygym.benchmark import Benchmark
from evopolicygym.errors import BenchmarkError, ExecutionError
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.execution.process import ProcessExecution, available_cores
from evopolicygym.execution.task import EvaluationSetup, Task
from evopolicygym.execution.zygote_client import policy_environment, python_module
from evopolicygym.program import Program

__all__ = ["WorkerPool"]

_START_SECONDS = 120.0
_STALL_SECONDS = 120.0
"""How long an Environment may take for one reset or step before its worker is replaced."""


def _worker_environment() -> dict[str, str]:
    """Environment of a worker: a policy's, and what libraries keep their caches by."""
    home = os.environ.get("HOME", tempfile.gettempdir())
    return policy_environment() | {"HOME": home, "TMPDIR": tempfile.gettempdir()}


class _Worker:
    """One worker process and the Host's end of its connection."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, mode=0o700)
        beats = os.memfd_create("beats", os.MFD_CLOEXEC)
        os.ftruncate(beats, 8)
        self._beats = mmap.mmap(beats, 8)
        ours, theirs = socket.socketpair()
        with theirs, (root / "stderr.txt").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *python_module("evopolicygym.execution.worker"),
                    *(str(theirs.fileno()), str(beats), str(os.getpid()), str(root)),
                ],
                pass_fds=[theirs.fileno(), beats],
                env=_worker_environment(),
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        os.close(beats)
        self.connection = Connection(ours.detach())
        self.setup = -1
        self.ready = False

    def beats(self) -> int:
        return int.from_bytes(self._beats[:8], sys.byteorder)

    def end(self) -> None:
        """Let it end by itself, then make it."""
        self.connection.close()
        try:
            self.process.wait(timeout=5 if self.ready else 0.1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def answered(self, timeout: float) -> bool:
        """Wait for a message, or for the process to end; what it forked may hold the channel."""
        pidfd = os.pidfd_open(self.process.pid)
        try:
            watched: list[Any] = [self.connection, pidfd]
            ready = select.select(watched, [], [], timeout)[0]
        finally:
            os.close(pidfd)
        if pidfd in ready and self.connection not in ready:
            raise EOFError
        return bool(ready)

    def kill(self) -> None:
        self.process.kill()

    def death(self) -> str:
        """Say how it died, with the last line it wrote."""
        try:
            status = self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:  # it hangs in its own shutdown
            self.process.kill()
            status = self.process.wait()
        lines = (self.root / "stderr.txt").read_text(errors="replace").strip().splitlines()
        return f"the worker process died (exit status {status}{': ' if lines else ''}" + (
            f"{lines[-1][:200]})" if lines else ")"
        )


class WorkerPool:
    """Plays Episodes on `jobs` workers; use it as a context manager.

    Args:
        execution: How policies run.
        jobs: Number of workers, or None for one a core.
        directory: Private directory for the workers; short-lived data.

    Raises:
        ExecutionError: Workers can't be started.
    """

    def __init__(
        self, execution: ProcessExecution, *, jobs: int | None = None, directory: Path
    ) -> None:
        self._execution = execution
        self._jobs = jobs or available_cores()
        self._directory = directory
        self._keys = itertools.count()
        self._roots = itertools.count()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._alive: set[_Worker] = set()
        self._work: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def jobs(self) -> int:
        """Number of workers."""
        return self._jobs

    def play(
        self,
        program: Program,
        benchmark: Benchmark,
        tasks: Iterable[Task],
        *,
        timeout: float,
        on_outcome: Callable[[EpisodeOutcome], None] | None = None,
    ) -> list[EpisodeOutcome]:
        """Play all tasks; the result is in their order, whatever the number of workers.

        Args:
            program: Makes the policies.
            benchmark: Makes the Environments.
            tasks: The Episodes.
            timeout: Seconds of policy time an Episode.
            on_outcome: Called in this thread as each Episode ends, in the order they end.

        Raises:
            BenchmarkError: The Benchmark can't be sent to a worker.
            ExecutionError: The pool was closed meanwhile.
        """
        try:
            payload = cloudpickle.dumps(benchmark)
        except Exception as error:
            raise BenchmarkError(
                f"the Benchmark can't be pickled for the workers: {error}"
            ) from error
        setup = EvaluationSetup(
            key=next(self._keys),
            benchmark=payload,
            program=program,
            resource_limits=self._execution.resource_limits(),
            episode_timeout=timeout,
        )
        done: _Done = queue.SimpleQueue()
        cancelled = threading.Event()
        jobs = [
            _Job(setup, task, _pickled(setup.key, task), position, done, cancelled)
            for position, task in enumerate(tasks)
        ]
        with self._lock:
            if self._closing.is_set():
                raise ExecutionError("the worker pool is closed")
            for job in jobs:
                self._work.put(job)
        self._grow(len(jobs))
        outcomes: dict[int, EpisodeOutcome] = {}
        try:
            while len(outcomes) < len(jobs):
                position, outcome = done.get()
                if isinstance(outcome, ExecutionError):
                    raise outcome
                outcomes[position] = outcome
                if on_outcome is not None:
                    on_outcome(outcome)
        except BaseException:
            cancelled.set()  # what has not begun is not played for nobody
            raise
        return [outcomes[position] for position in range(len(jobs))]

    def _grow(self, wanted: int) -> None:
        with self._lock:
            while len(self._threads) < min(self._jobs, wanted):
                # A daemon, so that an interrupted Host can leave; close() joins it otherwise.
                # The thread starts its worker itself: PDEATHSIG follows the starting thread.
                thread = threading.Thread(target=self._drive, daemon=True, name="epg-worker")
                self._threads.append(thread)
                thread.start()

    def _drive(self) -> None:
        worker: _Worker | None = None
        while True:
            job = self._work.get()
            if job is None:
                break
            try:
                worker = self._settle(worker, job)
            except Exception as error:  # whoever waits for the job must hear of it
                worker = None
                job.done.put((job.position, ExecutionError(f"a worker can't be used: {error}")))
        if worker is not None:
            self._retire(worker)

    def _settle(self, worker: _Worker | None, job: _Job) -> _Worker | None:
        """Play a job, twice if it must be; return the worker that is still good."""
        for attempt in (1, 2):
            if self._closing.is_set() or job.cancelled.is_set():
                job.done.put((job.position, _closed()))
                return worker
            if worker is None:
                worker = self._start_worker()
            outcome = self._attempt(worker, job)
            if outcome.fault is not None:
                # Host fault: the retry gets a fresh worker, whatever state this one is in.
                self._retire(worker)
                worker = None
                if attempt == 1:
                    continue
            job.done.put((job.position, replace(outcome, attempts=attempt)))
            break
        return worker

    def _start_worker(self) -> _Worker:
        worker = _Worker(self._directory / f"worker-{next(self._roots)}")
        with self._lock:
            self._alive.add(worker)
        return worker

    def _retire(self, worker: _Worker) -> None:
        worker.end()
        with self._lock:
            self._alive.discard(worker)

    def _attempt(self, worker: _Worker, job: _Job) -> EpisodeOutcome:
        index = job.task.index
        if job.task.directory is not None:
            shutil.rmtree(job.task.directory, ignore_errors=True)
        try:
            if not worker.ready:
                if not worker.connection.poll(_START_SECONDS):
                    worker.kill()
                    return EpisodeOutcome(index, fault="a worker process did not start")
                worker.connection.recv()
                worker.ready = True
            if worker.setup != job.setup.key:
                worker.connection.send(job.setup)
                worker.setup = job.setup.key
            worker.connection.send_bytes(job.payload)
            patience = _STALL_SECONDS + job.setup.episode_timeout
            beats, since = worker.beats(), time.monotonic()
            while not worker.answered(1.0):
                now = worker.beats()
                if now != beats:
                    beats, since = now, time.monotonic()
                elif time.monotonic() - since > patience:
                    worker.kill()
                    return EpisodeOutcome(
                        index, fault=f"the Environment stood still for {patience:.0f} s"
                    )
            outcome: Any = worker.connection.recv()
        except (EOFError, OSError):
            return EpisodeOutcome(index, fault=worker.death())
        assert isinstance(outcome, EpisodeOutcome)
        return outcome

    def close(self) -> None:
        """End all workers; Episodes still playing are dropped."""
        with self._lock:
            self._closing.set()
        while True:
            try:
                job = self._work.get_nowait()
            except queue.Empty:
                break
            if job is not None:
                job.done.put((job.position, _closed()))
        with self._lock:
            threads, busy = list(self._threads), list(self._alive)
        for _ in threads:
            self._work.put(None)
        deadline = time.monotonic() + 2.0
        for thread in threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            for worker in busy:
                worker.kill()
            for thread in threads:
                thread.join(timeout=10.0)


_Done = queue.SimpleQueue[tuple[int, EpisodeOutcome | ExecutionError]]


@dataclass(frozen=True, slots=True)
class _Job:
    """One task on its way through the pool."""

    setup: EvaluationSetup
    task: Task
    payload: bytes
    position: int
    done: _Done
    cancelled: threading.Event


def _pickled(key: int, task: Task) -> bytes:
    """Return the message that gives a worker its task.

    Raises:
        BenchmarkError: The Episode's scenario can't be sent.
    """
    try:
        return pickle.dumps((key, task))
    except Exception as error:
        raise BenchmarkError(f"an Episode can't be pickled for the workers: {error}") from error


def _closed() -> ExecutionError:
    return ExecutionError("the worker pool was closed while Episodes were playing")
