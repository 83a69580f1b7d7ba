"""Reading every document of a record strictly: JSON, schema, and what has to be there."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from evopolicygym.analysis.check.finding import FindingCode, Findings
from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.errors import BenchmarkError, ConfigurationError
from evopolicygym.run.config import AssessmentConfig, RunConfig, ValidationConfig
from evopolicygym.run.models import (
    AgentInvocation,
    AgentTurnLine,
    EpisodesFile,
    EventLine,
    FeedbackFile,
    LedgerLine,
    MeasurementFile,
    RunFile,
    SubmissionFile,
)

__all__ = ["DocumentError", "Documents", "directories", "parsed", "read_documents", "regular_bytes"]

_Document = TypeVar("_Document", bound=BaseModel)


class DocumentError(Exception):
    """Bytes that are not the document they should be; carries the code of the finding."""

    def __init__(self, code: FindingCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Documents:
    """What could be read of a record; what could not is None or left out, and found.

    Attributes:
        findings: Takes what is wrong.
        run: `run.json`.
        config: Its `config`.
        spec: Its `spec`.
        ledger: Lines of `ledger.jsonl`.
        events: Lines of `events.jsonl`.
        turns: Lines of `agent/turns.jsonl`.
        invocations: `invocation.json` by the name of the process.
        submissions: `submission.json` by Submission id.
        feedback: The master copy of `feedback.json` by Submission id.
        episodes: `episodes.json` by the directory it is in, such as `validation/ID`.
        measurements: `validation/selection.json` and `assessment/assessment.json` by path.
    """

    findings: Findings
    run: RunFile | None = None
    config: RunConfig | None = None
    spec: BenchmarkSpec | None = None
    ledger: list[LedgerLine] | None = None
    events: list[EventLine] | None = None
    turns: list[AgentTurnLine] | None = None
    invocations: dict[str, AgentInvocation] = field(default_factory=dict)
    submissions: dict[str, SubmissionFile] = field(default_factory=dict)
    feedback: dict[str, FeedbackFile] = field(default_factory=dict)
    episodes: dict[str, EpisodesFile] = field(default_factory=dict)
    measurements: dict[str, MeasurementFile] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Directory of the record."""
        return self.findings.root

    @property
    def finished(self) -> bool:
        """Whether `run.json` says that the Run has ended."""
        return self.run is not None and self.run.status != "running"

    def of(self, purpose: str) -> dict[str, EpisodesFile]:
        """Return the `episodes.json` of `submissions`, `validation` or `assessment` by id."""
        return {
            place.partition("/")[2]: document
            for place, document in self.episodes.items()
            if place.startswith(f"{purpose}/")
        }


# ------------------------------------------------------------------------------- one document


def parsed(data: bytes, model: type[_Document]) -> _Document:
    """Return a document.

    Raises:
        DocumentError: Not strict JSON, or not what the schema allows.
    """
    try:
        value = _strict(data)
    except (ValueError, RecursionError) as error:
        raise DocumentError(FindingCode.JSON, f"is no strict JSON: {error}") from None
    missing = _names(model) - value.keys() if isinstance(value, dict) else set()
    if missing:  # the models' defaults would hide that
        raise DocumentError(FindingCode.SCHEMA, f"lacks {', '.join(sorted(missing))}")
    try:
        document = model.model_validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(["$", *map(str, first["loc"])])
        raise DocumentError(FindingCode.SCHEMA, f"{place}: {first['msg']}") from None
    for name in _TIMES & value.keys():
        if not _is_utc(value[name]):
            message = f"$.{name} is {value[name]!r}, expected a time in UTC, ISO 8601"
            raise DocumentError(FindingCode.SCHEMA, message)
    return document


_TIMES = {"time", "started", "ended", "published"}


def _is_utc(value: str | None) -> bool:
    try:
        return value is None or datetime.fromisoformat(value).utcoffset() == timedelta()
    except ValueError:
        return False


def _strict(data: bytes) -> Any:
    """Decode JSON; refuse NaN, infinities and a key that is there twice.

    Raises:
        ValueError: It is none.
        RecursionError: It is nested too deeply.
    """
    value = msgspec.json.decode(data)  # fast, and refuses all but a key that is there twice
    if msgspec.json.encode(value) != data:
        json.loads(data.decode(), object_pairs_hook=_without_duplicates)
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found


@cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(info.alias or name for name, info in model.model_fields.items())


