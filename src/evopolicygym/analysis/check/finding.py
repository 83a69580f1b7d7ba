"""What a check of a record finds: a closed list of codes, a place and a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = ["Finding", "FindingCode", "Findings"]

_MAX_MESSAGE = 500
"""Characters of a message; some quote what stands in a damaged file."""


class FindingCode(StrEnum):
    """What can be wrong with a record; closed.

    Attributes:
        UNFINISHED: The Run has no end: it still goes on, or its Host was killed.
        MISSING: A file that must be there is not, or can't be read.
        JSON: Not strict JSON in UTF-8, a key twice, or a line without its end.
        SCHEMA: Not what the file's schema allows.
        DIGEST: A digest is not that of what it names.
        LEDGER: The ledger does not add up, or is not what the Submissions say.
        BUDGET: More was charged, or otherwise than the Run's limits allow.
        SUBMISSIONS: Ledger, `run.json` and directories name different Submissions.
        EPISODES: Rows of `episodes.json` contradict each other, the plan's size or the rules.
        SCORE: A score is not the mean of what its Episodes count.
        TRAJECTORY: A trajectory is not that of the Episode it belongs to.
        HASH: A trajectory does not have the recorded hash.
        PUBLICATION: What was published is not what the Host recorded.
        SELECTION: Candidates or the selected Submission do not follow from the rule.
        OVERLAP: Training, Validation and Assessment share an Episode.
        PLAN: Episodes do not follow from the Run's seed, or change within the Run.
        EVENTS: Events are missing, out of order, or tell something else than the files.
        SUMMARY: `run.json` does not summarise the rest of the record.
        PRIVATE: Something private is under `workspace/`, or a credential is in the record.
        PATH: A path is not relative, or leads out of its directory.
        LEFTOVER: A temporary file was left behind.
        REPLAY: An Episode that was played again went another way, or can't be played.
    """

    UNFINISHED = "unfinished"
    MISSING = "missing"
    JSON = "json"
    SCHEMA = "schema"
    DIGEST = "digest"
    LEDGER = "ledger"
    BUDGET = "budget"
    SUBMISSIONS = "submissions"
    EPISODES = "episodes"
    SCORE = "score"
    TRAJECTORY = "trajectory"
    HASH = "hash"
    PUBLICATION = "publication"
    SELECTION = "selection"
    OVERLAP = "overlap"
    PLAN = "plan"
    EVENTS = "events"
    SUMMARY = "summary"
    PRIVATE = "private"
    PATH = "path"
    LEFTOVER = "leftover"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a record.

    Attributes:
        code: What kind of thing.
        path: The file or directory, relative to the record; `.` is the record itself.
        message: What is wrong and what was expected, on one line.
    """

    code: FindingCode
    path: str
    message: str


@dataclass(slots=True)
class Findings:
    """Takes findings as they are made.

    Attributes:
        root: Directory of the record.
        made: The findings so far.
    """

    root: Path
    made: list[Finding] = field(default_factory=list)

    def add(self, code: FindingCode, path: Path | str, message: str) -> None:
        """Take one; `path` is below the record, or already relative to it."""
        place = path.relative_to(self.root).as_posix() if isinstance(path, Path) else path
        # Names and texts of a damaged record may hold anything.
        place, message = (re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text) for text in (place, message))
        shown = message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…"
        self.made.append(Finding(code, place.encode("utf-8", "backslashreplace").decode(), shown))

    def expect(
        self, code: FindingCode, path: Path | str, what: str, found: object, expected: object
    ) -> None:
        """Take one if `found` is not equal to `expected`."""
        if found != expected:
            self.add(code, path, f"{what} is {_shown(found)}, expected {_shown(expected)}")


def _shown(value: object) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 120 else text[:120] + "…"
