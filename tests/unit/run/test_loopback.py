from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import pytest

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.loopback import (
    loopback_address,
    loopback_authority,
    loopback_port,
    loopback_url,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.8.9.10", "127.8.9.10"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("localhost", "127.0.0.1"),
        ("LocalHost", "127.0.0.1"),
    ],
)
def test_loopback_addresses(text: str, address: str) -> None:
    assert loopback_address(text) == address


NOT_LOOPBACK: list[Any] = [
    *("", "0.0.0.0", "::", "*", "10.0.0.1", "192.168.0.1", "128.0.0.1", "126.255.255.255"),
    *(
        "127.1",
        "0127.0.0.1",
        "127.0.0.01",
        "127.0.0.1.",
        "127.0.0.1:80",
        "127.0.0.1/8",
        "2130706433",
    ),
    *("::1%lo", "[::1]", "::ffff:127.0.0.1", "::2", "fe80::1", "::127.0.0.1"),
    *("localhost.", "localhost.example", "ip6-localhost", "example.com", "a.localhost"),
    *(" 127.0.0.1", "127.0.0.1\n", "127.0.0.1\0", "１２７.0.0.1", "\ud800", "x" * 10_000),
    *(None, 1, 2130706433, True, b"\x7f\0\0\1", ["127.0.0.1"]),
]


@pytest.mark.parametrize("text", NOT_LOOPBACK, ids=lambda value: ascii(value)[:20])
def test_everything_else_is_refused(text: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"no loopback address.* use 127\.0\.0\.1"
    ) as error:
        loopback_address(text)
    assert ascii(text)[:20] in str(error.value)
    assert len(str(error.value)) < 400
    str(error.value).encode()


@pytest.mark.parametrize("port", [0, 1, 8080, 65535])
def test_ports(port: int) -> None:
    assert loopback_port(port) == port


@pytest.mark.parametrize("port", [-1, 65536, 10**30, 80.0, "80", None, True])
def test_no_ports(port: Any) -> None:
    with pytest.raises(ConfigurationError, match="is no port: use a number from 1 to 65535"):
        loopback_port(port)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1", ("127.0.0.1", None)),
        ("127.0.0.2:80", ("127.0.0.2", 80)),
        ("localhost:8000", ("127.0.0.1", 8000)),
        ("[::1]", ("::1", None)),
        ("[::1]:43211", ("::1", 43211)),
    ],
)
def test_authorities(text: str, expected: tuple[str, int | None]) -> None:
    assert loopback_authority(text) == expected


NO_AUTHORITY = [
    *("", ":80", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:1:2"),
    *("::1", "::1:80", "[127.0.0.1]", "[::1", "[::1]80", "[::1%25lo]", "[::2]:80"),
    *("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"),
    *("evil@127.0.0.1", "127.0.0.1@evil.example", "127.0.0.1/x", "127.0.0.1?x", "127.0.0.1#x"),
    *("127.0.0.1\t", " 127.0.0.1", "127.0.0.1:８０", "127.0.0.1, evil.example", "127.0.0.1\\@x"),
]


@pytest.mark.parametrize("text", NO_AUTHORITY, ids=ascii)
def test_no_authorities(text: str) -> None:
    with pytest.raises(ConfigurationError):
        loopback_authority(text)
    with pytest.raises(ConfigurationError):
        loopback_url(f"http://{text}")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("HTTP://localhost:8000/", ("127.0.0.1", 8000)),
        ("http://[::1]:8000", ("::1", 8000)),
        ("http://127.0.0.1", ("127.0.0.1", 80)),
    ],
)
def test_urls(url: str, expected: tuple[str, int]) -> None:
    assert loopback_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8000", "//127.0.0.1", "http:127.0.0.1", "https://127.0.0.1:8000", "://"),
        *("unix:///tmp/socket", "file:///etc", "http+unix://127.0.0.1", " http://127.0.0.1"),
        *("http://127.0.0.1//", "http://127.0.0.1/path", "http://user:pass@127.0.0.1:80"),
    ],
)
def test_no_urls(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"look like http://|such as 127\.|use 127\."):
        loopback_url(url)


def test_it_and_the_client_load_the_standard_library_only() -> None:
    code = (
        "import sys, evopolicygym.run.client, evopolicygym.run.loopback\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(names - sys.stdlib_module_names - {'evopolicygym', 'sitecustomize'}))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {name for name in ast.literal_eval(done.stdout) if not name.startswith("_")}
    assert loaded == set()
