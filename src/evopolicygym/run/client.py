"""`evopolicygym-session`: an agent's command line, a thin client of the session.

Prints one JSON object on stdout. Exit codes: 0 done, 1 the Host failed, 2 invalid request,
3 busy (try again later), 4 the session is closed, over budget or can't be reached or entered.

It imports the standard library only: agents call it often. `evopolicygym-session mcp` alone loads
more, and speaks the Model Context Protocol on standard input and output instead.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

__all__ = [
    "SESSION_VARIABLE",
    "TOKEN_VARIABLE",
    "URL_VARIABLE",
    "WORKSPACE_VARIABLE",
    "RefusedError",
    "SessionClient",
    "main",
    "workspace_path",
]

SESSION_VARIABLE = "EVOPOLICYGYM_SESSION"
URL_VARIABLE = "EVOPOLICYGYM_SESSION_URL"
TOKEN_VARIABLE = "EVOPOLICYGYM_SESSION_TOKEN"
WORKSPACE_VARIABLE = "EVOPOLICYGYM_WORKSPACE"

_POLL_SECONDS = 30.0
_INVALID, _BUSY, _CLOSED = 2, 3, 4
_EXIT_CODES = {
    "invalid_request": _INVALID,
    "invalid_selector": _INVALID,
    "invalid_program": _INVALID,
    "invalid_candidates": _INVALID,
    "too_few_episodes": _INVALID,
    "too_many_episodes": _INVALID,
    "unknown_submission": _INVALID,
    "request_conflict": _INVALID,
    "busy": _BUSY,
    "over_budget": _CLOSED,
    "submission_limit": _CLOSED,
    "session_closed": _CLOSED,
    "unreachable": _CLOSED,
    "unauthorized": _CLOSED,
    "host_failure": 1,
}


class RefusedError(Exception):
    """The Host refused a request, or can't be reached.

    Attributes:
        code: One of the session's error codes, or `unreachable`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("session", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class SessionClient:
    """Speaks to a session, over its Unix socket or over loopback TCP.

    Redirects are not followed and proxies are not used.

    Args:
        path: The session's socket; None reads `EVOPOLICYGYM_SESSION`.
        url: Base URL of the session, for want of a socket; None reads `EVOPOLICYGYM_SESSION_URL`.
        token: The token that belongs to the URL; None reads `EVOPOLICYGYM_SESSION_TOKEN`.
    """

    def __init__(
        self, path: str | None = None, *, url: str | None = None, token: str | None = None
    ) -> None:
        if path is None:
            path = os.environ.get(SESSION_VARIABLE, "") if url is None else ""
        self._path = path
        self._url = os.environ.get(URL_VARIABLE, "") if url is None else url
        self._token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token

    def _connect(self) -> tuple[http.client.HTTPConnection, dict[str, str]]:
        """Return a connection, not open yet, and what its requests have to show."""
        timeout = _POLL_SECONDS + 60
        if self._path:
            return _UnixConnection(self._path, timeout), {}
        if not self._url:
            raise RefusedError(
                "unreachable",
                f"neither {SESSION_VARIABLE} nor {URL_VARIABLE} is set: is this inside a Run's "
                "workspace?",
            )
        from evopolicygym.errors import ConfigurationError
        from evopolicygym.run.loopback import loopback_url

        try:
            address, port = loopback_url(self._url)
        except ConfigurationError as error:
            raise RefusedError("unreachable", f"{URL_VARIABLE}: {error}") from None
        if not (self._token.isascii() and self._token.isprintable() and self._token.strip()):
            raise RefusedError("unauthorized", f"{TOKEN_VARIABLE} is not set, or holds no token")
        headers = {"Authorization": f"Bearer {self._token}"}
        return http.client.HTTPConnection(address, port, timeout=timeout), headers

    def request(self, method: str, route: str, body: dict[str, Any] | None = None) -> Any:
        """Make one request and return the decoded answer.

        Raises:
            RefusedError: The Host refused it, or can't be reached.
        """
        connection, headers = self._connect()
        headers["Content-Type"] = "application/json"
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, route, payload, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise RefusedError("unreachable", f"the session can't be reached: {error}") from None
        finally:
            connection.close()
        try:
            answer = json.loads(content)
        except ValueError:
            raise RefusedError(
                "host_failure", f"the session answered {response.status} without JSON"
            ) from None
        if not isinstance(answer, dict):
            raise RefusedError("host_failure", "the session's answer is no JSON object")
        if not 200 <= response.status < 300:
            detail = answer.get("error")
            if not isinstance(detail, dict):
                detail = {}
            message = detail.get("message", f"the session answered {response.status} and no reason")
            raise RefusedError(str(detail.get("code", "host_failure")), str(message))
        return answer

    def info(self) -> dict[str, Any]:
        """Return the state of the Run."""
        answer: dict[str, Any] = self.request("GET", "/info")
        return answer

    def submit(
        self, program: str, episodes: str, *, request_id: str | None = None
    ) -> dict[str, Any]:
        """Start a Submission; `program` is relative to the workspace."""
        body = {
            "program": program,
            "episodes": episodes,
            "request_id": secrets.token_hex(8) if request_id is None else request_id,
        }
        answer: dict[str, Any] = self.request("POST", "/submit", body)
        return answer

    def wait(self, submission_id: str, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the end of a Submission, at most `timeout` seconds; return its receipt."""
        name = "".join(c for c in submission_id if c.isascii() and (c.isalnum() or c in "-_"))
        if name != submission_id or not name:
            raise RefusedError("unknown_submission", f"{submission_id!r} is no Submission id")
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            seconds = max(0.0, min(_POLL_SECONDS, deadline - time.monotonic()))
            receipt: dict[str, Any] = self.request("GET", f"/submissions/{name}?wait={seconds:.3f}")
            if receipt["status"] != "evaluating" or time.monotonic() >= deadline:
                return receipt

    def finish(self, candidates: Sequence[str]) -> dict[str, Any]:
        """Hand over candidates, best first."""
        answer: dict[str, Any] = self.request("POST", "/finish", {"candidates": list(candidates)})
        return answer


def workspace_path(program: str, directory: str | None = None) -> str:
    """Return `program` relative to the workspace.

    Args:
        program: Path relative to `directory`, or an absolute one.
        directory: None stands for the current directory.
    """
    workspace = os.environ.get(WORKSPACE_VARIABLE)
    if not workspace:
        return program
    start = os.getcwd() if directory is None else directory  # noqa: PTH109 - pathlib is slow to import
    absolute = os.path.join(os.path.realpath(start), program)  # noqa: PTH118
    return os.path.relpath(os.path.normpath(absolute), os.path.realpath(workspace))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(json.dumps({"error": {"code": "invalid_request", "message": message}}))
        self.print_usage(sys.stderr)
        self.exit(_INVALID, f"{self.prog}: {message}\n")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="evopolicygym-session",
        description="Submit programs, read where the Run stands, hand over candidates.",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    submit = commands.add_parser("submit", help="evaluate a program on selected Episodes")
    submit.add_argument("program", help="directory inside the workspace, e.g. program")
    submit.add_argument("--episodes", required=True, help='selector such as "0:2,4:8"')
    submit.add_argument("--request-id", help="sending the same id again is charged once")
    submit.add_argument("--no-wait", action="store_true", help="return before the evaluation ends")
    submit.add_argument(
        "--timeout", type=_seconds, help="seconds to wait; `wait` picks it up again"
    )
    commands.add_parser("status", help="budget, limits and all Submissions so far")
    wait = commands.add_parser("wait", help="wait for a Submission and print its receipt")
    wait.add_argument("submission", help="e.g. submission-000001")
    wait.add_argument("--timeout", type=_seconds, help="seconds to wait")
    finish = commands.add_parser("finish", help="end the search and hand over candidates")
    finish.add_argument("submissions", nargs="+", help="best first; one unless Validation is on")
    commands.add_parser("mcp", help="serve the commands as MCP tools on standard input and output")
    return parser


def _perform(options: argparse.Namespace) -> dict[str, Any]:
    client = SessionClient()
    if options.command == "submit":
        program = workspace_path(options.program)
        receipt = client.submit(program, options.episodes, request_id=options.request_id)
        if options.no_wait or receipt["status"] != "evaluating":
            return receipt
        return client.wait(receipt["submission_id"], options.timeout)
    if options.command == "status":
        return client.info()
    if options.command == "wait":
        return client.wait(options.submission, options.timeout)
    return client.finish(options.submissions)


def _serve_mcp() -> int:
    try:
        from evopolicygym.run.mcp_server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("evopolicygym"):
            raise
        # Not on standard output: that is the protocol's.
        print(
            f"evopolicygym-session: mcp needs the package {error.name}: "
            'pip install "evopolicygym[agents]"',
            file=sys.stderr,
        )
        return _INVALID
    return serve()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "mcp":
        return _serve_mcp()
    try:
        answer = _perform(options)
    except RefusedError as error:
        print(json.dumps({"error": {"code": error.code, "message": str(error)}}))
        print(f"evopolicygym-session: {error}", file=sys.stderr)
        return _EXIT_CODES.get(error.code, 1)
    except KeyboardInterrupt:
        return 130
    print(json.dumps(answer))
    return 1 if answer.get("status") == "failed" else 0


if __name__ == "__main__":
    sys.exit(main())
