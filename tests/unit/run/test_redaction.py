from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evopolicygym.run.redaction import (
    Redactor,
    is_secret_name,
    one_line,
    redacted_argv,
    secrets_in,
    secrets_of,
)

# ------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name",
    [
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("OPENAI_API_KEY", "CODEX_API_KEY", "KIMI_MODEL_API_KEY", "GEMINI_API_KEY"),
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        *("AZURE_CLIENT_SECRET", "AZURE_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS"),
        *("GITHUB_TOKEN", "GITHUB_PAT", "GH_TOKEN", "GITLAB_PRIVATE_TOKEN", "HF_TOKEN"),
        *("HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "NPM_TOKEN", "PYPI_PASSWORD"),
        *("DATABASE_PASSWORD", "PGPASSWORD", "DB_PASSWD", "SSH_PASSPHRASE", "SIGNING_KEY"),
        *("DB_PASS", "SMTP_PASS", "SSHPASS", "MYSQL_PWD", "MYKEY", "Authorization"),
        *("EVOPOLICYGYM_SESSION_TOKEN", "SESSION_COOKIE", "PRIVATE_KEY", "ENCRYPTION_KEY2"),
        *("API_KEY", "APIKEY", "MYAPIKEY", "TOKEN", "token", "SECRET", "password", "auth", "KEY"),
        *("BEARER", "apiKey", "accessToken", "authToken", "clientSecret", "x-api-key"),
        *(
            "--api-key",
            "--token",
            "-password",
            "--auth",
            "npm_config__auth",
            "a.token",
            "MAX_TOKEN",
        ),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "USER", "SHELL", "LANG", "TERM", "TMPDIR", "TZ"),
        *("EVOPOLICYGYM_SESSION", "EVOPOLICYGYM_TASK", "CODEX_HOME", "CLAUDE_CONFIG_DIR"),
        *("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "KIMI_MODEL_NAME", "HTTP_PROXY", "NO_PROXY"),
        *("TOKENIZERS_PARALLELISM", "KEYBOARD", "AUTHOR", "GIT_AUTHOR_NAME", "LC_ALL"),
        *("max_tokens", "MAX_THINKING_TOKENS", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "tokenizer"),
        *("input_tokens", "keys", "COMPATIBLE", "PATTERN", "DISPATCH", "keyword", "authority"),
        *("--model", "--verbose", "-c", "", "-", "--", "passenger", "compass", "turkey"),
    ],
)
def test_names_of_other_things(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "MONKEY", "TURKEY"])
def test_names_that_only_end_like_one(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEYS", "ACCESS_KEYS", "COOKIES", "privateKey", "accessKey", "signingKey"),
    ],
)
def test_names_of_more_secrets(name: str) -> None:
    assert is_secret_name(name)


def test_secrets_of_an_environment() -> None:
    found = secrets_of(
        {
            "API_KEY": "123456",
            "OTHER_TOKEN": "12345",  # too short to be looked for
            "EMPTY_TOKEN": "",
            "PATH": "/usr/bin:/bin",
            "A_SECRET": "same-value",
            "B_SECRET": "same-value",
        }
    )
    assert found == {"123456": "API_KEY", "same-value": "B_SECRET"}
    assert secrets_of({}) == {}


def test_a_password_in_an_address() -> None:
    found = secrets_of(
        {
            "HTTPS_PROXY": "http://user:pass-word-1@127.0.0.1:3128",
            "HTTP_PROXY": "http://127.0.0.1:3128",
            "NO_PROXY": "a:b@c",
            "DATABASE_URL": "postgres://me:short@db/x postgres://me:longer@db/y",
        }
    )
    assert found == {"pass-word-1": "HTTPS_PROXY", "longer": "DATABASE_URL"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('api_key = "sk-12345"', {"sk-12345": "api_key"}),
        ("{'token':'abcdef','model':'abcdefg'}", {"abcdef": "token"}),
        ('{"access_token": "abcdef", "key": "12345"}', {"abcdef": "access_token"}),
        ('providers.x.api_key="abcdef"', {"abcdef": "providers.x.api_key"}),
        ("token = abcdef", {}),
        ('"api_key": ""', {}),
        ("", {}),
    ],
)
def test_secrets_in_settings(text: str, found: dict[str, str]) -> None:
    assert secrets_in(text) == found


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("a\nb\x1b[31m\u2028c\x85", 99, "a b [31m c"),
        ("  a  ", 99, "a"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcd …"),
        ("", 6, ""),
    ],
)
def test_one_line(text: str, limit: int, shown: str) -> None:
    assert one_line(text, limit) == shown


# -------------------------------------------------------------------------------- text


def test_text() -> None:
    redactor = Redactor({"hunter22": "A_TOKEN"}, {"/place/of/run": "workspace"})
    assert redactor.text("x hunter22hunter22 y") == "x [redacted A_TOKEN][redacted A_TOKEN] y"
    assert redactor.text("cd /place/of/run/program") == "cd workspace/program"
    assert redactor.text("hunter2") == "hunter2"
    assert redactor.text("") == ""
    assert Redactor({}).text("hunter22") == "hunter22"