def regular_bytes(path: Path) -> bytes:
    """Return the content of a regular file; nothing is followed and no pipe is waited for.

    Raises:
        OSError: It is none, or can't be read.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(0, "no regular file")
    return path.read_bytes()


# --------------------------------------------------------------------------------- the record


def read_documents(root: Path) -> Documents:
    """Read all documents of a record and note what is wrong with each."""
    documents = Documents(Findings(root))
    reader = _Reader(documents.findings, ended=True)
    documents.run = reader.one(root / "run.json", RunFile)
    if documents.run is not None:
        documents.config = _config(documents.run, documents.findings)
        documents.spec = _spec(documents.run, documents.findings)
    # A Host that was killed may have been writing: a line, or the files of a Submission.
    ended = documents.finished
    reader = _Reader(documents.findings, ended=ended)
    documents.events = reader.lines(root / "events.jsonl", EventLine)
    documents.ledger = reader.lines(root / "ledger.jsonl", LedgerLine)
    if ended or (root / "agent/turns.jsonl").exists():
        documents.turns = reader.lines(root / "agent/turns.jsonl", AgentTurnLine)
    for home in directories(root / "agent"):
        invocation = reader.one(home / "invocation.json", AgentInvocation)
        if invocation is not None:
            documents.invocations[home.name] = invocation
    for home in directories(root / "submissions"):
        submission = reader.one(home / "submission.json", SubmissionFile)
        feedback = reader.one(home / "feedback" / "feedback.json", FeedbackFile)
        if submission is not None:
            documents.submissions[home.name] = submission
        if feedback is not None:
            documents.feedback[home.name] = feedback
    for purpose in ("submissions", "validation", "assessment"):
        for home in directories(root / purpose):
            episodes = reader.one(home / "episodes.json", EpisodesFile)
            if episodes is not None:
                documents.episodes[f"{purpose}/{home.name}"] = episodes
    for place in ("validation/selection.json", "assessment/assessment.json"):
        if (root / place).exists():
            measurement = reader.one(root / place, MeasurementFile)
            if measurement is not None:
                documents.measurements[place] = measurement
    return documents


def directories(parent: Path) -> list[Path]:
    """Return the directories in `parent`, sorted; none where there is no `parent`."""
    if not parent.is_dir() or parent.is_symlink():
        return []
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.is_symlink())


@dataclass(frozen=True, slots=True)
class _Reader:
    findings: Findings
    ended: bool

    def one(self, path: Path, model: type[_Document]) -> _Document | None:
        data = self._bytes(path)
        if data is None:
            return None
        try:
            return parsed(data, model)
        except DocumentError as error:
            self.findings.add(error.code, path, str(error))
            return None

    def lines(self, path: Path, model: type[_Document]) -> list[_Document] | None:
        data = self._bytes(path)
        if data is None:
            return None
        *complete, rest = data.split(b"\n")
        if rest and self.ended:
            self.findings.add(
                FindingCode.JSON, path, f"line {len(complete) + 1} is torn: no line feed at its end"
            )
            return None
        found = []
        for number, line in enumerate(complete, start=1):
            try:
                found.append(parsed(line, model))
            except DocumentError as error:
                self.findings.add(error.code, path, f"line {number} {error}")
        return found if len(found) == len(complete) else None

    def _bytes(self, path: Path) -> bytes | None:
        try:
            return regular_bytes(path)
        except OSError as error:
            below = path.parent != self.findings.root
            if not (isinstance(error, FileNotFoundError) and below and not self.ended):
                self.findings.add(FindingCode.MISSING, path, f"can't be read: {error.strerror}")
            return None


# ------------------------------------------------------------------------- inside of run.json


def _config(run: RunFile, findings: Findings) -> RunConfig | None:
    """Return the limits; what later versions added to the mapping is passed over."""
    try:
        values = _known(RunConfig, run.config)
        if values.get("validation") is not None:
            values["validation"] = ValidationConfig(
                **_known(ValidationConfig, values["validation"])
            )
        if values.get("assessment") is not None:
            values["assessment"] = AssessmentConfig(
                **_known(AssessmentConfig, values["assessment"])
            )
        return RunConfig(**values)
    except (ConfigurationError, TypeError) as error:
        findings.add(FindingCode.SCHEMA, "run.json", f"$.config can't be used: {error}")
        return None


def _known(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise TypeError(f"{values!r} is no mapping")
    return {entry.name: values[entry.name] for entry in fields(kind) if entry.name in values}


def _spec(run: RunFile, findings: Findings) -> BenchmarkSpec | None:
    """Return the spec, after comparing the environment digest with it."""
    values = _known(BenchmarkSpec, run.spec)
    for name in ("observation_space", "action_space"):
        values[name] = _numbers(values.get(name))
    try:
        # A parameter that is text may look like one that was infinite: the digest tells.
        as_read = BenchmarkSpec(**values)
        parameters = _numbers(as_read.environment_parameters)
        as_made = BenchmarkSpec(**{**values, "environment_parameters": parameters})
        digests = [spec.environment_digest for spec in (as_read, as_made)]
    except (BenchmarkError, TypeError, ValueError, OverflowError, RecursionError) as error:
        findings.add(FindingCode.SCHEMA, "run.json", f"$.spec can't be used: {error}")
        return None
    named = run.spec.get("environment_digest")
    findings.expect(
        FindingCode.DIGEST, "run.json", "$.spec.environment_digest", named, run.environment_digest
    )
    findings.expect(FindingCode.SUMMARY, "run.json", "$.spec.id", as_read.id, run.benchmark_id)
    if run.environment_digest not in digests:
        message = f"environment_digest is {run.environment_digest}, but $.spec has {digests[0]}"
        findings.add(FindingCode.DIGEST, "run.json", message)
        return None  # whatever it says, it is not what was played
    return as_made if run.environment_digest == digests[1] else as_read


_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _numbers(value: Any) -> Any:
    """Return a JSON value with its non-finite numbers, which JSON writes as text."""
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, Mapping):
        return {name: _numbers(item) for name, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else value
