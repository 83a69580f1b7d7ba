"""What `run` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evopolicygym.benchmark import Feedback
from evopolicygym.evaluation import EvaluationResult
from evopolicygym.program import Program
from evopolicygym.run.models import HandedOverBy, TerminalReason
from evopolicygym.run.outcome import DISPOSITIONS

__all__ = ["PublishedSubmission", "RunEvent", "RunResult", "ValidationResult"]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened; what observers get and `events.jsonl` holds.

    Attributes:
        kind: `run_started`, `agent_started`, `submission_started`, `episode_ended`,
            `submission_published`, `agent_ended`, `turn_ended`, `agent_retry`, `search_ended`,
            `validation_started`, `validation_ended`, `assessment_started`, `assessment_ended`
            or `run_ended`.
        time: UTC, ISO 8601.
        data: JSON values.
    """

    kind: str
    time: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PublishedSubmission:
    """A Submission whose Feedback the agent got.

    Attributes:
        submission_id: `submission-000001`, …
        episode_indices: Pool indices it was charged for.
        program_digest: Digest of its Program.
        feedback: What the Benchmark made of it.
        program: The Program.
    """

    submission_id: str
    episode_indices: tuple[int, ...]
    program_digest: str
    feedback: Feedback
    program: Program

    @property
    def score(self) -> float | None:
        """Primary metric, or None."""
        return self.feedback.score


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """How the candidates compared on the same private Episodes.

    Attributes:
        scores: Submission id → score, in the order they were handed over.
        results: Submission id → full result.
    """

    scores: Mapping[str, float | None]
    results: Mapping[str, EvaluationResult]


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a Run.

    Attributes:
        terminal_reason: Why the search ended.
        submissions: Published Submissions, in order.
        candidate_submission_ids: What was handed over, best first.
        handed_over_by: Who named them, or None if there was nothing to name.
        final_submission: The selected Submission, or None.
        validation: Comparison of the candidates, or None.
        assessment: Held-out measurement of the selected Program, or None.
        episodes_used: Charged and not refunded.
        record: Directory of the record.
        message: What went wrong, for a person; None where nothing did.
    """

    terminal_reason: TerminalReason
    submissions: tuple[PublishedSubmission, ...]
    candidate_submission_ids: tuple[str, ...]
    handed_over_by: HandedOverBy | None
    final_submission: PublishedSubmission | None
    validation: ValidationResult | None
    assessment: EvaluationResult | None
    episodes_used: int
    record: Path
    message: str | None = None

    @property
    def counts(self) -> bool:
        """Whether this Run is data. If not, it is missing data: unscored, and never 0."""
        return DISPOSITIONS[self.terminal_reason].count

    @property
    def final_program(self) -> Program | None:
        """The selected Program, or None."""
        return None if self.final_submission is None else self.final_submission.program

    @property
    def validation_score(self) -> float | None:
        """Validation score of the selected Submission, or None."""
        if self.validation is None or self.final_submission is None:
            return None
        return self.validation.scores[self.final_submission.submission_id]

    @property
    def assessment_score(self) -> float | None:
        """Held-out score of the selected Program, or None."""
        return None if self.assessment is None else self.assessment.score