@pytest.mark.parametrize("secrets", [["abcdef", "abcdefgh"], ["abcdefgh", "abcdef"]])
def test_the_longer_secret_goes_first(secrets: list[str]) -> None:
    redactor = Redactor({secret: f"S{len(secret)}" for secret in secrets})
    assert redactor.text("abcdefgh abcdef") == "[redacted S8] [redacted S6]"


def test_a_place_within_a_place() -> None:
    redactor = Redactor({}, {"/a": "home", "/a/b": "workspace"})
    assert redactor.text("/a/b/c /a/c") == "workspace/c home/c"


@pytest.mark.parametrize(
    "secret", ['pass"word', "pass\\word", "pass\nword", "päss-wörd", "a/b/c/d"]
)
def test_a_secret_in_json(secret: str) -> None:
    redactor = Redactor({secret: "S"})
    for shown in (secret, json.dumps({"k": secret}), json.dumps({"k": secret}, ensure_ascii=False)):
        assert secret not in redactor.text(shown)
        assert "[redacted S]" in redactor.text(shown)
    escaped = json.dumps({"k": secret}).replace("/", "\\/")
    assert json.loads(redactor.text(escaped)) == {"k": "[redacted S]"}


def test_a_secret_in_json_of_javascript() -> None:
    secret = 'päss"wörd'
    shown = json.dumps({"k": secret}, ensure_ascii=False)
    assert json.loads(Redactor({secret: "S"}).text(shown)) == {"k": "[redacted S]"}


def test_a_secret_in_json_with_escaped_slashes() -> None:
    secret = 'pass/"word'
    shown = json.dumps({"k": secret}).replace("/", "\\/")
    assert json.loads(Redactor({secret: "S"}).text(shown)) == {"k": "[redacted S]"}


# ------------------------------------------------------------------------------ values


def test_values() -> None:
    redactor = Redactor({"hunter22": "S"})
    value = {
        "text": "say hunter22",
        "list": ["hunter22", ("hunter22", 1), {"deep": {"er": "hunter22"}}],
        "api_key": "anything",
        "nested": {"password": "p", "max_tokens": 7, "key": 7},
        "TOKEN": "",
        "SECRET": ["hunter22", "other"],
        "hunter22": "as a key",
        "numbers": [1, 0.5, True, None],
        7: "hunter22",
    }
    assert redactor.value(value) == {
        "text": "say [redacted S]",
        "list": ["[redacted S]", ["[redacted S]", 1], {"deep": {"er": "[redacted S]"}}],
        "api_key": "[redacted]",
        "nested": {"password": "[redacted]", "max_tokens": 7, "key": 7},
        "TOKEN": "",
        "SECRET": ["[redacted S]", "other"],
        "[redacted S]": "as a key",
        "numbers": [1, 0.5, True, None],
        "7": "[redacted S]",
    }
    assert value["text"] == "say hunter22"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet="ab hunter2", max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abz", max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(plain)
def test_values_without_secrets_stay(value: Any) -> None:
    assert Redactor({"never-in-there": "S"}).value(value) == value


@given(plain)
def test_no_secret_is_left_in_a_value(value: Any) -> None:
    shown = json.dumps(Redactor({"hunter": "S"}).value(value))
    assert "hunter" not in shown
    json.loads(shown)


# ------------------------------------------------------------------------------ stream


def streamed(redactor: Redactor, *pieces: bytes) -> bytes:
    stream = redactor.stream()
    return b"".join(map(stream.feed, pieces)) + stream.end()


def every_split(data: bytes) -> list[list[bytes]]:
    twice = [[data[:i], data[i:]] for i in range(len(data) + 1)]
    return [*twice, [data[i : i + 1] for i in range(len(data))]]


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "hunter22", "xhunter22", "hunter22x", "hunter2hunter22", "hunter22hunter22"),
        *("hunter2", "hhunter22", "huhunter22nter22", "a\nhunter22\nb", '{"k":"hunter22"}', "é…"),
    ],
)
def test_every_split_of_a_stream(text: str) -> None:
    redactor = Redactor({"hunter22": "S"}, {"/a/b": "w"})
    for pieces in every_split(text.encode()):
        assert streamed(redactor, *pieces) == redactor.text(text).encode(), pieces


# No two of these overlap, and none begins within another.
APART = {'ab"cd"e': "A", "xy\nxyz": "B", "1/2/3/4": "C", "ö-ö-ö-": "D"}


@given(
    st.lists(
        st.sampled_from([*APART, *(json.dumps(secret)[1:-1] for secret in APART)])
        | st.text('abx1/"\\ö-', max_size=5),
        max_size=6,
    ),
    st.lists(st.integers(0, 60), max_size=6),
)
@settings(max_examples=300)
def test_a_stream_is_redacted_as_its_text(words: list[str], cuts: list[int]) -> None:
    redactor, text = Redactor(APART), "".join(words)
    data = text.encode()
    points = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(points)]
    assert streamed(redactor, *pieces) == redactor.text(text).encode()


