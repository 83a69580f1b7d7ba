"""One driver for all agents: turns, time, retries, and why it ended."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import (
    Agent,
    AgentEvidence,
    AgentLaunch,
    AgentTask,
    AgentTurn,
    Transcript,
)
from evopolicygym.run.agent_process import AgentEnd, AgentProcess, agent_environment
from evopolicygym.run.agent_record import AgentRecord
from evopolicygym.run.config import RunConfig
from evopolicygym.run.dialogue import Answer, AnswerError, parse_answer, prompt_line
from evopolicygym.run.models import TerminalReason
from evopolicygym.run.outcome import RETRIED, ProcessOutcome, judge
from evopolicygym.run.record import now
from evopolicygym.run.redaction import Redactor, secrets_in, secrets_of
from evopolicygym.run.session import Session
from evopolicygym.run.session_models import SubmissionStatus

__all__ = ["AgentDriver", "continuation", "retry_delay"]

GRACE_SECONDS = 10.0
"""What a client gets to exit by itself, after `finish` or after its closing event."""

_STOP_GRACE_SECONDS = 5.0
_MAX_BACKOFF_SECONDS = 600.0
_NEWEST = 20
"""Submissions that a prompt names."""


def retry_delay(first: float, retry: int) -> float:
    """Return how long to wait before a retry, seconds: `first`, doubled each time, capped.

    Args:
        first: Wait before the first retry.
        retry: 1, 2, ….
    """
    return float(min(_MAX_BACKOFF_SECONDS, first * 2.0 ** min(retry - 1, 30)))


def continuation(session: Session, config: RunConfig) -> str:
    """Return what to say to an agent that stopped, or was stopped, without `finish`."""
    info = session.info()
    published = [
        f"{one.submission_id} (score {'none' if one.score is None else f'{one.score:g}'}, "
        f"{len(one.episode_indices)} Episodes)"
        for one in info.submissions
        if one.status is SubmissionStatus.PUBLISHED
    ]
    earlier = len(published) - _NEWEST
    if earlier > 0:
        published = [f"{earlier} earlier ones (see status)", *published[-_NEWEST:]]
    most = config.max_candidates
    wanted = "exactly 1 of them" if most == 1 else f"1 to {most} of them, best first"
    return (
        "The Run goes on: `evopolicygym-session finish` was not called. "
        f"{info.episodes_remaining} of {info.episode_budget} Episodes and "
        f"{info.submissions_remaining} submissions are left. "
        f"Published: {', '.join(published) or 'none'}. "
        f"`finish` takes published submissions: {wanted}. TASK.md has the rules; go on."
    )


@dataclass(slots=True)
class _Conversation:
    """Where the driver stands.

    Attributes:
        turn: The prompt to play.
        attempt: 1, and one more a retry.
        process: The process that plays it, or None.
        logs: Directory of that process's logs.
        dialogue: Whether and how it speaks the line protocol.
        answers: What it answered in that.
        answered: Whether the last of these answers the newest prompt.
        one_shot: Whether it turned out not to speak it.
    """

    turn: AgentTurn
    attempt: int = 1
    process: AgentProcess | None = None
    logs: Path | None = None
    dialogue: Literal["jsonl", "auto"] | None = None
    answers: list[Answer] = field(default_factory=list)
    answered: bool = False
    one_shot: bool = False

    def begin(self, process: AgentProcess, logs: Path, launch: AgentLaunch) -> None:
        """Take a new process."""
        self.process, self.logs, self.dialogue = process, logs, launch.dialogue
        self.answers, self.one_shot = [], False


class AgentDriver:
    """Runs an agent until the search is over.

    Args:
        agent: The provider.
        task: What stays the same for it.
        config: The Run's limits.
        session: The session it works in.
        record: Where its evidence goes.
        variables: Variables that lead the agent to its session.
        hopeless: Whether the Host had better give up; asked again and again.
        renew: Lays out workspace and client state afresh for another attempt.
    """

    def __init__(
        self,
        agent: Agent,
        task: AgentTask,
        config: RunConfig,
        session: Session,
        record: AgentRecord,
        variables: Mapping[str, str],
        *,
        hopeless: Callable[[], bool],
        renew: Callable[[], None],
    ) -> None:
        self._agent = agent
        self._task = task
        self._config = config
        self._session = session
        self._record = record
        self._variables = variables
        self._hopeless = hopeless
        self._renew = renew

    def play(self) -> tuple[TerminalReason, str | None]:
        """Play turns until the search is over; return why it is, and a line for a person."""
        talk = _Conversation(AgentTurn(1, self._task.task))
        try:
            while True:
                reason, message, transcript = self._turn(talk)
                final = reason is TerminalReason.HOST_FAILURE
                if final or self._session.candidates is not None:
                    return reason, message
                if reason in RETRIED:
                    if not (self._retries_left and self._again(talk, transcript)):
                        return reason, message
                    self._wait(talk, reason, message)
                elif self._goes_on(talk, transcript, reason):
                    self._next(talk, transcript, talk.turn.number + 1)
                else:
                    return reason, message
        finally:
            if talk.process is not None:
                self._let_go(talk, stopped=True)

    # ------------------------------------------------------------- from turn to turn

    def _goes_on(self, talk: _Conversation, transcript: Transcript, reason: TerminalReason) -> bool:
        """Whether there is another turn after one that ended without `finish`."""
        return (
            reason in (TerminalReason.EXITED, TerminalReason.HUNG_AFTER_RESULT)
            and talk.turn.number < self._config.max_turns
            and not self._session.spent
            and not transcript.stop
            and self._resumable(talk, transcript)
        )

    def _resumable(self, talk: _Conversation, transcript: Transcript) -> bool:
        if self._agent.resumes == "session":
            return (transcript.session_id or talk.turn.session_id) is not None
        return self._agent.resumes == "process" and talk.process is not None

    def _next(self, talk: _Conversation, transcript: Transcript, number: int) -> None:
        message = continuation(self._session, self._config)
        # A client that failed early may not have named its session again.
        session_id = transcript.session_id or talk.turn.session_id
        talk.turn = AgentTurn(number, message, session_id)

    def _again(self, talk: _Conversation, transcript: Transcript) -> bool:
        """Prepare another try; return whether there can be one."""
        if not self._session.submissions:
            # Nothing was charged and nothing was learned: the next attempt is a fresh one.
            if talk.process is not None:
                self._let_go(talk, stopped=True)
            self._renew()
            talk.turn = AgentTurn(1, self._task.task)
        elif self._resumable(talk, transcript):
            self._next(talk, transcript, talk.turn.number)
        else:
            return False
        talk.attempt += 1
        return True

    @property
    def _retries_left(self) -> bool:
        return self._record.retries < self._config.agent_retries

    def _wait(self, talk: _Conversation, reason: TerminalReason, message: str | None) -> None:
        self._record.retries += 1
        delay = retry_delay(self._config.agent_retry_backoff_seconds, self._record.retries)
        self._record.event("agent_retry", reason=reason.value, message=message, seconds=delay)
        until = time.monotonic() + delay
        if talk.process is None:  # a provider's outage is not the agent's time, unless it can work
            self._session.extend(delay)
        while (left := until - time.monotonic()) > 0:
            if self._session.broken is not None or self._session.candidates is not None:
                return
            if talk.process is None:
                time.sleep(min(left, 0.1))
            elif talk.process.poll(min(left, 0.1)) is not None:
                return

    # ------------------------------------------------------------------- one turn

    def _turn(self, talk: _Conversation) -> tuple[TerminalReason, str | None, Transcript]:
        """Play one turn; return how it ended, a line for a person and what was left behind."""
        started = now(), time.monotonic()
        outcome = _INTERRUPTED
        talk.answered = False
        try:
            if talk.process is None:
                self._start(talk)
            else:
                talk.process.prompt(prompt_line(talk.turn.number, talk.turn.message))
            outcome = self._watch(talk)
        except ConfigurationError as error:  # the client was there when the Run began
            outcome = ProcessOutcome(AgentEnd(None, True, str(error), started=False))
        finally:
            if talk.process is not None and (outcome.end or outcome.stopped):
                end = self._let_go(talk, stopped=outcome.stopped is not None)
                outcome = dataclasses.replace(outcome, end=end)
            transcript = self._read(talk, outcome)
            reason, message = self._judge(talk, outcome, transcript)
            self._record.turn_ended(talk.turn, talk.attempt, started, reason, outcome, transcript)
        return reason, message, transcript

    def _judge(
        self, talk: _Conversation, outcome: ProcessOutcome, transcript: Transcript
    ) -> tuple[TerminalReason, str | None]:
        session = self._session
        if outcome.stopped is TerminalReason.INTERRUPTED:
            return TerminalReason.INTERRUPTED, "interrupted"
        if session.broken is not None or outcome.stopped is TerminalReason.HOST_FAILURE:
            why = session.broken or "every Episode so far met a Host fault"
            return TerminalReason.HOST_FAILURE, str(why)
        return judge(
            outcome,
            transcript,
            finished=session.candidates is not None,
            charged=bool(session.submissions),
            spent=session.spent,
            timeout=self._config.agent_timeout_seconds,
            last_words="" if talk.logs is None else self._record.last_words(talk.logs),
            waits_for_input=talk.dialogue == "auto" and not (talk.answers or talk.one_shot),
        )

    def _start(self, talk: _Conversation) -> None:
        talk.logs = None  # those of the process before say nothing of this one
        launch = self._agent.launch(self._task, talk.turn)
        if launch.dialogue is not None:
            line = prompt_line(talk.turn.number, talk.turn.message) + "\n"
            launch = dataclasses.replace(launch, stdin=line.encode())
        environment = agent_environment(launch, self._variables)
        secrets = secrets_of(environment)
        for path in launch.secret_files:
            if path.is_file():
                secrets |= secrets_in(path.read_text(errors="replace"))
        redactor = Redactor(secrets, self._record.places(self._task.state))
        logs = self._record.process_starts(launch, environment, redactor)
        process = AgentProcess(
            launch, environment, secrets=secrets, workspace=self._task.workspace, logs=logs
        )
        talk.begin(process, logs, launch)
        if launch.dialogue == "auto" and self._config.max_turns == 1:
            # A program that reads its input to the end must not wait for a second prompt.
            process.close_input()

    def _let_go(self, talk: _Conversation, *, stopped: bool) -> AgentEnd | None:
        """Leave a process behind; it is ended if it still runs."""
        process, talk.process = talk.process, None
        assert process is not None
        with process:
            if process.end is None:
                process.stop(grace=_STOP_GRACE_SECONDS if stopped else 0.0)
        if process.end is not None:
            self._record.process_ended(process.end, stopped=stopped)
        return process.end

    def _read(self, talk: _Conversation, outcome: ProcessOutcome) -> Transcript:
        if talk.logs is None:
            return Transcript(begun=False)
        evidence = AgentEvidence(
            talk.logs / "stdout.txt",
            talk.logs / "stderr.txt",
            None if outcome.end is None else outcome.end.status,
            self._task,
            talk.turn.session_id,
            tuple(talk.answers),
            talk.answered,
        )
        return self._agent.read(evidence)

    def _watch(self, talk: _Conversation) -> ProcessOutcome:
        """Wait for the end of a turn."""
        process, session = talk.process, self._session
        assert process is not None
        finished_at: float | None = None
        answered_at: float | None = None
        while process.poll(0.1) is None:
            clock = time.monotonic()
            if session.broken is not None or self._hopeless():
                session.close(timeout=0.0)  # nothing is accepted while it is being stopped
                return ProcessOutcome(None, TerminalReason.HOST_FAILURE)
            if talk.dialogue is not None and answered_at is None:
                try:
                    answered = self._listen(talk, process)
                except AnswerError as error:
                    return ProcessOutcome(None, TerminalReason.CRASHED, str(error))
                if answered and self._keeps(talk):
                    return ProcessOutcome(None)
                if answered:
                    answered_at = clock
                    process.mute()
                    process.close_input()
            if session.candidates is not None and finished_at is None:
                finished_at = clock
            closed_at = process.closing_seen if answered_at is None else answered_at
            if closed_at is not None and clock - closed_at > GRACE_SECONDS:
                return ProcessOutcome(None, TerminalReason.HUNG_AFTER_RESULT)
            if finished_at is not None:
                if closed_at is None and clock - finished_at > GRACE_SECONDS:
                    return ProcessOutcome(None, TerminalReason.FINISHED)
            elif clock > session.deadline:
                session.close(timeout=0.0)
                return ProcessOutcome(None, TerminalReason.TIMED_OUT)
        if talk.dialogue is not None and answered_at is None:
            try:
                self._listen(talk, process)
            except AnswerError as error:
                return ProcessOutcome(process.end, protocol_error=str(error))
        return ProcessOutcome(process.end)

    def _keeps(self, talk: _Conversation) -> bool:
        """Whether the process may be wanted for another prompt."""
        answer = talk.answers[-1]
        another_turn = talk.turn.number < self._config.max_turns and not answer.stop
        another_try = bool(answer.data.get("error")) and self._retries_left
        over = self._session.candidates is not None or self._session.spent
        return (another_turn or another_try) and not over

    def _listen(self, talk: _Conversation, process: AgentProcess) -> bool:
        """Read lines of a dialogue; return whether one answers this turn.

        Raises:
            AnswerError: The agent broke the protocol.
        """
        while process.lines and not talk.one_shot:
            line = process.lines.popleft()
            if line.bad is None and not line.text.strip():
                continue
            try:
                if line.bad is not None:
                    raise AnswerError(line.bad)
                answer = parse_answer(line.text)
                if answer.turn > talk.turn.number:
                    raise AnswerError(
                        f"answers turn {answer.turn}, but the prompt was {talk.turn.number}"
                    )
            except AnswerError as error:
                if talk.dialogue == "auto" and not talk.answers:
                    # It prints something else: a program that runs once and reads no prompts.
                    talk.one_shot = True
                    process.mute()
                    process.close_input()
                    return False
                raise AnswerError(f"a line of its output {error}") from None
            if answer.turn < talk.turn.number:
                continue  # late: that turn is over
            talk.answers.append(answer)
            talk.answered = True
            return True
        return False


_INTERRUPTED = ProcessOutcome(None, TerminalReason.INTERRUPTED)
