"""`episodes.json` of every Evaluation: rows, scores, and where the Episodes come from."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

from evopolicygym.analysis.check.documents import Documents
from evopolicygym.analysis.check.finding import FindingCode, Findings
from evopolicygym.benchmark import Benchmark, BenchmarkSpec, Episode
from evopolicygym.envs import load
from evopolicygym.errors import BenchmarkError, ConfigurationError
from evopolicygym.run.config import RunConfig
from evopolicygym.run.measurement import private_plans, training_pool
from evopolicygym.run.models import EpisodeEntry, EpisodesFile

__all__ = ["Plans", "check_evaluations", "check_plans", "load_benchmark", "planned"]

Plans = Mapping[str, Sequence[Episode]]
"""The Episodes of `submissions`, `validation` and `assessment`, by purpose."""

_MEAN_RETURN = "mean_return"


# ----------------------------------------------------------------------------- one Evaluation


def check_evaluations(documents: Documents) -> None:
    """Check every `episodes.json` against the rules and the file that it belongs to."""
    config, spec, findings = documents.config, documents.spec, documents.findings
    for place, document in documents.episodes.items():
        purpose, _, name = place.partition("/")
        file = f"{place}/episodes.json"
        submission = documents.submissions.get(name)
        if submission is not None:
            digest = submission.program_digest
            findings.expect(
                FindingCode.DIGEST, file, "$.program_digest", document.program_digest, digest
            )
        if purpose == "submissions":
            split = None if config is None else config.split
            expected = None if submission is None else submission.episode_indices
        else:
            split, expected = _private_shape(config, purpose)
        if split is not None:
            findings.expect(FindingCode.PLAN, file, "$.split", document.split, split)
        indices = [row.index for row in document.episodes]
        if expected is not None and indices != expected:
            message = f"has the indices {indices}, expected {expected}"
            findings.add(FindingCode.EPISODES, file, message)
        for row in document.episodes:
            for problem in _row_problems(row, spec):
                findings.add(FindingCode.EPISODES, file, f"Episode {row.index}: {problem}")
        _check_score(findings, file, document, spec)
        if purpose == "submissions" and submission is not None:
            findings.expect(FindingCode.SCORE, file, "$.score", document.score, submission.score)
            faults = [row.index for row in document.episodes if row.environment_error is not None]
            if faults != submission.refunded_indices:
                message = (
                    f"{faults} met an environment error, but refunded_indices of submission.json "
                    f"is {submission.refunded_indices}"
                )
                findings.add(FindingCode.LEDGER, file, message)
    for place, measurement in documents.measurements.items():
        split, expected = _private_shape(config, place.partition("/")[0])
        if split is not None and expected is not None:
            findings.expect(FindingCode.PLAN, place, "$.split", measurement.split, split)
            findings.expect(
                FindingCode.PLAN, place, "$.episodes", measurement.episodes, len(expected)
            )


def _private_shape(config: RunConfig | None, purpose: str) -> tuple[str | None, list[int] | None]:
    """Return split and indices of Validation or Assessment, as far as they are known."""
    if config is None:
        return None, None
    if purpose == "validation" and config.validation is not None:
        return config.validation.split, list(range(config.validation.episodes_per_candidate))
    if purpose == "assessment" and config.assessment is not None:
        return config.assessment.split, list(range(config.assessment.episodes))
    return None, None


def _row_problems(row: EpisodeEntry, spec: BenchmarkSpec | None) -> list[str]:
    """Return what is wrong with one Episode, by the rules of `execution/episode.py`."""
    if row.environment_error is not None:
        counted = row.score_return is not None or row.failure is not None or row.steps
        return ["met an environment error and counts all the same"] if counted else []
    problems = []
    if not 1 <= row.attempts <= 2:
        problems.append(f"{row.attempts} attempts, expected 1 or 2")
    if not re.fullmatch(r"[0-9a-f]{64}", row.trajectory_hash):
        problems.append(f"trajectory_hash is {row.trajectory_hash!r}, expected SHA-256")
    ended = row.terminated or row.truncated
    if ended == (row.failure is not None):
        problems.append("expected either an end or a failure")
    if row.failure is not None and row.failure.step != row.steps:
        problems.append(f"failed after {row.failure.step} steps, but has {row.steps}")
    if spec is None:
        return problems
    limit = spec.max_episode_steps
    if row.steps > limit or (row.steps < 1 and row.failure is None):
        problems.append(f"{row.steps} steps, expected 1 to {limit}")
    if row.steps == limit and not ended:
        problems.append(f"neither terminated nor truncated after {limit} steps")
    counts = row.total_reward if row.failure is None else spec.failed_return(row.total_reward)
    if row.score_return != counts:
        problems.append(f"score_return is {row.score_return}, expected {counts}")
    return problems


def _check_score(
    findings: Findings, file: str, document: EpisodesFile, spec: BenchmarkSpec | None
) -> None:
    """Check that the score is the mean; of other metrics, only that there is one."""
    returns = [row.score_return for row in document.episodes if row.score_return is not None]
    score = document.score
    if not returns:
        findings.expect(FindingCode.SCORE, file, "$.score", score, None)
    elif spec is not None and spec.primary_metric == _MEAN_RETURN:
        mean = math.fsum(returns) / len(returns)
        # Another Benchmark's mean may have been summed up in another order.
        if score is None or not math.isclose(score, mean, rel_tol=1e-9, abs_tol=1e-12):
            message = f"$.score is {score}, the mean of {len(returns)} Episodes is {mean}"
            findings.add(FindingCode.SCORE, file, message)


# -------------------------------------------------------------------------------- the Episodes


def load_benchmark(documents: Documents) -> Benchmark | None:
    """Return the Run's Benchmark, or None where this installation has another one or none."""
    if documents.run is None or documents.spec is None:
        return None
    try:
        benchmark = load(documents.run.benchmark_id)
        known = benchmark.spec.environment_digest == documents.run.environment_digest
    except (ConfigurationError, BenchmarkError):
        return None
    return benchmark if known else None


