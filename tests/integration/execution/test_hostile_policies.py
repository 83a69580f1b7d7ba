"""Policies that fight the process they run in: their own Episode is all that they may spoil."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evopolicygym.benchmark import FailureCode
from evopolicygym.errors import ExecutionError
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.wire import Encoder

from .arena import (
    CHANNEL,
    FAST_SECONDS,
    Arena,
    Case,
    assert_public,
    execution,
    in_act,
    in_import,
    in_init,
    program,
    strays,
)
from .arena import timeout_case as late

RAISED, CRASH = FailureCode.EXCEPTION, FailureCode.CRASH
PROTOCOL, MEMORY = FailureCode.PROTOCOL_ERROR, FailureCode.MEMORY_LIMIT

# ---------------------------------------------------------------- processes left behind

_SLEEPERS = """
for generation in range(3):
    if os.fork() == 0:
        os.setsid()
        if generation and os.fork() == 0:
            os.setsid()
        time.sleep(60)
        os._exit(0)
"""
_DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        os.closerange(0, 256)
        time.sleep(60)
    os._exit(0)
os.wait()
"""
_EXECUTED = """
if os.fork() == 0:
    os.setsid()
    os.execve("/bin/sh", ["sh", "-c", "sleep 60 & sleep 60; : " + os.getcwd()], {})
"""
# One process at a time, which is another one every moment.
_HOPPER = """
if os.fork() == 0:
    if {elsewhere}:
        os.sched_setaffinity(0, range(os.cpu_count()))
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)
"""
_BOMB = """
for _ in range(60):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
"""
_STOPPED = """
import signal
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)
    os._exit(0)
"""
_THREAD = """
import threading
threading.Thread(target=lambda: [time.sleep(0.001) for _ in range(10**5)]).start()
"""
_BLOCKED = """
import threading
lock = threading.Lock()
lock.acquire()
threading.Thread(target=lock.acquire, daemon=False).start()
"""
_BLOCKED_RAISES = """
import threading
lock = threading.Lock()
lock.acquire()
threading.Thread(target=lock.acquire).start()
1 / 0
"""

LEFT_BEHIND = [
    Case("exits-before-children", in_act(_SLEEPERS + "os._exit(7)"), CRASH, "exited with code 7"),
    Case("exits-before-daemon", in_import(_DAEMON + "os._exit(0)"), CRASH, "exited with code 0"),
    Case("raises-before-children", in_init(_SLEEPERS + "1 / 0"), FailureCode.INIT_ERROR, "Zero"),
    Case("keeps-children", in_act(_SLEEPERS), None),
    Case("keeps-daemon", in_import(_DAEMON), None),
    Case("keeps-executed", in_act(_EXECUTED), None),
    Case("keeps-hopper", in_act(_HOPPER.format(elsewhere=False)), None, repeats=1),
    Case("keeps-hopper-elsewhere", in_act(_HOPPER.format(elsewhere=True)), None, repeats=1),
    Case("keeps-many", in_act(_BOMB), None),
    Case("keeps-stopped", in_act(_STOPPED), None),
    Case(
        "hangs-with-children",
        in_act(_SLEEPERS + "time.sleep(60)"),
        FailureCode.TIMEOUT,
        timeout=1.0,
        repeats=1,
    ),
    Case(
        "child-plays-on",
        in_act("if os.fork():\n    os._exit(3)\ntime.sleep(1)", at=2),
        CRASH,
        "exited with code 3",
        step=2,
    ),
    Case(
        "thread-runs",
        in_act(_THREAD),
        None,
    ),
    Case(
        "thread-blocks",
        in_import(_BLOCKED),
        None,
    ),
    Case(
        "thread-blocks-then-raises",
        in_act(_BLOCKED_RAISES),
        RAISED,
        "ZeroDivisionError",
    ),
    Case("never-leaves", in_import("os._exit = lambda code: None"), None),
    Case("atexit-hangs", in_import("import atexit\natexit.register(time.sleep, 60)"), None),
]

