"""One cell in a process of its own: `python -P -m evopolicygym.suite.cell JOB RECORD`.

JOB is a JSON file with `[run]`, `[agent]` and `[server]`. Events go to stdout, a JSON line each; a
person's messages go to stderr. SIGINT ends the Run, and the record says so.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Any

from evopolicygym.errors import ConfigurationError, EvoPolicyGymError
from evopolicygym.execution.process_tree import become_subreaper, die_with_parent
from evopolicygym.run.result import RunEvent
from evopolicygym.strict_json import dumps, loads
from evopolicygym.suite.config import AgentSection, RunSection, ServerSection
from evopolicygym.suite.play import prepared

__all__ = ["RESULT", "main"]

RESULT = "cell_result"
"""Kind of the last event."""


def main(argv: list[str]) -> int:
    """Play the cell; return the exit code."""
    die_with_parent(os.getppid())
    become_subreaper()  # what the Run leaves behind stays with it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
    job = loads(Path(argv[0]).read_bytes())
    # What environments print must not be taken for an event.
    own = os.dup(1)
    os.dup2(2, 1)
    lock = threading.Lock()
    with os.fdopen(own, "wb") as stream:
        try:
            ready = prepared(
                RunSection.model_validate(job["run"]),
                AgentSection.model_validate(job["agent"]),
                ServerSection.model_validate(job["server"]),
            )
            result = ready.play(Path(argv[1]), lambda event: _tell(stream, lock, event))
        except KeyboardInterrupt:
            return 130
        except EvoPolicyGymError as error:
            sys.stderr.write(f"error: {error}\n")
            return 2 if isinstance(error, ConfigurationError) else 1
        data: dict[str, Any] = {
            "reason": result.terminal_reason.value,
            "counts": result.counts,
            "score": result.assessment_score,
            "episodes_used": result.episodes_used,
            "message": result.message,
        }
        _tell(stream, lock, RunEvent(RESULT, "", data))
    return 0


def _tell(stream: IO[bytes], lock: threading.Lock, event: RunEvent) -> None:
    with lock:
        stream.write(dumps({"kind": event.kind, "data": event.data}) + b"\n")
        stream.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
