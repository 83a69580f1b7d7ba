"""No Host path is left in what a policy printed or raised, wherever its middle was left out."""

from __future__ import annotations

import time

import pytest

from evopolicygym.execution.capped import CappedBuffer
from evopolicygym.execution.episode import scrub
from evopolicygym.execution.guest import shorten

PATHS = [
    ("/hidden/main/.venv/lib", "python"),
    ("/hidden/main/.venv", "prefix"),
    ("/private", "home"),
]


@pytest.mark.parametrize("path", [path for path, _ in PATHS])
@pytest.mark.parametrize("limit", range(2, 60))
@pytest.mark.parametrize("way", ["stream", "message"])
def test_a_path_that_was_cut_in_two_is_not_published(path: str, limit: int, way: str) -> None:
    text = f"<{path}><{path}><{path}>"
    if way == "stream":
        buffer = CappedBuffer(limit)
        buffer.write(text.encode())
        kept = buffer.content().decode()
    else:
        kept = shorten(text, limit)
    public = scrub(kept, PATHS)
    for word in ("python", "prefix", "home"):
        public = public.replace(f"<{word}>", "").replace(f"<{word}", "").replace(f"{word}>", "")
    assert "/" not in public
    head = public.strip("<>\n ")[:1]
    assert head in ("", "[", "…"), "the head of a path"


def test_an_end_that_may_be_anything_stays() -> None:
    cut = "[… 7 bytes left out …]"
    assert scrub(f"x\n{cut}\n0.5 and 1", [("/tmp/run/worker-0", "worker")]).endswith("0.5 and 1")


def test_text_without_paths_stays_as_it_is() -> None:
    text = "no path\n… here …\n[3 bytes left out]"
    assert scrub(text, PATHS) == text


@pytest.mark.parametrize(
    "text", [" " * 2**15, "\n" * 2**15, "…" * 2**15, "[" * 2**15, "… 1" * 2**13]
)
def test_a_text_of_nothing_takes_no_time(text: str) -> None:
    """A policy may print that in every Episode; the square of its length took 3 seconds."""
    began = time.process_time()
    assert scrub(text, PATHS) == text
    assert time.process_time() - began < 0.5
