"""`evopolicygym-session` and the socket behind it, against the Host of a real Run."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evopolicygym.run.ledger import episodes_used
from evopolicygym.run.session_models import SessionErrorCode

from .tools import (
    SESSION,
    WAITING_AGENT,
    Done,
    StagedRun,
    check_record,
    checked,
    collected,
    command,
    ledger,
    run_file,
    schema,
    started,
    wait_until,
)

LIMITS = ["--minimum", "2", "--maximum", "4", "--pool", "16", "--max-submissions", "500"]
MEASURED = ["--valid-size", "2", "--final-size", "2"]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StagedRun]:
    """One Run for all tests that leave its session open and idle."""
    home = tmp_path_factory.mktemp("stage")
    with StagedRun(home, "--budget", "1000", *LIMITS, *MEASURED) as staged:
        yield staged
        staged.gate.touch()
        staged.go()
        done = checked(staged.end())
        # Whatever was sent to the socket, nothing of it reached the Host's terminal.
        allowed = (
            r"unsafe execution|submission-\d{6}  score |search ended|validation: |assessment: "
            r"|note: the agent exited without finish"
        )
        strange = [line for line in done.stderr.splitlines() if not re.match(allowed, line)]
        assert strange == []
    assert done.code == 0
    assert run_file(staged.root)["terminal_reason"] == "exited"
    assert run_file(staged.root)["episodes_used"] == episodes_used(staged.root / "ledger.jsonl")
    assert check_record(staged.root) > 0


@pytest.fixture
def idle(stage: StagedRun) -> Iterator[StagedRun]:
    """The shared Run; a test that expects refusals only gets checked that they were free."""
    before = ledger(stage.root)
    yield stage
    assert ledger(stage.root) == before
    assert stage.session("status").code == 0


@pytest.fixture
def closed(stage: StagedRun) -> Iterator[StagedRun]:
    """The shared Run with a closed gate: Submissions of `gated` last until the test opens it."""
    stage.gate.unlink(missing_ok=True)
    yield stage
    stage.gate.touch()
    assert wait_until(lambda: not stage.evaluating)


def refused(done: Done, code: str, status: int) -> str:
    """Check a refusal; return its message."""
    assert done.code == status, done
    if code in {known.value for known in SessionErrorCode}:
        schema("error").validate(done.json)
    assert done.json.keys() == {"error"}
    assert done.json["error"]["code"] == code
    message: str = done.json["error"]["message"]
    assert message
    assert done.stderr.strip().endswith(message)
    return message


# ------------------------------------------------------------------ what works


def test_status(stage: StagedRun) -> None:
    done = stage.session("status")
    assert (done.code, done.stderr) == (0, "")
    schema("info").validate(done.json)
    assert done.json["state"] == "open"
    assert done.json["benchmark"]["id"] == "toy"
    assert done.json["episode_budget"] == 1000
    assert done.json["episode_pool_size"] == 16
    assert done.json["min_episodes_per_submission"] == 2
    assert done.json["max_episodes_per_submission"] == 4
    assert done.json["max_candidates"] == 3
    assert 0 < done.json["seconds_remaining"] <= 3600
    assert not {"seed", "environment_seed", "policy_seed"} & set(re.findall(r"\w+", done.stdout))
    assert str(stage.root) not in done.stdout


def test_submit_waits_for_a_receipt(stage: StagedRun) -> None:
    before = stage.session("status").json
    done = stage.session("submit", "solved", "--episodes", "0:2,5")
    assert (done.code, done.stderr) == (0, "")
    receipt = done.json
    schema("receipt").validate(receipt)
    assert receipt["status"] == "published"
    assert receipt["score"] >= 2
    assert receipt["episode_indices"] == [0, 1, 5]
    assert receipt["episodes_used"] == before["episodes_used"] + 3
    assert receipt["episodes_remaining"] == before["episodes_remaining"] - 3
    assert receipt["submissions_remaining"] == before["submissions_remaining"] - 1
    feedback = json.loads((stage.workspace / receipt["feedback"]).read_bytes())
    schema("feedback").validate(feedback)
    assert feedback["score"] == receipt["score"]
    assert [row["index"] for row in feedback["episodes"]] == [0, 1, 5]
    waited = stage.session("wait", receipt["submission_id"])
    assert waited.code == 0
    assert waited.json == receipt
    assert stage.session("status").json["submissions"][-1] == receipt


def test_a_program_is_named_from_the_current_directory(stage: StagedRun) -> None:
    for directory, name in (("solved", "."), ("analysis", "../solved"), (".", "./solved/")):
        argv = ["submit", name, "--episodes", "0:2"]
        done = command(SESSION, *argv, cwd=stage.workspace / directory, **stage.variables)
        assert done.code == 0, done
    absolute = stage.session("submit", str(stage.workspace / "solved"), "--episodes", "0:2")
    assert absolute.code == 0


def test_no_wait_and_wait(closed: StagedRun) -> None:
    receipt = closed.session("submit", "gated", "--episodes", "0:2", "--no-wait").json
    schema("receipt").validate(receipt)
    assert receipt["status"] == "evaluating"
    assert (receipt["score"], receipt["feedback"]) == (None, None)
    name = receipt["submission_id"]
    assert closed.session("status").json["evaluating"] == name
    still = closed.session("wait", name, "--timeout", "0.2")
    assert (still.code, still.json["status"]) == (0, "evaluating")
    assert not (closed.workspace / "feedback" / name).exists()
    closed.gate.touch()
    ended = closed.session("wait", name)
    assert (ended.code, ended.json["status"]) == (0, "published")
    assert closed.session("status").json["evaluating"] is None


def test_a_killed_client_cancels_nothing(closed: StagedRun) -> None:
    argv = ["submit", "gated", "--episodes", "0:4", "--request-id", "killed"]
    client = closed.start(*argv)
    assert wait_until(lambda: closed.evaluating)
    client.send_signal(signal.SIGKILL)
    client.communicate()
    name = closed.session("status").json["evaluating"]
    closed.gate.touch()
    done = closed.session("wait", name)
    assert done.code == 0
    assert done.json["status"] == "published"
    assert done.json["episode_indices"] == [0, 1, 2, 3]
    # Not knowing what became of it, an agent sends it again.
    again = closed.session(*argv)
    assert again.code == 0
    assert again.json == done.json
    charges = [line for line in ledger(closed.root) if line["request_id"] == "killed"]
    assert [(line["kind"], line["submission_id"]) for line in charges] == [("charge", name)]


def test_an_interrupted_client(closed: StagedRun) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        client = closed.start("submit", "gated", "--episodes", "0:2")
    finally:
        signal.signal(signal.SIGINT, before)
    assert wait_until(lambda: closed.evaluating)
    name = closed.session("status").json["evaluating"]
    client.send_signal(signal.SIGINT)
    done = collected(client)
    assert (done.code, done.stdout) == (130, "")
    closed.gate.touch()
    assert closed.session("wait", name).json["status"] == "published"


def test_a_request_id_is_charged_once(stage: StagedRun) -> None:
    argv = ["submit", "solved", "--episodes", "1:3", "--request-id", "once"]
    first = stage.session(*argv)
    assert first.code == 0
    # What the workspace holds by now does not matter: the request was answered.
    second = stage.session("submit", "program", "--episodes", "1:3", "--request-id", "once")
    assert second.json == first.json
    charges = [line for line in ledger(stage.root) if line["request_id"] == "once"]
    assert len(charges) == 1
    other = stage.session("submit", "solved", "--episodes", "1:4", "--request-id", "once")
    refused(other, "request_conflict", 2)
    assert len(ledger(stage.root)) == charges[0]["sequence"] + 1


def test_two_submits_at_once(closed: StagedRun) -> None:
    before = ledger(closed.root)
    clients = [
        closed.start("submit", "gated", "--episodes", f"{first}:{first + 2}") for first in (0, 4)
    ]
    assert wait_until(lambda: any(client.poll() is not None for client in clients))
    (loser,) = [client for client in clients if client.poll() is not None]
    (winner,) = [client for client in clients if client is not loser]
    message = refused(collected(loser), "busy", 3)
    assert "submission-0" in message
    # It stays busy for everybody; what is refused is free.
    refused(closed.session("submit", "solved", "--episodes", "0:2"), "busy", 3)
    refused(closed.session("finish", "submission-000001"), "busy", 3)
    closed.gate.touch()
    done = collected(winner)
    assert (done.code, done.json["status"]) == (0, "published")
    (charge,) = ledger(closed.root)[len(before) :]
    assert charge["episode_indices"] == done.json["episode_indices"]
    assert charge["episodes_used"] == before[-1]["episodes_used"] + 2 if before else 2


def test_policies_that_fail_are_published(stage: StagedRun) -> None:
    stage.write("broken", "def make_policy(context):\n    raise SystemExit(3)\n")
    done = stage.session("submit", "broken", "--episodes", "0:2")
    assert (done.code, done.json["status"], done.json["score"]) == (0, "published", 0.0)
    feedback = json.loads((stage.workspace / done.json["feedback"]).read_bytes())
    assert [row["failure"]["code"] for row in feedback["episodes"]] == ["init_error"] * 2


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "selector",
    [
        *("", " 1", "3:1", "1:1", "0,0", "1:2,1", "2,1", "9999", "0:17", "16", "a", "-1", "0:"),
        *(":2", "0;1", "0..2", "1e1", "01", "٣", "0," * 50_000, "9" * 500, "0:2\n", "0x1"),
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_selectors(idle: StagedRun, selector: str) -> None:
    done = idle.session("submit", "solved", f"--episodes={selector}")
    message = refused(done, "invalid_selector", 2)
    assert len(message) < 500, "an agent reads this"


@pytest.mark.parametrize(
    ("episodes", "code"), [("0", "too_few_episodes"), ("0:5", "too_many_episodes")]
)
def test_sizes(idle: StagedRun, episodes: str, code: str) -> None:
    refused(idle.session("submit", "solved", "--episodes", episodes), code, 2)


@pytest.mark.parametrize(
    "program",
    [
        *("missing", "", ".", "..", "../..", "/", "/etc", "TASK.md", "TASK.md/x", "analysis"),
        *("link", "link/inner", "holder", "nothing", "feedback/latest.json"),
        *("x" * 300, "x/" * 3000, b"\xff", "a\nb", "~", "program/policy.py"),
    ],
    ids=lambda name: ascii(name[:12]),
)
def test_programs(idle: StagedRun, program: str | bytes) -> None:
    link = idle.workspace / "link"
    if not link.is_symlink():
        link.symlink_to("solved")
        (idle.workspace / "holder").mkdir()
        (idle.workspace / "holder" / "policy.py").symlink_to("../solved/policy.py")
        idle.write("nothing", "policy = 1\n")
    done = idle.session("submit", program, "--episodes", "0:2")
    message = refused(done, "invalid_program", 2)
    assert str(idle.workspace) not in message


@pytest.mark.parametrize("request_id", ["bad id", "", "x" * 65, "é", "a/b", "a\n"], ids=ascii)
def test_request_ids(idle: StagedRun, request_id: str) -> None:
    done = idle.session("submit", "solved", "--episodes", "0:2", f"--request-id={request_id}")
    refused(done, "invalid_request", 2)


@pytest.mark.parametrize(
    "name", ["submission-009999", "submission-1", "", "..", "../info", "x?wait=1", "ü", "x" * 5000]
)
def test_unknown_submissions(idle: StagedRun, name: str) -> None:
    refused(idle.session("wait", name), "unknown_submission", 2)
    message = refused(idle.session("finish", name), "unknown_submission", 2)
    assert len(message) < 100_000


def test_candidates(stage: StagedRun) -> None:
    names = [
        stage.session("submit", "solved", "--episodes", "0:2").json["submission_id"]
        for _ in range(2)
    ]
    repeated = stage.session("finish", names[0], names[1], names[0])
    refused(repeated, "invalid_candidates", 2)
    refused(stage.session("finish", *names, "submission-000001", "x"), "invalid_candidates", 2)
    refused(stage.session("finish", names[0], "x"), "unknown_submission", 2)
    assert stage.session("status").json["state"] == "open"


@pytest.mark.parametrize(
    "line",
    [
        *("", "frobnicate", "submit", "submit solved", "submit --episodes 0:2", "status more"),
        *("submit solved --episodes", "submit solved more --episodes 0:2", "wait", "finish"),
        *("submit solved --episodes 0:2 --timeout x", "submit solved --episodes 0:2 --frob"),
        *(
            "submit solved --episodes 0:2 --timeout nan",
            "submit solved --episodes 0:2 --timeout -1",
        ),
        *("wait submission-000001 --timeout nan", "wait submission-000001 --timeout -1"),
        "wait submission-000001 --timeout x",
    ],
)
def test_bad_arguments(idle: StagedRun, line: str) -> None:
    refused(idle.session(*line.split()), "invalid_request", 2)


@pytest.mark.parametrize("session", ["", "/", "missing.sock", "plain", "x" * 200])
def test_unreachable(tmp_path: Path, session: str) -> None:
    (tmp_path / "plain").write_text("no socket")
    variables = {"EVOPOLICYGYM_SESSION": session}
    for argv in (["status"], ["submit", "program", "--episodes", "0"], ["wait", "x"]):
        refused(command(SESSION, *argv, cwd=tmp_path, **variables), "unreachable", 4)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\noops\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
)
def test_a_host_that_answers_nonsense(tmp_path: Path, answer: bytes) -> None:
    """Such as one that dies at this moment."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        server.settimeout(30)
        client = started(
            SESSION, "wait", "submission-000001", cwd=tmp_path, EVOPOLICYGYM_SESSION="s"
        )
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)
        done = collected(client)
    assert done.code in (1, 4)
    assert done.json["error"]["code"] in ("unreachable", "host_failure")


