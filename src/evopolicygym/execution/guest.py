"""Runs inside the policy process: import the Program, build the policy, answer observations.

The process belongs to the policy from the moment its code is imported, so nothing here is
trusted by the worker: a lie on the wire costs the policy its own Episode and nobody else's.
"""

from __future__ import annotations

import importlib.util
import linecache
import mmap
import os
import random
import resource
import sys
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from evopolicygym.execution.wire import HEADER, MAX_FRAME_BYTES, Decoder, Encoder, Kind
from evopolicygym.policy import PolicyContext
from evopolicygym.spaces import observation_reader

__all__ = ["MAX_MESSAGE", "MAX_TRACEBACK", "MEMORY_RESERVE", "serve", "shorten"]

_MAX_TRACEBACK_FRAMES = 20
MEMORY_RESERVE = 64 * 2**20
"""Address space beyond a policy's limit that is left for reporting that it ran out, bytes."""

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 16_000
"""Characters of a failure's message and traceback that are kept."""

_PLAIN = frozenset({int, float, bool, str})


class _Channel:
    """The policy's two pipes: one frame in, one frame out."""

    def __init__(self, read_fd: int, write_fd: int, shared: mmap.mmap | None) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._decode = Decoder(shared).decode
        self.encoder = Encoder()
        # Held until memory runs out: to say so takes some.
        self.free_reserve = mmap.mmap(-1, 4 * 2**20).close

    def receive(self) -> tuple[int, int, Any]:
        """Return `(kind, sequence, value)`; the worker's end closing ends this process."""
        data = os.read(self._read_fd, 65536)
        if len(data) < 9 or HEADER.unpack_from(data)[0] != len(data) - 9:
            data = self._complete(data)
        size, kind, sequence = HEADER.unpack_from(data)
        return kind, sequence, self._decode(data, 9) if size else None

    def _complete(self, data: bytes) -> bytes:
        """Read on until the frame is complete."""
        while len(data) < 9 or len(data) - 9 < HEADER.unpack_from(data)[0]:
            more = os.read(self._read_fd, 65536)
            if not more:
                leave(0)
            data += more
        return data

    def send(self, kind: int, sequence: int, payload: bytes) -> None:
        """Write one frame."""
        data = HEADER.pack(len(payload), kind, sequence) + payload
        written = os.write(self._write_fd, data)
        while written < len(data):
            written += os.write(self._write_fd, memoryview(data)[written:])

    def fail(self, sequence: int, code: str, message: str, trace: str = "") -> NoReturn:
        """Report the failure that ends this Episode, then end the process."""
        self.free_reserve()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        flush_output()
        report = {
            "code": code,
            "message": shorten(message, MAX_MESSAGE),
            "traceback": shorten(trace, MAX_TRACEBACK, "\n"),
        }
        self.send(Kind.FAILURE, sequence, self.encoder.encode(report))
        leave(1)


def leave(code: int) -> NoReturn:
    """End the process at once: no atexit hooks, no thread is waited for."""
    flush_output()
    os._exit(code)