def planned(documents: Documents, benchmark: Benchmark | None) -> Plans:
    """Return the Run's plans; empty where they can't be made again.

    Data splits are not part of a record: a Run that took its Episodes from them has only their
    digests.
    """
    run, config = documents.run, documents.config
    if benchmark is None or config is None or run is None or run.data is not None:
        return {}
    try:
        private = private_plans(benchmark, config)
        return {"submissions": training_pool(benchmark, config), **private}
    except (ConfigurationError, BenchmarkError) as error:
        documents.findings.add(
            FindingCode.PLAN, "run.json", f"its Episodes can't be planned again: {error}"
        )
        return {}


def check_plans(documents: Documents, plans: Plans) -> None:
    """Check that Episodes follow from the seed, stay the same, and are not shared."""
    owners: dict[tuple[int, str], str] = {}
    first: dict[tuple[str, int], tuple[EpisodeEntry, str]] = {}
    for place, document in documents.episodes.items():
        purpose, file = place.partition("/")[0], f"{place}/episodes.json"
        plan = plans.get(purpose, ())
        for row in document.episodes:
            before, where = first.setdefault((purpose, row.index), (row, file))
            if _episode(before) != _episode(row):
                message = f"Episode {row.index} is not the one of {where}"
                documents.findings.add(FindingCode.PLAN, file, message)
            elif row.index < len(plan) and not _agrees(plan[row.index], row):
                message = f"Episode {row.index} does not follow from the Run's seed"
                documents.findings.add(FindingCode.PLAN, file, message)
            owner = owners.setdefault(_identity(row), purpose)
            if owner != purpose:
                message = f"Episode {row.index} is an Episode of {owner}, too"
                documents.findings.add(FindingCode.OVERLAP, file, message)


def _identity(row: EpisodeEntry) -> tuple[int, str]:
    # Scenarios alone may tell Episodes apart.
    return row.environment_seed, json.dumps(row.scenario, sort_keys=True)


def _episode(row: EpisodeEntry) -> Episode:
    return Episode(row.environment_seed, row.policy_seed, row.scenario)


def _agrees(expected: Episode, row: EpisodeEntry) -> bool:
    # A Benchmark that plans no scenario plays none.
    scenario = row.scenario if expected.scenario else expected.scenario
    return expected == Episode(row.environment_seed, row.policy_seed, scenario)
