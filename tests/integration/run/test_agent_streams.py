"""What an agent prints: however much, however damaged and whatever secrets are in it."""

from __future__ import annotations

import inspect
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from evopolicygym.agents import Command
from evopolicygym.agents.transcripts import events, text
from evopolicygym.run import driver as driver_module
from evopolicygym.run.agent import (
    AgentErrorKind,
    AgentEvidence,
    AgentLaunch,
    AgentTask,
    AgentTurn,
    Transcript,
)

from .test_agent_dialogue import PRELUDE, Played, play, play_agent

MIB = 2**20
HEAD, TAIL = 16 * MIB, MIB


@dataclass(frozen=True)
class Structured:
    """A client that prints events and closes with one of the type `result`."""

    argv: list[str]
    inherit: tuple[str, ...] = ()
    name: str = "structured"
    model: str | None = None
    resumes: Literal["never"] = "never"
    files: Mapping[str, Path] = field(default_factory=dict)

    def check(self) -> None: ...

    def version(self) -> str | None:
        return None

    def launch(self, task: AgentTask, turn: AgentTurn) -> AgentLaunch:
        return AgentLaunch(
            argv=self.argv, inherit=self.inherit, closing_events=(("type", "result"),)
        )

    def read(self, evidence: AgentEvidence) -> Transcript:
        closing: dict[str, Any] | None = None
        for event in events(evidence.stdout):
            closing = event if event.get("type") == "result" else closing
        said = closing or {}
        return Transcript(
            final_message=text(said.get("result")),
            error=AgentErrorKind(said["error"]) if "error" in said else None,
            error_message=text(said.get("message")),
            stop_reason=text(said.get("stop")),
            closed=closing is not None,
            files=self.files,
        )

    def describe(self) -> Mapping[str, Any]:
        return {"argv": self.argv}


CLOSING = """
def close(**rest):
    put(json.dumps({"type": "result", **rest}).encode() + b"\\n")
"""
KINDS = ("oneshot", "jsonl", "structured")


def play_kind(tmp_path: Path, kind: str, script: str, *arguments: str, **config: Any) -> Played:
    """Play a Run with a script that ends its work with `end("words")`, whatever it speaks."""
    end = {
        "oneshot": "def end(words): pass",
        "jsonl": "prompt = next(prompts())\ndef end(words): answer(1, text=words)",
        "structured": "def end(words): close(result=words)",
    }[kind]
    script = f"{CLOSING}\n{end}\n{script}"
    if kind != "structured":
        return play(tmp_path, script, *arguments, protocol=kind, **config)
    (tmp_path / "agent.py").write_text(PRELUDE + script)
    argv = [sys.executable, str(tmp_path / "agent.py"), *arguments]
    return play_agent(tmp_path, Structured(argv), **config)


def ended_normally(played: Played, kind: str, words: str = "done") -> None:
    assert played.run["terminal_reason"] == "exited", played.run["message"]
    assert played.each("exit_status") == [0]
    assert played.each("stopped_by_host") == [False]
    assert played.each("final_message") == [None if kind == "oneshot" else words]
    assert played.agent["no_descendant_survived"] is True


# ---------------------------------------------------------------------- much and damaged


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_long_stream_the_head_and_the_tail_are_kept(tmp_path: Path, kind: str) -> None:
    """A single line of 20 MiB on each stream; in a dialogue stdout may hold blank lines only."""
    played = play_kind(
        tmp_path,
        kind,
        f"""
line = b"HEAD" + b"x" * (20 * {MIB} - 8) + b"TAIL"
os.write(2, b"")
sys.stderr.buffer.write(line)
sys.stderr.buffer.flush()
put((b" " * ({MIB} - 1) + b"\\n") * 20 if {kind == "jsonl"} else line + b"\\n")
end("done")
""",
    )
    ended_normally(played, kind)
    assert "TAIL" not in (played.run["message"] or "")
    stderr = played.log("stderr.txt")
    left_out = f"\n[… {20 * MIB - HEAD - TAIL} bytes left out …]\n".encode()
    assert stderr == b"HEAD" + b"x" * (HEAD - 4) + left_out + b"x" * (TAIL - 4) + b"TAIL"
    stdout = played.log("stdout.txt")
    assert HEAD + TAIL < len(stdout) < HEAD + TAIL + 100
    assert stdout.count("bytes left out …]".encode()) == 1
    if kind != "jsonl":
        assert stdout.startswith(b"HEADxxx")
        assert b"xxxTAIL\n" in stdout[-500:]


