"""The session over HTTP: one small ASGI app on a Unix socket and, if asked, on loopback TCP."""

from __future__ import annotations

import asyncio
import errno
import hmac
import os
import secrets
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
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from evopolicygym.errors import ConfigurationError, ExecutionError, RecordError, SessionError
from evopolicygym.run.loopback import loopback_address, loopback_authority, loopback_port
from evopolicygym.run.session import Session
from evopolicygym.run.session_models import (
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

__all__ = ["HTTP_STATUS", "MAX_WAIT_SECONDS", "SessionServer", "check_port", "session_app"]

MAX_WAIT_SECONDS = 60.0
"""Longest time one request waits for a Submission; the client asks again."""

_MAX_BODY_BYTES = 2**20
_POLL_SECONDS = 0.02
_TOKEN_BYTES = 32

HTTP_STATUS: dict[SessionErrorCode, int] = {
    SessionErrorCode.UNAUTHORIZED: 401,
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


class _Door:
    """Lets in whoever comes over the Unix socket, and over TCP who knows the token.

    Args:
        app: What is behind it.
        path: Path of the Unix socket, whose mode is the guard there.
        token: The token; None lets nobody else in.
    """

    def __init__(self, app: ASGIApp, path: Path, token: str | None) -> None:
        self._app = app
        self._unix = (os.fspath(path), None)
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The server's own address, from `getsockname`; nothing that a client sends changes it.
        # Whatever does not look exactly like the Unix socket has to show the token.
        if scope.get("client") is None and scope.get("server") == self._unix:
            await self._app(scope, receive, send)
        else:
            answer = self._refusal(Headers(scope=scope))
            await (self._app if answer is None else answer)(scope, receive, send)

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        """Return why a request over TCP is refused, or None."""
        code = SessionErrorCode.UNAUTHORIZED
        try:
            (host,) = headers.getlist("host")
            loopback_authority(host)
        except (ValueError, ConfigurationError):
            # A page in a browser whose name was made to resolve to this machine.
            message = "the Host header must name a loopback address, such as 127.0.0.1 or localhost"
            return _refusal(code, message, 403)
        given = headers.getlist("authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        known = self._token is not None and hmac.compare_digest(token.encode(), self._token)
        if known and scheme.lower() == "bearer":
            return None
        refusal = _refusal(code, "over TCP a session needs `Authorization: Bearer TOKEN`")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal


def _listen_unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        old = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(old)
        listener.listen(64)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_tcp(bind: str, port: int) -> socket.socket:
    """Listen on a loopback address.

    Raises:
        ConfigurationError: The address is not a loopback address, or can't be listened on.
    """
    address, port = loopback_address(bind), loopback_port(port)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = None
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        # The port of a Run that has just ended; a port that is listened on stays taken.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(64)
    except OSError as error:
        if listener is not None:
            listener.close()
        if error.errno == errno.EADDRINUSE:
            what = f"port {port} is in use: choose another one, or 0 for a free one"
        elif error.errno == errno.EACCES:
            what = f"port {port} is not allowed: choose one above 1023, or 0 for a free one"
        else:
            what = f"{error.strerror or error}: try 127.0.0.1 and the port 0"
        raise ConfigurationError(f"the session can't listen on {address}: {what}") from None
    return listener


def check_port(bind: str, port: int) -> None:
    """Check that a session can listen there now.

    Raises:
        ConfigurationError: It can't.
    """
    _listen_tcp(bind, port).close()


class SessionServer:
    """Serves an app from a thread; use it as a context manager.

    Args:
        app: The app.
        path: Path of the Unix socket (0600); its directory is private.
        bind: Loopback address to listen on as well, or None.
        port: Port there; 0 picks a free one.

    Attributes:
        url: Base URL over TCP, such as `http://127.0.0.1:43211`, or None.
        token: What a request over TCP must show, or None. A secret.

    Raises:
        ConfigurationError: `bind` and `port` can't be listened on.
        ExecutionError: The server did not come up.
    """

    def __init__(self, app: FastAPI, path: Path, *, bind: str | None = None, port: int = 0) -> None:
        self.url: str | None = None
        self.token: str | None = None
        self._path = path
        self._sockets: list[socket.socket] = []
        try:
            if bind is not None:
                listener = _listen_tcp(bind, port)
                self._sockets.append(listener)
                address, number = listener.getsockname()[:2]
                host = f"[{address}]" if ":" in address else address
                self.url = f"http://{host}:{number}"
                self.token = secrets.token_urlsafe(_TOKEN_BYTES)
            self._sockets.append(_listen_unix(path))
        except BaseException:
            self._close()
            raise
        config = uvicorn.Config(
            _Door(app, path, self.token),
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            proxy_headers=False,  # no client says where it came from
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run,
            kwargs={"sockets": self._sockets},
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
        self._close()
        self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        for listener in self._sockets:
            listener.close()
