"""Write `uv.lock` without the addresses of the registry it was resolved from.

Run as `make lock`. The result pins every version and every hash, and names no host, so it serves
whichever registry a machine is set up for:

* `make` installs from it through `uv export --frozen` with `--require-hashes`;
* `uv sync` finds no file at the recorded places, resolves again and takes the pinned versions.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def without_hosts(text: str) -> str:
    """Return the lock file with file names for addresses.

    `package.metadata` goes too: without it uv takes the file as a preference, not as a promise
    that files lie at the recorded places.
    """
    text = re.sub(r'registry = "https?://[^"]+"', 'registry = "registry"', text)
    text = re.sub(r'url = "https?://[^"]*/([^/"]+)"', r'path = "\1"', text)
    return re.sub(r"(?ms)^\[package\.metadata\]\n.*?(?=^\[\[package\]\]|\Z)", "", text)


def main() -> None:
    """Resolve afresh and write the file."""
    uv = sys.argv[1] if len(sys.argv) > 1 else "uv"
    lock = ROOT / "uv.lock"
    subprocess.run([uv, "lock", *sys.argv[2:]], cwd=ROOT, check=True)
    lock.write_text(without_hosts(lock.read_text()))


if __name__ == "__main__":
    main()
