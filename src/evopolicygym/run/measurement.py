"""What the Host plays privately: Validation of the candidates, Assessment of the selected one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from evopolicygym.benchmark import Benchmark, BenchmarkSpec, Episode
from evopolicygym.evaluation import EvaluationResult, Evaluator, plan
from evopolicygym.execution.episode import EpisodeOutcome
from evopolicygym.program import Program
from evopolicygym.run.config import RunConfig
from evopolicygym.run.record import RunRecord
from evopolicygym.run.result import PublishedSubmission, ValidationResult
from evopolicygym.run.selection import select

__all__ = ["Measurement", "derive_seed", "private_plans", "training_pool"]


def derive_seed(seed: int, domain: str) -> int:
    """Derive the seed of one purpose from a Run's seed; domains never meet.

    Args:
        seed: The Run's seed.
        domain: `pool`, `validation`, `assessment` or `agent`.

    Returns:
        63 bits of SHA-256.
    """
    digest = hashlib.sha256(f"evopolicygym.seed/{domain}/{seed}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def training_pool(benchmark: Benchmark, config: RunConfig) -> tuple[Episode, ...]:
    """Return the fixed training pool of a Run."""
    seed = derive_seed(config.seed, "pool")
    return plan(benchmark, config.split, seed=seed, count=config.pool_size)


def private_plans(benchmark: Benchmark, config: RunConfig) -> dict[str, tuple[Episode, ...]]:
    """Plan Validation and Assessment up front: bad plans must show before anything is spent."""
    plans: dict[str, tuple[Episode, ...]] = {}
    if config.validation is not None:
        plans["validation"] = plan(
            benchmark,
            config.validation.split,
            seed=derive_seed(config.seed, "validation"),
            count=config.validation.episodes_per_candidate,
        )
    if config.assessment is not None:
        plans["assessment"] = plan(
            benchmark,
            config.assessment.split,
            seed=derive_seed(config.seed, "assessment"),
            count=config.assessment.episodes,
        )
    return plans


class Measurement:
    """Validates and assesses captured Programs.

    Args:
        spec: The Benchmark's public spec.
        config: The Run's limits.
        plans: The private Episodes, from `private_plans`.
        evaluator: Plays.
        record: Where it is written.
        on_outcome: Gets the purpose and every Episode as it ends.
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        config: RunConfig,
        plans: Mapping[str, Sequence[Episode]],
        evaluator: Evaluator,
        record: RunRecord,
        on_outcome: Callable[[str, EpisodeOutcome], None],
    ) -> None:
        self._spec = spec
        self._config = config
        self._plans = plans
        self._evaluator = evaluator
        self._record = record
        self._on_outcome = on_outcome

    def validate(
        self, candidates: Sequence[str], published: Mapping[str, PublishedSubmission]
    ) -> tuple[ValidationResult | None, str | None]:
        """Play all candidates on the same Episodes; return how, and which one is selected."""
        config = self._config.validation
        if config is None or not candidates:
            return None, candidates[0] if candidates else None
        self._record.event("validation_started", candidates=list(candidates))
        results = {
            name: self._evaluate(published[name].program, "validation", config.split, name)
            for name in candidates
        }
        scores = {name: result.score for name, result in results.items()}
        selected = select(candidates, scores, self._spec)
        self._record.write_measurement(
            self._record.root / "validation" / "selection.json",
            config.split,
            config.episodes_per_candidate,
            scores,
            selected,
        )
        self._record.event("validation_ended", scores=scores, selected=selected)
        return ValidationResult(scores, results), selected

    def assess(self, final: PublishedSubmission | None) -> EvaluationResult | None:
        """Play the selected Program on held-out Episodes, if that is asked for."""
        config = self._config.assessment
        if config is None or final is None:
            return None
        name = final.submission_id
        self._record.event("assessment_started", submission=name)
        result = self._evaluate(final.program, "assessment", config.split, name)
        self._record.write_measurement(
            self._record.root / "assessment" / "assessment.json",
            config.split,
            config.episodes,
            {name: result.score},
            name,
        )
        self._record.event("assessment_ended", submission=name, score=result.score)
        return result

    def _evaluate(self, program: Program, purpose: str, split: str, name: str) -> EvaluationResult:
        episodes = self._plans[purpose]
        result = self._evaluator.evaluate(
            program,
            list(enumerate(episodes)),
            on_outcome=lambda outcome: self._on_outcome(purpose, outcome),
        )
        path = self._record.root / purpose / name / "episodes.json"
        self._record.write_episodes(path, result, split, episodes)
        return result
