"""The Run itself: search → Validation → Assessment → record."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from evopolicygym.benchmark import Benchmark, Episode
from evopolicygym.errors import ConfigurationError, RecordError
from evopolicygym.evaluation import EvaluationResult, Evaluator
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.execution.pool import WorkerPool
from evopolicygym.execution.process import ProcessExecution
from evopolicygym.execution.runtime_directory import runtime_directory
from evopolicygym.program import Program
from evopolicygym.run.agent import Agent, AgentTask, McpServer
from evopolicygym.run.agent_record import AgentRecord
from evopolicygym.run.client import (
    SESSION_VARIABLE,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    WORKSPACE_VARIABLE,
)
from evopolicygym.run.config import RunConfig
from evopolicygym.run.driver import AgentDriver
from evopolicygym.run.ledger import Ledger
from evopolicygym.run.measurement import (
    Measurement,
    derive_seed,
    private_plans,
    training_pool,
)
from evopolicygym.run.models import HandedOverBy, TerminalReason
from evopolicygym.run.outcome import DISPOSITIONS
from evopolicygym.run.prices import PriceTable
from evopolicygym.run.publication import publish, show, write_feedback
from evopolicygym.run.record import RunRecord, now, prepare_directory, versions
from evopolicygym.run.result import (
    PublishedSubmission,
    RunEvent,
    RunResult,
    ValidationResult,
)
from evopolicygym.run.selection import host_candidates
from evopolicygym.run.server import SessionServer, check_port, session_app
from evopolicygym.run.session import Evaluated, Session, Submission, public_spec
from evopolicygym.run.workspace import create_workspace, task_text
from evopolicygym.skills import AgentSkill

__all__ = ["run"]

TASK_VARIABLE = "EVOPOLICYGYM_TASK"
_MAX_TASK_VARIABLE_BYTES = 96 * 1024  # the kernel's limit of one variable is 128 KiB
_HOPELESS_FAULTS = 3


def run(
    program: Program,
    benchmark: Benchmark,
    *,
    agent: Agent,
    execution: ProcessExecution,
    record_to: str | os.PathLike[str],
    config: RunConfig = RunConfig(),  # noqa: B008 - frozen
    skills: Sequence[AgentSkill] = (),
    prices: PriceTable | None = None,
    label: str | None = None,
    observer: Callable[[RunEvent], None] | None = None,
) -> RunResult:
    """Let one agent improve a Program within a budget, then measure what it hands over.

    Args:
        program: Where the agent starts.
        benchmark: What it is measured on.
        agent: Who does it.
        execution: How policies run.
        record_to: Directory for the record; must not exist, or be empty.
        config: Limits.
        skills: Skills the agent finds in its workspace.
        prices: To estimate what the agent's tokens cost; the record keeps it.
        label: What tables call the agent; None for its kind and model.
        observer: Gets every event as it happens, in whichever thread it happens.

    Returns:
        The result. A Run that the agent or the Host cut short is a result too; its
        `terminal_reason` and `message` say why.

    Raises:
        ConfigurationError: Bad input; nothing was written.
        BenchmarkError: The Benchmark broke its contract while planning; nothing was written.
        RecordError: The record can't be written.
        KeyboardInterrupt: Interrupted; the record says so.
    """
    agent.check()
    names = [skill.name for skill in skills]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"two skills have the same name: {', '.join(sorted(names))}")
    if config.bind is not None:
        check_port(config.bind, config.port)
    pool = training_pool(benchmark, config)
    private = private_plans(benchmark, config)
    root = Path(record_to).absolute()
    prepare_directory(root)
    with ExitStack() as stack:
        record = RunRecord(root, observer, label)
        stack.callback(record.close)
        return _Run(
            program,
            benchmark,
            agent,
            execution,
            config,
            skills,
            record,
            pool,
            private,
            prices,
            stack,
        ).play()


class _Run:
    """State of one Run while it is played."""

    def __init__(
        self,
        program: Program,
        benchmark: Benchmark,
        agent: Agent,
        execution: ProcessExecution,
        config: RunConfig,
        skills: Sequence[AgentSkill],
        record: RunRecord,
        pool: tuple[Episode, ...],
        private: dict[str, tuple[Episode, ...]],
        prices: PriceTable | None,
        stack: ExitStack,
    ) -> None:
        self.program = program
        self.spec = benchmark.spec
        self.data_digests = getattr(benchmark, "data_digests", None)
        self.agent = agent
        self.execution = execution
        self.config = config
        self.skills = skills
        self.record = record
        self.pool = pool
        self.private = private
        self.task = task_text(self.spec, config, skills)
        self.published: dict[str, PublishedSubmission] = {}
        self.played = self.faulted = 0
        self.runtime = stack.enter_context(runtime_directory())
        self.state = self.runtime / "agent"
        self.state.mkdir(mode=0o700)
        self.ledger = stack.enter_context(
            Ledger(record.root / "ledger.jsonl", budget=config.episode_budget)
        )
        self.workers = stack.enter_context(
            WorkerPool(execution, jobs=config.jobs, directory=self.runtime / "w")
        )
        self.agent_record = AgentRecord(record, agent, prices)
        stack.callback(self.agent_record.close)
        self.session: Session | None = None
        self.evaluator = Evaluator(
            benchmark, self.workers, episode_timeout=config.episode_timeout_seconds
        )

    # ------------------------------------------------------------------- the phases

    def play(self) -> RunResult:
        try:
            self._write_start()
            self._create_workspace()
            self.record.event("run_started", benchmark=self.spec.id, agent=self.agent.name)
            reason, message, session = self._search()
            return self._measure(reason, message, session)
        except BaseException as error:
            self._settle()
            interrupted = isinstance(error, KeyboardInterrupt)
            handed_over = self.session.candidates if self.session is not None else None
            with contextlib.suppress(RecordError):  # the first error is the one to report
                self._write_end(
                    TerminalReason.INTERRUPTED if interrupted else TerminalReason.HOST_FAILURE,
                    "interrupted" if interrupted else f"{type(error).__name__}: {error}",
                    HandedOverBy.AGENT if handed_over else None,
                    handed_over or (),
                    None,
                    None,
                    None,
                )
            raise
        finally:
            shutil.rmtree(self.record.staging, ignore_errors=True)

    def _settle(self) -> None:
        """Drop what is being evaluated, so that the account is final when it is written."""
        self.workers.close()
        if self.session is not None:
            self.session.close(timeout=5.0)

    def _search(self) -> tuple[TerminalReason, str | None, Session]:
        """Serve the session while the agent works."""
        config = self.config
        self.agent_record.client_version(self.agent.version())
        session = Session(
            config,
            self.spec,
            self.record.workspace,
            self.ledger,
            self._evaluate_submission,
            deadline=time.monotonic() + config.agent_timeout_seconds,
        )
        self.session = session
        app = session_app(session, self.task)
        path = self.runtime / "session.sock"
        with SessionServer(app, path, bind=config.bind, port=config.port) as server:
            variables = self._variables(path, server)
            driver = AgentDriver(
                self.agent,
                self._agent_task(variables),
                config,
                session,
                self.agent_record,
                variables,
                hopeless=self._hopeless,
                renew=self._renew,
            )
            reason, message = driver.play()
            message = self.agent_record.redacted(message)
            # A Submission that was charged is evaluated to its end, whoever waits for it.
            session.close(timeout=_evaluation_bound(config))
        if session.broken is not None:  # found out after the agent had ended
            reason, message = TerminalReason.HOST_FAILURE, str(session.broken)
        candidates = None if session.candidates is None else list(session.candidates)
        self.agent_record.event(
            "search_ended", reason=reason.value, message=message, candidates=candidates
        )
        return reason, message, session

    def _variables(self, path: Path, server: SessionServer) -> dict[str, str]:
        """Return what leads the agent to its session."""
        variables = {SESSION_VARIABLE: str(path), WORKSPACE_VARIABLE: str(self.record.workspace)}
        if server.url is not None and server.token is not None:
            variables |= {URL_VARIABLE: server.url, TOKEN_VARIABLE: server.token}
        if len(self.task.encode()) <= _MAX_TASK_VARIABLE_BYTES:
            variables[TASK_VARIABLE] = self.task
        return variables

    def _agent_task(self, variables: dict[str, str]) -> AgentTask:
        names = (SESSION_VARIABLE, WORKSPACE_VARIABLE)
        return AgentTask(
            workspace=self.record.workspace,
            state=self.state,
            task=self.task,
            seed=derive_seed(self.config.seed, "agent"),
            max_turns=self.config.max_turns,
            mcp=McpServer(
                sys.executable,
                ["-P", "-m", "evopolicygym.run.client", "mcp"],
                {name: variables[name] for name in names},
            ),
        )

    def _hopeless(self) -> bool:
        return self.faulted >= _HOPELESS_FAULTS and self.played == self.faulted

    def _create_workspace(self) -> None:
        create_workspace(self.record.workspace, self.program, self.task, self.skills)

    def _renew(self) -> None:
        """Lay everything out again: an attempt learns nothing from the one before."""
        shutil.rmtree(self.state)
        self.state.mkdir(mode=0o700)
        self._create_workspace()

    def _measure(self, reason: TerminalReason, message: str | None, session: Session) -> RunResult:
        """Validation and Assessment of whatever was handed over."""
        handed_over = session.candidates
        by: HandedOverBy | None = HandedOverBy.AGENT
        if handed_over is None and not DISPOSITIONS[reason].grade:
            handed_over, by = (), None
            message = f"{message or reason.value}; unscored: this Run is no data"
        elif handed_over is None:
            handed_over = host_candidates(
                session.submissions, self.spec, most=self.config.max_candidates
            )
            by = HandedOverBy.HOST if handed_over else None
            if not handed_over:
                message = f"{message or 'the agent handed over nothing'}; nothing was published"
        measurement = Measurement(
            self.spec,
            self.config,
            self.private,
            self.evaluator,
            self.record,
            self._episode_ended,
        )
        validation, selected = measurement.validate(handed_over, self.published)
        final = None if selected is None else self.published[selected]
        assessment = measurement.assess(final)
        self._write_end(reason, message, by, handed_over, final, validation, assessment)
        return RunResult(
            terminal_reason=reason,
            submissions=tuple(self.published.values()),
            candidate_submission_ids=handed_over,
            handed_over_by=by,
            final_submission=final,
            validation=validation,
            assessment=assessment,
            episodes_used=self.ledger.used,
            record=self.record.root,
            message=message,
        )

    # --------------------------------------------------------------------- playing

    def _evaluate_submission(self, submission: Submission) -> Evaluated:
        """Play one Submission; runs in the session's thread."""
        name = submission.submission_id
        self.record.event("submission_started", submission=name, selector=submission.selector)
        staged = self.record.staging / name
        shutil.rmtree(staged, ignore_errors=True)
        result = self.evaluator.evaluate(
            submission.program,
            [(index, self.pool[index]) for index in submission.episode_indices],
            directory=staged / "episodes",
            on_outcome=lambda outcome: self._episode_ended(name, outcome),
        )
        refunded = tuple(o.index for o in result.outcomes if o.fault is not None)
        self.played += len(result.outcomes)
        self.faulted += len(refunded)

        def make_visible(settled: Submission, used: int, remaining: int) -> str | None:
            write_feedback(
                staged,
                self.spec,
                settled,
                result,
                episodes_used=used,
                episodes_remaining=remaining,
            )
            self.record.write_submission(settled, result, self.config.split, self.pool)
            master = publish(staged, self.record.submissions, name)
            self.published[name] = PublishedSubmission(
                name,
                settled.episode_indices,
                result.program_digest,
                result.feedback,
                settled.program,
            )
            self.record.event(
                "submission_published",
                submission=name,
                score=settled.score,
                episodes_used=used,
                episodes_remaining=remaining,
            )
            return show(master, self.record.workspace / "feedback", name)

        return Evaluated(result.score, refunded, make_visible)

    def _episode_ended(self, where: str, outcome: EpisodeOutcome) -> None:
        self.record.event(
            "episode_ended",
            where=where,
            index=outcome.index,
            steps=outcome.steps,
            total_reward=outcome.total_reward,
            failure=None if outcome.failure is None else outcome.failure.code.value,
            environment_error=outcome.fault,
        )

    # --------------------------------------------------------------------- run.json

    def _write_start(self) -> None:
        self.record.write_run(
            status="running",
            ended=None,
            versions=versions(),
            benchmark_id=self.spec.id,
            environment_digest=self.spec.environment_digest,
            spec=public_spec(self.spec),
            data=self.data_digests,
            initial_program_digest=self.program.digest,
            config=dataclasses.asdict(self.config),
            execution={"kind": self.execution.kind, **dataclasses.asdict(self.execution)},
            skills=[{"name": skill.name, "digest": skill.digest} for skill in self.skills],
            agent=None,
            terminal_reason=None,
            counts=None,
            message=None,
            handed_over_by=None,
            submissions=[],
            candidates=[],
            selected=None,
            episodes_used=0,
            validation_score=None,
            assessment_score=None,
        )

    def _write_end(
        self,
        reason: TerminalReason,
        message: str | None,
        by: HandedOverBy | None,
        candidates: Sequence[str],
        final: PublishedSubmission | None,
        validation: ValidationResult | None,
        assessment: EvaluationResult | None,
    ) -> None:
        name = None if final is None else final.submission_id
        report = self.agent_record.report()
        incomplete = self.config.assessment is not None and (
            assessment is None or assessment.score is None
        )
        status = "failed" if final is None or incomplete else "done"
        self.record.write_run(
            status=status,
            ended=now(),
            agent=None if report is None else report.model_dump(mode="json"),
            terminal_reason=reason.value,
            counts=DISPOSITIONS[reason].count,
            message=message,
            handed_over_by=None if by is None else by.value,
            submissions=list(self.published),
            candidates=list(candidates),
            selected=name,
            episodes_used=self.ledger.used,
            validation_score=(
                validation.scores[name] if validation is not None and name is not None else None
            ),
            assessment_score=None if assessment is None else assessment.score,
        )
        self.record.event("run_ended", status=status, reason=reason.value, selected=name)


def _evaluation_bound(config: RunConfig) -> float:
    """Longest time that an evaluation which was started may still take, seconds."""
    return 600.0 + 2 * config.episode_budget * (config.episode_timeout_seconds + 120.0)
