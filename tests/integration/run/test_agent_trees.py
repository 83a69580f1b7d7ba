"""What an agent leaves running: nothing of it survives, however it hid and however it all ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from evopolicygym.run import driver as driver_module
from evopolicygym.run.agent import AgentEvidence, AgentLaunch, AgentTask, AgentTurn, Transcript
from evopolicygym.run.files import read_json

from .test_agent_dialogue import PRELUDE, Played, play, play_agent

ZOO = """
ready = Path(os.environ["EVOPOLICYGYM_WORKSPACE"], "analysis", "ready")
ready.mkdir(exist_ok=True)
def stay(kind):
    (ready / f"{kind}-{os.getpid()}").touch()
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        time.sleep(1000)
def plain():
    if os.fork() == 0:
        stay("plain")
def session():
    if os.fork() == 0:
        os.setsid()
        stay("session")
def double():
    if os.fork() == 0:
        if os.fork() == 0:
            stay("double")
        os._exit(0)
def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.chdir("/")
            os.closerange(0, 256)
            stay("daemon")
        os._exit(0)
def deaf():
    if os.fork() == 0:
        os.setsid()
        for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
            signal.signal(number, signal.SIG_IGN)
        stay("deaf")
def stopped():
    if os.fork() == 0:
        os.setsid()
        stay("stopped")
def bomb():
    if os.fork() == 0:
        os.setsid()
        for _ in range(5):  # 2 to the 5th processes
            os.fork()
        stay("bomb")
def zoo():
    for make in (plain, session, double, daemon, deaf, stopped, bomb):
        make()
    while len(os.listdir(ready)) < 6 + 32:
        time.sleep(0.005)
    Path("analysis/full").touch()
