"""What the end-to-end tests share: running commands, staging Runs, looking at processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import jsonschema

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
CLI = str(TOOLS / "evopolicygym")
SESSION = str(TOOLS / "evopolicygym-session")

# Continuous integration sets some of these; rich and typer then write escape codes into pipes.
_TERMINAL_VARIABLES = {
    *("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "CLICOLOR_FORCE", "TTY_COMPATIBLE"),
    *("TTY_INTERACTIVE", "NO_COLOR", "COLUMNS", "LINES"),
}

SOLVED = """\
class Policy:
    def act(self, observation):
        cell, target = (int(value) for value in observation)
        return 1 + (target > cell) - (target < cell)


def make_policy(context):
    return Policy()
"""
"""The policy that solves `toy`."""

WAITING_AGENT = """\
import json, os, time
from pathlib import Path

names = ("EVOPOLICYGYM_SESSION", "EVOPOLICYGYM_WORKSPACE", "PATH")
new = Path("analysis/new.json")
new.write_text(json.dumps({name: os.environ[name] for name in names}))
new.rename("analysis/session.json")
while not Path("analysis/go").exists():
    time.sleep(0.02)
"""
"""An agent that hands its session to the test and waits."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one JSON object that is all of stdout."""
        lines = self.stdout.splitlines()
        assert len(lines) == 1, self
        value = json.loads(lines[0], parse_constant=_not_strict)
        assert isinstance(value, dict)
        return value

    @property
    def message(self) -> str:
        """Standard error without frames and line breaks: a message as a person reads it."""
        return re.sub(r"[│╭╮╰╯─\s]+", " ", self.stderr)


def _not_strict(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def environment(**more: str) -> dict[str, str]:
    """Return an environment that leaves no trace of the one the tests run in."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _TERMINAL_VARIABLES and not name.startswith("EVOPOLICYGYM_")
    }
    kept["PATH"] = os.pathsep.join([str(TOOLS), kept.get("PATH", os.defpath)])
    return kept | more


def checked(done: Done) -> Done:
    """Check what holds for every command without a terminal."""
    for text in (done.stdout, done.stderr):
        assert not re.search(r"^\s*Traceback \(most", text, re.MULTILINE), text
        assert "\x1b" not in text, repr(text)
    return done


def command(*argv: str | bytes | Path, cwd: Path, timeout: float = 90, **variables: str) -> Done:
    """Run a program to its end, without a terminal."""
    ended = subprocess.run(
        argv,
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    texts = (stream.decode("utf-8", "surrogateescape") for stream in (ended.stdout, ended.stderr))
    return checked(Done(ended.returncode, *texts))


def schema(name: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a committed schema."""
    document = json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text())
    return jsonschema.Draft202012Validator(document)


def check_record(root: Path) -> int:
    """Validate every file of a record that has a schema; return how many documents that were."""
    count = 0
    single = {
        "run.json": "run",
        "submissions/*/submission.json": "submission",
        "submissions/*/episodes.json": "episodes",
        "submissions/*/feedback/feedback.json": "feedback",
        "workspace/feedback/*/feedback.json": "feedback",
        "workspace/feedback/latest.json": "feedback",
        "validation/*/episodes.json": "episodes",
        "assessment/*/episodes.json": "episodes",
        "agent/*/invocation.json": "agent-invocation",
        "validation/selection.json": "measurement",
        "assessment/assessment.json": "measurement",
    }
    for pattern, name in single.items():
        for path in root.glob(pattern):
            schema(name).validate(json.loads(path.read_bytes(), parse_constant=_not_strict))
            count += 1
    lines = {
        "events.jsonl": "event-line",
        "ledger.jsonl": "ledger-line",
        "agent/turns.jsonl": "agent-turn-line",
        "**/trajectory.jsonl": "trajectory-line",
    }
    for pattern, name in lines.items():
        validator = schema(name)
        for path in root.glob(pattern):
            *complete, rest = path.read_bytes().split(b"\n")
            assert rest == b"", path
            for line in complete:
                validator.validate(json.loads(line, parse_constant=_not_strict))
                count += 1
    return count


def ledger(root: Path) -> list[dict[str, Any]]:
    """Return the lines of a record's ledger."""
    return [json.loads(line) for line in (root / "ledger.jsonl").read_bytes().splitlines()]


