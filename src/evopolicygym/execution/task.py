"""The unit of work: one Episode of one Evaluation, as a function of picklable inputs.

`WorkerState.play(setup, task)` is what a worker process runs, and what any other engine that
can ship a function may run.
"""

from __future__ import annotations

import mmap
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle

from evopolicygym.benchmark import Benchmark, BenchmarkSpec, Episode
from evopolicygym.execution.capped import OUTPUT_LIMIT
from evopolicygym.execution.episode import EpisodeOutcome, HostFaultError, play_episode
from evopolicygym.execution.policy_process import PolicyProcess
from evopolicygym.execution.trajectory import SpoolLimits
from evopolicygym.execution.wire import SHARED_THRESHOLD
from evopolicygym.execution.zygote_client import Zygote
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
        output_bytes: What is kept of each output stream.
    """

    index: int
    episode: Episode
    directory: Path | None
    output_bytes: int = OUTPUT_LIMIT


class WorkerState:
    """What a worker keeps between Episodes: zygote and Benchmark.

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
        self._paths = _public_paths(root)

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
        self._setup = setup
        self._zygote.wait_ready()

    def play(self, setup: EvaluationSetup, task: Task) -> EpisodeOutcome:
        """Play one Episode; a Host fault comes back inside the outcome."""
        program = self._root / "program"
        try:
            self.prepare(setup)
            assert self._benchmark is not None
            assert self._spec is not None
            nbytes = space_nbytes(self._spec.observation_space)
            shared = nbytes + _SHARED_SLACK if nbytes >= SHARED_THRESHOLD else 0
            # A fresh copy each: what one policy does to its files, the next does not see.
            setup.program.write_to(program)

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
                output_bytes=task.output_bytes,
                paths=self._paths,
                beat=self.beat,
            )
        except HostFaultError as error:
            return EpisodeOutcome(task.index, fault=str(error))
        except Exception as error:  # whatever it is, it is no reason to lose the worker
            return EpisodeOutcome(task.index, fault=f"{type(error).__name__}: {error}")
        finally:
            shutil.rmtree(program, ignore_errors=True)

    def close(self) -> None:
        """End the zygote."""
        self._zygote.close()


def _public_paths(root: Path) -> list[tuple[str, str]]:
    """Return Host paths that a policy may print, and what to publish instead; longest first."""
    places = sysconfig.get_paths()
    paths = {
        f"{root}/program/": "",
        f"{root}/program": "program",
        f"{root}/scratch": "scratch",
        str(root): "worker",
        **{path: "python" for path in sys.path if path.startswith("/")},
        str(Path(__file__).parent.parent): "evopolicygym",
        places["purelib"]: "site-packages",
        places["stdlib"]: "python",
        sys.prefix: "python",
        sys.base_prefix: "python",
    }
    home = str(Path.home())
    if home != "/":
        paths.setdefault(home, "home")
    return sorted(paths.items(), key=lambda pair: -len(pair[0]))
