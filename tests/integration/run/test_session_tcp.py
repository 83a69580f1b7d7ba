"""The session on loopback TCP: who gets in, who does not, and the client's side of it."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.client import (
    SESSION_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    RefusedError,
    SessionClient,
    main,
)
from evopolicygym.run.config import RunConfig
from evopolicygym.run.loopback import loopback_url
from evopolicygym.run.server import SessionServer
from evopolicygym.run.session_models import ErrorBody, InfoFile

from .stand import TASK, Stand, served, short_path

CONFIG = RunConfig(episode_budget=100, episode_pool_size=20, max_submissions=50)


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SESSION_VARIABLE, URL_VARIABLE, TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Stand:
    return Stand(tmp_path_factory.mktemp("stand"), CONFIG)


@pytest.fixture(scope="module")
def server(stand: Stand) -> Iterator[SessionServer]:
    with served(stand, bind="127.0.0.1") as server:
        yield server


def path_of(server: SessionServer) -> Path:
    return server._path


class Answer:
    """What a server answered to one request with exactly these headers."""

    def __init__(
        self, server: SessionServer, method: str, route: str, *headers: str, body: bytes = b""
    ) -> None:
        assert server.url is not None
        lines = [f"{method} {route} HTTP/1.1", *headers, "Connection: close"]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        with socket.create_connection(loopback_url(server.url), timeout=30) as connection:
            connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            response = http.client.HTTPResponse(connection)
            response.begin()
            self.status = response.status
            self.headers = dict(response.getheaders())
            self.body = response.read()
            response.close()
        assert server.token is not None
        assert server.token.encode() not in self.body
        assert server.token not in str(self.headers)
        assert not {name for name in self.headers if name.lower().startswith("access-control")}

    @property
    def code(self) -> str:
        return ErrorBody.model_validate_json(self.body).error.code


def bearer(server: SessionServer) -> str:
    return f"Authorization: Bearer {server.token}"


# ---------------------------------------------------------------------- who gets in


def test_url_and_token(server: SessionServer) -> None:
    assert server.url is not None
    assert server.token is not None
    address, port = loopback_url(server.url)
    assert address == "127.0.0.1"
    assert port > 0
    assert len(server.token) >= 43, "256 bits"
    assert server.token not in repr(server)


def test_every_server_has_its_own_token(server: SessionServer, tmp_path: Path) -> None:
    with served(Stand(tmp_path, CONFIG), bind="127.0.0.1") as other:
        assert other.token != server.token
        assert other.url != server.url
        assert Answer(other, "GET", "/info", "Host: localhost", bearer(server)).status == 401


def test_the_right_token(server: SessionServer) -> None:
    answer = Answer(server, "GET", "/info", "Host: localhost", bearer(server))
    assert answer.status == 200
    assert InfoFile.model_validate_json(answer.body).episode_budget == 100
    answer = Answer(server, "GET", "/task", "Host: 127.0.0.1", bearer(server))
    assert (answer.status, answer.body.decode()) == (200, TASK)
    # The scheme is case-insensitive, RFC 9110 section 11.1.
    lower = f"authorization: bearer {server.token}"
    assert Answer(server, "GET", "/info", "Host: 127.0.0.1", lower).status == 200
    assert Answer(server, "GET", "/openapi.json", "Host: 127.0.0.1", lower).status == 200


ROUTES = [
    ("GET", "/info"),
    ("GET", "/task"),
    ("GET", "/openapi.json"),
    ("GET", "/submissions/submission-000001"),
    ("POST", "/submit"),
    ("POST", "/finish"),
    ("GET", "/nothing"),
    ("OPTIONS", "/submit"),
    ("TRACE", "/info"),
]


@pytest.mark.parametrize(("method", "route"), ROUTES)
def test_no_route_answers_without_the_token(
    server: SessionServer, stand: Stand, method: str, route: str
) -> None:
    body = b""
    if method == "POST":
        request = {"program": "program", "episodes": "0", "request_id": "stolen"}
        body = json.dumps(request if route == "/submit" else {"candidates": []}).encode()
    before = stand.ledger.used
    answer = Answer(server, method, route, "Host: localhost", "Origin: null", body=body)
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert stand.ledger.used == before


@pytest.mark.parametrize(
    "headers",
    [
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        ["Authorization: Bearer x"],
        ["Authorization: {token}"],
        ["Authorization: Basic {token}"],
        ["Authorization: Bearer  {token}"],
        ["Authorization: Bearer {token}x"],
        ["Authorization: Bearer x{token}"],
        ["Authorization: Bearer {token}, Bearer {token}"],
        ["Authorization: Bearer {token}", "Authorization: Bearer {token}"],
        ["Authorization: Bearer x", "Authorization: Bearer {token}"],
        ["Authorization: Bearer \u00e9"],
        ["Proxy-Authorization: Bearer {token}"],
        ["Cookie: token={token}"],
        # Nothing that a client says of itself makes it local.
        ["X-Forwarded-For: unix", "X-Forwarded-Proto: unix", "Forwarded: for=unix"],
        ["X-Forwarded-For: "],
    ],
    ids=lambda headers: headers[-1][:40],
)
def test_wrong_tokens(server: SessionServer, headers: list[str]) -> None:
    filled = [header.format(token=server.token) for header in headers]
    answer = Answer(server, "GET", "/info", "Host: localhost", *filled)
    assert (answer.status, answer.code) == (401, "unauthorized")


def test_a_token_in_the_url_is_none(server: SessionServer) -> None:
    answer = Answer(server, "GET", f"/info?token={server.token}", "Host: localhost")
    assert answer.status == 401


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("192.168.0.1", "0.0.0.0", "[::2]:80", "127.0.0.1:99999", "evil@localhost", "session"),
        *("", "localhost, evil.example", "127.0.0.1:80:80", "a.localhost"),
    ],
)
def test_other_hosts(server: SessionServer, host: str) -> None:
    """A page whose name was rebound to this machine; it may even know the token."""
    for more in ([bearer(server)], []):
        answer = Answer(server, "GET", "/info", f"Host: {host}", *more)
        assert (answer.status, answer.code) == (403, "unauthorized")
        assert "Host header" in answer.body.decode()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:43211", "[::1]:80"])
def test_hosts_of_this_machine(server: SessionServer, host: str) -> None:
    assert Answer(server, "GET", "/info", f"Host: {host}", bearer(server)).status == 200


@pytest.mark.parametrize("hosts", [[], ["Host: localhost", "Host: localhost"]])
def test_no_host_and_two(server: SessionServer, hosts: list[str]) -> None:
    assert Answer(server, "GET", "/info", *hosts, bearer(server)).status in (400, 403)


def test_http_1_0_without_a_host(server: SessionServer) -> None:
    assert server.url is not None
    with socket.create_connection(loopback_url(server.url), timeout=30) as connection:
        connection.sendall(f"GET /info HTTP/1.0\r\n{bearer(server)}\r\n\r\n".encode())
        assert connection.makefile("rb").readline().split()[1] == b"403"


def test_refusals_of_the_session_are_the_same(server: SessionServer) -> None:
    known = ["Host: localhost", bearer(server)]
    assert Answer(server, "GET", "/nothing", *known).status == 404
    assert Answer(server, "GET", "/submissions/x", *known).code == "unknown_submission"
    assert Answer(server, "POST", "/submit", *known, body=b"[]").code == "invalid_request"
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    assert Answer(server, "GET", "/info", "Host: localhost", *upgrade).status == 401


# ------------------------------------------------------------------- the Unix socket


def test_the_unix_socket_needs_no_token(server: SessionServer) -> None:
    path = path_of(server)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SessionClient(str(path)).info()["state"] == "open"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(b"GET /info HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert connection.makefile("rb").readline().split()[1] == b"200"


def test_without_bind_there_is_no_tcp(tmp_path: Path) -> None:
    with served(Stand(tmp_path, CONFIG)) as server:
        assert (server.url, server.token) == (None, None)
        assert SessionClient(str(path_of(server))).info()["state"] == "open"


def test_what_is_not_the_unix_socket_needs_a_token(tmp_path: Path) -> None:
    """Fail closed: a scope without an address, or with another socket's, is not trusted."""
    import anyio

    with served(Stand(tmp_path, CONFIG)) as server:
        door = server._server.config.app
        path = str(path_of(server))
        statuses = []

        async def ask(scope: dict[str, Any]) -> None:
            async def send(message: dict[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": b"", "more_body": False}

            host = [(b"host", b"localhost")]
            known = {"type": "http", "method": "GET", "path": "/info", "raw_path": b"/info"}
            known |= {"query_string": b"", "headers": host, "http_version": "1.1", "scheme": "http"}
            known |= {"root_path": "", "asgi": {"version": "3.0"}}
            await door(known | scope, receive, send)  # type: ignore[operator]

        for scope in (
            {"server": (path, None), "client": None},
            {},
            {"server": None, "client": None},
            {"server": ("other", None), "client": None},
            {"server": (path, 80), "client": None},
            {"server": (path, None), "client": ("127.0.0.1", 5)},
            {"server": ("127.0.0.1", 80), "client": None},
        ):
            anyio.run(ask, scope)
    assert statuses == [200, 401, 401, 401, 401, 401, 401]


# ------------------------------------------------------------------------ listening


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "", "10.0.0.1", "example.com", "127.0.0.1:80"])
def test_only_loopback_is_listened_on(stand: Stand, bind: str) -> None:
    with short_path() as path:
        with pytest.raises(ConfigurationError, match="no loopback address"):
            SessionServer(stand.app, path, bind=bind)
        assert not path.exists()