@pytest.mark.parametrize("size", [HEAD - 1, HEAD, HEAD + 1, HEAD + TAIL, HEAD + TAIL + 1])
def test_only_what_does_not_fit_is_left_out(tmp_path: Path, size: int) -> None:
    played = play(tmp_path, f"os.closerange(3, 9); put(b'ab' * {size // 2} + b'c' * {size % 2})",
                  protocol="oneshot")  # fmt: skip
    whole = b"ab" * (size // 2) + b"c" * (size % 2)
    marker = b"" if size <= HEAD + TAIL else "\n[… 1 bytes left out …]\n".encode()
    if marker:
        whole = whole[:HEAD] + marker + whole[-TAIL:]
    assert played.log() == whole


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_output_is_kept_as_it_is(tmp_path: Path, kind: str) -> None:
    damaged = random.Random(3).randbytes(300_000).replace(b"\n", b"")
    damaged += b"\0" * 1_000 + "\u2028\u0085\x1b[31m".encode() + b'{"type": "result", \xff}'
    (tmp_path / "damaged").write_bytes(damaged)
    played = play_kind(
        tmp_path,
        kind,
        f"""
data = Path(sys.argv[1]).read_bytes()
if {kind != "jsonl"}:
    put(data + b"\\n")
end("one\\u2028two\\u0085three\\0four")
sys.stderr.buffer.write(data)
""",
        str(tmp_path / "damaged"),
    )
    # As in every text that the Host records, lines are lines, whatever separates them.
    ended_normally(played, kind, "one\ntwo\nthree\0four")
    assert played.log("stderr.txt") == damaged
    if kind != "jsonl":
        assert played.log("stdout.txt").startswith(damaged + b"\n")


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_words_of_an_agent_that_failed_are_text(tmp_path: Path, kind: str) -> None:
    played = play_kind(
        tmp_path,
        kind,
        "sys.stderr.buffer.write(b'x' * 9000 + b'\\nso \\xff\\0 \\xed\\xa0 it is' + b'y' * 400)\n"
        "sys.stderr.buffer.flush(); os._exit(3)",
    )
    assert played.run["terminal_reason"] == "crashed"
    message = played.run["message"]
    assert "with status 3 without finish; its last line on stderr: so \ufffd  " in message
    assert len(message) < 500


@pytest.mark.parametrize("kind", KINDS)
def test_closing_its_streams_does_not_end_an_agent(tmp_path: Path, kind: str) -> None:
    played = play_kind(
        tmp_path,
        kind,
        """
print("before", file=sys.stderr, flush=True)
end("done")
for fd in (0, 1, 2):
    os.close(fd)
before = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[11:13]
time.sleep(0.5)
after = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[11:13]
Path("analysis/ticks").write_text(str(sum(map(int, after)) - sum(map(int, before))))
submit("0")
client.finish(["submission-000001"])
os._exit(0)
""",
    )
    assert played.run["terminal_reason"] == "finished"
    assert played.each("exit_status") == [0]
    assert played.log("stderr.txt") == b"before\n"
    assert int((played.analysis / "ticks").read_text()) < 20  # of 50: nothing spins


# ----------------------------------------------------------------------- closing events


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        ("close(result='done'); put(b'more\\n' * 200_000)", "exited", "done"),
        ("put(json.dumps({'type': 'result', 'result': 'done'}).encode())", "exited", "done"),
        ('put(b\'{"type": "other"}\\n\')', "crashed", None),
        ('put(b\'{"type": "result", "result": "do\')', "crashed", None),
        ("close(result='done'); sys.stdout.flush(); time.sleep(100)", "hung_after_result", "done"),
        (
            "close(result='done')\nwhile True: put(b'x' * 99 + b'\\n')",
            "timed_out",  # a client that goes on has not come to its end
            "done",
        ),
    ],
    ids=["more", "no-line-feed", "missing", "cut", "hangs", "floods"],
)
def test_the_closing_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str, words: str | None
) -> None:
    monkeypatch.setattr(driver_module, "GRACE_SECONDS", 0.3)
    limit = 2.0 if reason == "timed_out" else 60.0
    played = play_kind(tmp_path, "structured", script, agent_timeout_seconds=limit)
    assert played.run["terminal_reason"] == reason
    assert played.each("final_message") == [words]
    if reason == "crashed":
        assert played.run["message"].startswith("the client ended without its closing event")


