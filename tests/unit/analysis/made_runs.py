"""Records of Runs that nobody played, written with the models of those that somebody did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evopolicygym.run.files import write_json
from evopolicygym.run.models import EpisodesFile, RunFile
from evopolicygym.strict_json import finite

_DIGEST = "0" * 64
_FIRST = "submission-000001"


def agent(name: str = "codex", model: str | None = None, **changes: Any) -> dict[str, Any]:
    """Return an agent's report."""
    report: dict[str, Any] = {
        "name": name,
        "model": model,
        "model_reported": None,
        "version": "1.0",
        "description": {"options": {"effort": "high"}},
        "exit_status": 0,
        "wall_seconds": 1.5,
        "stopped_by_host": False,
        "no_descendant_survived": True,
        "turns": 1,
        "retries": 0,
        "model_calls": None,
        "tool_calls": 0,
        "tokens": None,
        "tokens_complete": False,
        "cost_usd": None,
        "estimated_cost_usd": None,
        "prices": None,
        "final_message": None,
        "stop_reason": None,
        "error": None,
    }
    return report | changes


def run_document(
    env: str = "gymnasium/Acrobot-v1",
    score: float | None = -100.0,
    *,
    spec: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Return a `run.json`; by default of a Run that counts."""
    facts = {"max_episode_steps": 500, "primary_metric": "mean_return"}
    limits: dict[str, Any] = {"split": "train", "episode_budget": 128, "episode_pool_size": None}
    limits |= {"seed": 0, "jobs": 2, "validation": {"episodes_per_candidate": 16}}
    limits |= {"assessment": {"episodes": 32, "split": "test"}}
    return {
        "status": "done",
        "started": "2026-01-02T03:04:05.000000+00:00",
        "ended": "2026-01-02T03:05:05.500000+00:00",
        "versions": {"python": "3.11"},
        "benchmark_id": env,
        "environment_digest": _DIGEST,
        "spec": {**facts, "score_direction": "maximize", **(spec or {})},
        "data": None,
        "label": None,
        "initial_program_digest": _DIGEST,
        "config": {**limits, **(config or {})},
        "execution": {"kind": "unsafe"},
        "skills": [],
        "agent": agent(),
        "terminal_reason": "finished",
        "counts": True,
        "message": None,
        "handed_over_by": "agent",
        "submissions": [_FIRST],
        "candidates": [_FIRST],
        "selected": _FIRST,
        "episodes_used": 100,
        "validation_score": None,
        "assessment_score": score,
        **changes,
    }


def make_run(
    root: Path, *arguments: Any, episodes: int = 32, faults: int = 0, **changes: Any
) -> Path:
    """Write a record; `episodes` held-out ones were played, `faults` of them in vain."""
    document = RunFile.model_validate(run_document(*arguments, **changes))
    root.mkdir(parents=True)
    write_json(root / "run.json", document.model_dump(mode="json", by_alias=True))
    if document.assessment_score is not None:
        place = root / "assessment" / str(document.selected)
        place.mkdir(parents=True)
        write_json(place / "episodes.json", _episodes(document.assessment_score, episodes, faults))
    return root


def _episodes(score: float, count: int, faults: int) -> dict[str, Any]:
    rows = [
        {
            "index": index,
            "environment_seed": index,
            "policy_seed": index,
            "scenario": {},
            "steps": 10,
            "total_reward": float("inf") if index < faults else score,
            "score_return": None if index < faults else score,
            "terminated": True,
            "truncated": False,
            "failure": None,
            "environment_error": "it raised" if index < faults else None,
            "trajectory_hash": _DIGEST,
            "attempts": 1,
        }
        for index in range(count)
    ]
    document = EpisodesFile.model_validate(
        {"split": "test", "program_digest": _DIGEST, "score": score, "episodes": finite(rows)}
    )
    return document.model_dump(mode="json", by_alias=True)
