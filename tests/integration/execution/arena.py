"""What the tests of this directory share: Programs from source, one pool, and a look at /proc."""

from __future__ import annotations

import re
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evopolicygym.benchmark import FailureCode
from evopolicygym.envs import load
from evopolicygym.evaluation import plan
from evopolicygym.execution import ProcessExecution
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.task import Task
from evopolicygym.program import Program

MEMORY_LIMIT = 384 * 2**20
OUTPUT_LIMIT = 40 * 2**10
FAST_SECONDS = 5.0
"""Longest that a failure which is no timeout may take, also on a busy machine."""

_HEAD = "import os, sys, time\nimport numpy as np\n"


def program(source: str, **files: str) -> Program:
    """Make a Program; `files` are further modules, without their `.py`."""
    return Program(
        {
            "policy.py": source.encode(),
            **{f"{name}.py": content.encode() for name, content in files.items()},
        }
    )


def in_import(body: str) -> str:
    """Return a policy that runs `body` while it is imported."""
    return f"{_HEAD}{textwrap.dedent(body)}\n{_plain('return 1')}"


def in_init(body: str) -> str:
    """Return a policy that runs `body` in `make_policy`."""
    return _HEAD + _plain("return 1").replace(
        "    return Policy()",
        textwrap.indent(textwrap.dedent(body), "    ") + "\n    return Policy()",
    )


def in_act(body: str, *, at: int = 0, action: str = "1", head: str = "") -> str:
    """Return a policy that runs `body` in its act number `at`; all else returns `action`."""
    act = (
        f"self.t += 1\nif self.t == {at + 1}:\n"
        + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
        + f"\nreturn {action}"
    )
    return _HEAD + textwrap.dedent(head) + "\n" + _plain(act)


def _plain(act: str) -> str:
    return (
        "class Policy:\n    t = 0\n    def act(self, observation):\n"
        + textwrap.indent(act, "        ")
        + "\ndef make_policy(context):\n    return Policy()\n"
    )


CHANNEL = """
import fcntl, struct
def ends(*modes):
    for fd in range(3, 64):
        try:
            if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE in modes:
                yield fd
        except OSError:
            pass
READ, WRITE = next(ends(os.O_RDONLY, os.O_RDWR)), next(ends(os.O_WRONLY, os.O_RDWR))
def send(data):
    view = memoryview(data)
    while view:
        view = view[os.write(WRITE, view):]
def frame(kind, sequence, payload=b"", size=None):
    header = struct.pack("<IBI", len(payload) if size is None else size, kind, sequence)
    return header + payload
"""
"""Head of a policy that talks to its worker itself; it finds the channel among what is open."""

GOOD = program(
    """
import os, random, signal, sys
import numpy as np

assert os.listdir() == [], "the scratch directory is fresh"
assert "intruder" not in sys.modules and not hasattr(np, "intruder")
assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL

class Policy:
    def act(self, observation):
        return (random.randrange(3) + int(np.random.randint(3)) + int(observation[0])) % 3

def make_policy(context):
    print("good")
    return Policy()
"""
)
"""Plays `toy` by all that another policy might have spoilt for it."""


@dataclass(frozen=True)
class Case:
    """One policy and what is to become of its Episode; `code` None means that it completes."""

    id: str
    source: str
    code: FailureCode | None
    text: str = ""
    step: int | None = 0
    timeout: float = 30.0
    benchmark: str = "toy"
    repeats: int = 2
    stdout: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)


def timeout_case(id: str, source: str, *, step: int = 0) -> Case:
    """A policy that must be ended by its time limit."""
    text = "starting" if "act" not in id else "in act"
    return Case(id, source, FailureCode.TIMEOUT, text, step=step, timeout=1.0, repeats=1)


