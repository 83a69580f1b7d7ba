"""The worker process: trusted, steps Environments, owns one policy zygote.

Started by the pool as `python -m evopolicygym.execution.worker FD BEATS HOST_PID ROOT`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from evopolicygym.execution.cores import pin_to_free_core
from evopolicygym.execution.process_tree import become_subreaper, die_with_parent
from evopolicygym.execution.task import EvaluationSetup, WorkerState

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Serve the pool until its connection closes.

    Args:
        arguments: Connection descriptor, descriptor of the beat memory, the Host's process id,
            private directory.
    """
    connection = Connection(int(arguments[0]))
    beats = mmap.mmap(int(arguments[1]), 8)
    die_with_parent(int(arguments[2]))
    become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pin_to_free_core()
    state = WorkerState(Path(arguments[3]), beats)
    # Benchmarks may print; nobody reads a worker's stdout.
    os.dup2(2, 1)
    connection.send("ready")
    setups: dict[int, EvaluationSetup] = {}
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            message: Any = connection.recv()
            if isinstance(message, EvaluationSetup):
                setups = {message.key: message}
            else:
                key, task = message
                connection.send(state.play(setups[key], task))
    state.close()


if __name__ == "__main__":
    main(sys.argv[1:])