# ---------------------------------------------------------------- descriptors and streams

STREAMS = [
    Case(
        "closes-all-and-returns",
        in_act("os.closerange(0, 256)", at=2),
        CRASH,
        "exited with code 1",
        step=2,
    ),
    Case(
        "closes-all-and-stays",
        in_act("os.closerange(0, 256)\ntime.sleep(60)", at=2),
        PROTOCOL,
        "the policy closed its channel",
        step=2,
    ),
    Case(
        "closes-channel-and-stays",
        in_import("os.closerange(3, 64)\ntime.sleep(60)"),
        PROTOCOL,
        "the policy closed its channel",
    ),
    Case(
        "channel-is-stdout",
        in_act("os.dup2(1, WRITE)\ntime.sleep(60)", head=CHANNEL),
        PROTOCOL,
        "the policy closed its channel",
    ),
    Case(
        "closes-reading-end",
        in_act("os.close(READ)", at=2, head=CHANNEL),
        CRASH,
        "exited with code 1",
        step=3,
    ),
    late("act-reads-channel", in_act("os.read(READ, 1)", head=CHANNEL)),
    Case("closes-descriptor-1", in_act("os.close(1)\nprint('x')"), RAISED, "OSError: [Errno 9]"),
    Case(
        "closes-stdout",
        in_act("sys.stdout.close()\nprint('x')"),
        RAISED,
        "I/O operation on closed file",
    ),
    Case(
        "closes-streams-silently",
        in_act("sys.stdout.close()\nsys.stderr.close()\nos.closerange(0, 3)"),
        None,
    ),
    Case("no-stdout", in_act("sys.stdout = None\nprint('x')"), None),
    Case(
        "other-stdout",
        in_act("import io\nsys.stdout = sys.stderr = io.StringIO()\nprint('x')"),
        None,
    ),
    Case(
        "stdout-is-an-object", in_act("sys.stdout = object()\nprint('x')"), RAISED, "AttributeError"
    ),
    Case(
        "stdout-exits",
        in_act("class S:\n    def flush(self):\n        sys.exit()\nsys.stdout = S()"),
        None,
    ),
    late(
        "act-stdout-flush-hangs",
        in_act("class S:\n    def flush(self):\n        time.sleep(60)\nsys.stdout = S()\n1 / 0"),
    ),
    Case(
        "prints-then-crashes",
        in_act("print('last words')\nos.kill(os.getpid(), 9)"),
        CRASH,
        "SIGKILL",
        stdout="last words\n",
    ),
    Case(
        "prints-without-newline",
        in_act("print('last words', end='')\n1 / 0"),
        RAISED,
        stdout="last words",
    ),
    Case("prints-at-end", in_act("print('last words', end='')", at=19), None, stdout="last words"),
    Case("prints-surrogates", in_act("print('\\udc80')"), None, stdout="\\udc80"),
    Case(
        "child-prints",
        in_act(
            "if os.fork() == 0:\n    os.write(1, b'from the child')\n    os._exit(0)\nos.wait()"
        ),
        None,
        stdout="from the child",
    ),
]

# ---------------------------------------------------------------- the wire


def _sends(name: str, expression: str, text: str, *, code: FailureCode = PROTOCOL) -> Case:
    """A policy that sends bytes of its own in act number 1, then stays silent."""
    body = f"send({expression})\ntime.sleep(60)"
    source = in_act(body, at=1, head=CHANNEL)
    return Case(f"sends-{name}", source, code, text, step=1, repeats=1)


