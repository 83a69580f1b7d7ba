"""A real session, served by a real server, whose evaluation the test controls."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evopolicygym.envs.toy import ToyBenchmark
from evopolicygym.run.config import RunConfig
from evopolicygym.run.ledger import Ledger
from evopolicygym.run.server import SessionServer, session_app
from evopolicygym.run.session import Evaluated, Session, Submission

TASK = "Solve toy.\n"


class Stand:
    """A session over a workspace and a ledger; a Submission's score is its number of Episodes.

    Attributes:
        go: While it is not set, Submissions are being evaluated.
        broken: Whether evaluations fail, as a Host does.
    """

    def __init__(self, root: Path, config: RunConfig) -> None:
        self.workspace = root / "workspace"
        program = self.workspace / "program"
        program.mkdir(parents=True)
        (program / "policy.py").write_text("def make_policy(context): ...\n")
        self.go = threading.Event()
        self.go.set()
        self.broken = False
        self.ledger = Ledger(root / "ledger.jsonl", budget=config.episode_budget)
        spec = ToyBenchmark().spec
        self.session = Session(config, spec, self.workspace, self.ledger, self._evaluate)
        self.app = session_app(self.session, TASK)

    def _evaluate(self, submission: Submission) -> Evaluated:
        self.go.wait(60)
        if self.broken:
            raise OSError("disk full")
        return Evaluated(float(len(submission.episode_indices)), (), lambda *_: None)


@contextmanager
def short_path() -> Iterator[Path]:
    """Yield a path for a socket; those of pytest can be longer than a socket's may be."""
    directory = Path(tempfile.mkdtemp(prefix="epgs-"))
    try:
        yield directory / "session.sock"
    finally:
        shutil.rmtree(directory)


@contextmanager
def served(stand: Stand, *, bind: str | None = None, port: int = 0) -> Iterator[SessionServer]:
    """Serve a stand, and let no evaluation outlast that."""
    with short_path() as path, SessionServer(stand.app, path, bind=bind, port=port) as server:
        try:
            yield server
        finally:
            stand.go.set()
            stand.session.close(timeout=10)
