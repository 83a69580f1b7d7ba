"""Limits of a Run: the agent's budget, Validation and Assessment."""

from __future__ import annotations

from dataclasses import dataclass

from evopolicygym.errors import ConfigurationError
from evopolicygym.evaluation import positive_integer, positive_seconds, split_name
from evopolicygym.run.loopback import loopback_address

__all__ = ["AssessmentConfig", "RunConfig", "ValidationConfig"]


@dataclass(frozen=True, slots=True)
class ValidationConfig:
    """Host-only selection among the handed-over candidates.

    Attributes:
        episodes_per_candidate: Private Episodes, the same for every candidate.
        split: Data split of the Benchmark.
        max_candidates: Most candidates that may be handed over.
    """

    episodes_per_candidate: int
    split: str = "validation"
    max_candidates: int = 3

    def __post_init__(self) -> None:
        positive_integer("$.validation.episodes_per_candidate", self.episodes_per_candidate)
        split_name("$.validation.split", self.split)
        positive_integer("$.validation.max_candidates", self.max_candidates, most=1_000)


@dataclass(frozen=True, slots=True)
class AssessmentConfig:
    """Host-only measurement of the selected Program on held-out Episodes.

    Attributes:
        episodes: Held-out Episodes.
        split: Data split of the Benchmark.
    """

    episodes: int
    split: str = "test"

    def __post_init__(self) -> None:
        positive_integer("$.assessment.episodes", self.episodes)
        split_name("$.assessment.split", self.split)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that bounds a Run.

    Attributes:
        split: Data split that the agent's training Episodes come from.
        max_submissions: Most accepted Submissions.
        episode_budget: Episodes that all Submissions together may use.
        episode_pool_size: Size of the fixed training pool; None for `episode_budget`.
        min_episodes_per_submission: Fewest Episodes of one Submission.
        max_episodes_per_submission: Most Episodes of one Submission, or None.
        seed: Seed that pool, Validation and Assessment are derived from, in separate domains.
        episode_timeout_seconds: Policy time of one Episode, seconds.
        agent_timeout_seconds: Wall time of the agent over all its turns, seconds. Waiting before
            a retry does not count.
        max_turns: Most prompts. An agent that stops without `finish` while budget remains is
            asked to go on, in the same session.
        agent_retries: How often an agent is tried again that was stopped by its model's provider.
        agent_retry_backoff_seconds: Wait before the first retry; it doubles up to ten minutes.
        bind: Loopback address for the session over TCP as well, or None.
        port: Its port; 0 picks a free one.
        validation: How to select among candidates; None lets the agent hand over exactly one.
        assessment: How to measure the selected Program; None to skip that.
        jobs: Worker processes, or None for one a core; never changes a score.

    Raises:
        ConfigurationError: A value is out of range, or two contradict each other.
    """

    split: str = "train"
    max_submissions: int = 20
    episode_budget: int = 1_000
    episode_pool_size: int | None = None
    min_episodes_per_submission: int = 1
    max_episodes_per_submission: int | None = None
    seed: int = 0
    episode_timeout_seconds: float = 30.0
    agent_timeout_seconds: float = 3_600.0
    max_turns: int = 1
    agent_retries: int = 3
    agent_retry_backoff_seconds: float = 15.0
    bind: str | None = None
    port: int = 0
    validation: ValidationConfig | None = None
    assessment: AssessmentConfig | None = None
    jobs: int | None = None

    def __post_init__(self) -> None:
        split_name("$.split", self.split)
        positive_integer("$.max_submissions", self.max_submissions)
        positive_integer("$.episode_budget", self.episode_budget)
        if self.episode_pool_size is not None:
            positive_integer("$.episode_pool_size", self.episode_pool_size)
        least = positive_integer("$.min_episodes_per_submission", self.min_episodes_per_submission)
        most = self.max_episodes_per_submission
        if most is not None:
            positive_integer("$.max_episodes_per_submission", most)
            if most < least:
                raise ConfigurationError(
                    f"$.max_episodes_per_submission is {most}, expected at least "
                    f"$.min_episodes_per_submission, which is {least}"
                )
        for name, bound in (
            ("episode_budget", self.episode_budget),
            ("episode_pool_size", self.pool_size),
        ):
            if least > bound:
                raise ConfigurationError(
                    f"$.min_episodes_per_submission is {least}, but $.{name} is {bound}: "
                    "no Submission could ever be made"
                )
        positive_integer("$.seed", self.seed, least=0, most=2**63 - 1)
        positive_seconds("$.episode_timeout_seconds", self.episode_timeout_seconds)
        positive_seconds("$.agent_timeout_seconds", self.agent_timeout_seconds)
        positive_integer("$.max_turns", self.max_turns, most=10_000)
        positive_integer("$.agent_retries", self.agent_retries, least=0, most=100)
        positive_seconds("$.agent_retry_backoff_seconds", self.agent_retry_backoff_seconds)
        if self.bind is not None:
            try:
                loopback_address(self.bind)
            except ConfigurationError as error:
                raise ConfigurationError(f"$.bind: {error}") from None
        elif self.port != 0:
            raise ConfigurationError(f"$.port is {self.port}, but $.bind is not given")
        positive_integer("$.port", self.port, least=0, most=65_535)
        if self.jobs is not None:
            positive_integer("$.jobs", self.jobs, most=1024)

    @property
    def pool_size(self) -> int:
        """Number of training Episodes in the pool."""
        return self.episode_budget if self.episode_pool_size is None else self.episode_pool_size

    @property
    def max_candidates(self) -> int:
        """Most candidates that may be handed over: 1 without Validation."""
        return 1 if self.validation is None else self.validation.max_candidates