def run_file(root: Path) -> dict[str, Any]:
    """Return a record's `run.json`."""
    document: dict[str, Any] = json.loads((root / "run.json").read_bytes())
    return document


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Poll until `condition` holds; return whether it did in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be collected by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes(marker: str | Path) -> dict[int, str]:
    """Return the live processes whose arguments, environment or directory hold `marker`."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes()
            text = arguments + (entry / "environ").read_bytes()
            text += os.fsencode((entry / "cwd").readlink())
        except OSError:
            continue
        if str(marker).encode() in text and alive(int(entry.name)):
            found[int(entry.name)] = arguments.replace(b"\0", b" ").decode(errors="replace")
    return found


class StagedRun:
    """`evopolicygym run` with an agent that waits, so that the test can be the agent.

    Programs of the workspace: `program` (the starter), `solved`, and `gated`, whose policies wait
    for the file `gate` before their first step.

    Args:
        home: Directory for everything; the record is `home / record`.
        options: Further options of `run`.
        record: Path of the record below `home`.
        variables: Environment of the Host.
    """

    def __init__(
        self,
        home: Path,
        *options: str,
        record: str = "record",
        agent: str = WAITING_AGENT,
        **variables: str,
    ) -> None:
        self.root = home / record
        self.workspace = self.root / "workspace"
        self.gate = home / "gate"
        (home / "agent.py").write_text(agent)
        self._clients: list[subprocess.Popen[bytes]] = []
        self._output = home / "stdout.txt"
        self._errors = home / "stderr.txt"
        argv = [CLI, "run", "--env", "toy", "--jobs", "1", "--root", str(self.root)]
        argv += ["--timeout", "60"]
        with self._output.open("wb") as stdout, self._errors.open("wb") as stderr:
            self.host = subprocess.Popen(
                [*argv, *options, "--agent", "command", "--", sys.executable, "agent.py"],
                cwd=home,
                env=environment(**variables),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def __enter__(self) -> StagedRun:
        handed = self.workspace / "analysis" / "session.json"
        if not wait_until(lambda: handed.exists() or self.host.poll() is not None):
            self.host.kill()
        assert handed.exists(), self._errors.read_text()
        self.variables: dict[str, str] = json.loads(handed.read_bytes())
        self.socket = Path(self.variables["EVOPOLICYGYM_SESSION"])
        self.write("solved", SOLVED)
        self.write("gated", gated(self.gate))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in (*self._clients, self.host):
            if process.poll() is None:
                process.kill()
            process.communicate()

    def write(self, program: str, source: str) -> None:
        """Write a Program into the workspace."""
        directory = self.workspace / program
        directory.mkdir(exist_ok=True)
        (directory / "policy.py").write_text(source)

    def session(self, *argv: str | bytes, timeout: float = 60) -> Done:
        """Call `evopolicygym-session` as the agent would."""
        return command(SESSION, *argv, cwd=self.workspace, timeout=timeout, **self.variables)

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        """Start `evopolicygym-session` without waiting for it."""
        client = started(SESSION, *argv, cwd=self.workspace, **self.variables)
        self._clients.append(client)
        return client

    @property
    def evaluating(self) -> bool:
        """Whether a Submission is being evaluated."""
        return self.session("status").json["evaluating"] is not None

    def go(self) -> None:
        """Let the agent exit."""
        (self.workspace / "analysis" / "go").touch()

    def end(self, timeout: float = 60) -> Done:
        """Wait for the Host to end; return how."""
        code = self.host.wait(timeout)
        return Done(code, self._output.read_text(), self._errors.read_text())

    def interrupt(self) -> None:
        """Do what Ctrl-C does: SIGINT to the process group."""
        os.killpg(self.host.pid, signal.SIGINT)


def started(*argv: str | Path, cwd: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own; `collected` waits for it."""
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def collected(process: subprocess.Popen[bytes], timeout: float = 60) -> Done:
    """Wait for a started command."""
    stdout, stderr = process.communicate(timeout=timeout)
    return checked(Done(process.returncode, stdout.decode(), stderr.decode()))


def gated(gate: Path) -> str:
    """Return the source of a policy that waits for a file, then solves `toy`."""
    wait = f"""
    import os, time
    while not os.path.exists({str(gate)!r}):
        time.sleep(0.01)
    """
    return textwrap.dedent(wait) + SOLVED


class Preloaded:
    """Runs the command line in forks of a process that has imported all of it.

    What most tests of the command line would spend their time on is importing. A fork is a real
    process with its own descriptors, directory and exit status; the import itself is tested by
    those that run the installed script.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FORK_SERVER],
            env=environment(OPENBLAS_NUM_THREADS="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def close(self) -> None:
        """End the server."""
        self._process.communicate(timeout=30)

    def __call__(self, *argv: str, cwd: Path) -> Done:
        """Run `evopolicygym` with these arguments."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        outputs = [self._home / "stdout.txt", self._home / "stderr.txt"]
        order = {"argv": argv, "cwd": str(cwd), "outputs": [str(path) for path in outputs]}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return checked(Done(code, *(path.read_text() for path in outputs)))


_FORK_SERVER = """
import json, os, signal, sys, traceback
import evopolicygym.cli.main as cli
import evopolicygym.agents, evopolicygym.envs.gymnasium_benchmark, evopolicygym.envs.starter
import evopolicygym.run.loop, evopolicygym.run.replay, rich.console, rich.table, typer.rich_utils

for line in sys.stdin.buffer:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)
            os.chdir(order["cwd"])
            null = os.open(os.devnull, os.O_RDONLY)
            outputs = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                       for path in order["outputs"]]
            for source, target in zip([null, *outputs], range(3)):
                os.dup2(source, target)
            sys.argv = ["evopolicygym", *order["argv"]]
            try:
                cli.main()
                code = 0
            except SystemExit as end:
                code = end.code or 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


def files(directory: Path) -> dict[str, bytes | None]:
    """Return everything below a directory, with the content of regular files."""
    return {
        str(path.relative_to(directory)): (
            path.read_bytes() if path.is_file() and not path.is_symlink() else None
        )
        for path in sorted(directory.rglob("*"))
    }
