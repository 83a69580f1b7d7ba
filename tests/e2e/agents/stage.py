"""Plays a Run with a real client and a scripted model server, with nothing but loopback around.

Run as `unshare -n python stage.py` with an order as JSON on stdin; prints the outcome as JSON. In
all texts of the order `{url}` stands for the model server's address.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from model_server import ModelServer, Usage  # type: ignore[import-not-found]

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1  # linux/sockios.h, linux/if.h


def bring_up_loopback() -> None:
    """A new network namespace has a loopback device that is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("16sH", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def devices() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def main() -> None:
    order: dict[str, Any] = json.load(sys.stdin)
    bring_up_loopback()
    assert devices() == ["lo"], "this must run in a network namespace of its own"
    with ModelServer(
        order["script"],
        prompt_markers=order["markers"],
        subagents=order.get("subagents"),
        usage=Usage(**order.get("usage", {})),
    ) as server:
        for name, content in order["files"].items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content.replace("{url}", server.url))
        done = subprocess.run(
            order["argv"],
            cwd=order["cwd"],
            env={k: v.replace("{url}", server.url) for k, v in order["environment"].items()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=order["timeout"],
            check=False,
        )
        outcome = {
            "code": done.returncode,
            "stdout": done.stdout.decode(errors="replace"),
            "stderr": done.stderr.decode(errors="replace"),
            "totals": asdict(server.totals),
            "requests": server.requests,
        }
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