OVERLAPPING = st.dictionaries(
    st.text("ab", min_size=2, max_size=5), st.sampled_from(["S", "T"]), min_size=1, max_size=3
)


@given(OVERLAPPING, st.text("ab", max_size=12))
def test_secrets_that_contain_each_other(secrets: Mapping[str, str], text: str) -> None:
    redactor = Redactor(secrets)
    for pieces in every_split(text.encode()):
        assert streamed(redactor, *pieces) == redactor.text(text).encode()


def test_a_secret_that_begins_another() -> None:
    redactor = Redactor({"sk-123456": "SHORT", "sk-123456-the-rest-of-it": "LONG"})
    found = streamed(redactor, b"key sk-123456", b"-the-rest-of-it\n")
    assert b"the-rest-of-it" not in found


@given(st.dictionaries(st.text("ab", min_size=2, max_size=4), st.just("S")), st.text("ab"))
def test_no_whole_secret_is_ever_passed_on(secrets: Mapping[str, str], text: str) -> None:
    for size in (1, 2, 5, len(text) + 1):
        data = text.encode()
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        found = streamed(Redactor(secrets), *pieces).replace(b"[redacted S]", b"|")
        assert not any(secret.encode() in found for secret in secrets)


def test_only_what_may_begin_a_secret_is_held_back() -> None:
    stream = Redactor({"hunter22": "S"}).stream()
    assert stream.feed(b"hello\n") == b"hello\n"
    assert stream.feed(b"say hunt") == b"say "
    assert stream.feed(b"er") == b""
    assert stream.feed(b"!") == b"hunter!"
    assert stream.feed(b"hunter2") == b""
    assert stream.end() == b"hunter2"
    assert stream.end() == b""
    assert stream.feed(b"hunter2") + stream.feed(b"2") == b"[redacted S]"


def test_streams_share_nothing() -> None:
    redactor = Redactor({"hunter22": "S"})
    one, two = redactor.stream(), redactor.stream()
    assert one.feed(b"hunter") + two.feed(b"22") == b"22"
    assert one.end() == b"hunter"


@given(st.binary(), st.integers(1, 7))
def test_any_bytes_pass_without_secrets(data: bytes, size: int) -> None:
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert streamed(Redactor({}), *pieces) == data


# ------------------------------------------------------------------------ command lines


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        ([], []),
        (["prog", "-v", "x=y"], ["prog", "-v", "x=y"]),
        (["--api-key", "abc", "next"], ["--api-key", "[redacted]", "next"]),
        (["--api-key=abc"], ["--api-key=[redacted]"]),
        (["--api_key=a=b"], ["--api_key=[redacted]"]),
        (["API_KEY=abc", "prog"], ["API_KEY=[redacted]", "prog"]),
        (["--api-key="], ["--api-key="]),
        (["--api-key"], ["--api-key"]),
        (["--api-key", "-hunter", "x"], ["--api-key", "[redacted]", "x"]),
        (["--token", "A=b"], ["--token", "[redacted]"]),
        (["--api-key=a", "next"], ["--api-key=[redacted]", "next"]),
        (["--secret=a", "next"], ["--secret=[redacted]", "next"]),
        (["token", "next"], ["token", "next"]),
        (["--max-tokens", "7"], ["--max-tokens", "7"]),
        (["--max-tokens=7"], ["--max-tokens=7"]),
        (["-c", "a.token=x"], ["-c", "a.token=[redacted]"]),
        (["-c", 'x={token="y"}'], ["-c", 'x={token="y"}']),
        (["-c", 'x={token="abcdef"}'], ["-c", 'x={token="[redacted]"}']),
        (["http://me:word@host/x"], ["http://[redacted]@host/x"]),
        (
            ["--header", "Authorization: Bearer abcdef"],
            ["--header", "Authorization: Bearer [redacted]"],
        ),
        (["use sk-abcdefgh now"], ["use [redacted] now"]),
        (["two words token=x"], ["two words token=x"]),
        (["x hunter22 y", "a=hunter22"], ["x [redacted S] y", "a=[redacted S]"]),
        (["/place/x", "/place/token=1"], ["P/x", "P/token=1"]),
    ],
)
def test_command_lines(argv: list[str], shown: list[str]) -> None:
    before = list(argv)
    assert redacted_argv(argv, Redactor({"hunter22": "S"}, {"/place": "P"})) == shown
    assert argv == before


def test_a_key_in_a_header() -> None:
    argv = ["--header", "X-Api-Key: abcdef"]
    assert "abcdef" not in " ".join(redacted_argv(argv, Redactor({})))


def test_a_long_argument_takes_no_time() -> None:
    start = time.process_time()
    assert redacted_argv(["x" * 10_000], Redactor({})) == ["x" * 10_000]
    assert time.process_time() - start < 0.3
