"""The session over HTTP: one small ASGI app on a Unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from evopolicygym.errors import ExecutionError, RecordError, SessionError
from evopolicygym.run.models import (
    ErrorBody,
    ErrorDetail,
    FinishReceipt,
    FinishRequest,
    InfoFile,
    Receipt,
    SessionErrorCode,
    SubmissionStatus,
    SubmitRequest,
)
from evopolicygym.run.session import Session

__all__ = ["HTTP_STATUS", "MAX_WAIT_SECONDS", "SessionServer", "session_app"]

MAX_WAIT_SECONDS = 60.0
"""Longest time one request waits for a Submission; the client asks again."""

_MAX_BODY_BYTES = 2**20
_POLL_SECONDS = 0.02

HTTP_STATUS: dict[SessionErrorCode, int] = {
    SessionErrorCode.INVALID_REQUEST: 422,
    SessionErrorCode.INVALID_SELECTOR: 422,
    SessionErrorCode.INVALID_PROGRAM: 422,
    SessionErrorCode.TOO_FEW_EPISODES: 422,
    SessionErrorCode.TOO_MANY_EPISODES: 422,
    SessionErrorCode.INVALID_CANDIDATES: 422,
    SessionErrorCode.OVER_BUDGET: 409,
    SessionErrorCode.SUBMISSION_LIMIT: 409,
    SessionErrorCode.BUSY: 409,
    SessionErrorCode.REQUEST_CONFLICT: 409,
    SessionErrorCode.SESSION_CLOSED: 409,
    SessionErrorCode.UNKNOWN_SUBMISSION: 404,
    SessionErrorCode.HOST_FAILURE: 503,
}
"""Status of every refusal."""


def _refusal(code: SessionErrorCode, message: str, status: int | None = None) -> JSONResponse:
    text = message.encode("utf-8", "backslashreplace").decode()  # it may quote any request
    body = ErrorBody(error=ErrorDetail(code=code, message=text))
    return JSONResponse(body.model_dump(mode="json"), status or HTTP_STATUS[code])


def session_app(session: Session, task: str) -> FastAPI:
    """Create the app.

    Args:
        session: The rules.
        task: Content of `TASK.md`.
    """
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody, "description": "Refused; nothing was charged."}
        for status in sorted(set(HTTP_STATUS.values()))
    }
    app = FastAPI(
        title="EvoPolicyGym session",
        version="1",
        description="An agent's authority while its Run lasts.",
        docs_url=None,
        redoc_url=None,
    )

    @app.exception_handler(SessionError)
    async def _on_refused(request: Request, error: SessionError) -> JSONResponse:
        return _refusal(SessionErrorCode(error.code), str(error))

    @app.exception_handler(RecordError)
    async def _on_broken(request: Request, error: RecordError) -> JSONResponse:
        session.broken = error
        return _refusal(SessionErrorCode.HOST_FAILURE, "the Host can't write its record")

    @app.exception_handler(RequestValidationError)
    async def _on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "body"
        return _refusal(SessionErrorCode.INVALID_REQUEST, f"$.{where}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def _on_unknown_route(request: Request, error: HTTPException) -> JSONResponse:
        message = f"{request.method} {request.url.path}: {error.detail}"
        return _refusal(SessionErrorCode.INVALID_REQUEST, message, error.status_code)

    @app.middleware("http")
    async def _limit_body(request: Request, call_next: Callable[[Request], Awaitable[Any]]) -> Any:
        length = request.headers.get("content-length", "0")
        chunked = "transfer-encoding" in request.headers
        if chunked or not length.isascii() or not length.isdigit() or int(length) > _MAX_BODY_BYTES:
            message = f"a body needs a Content-Length of at most {_MAX_BODY_BYTES} bytes"
            return _refusal(SessionErrorCode.INVALID_REQUEST, message, 413)
        return await call_next(request)

    @app.get("/info", responses=refusals)
    def info() -> InfoFile:
        """Return the Benchmark's public spec, the limits and the state of the Run."""
        return session.info()

    @app.get("/task", response_class=PlainTextResponse)
    def task_text() -> str:
        """Return `TASK.md`."""
        return task

    @app.post("/submit", status_code=202, responses=refusals)
    def submit(body: SubmitRequest) -> Receipt:
        """Charge and start one Submission; returns at once."""
        return session.submit(body.program, body.episodes, body.request_id)

    @app.get("/submissions/{submission_id}", responses=refusals)
    async def submission(
        submission_id: str,
        wait: Annotated[float, Query(ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False)] = 0.0,
    ) -> Receipt:
        """Return one Submission, after up to `wait` seconds for its end."""
        deadline = time.monotonic() + wait
        while True:
            receipt = await run_in_threadpool(session.receipt, submission_id)
            if receipt.status is not SubmissionStatus.EVALUATING or time.monotonic() >= deadline:
                return receipt
            # Waiting clients hold no thread: however many there are, the session answers.
            await asyncio.sleep(_POLL_SECONDS)

    @app.post("/finish", responses=refusals)
    def finish(body: FinishRequest) -> FinishReceipt:
        """End the search and hand over candidates, best first."""
        return session.finish(body.candidates)

    return app


class SessionServer:
    """Serves an app on a Unix socket (0600) from a thread; use it as a context manager.

    Args:
        app: The app.
        path: Path of the socket; its directory is private.

    Raises:
        ExecutionError: The server did not come up.
    """

    def __init__(self, app: FastAPI, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old = os.umask(0o177)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(old)
        self._socket.listen(64)
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": [self._socket]},
            name="epg-session",
            daemon=True,
        )

    def __enter__(self) -> SessionServer:
        self._thread.start()
        deadline = time.monotonic() + 30
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ExecutionError("the session server did not start")
            time.sleep(0.005)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._socket.close()
        self._path.unlink(missing_ok=True)
