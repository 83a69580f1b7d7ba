from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from evopolicygym.run.agent import AgentErrorKind, Transcript
from evopolicygym.run.agent_process import AgentEnd
from evopolicygym.run.models import TerminalReason
from evopolicygym.run.outcome import DISPOSITIONS, RETRIED, Disposition, ProcessOutcome, judge

R = TerminalReason
CLEAN = Transcript(closed=True)
LAST = "; its last line on stderr: oh"


def ended(status: int | None, error: str | None = None, started: bool = True) -> ProcessOutcome:
    return ProcessOutcome(AgentEnd(status, True, error, started))


def judged(
    outcome: ProcessOutcome,
    transcript: Transcript = CLEAN,
    *,
    finished: bool = False,
    charged: bool = False,
    spent: bool = False,
    waits_for_input: bool = False,
) -> tuple[TerminalReason, str | None]:
    return judge(
        outcome,
        transcript,
        finished=finished,
        charged=charged,
        spent=spent,
        timeout=90.5,
        last_words=LAST,
        waits_for_input=waits_for_input,
    )


NOT_STARTED = ended(None, "no such file", started=False)
HUNG = replace(ended(-9), stopped=R.HUNG_AFTER_RESULT)
LATE = replace(ended(-15), stopped=R.TIMED_OUT)
STOPPED_AFTER_FINISH = replace(ended(-9), stopped=R.FINISHED)
BAD_LINE = replace(ended(-9), stopped=R.CRASHED, protocol_error="a line is no answer")
ASKED = ProcessOutcome(None)


def failing(kind: AgentErrorKind, message: str | None = "529") -> Transcript:
    return Transcript(closed=True, error=kind, error_message=message)


@pytest.mark.parametrize(
    ("outcome", "transcript", "reason", "message"),
    [
        (ended(0), CLEAN, R.EXITED, "the agent exited without finish"),
        (ended(0), Transcript(closed=None), R.EXITED, "the agent exited without finish"),
        (ASKED, CLEAN, R.EXITED, "the agent stopped without finish"),
        (
            ended(0),
            Transcript(closed=False),
            R.CRASHED,
            f"the client ended without its closing event{LAST}",
        ),
        (ended(7), CLEAN, R.CRASHED, f"the agent ended with status 7 without finish{LAST}"),
        (
            ended(1),
            Transcript(begun=False, closed=False),
            R.START_FAILED,
            f"the client did not start: status 1{LAST}",
        ),
        (ended(-11), CLEAN, R.KILLED, f"the agent was ended by signal 11{LAST}"),
        (
            ended(-9),
            Transcript(begun=False),
            R.KILLED,
            f"the agent was ended by signal 9{LAST}",
        ),
        (
            ended(None, "the agent's supervisor was lost"),
            CLEAN,
            R.CRASHED,
            "the agent's supervisor was lost",
        ),
        (NOT_STARTED, CLEAN, R.START_FAILED, "the agent did not start: no such file"),
        (LATE, CLEAN, R.TIMED_OUT, "the agent did not finish within 90.5 s"),
        (
            HUNG,
            CLEAN,
            R.HUNG_AFTER_RESULT,
            "the agent ended its work without finish, but its process had to be stopped",
        ),
        (BAD_LINE, CLEAN, R.CRASHED, "protocol error: a line is no answer"),
        (
            replace(ended(0), protocol_error="a line is no answer"),
            CLEAN,
            R.CRASHED,
            "protocol error: a line is no answer",
        ),
        (
            ended(1),
            failing(AgentErrorKind.AUTH, "401"),
            R.AUTH_FAILED,
            "the agent's provider refused its credentials: 401",
        ),
        (
            ended(1),
            failing(AgentErrorKind.RATE_LIMIT, None),
            R.RATE_LIMITED,
            "the agent's provider limited its rate",
        ),
        (
            ended(1),
            failing(AgentErrorKind.PROVIDER),
            R.PROVIDER_ERROR,
            "the agent's provider failed: 529",
        ),
        (
            ASKED,
            failing(AgentErrorKind.PROVIDER, ""),
            R.PROVIDER_ERROR,
            "the agent's provider failed",
        ),
        (
            ended(1),
            failing(AgentErrorKind.REQUEST, "prompt is too long"),
            R.PROVIDER_ERROR,
            "the agent's provider refused a request: prompt is too long",
        ),
        (
            ended(1),
            failing(AgentErrorKind.PROVIDER, "a\nb\x1b" + "c" * 1000),
            R.PROVIDER_ERROR,
            "the agent's provider failed: a b " + "c" * 365 + " …",
        ),
        # Who meets such an error does not end with 0, and a signal is no provider's.
        (ended(0), failing(AgentErrorKind.AUTH), R.EXITED, "the agent exited without finish"),
        (
            ended(-9),
            failing(AgentErrorKind.AUTH),
            R.KILLED,
            f"the agent was ended by signal 9{LAST}",
        ),
        (ended(None, "lost"), failing(AgentErrorKind.AUTH), R.CRASHED, "lost"),
    ],
)
def test_reasons(
    outcome: ProcessOutcome, transcript: Transcript, reason: TerminalReason, message: str
) -> None:
    assert judged(outcome, transcript) == (reason, message)


