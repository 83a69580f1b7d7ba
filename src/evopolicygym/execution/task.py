"""The unit of work: one Episode of one Evaluation, as a function of picklable inputs.

`WorkerState.play(setup, task)` is what a worker process runs, and what any other engine that
can ship a function may run.
"""

from __future__ import annotations

import mmap
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle

from evopolicygym.benchmark import Benchmark, BenchmarkSpec, Episode
from evopolicygym.execution.episode import EpisodeOutcome, HostFaultError, play_episode
from evopolicygym.execution.policy_process import PolicyProcess, Zygote
from evopolicygym.execution.trajectory import SpoolLimits
from evopolicygym.execution.wire import SHARED_THRESHOLD
from evopolicygym.program import Program
from evopolicygym.spaces import space_nbytes

__all__ = ["EvaluationSetup", "Task", "WorkerState"]

_SHARED_SLACK = 4096  # room for the 64-byte alignment of a handful of arrays


@dataclass(frozen=True, slots=True)
class EvaluationSetup:
    """What all Episodes of one Evaluation share.

    Attributes:
        key: Identity of this setup within one pool.
        benchmark: The Benchmark, pickled by cloudpickle.
        program: The Program.
        resource_limits: Limits of a policy process.
        episode_timeout: Seconds of policy time an Episode.
        spool_limits: Bounds of the written trajectories.
    """

    key: int
    benchmark: bytes
    program: Program
    resource_limits: Mapping[str, int]
    episode_timeout: float
    spool_limits: SpoolLimits = field(default_factory=SpoolLimits)


@dataclass(frozen=True, slots=True)
class Task:
    """One Episode to play.

    Attributes:
        index: Public index.
        episode: What determines it.
        directory: Where its trajectory goes, or None.
    """

    index: int
    episode: Episode
    directory: Path | None


class WorkerState:
    """What a worker keeps between Episodes: zygote, Benchmark, written Program.

    Args:
        root: Private directory for Programs and scratch.
        beats: Shared memory of 8 bytes; its number grows while an Episode moves.
    """

    def __init__(self, root: Path, beats: mmap.mmap) -> None:
        self._root = root
        self._beats = memoryview(beats).cast("Q")
        self._zygote = Zygote(root / "scratch")
        self._setup: EvaluationSetup | None = None
        self._benchmark: Benchmark | None = None
        self._spec: BenchmarkSpec | None = None
        self._programs: dict[str, Path] = {}

    def beat(self) -> None:
        """Tell the pool that the Episode moves."""
        self._beats[0] += 1

    def prepare(self, setup: EvaluationSetup) -> None:
        """Load what `setup` needs; cheap when it is loaded already.

        Raises:
            HostFaultError: The Benchmark can't be loaded.
        """
        if self._setup is not None and self._setup.key == setup.key:
            return
        if self._setup is None or self._setup.benchmark != setup.benchmark:
            try:
                benchmark = cloudpickle.loads(setup.benchmark)
                self._spec = benchmark.spec
            except Exception as error:
                raise HostFaultError(
                    f"loading the Benchmark: {type(error).__name__}: {error}"
                ) from error
            self._benchmark = benchmark
        if setup.program.digest not in self._programs:
            directory = self._root / "programs" / setup.program.digest
            setup.program.write_to(directory)
            for path in sorted(directory.rglob("*"), reverse=True):
                path.chmod(0o555 if path.is_dir() else 0o444)
            directory.chmod(0o555)
            self._programs[setup.program.digest] = directory
        self._setup = setup
        self._zygote.wait_ready()

    def play(self, setup: EvaluationSetup, task: Task) -> EpisodeOutcome:
        """Play one Episode; a Host fault comes back inside the outcome."""
        try:
            self.prepare(setup)
            assert self._benchmark is not None
            assert self._spec is not None
            program = self._programs[setup.program.digest]
            nbytes = space_nbytes(self._spec.observation_space)
            shared = nbytes + _SHARED_SLACK if nbytes >= SHARED_THRESHOLD else 0

            def spawn() -> PolicyProcess:
                return self._zygote.spawn(program, setup.resource_limits, shared)

            return play_episode(
                self._benchmark,
                self._spec,
                task.episode,
                task.index,
                spawn=spawn,
                timeout=setup.episode_timeout,
                directory=task.directory,
                limits=setup.spool_limits,
                paths=self._public_paths(program),
                beat=self.beat,
            )
        except HostFaultError as error:
            return EpisodeOutcome(task.index, fault=str(error))
        except OSError as error:
            return EpisodeOutcome(task.index, fault=f"{type(error).__name__}: {error}")

    def _public_paths(self, program: Path) -> list[tuple[str, str]]:
        """Host paths that a policy may print, and what to publish instead."""
        paths = sysconfig.get_paths()
        return [
            (str(program) + "/", ""),
            (str(program), "program"),
            (str(self._root / "scratch"), "scratch"),
            (str(self._root), "worker"),
            (str(Path(__file__).parent.parent), "evopolicygym"),
            (paths["purelib"], "site-packages"),
            (paths["stdlib"], "python"),
            (sys.prefix, "python"),
            (sys.base_prefix, "python"),
        ]

    def close(self) -> None:
        """End the zygote."""
        self._zygote.close()