# ---------------------------------------------------------------------- the socket


def http(path: Path, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes; return status, headers and body of the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body


def request(method: str, route: str, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a request."""
    named = {"Host": "s", "Content-Type": "application/json", "Content-Length": str(len(body))}
    named |= {"Connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"{method} {route} HTTP/1.1", *(f"{name}: {named[name]}" for name in named)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def submission(**changes: Any) -> bytes:
    """Return the bytes of a `submit` request."""
    fields = {"program": "solved", "episodes": "0:2", "request_id": "http"} | changes
    body = json.dumps({name: value for name, value in fields.items() if value != "absent"})
    return request("POST", "/submit", body.encode())


WELL_FORMED = {
    "unknown route": (request("GET", "/nothing"), 404, "invalid_request"),
    "directory above": (request("GET", "/../../etc/passwd"), 404, "invalid_request"),
    "no documentation pages": (request("GET", "/docs"), 404, "invalid_request"),
    "GET submit": (request("GET", "/submit"), 405, "invalid_request"),
    "DELETE finish": (request("DELETE", "/finish"), 405, "invalid_request"),
    "PUT info": (request("PUT", "/info"), 405, "invalid_request"),
    "invalid JSON": (request("POST", "/submit", b"{"), 422, "invalid_request"),
    "no body": (request("POST", "/submit"), 422, "invalid_request"),
    "not UTF-8": (request("POST", "/submit", b'{"program": "\xff"}'), 400, "invalid_request"),
    "a list": (request("POST", "/submit", b"[]"), 422, "invalid_request"),
    "null": (request("POST", "/submit", b"null"), 422, "invalid_request"),
    "nested without end": (request("POST", "/submit", b"[" * 500_000), 400, "invalid_request"),
    "another content type": (
        request("POST", "/submit", b"program=solved", Content_Type="text/plain"),
        422,
        "invalid_request",
    ),
    "extra field": (submission(seed=1), 422, "invalid_request"),
    "missing field": (submission(request_id="absent"), 422, "invalid_request"),
    "number for text": (submission(episodes=2), 422, "invalid_request"),
    "null for text": (submission(program=None), 422, "invalid_request"),
    "lone surrogate in program": (submission(program="\ud800"), 422, "invalid_program"),
    "NUL in program": (submission(program="a\0b"), 422, "invalid_program"),
    "long program": (submission(program="x" * 300), 422, "invalid_program"),
    "deep program": (submission(program="x/" * 5000), 422, "invalid_program"),
    "program above": (submission(program="analysis/../solved"), 422, "invalid_program"),
    "lone surrogate in selector": (submission(episodes="\ud800"), 422, "invalid_selector"),
    "line end in request id": (submission(request_id="a\n"), 422, "invalid_request"),
    "body too large": (request("POST", "/submit", b"x" * 2_000_000), 413, "invalid_request"),
    "chunked body": (
        b"POST /submit HTTP/1.1\r\nHost: s\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        413,
        "invalid_request",
    ),
    "finish with text": (
        request("POST", "/finish", b'{"candidates": "submission-000001"}'),
        422,
        "invalid_request",
    ),
    "finish with nothing": (
        request("POST", "/finish", b'{"candidates": []}'),
        422,
        "invalid_candidates",
    ),
    "finish with many": (
        request("POST", "/finish", json.dumps({"candidates": ["x"] * 100_000}).encode()),
        422,
        "invalid_candidates",
    ),
    "wait nan": (request("GET", "/submissions/x?wait=nan"), 422, "invalid_request"),
    "wait too long": (request("GET", "/submissions/x?wait=61"), 422, "invalid_request"),
    "wait negative": (request("GET", "/submissions/x?wait=-1"), 422, "invalid_request"),
    "unknown submission": (request("GET", "/submissions/%00%ff"), 404, "unknown_submission"),
}


@pytest.mark.parametrize("case", WELL_FORMED)
def test_requests_that_make_no_sense(idle: StagedRun, case: str) -> None:
    data, expected, code = WELL_FORMED[case]
    status, headers, body = http(idle.socket, data)
    assert status == expected, body
    assert headers["content-type"] == "application/json"
    document = json.loads(body)
    schema("error").validate(document)
    assert document["error"]["code"] == code
    assert str(idle.root) not in body.decode()
    assert len(body) < 5000, "an agent reads this"


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        request("POST", "/submit", b"x", Content_Length="-5"),
        request("POST", "/submit", b"x", Content_Length="9" * 30),
        b"GET /info HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: s\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
    ],
    ids=lambda data: ascii(data[:24]),
)
def test_bytes_that_are_no_http(idle: StagedRun, data: bytes) -> None:
    status, _, _ = http(idle.socket, data)
    assert 400 <= status < 500


def test_the_socket_is_private(stage: StagedRun) -> None:
    assert stat.S_ISSOCK(stage.socket.stat().st_mode)
    assert stat.S_IMODE(stage.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(stage.socket.parent.stat().st_mode) == 0o700
    assert len(str(stage.socket)) <= 107


def test_what_else_the_session_answers(stage: StagedRun) -> None:
    status, headers, body = http(stage.socket, request("GET", "/task"))
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert body == (stage.workspace / "TASK.md").read_bytes()
    status, _, body = http(stage.socket, request("GET", "/openapi.json"))
    assert status == 200
    assert json.loads(body)["paths"].keys() >= {"/info", "/task", "/submit", "/finish"}


def test_many_clients_at_once(stage: StagedRun) -> None:
    clients = [stage.start("status") for _ in range(8)]
    for client in clients:
        done = collected(client)
        assert done.code == 0
        schema("info").validate(done.json)


# ------------------------------------------------------------------------- the end


def test_limits_and_the_end_of_a_session(tmp_path: Path) -> None:
    """Below a directory that is much deeper than the path of a socket can be long."""
    options = ["--budget", "6", "--pool", "8", "--max-submissions", "2"]
    deep = "/".join(["deep" * 20] * 4) + "/record"
    assert len(deep) > 300
    with StagedRun(tmp_path, *options, *MEASURED, record=deep) as staged:
        assert len(str(staged.root)) > 300
        assert staged.session("submit", "solved", "--episodes", "0:4").code == 0
        over = staged.session("submit", "solved", "--episodes", "0:3")
        assert "2 remain of 6" in refused(over, "over_budget", 4)
        assert staged.session("submit", "program", "--episodes", "6:8").code == 0
        again = staged.session("submit", "solved", "--episodes", "0")
        refused(again, "submission_limit", 4)
        too_many = staged.session("finish", *[f"submission-00000{n}" for n in (1, 2, 3, 4)])
        refused(too_many, "invalid_candidates", 2)
        hanging = socket.socket(socket.AF_UNIX)
        hanging.connect(str(staged.socket))
        hanging.sendall(request("POST", "/submit", Content_Length="100"))
        with hanging:
            done = staged.session("finish", "submission-000002", "submission-000001")
            assert (done.code, done.stderr) == (0, "")
            schema("finish-receipt").validate(done.json)
            assert done.json["candidates"] == ["submission-000002", "submission-000001"]
            # The same once more is the same; anything else is too late.
            again = staged.session("finish", "submission-000002", "submission-000001")
            assert (again.code, again.json) == (0, done.json)
            refused(staged.session("finish", "submission-000001"), "session_closed", 4)
            late = staged.session("submit", "solved", "--episodes", "0")
            refused(late, "session_closed", 4)
            assert staged.session("status").json["state"] == "finished"
            assert staged.session("wait", "submission-000001").code == 0
            staged.go()
            ended = checked(staged.end())
        assert ended.code == 0, ended.stderr
        refused(staged.session("status"), "unreachable", 4)
    assert not staged.socket.parent.exists()
    document = run_file(staged.root)
    assert document["terminal_reason"] == "finished"
    assert document["handed_over_by"] == "agent"
    assert document["selected"] == "submission-000001"
    assert document["episodes_used"] == 6
    assert check_record(staged.root) > 10


def test_what_was_charged_is_evaluated_to_its_end(tmp_path: Path) -> None:
    options = ["--budget", "4", "--valid-size", "0", "--final-size", "0"]
    with StagedRun(tmp_path, *options) as staged:
        client = staged.start("submit", "gated", "--episodes", "0:3")
        assert wait_until(lambda: staged.evaluating)
        staged.go()
        assert wait_until(lambda: '"agent_ended"' in (staged.root / "events.jsonl").read_text())
        assert wait_until(lambda: staged.session("status").json["state"] == "closed")
        refused(staged.session("submit", "solved", "--episodes", "0"), "session_closed", 4)
        staged.gate.touch()
        ended = checked(staged.end())
        assert collected(client).code in (0, 4)
    assert ended.code == 0, ended.stderr
    document = run_file(staged.root)
    assert document["terminal_reason"] == "exited"
    assert document["handed_over_by"] == "host"
    assert document["selected"] == "submission-000001"
    assert document["episodes_used"] == 3 == episodes_used(staged.root / "ledger.jsonl")


@pytest.mark.slow  # the Host gives an agent 10 s to leave by itself
def test_an_agent_that_stays_after_finish_is_ended(tmp_path: Path) -> None:
    options = ["--budget", "2", "--valid-size", "0", "--final-size", "0"]
    with StagedRun(tmp_path, *options) as staged:
        assert staged.session("submit", "solved", "--episodes", "0:2").code == 0
        assert staged.session("finish", "submission-000001").code == 0
        finished = time.monotonic()
        done = checked(staged.end(30))
        assert time.monotonic() - finished < 25
    assert done.code == 0
    document = run_file(staged.root)
    assert document["terminal_reason"] == "finished"
    assert document["agent"]["stopped_by_host"] is True


STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def test_a_host_that_cannot_write_its_ledger(tmp_path: Path) -> None:
    """A full disk, played by a limit on the size of files, that ends soon after."""
    options = ["--budget", "4", *MEASURED]
    with StagedRun(tmp_path, *options, agent=STUBBORN + WAITING_AGENT) as staged:
        limits = resource.prlimit(staged.host.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(staged.host.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
        done = staged.session("submit", "solved", "--episodes", "0:2")
        resource.prlimit(staged.host.pid, resource.RLIMIT_FSIZE, limits)
        refused(done, "host_failure", 1)
        later = staged.session("submit", "solved", "--episodes", "0:2")
        refused(later, "host_failure", 1)
        ended = checked(staged.end(40))
    assert ended.code == 1
    document = run_file(staged.root)
    assert document["terminal_reason"] == "host_failure"
    assert document["episodes_used"] == 0 == len(ledger(staged.root))
