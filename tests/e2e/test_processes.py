"""Terminals, Ctrl-C and death: what a person sees, and what is left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from evopolicygym.run.files import read_lines
from evopolicygym.run.ledger import episodes_used

from .tools import (
    CLI,
    StagedRun,
    alive,
    check_record,
    checked,
    command,
    environment,
    ledger,
    processes,
    run_file,
    started,
    wait_until,
)

SECONDS = 10.0
"""After Ctrl-C or `kill -9` everything has ended by then."""


class Terminal:
    """A command on a pseudo terminal that is its controlling one, as in a person's shell."""

    def __init__(self, *argv: str | Path, cwd: Path, **variables: str) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, 120))
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=environment(TERM="xterm-256color", **variables),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)
        self._seen = b""

    def read(self, until: str | None = None) -> str:
        """Read up to some text, or to the end; return everything so far."""
        with contextlib.suppress(OSError):  # EIO: the last process closed the terminal
            while until is None or until.encode() not in self._seen:
                data = os.read(self._master, 65536)
                if not data:
                    break
                self._seen += data
        return self._seen.decode()

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def close(self) -> None:
        """End the command if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def plain(text: str) -> str:
    """Return what is readable of a terminal's output."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "\n")


def cursor_is_shown(text: str) -> bool:
    return text.rfind("\x1b[?25l") < text.rfind("\x1b[?25h")


def test_a_terminal_gets_live_progress_and_the_table(tmp_path: Path) -> None:
    options = ["--budget", "8", "--jobs", "1", "--valid-size", "4", "--final-size", "4"]
    terminal = Terminal(CLI, "run", "--env", "toy", *options, "--root", "record", cwd=tmp_path)
    try:
        text = terminal.read()
        assert terminal.process.wait(30) == 0, text
    finally:
        terminal.close()
    assert cursor_is_shown(text)
    readable = plain(text)
    assert re.search(r"submission-00000\d +━+ +\d/8 +Episodes", readable), readable
    document = run_file(tmp_path / "record")
    for name in document["submissions"]:
        assert f"{name}  score " in readable
    # The table comes last, and nothing of the progress is drawn over it.
    table = readable[readable.index("┏") :]
    assert "Episodes used" in readable[: readable.index("┏")].strip().splitlines()[-1]
    for name in document["submissions"]:
        assert name in table
    assert f"Record: {tmp_path / 'record'}" in re.sub(r"\n(?=\S)", "", table)
    assert table.rstrip().endswith("agent/turns.jsonl")


def test_ctrl_c_on_a_terminal(tmp_path: Path, marked: Path) -> None:
    options = ["--budget", "64", "--root", "record", "--agent", "command", "--", "sleep", "300"]
    terminal = Terminal(CLI, "run", "--env", "toy", *options, cwd=tmp_path, TMPDIR=str(marked))
    try:
        terminal.read("sandbox")
        names = ("/sleep 300 ",)  # the Host has more arguments before these
        assert wait_until(
            lambda: any(line.endswith(names) for line in processes(marked).values()), 30
        )
        pressed = time.monotonic()
        terminal.type("\x03")
        text = terminal.read()
        assert terminal.process.wait(SECONDS) == 130, text
        assert time.monotonic() - pressed < SECONDS
    finally:
        terminal.close()
    assert "Traceback" not in text
    assert "error: interrupted" in text
    assert cursor_is_shown(text)
    assert run_file(tmp_path / "record")["terminal_reason"] == "interrupted"


@pytest.mark.parametrize("phase", ["waiting", "submission", "validation"])
def test_interrupt(tmp_path: Path, marked: Path, phase: str) -> None:
    options = ["--budget", "8", "--valid-size", "2", "--final-size", "2"]
    with StagedRun(tmp_path, *options, TMPDIR=str(marked)) as staged:
        client = None
        if phase == "submission":
            client = staged.start("submit", "gated", "--episodes", "0:3")
            assert wait_until(lambda: staged.evaluating)
        elif phase == "validation":
            staged.gate.touch()
            assert staged.session("submit", "gated", "--episodes", "0:3").code == 0
            staged.gate.unlink()
            assert staged.session("finish", "submission-000001").code == 0
            staged.go()
            events = staged.root / "events.jsonl"
            assert wait_until(lambda: '"validation_started"' in events.read_text())
        assert len(processes(marked)) >= 2
        began = time.monotonic()
        staged.interrupt()
        done = checked(staged.end(SECONDS))
        assert time.monotonic() - began < SECONDS
        if client is not None:
            client.communicate(timeout=SECONDS)
            assert client.returncode != 0
    assert done.code == 130
    assert done.stderr.endswith("error: interrupted\n")
    assert done.stdout == ""
    document = run_file(staged.root)
    assert document["terminal_reason"] == "interrupted"
    assert document["status"] == "failed"
    assert document["ended"] is not None
    assert document["selected"] is None
    assert document["assessment_score"] is None
    assert document["submissions"] == (["submission-000001"] if phase == "validation" else [])
    # The account that the record ends with is the one that the ledger adds up to.
    assert document["episodes_used"] == episodes_used(staged.root / "ledger.jsonl")
    events = read_lines(staged.root / "events.jsonl")
    assert events[-1]["kind"] == "run_ended"
    assert check_record(staged.root) >= 3
    assert not list(marked.glob("epg-*"))