OUTCOMES = [
    *(ended(0), ended(3), ended(-9), ended(None, "lost"), NOT_STARTED, HUNG, LATE, BAD_LINE, ASKED),
    STOPPED_AFTER_FINISH,
]
TRANSCRIPTS = [
    *(CLEAN, Transcript(closed=False), Transcript(begun=False, closed=False)),
    *(failing(kind) for kind in AgentErrorKind),
]


@pytest.mark.parametrize(
    ("outcome", "transcript", "spent"),
    list(itertools.product(OUTCOMES, TRANSCRIPTS, [False, True])),
)
def test_what_was_handed_over_counts_however_it_ended(
    outcome: ProcessOutcome, transcript: Transcript, spent: bool
) -> None:
    found = judged(outcome, transcript, finished=True, spent=spent)
    if outcome is HUNG:
        assert found == (
            R.HUNG_AFTER_RESULT,
            "the agent ended its work after finish, but its process had to be stopped",
        )
    else:
        assert found == (R.FINISHED, None)
    assert DISPOSITIONS[found[0]] == Disposition(retry=False, grade=True, count=True)


@pytest.mark.parametrize(
    ("outcome", "transcript"), list(itertools.product(OUTCOMES[:-1], TRANSCRIPTS))
)
def test_a_spent_budget(outcome: ProcessOutcome, transcript: Transcript) -> None:
    reason, message = judged(outcome, transcript, spent=True)
    if outcome is HUNG:
        assert reason is R.HUNG_AFTER_RESULT
    elif outcome is LATE:
        assert reason is R.TIMED_OUT
    elif outcome is NOT_STARTED:
        assert reason is R.START_FAILED
    else:  # a provider's error after that, a crash: the search was over
        assert (reason, message) == (
            R.BUDGET_EXHAUSTED,
            "the budget was spent without finish",
        )


@pytest.mark.parametrize("kind", AgentErrorKind)
@pytest.mark.parametrize("outcome", [ended(1), ended(143), ASKED])
def test_a_providers_error_beats_a_crash(outcome: ProcessOutcome, kind: AgentErrorKind) -> None:
    expected = {
        AgentErrorKind.AUTH: R.AUTH_FAILED,
        AgentErrorKind.RATE_LIMIT: R.RATE_LIMITED,
        AgentErrorKind.PROVIDER: R.PROVIDER_ERROR,
        AgentErrorKind.REQUEST: R.PROVIDER_ERROR,
    }
    for transcript in (failing(kind), replace(failing(kind), begun=False, closed=False)):
        assert judged(outcome, transcript)[0] is expected[kind]