@pytest.mark.parametrize("port", [-1, 65536])
def test_no_such_port(stand: Stand, port: int) -> None:
    with short_path() as path, pytest.raises(ConfigurationError, match="is no port"):
        SessionServer(stand.app, path, bind="127.0.0.1", port=port)


def test_a_port_in_use(stand: Stand) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, short_path() as path:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"127.0.0.1: port {port} is in use: choose"):
            SessionServer(stand.app, path, bind="127.0.0.1", port=port)
        assert not path.exists()


def test_a_socket_that_is_there_frees_the_port(stand: Stand) -> None:
    with short_path() as path:
        path.touch()
        with pytest.raises(OSError, match="in use"):
            SessionServer(stand.app, path, bind="127.0.0.1")


def test_a_port_can_be_chosen_and_used_again(tmp_path: Path) -> None:
    stand = Stand(tmp_path, CONFIG)
    port = 0
    for _ in range(2):  # the first connection is in TIME-WAIT then
        with served(stand, bind="localhost", port=port) as server:
            assert server.url is not None
            port = port or loopback_url(server.url)[1]
            assert server.url == f"http://127.0.0.1:{port}"
            assert Answer(server, "GET", "/info", "Host: localhost", bearer(server)).status == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="the machine has no ::1")
def test_ipv6(tmp_path: Path) -> None:
    with served(Stand(tmp_path, CONFIG), bind="::1") as server:
        assert server.url is not None
        assert server.url.startswith("http://[::1]:")
        assert Answer(server, "GET", "/info", "Host: [::1]").status == 401
        assert Answer(server, "GET", "/info", "Host: [::1]", bearer(server)).status == 200
        client = SessionClient(url=server.url, token=server.token)
        assert client.info()["state"] == "open"