"""
KINDS = {"plain", "session", "double", "daemon", "deaf", "stopped", "bomb"}


@pytest.fixture
def marker() -> Iterator[str]:
    """A word that only the processes of one test have among their arguments."""
    word = f"marker-{os.getpid()}-{time.monotonic_ns()}"
    yield word
    for pid in marked(word):  # of a test that failed
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked(word: str) -> list[int]:
    """Return the processes that have a word among their arguments; the dead have none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def left(word: str, seconds: float = 5.0) -> list[int]:
    """Return the processes of a Host that was killed which are not gone in time."""
    deadline = time.monotonic() + seconds
    while (found := marked(word)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def check_zoo(record: Path) -> None:
    """The test has seen what it is about."""
    names = [path.name for path in (record / "workspace" / "analysis" / "ready").iterdir()]
    assert {name.split("-")[0] for name in names} == KINDS
    assert len(names) == 6 + 32
    assert (record / "workspace" / "analysis" / "full").exists()


# ------------------------------------------------------------------------ how it ends


@pytest.mark.parametrize(
    ("script", "protocol", "reason"),
    [
        ("submit('0'); client.finish(['submission-000001'])", "oneshot", "finished"),
        ("sys.exit(3)", "auto", "crashed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "oneshot", "killed"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "jsonl", "killed"),
        ("next(prompts()); answer(1); time.sleep(100)", "jsonl", "hung_after_result"),
        ("submit('0'); client.finish(['submission-000001']); time.sleep(99)", "auto", "finished"),
        ("next(prompts()); put(b'bad\\n'); time.sleep(100)", "jsonl", "crashed"),
        ("time.sleep(100)", "oneshot", "timed_out"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "oneshot", "timed_out"),
    ],
    ids=["finish", "crash", "kill", "fault", "hang", "stays", "protocol", "time", "stopped"],
)
def test_no_descendant_survives(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    marker: str,
    script: str,
    protocol: str,
    reason: str,
) -> None:
    monkeypatch.setattr(driver_module, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(driver_module, "_STOP_GRACE_SECONDS", 0.5)
    limit = 3.0 if reason == "timed_out" else 60.0
    played = play(
        tmp_path,
        f"{ZOO}\nzoo()\n{script}",
        marker,
        protocol=protocol,
        agent_timeout_seconds=limit,
    )
    assert marked(marker) == []
    check_zoo(played.result.record)
    assert played.run["terminal_reason"] == reason
    assert played.agent["no_descendant_survived"] is True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT])
def test_an_agent_that_a_signal_ended_was_killed(tmp_path: Path, number: int) -> None:
    played = play(
        tmp_path,
        "print('out of luck', file=sys.stderr, flush=True)\n"
        f"submit('0'); os.kill(os.getpid(), {number})",
        protocol="oneshot",
    )
    assert played.run["terminal_reason"] == "killed"
    message = f"the agent was ended by signal {int(number)}; its last line on stderr: out of luck"
    assert played.run["message"] == message
    assert played.run["handed_over_by"] == "host"
    assert played.run["counts"] is True
    assert played.agent["exit_status"] == -number
    assert played.agent["stopped_by_host"] is False


def test_a_signal_that_is_not_ignored_comes_before_the_kill(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        "def bye(*_):\n    Path('analysis/bye').touch(); os._exit(7)\n"
        "signal.signal(signal.SIGTERM, bye)\nsignal.signal(signal.SIGALRM, bye)\ntime.sleep(100)",
        protocol="oneshot",
        agent_timeout_seconds=1.5,
    )
    assert played.run["terminal_reason"] == "timed_out"
    assert played.agent["exit_status"] == 7
    assert (played.analysis / "bye").exists()


def test_an_agent_that_kills_its_supervisor_is_not_vouched_for(tmp_path: Path, marker: str) -> None:
    played = play(
        tmp_path,
        f"{ZOO}\nsession()\nsubmit('0')\nos.kill(os.getppid(), signal.SIGKILL)\nos._exit(0)",
        marker,
        protocol="oneshot",
    )
    assert played.run["terminal_reason"] == "crashed"
    assert played.run["message"] == "the agent's supervisor was lost"
    assert played.run["handed_over_by"] == "host"
    assert played.agent["exit_status"] is None
    assert played.agent["no_descendant_survived"] is False
    # Nobody is left to know of them: the record says just that.


# ----------------------------------------------------------------------- open streams


def test_a_descendant_that_holds_the_streams_does_not_delay_the_end(
    tmp_path: Path, marker: str
) -> None:
    began = time.monotonic()
    played = play(
        tmp_path,
        f"{ZOO}\ndeaf(); stopped(); double()\n"
        "while len(os.listdir(ready)) < 3: time.sleep(0.005)\nput(b'last words')\nos._exit(0)",
        marker,
        protocol="oneshot",
    )
    assert time.monotonic() - began < 5
    assert marked(marker) == []
    assert played.run["terminal_reason"] == "exited"
    assert played.log() == b"last words"


def test_a_stranger_that_holds_the_streams_does_not_delay_the_end(
    tmp_path: Path, marker: str
) -> None:
    """A server that runs already may get them passed, as that of a terminal multiplexer does."""
    ended = threading.Event()
    waited: list[bool] = []

    def hold() -> None:
        while not (found := marked(marker)):
            time.sleep(0.01)
        with open(f"/proc/{found[0]}/fd/1", "wb"):
            (tmp_path / "held").touch()
            waited.append(not ended.wait(3.0))

    stranger = threading.Thread(target=hold)
    stranger.start()
    try:
        played = play(
            tmp_path,
            "while not Path(sys.argv[2]).exists(): time.sleep(0.01)",
            marker,
            str(tmp_path / "held"),
            protocol="oneshot",
        )
    finally:
        ended.set()
        stranger.join()
    assert waited == [False]
    assert played.run["terminal_reason"] == "exited"


# -------------------------------------------------------------------- the Host's end

HOST = """
import sys
from evopolicygym import Program
from evopolicygym.agents import Command
from evopolicygym.envs import load
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import RunConfig, run
record, *argv = sys.argv[1:]
run(Program({"policy.py": b"def make_policy(context): ..."}), load("toy"),
    agent=Command(argv, protocol="jsonl"), execution=ProcessExecution.unsafe(), record_to=record,
    config=RunConfig(episode_budget=5, agent_timeout_seconds=90, max_turns=2, jobs=1))
"""


@contextlib.contextmanager
def host(tmp_path: Path, marker: str, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a Host; yield it once its agent has filled the zoo."""
    (tmp_path / "host.py").write_text(HOST)
    (tmp_path / "agent.py").write_text(f"{PRELUDE}{ZOO}\nzoo()\n{script}")
    argv = [str(tmp_path / "record"), sys.executable, str(tmp_path / "agent.py"), marker]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "host.py"), *argv], stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "record" / "workspace" / "analysis" / "go").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        check_zoo(tmp_path / "record")
        assert len(marked(marker)) >= 6 + 32
        yield process
    finally:
        process.kill()
        process.wait()


GO = "Path('analysis/go').touch()\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.mark.parametrize(
    ("script", "interrupts"),
    [
        (GO + "time.sleep(100)", 1),
        ("next(prompts()); submit('0'); answer(1); next(prompts())\n" + GO + "time.sleep(100)", 1),
        (DEAF + GO + "time.sleep(100)", 2),
    ],
    ids=["working", "second-turn", "deaf-and-impatient"],
)
def test_no_descendant_survives_an_interrupt(
    tmp_path: Path, marker: str, script: str, interrupts: int
) -> None:
    with host(tmp_path, marker, script) as process:
        for _ in range(interrupts):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        process.wait(10)
    assert left(marker, 0.0) == []
    document = read_json(tmp_path / "record" / "run.json")
    assert document["terminal_reason"] == "interrupted"
    assert document["status"] == "failed"
    assert document["counts"] is False
    if interrupts == 1:  # an impatient person does not wait for the evidence
        assert document["message"] == "interrupted"
        assert document["agent"]["no_descendant_survived"] is True
        lines = (tmp_path / "record" / "agent" / "turns.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["reason"] == "interrupted"


@pytest.mark.damaged_record("unfinished")
@pytest.mark.parametrize("script", [GO + "time.sleep(100)", DEAF + GO + "time.sleep(100)"])
def test_no_descendant_survives_the_host(tmp_path: Path, marker: str, script: str) -> None:
    with host(tmp_path, marker, script) as process:
        process.kill()
        process.wait()
        assert left(marker) == []
    assert read_json(tmp_path / "record" / "run.json")["status"] == "running"


# ------------------------------------------------------------------------ several turns


@dataclass(frozen=True)
class Resuming:
    """A client that is started anew for every turn, with the session of the turn before."""

    argv: tuple[str, ...]
    name: str = "resuming"
    model: str | None = None
    resumes: Literal["session"] = "session"

    def check(self) -> None: ...

    def version(self) -> str | None:
        return None

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        return AgentLaunch(argv=[*self.argv, str(turn.number), str(turn.session_id)])

    def read(self, evidence: AgentEvidence) -> Transcript:
        return Transcript(session_id="session-1")

    def describe(self) -> Mapping[str, Any]:
        return {}


def test_what_one_turn_started_does_not_reach_the_next(tmp_path: Path, marker: str) -> None:
    script = f"""
{ZOO}
_, word, turn, session_id = sys.argv
if turn == "1":
    assert session_id == "None"
    submit("0")
    zoo()
else:
    assert session_id == "session-1"
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    assert os.getpid() in found
    Path(f"analysis/found-{{turn}}").write_text(str(len(found)))
"""
    (tmp_path / "agent.py").write_text(PRELUDE + script)
    agent = Resuming((sys.executable, str(tmp_path / "agent.py"), marker))
    played: Played = play_agent(tmp_path, agent, max_turns=3)
    assert played.run["terminal_reason"] == "exited", played.run["message"]
    check_zoo(played.result.record)
    assert played.each("turn") == [1, 2, 3]
    assert played.each("process") == [f"process-{n:03d}" for n in (1, 2, 3)]
    assert [(played.analysis / f"found-{n}").read_text() for n in (2, 3)] == ["1", "1"]
    assert played.agent["no_descendant_survived"] is True
    assert marked(marker) == []