class Arena:
    """One worker that plays bad and good policies in turn."""

    def __init__(self, pool: WorkerPool, directory: Path) -> None:
        self.pool = pool
        self.directory = directory
        self.good_hash = self.play(GOOD)[0].trajectory_hash

    def play(
        self, made: Program, *, timeout: float = 30.0, benchmark: str = "toy", repeats: int = 1
    ) -> list[EpisodeOutcome]:
        """Play the same Episode `repeats` times."""
        loaded = load(benchmark)
        episode = plan(loaded, "train", seed=7, count=1)[0]
        tasks = [Task(index, episode, None) for index in range(repeats)]
        return self.pool.play(made, loaded, tasks, timeout=timeout)

    def check(self, case: Case) -> EpisodeOutcome:
        """Play a case, then a good policy in the same worker; assert all that holds always."""
        began = time.monotonic()
        outcomes = self.play(
            program(case.source, **case.files),
            timeout=case.timeout,
            benchmark=case.benchmark,
            repeats=case.repeats,
        )
        seconds = time.monotonic() - began
        self.assert_untouched()
        for outcome in outcomes:
            assert outcome.fault is None
            assert outcome.attempts == 1
            if case.code is None:
                assert outcome.failure is None
                assert outcome.terminated or outcome.truncated
            else:
                assert outcome.failure is not None, "the Episode completed"
                assert outcome.failure.code == case.code, outcome.failure
                assert case.text in outcome.failure.message
                assert case.step is None or outcome.failure.step == case.step
                assert outcome.steps == outcome.failure.step
                assert outcome.score_return <= min(outcome.total_reward, 0.0)
            if case.stdout is not None:
                assert case.stdout in outcome.stdout
            assert_public(outcome)
        if case.code == FailureCode.TIMEOUT:
            assert seconds < case.timeout + 2.0
        else:
            assert seconds / case.repeats < FAST_SECONDS
        if case.step is not None:
            first = outcomes[0]
            for other in outcomes[1:]:
                assert other.failure == first.failure
                assert other.trajectory_hash == first.trajectory_hash
        return outcomes[0]

    def assert_untouched(self) -> None:
        """Assert that nothing of the last Episode is left and that a good policy plays as ever."""
        assert strays(self.directory) == []
        outcome = self.play(GOOD)[0]
        assert (outcome.failure, outcome.fault, outcome.attempts) == (None, None, 1)
        assert outcome.trajectory_hash == self.good_hash
        assert (outcome.stdout, outcome.stderr) == ("good\n", "")
        scratch = list(self.directory.glob("worker-*/scratch/*/*"))
        assert scratch == []


def assert_public(outcome: EpisodeOutcome) -> None:
    """Assert that nothing an agent gets to read names a path of the Host."""
    failure = outcome.failure
    texts = [outcome.stdout, outcome.stderr]
    if failure is not None:
        texts += [failure.message, failure.traceback]
        assert "\n" not in failure.message, "one line for a person"
        assert len(failure.message) <= 20_000
        assert len(failure.traceback) <= 20_000
    hidden = {"/work", tempfile.gettempdir(), sys.prefix, sys.base_prefix, str(Path.home())}
    for text in texts:
        assert [path for path in hidden if path in text] == []
        assert len(text.encode("utf-8")) <= OUTPUT_LIMIT


@dataclass(frozen=True)
class Process:
    """A line of `ps`."""

    pid: int
    parent: int
    command: str
    directory: str


def processes(directory: Path) -> list[Process]:
    """Return the live processes that name `directory` in their arguments or environment.

    Workers and zygotes get it as an argument; what a policy forks inherits that, and what it
    executes inherits HOME and TMPDIR below it.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            where = str((entry / "cwd").readlink())
        except OSError:
            continue
        if status[0] != "Z" and str(directory).encode() in command + environment:
            text = command.decode(errors="replace").replace("\0", " ")
            found.append(Process(int(entry.name), int(status[1]), text, where))
    return found


def strays(directory: Path) -> list[Process]:
    """Return the processes of a pool that are neither a worker nor a worker's zygote.

    A policy has the arguments of its zygote, and a worker may adopt it; its directory differs.
    """
    alive = processes(directory)
    workers = {process.pid for process in alive if "execution.worker" in process.command}
    return [
        process
        for process in alive
        if process.pid not in workers
        and not (
            process.parent in workers and re.search(r"/worker-\d+/scratch/\d+$", process.directory)
        )
    ]


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until `condition` holds; return whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def execution() -> ProcessExecution:
    """Return small limits: what runs out of them does so fast."""
    return ProcessExecution.unsafe(memory_limit_bytes=MEMORY_LIMIT)