def _mutants() -> Iterator[tuple[str, bytes]]:
    """Well-formed payloads with an array, its dtype or shape replaced by one of equal length."""
    names = {"object": "|O8", "void": "|V8", "date": "<M8", "text": "<U2", "list": "f,f"}
    names |= {"nonsense": "xyz", "bracket": "(((", "comma": ",,,", "empty": "   "}
    changes = {name: (b"<f8", text.encode()) for name, text in names.items()}
    changes["of-more-items"] = (b"\x99" + b"\x01" * 9, b"\x99" + b"\x02" * 9)
    changes["of-fewer-items"] = (b"\x99" + b"\x01" * 9, b"\x99" + b"\x01" * 8 + b"\x00")
    changes["of-minus-1"] = (b"\x99" + b"\x01" * 9, b"\x99" + b"\x01" * 8 + b"\xff")
    for exponent, first in ((64, 0xFF), (63, 0x7F), (61, 0x1F), (40, 0)):
        size = bytes([first] * (exponent >= 61)) + b"\xff" * (exponent // 8 - (exponent == 64))
        number = b"\x91\xcf" + size.rjust(8, b"\0")
        changes[f"of-2-to-{exponent}"] = (b"\x99" + b"\x01" * 9, number)
    for form in ("plain", "inside"):
        for name, (old, new) in changes.items():
            array = np.ones((1,) * 9)
            payload = Encoder().encode(array if form == "plain" else {"a": [array]})
            assert payload.count(old) == 1
            assert len(old) == len(new)
            yield f"{form}-array-{name}", payload.replace(old, new)
        yield f"{form}-array-cut", payload[:-1]
        yield f"{form}-array-longer", payload + b"\0"
    for kept in (0, 1, 2, 5):
        yield f"array-cut-at-{kept}", Encoder().encode(np.ones(3))[: 1 + kept]


def _shared() -> bytes:
    """Return a payload that points into a shared memory which the worker does not read from."""
    with mmap.mmap(-1, 1 << 20) as memory:
        encoder = Encoder(memory)
        payload = encoder.encode({"a": np.ones(1 << 12)})
        encoder.shared_parts.clear()
    return payload


def _extension(code: int, data: bytes = b"") -> bytes:
    return b"\xc7" + bytes([len(data), code]) + data


def _answers(name: str, payload: bytes, code: FailureCode = PROTOCOL, text: str = "") -> Case:
    return _sends(name, f"frame(4, 2, {payload!r})", text, code=code)


INVALID = FailureCode.INVALID_ACTION
WIRE = [
    _sends("garbage", "b'garbage' * 1000", "a frame of"),
    _sends("text", "b'1\\n' * 20", "a frame of"),
    _sends("zeros", "bytes(9)", "answer number 0, expected 2"),
    _sends("huge-header", "frame(4, 2, size=2**32 - 1)", "a frame of 4294967304 bytes"),
    _sends("wrong-number", "frame(4, 7, b'\\1')", "answer number 7, expected 2"),
    _sends("old-number", "frame(4, 1, b'\\1')", "answer number 1, expected 2"),
    _sends(
        "early-answer",
        "frame(4, 2, b'\\1') + frame(4, 3, b'\\1')",
        "an answer that was not asked for",
    ),
    _sends("trailing-byte", "frame(4, 2, b'\\1') + b'\\0'", "an answer that was not asked for"),
    _sends("ready-again", "frame(2, 2)", "frame kind 2, expected ACTION"),
    _sends("unknown-kind", "frame(99, 2)", "frame kind 99, expected ACTION"),
    _sends("end", "frame(6, 2)", "frame kind 6, expected ACTION"),
    _sends("large", "frame(4, 2, bytes(65 << 20))", "a frame of 68157449 bytes"),
    _answers("empty-payload", b"", text="malformed payload"),
    _answers("bad-payload", b"\xc1", text="malformed payload"),
    _answers("two-values", b"\x01\x01", text="malformed payload"),
    _answers("bad-utf-8", b"\xa1\xff", text="malformed payload"),
    _answers("short-list", b"\xdd\xff\xff\xff\xff", text="malformed payload"),
    _answers("nested", b"\x91" * 100_000, text="malformed payload"),
    _answers("unknown-extension", _extension(9, b"x"), text="extension 9"),
    _answers("empty-extension", _extension(1)),
    _answers("empty-shared-extension", _extension(2)),
    _answers("shared-array", _shared(), text="extension 2"),
    _answers("array-as-key", b"\x81" + Encoder().encode([np.ones(1)])[1:] + b"\x01"),
    *(_answers(name, payload) for name, payload in _mutants()),
    _answers("map-as-key", b"\x81\x80\x01"),
    _answers("time-stamp", b"\xd6\xff" + bytes(4), INVALID, "needs one integer"),
    _answers("map", b"\x81\x01\x01", INVALID, "needs one integer"),
    _answers("bytes", b"\xc4\x01x", INVALID, "needs one integer"),
    _answers("nested-list", b"\x91" * 400 + b"\x01", INVALID, "needs one integer"),
    _sends("failure-without-fields", "frame(5, 2, b'\\x80')", "the policy process sent"),
    _sends("failure-empty", "frame(5, 2)", "the policy process sent"),
    _sends("failure-list", "frame(5, 2, b'\\x91\\x01')", "the policy process sent"),
    _sends(
        "failure-unknown-code",
        "frame(5, 2, b'\\x83\\xa4code\\xa1x\\xa7message\\xa1x\\xa9traceback\\xa1x')",
        "the policy process sent",
    ),
    _sends(
        "failure-array",
        f"frame(5, 2, {Encoder().encode(np.ones(3))!r})",
        "the policy process sent",
    ),
    _sends(
        "failure-in-own-words",
        "frame(5, 2, b'\\x83\\xa4code\\xa9exception\\xa7message\\xa5words\\xa9traceback\\xa4more')",
        "words",
        code=RAISED,
    ),
    _sends(
        "failure-at-length",
        "frame(5, 2, b'\\x83\\xa4code\\xa9exception\\xa7message\\xc6'.replace(b'\\xc6', b'\\xdb')"
        " + struct.pack('>I', 10**5) + b'x' * 10**5 + b'\\xa9traceback\\xa4more')",
        "xxx",
        code=RAISED,
    ),
    Case(
        "answers-before-asked",
        in_import(f"{CHANNEL}\nsend(frame(4, 1, b'\\1'))\ntime.sleep(60)"),
        PROTOCOL,
        "answer number 1, expected 0",
    ),
    Case(
        "ready-before-import-ends",
        in_import(f"{CHANNEL}\nsend(frame(2, 0))"),
        PROTOCOL,
        "the policy process sent",
        step=None,
    ),
    Case(
        "acts-before-ready",
        in_init(f"{CHANNEL}\nsend(frame(4, 0, b'\\1'))\ntime.sleep(60)"),
        PROTOCOL,
        "frame kind 4, expected READY",
    ),
    Case(
        "cut-frame-then-exit",
        in_act("send(frame(4, 1, b'x', size=9))\nos._exit(4)", head=CHANNEL),
        CRASH,
        "exited with code 4",
    ),
    Case(
        "cut-header-then-exit",
        in_act("send(frame(4, 1)[:5])\nos._exit(4)", head=CHANNEL),
        CRASH,
        "exited with code 4",
    ),
    Case(
        "cut-frame-then-close",
        in_act("send(frame(4, 1, b'x', size=9))\nos.close(WRITE)\ntime.sleep(60)", head=CHANNEL),
        PROTOCOL,
        "the policy closed its channel",
    ),
    late(
        "act-cut-frame-then-silence",
        in_act("send(frame(4, 1, b'x', size=9))\ntime.sleep(60)", head=CHANNEL),
    ),
]

# ---------------------------------------------------------------- files, limits, the interpreter

_BIG_FILE = """
with open("big", "wb") as file:
    for _ in range(1024):
        file.write(bytes(1 << 20))
"""
_THREADS = """
import threading
for _ in range(10_000):
    threading.Thread(target=time.sleep, args=(60,)).start()
"""
_DEEP = """
sys.setrecursionlimit(10**9)
x = []
for _ in range(10**6):
    x = [x]
repr(x)
"""
_MODULES = """
sys.modules['random'] = sys.modules['socket'] = sys.modules['msgspec'] = None
sys.modules['intruder'] = sys
"""
_BUILTINS = """
import builtins
builtins.isinstance = builtins.len = builtins.type = lambda *a: 1 / 0
"""
_SIGNALS = """
import signal
for n in (2, 10, 14, 15):
    signal.signal(n, lambda *a: None)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
"""
_BLOCK_SIGNALS = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(60)
"""
_LIMITS = """
import resource
for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
    resource.setrlimit(n, (0, 0))
"""
_NUMPY = """
np.random.randint = np.asarray = np.frombuffer = lambda *a, **k: 7
np.intruder = 1
np.random.seed(1)
"""
OTHER = [
    Case("changes-directory", in_act("os.chdir('/')"), None),
    Case("deletes-scratch", in_act("import shutil\nshutil.rmtree(os.getcwd())"), None),
    Case(
        "locks-scratch",
        in_act("open('kept', 'w').close()\nos.mkdir('sub', 0)\nos.chmod('.', 0)"),
        None,
    ),
    Case(
        "fills-scratch",
        in_act(
            "for i in range(100):\n    os.makedirs(f'd{i}/e/f')\n    open(f'd{i}/x', 'w').close()"
        ),
        None,
    ),
    Case("writes-a-gibibyte", in_act(_BIG_FILE), RAISED, "OSError: [Errno 27] File too large"),
    Case(
        "opens-10000-files",
        in_act("files = [open(os.devnull) for _ in range(10_000)]"),
        RAISED,
        "OSError: [Errno 24] Too many open files",
    ),
    Case(
        "starts-10000-threads",
        in_act(_THREADS),
        RAISED,
        "can't start new thread",
    ),
    Case(
        "overflows-the-stack",
        in_act(_DEEP),
        # From 3.12 on the interpreter guards its C stack.
        CRASH if sys.version_info < (3, 12) else RAISED,
        "SIGSEGV" if sys.version_info < (3, 12) else "RecursionError",
    ),
    Case("empties-sys-modules", in_import("sys.modules.clear()"), None),
    Case(
        "replaces-modules",
        in_import(_MODULES),
        None,
    ),
    Case(
        "replaces-numpy",
        in_import(_NUMPY),
        None,
    ),
    Case(
        "replaces-builtins",
        in_import(_BUILTINS),
        CRASH,
        "exited with code 1",
    ),
    Case(
        "replaces-traceback",
        in_act("import traceback\ntraceback.format_exception = lambda *a: 1 / 0\n1 / 0"),
        RAISED,
        "ZeroDivisionError",
    ),
    Case("traces", in_act("sys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)"), None),
    Case("stops-collecting", in_import("import gc\ngc.disable()\ngc.set_threshold(0)"), None),
    Case(
        "handles-signals",
        in_import(_SIGNALS),
        None,
    ),
    late("act-stops-itself", in_act("import signal\nos.kill(os.getpid(), signal.SIGSTOP)")),
    late("import-stops-itself", in_import("import signal\nos.kill(os.getpid(), signal.SIGSTOP)")),
    late(
        "act-ignores-signals",
        in_act(_BLOCK_SIGNALS),
    ),
    Case(
        "lowers-its-limits",
        in_act(_LIMITS),
        None,
    ),
    Case(
        "yields-its-core",
        in_act("os.sched_setaffinity(0, range(os.cpu_count()))\nos.nice(19)"),
        None,
    ),
    Case(
        "renames-itself",
        in_act("import ctypes\nctypes.CDLL(None).prctl(15, b'x) R 1 1', 0, 0, 0)"),
        None,
    ),
]


@pytest.mark.parametrize("case", [*LEFT_BEHIND, *STREAMS, *WIRE, *OTHER], ids=lambda case: case.id)
@pytest.mark.timeout(60)
def test_hostile(arena: Arena, case: Case) -> None:
    arena.check(case)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "piece", ["b'x' * 1023 + b'\\n'", "b'\\xff' * 1024"], ids=["text", "binary"]
)
@pytest.mark.timeout(60)
def test_100_mebibytes_of_output_are_capped(arena: Arena, stream: str, piece: str) -> None:
    number = {"stdout": 1, "stderr": 2}[stream]
    body = f"""
    piece = memoryview(({piece}) * 1024)
    for _ in range(100):
        rest = piece
        while rest:
            rest = rest[os.write({number}, rest):]
    """
    began = time.monotonic()
    outcome = arena.play(program(in_act(body, at=2)))[0]
    assert time.monotonic() - began < FAST_SECONDS
    assert (outcome.failure, outcome.fault, outcome.steps) == (None, None, 20)
    kept = getattr(outcome, stream)
    assert " bytes left out …]" in kept
    arena.assert_untouched()
    assert_public(outcome)


@pytest.mark.timeout(30)
def test_a_frame_in_small_pieces_does_not_stop_the_clock(arena: Arena) -> None:
    body = """
    for byte in struct.pack("<IBI", 1000, 4, 1) + bytes(30):
        send(bytes([byte]))
        time.sleep(0.1)
    """
    began = time.monotonic()
    outcome = arena.play(program(in_act(body, head=CHANNEL)), timeout=1.0)[0]
    seconds = time.monotonic() - began
    assert outcome.failure is not None
    assert outcome.failure.code == FailureCode.TIMEOUT
    assert seconds < 3.0


def test_parent_and_child_that_both_play_on_spoil_only_their_episode(arena: Arena) -> None:
    # Which of the two answers first is theirs to race for; what they can't do is to play on twice.
    for outcome in arena.play(program(in_act("os.fork()")), repeats=4):
        assert (outcome.fault, outcome.attempts) == (None, 1)
        if outcome.failure is None:
            assert outcome.steps == 20
        else:
            assert outcome.failure.code == PROTOCOL
        arena.assert_untouched()


_THIEF = """
os.sched_setaffinity(0, range(os.cpu_count()))
thief = os.open(f"/proc/self/fd/{WRITE}", os.O_RDONLY | os.O_NONBLOCK)
send(frame(4, 1, b"x", size=60 << 20))
time.sleep(0.05)
end = time.monotonic() + 0.2
while time.monotonic() < end:
    os.write(WRITE, b"x")
    try:
        os.read(thief, 1)
    except BlockingIOError:
        pass
time.sleep(60)
"""


@pytest.mark.timeout(60)
def test_bytes_taken_back_do_not_stop_the_clock(directory: Path) -> None:
    # A worker that was told of a byte, and then finds none, must not wait for it for ever.
    outcomes: list[EpisodeOutcome] = []

    def play() -> None:
        with contextlib.suppress(ExecutionError):
            made = program(in_act(_THIEF, head=CHANNEL))
            outcomes.extend(own.play(made, timeout=0.6, repeats=16))

    with WorkerPool(execution(), jobs=2, directory=directory) as pool:
        own = Arena(pool, directory)
        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        thread.join(timeout=20.0)
        in_time = not thread.is_alive()
    thread.join(timeout=10.0)
    assert in_time
    assert [outcome.fault for outcome in outcomes] == [None] * 16
    assert {outcome.failure and outcome.failure.code for outcome in outcomes} <= {
        FailureCode.TIMEOUT,
        PROTOCOL,
    }


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["action", "message", "code"])
def test_nesting_up_to_the_recursion_limit_is_the_policys_problem(arena: Arena, kind: str) -> None:
    # Where decoding still works, one more step of the worker's may be one too deep.
    report = b"\x83\xa9traceback\xa1x\xa4code%b\xa7message%b"
    faults = {}
    for depth in range(900, 1000):
        nested = b"\x91" * depth + b"\x01"
        payload = {
            "action": nested,
            "message": report % (b"\xa9exception", nested),
            "code": report % (nested, b"\xa1x"),
        }[kind]
        number = 4 if kind == "action" else 5
        body = f"send(frame({number}, 1, {payload!r}))\nos._exit(0)"
        outcome = arena.play(program(in_act(body, head=CHANNEL)))[0]
        if outcome.fault is not None:
            faults[depth] = outcome.fault
        else:
            assert outcome.failure is not None
            assert_public(outcome)
    assert faults == {}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("children", ["", _SLEEPERS], ids=["alone", "with-children"])
def test_ended_zygote_is_replaced_and_leaves_nothing(directory: Path, children: str) -> None:
    source = in_act(f"{children}\nos.kill(os.getppid(), 9)\ntime.sleep(60)", at=3)
    with WorkerPool(execution(), jobs=1, directory=directory) as pool:
        own = Arena(pool, directory)
        try:
            for outcome in own.play(program(source), repeats=2):
                assert outcome.fault is None
                assert outcome.failure is not None
                assert outcome.failure.code == CRASH
                assert outcome.failure.step == 3
            own.assert_untouched()
        finally:
            for process in strays(directory):
                os.kill(process.pid, 9)


_WRITES_BESIDE_ITSELF = """
import os

def bump():
    path = os.path.join(os.path.dirname(__file__), "count")
    with open(path, "a+") as file:
        file.write("x")
        file.seek(0)
        return len(file.read())

class Policy:
    def __init__(self):
        self.count = bump()
    def act(self, observation):
        return self.count % 3

def make_policy(context):
    return Policy()
"""
_REWRITES_ITSELF = """
import os
PLAYED = False

class Policy:
    def act(self, observation):
        return 2 if PLAYED else 0

def make_policy(context):
    with open(__file__) as file:
        source = file.read()
    os.chmod(__file__, 0o644)
    with open(__file__, "w") as file:
        file.write(source.replace("PLAYED = False", "PLAYED = True"))
    return Policy()
"""
_POISONS_HELPER = """
import os
import helper

class Policy:
    def act(self, observation):
        return helper.ACTION

def make_policy(context):
    directory = os.path.dirname(__file__)
    os.chmod(directory, 0o755)
    os.unlink(os.path.join(directory, "helper.py"))
    with open(os.path.join(directory, "helper.py"), "w") as file:
        file.write("ACTION = 2  # not the Program's")
    return Policy()
"""


@pytest.mark.parametrize(
    "source",
    [_WRITES_BESIDE_ITSELF, _REWRITES_ITSELF, _POISONS_HELPER],
    ids=["writes-beside-itself", "rewrites-itself", "poisons-its-helper"],
)
def test_program_files_carry_nothing_into_the_next_episode(arena: Arena, source: str) -> None:
    outcomes = arena.play(program(source, helper="ACTION = 0\n"), repeats=3)
    assert [outcome.fault for outcome in outcomes] == [None] * 3
    assert len({outcome.trajectory_hash for outcome in outcomes}) == 1
    assert len({outcome.failure and outcome.failure.code for outcome in outcomes}) == 1


@pytest.mark.parametrize(
    "expression",
    [
        "__file__",
        "os.getcwd()",
        "sys.executable",
        "sys.prefix, sys.base_prefix, np.__file__, os.__file__",
        "os.environ['HOME'], os.environ['TMPDIR']",
        "[module.__file__ for module in sys.modules.values() if getattr(module, '__file__', 0)]",
        "sys.path",
        "dict(os.environ)",
        "open('/proc/self/cmdline').read()",
    ],
)
@pytest.mark.parametrize("where", ["stdout", "stderr", "message"])
def test_paths_of_the_host_are_not_published(arena: Arena, where: str, expression: str) -> None:
    body = {
        "stdout": f"print({expression})",
        "stderr": f"print({expression}, file=sys.stderr)",
        "message": f"raise ValueError({expression})",
    }[where]
    outcome = arena.play(program(in_act(body)))[0]
    assert outcome.fault is None
    assert_public(outcome)
