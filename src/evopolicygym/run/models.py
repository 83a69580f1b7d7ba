"""Everything a Run writes or answers, as models; `docs/schemas/` is generated from them.

A schema string is name and version, e.g. `evopolicygym.feedback/1`. A version never changes its
meaning: an incompatible change gets the next number.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from evopolicygym.benchmark import FailureCode
from evopolicygym.run.session_models import (
    Count,
    Digest,
    ErrorBody,
    FinishReceipt,
    FinishRequest,
    InfoFile,
    Json,
    Model,
    Receipt,
    SubmissionId,
    SubmitRequest,
)

__all__ = [
    "DOCUMENTS",
    "EVENT_SCHEMA",
    "LEDGER_SCHEMA",
    "AgentInvocation",
    "AgentReport",
    "AgentTurnLine",
    "EpisodeEntry",
    "EpisodesFile",
    "EventLine",
    "FeedbackFile",
    "HandedOverBy",
    "LedgerLine",
    "MeasurementFile",
    "RunFile",
    "SubmissionFile",
    "TerminalReason",
    "Tokens",
    "TrajectoryLine",
]

EVENT_SCHEMA = "evopolicygym.event/1"
LEDGER_SCHEMA = "evopolicygym.ledger/1"


class TerminalReason(StrEnum):
    """Why the search ended; closed. `run/outcome.py` says what follows from each."""

    FINISHED = "finished"
    BUDGET_EXHAUSTED = "budget_exhausted"
    EXITED = "exited"
    HUNG_AFTER_RESULT = "hung_after_result"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    KILLED = "killed"
    START_FAILED = "start_failed"
    AUTH_FAILED = "auth_failed"
    RATE_LIMITED = "rate_limited"
    PROVIDER_ERROR = "provider_error"
    HOST_FAILURE = "host_failure"
    INTERRUPTED = "interrupted"


class HandedOverBy(StrEnum):
    """Who named the candidates."""

    AGENT = "agent"
    HOST = "host"


class FailureEntry(Model):
    """A policy failure."""

    code: FailureCode
    message: str
    step: Count
    traceback: str


class FeedbackEpisode(Model):
    """One row of the public per-Episode table."""

    index: Count
    steps: Count
    total_reward: float | None
    score_return: float | None = Field(description="null where the environment failed")
    terminated: bool
    truncated: bool
    failure: FailureEntry | None
    environment_error: str | None = Field(description="never the policy's fault; refunded")
    rewards: dict[str, Json]
    actions: dict[str, Json]
    trajectory: str | None = Field(description="path relative to feedback.json")
    trajectory_cut: bool
    observations: str | None
    stdout: str | None
    stderr: str | None


class FeedbackFile(Model):
    """`feedback.json`: what the agent gets to know about one Submission."""

    schema_: Literal["evopolicygym.feedback/1"] = Field("evopolicygym.feedback/1", alias="schema")
    trajectory_schema: Literal["evopolicygym.trajectory/1"] = "evopolicygym.trajectory/1"
    submission_id: SubmissionId
    program_digest: Digest
    benchmark_id: str
    primary_metric: str
    score_direction: Literal["maximize", "minimize"]
    score: float | None
    episode_indices: list[Count]
    episodes_used: Count
    episodes_remaining: Count
    statistics: dict[str, Json]
    episodes: list[FeedbackEpisode]
    content: dict[str, Json] = Field(description="the Benchmark's own words")
    artifacts: list[str]


class TrajectoryLine(Model):
    """One line of `trajectory.jsonl`; in the last line only `t` and `obs` are not null."""

    t: Count
    obs: Json
    action: Json
    reward: float | None
    terminated: bool | None
    truncated: bool | None
    info: dict[str, Json]


class EpisodeEntry(Model):
    """One Episode as the Host knows it. Private."""

    index: Count
    environment_seed: Count
    policy_seed: Count
    scenario: dict[str, Json]
    steps: Count
    total_reward: float
    score_return: float | None
    terminated: bool
    truncated: bool
    failure: FailureEntry | None
    environment_error: str | None
    trajectory_hash: str
    attempts: Count


class EpisodesFile(Model):
    """`episodes.json` of one Evaluation. Private."""

    schema_: Literal["evopolicygym.episodes/1"] = Field("evopolicygym.episodes/1", alias="schema")
    split: str
    program_digest: Digest
    score: float | None
    episodes: list[EpisodeEntry]


class SubmissionFile(Model):
    """`submission.json` in the record."""

    schema_: Literal["evopolicygym.submission/1"] = Field(
        "evopolicygym.submission/1", alias="schema"
    )
    submission_id: SubmissionId
    request_id: str
    program_digest: Digest
    selector: str
    episode_indices: list[Count]
    score: float | None
    refunded_indices: list[Count]
    published: str


class MeasurementFile(Model):
    """`validation/selection.json` or `assessment/assessment.json`. Private."""

    schema_: Literal["evopolicygym.measurement/1"] = Field(
        "evopolicygym.measurement/1", alias="schema"
    )
    split: str
    episodes: Count
    scores: dict[str, float | None] = Field(description="Submission id to score")
    selected: SubmissionId | None


class LedgerLine(Model):
    """One line of `ledger.jsonl`."""

    schema_: Literal["evopolicygym.ledger/1"] = Field("evopolicygym.ledger/1", alias="schema")
    sequence: Count
    time: str
    kind: Literal["charge", "refund"]
    submission_id: SubmissionId
    request_id: str
    episode_indices: list[Count]
    episodes_used: Count


class EventLine(Model):
    """One line of `events.jsonl`."""

    schema_: Literal["evopolicygym.event/1"] = Field("evopolicygym.event/1", alias="schema")
    time: str
    kind: str
    data: dict[str, Json]


class Tokens(Model):
    """Tokens by kind; the four never overlap."""

    input: Count
    cache_read: Count
    cache_write: Count
    output: Count = Field(description="reasoning included")


class AgentInvocation(Model):
    """`agent/process-001/invocation.json`: how a process of the agent was started, redacted."""

    schema_: Literal["evopolicygym.agent-invocation/1"] = Field(
        "evopolicygym.agent-invocation/1", alias="schema"
    )
    argv: list[str]
    environment: list[str] = Field(description="names of all its variables")
    inherit: list[str] = Field(description="names taken over from the Host on request")
    dialogue: Literal["jsonl", "auto"] | None


class AgentTurnLine(Model):
    """One line of `agent/turns.jsonl`: one prompt and what came of it."""

    schema_: Literal["evopolicygym.agent-turn/1"] = Field(
        "evopolicygym.agent-turn/1", alias="schema"
    )
    turn: Annotated[int, Field(ge=1)]
    attempt: Annotated[int, Field(ge=1)] = Field(description="1, and one more a retry")
    process: str = Field(description="directory of the process's logs")
    message: str
    started: str
    seconds: float
    reason: TerminalReason = Field(description="why the turn ended, seen alone")
    exit_status: int | None = Field(description="null while the process goes on")
    stopped_by_host: bool
    session_id: str | None
    model_calls: Count | None
    tool_calls: Count
    final_message: str | None
    stop_reason: str | None
    error: str | None


class AgentReport(Model):
    """What the agent was and how it ended. What a client does not report is null, never 0."""

    name: str
    model: str | None = Field(description="as it was asked for")
    model_reported: str | None = Field(description="as the client named it")
    version: str | None = Field(description="of the client")
    description: dict[str, Json]
    exit_status: int | None = Field(description="exit code, or minus the signal number")
    wall_seconds: float
    stopped_by_host: bool
    no_descendant_survived: bool
    turns: Count
    retries: Count
    model_calls: Count | None
    tool_calls: Count
    tokens: Tokens | None
    tokens_complete: bool = Field(description="whether every session gave a final account")
    cost_usd: float | None = Field(description="as the client reports it")
    estimated_cost_usd: float | None = Field(description="by `prices`")
    prices: dict[str, Json] | None = Field(description="the price table that was used")
    final_message: str | None
    stop_reason: str | None
    error: str | None


class RunFile(Model):
    """`run.json`: inputs and result of a Run."""

    schema_: Literal["evopolicygym.run/1"] = Field("evopolicygym.run/1", alias="schema")
    status: Literal["running", "done", "failed"]
    started: str
    ended: str | None
    versions: dict[str, str]
    benchmark_id: str
    environment_digest: Digest
    spec: dict[str, Json]
    data: dict[str, Digest] | None = Field(
        description="digests of the data splits that were played; the agent is not told"
    )
    initial_program_digest: Digest
    config: dict[str, Json]
    execution: dict[str, Json]
    skills: list[dict[str, Json]]
    label: str | None = Field(description="what tables call the agent, if not by kind and model")
    agent: AgentReport | None
    terminal_reason: TerminalReason | None
    counts: bool | None = Field(description="whether the Run is data; if not, it is unscored")
    message: str | None
    handed_over_by: HandedOverBy | None
    submissions: list[SubmissionId]
    candidates: list[SubmissionId]
    selected: SubmissionId | None
    episodes_used: Count
    validation_score: float | None
    assessment_score: float | None


DOCUMENTS: dict[str, type[BaseModel]] = {
    "run": RunFile,
    "event-line": EventLine,
    "ledger-line": LedgerLine,
    "agent-invocation": AgentInvocation,
    "agent-turn-line": AgentTurnLine,
    "submission": SubmissionFile,
    "episodes": EpisodesFile,
    "measurement": MeasurementFile,
    "feedback": FeedbackFile,
    "trajectory-line": TrajectoryLine,
    "info": InfoFile,
    "submit-request": SubmitRequest,
    "receipt": Receipt,
    "finish-request": FinishRequest,
    "finish-receipt": FinishReceipt,
    "error": ErrorBody,
}
"""Every document by the name of its file in `docs/schemas/`."""
