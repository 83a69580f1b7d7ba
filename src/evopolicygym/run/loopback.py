"""Which addresses a session may be served on and reached at: those of this machine only.

It imports the standard library only: the session's command line uses it, too.
"""

from __future__ import annotations

import ipaddress
import re

from evopolicygym.errors import ConfigurationError

__all__ = ["loopback_address", "loopback_authority", "loopback_port", "loopback_url"]

_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:]+)\]|([A-Za-z0-9.-]+))(?::([0-9]{1,5}))?", re.ASCII)
_NETWORK = ipaddress.IPv4Network("127.0.0.0/8")
_HTTP_PORT = 80


def loopback_address(text: str) -> str:
    """Return a loopback address in its usual spelling.

    Args:
        text: An address of 127.0.0.0/8, `::1`, or `localhost`, which is 127.0.0.1 whatever a
            resolver says.

    Raises:
        ConfigurationError: It is anything else.
    """
    if isinstance(text, str):
        if text.lower() == "localhost":
            return "127.0.0.1"
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            pass
        else:
            # Not `is_loopback`: whether it takes ::ffff:127.0.0.1 depends on the Python version.
            if address == ipaddress.IPv6Address("::1") or address in _NETWORK:
                return str(address)
    raise ConfigurationError(
        f"{_quoted(text)} is no loopback address, and a session is served to this machine only: "
        "use 127.0.0.1 (or another of 127.0.0.0/8), ::1 or localhost, without a port"
    )


def loopback_port(port: int) -> int:
    """Return a port to listen on; 0 stands for a free one.

    Raises:
        ConfigurationError: It is no integer in [0, 65535].
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise ConfigurationError(
            f"{_quoted(port)} is no port: use a number from 1 to 65535, or 0 for a free one"
        )
    return port


def loopback_authority(text: str) -> tuple[str, int | None]:
    """Split `HOST` or `HOST:PORT`, as in a URL or a `Host` header.

    Returns:
        The address, without brackets, and the port or None.

    Raises:
        ConfigurationError: The host is not a loopback address, or the port is none.
    """
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            f"{_quoted(text)} is no loopback host with a port, such as 127.0.0.1:8000 or [::1]:8000"
        )
    bracketed, plain, port = match.groups()
    return loopback_address(bracketed or plain), None if port is None else loopback_port(int(port))


def loopback_url(url: str) -> tuple[str, int]:
    """Return address and port of the URL of a session.

    Raises:
        ConfigurationError: It is not `http://HOST:PORT` with a loopback host.
    """
    scheme, separator, rest = url.partition("://")
    if scheme.lower() != "http" or not separator:
        raise ConfigurationError(
            f"{_quoted(url)} is no URL of a session: it must look like http://127.0.0.1:8000"
        )
    address, port = loopback_authority(rest.removesuffix("/"))
    return address, _HTTP_PORT if port is None else port


def _quoted(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 100 else f"{text[:99]}…"
