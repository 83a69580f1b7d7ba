"""The rules of a session: what an agent may do, what it costs and what it gets back.

Nothing here knows HTTP, processes or files; the loop passes in what evaluates and publishes.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.errors import ProgramError, RecordError, SelectorError, SessionError
from evopolicygym.program import Program
from evopolicygym.run.config import RunConfig
from evopolicygym.run.ledger import Ledger
from evopolicygym.run.selectors import parse_selector
from evopolicygym.run.session_models import (
    FinishReceipt,
    InfoFile,
    Receipt,
    SessionErrorCode,
    SubmissionStatus,
)
from evopolicygym.strict_json import finite

__all__ = ["Session", "Submission"]

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Submission:
    """One Program and the Episodes it was charged for.

    Attributes:
        submission_id: `submission-000001`, …
        request_id: The client's id of the request.
        program: The captured Program.
        selector: As the agent wrote it.
        episode_indices: Pool indices.
        status: Where it stands.
        score: Primary metric once published; may be None.
        refunded: Indices whose Episodes met a Host fault.
        message: What the Host has to say about it, or None.
    """

    submission_id: str
    request_id: str
    program: Program
    selector: str
    episode_indices: tuple[int, ...]
    status: SubmissionStatus = SubmissionStatus.EVALUATING
    score: float | None = None
    refunded: tuple[int, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What evaluating a Submission gave back to the session.

    Attributes:
        score: Primary metric, or None.
        refunded: Indices to refund.
        publish: Called with the settled account; makes the Feedback visible. It returns why
            the agent can't see it, or None.
    """

    score: float | None
    refunded: tuple[int, ...]
    publish: Callable[[Submission, int, int], str | None]