def test_interrupting_other_commands(tmp_path: Path, marked: Path) -> None:
    (tmp_path / "stuck").mkdir()
    source = f"open({str(tmp_path / 'playing')!r}, 'w')\nwhile True:\n    make_policy = None\n"
    (tmp_path / "stuck" / "policy.py").write_text(source)
    argv = ["evaluate", "stuck", "--env", "toy", "--json"]
    process = started(CLI, *argv, cwd=tmp_path, TMPDIR=str(marked))
    try:
        assert wait_until((tmp_path / "playing").exists, 30)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, stdout) == (130, b"")
    assert stderr.endswith(b"error: interrupted\n")
    assert b"Traceback" not in stderr


DAEMON = """
import os, time

def note():
    os.close(os.open(f"{home}/pids/{os.getpid()}", os.O_CREAT))

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note()
        os.closerange(0, 64)
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
note()
"""
"""Leaves a child behind that is in a session of its own and has no parent any more."""

AGENT = """
import subprocess
from pathlib import Path

Path("stubborn").mkdir()
Path("stubborn/policy.py").write_text(POLICY)
subprocess.run(["evopolicygym-session", "submit", "stubborn", "--episodes", "0:3"])
time.sleep(300)
"""


@pytest.mark.damaged_record("unfinished")
def test_kill_9_leaves_no_process(tmp_path: Path, marked: Path) -> None:
    (tmp_path / "pids").mkdir()
    daemon = f"home = {str(tmp_path)!r}\n{DAEMON}"
    policy = f"{daemon}\ndef make_policy(context):\n    time.sleep(300)\n"
    (tmp_path / "agent.py").write_text(f"POLICY = {policy!r}\n{daemon}{AGENT}")
    options = ["--budget", "8", "--jobs", "2", "--timeout", "200", "--root", "record"]
    agent = ["--agent", "command", "--", "python", "agent.py"]
    variables = {"TMPDIR": str(marked)}
    host = started(CLI, "run", "--env", "toy", *options, *agent, cwd=tmp_path, **variables)
    try:
        # The agent and one policy a worker, each with a daemon.
        assert wait_until(lambda: len(list((tmp_path / "pids").iterdir())) == 6, 30)
        noted = {int(entry.name) for entry in (tmp_path / "pids").iterdir()}
        before = processes(marked)
        assert noted | {host.pid} < before.keys()
        host.kill()
        killed = time.monotonic()
        assert wait_until(lambda: not processes(marked), SECONDS), processes(marked)
        # By process id too: one that is just ending has no arguments any more.
        assert wait_until(lambda: not any(map(alive, before)), SECONDS)
        assert time.monotonic() - killed < SECONDS
    finally:
        host.kill()
        host.communicate()
    # What was charged is on disk, and the record can be read.
    root = tmp_path / "record"
    assert episodes_used(root / "ledger.jsonl") == 3
    assert [line["kind"] for line in ledger(root)] == ["charge"]
    document = run_file(root)
    assert (document["status"], document["terminal_reason"]) == ("running", None)
    assert read_lines(root / "events.jsonl")[-1]["kind"] == "submission_started"
    assert check_record(root) >= 4
    assert list((root / "workspace" / "feedback").iterdir()) == []
    # The next command clears what the Host could not.
    assert len(list(marked.glob("epg-*"))) == 1
    argv = ["evaluate", "record/workspace/program", "--env", "toy", "--episodes", "1", "--json"]
    following = command(CLI, *argv, cwd=tmp_path, **variables)
    assert following.json["score"] is not None
    assert list(marked.glob("epg-*")) == []