# ----------------------------------------------------------------------- the client


def test_a_whole_session_over_tcp(tmp_path: Path) -> None:
    with served(Stand(tmp_path, CONFIG), bind="127.0.0.1") as server:
        client = SessionClient(url=server.url, token=server.token)
        name = client.submit("program", "0:3", request_id="one")["submission_id"]
        receipt = client.wait(name, 30)
        assert (receipt["status"], receipt["score"]) == ("published", 3.0)
        assert client.submit("program", "0:3", request_id="one") == receipt
        assert client.finish([name])["candidates"] == [name]
        # Both doors lead to the same session.
        assert SessionClient(str(path_of(server))).info()["state"] == "finished"


def test_the_command_line_reads_the_variables(
    server: SessionServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server.url is not None
    assert server.token is not None
    monkeypatch.setenv(URL_VARIABLE, server.url)
    monkeypatch.setenv(TOKEN_VARIABLE, server.token)
    # A proxy would be asked by a client that uses one, and nobody listens on port 9.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert main(["status"]) == 0
    assert json.loads(capsys.readouterr().out)["episode_budget"] == 100
    monkeypatch.setenv(TOKEN_VARIABLE, "wrong")
    assert main(["status"]) == 4
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == "unauthorized"
    assert "wrong" not in captured.out + captured.err
    # The socket goes first.
    monkeypatch.setenv(SESSION_VARIABLE, str(path_of(server)))
    assert main(["status"]) == 0


@pytest.mark.parametrize(
    "token", ["", " ", "a\nb", "a\r\nX: y", "\u00e9", "\ud800", "a\0b"], ids=ascii
)
def test_no_token_to_show(server: SessionServer, token: str) -> None:
    with pytest.raises(RefusedError, match="holds no token") as error:
        SessionClient(url=server.url, token=token).info()
    assert error.value.code == "unauthorized"


def test_nothing_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 4
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "unreachable"
    assert f"neither {SESSION_VARIABLE} nor {URL_VARIABLE} is set" in error["message"]


@pytest.mark.parametrize(
    "url",
    [
        *(
            "https://127.0.0.1:8000",
            "http://example.com",
            "http://10.0.0.1:80",
            "http://0.0.0.0:80",
        ),
        *("http://127.0.0.1@example.com", "http://x:y@127.0.0.1:80", "127.0.0.1:80", "http://"),
        *("file:///etc/passwd", "http://127.0.0.1:80/x", "http://127.0.0.1:99999"),
    ],
)
def test_other_urls_are_refused(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("nothing may be asked")

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    monkeypatch.setenv(URL_VARIABLE, url)
    monkeypatch.setenv(TOKEN_VARIABLE, "secret-token")
    assert main(["status"]) == 4
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert error["code"] == "unreachable"
    assert error["message"].startswith(f"{URL_VARIABLE}: ")
    assert "secret-token" not in captured.out + captured.err


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as freed:
        port = freed.getsockname()[1]
    with pytest.raises(RefusedError) as error:
        SessionClient(url=f"http://127.0.0.1:{port}", token="t").info()
    assert error.value.code == "unreachable"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304])
def test_redirects_are_not_followed(server: SessionServer, status: int) -> None:
    """Not even to the session itself, and the body of one is no answer."""
    body = b'{"state": "open"}'
    head = f"HTTP/1.1 {status} Found\r\nLocation: {server.url}/info\r\n"
    head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    asked = []

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            asked.append(connection.recv(65536))
            connection.sendall(head.encode() + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(RefusedError) as error:
            SessionClient(url=url, token="t").info()
        thread.join(30)
    assert error.value.code == "host_failure"
    assert len(asked) == 1
