"""Every way in which a policy can fail by mistake, and what is said about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from evopolicygym.benchmark import FailureCode
from evopolicygym.envs import load
from evopolicygym.evaluation import EvaluationConfig, evaluate

from .arena import (
    CHANNEL,
    Arena,
    Case,
    assert_public,
    execution,
    in_act,
    in_import,
    in_init,
    program,
)
from .arena import timeout_case as late

IMPORT, INIT = FailureCode.IMPORT_ERROR, FailureCode.INIT_ERROR
RAISED, INVALID = FailureCode.EXCEPTION, FailureCode.INVALID_ACTION
MEMORY, CRASH = FailureCode.MEMORY_LIMIT, FailureCode.CRASH

_BACKTRACK = "import re\nre.match('(a+)+$', 'a' * 64 + 'b')"
_GROW = "kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))"
_GROW_SMALL = "kept = None\nwhile True:\n    kept = (kept, 1.5)"
_TEXT_RAISES = """
class Silent(Exception):
    def __str__(self):
        raise ValueError("no text")

raise Silent
"""

_LOCK = """
import threading
threading.Lock().__enter__()
x = threading.Lock()
x.acquire()
x.acquire()
"""


def _stages(
    name: str, body: str, code: FailureCode, text: str, *, repeats: int = 2
) -> Iterator[Case]:
    """The same accident while importing, in make_policy and in act number 2."""
    early = {RAISED: (IMPORT, INIT)}.get(code, (code, code))
    yield Case(f"import-{name}", in_import(body), early[0], text, repeats=repeats)
    yield Case(f"init-{name}", in_init(body), early[1], text, repeats=repeats)
    yield Case(f"act-{name}", in_act(body, at=2), code, text, step=2, repeats=repeats)


def _late(name: str, body: str) -> Iterator[Case]:
    yield late(f"import-{name}", in_import(body))
    yield late(f"init-{name}", in_init(body))
    yield late(f"act-{name}", in_act(body, at=2), step=2)


LATE = [
    *_late("loop", "while True: pass"),
    *_late("sleep", "time.sleep(1000)"),
    late("act-pow", in_act("pow(7, 10**9)")),
    late("act-regular-expression", in_act(_BACKTRACK)),
    late("act-numpy", in_act("a = np.ones((2000, 2000))\nwhile True: a @ a")),
    late(
        "act-lock",
        in_act(_LOCK),
    ),
    late(
        "act-swallows-all",
        in_act(
            "while True:\n    try:\n        time.sleep(1)\n    except BaseException:\n        pass"
        ),
    ),
    late(
        "act-message-never-ends",
        in_act("class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E"),
    ),
]

MEMORY_CASES = [
    *_stages("grow", _GROW, MEMORY, "ran out of memory", repeats=1),
    # CPython 3.13 crashes by itself when it frees such a chain with no memory left.
    *(
        _stages("grow-small", _GROW_SMALL, MEMORY, "ran out of memory", repeats=1)
        if sys.version_info < (3, 13)
        else ()
    ),
    # What holds all the memory outlives the frame that ran out of it.
    Case(
        "act-grow-small-for-good",
        in_act(f"global kept\n{_GROW_SMALL}"),
        MEMORY,
        "ran out of memory",
    ),
    *_stages("huge-array", "np.ones((1 << 20, 1 << 20))", MEMORY, "ran out of memory"),
    *_stages("by-hand", "raise MemoryError('by hand')", MEMORY, "ran out of memory"),
    Case("act-huge-action", in_act("return np.zeros(1 << 25)"), MEMORY, "does not fit in memory"),
]

STARTING = [
    Case("syntax", "def make_policy(context:\n    pass\n", IMPORT, "policy.py: SyntaxError"),
    Case("null-byte", "def make_policy(context): pass\n\0", IMPORT, "policy.py: "),
    Case("not-utf-8", "# coding: ascii\nmake_policy = 'é'\n", IMPORT, "policy.py: SyntaxError"),
    Case(
        "missing-module",
        in_import("import no_such_module"),
        IMPORT,
        "No module named 'no_such_module'",
    ),
    Case(
        "missing-name",
        in_import("from numpy import no_such_name"),
        IMPORT,
        "ImportError: cannot import name 'no_such_name'",
    ),
    Case(
        "missing-name-of-ours",
        in_import("from evopolicygym.policy import no_such"),
        IMPORT,
        "no_such",
    ),
    Case(
        "broken-helper",
        "from helper import make_policy\n",
        IMPORT,
        "policy.py: ZeroDivisionError",
        files={"helper": "def make_policy(context): ...\n1 / 0\n"},
    ),
    Case(
        "star-without-make-policy",
        "from helper import *\n",
        INIT,
        "policy.py has no callable make_policy",
        files={"helper": "x = 1\n"},
    ),
    Case("make-policy-not-callable", "make_policy = 3\n", INIT, "no callable make_policy"),
    Case(
        "module-getattr-raises",
        "# make_policy\ndef __getattr__(name):\n    raise RuntimeError('lazy')\n",
        INIT,
        "RuntimeError: lazy",
    ),
    Case(
        "make-policy-without-parameter", "def make_policy(): ...\n", INIT, "make_policy: TypeError"
    ),
    Case(
        "make-policy-returns-none",
        "def make_policy(context): ...\n",
        INIT,
        "make_policy returned NoneType",
    ),
    Case(
        "make-policy-returns-object",
        "def make_policy(context): return object()\n",
        INIT,
        "no method act",
    ),
    Case(
        "act-not-callable",
        "class Policy:\n    act = 3\ndef make_policy(context): return Policy()\n",
        INIT,
        "no method act",
    ),
    Case(
        "act-property-raises",
        "class Policy:\n    act = property(lambda self: 1 / 0)\n"
        "def make_policy(context): return Policy()\n",
        INIT,
        "make_policy: ZeroDivisionError",
    ),
]

RAISING = [
    case
    for name, body, text in (
        ("value-error", "raise ValueError('seven')", "ValueError: seven"),
        ("no-text", "raise ValueError", "ValueError"),
        ("text-raises", _TEXT_RAISES, "Silent: (its message can't be shown)"),
        ("system-exit", "sys.exit(0)", "SystemExit: 0"),
        ("keyboard-interrupt", "raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("generator-exit", "raise GeneratorExit", "GeneratorExit"),
        ("recursion", "def f(): f()\nf()", "RecursionError: maximum recursion depth"),
        ("group", "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])", "ExceptionGroup"),
        ("two-lines", "raise ValueError('one\\ntwo')", "ValueError: one"),
        ("surrogate", "raise ValueError(os.fsdecode(b'caf\\xe9'))", "ValueError: caf"),
        ("long-text", "raise ValueError('x' * 10**7)", "ValueError: xxx"),
        (
            "long-cause",
            "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('y') from e",
            "ValueError: y",
        ),
        ("stdin", "input()", "EOFError"),
        ("thread-limit", 'raise RuntimeError("can\'t start new thread")', "RuntimeError"),
    )
    for case in _stages(name, body, RAISED, text)
] + [
    Case(
        "act-without-parameter",
        "class P:\n    def act(self): ...\ndef make_policy(c): return P()\n",
        RAISED,
        "act: TypeError",
    ),
    Case(
        "act-with-two-parameters",
        "class P:\n    def act(self, a, b): ...\ndef make_policy(c): return P()\n",
        RAISED,
        "act: TypeError",
    ),
    Case("act-stop-iteration", in_act("next(iter(()))"), RAISED, "act: StopIteration"),
    Case("act-last-step", in_act("1 / 0", at=19), RAISED, "act: ZeroDivisionError", step=19),
]


def _returns(name: str, expression: str, text: str, benchmark: str = "toy") -> Case:
    source = in_act(
        f"return {expression}", at=1, action="[0.0]" if "pendulum" in benchmark else "1"
    )
    return Case(f"returns-{name}", source, INVALID, text, step=1, benchmark=benchmark)


_UNSENDABLE = "a value of type"
INVALID_CASES = [
    _returns("nan", "float('nan')", "Discrete(3) needs one integer, got nan (float)"),
    _returns("inf", "float('inf')", "needs one integer, got inf"),
    _returns("float", "1.0", "needs one integer, got 1.0 (float)"),
    _returns("numpy-float", "np.float64(1)", "needs one integer, got"),
    _returns("too-large", "3", "needs an integer in [0, 2], got 3"),
    _returns("negative", "-1", "needs an integer in [0, 2], got -1"),
    _returns("beyond-64-bits", "10**30", "the action can't be sent"),
    _returns("text", "'1'", "needs one integer, got '1' (str)"),
    _returns("bytes", "b'1'", _UNSENDABLE),
    _returns("none", "None", "needs one integer, got None"),
    _returns("object", "object()", f"{_UNSENDABLE} object"),
    _returns("set", "{1}", f"{_UNSENDABLE} set"),
    _returns("dict", "{'a': 1}", "needs one integer, got {'a': 1} (dict)"),
    _returns("dict-of-array", "{'a': np.zeros((3, 3))}", "needs one integer, got {'a': array("),
    _returns("dict-of-int", "{1: 1}", "a Dict action has str keys"),
    _returns("list", "[1]", "needs one integer, got [1] (list)"),
    _returns("nested", "eval('[' * 90 + ']' * 90)", "nested more than 32 levels"),
    _returns(
        "deeply-nested",
        "__import__('functools').reduce(lambda x, _: [x], range(1000), 1)",
        "nested more than 32 levels",
    ),
    _returns("endless-list", "(lambda x: x.append(x) or x)([])", "nested more than 32 levels"),
    _returns("array-of-one", "np.array([1])", "an array of shape (1,)"),
    _returns("empty-array", "np.array([])", "an array of shape (0,)"),
    _returns("object-array", "np.array([1], dtype=object)", "object can't be sent"),
    _returns("text-array", "np.array('1')", "U1 can't be sent"),
    _returns("date", "np.datetime64('2020-01-01')", _UNSENDABLE),
    _returns("complex", "1j", _UNSENDABLE),
    _returns("generator", "(x for x in [1])", _UNSENDABLE),
    _returns("decimal", "__import__('decimal').Decimal(1)", _UNSENDABLE),
    _returns("array-raises", "type('X', (), {'__array__': lambda s: 1 / 0})()", _UNSENDABLE),
    _returns(
        "int-raises",
        "type('X', (int,), {'__int__': lambda s: 1 / 0})(1)",
        "the action can't be sent",
    ),
    _returns(
        "str-exits",
        "type('X', (str,), {'__str__': lambda s: sys.exit()})('1')",
        "the action can't be sent",
    ),
    _returns("surrogate", "'\\udc80'", "the action can't be sent"),
    _returns("observation", "observation", "an array of shape (2,)"),
    _returns("very-large", "np.zeros(9 << 20)", "the action has 75497"),
    _returns("box-nan", "[float('nan')]", "needs finite numbers, got nan", "gym/pendulum"),
    _returns("box-inf", "[-np.inf]", "needs finite numbers, got -inf", "gym/pendulum"),
    _returns(
        "box-out-of-bounds",
        "[2.1]",
        "needs values in [-2.0, 2.0], got 2.1 at index [0]",
        "gym/pendulum",
    ),
    _returns("box-scalar", "0.5", "needs shape (1,), got shape ()", "gym/pendulum"),
    _returns("box-0-d", "np.array(0.5)", "needs shape (1,), got shape ()", "gym/pendulum"),
    _returns("box-wrong-shape", "[[0.5]]", "needs shape (1,), got shape (1, 1)", "gym/pendulum"),
    _returns("box-empty", "[]", "needs shape (1,), got shape (0,)", "gym/pendulum"),
    _returns("box-ragged", "[[1.0], [1.0, 2.0]]", "rectangular array", "gym/pendulum"),
    _returns("box-text", "['0.5']", "needs real numbers", "gym/pendulum"),
    _returns("box-none", "[None]", "needs real numbers", "gym/pendulum"),
    _returns("box-complex", "np.array([1j])", "needs real numbers", "gym/pendulum"),
    _returns("box-beyond-64-bits", "[10**30]", "the action can't be sent", "gym/pendulum"),
    _returns("box-overflow", "[1e300]", "needs ", "gym/pendulum"),
    _returns("cartpole-two", "2", "needs an integer in [0, 1], got 2", "gym/cartpole"),
]

CRASHES = [
    case
    for name, body, text in (
        ("exit-0", "os._exit(0)", "the policy exited with code 0"),
        ("exit-3", "os._exit(3)", "the policy exited with code 3"),
        ("abort", "os.abort()", "SIGABRT"),
        ("kill", "os.kill(os.getpid(), 9)", "SIGKILL"),
        ("terminate", "os.kill(os.getpid(), 15)", "SIGTERM"),
        ("segmentation-fault", "import ctypes\nctypes.string_at(0)", "SIGSEGV"),
        (
            "alarm",
            "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(9)",
            "SIGALRM",
        ),
        (
            "thread-exits",
            "import threading\nthreading.Timer(0.01, os._exit, [5]).start()\ntime.sleep(9)",
            "exited with code 5",
        ),
        ("execute", "os.execv('/bin/false', ['false'])", "exited with code 1"),
    )
    for case in _stages(name, f"print('before ' + 'the end')\n{body}", CRASH, text)
]

TABLE = [
    *LATE,
    *MEMORY_CASES,
    *STARTING,
    *RAISING,
    *INVALID_CASES,
    *CRASHES,
    Case(
        "act-answers-twice",
        in_act("send(frame(4, 1, b'\\1'))", head=CHANNEL),
        FailureCode.PROTOCOL_ERROR,
        "the policy process sent",
        step=None,
    ),
]


def test_table_covers_every_failure_code() -> None:
    assert {case.code for case in TABLE} - {None} == set(FailureCode)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.id)
@pytest.mark.timeout(60)
def test_failure(arena: Arena, case: Case) -> None:
    arena.check(case)


@pytest.mark.parametrize(
    "expression",
    [
        "np.int64(1)",
        "np.uint8(1)",
        "np.bool_(True)",
        "True",
        "np.array(1)",
        "np.array(1, dtype='>i4')",
        "np.ones((3, 3), dtype=int)[1, 1]",
        "__import__('enum').IntEnum('E', {'ONE': 1}).ONE",
    ],
)
def test_values_that_denote_the_integer_1(arena: Arena, expression: str) -> None:
    plain = arena.play(program(in_act("pass")))[0]
    outcome = arena.play(program(in_act("pass", action=expression)))[0]
    assert outcome.failure is None
    assert outcome.trajectory_hash == plain.trajectory_hash


@pytest.mark.parametrize(
    "expression",
    [
        "[1]",
        "(1.0,)",
        "[True]",
        "[np.float32(1)]",
        "[np.array(1.0)]",
        "np.ones(1)",
        "np.ones(1, dtype='float16')",
        "np.ones(1, dtype='>f8')",
        "np.ones(1, dtype=np.longdouble)",
        "np.ones(1, dtype='uint8')",
        "np.ones((4, 3))[::4, 1]",
        "np.broadcast_to(1.0, 1)",
        "np.ones(1).view(type('Sub', (np.ndarray,), {}))",
    ],
)
def test_values_that_denote_the_box_of_1(arena: Arena, expression: str) -> None:
    plain, outcome = (
        arena.play(program(in_act("pass", action=action)), benchmark="gym/pendulum")[0]
        for action in ("np.ones(1, dtype=np.float32)", expression)
    )
    assert outcome.failure is None
    assert outcome.trajectory_hash == plain.trajectory_hash


def test_the_time_limit_is_the_whole_episodes(arena: Arena) -> None:
    source = in_act("pass", action="time.sleep(0.2) or 1")
    outcome = arena.play(program(source), timeout=1.0)[0]
    assert outcome.failure is not None
    assert outcome.failure.code == FailureCode.TIMEOUT
    assert 1 <= outcome.failure.step <= 4
    assert outcome.score_return <= 0.0


def test_a_traceback_shows_the_policys_own_lines_only(arena: Arena) -> None:
    outcome = arena.play(
        program("from helper import *\n", helper=in_act("1 / 0", at=4)), repeats=1
    )[0]
    assert outcome.failure is not None
    lines = outcome.failure.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.split(",")[0] for line in lines if "File" in line] == ['  File "helper.py"']
    assert "    1 / 0" in lines[2]
    assert lines[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    "misdeed",
    [
        "1 / 0",
        "os._exit(2)",
        "raise MemoryError",
        "os.kill(os.getpid(), 11)",
        "sys.modules.clear()",
    ],
)
def test_episodes_of_one_evaluation_do_not_disturb_each_other(misdeed: str) -> None:
    source = f"""
import os, random, sys

class Policy:
    def __init__(self, bad):
        self.bad = bad
    def act(self, observation):
        if self.bad:
            {misdeed}
        return random.randrange(3)

def make_policy(context):
    return Policy(context.policy_seed % 2 and {{bad}})
"""
    benchmark = load("toy")
    config = EvaluationConfig(split="train", episodes=8)
    mixed, good = (
        evaluate(
            program(source.replace("{bad}", bad)),
            benchmark,
            execution=execution(),
            config=config,
            jobs=2,
        )
        for bad in ("True", "False")
    )
    parity = [e.policy_seed % 2 for e in benchmark.episodes("train", seed=0, count=8)]
    assert 0 < sum(parity) < 8
    for odd, one, other in zip(parity, mixed.episodes, good.episodes, strict=True):
        assert other.failure is None
        if odd and misdeed != "sys.modules.clear()":
            assert one.failure is not None
            assert one.failure.step == 0
        else:
            assert one == other
    for outcome in mixed.outcomes:
        assert_public(outcome)
