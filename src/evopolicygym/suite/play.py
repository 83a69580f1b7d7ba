"""From the settings of one Run to the Run: what `run` and each cell of a suite have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from evopolicygym.agents.catalog import create
from evopolicygym.benchmark import Benchmark
from evopolicygym.data import SplitBenchmark, read_splits
from evopolicygym.envs import load
from evopolicygym.envs.starter import starter_program
from evopolicygym.errors import ConfigurationError
from evopolicygym.execution import ProcessExecution
from evopolicygym.program import Program
from evopolicygym.run.agent import Agent
from evopolicygym.run.config import AssessmentConfig, RunConfig, ValidationConfig
from evopolicygym.run.loop import run
from evopolicygym.run.prices import PriceTable
from evopolicygym.run.result import RunEvent, RunResult
from evopolicygym.skills import AgentSkill
from evopolicygym.suite.config import AgentSection, RunSection, ServerSection

__all__ = ["Prepared", "prepared", "run_config"]

VALID_SIZE, CANDIDATES, FINAL_SIZE = 16, 3, 32
"""Episodes of Validation and Assessment, and most candidates, where nothing is said: arXiv
2607.02440 has 16 and 32."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that a Run is called with, checked.

    Attributes:
        benchmark: What is played.
        program: Where the agent starts.
        agent: Who plays.
        execution: How policies run.
        config: Limits.
        skills: What the agent finds in its workspace.
        prices: To estimate costs with, or None.
        label: What tables call the agent, or None.
    """

    benchmark: Benchmark
    program: Program
    agent: Agent
    execution: ProcessExecution
    config: RunConfig
    skills: tuple[AgentSkill, ...]
    prices: PriceTable | None
    label: str | None

    def play(
        self, record_to: Path, observer: Callable[[RunEvent], None] | None = None
    ) -> RunResult:
        """Play it; see `evopolicygym.run.run`."""
        return run(
            self.program,
            self.benchmark,
            agent=self.agent,
            execution=self.execution,
            record_to=record_to,
            config=self.config,
            skills=self.skills,
            prices=self.prices,
            label=self.label,
            observer=observer,
        )


def run_config(settings: RunSection, agent: AgentSection, server: ServerSection) -> RunConfig:
    """Return the limits of a Run.

    Raises:
        ConfigurationError: A value is out of range, or two contradict each other.
    """
    if settings.budget is None:
        raise ConfigurationError("$.episode_budget is missing: say how many Episodes may be used")
    given = {
        "max_submissions": settings.max_submissions,
        "episode_pool_size": settings.pool,
        "min_episodes_per_submission": settings.minimum,
        "max_episodes_per_submission": settings.maximum,
        "seed": settings.seed,
        "episode_timeout_seconds": settings.timeout,
        "agent_timeout_seconds": settings.agent_timeout,
        "max_turns": settings.max_turns,
        "agent_retries": agent.retries,
        "agent_retry_backoff_seconds": agent.retry_backoff,
        "jobs": settings.jobs,
    }
    valid_size = VALID_SIZE if settings.valid_size is None else settings.valid_size
    final_size = FINAL_SIZE if settings.final_size is None else settings.final_size
    candidates = CANDIDATES if settings.candidates is None else settings.candidates
    # Zero asks for none of it; what is below is refused where it is used.
    validation = ValidationConfig(valid_size, max_candidates=candidates) if valid_size else None
    limits: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return RunConfig(
        episode_budget=settings.budget,
        validation=validation,
        assessment=AssessmentConfig(final_size) if final_size else None,
        bind=server.bind,
        port=server.port,
        **limits,
    )


def prepared(
    settings: RunSection, agent: AgentSection, server: ServerSection, *, where: str = ""
) -> Prepared:
    """Load, read and check what a Run needs; nothing is written.

    Args:
        settings: Of `[run]`, with an environment.
        agent: Of `[agent]`.
        server: Of `[server]`.
        where: Table of a file that the settings come from, e.g. `$.run[2]`; for messages.

    Raises:
        ConfigurationError: Something can't be used; says what and where.
    """
    if settings.env is None:
        raise ConfigurationError(f"{where or '$.run'}.env is missing: a Benchmark id")
    config = _located(lambda: run_config(settings, agent, server), where)
    provider = create(
        agent.kind,
        model=settings.model if agent.model is None else agent.model,
        options=agent.options,
        argv=agent.args or (),
    )
    provider.check()
    if settings.execution not in (None, "unsafe"):
        place = f"{where}.execution" if where else "--execution"
        raise ConfigurationError(f"{place} is {settings.execution!r}, expected unsafe")
    benchmark = load(settings.env)
    if settings.data is not None:
        benchmark = SplitBenchmark(benchmark, read_splits(settings.data))
    start = settings.program
    return Prepared(
        benchmark=benchmark,
        program=starter_program(benchmark) if start is None else Program.from_directory(start),
        agent=provider,
        execution=ProcessExecution.unsafe(),
        config=config,
        skills=tuple(AgentSkill.from_directory(skill) for skill in settings.skills or ()),
        prices=None if settings.prices is None else PriceTable.from_file(Path(settings.prices)),
        label=agent.name,
    )


def _located(call: Callable[[], T], where: str) -> T:
    """Call; where a file is concerned, an error names the file's place, not the library's."""
    try:
        return call()
    except ConfigurationError as error:
        text = str(error)
        if not where:
            raise
        for own, key in _KEYS.items():
            text = text.replace(own, f"{where}.{key}")
        raise ConfigurationError(text) from None


_KEYS: Mapping[str, str] = {
    "$.episode_budget": "budget",
    "$.episode_pool_size": "pool",
    "$.max_submissions": "max_submissions",
    "$.min_episodes_per_submission": "minimum",
    "$.max_episodes_per_submission": "maximum",
    "$.validation.episodes_per_candidate": "valid_size",
    "$.validation.max_candidates": "candidates",
    "$.assessment.episodes": "final_size",
    "$.episode_timeout_seconds": "timeout",
    "$.agent_timeout_seconds": "agent_timeout",
    "$.max_turns": "max_turns",
    "$.seed": "seed",
    "$.jobs": "jobs",
}
"""Where the library's own fields come from in a file."""