class Session:
    """Admits, charges, evaluates and publishes, one Submission at a time.

    Args:
        config: The Run's limits.
        spec: The Benchmark's public spec.
        workspace: The agent's workspace.
        ledger: The Run's ledger.
        evaluate: Plays a Submission; runs in a thread of the session.
        deadline: `time.monotonic()` at which the agent's time is over.

    Attributes:
        deadline: The same; the driver may put it off.
        broken: Why the Host can't go on, or None.
    """

    def __init__(
        self,
        config: RunConfig,
        spec: BenchmarkSpec,
        workspace: Path,
        ledger: Ledger,
        evaluate: Callable[[Submission], Evaluated],
        *,
        deadline: float = math.inf,
    ) -> None:
        self._config = config
        self._spec = spec
        self._workspace = workspace
        self._ledger = ledger
        self._evaluate = evaluate
        self.deadline = deadline
        self._changed = threading.Condition()
        self._submissions: dict[str, Submission] = {}
        self._by_request: dict[str, str] = {}
        self._evaluating: str | None = None
        self._thread: threading.Thread | None = None
        self._candidates: tuple[str, ...] | None = None
        self._closed = False
        self.broken: BaseException | None = None

    # ------------------------------------------------------------------ requests

    def submit(self, program: str, selector: str, request_id: str) -> Receipt:
        """Admit, capture, charge and start one Submission.

        Admission comes before capture and capture before the charge, so whatever is refused
        costs nothing. The same `request_id` returns the same Submission.

        Raises:
            SessionError: Refused; see `SessionErrorCode`.
        """
        if not _REQUEST_ID.fullmatch(request_id):
            raise SessionError(
                SessionErrorCode.INVALID_REQUEST,
                "request_id must be 1 to 64 characters of A-Z a-z 0-9 . _ -",
            )
        with self._changed:
            known = self._by_request.get(request_id)
            if known is not None:
                return self._same_request(self._submissions[known], selector)
            self._require_open()
            if self._evaluating is not None:
                raise SessionError(
                    SessionErrorCode.BUSY,
                    f"{self._evaluating} is being evaluated: wait for it, then submit again",
                )
            indices = self._admit(selector)
            captured = self._capture(program)
            submission = Submission(
                submission_id=f"submission-{len(self._submissions) + 1:06d}",
                request_id=request_id,
                program=captured,
                selector=selector,
                episode_indices=indices,
            )
            self._ledger.charge(submission.submission_id, request_id, indices)
            self._submissions[submission.submission_id] = submission
            self._by_request[request_id] = submission.submission_id
            self._evaluating = submission.submission_id
            self._thread = threading.Thread(
                target=self._run, args=(submission,), name=submission.submission_id, daemon=True
            )
            try:
                self._thread.start()
            except RuntimeError as error:  # no more threads
                self.broken = error
                self._submissions[submission.submission_id] = self._failed(submission, ())
                self._evaluating = None
                raise SessionError(
                    SessionErrorCode.HOST_FAILURE, "the Host can't start an evaluation"
                ) from None
            return self._receipt(submission)

    def _same_request(self, submission: Submission, selector: str) -> Receipt:
        if submission.selector != selector:
            raise SessionError(
                SessionErrorCode.REQUEST_CONFLICT,
                f"this request_id belongs to {submission.submission_id} with the selector "
                f"{submission.selector!r}: use a new one for another Submission",
            )
        return self._receipt(submission)

    def _require_open(self) -> None:
        if self._candidates is not None:
            raise SessionError(SessionErrorCode.SESSION_CLOSED, "the session was finished")
        if self.broken is not None:
            raise SessionError(SessionErrorCode.HOST_FAILURE, "the Host can't go on with this Run")
        if self._closed:
            raise SessionError(SessionErrorCode.SESSION_CLOSED, "the session is closed")

    def _admit(self, selector: str) -> tuple[int, ...]:
        config = self._config
        try:
            indices = parse_selector(selector, pool_size=config.pool_size)
        except SelectorError as error:
            raise SessionError(SessionErrorCode.INVALID_SELECTOR, str(error)) from None
        if len(self._submissions) >= config.max_submissions:
            raise SessionError(
                SessionErrorCode.SUBMISSION_LIMIT,
                f"all {config.max_submissions} Submissions are used: finish with one of them",
            )
        count, remaining = len(indices), self._ledger.remaining
        # The last Episodes may always be used, even where fewer than the minimum are left.
        if count < min(config.min_episodes_per_submission, remaining):
            raise SessionError(
                SessionErrorCode.TOO_FEW_EPISODES,
                f"{count} Episodes selected, at least {config.min_episodes_per_submission} needed",
            )
        most = config.max_episodes_per_submission
        if most is not None and count > most:
            raise SessionError(
                SessionErrorCode.TOO_MANY_EPISODES,
                f"{count} Episodes selected, at most {most} allowed in one Submission",
            )
        if count > remaining:
            raise SessionError(
                SessionErrorCode.OVER_BUDGET,
                f"{count} Episodes selected, {remaining} remain of {config.episode_budget}",
            )
        return indices

    def _capture(self, program: str) -> Program:
        relative = Path(program)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts:
            raise SessionError(
                SessionErrorCode.INVALID_PROGRAM,
                f"{program!r} must name a directory inside the workspace, e.g. 'program'",
            )
        directory = self._workspace
        try:
            for part in relative.parts:
                directory = directory / part
                if directory.is_symlink():
                    raise ProgramError(f"{part} in {program!r} is a symbolic link")
            return Program.from_directory(directory)
        except ProgramError as error:
            text = str(error).replace(str(self._workspace) + "/", "")
            raise SessionError(SessionErrorCode.INVALID_PROGRAM, text) from None
        except (OSError, ValueError):  # a NUL character, a lone surrogate, an endless name
            raise SessionError(
                SessionErrorCode.INVALID_PROGRAM, f"{program[:80]!a} is no usable path"
            ) from None

    def finish(self, candidates: Sequence[str]) -> FinishReceipt:
        """End the search and hand over candidates, best first.

        Raises:
            SessionError: Refused; see `SessionErrorCode`.
        """
        with self._changed:
            if self._candidates is not None and tuple(candidates) == self._candidates:
                return FinishReceipt(candidates=list(candidates))
            self._require_open()
            if self._evaluating is not None:
                raise SessionError(
                    SessionErrorCode.BUSY, f"{self._evaluating} is being evaluated: wait for it"
                )
            most = self._config.max_candidates
            if not 1 <= len(candidates) <= most or len(set(candidates)) != len(candidates):
                allowed = "exactly 1 candidate" if most == 1 else f"1 to {most} distinct candidates"
                raise SessionError(
                    SessionErrorCode.INVALID_CANDIDATES,
                    f"{len(candidates)} candidates named, expected {allowed}",
                )
            for name in candidates:
                submission = self._find(name)
                if submission.status is not SubmissionStatus.PUBLISHED:
                    raise SessionError(
                        SessionErrorCode.INVALID_CANDIDATES,
                        f"{name} was not published: name one that was",
                    )
            self._candidates = tuple(candidates)
            self._changed.notify_all()
            return FinishReceipt(candidates=list(candidates))

    def receipt(self, submission_id: str, *, wait: float = 0.0) -> Receipt:
        """Return one Submission's receipt, after up to `wait` seconds for its end.

        Raises:
            SessionError: No such Submission.
        """
        with self._changed:
            self._find(submission_id)
            self._changed.wait_for(
                lambda: self._submissions[submission_id].status is not SubmissionStatus.EVALUATING,
                timeout=wait,
            )
            return self._receipt(self._submissions[submission_id])

    def info(self) -> InfoFile:
        """Return what the agent may know and where it stands."""
        spec, config = self._spec, self._config
        with self._changed:
            left = self.deadline - time.monotonic()
            state = "finished" if self._candidates is not None else "open"
            return InfoFile.model_validate(
                {
                    "state": "closed" if self._closed else state,
                    "benchmark": public_spec(spec),
                    "episode_pool_size": config.pool_size,
                    "episode_budget": config.episode_budget,
                    "episodes_used": self._ledger.used,
                    "episodes_remaining": self._ledger.remaining,
                    "max_submissions": config.max_submissions,
                    "submissions_remaining": self._submissions_remaining,
                    "min_episodes_per_submission": config.min_episodes_per_submission,
                    "max_episodes_per_submission": config.max_episodes_per_submission,
                    "max_candidates": config.max_candidates,
                    "episode_timeout_seconds": config.episode_timeout_seconds,
                    "seconds_remaining": max(0.0, round(left, 3)) if left < math.inf else None,
                    "evaluating": self._evaluating,
                    "submissions": [self._receipt(s) for s in self._submissions.values()],
                }
            )

    # ---------------------------------------------------------------- for the Host

    @property
    def submissions(self) -> tuple[Submission, ...]:
        """All Submissions, in order."""
        with self._changed:
            return tuple(self._submissions.values())

    @property
    def spent(self) -> bool:
        """Whether no further Submission is possible."""
        with self._changed:
            return self._ledger.remaining == 0 or self._submissions_remaining <= 0

    def extend(self, seconds: float) -> None:
        """Give the agent back time that was not its own."""
        self.deadline += seconds

    @property
    def candidates(self) -> tuple[str, ...] | None:
        """What the agent handed over, or None."""
        return self._candidates

    def close(self, timeout: float) -> bool:
        """Take no more requests and wait for a Submission that is being evaluated.

        Returns:
            Whether nothing is being evaluated any more.
        """
        with self._changed:
            self._closed = True
            return self._changed.wait_for(lambda: self._evaluating is None, timeout=timeout)

    # -------------------------------------------------------------------- private

    def _find(self, submission_id: str) -> Submission:
        try:
            return self._submissions[submission_id]
        except KeyError:
            known = ", ".join(self._submissions) or "none yet"
            raise SessionError(
                SessionErrorCode.UNKNOWN_SUBMISSION,
                f"no Submission {submission_id[:80]!r}; there are: {known}",
            ) from None

    @property
    def _submissions_remaining(self) -> int:
        return self._config.max_submissions - len(self._submissions)

    def _receipt(self, submission: Submission) -> Receipt:
        published = submission.status is SubmissionStatus.PUBLISHED
        return Receipt(
            submission_id=submission.submission_id,
            status=submission.status,
            program_digest=submission.program.digest,
            score=submission.score,
            episode_indices=list(submission.episode_indices),
            episodes_used=self._ledger.used,
            episodes_remaining=self._ledger.remaining,
            submissions_remaining=self._submissions_remaining,
            feedback=f"feedback/{submission.submission_id}/feedback.json" if published else None,
            message=submission.message,
        )

    def _run(self, submission: Submission) -> None:
        """Evaluate and settle one Submission; runs in its own thread."""
        settled = submission
        try:
            evaluated = self._evaluate(submission)
            faults = len(evaluated.refunded)
            self._refund(submission, evaluated.refunded)
            settled = replace(
                submission,
                status=SubmissionStatus.PUBLISHED,
                score=evaluated.score,
                refunded=evaluated.refunded,
                message=f"{faults} Episodes met an environment error and were refunded"
                if faults
                else None,
            )
            hidden = evaluated.publish(settled, self._ledger.used, self._ledger.remaining)
            if hidden is not None:
                told = f"the Feedback could not be put into the workspace: {hidden}"
                settled = replace(settled, message=told)
        except BaseException as error:  # the loop reports it and ends the Run
            self.broken = error
            settled = self._failed(submission, settled.refunded)
        with self._changed:
            self._submissions[submission.submission_id] = settled
            self._evaluating = None
            self._changed.notify_all()

    def _failed(self, submission: Submission, refunded: tuple[int, ...]) -> Submission:
        """Refund what is left of a Submission that could not be evaluated."""
        message = "the Host could not evaluate this Submission"
        rest = [index for index in submission.episode_indices if index not in refunded]
        try:
            self._refund(submission, rest)
        except RecordError:  # the first error is the one to report
            message += "; its Episodes could not be refunded"
        else:
            refunded = submission.episode_indices
            message += "; its Episodes were refunded"
        status = SubmissionStatus.FAILED
        return replace(submission, status=status, refunded=refunded, message=message)

    def _refund(self, submission: Submission, indices: Sequence[int]) -> None:
        if indices:
            self._ledger.refund(submission.submission_id, submission.request_id, indices)


def public_spec(spec: BenchmarkSpec) -> dict[str, object]:
    """Return a spec as strict JSON."""
    value: dict[str, object] = finite(
        {
            "id": spec.id,
            "environment_digest": spec.environment_digest,
            "description": spec.description,
            "observation_space": spec.observation_space,
            "action_space": spec.action_space,
            "metadata": spec.metadata,
            "environment_parameters": spec.environment_parameters,
            "max_episode_steps": spec.max_episode_steps,
            "primary_metric": spec.primary_metric,
            "score_direction": spec.score_direction,
            "failure_return": spec.failure_return,
        }
    )
    return value