def test_the_answers_of_a_talkative_agent_are_all_read(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        f"""
for prompt in prompts():
    put((b" " * ({MIB} - 1) + b"\\n") * 9)
    number = prompt["turn"]
    answer(number, text=f"words {{number}}", stop=number == 3, data={{"usage": {{"input": 1}}}})
""",
        max_turns=5,
    )
    assert played.run["terminal_reason"] == "exited"
    assert played.each("final_message") == ["words 1", "words 2", "words 3"]
    assert played.agent["tokens"]["input"] == 3


@pytest.mark.parametrize(
    "key",
    [
        "result",
        "stop",
        "message",
    ],
)
def test_text_that_is_no_unicode_does_not_end_the_host(tmp_path: Path, key: str) -> None:
    """Clients cut their messages anywhere, in the middle of a surrogate pair, too."""
    script = f"close(**{{'error': 'provider', '{key}': 'smile \\ud83d'}}); sys.exit(1)"
    played = play_kind(tmp_path, "structured", script, agent_retries=1)
    assert played.run["terminal_reason"] == "provider_error"


# -------------------------------------------------------------------------------- memory

HOST = f"""
import json, sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from evopolicygym import Program
from evopolicygym.agents import Command
from evopolicygym.agents.transcripts import events, text
from evopolicygym.envs import load
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import RunConfig, run
from evopolicygym.run.agent import *

{inspect.getsource(Structured)}

kind, record, *argv = sys.argv[1:]
agent = Structured(argv) if kind == "structured" else Command(argv, protocol=kind)
result = run(Program({{"policy.py": b"def make_policy(context): ..."}}), load("toy"),
             agent=agent, execution=ProcessExecution.unsafe(), record_to=record,
             config=RunConfig(episode_budget=1, agent_timeout_seconds=500, jobs=1))
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps({{"reason": result.terminal_reason.value, "host": peak}}))
"""
FLOOD = """
def flood(fd, mebibytes, line):
    block = line * (2**20 // len(line))
    for _ in range(mebibytes):
        data = memoryview(block)
        while data:
            data = data[os.write(fd, data):]
def measured():
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    Path("analysis/peak").write_text(str(int(status.split("VmHWM:")[1].split()[0]) / 1024))
"""


def flooded(tmp_path: Path, kind: str, script: str, timeout: float = 100) -> dict[str, Any]:
    """Play a Run in a Host of its own; return how it ended and the peaks, MiB."""
    (tmp_path / "host.py").write_text(HOST)
    (tmp_path / "agent.py").write_text(PRELUDE + CLOSING + FLOOD + script)
    record = tmp_path / "record"
    argv = [str(tmp_path / "host.py"), kind, str(record)]
    argv += [sys.executable, str(tmp_path / "agent.py")]
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    ended: dict[str, Any] = json.loads(done.stdout)
    ended["supervisor"] = float((record / "workspace" / "analysis" / "peak").read_text())
    ended["disk"] = sum(p.stat().st_size for p in record.rglob("*") if p.is_file()) / MIB
    print(ended)
    return ended


def bounded(ended: dict[str, Any]) -> bool:
    return ended["host"] < 150 and ended["supervisor"] < 150 and ended["disk"] < 60


@pytest.mark.parametrize("kind", KINDS)
def test_the_memory_and_the_disk_for_much_output_are_bounded(tmp_path: Path, kind: str) -> None:
    """300 MiB; in a dialogue on stderr, and before it 20 MiB of blank lines on stdout."""
    words = {"oneshot": "", "jsonl": "answer(1)", "structured": "close(result='x')"}[kind]
    flood = (
        'flood(1, 20, b" " * 1023 + b"\\n"); flood(2, 300, b"x" * 127 + b"\\n")'
        if kind == "jsonl"
        else 'flood(1, 300, b"{" + b"x" * 126 + b"\\n")'
    )
    ended = flooded(tmp_path, kind, f"{flood}\n{words}\nmeasured()")
    assert ended["reason"] == "exited"
    assert bounded(ended), ended