@pytest.mark.parametrize(
    ("outcome", "transcript"),
    [
        (NOT_STARTED, CLEAN),
        (ended(1), Transcript(begun=False, closed=False)),
        (ended(1), failing(AgentErrorKind.REQUEST)),
        (ASKED, failing(AgentErrorKind.REQUEST)),
    ],
)
def test_what_an_agent_can_bring_about_unmakes_nothing_that_was_charged(
    outcome: ProcessOutcome, transcript: Transcript
) -> None:
    before, after = (judged(outcome, transcript, charged=charged) for charged in (False, True))
    assert not DISPOSITIONS[before[0]].count
    assert after[0] is R.CRASHED
    assert DISPOSITIONS[after[0]].count


@pytest.mark.parametrize(
    ("outcome", "transcript"), list(itertools.product(OUTCOMES[:-1], TRANSCRIPTS))
)
def test_what_was_charged_changes_nothing_else(
    outcome: ProcessOutcome, transcript: Transcript
) -> None:
    before, after = (judged(outcome, transcript, charged=charged) for charged in (False, True))
    if before[0] is not R.START_FAILED and transcript.error is not AgentErrorKind.REQUEST:
        assert before == after


def test_a_program_that_waits_for_the_end_of_its_input() -> None:
    assert judged(LATE, waits_for_input=True) == (
        R.TIMED_OUT,
        "the agent did not finish within 90.5 s; "
        "a program that reads its input to the end needs protocol=oneshot",
    )
    assert judged(ended(0), waits_for_input=True) == judged(ended(0))


@pytest.mark.parametrize("kind", AgentErrorKind)
@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        *((HUNG, R.HUNG_AFTER_RESULT), (LATE, R.TIMED_OUT)),
        *((BAD_LINE, R.CRASHED), (NOT_STARTED, R.START_FAILED)),
    ],
)
def test_what_the_host_saw_beats_a_providers_error(
    outcome: ProcessOutcome, reason: TerminalReason, kind: AgentErrorKind
) -> None:
    assert judged(outcome, failing(kind))[0] is reason


def test_every_reason_but_the_drivers_own_is_judged() -> None:
    found = {
        judged(outcome, transcript, finished=finished, spent=spent)[0]
        for outcome, transcript, finished, spent in itertools.product(
            OUTCOMES, TRANSCRIPTS, [False, True], [False, True]
        )
        if finished or outcome is not STOPPED_AFTER_FINISH
    }
    assert found == set(TerminalReason) - {R.HOST_FAILURE, R.INTERRUPTED}


# ------------------------------------------------------------------------ dispositions


def test_there_is_one_disposition_a_reason() -> None:
    assert DISPOSITIONS.keys() == set(TerminalReason)


@pytest.mark.parametrize(
    ("reason", "retry", "grade", "count"),
    [
        (R.FINISHED, False, True, True),
        (R.BUDGET_EXHAUSTED, False, True, True),
        (R.EXITED, False, True, True),
        (R.HUNG_AFTER_RESULT, False, True, True),
        (R.TIMED_OUT, False, True, True),
        (R.CRASHED, False, True, True),
        (R.KILLED, False, True, True),
        (R.START_FAILED, True, False, False),
        (R.AUTH_FAILED, False, False, False),
        (R.RATE_LIMITED, True, False, False),
        (R.PROVIDER_ERROR, True, False, False),
        (R.HOST_FAILURE, True, True, False),
        (R.INTERRUPTED, True, False, False),
    ],
)
def test_dispositions(reason: TerminalReason, retry: bool, grade: bool, count: bool) -> None:
    assert DISPOSITIONS[reason] == Disposition(retry, grade, count)


def test_a_run_tries_again_only_what_may_be_tried_again() -> None:
    assert set(RETRIED) == {R.RATE_LIMITED, R.PROVIDER_ERROR}
    assert all(DISPOSITIONS[reason].retry for reason in RETRIED)


def test_what_counts_is_graded_and_never_tried_again() -> None:
    for disposition in DISPOSITIONS.values():
        if disposition.count:
            assert disposition.grade
            assert not disposition.retry


def test_providers_errors_are_no_data() -> None:
    for kind in AgentErrorKind:
        assert not DISPOSITIONS[judged(ended(1), failing(kind))[0]].count
