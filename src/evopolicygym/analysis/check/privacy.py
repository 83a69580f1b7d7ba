"""What must not be in a record: private evidence, Host paths, credentials, temporary files."""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evopolicygym.analysis.check.documents import Documents
from evopolicygym.analysis.check.episodes import Plans
from evopolicygym.analysis.check.finding import FindingCode
from evopolicygym.run.measurement import derive_seed

__all__ = ["check_leftovers", "check_paths", "check_workspace"]

_LEAST_DIGITS = 4
"""A shorter number says nothing: it is anywhere."""

_WORD = re.compile(rb"(?<![\w.])(?:[1-9][0-9]{3,18}|[0-9a-f]{64})(?!\w|\.[0-9])")
"""A number, or a digest; no part of a longer one."""

_PRIVATE_SCHEMA = re.compile(
    rb'"schema"\s*:\s*"evopolicygym\.'
    rb'((?:run|event|ledger|submission|episodes|measurement|split|agent-turn)/[0-9]+)"'
)
_TOKEN = re.compile(rb"EVOPOLICYGYM_SESSION_TOKEN[\"']?\s*[:=]\s*[\"']?[\w-]{43}(?![\w-])")
"""43 characters are 256 bits in base64url."""

_RECORDED = (
    *("run.json", "events.jsonl", "ledger.jsonl", "submissions/*/*.json"),
    *("submissions/*/feedback/feedback.json", "validation/**/*.json", "assessment/**/*.json"),
    "agent/*/invocation.json",
)
"""What the Host writes; the rest of `agent/` is the client's own words."""


def check_workspace(documents: Documents, plans: Plans) -> None:
    """Search every file below `workspace/`."""
    words = _private_words(documents, plans)
    host_path = _host_path(documents.root)
    for path in _files(documents.root / "workspace"):
        for message in _searched(path, words, host_path):
            documents.findings.add(FindingCode.PRIVATE, path, message)


def _searched(
    path: Path, words: Mapping[bytes, str], host_path: re.Pattern[bytes]
) -> Iterator[str]:
    with _mapped(path) as data:
        if data is None:
            return
        found = {words[match[0]] for match in _WORD.finditer(data) if match[0] in words}
        yield from (f"holds {what}" for what in sorted(found))
        schema = _PRIVATE_SCHEMA.search(data)
        if schema is not None:
            yield f"is a private file of the Host: {schema[1].decode()}"
        if host_path.search(data) is not None:
            yield "holds the Host's path of the record"
        if _TOKEN.search(data) is not None:
            yield "holds the token of the session"


def _private_words(documents: Documents, plans: Plans) -> dict[bytes, str]:
    """Return seeds and digests of data splits, as they would be written, and what they are.

    A policy knows its own seed and may print it, and an agent may read and copy that.
    """
    printed = _printed_numbers(documents)
    seeds: dict[bytes, str] = {}
    episodes = [
        (purpose, index, episode.environment_seed, episode.policy_seed)
        for purpose, plan in plans.items()
        for index, episode in enumerate(plan)
    ]
    episodes += [
        (place.partition("/")[0], row.index, row.environment_seed, row.policy_seed)
        for place, document in documents.episodes.items()
        for row in document.episodes
    ]
    for purpose, index, environment_seed, policy_seed in episodes:
        where = f"seed of Episode {index} of {purpose}"
        seeds[str(environment_seed).encode()] = f"the environment {where}"
        if str(policy_seed).encode() not in printed:
            seeds.setdefault(str(policy_seed).encode(), f"the policy {where}")
    if documents.config is not None:
        for domain in ("pool", "validation", "assessment"):
            derived = str(derive_seed(documents.config.seed, domain)).encode()
            seeds[derived] = f"the seed of the plan of {domain}"
    if documents.run is not None:
        for name, digest in (documents.run.data or {}).items():
            seeds[digest.encode()] = f"the digest of the data split {name}"
    return {word: what for word, what in seeds.items() if len(word) >= _LEAST_DIGITS}


def _printed_numbers(documents: Documents) -> set[bytes]:
    numbers: set[bytes] = set()
    for name, document in documents.of("submissions").items():
        home = documents.root / "submissions" / name / "feedback" / "episodes"
        for path in (*home.glob("*/stdout.txt"), *home.glob("*/stderr.txt")):
            with _mapped(path) as data:
                numbers.update(() if data is None else _WORD.findall(data))
        for row in document.episodes:
            if row.failure is not None:
                words = f"{row.failure.message}\n{row.failure.traceback}"
                numbers.update(_WORD.findall(words.encode()))
    return numbers


def _host_path(root: Path) -> re.Pattern[bytes]:
    """Return the pattern of the record's path; an agent knows its workspace's."""
    paths = {os.fsencode(root.absolute()), os.fsencode(root.resolve())}
    return re.compile(
        b"(?:" + b"|".join(map(re.escape, sorted(paths))) + rb")"
        rb"(?![\w.-]|/workspace(?![\w.-]))"
    )


def check_paths(documents: Documents) -> None:
    """Check that what the Host wrote has no path of its own, and no credential."""
    host_path = _host_path(documents.root)
    for pattern in _RECORDED:
        for path in sorted(documents.root.glob(pattern)):
            with _mapped(path) as data:
                if data is not None and host_path.search(data) is not None:
                    message = "holds the record's own path: expected relative paths"
                    documents.findings.add(FindingCode.PATH, path, message)
                if data is not None and _TOKEN.search(data) is not None:
                    message = "holds the token of the session"
                    documents.findings.add(FindingCode.PRIVATE, path, message)


def check_leftovers(documents: Documents) -> None:
    """Check that a Run that has ended left no temporary file behind."""
    if not documents.finished:
        return
    root = documents.root
    for parent, directories, names in os.walk(root):
        here = Path(parent)
        for name in [*directories, *names]:
            if name.startswith("."):
                documents.findings.add(FindingCode.LEFTOVER, here / name, "was left behind")
        # Programs and the workspace may hold anything.
        directories[:] = sorted(
            name
            for name in directories
            if not name.startswith(".") and name != "program" and here / name != root / "workspace"
        )
    for path in sorted((root / "workspace" / "feedback").glob(".*")):
        if re.fullmatch(r"\.[0-9a-f]{16}", path.name):
            documents.findings.add(FindingCode.LEFTOVER, path, "was left behind")


# -------------------------------------------------------------------------------------- files


def _files(home: Path) -> Iterator[Path]:
    """Yield all that is no directory; an agent's links lead anywhere and are not followed."""
    if home.is_symlink():
        return
    for parent, directories, names in os.walk(home):
        directories.sort()
        yield from (Path(parent, name) for name in sorted(names))


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap | None]:
    """Give a regular file as searchable memory; None where it is empty or can't be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        info = os.fstat(fd)
        regular = stat.S_ISREG(info.st_mode) and info.st_size > 0
        data = mmap.mmap(fd, 0, access=mmap.ACCESS_READ) if regular else None
    finally:
        os.close(fd)
    yield data
    if data is not None:
        data.close()
