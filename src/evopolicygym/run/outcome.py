"""From evidence to why the search ended, and what follows from that: one table."""

from __future__ import annotations

from dataclasses import dataclass

from evopolicygym.run.agent import AgentErrorKind, Transcript
from evopolicygym.run.agent_process import AgentEnd
from evopolicygym.run.models import TerminalReason
from evopolicygym.run.redaction import one_line

__all__ = ["DISPOSITIONS", "RETRIED", "Disposition", "ProcessOutcome", "judge"]


@dataclass(frozen=True, slots=True)
class Disposition:
    """What follows from a reason.

    Attributes:
        retry: Another try may help, and the agent gains nothing by it. The Run itself makes those
            of `RETRIED`; the others are left to whoever plays many Runs.
        grade: What was published is validated and assessed.
        count: The Run is data. If not, it is missing data: unscored, never 0.
    """

    retry: bool
    grade: bool
    count: bool


_SCORED = Disposition(retry=False, grade=True, count=True)

# What the agent does itself is scored, however it ends: an agent must not be able to unmake a bad
# Run by crashing. What its provider or the Host did to it is not.
DISPOSITIONS: dict[TerminalReason, Disposition] = {
    TerminalReason.FINISHED: _SCORED,
    TerminalReason.BUDGET_EXHAUSTED: _SCORED,
    TerminalReason.EXITED: _SCORED,
    TerminalReason.HUNG_AFTER_RESULT: _SCORED,
    TerminalReason.TIMED_OUT: _SCORED,
    TerminalReason.CRASHED: _SCORED,
    TerminalReason.KILLED: _SCORED,
    TerminalReason.START_FAILED: Disposition(retry=True, grade=False, count=False),
    TerminalReason.AUTH_FAILED: Disposition(retry=False, grade=False, count=False),
    TerminalReason.RATE_LIMITED: Disposition(retry=True, grade=False, count=False),
    TerminalReason.PROVIDER_ERROR: Disposition(retry=True, grade=False, count=False),
    TerminalReason.HOST_FAILURE: Disposition(retry=True, grade=True, count=False),
    TerminalReason.INTERRUPTED: Disposition(retry=True, grade=False, count=False),
}

RETRIED = frozenset({TerminalReason.RATE_LIMITED, TerminalReason.PROVIDER_ERROR})
"""What the Run itself tries again, after a while."""

_MAX_MESSAGE = 400
"""Characters of what a client says that go into a message."""

_PROVIDER_ERRORS = {
    AgentErrorKind.AUTH: TerminalReason.AUTH_FAILED,
    AgentErrorKind.RATE_LIMIT: TerminalReason.RATE_LIMITED,
    AgentErrorKind.PROVIDER: TerminalReason.PROVIDER_ERROR,
}


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How a turn ended, as the driver saw it.

    Attributes:
        end: How the process ended, or None while it goes on.
        stopped: Why the Host stopped it, or None.
        protocol_error: What was wrong with an answer in a dialogue, or None.
    """

    end: AgentEnd | None
    stopped: TerminalReason | None = None
    protocol_error: str | None = None


def judge(
    outcome: ProcessOutcome,
    transcript: Transcript,
    *,
    finished: bool,
    charged: bool,
    spent: bool,
    timeout: float,
    last_words: str,
    waits_for_input: bool = False,
) -> tuple[TerminalReason, str | None]:
    """Return why a turn ended, and what to tell a person about it.

    Args:
        outcome: What the driver saw.
        transcript: What the client left behind.
        finished: Whether candidates were handed over.
        charged: Whether anything was charged yet.
        spent: Whether the budget is used up.
        timeout: The agent's time limit, seconds; for the message.
        last_words: What the agent printed last on stderr; for the message.
        waits_for_input: Whether it was offered prompts and said nothing; for the message.
    """
    end, stopped = outcome.end, outcome.stopped
    if stopped is TerminalReason.HUNG_AFTER_RESULT:
        how = "after finish" if finished else "without finish"
        return stopped, f"the agent ended its work {how}, but its process had to be stopped"
    if finished:
        return TerminalReason.FINISHED, None
    if stopped is TerminalReason.TIMED_OUT:
        hint = "; a program that reads its input to the end needs protocol=oneshot"
        return stopped, (
            f"the agent did not finish within {timeout:g} s{hint if waits_for_input else ''}"
        )
    if end is not None and not end.started:
        # Later on it would be an easy way to unmake what was charged.
        reason = TerminalReason.CRASHED if charged else TerminalReason.START_FAILED
        return reason, f"the agent did not start: {end.error}"
    if spent:
        return TerminalReason.BUDGET_EXHAUSTED, "the budget was spent without finish"
    if outcome.protocol_error is not None:
        return TerminalReason.CRASHED, f"protocol error: {outcome.protocol_error}"
    if end is not None and end.status is None:
        return TerminalReason.CRASHED, str(end.error)
    if end is not None and end.status is not None and end.status < 0:
        return TerminalReason.KILLED, f"the agent was ended by signal {-end.status}{last_words}"
    # A client that met such an error ends with another code than 0; who says so and does not,
    # was made to say so.
    if transcript.error is not None and (end is None or end.status != 0):
        return _provider_error(transcript.error, transcript.error_message, charged=charged)
    if end is None:
        return TerminalReason.EXITED, "the agent stopped without finish"
    if end.status != 0:
        if not transcript.begun and not charged:
            reason = TerminalReason.START_FAILED
            return reason, f"the client did not start: status {end.status}{last_words}"
        reason = TerminalReason.CRASHED
        return reason, f"the agent ended with status {end.status} without finish{last_words}"
    if transcript.closed is False:
        return TerminalReason.CRASHED, f"the client ended without its closing event{last_words}"
    return TerminalReason.EXITED, "the agent exited without finish"


def _provider_error(
    kind: AgentErrorKind, message: str | None, *, charged: bool
) -> tuple[TerminalReason, str]:
    said = one_line(f"{_SAID[kind]}: {message}" if message else _SAID[kind], _MAX_MESSAGE)
    if kind is not AgentErrorKind.REQUEST:
        return _PROVIDER_ERRORS[kind], said
    # An agent can talk itself into such an error, by filling its own context.
    return (TerminalReason.CRASHED if charged else TerminalReason.PROVIDER_ERROR), said


_SAID = {
    AgentErrorKind.REQUEST: "the agent's provider refused a request",
    AgentErrorKind.AUTH: "the agent's provider refused its credentials",
    AgentErrorKind.RATE_LIMIT: "the agent's provider limited its rate",
    AgentErrorKind.PROVIDER: "the agent's provider failed",
}