@pytest.mark.parametrize("character", ["x", "\U0001f600"])
def test_the_memory_for_one_long_line_of_json_is_bounded(tmp_path: Path, character: str) -> None:
    """What looks like one event of 20 MiB, in characters that need four bytes each in Python."""
    ended = flooded(
        tmp_path,
        "structured",
        f'put(b\'{{"a": "\' + {character!r}.encode() * (20 * {MIB} // {len(character.encode())})'
        " + b'\"}\\n'); close(result='x'); measured()",
    )
    assert ended["reason"] == "exited"
    assert bounded(ended), ended


def test_the_memory_for_output_after_the_last_answer_is_bounded(tmp_path: Path) -> None:
    flood = 'flood(1, 200, b"x" * 1023 + b"\\n")'
    ended = flooded(tmp_path, "jsonl", f"next(prompts()); answer(1); {flood}; measured()")
    assert ended["reason"] == "exited"
    assert bounded(ended), ended


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["oneshot", "structured"])
def test_the_memory_and_the_disk_for_5_gib_are_bounded(tmp_path: Path, kind: str) -> None:
    ended = flooded(
        tmp_path, kind, 'flood(1, 5 * 1024, b"x" * 127 + b"\\n")\nclose()\nmeasured()', timeout=550
    )
    assert ended["reason"] == "exited"
    assert bounded(ended), ended


# ------------------------------------------------------------------- files of the client


def test_files_of_the_client_are_kept_if_they_are_files(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (17 * MIB))
    os.mkfifo(tmp_path / "fifo")
    waited: list[bool] = []

    def release() -> None:
        waited.append(True)
        os.close(os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK))

    (tmp_path / "agent.py").write_text(PRELUDE + CLOSING + "close(result='x')")
    names = ("log", "fifo", "missing", ".")
    agent = Structured(
        [sys.executable, str(tmp_path / "agent.py")],
        files={name.replace(".", "directory"): tmp_path / name for name in names},
    )
    timer = threading.Timer(3.0, release)
    timer.start()
    try:
        played = play_agent(tmp_path, agent)
    finally:
        timer.cancel()
        timer.join()
    assert waited == []
    assert played.run["terminal_reason"] == "exited"
    kept = played.result.record / "agent" / "process-001"
    assert (kept / "log").stat().st_size == 16 * MIB
    assert not (kept / "fifo").exists()
    assert not (kept / "directory").exists()


# ------------------------------------------------------------------------------- secrets

SECRET = 'canary/"7f3a"-0123456789'


def places(record: Path, *secrets: str) -> list[str]:
    """Return the files of a record outside the workspace that hold a secret, however spelled."""
    spellings = {
        spelling.encode()
        for secret in secrets
        for spelling in (secret, json.dumps(secret)[1:-1], secret.replace("/", "\\/"))
    }
    workspace = record / "workspace"
    found, seen = [], 0
    for path in record.rglob("*"):
        if path.is_file() and workspace not in path.parents:
            seen += 1
            if any(spelling in path.read_bytes() for spelling in spellings):
                found.append(str(path.relative_to(record)))
    assert seen >= 6
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_is_nowhere_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("MY_API_KEY", SECRET)
    kept = tmp_path / "kept.txt"
    script = f"""
key = os.environ["MY_API_KEY"]
assert sys.argv[1] == "--header=" + key
Path(sys.argv[2]).write_text(f"before {{key}} after")
for fd in (2,) if {kind == "jsonl"} else (1, 2):
    os.write(fd, ("whole " + key + "; in two ").encode() + key.encode()[:9])
    time.sleep(0.15)
    os.write(fd, key.encode()[9:] + b".\\n")
words = f"I know {{key}}!"
if {kind == "jsonl"}:
    next(prompts())
    error = {{"kind": "auth", "message": words}}
    answer(1, text=words, data={{"error": error, "stop_reason": words}})
else:
    close(result=words, error="auth", message=words, stop=words)
    sys.exit({kind == "structured"})
"""
    (tmp_path / "agent.py").write_text(PRELUDE + CLOSING + script)
    argv = [sys.executable, str(tmp_path / "agent.py"), f"--header={SECRET}", str(kept)]
    agent: Any = Command(argv, inherit=("MY_API_KEY",), protocol=kind)  # type: ignore[arg-type]
    if kind == "structured":
        agent = Structured(argv, inherit=("MY_API_KEY",), files={"kept.txt": kept})
    played = play_agent(tmp_path, agent)
    record = played.result.record
    marker = "[redacted MY_API_KEY]"
    if kind == "oneshot":
        assert played.run["terminal_reason"] == "exited"
    else:
        assert played.run["terminal_reason"] == "auth_failed"
        assert played.each("final_message") == [f"I know {marker}!"]
        assert played.each("error") == [f"I know {marker}!"]
        assert played.each("stop_reason") == [f"I know {marker}!"]
        assert marker in played.run["message"]
        assert played.agent["final_message"] == f"I know {marker}!"
    assert places(record, SECRET) == []
    assert SECRET not in str(played.result.message)
    said = f"whole {marker}; in two {marker}.\n".encode()
    assert played.log("stderr.txt") == said
    if kind != "jsonl":
        assert played.log("stdout.txt").startswith(said)
    if kind == "structured":
        assert played.log("kept.txt") == f"before {marker} after".encode()
    invocation = json.loads(played.log("invocation.json"))
    assert invocation["argv"][2] == f"--header={marker}"
    assert "MY_API_KEY" in invocation["environment"]
    assert invocation["inherit"] == ["MY_API_KEY"]
    assert played.agent["description"]["argv"][2] == f"--header={marker}"
    (started,) = [e["data"] for e in played.events if e["kind"] == "agent_started"]
    assert started["argv"][2] == f"--header={marker}"