def flush_output() -> None:
    """Write out what the policy printed; its streams may be closed or replaced."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            pass


def shorten(text: str, limit: int, newline: str = " ") -> str:
    """Return well-formed text of at most about `limit` characters: its beginning and its end.

    Args:
        text: Anything, lone surrogates included.
        limit: Characters to keep.
        newline: What lines are joined by.
    """
    text = newline.join(text.encode("utf-8", "backslashreplace").decode().splitlines())
    if len(text) <= limit:
        return text
    half = limit // 2
    removed = len(text) - 2 * half
    return f"{text[:half]}{newline}… {removed} characters removed …{newline}{text[-half:]}"


def serve(
    read_fd: int,
    write_fd: int,
    program_directory: str,
    shared: mmap.mmap | None,
    before_policy: Callable[[], None],
) -> NoReturn:
    """Play one Episode's policy side, then end the process.

    Args:
        read_fd: Pipe from the worker.
        write_fd: Pipe to the worker.
        program_directory: Where the Program's files are; first on `sys.path`.
        shared: Read-only map of the worker's observation memory, or None.
        before_policy: Called last before any of the Program's code runs; applies limits.
    """
    channel = _Channel(read_fd, write_fd, shared)
    _, _, start = channel.receive()
    context = PolicyContext(**start["context"])
    random.seed(context.policy_seed)
    np.random.seed(context.policy_seed)
    restore = observation_reader(context.observation_space)
    # Children that the policy forks can neither answer for it nor hold its pipes open.
    os.register_at_fork(after_in_child=lambda: os.closerange(read_fd, write_fd + 1))
    try:
        before_policy()
        act = _build(channel, context, program_directory)
    except MemoryError:
        channel.free_reserve()
        channel.fail(0, "memory_limit", "the policy ran out of memory while starting")
    channel.send(Kind.READY, 0, b"")
    _answer(channel, act, restore)


def _build(channel: _Channel, context: PolicyContext, directory: str) -> Callable[[Any], Any]:
    try:
        module = _import_program(directory)
    except MemoryError:
        raise
    except BaseException as error:
        channel.fail(0, "import_error", f"policy.py: {_summary(error)}", _trace(error))
    try:
        make_policy = getattr(module, "make_policy", None)
        if not callable(make_policy):
            channel.fail(0, "init_error", "policy.py has no callable make_policy(context)")
        policy = make_policy(context)
        act = getattr(policy, "act", None)
    except MemoryError:
        raise
    except BaseException as error:
        channel.fail(0, "init_error", f"make_policy: {_summary(error)}", _trace(error))
    if not callable(act):
        channel.fail(
            0,
            "init_error",
            f"make_policy returned {type(policy).__name__}, which has no method act(observation)",
        )
    return act  # type: ignore[no-any-return]


def _import_program(directory: str) -> ModuleType:
    sys.path.insert(0, directory)
    path = os.path.join(directory, "policy.py")  # noqa: PTH118 - pathlib is not loaded here
    spec = importlib.util.spec_from_file_location("policy", path)
    if spec is None or spec.loader is None:
        raise ImportError("policy.py can't be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["policy"] = module
    spec.loader.exec_module(module)
    return module


def _answer(
    channel: _Channel, act: Callable[[Any], Any], restore: Callable[[Any], Any] | None
) -> NoReturn:
    receive, send, encode = channel.receive, channel.send, channel.encoder.encode
    free_reserve = channel.free_reserve
    end, answer = int(Kind.END), int(Kind.ACTION)  # comparing enum members is slow
    sequence = 0
    while True:
        try:
            kind, sequence, observation = receive()
            if kind == end:
                leave(0)
            if restore is not None:
                observation = restore(observation)
        except MemoryError:
            free_reserve()
            channel.fail(sequence + 1, "memory_limit", "no memory is left for an observation")
        try:
            action = act(observation)
        except MemoryError:
            free_reserve()
            channel.fail(sequence, "memory_limit", "the policy ran out of memory in act")
        except BaseException as error:
            channel.fail(sequence, "exception", f"act: {_summary(error)}", _trace(error))
        try:
            payload = encode(action if type(action) in _PLAIN else _plain(action))
        except MemoryError:
            channel.fail(sequence, "memory_limit", "the action does not fit in memory")
        except BaseException as error:  # converting it may run the policy's own methods
            channel.fail(sequence, "invalid_action", f"the action can't be sent: {_text(error)}")
        if len(payload) > MAX_FRAME_BYTES:
            channel.fail(sequence, "invalid_action", f"the action has {len(payload)} bytes")
        send(answer, sequence, payload)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return `value` in the few types the wire carries.

    Raises:
        TypeError: A type an action can't have; msgspec alone would encode sets, dataclasses and
            more, and so turn something else into an action.
    """
    if (
        type(value) in _PLAIN
        or value is None
        or isinstance(value, np.ndarray | np.number | np.bool_)
    ):
        return value
    if isinstance(value, np.str_):
        return str(value)
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return base(value)
    if depth > 32:
        raise TypeError("the action is nested more than 32 levels deep")
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a Dict action has str keys, got {type(key).__name__}")
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    raise TypeError(
        f"a value of type {type(value).__name__} is not a number, str, list, tuple, dict or "
        "numpy array"
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "(its message can't be shown)"


def _summary(error: BaseException) -> str:
    text = _text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _trace(error: BaseException) -> str:
    """Format the traceback from the Program's first frame on."""
    try:
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code.co_filename in _OWN_FILES:
            step = step.tb_next
        linecache.checkcache()
        lines = traceback.format_exception(error.with_traceback(step))
    except BaseException:
        return _summary(error)
    if len(lines) > 2 * _MAX_TRACEBACK_FRAMES:
        lines = [
            *lines[:_MAX_TRACEBACK_FRAMES],
            f"  … {len(lines) - 2 * _MAX_TRACEBACK_FRAMES} entries removed …\n",
            *lines[-_MAX_TRACEBACK_FRAMES:],
        ]
    return "".join(lines)


_OWN_FILES = frozenset(
    {__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"}
)
