"""No Host path is left in what a policy printed or raised, wherever its middle was left out."""

from __future__ import annotations

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
    marker = public.strip("<>\n ")
    assert "/" not in public, "the head of a path"
    assert marker == "" or marker[0] in "[…", "the end of a path"
    assert marker == "" or marker[-1] in "]…", "the end of a path"


def test_text_without_paths_stays_as_it_is() -> None:
    text = "no path\n… here …\n[3 bytes left out]"
    assert scrub(text, PATHS) == text
