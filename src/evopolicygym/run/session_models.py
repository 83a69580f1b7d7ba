"""What the session is asked and answers, as models; records use some of them, too."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Count",
    "Digest",
    "ErrorBody",
    "ErrorDetail",
    "FinishReceipt",
    "FinishRequest",
    "InfoFile",
    "Json",
    "Model",
    "Receipt",
    "SessionErrorCode",
    "SubmissionId",
    "SubmissionStatus",
    "SubmitRequest",
]

Json = Any
"""Any JSON value; non-finite numbers are the strings `NaN`, `Infinity`, `-Infinity`."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
SubmissionId = Annotated[str, Field(pattern=r"^submission-[0-9]{6}$")]
Count = Annotated[int, Field(ge=0)]


class Model(BaseModel):
    """Base of all of them: closed and immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SubmissionStatus(StrEnum):
    """Life of a Submission."""

    EVALUATING = "evaluating"
    PUBLISHED = "published"
    FAILED = "failed"


class SessionErrorCode(StrEnum):
    """Why a session request was refused; closed. A refusal never charges anything."""

    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    INVALID_SELECTOR = "invalid_selector"
    INVALID_PROGRAM = "invalid_program"
    TOO_FEW_EPISODES = "too_few_episodes"
    TOO_MANY_EPISODES = "too_many_episodes"
    OVER_BUDGET = "over_budget"
    SUBMISSION_LIMIT = "submission_limit"
    BUSY = "busy"
    REQUEST_CONFLICT = "request_conflict"
    UNKNOWN_SUBMISSION = "unknown_submission"
    INVALID_CANDIDATES = "invalid_candidates"
    SESSION_CLOSED = "session_closed"
    HOST_FAILURE = "host_failure"


class SubmitRequest(Model):
    """Body of `POST /submit`."""

    program: str = Field(description="directory inside the workspace, relative to it")
    episodes: str = Field(description='selector such as "0:2,4:8"')
    request_id: str = Field(
        pattern=r"^[A-Za-z0-9._-]{1,64}$", description="the same id is charged once"
    )


class Receipt(Model):
    """Answer to `submit`, `status` and `wait`: one Submission."""

    submission_id: SubmissionId
    status: SubmissionStatus
    program_digest: Digest
    score: float | None
    episode_indices: list[Count]
    episodes_used: Count
    episodes_remaining: Count
    submissions_remaining: Count
    feedback: str | None = Field(description="feedback.json, relative to the workspace")
    message: str | None = None


class InfoFile(Model):
    """Answer of `GET /info`: what the agent may know, and where it stands."""

    schema_: Literal["evopolicygym.info/1"] = Field("evopolicygym.info/1", alias="schema")
    protocol: Literal[1] = 1
    state: Literal["open", "finished", "closed"]
    benchmark: dict[str, Json]
    episode_pool_size: Count
    episode_budget: Count
    episodes_used: Count
    episodes_remaining: Count
    max_submissions: Count
    submissions_remaining: Count
    min_episodes_per_submission: Count
    max_episodes_per_submission: Count | None
    max_candidates: Count
    episode_timeout_seconds: float
    seconds_remaining: float | None
    evaluating: SubmissionId | None
    submissions: list[Receipt]


class FinishRequest(Model):
    """Body of `POST /finish`."""

    candidates: list[str] = Field(description="Submission ids, best first")


class FinishReceipt(Model):
    """Answer to `finish`."""

    state: Literal["finished"] = "finished"
    candidates: list[SubmissionId]


class ErrorDetail(Model):
    """What was wrong."""

    code: SessionErrorCode
    message: str


class ErrorBody(Model):
    """Body of every refused request."""

    error: ErrorDetail