def test_a_secret_that_is_spelled_in_escapes_is_not_in_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "canary-0123456789")
    script = """
next(prompts())
key = "".join(f"\\\\u{ord(c):04x}" for c in os.environ["MY_API_KEY"])
put(b'{"turn": 1, "text": "%b", "data": {"error": {"kind": "auth", "message": "%b"}}}\\n'
    % (key.encode(), key.encode()))
"""
    (tmp_path / "agent.py").write_text(PRELUDE + script)
    argv = [sys.executable, str(tmp_path / "agent.py")]
    played = play_agent(tmp_path, Command(argv, inherit=("MY_API_KEY",), protocol="jsonl"))
    assert played.each("final_message") == ["[redacted MY_API_KEY]"]
    assert played.run["terminal_reason"] == "auth_failed"
    assert places(played.result.record, "canary-0123456789") == []


@pytest.mark.parametrize("first", ["}", "\\", "\n"])
def test_a_secret_does_not_hold_back_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Output that may be the beginning of a secret is held back, but no longer than its line."""
    monkeypatch.setenv("MY_API_KEY", first + "canary-0123456789")
    (tmp_path / "agent.py").write_text(PRELUDE + "for prompt in prompts(): answer(prompt['turn'])")
    argv = [sys.executable, str(tmp_path / "agent.py")]
    agent = Command(argv, inherit=("MY_API_KEY",), protocol="jsonl")
    played = play_agent(tmp_path, agent, max_turns=3, agent_timeout_seconds=3.0)
    assert played.run["terminal_reason"] == "exited"
    assert len(played.turns) == 3


def test_a_secret_that_is_no_utf_8_is_kept_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", os.fsdecode(b"canary-\xff-0123456789"))
    (tmp_path / "agent.py").write_text(PRELUDE + 'put(os.environb[b"MY_API_KEY"])')
    argv = [sys.executable, str(tmp_path / "agent.py")]
    played = play_agent(tmp_path, Command(argv, inherit=("MY_API_KEY",), protocol="oneshot"))
    assert played.run["terminal_reason"] == "exited", played.run["message"]
    assert played.log() == b"[redacted MY_API_KEY]"


def test_the_token_of_a_session_over_tcp_is_nowhere_in_the_record(tmp_path: Path) -> None:
    script = """
token = os.environ["EVOPOLICYGYM_SESSION_TOKEN"]
assert os.environ["EVOPOLICYGYM_SESSION_URL"].startswith("http://127.0.0.1:")
next(prompts())
Path("analysis/token").write_text(token)
os.write(2, b"my token is " + token.encode()[:5])
time.sleep(0.15)
os.write(2, token.encode()[5:])
submit("0")
client.finish(["submission-000001"])
answer(1, text=f"with {token}, {os.environ['EVOPOLICYGYM_SESSION_URL']}")
"""
    played = play(tmp_path, script, bind="127.0.0.1")
    assert played.run["terminal_reason"] == "finished"
    token = (played.analysis / "token").read_text()
    assert len(token) >= 32
    assert places(played.result.record, token) == []
    assert played.log("stderr.txt") == b"my token is [redacted EVOPOLICYGYM_SESSION_TOKEN]"
    assert "[redacted EVOPOLICYGYM_SESSION_TOKEN]" in played.agent["final_message"]
