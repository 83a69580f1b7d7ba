"""Choosing candidates and selecting among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.run.session import Submission
from evopolicygym.run.session_models import SubmissionStatus

__all__ = ["host_candidates", "select"]


def host_candidates(
    submissions: Sequence[Submission], spec: BenchmarkSpec, *, most: int
) -> tuple[str, ...]:
    """Name the candidates of an agent that named none.

    They are the published Submissions with the best scores, each Program once; equal scores
    prefer more Episodes, then the earlier Submission.

    Args:
        submissions: All Submissions, in order.
        spec: Tells which scores are better.
        most: Most candidates.
    """
    sign = -1.0 if spec.score_direction == "maximize" else 1.0
    ranked = sorted(
        (
            (sign * submission.score, -len(submission.episode_indices), position)
            for position, submission in enumerate(submissions)
            if submission.status is SubmissionStatus.PUBLISHED and submission.score is not None
        ),
    )
    chosen: dict[str, str] = {}
    for _, _, position in ranked:
        submission = submissions[position]
        chosen.setdefault(submission.program.digest, submission.submission_id)
    return tuple(chosen.values())[:most]


def select(
    candidates: Sequence[str], scores: Mapping[str, float | None], spec: BenchmarkSpec
) -> str | None:
    """Return the candidate with the best score; equal scores prefer the earlier candidate.

    Args:
        candidates: Submission ids in the order they were handed over.
        scores: Validation score of each; None was not measured and can't be selected.
        spec: Tells which scores are better.
    """
    best: str | None = None
    best_score = 0.0
    for candidate in candidates:
        score = scores.get(candidate)
        if score is not None and (best is None or spec.better(score, best_score)):
            best, best_score = candidate, score
    return best
