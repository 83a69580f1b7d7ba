"""One Run as a row: what it reached, what it used, and why it has no score."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from evopolicygym.analysis.comparable import entry_of, environment_of
from evopolicygym.analysis.records import Record, path_text
from evopolicygym.analysis.scores import Reference, final_score, reference
from evopolicygym.analysis.table_models import RunRow

__all__ = ["PlayedRun", "played_run"]


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A Run with what the table knows on top of its record.

    Attributes:
        record: The record.
        row: The row.
        reference: The anchors that its final score is made with.
        empty_handed: It counts, but the agent handed over nothing that could be measured.
    """

    record: Record
    row: RunRow
    reference: Reference
    empty_handed: bool


def played_run(record: Record) -> PlayedRun:
    """Return the row of a Run."""
    run, agent = record.run, record.run.agent
    against = reference(
        environment_of(record),
        max_episode_steps=record.spec.max_episode_steps,
        primary_metric=record.spec.primary_metric,
        direction=record.spec.score_direction,
    )
    unscored = _unscored(record)
    heldout = None if unscored else run.assessment_score
    final = None
    if heldout is not None and against.random is not None and against.expert is not None:
        final = final_score(heldout, random=against.random, expert=against.expert)
    row = RunRow(
        record=path_text(record.path),
        entry=entry_of(record),
        environment=environment_of(record),
        seed=record.config.seed,
        scored=unscored is None,
        unscored_reason=unscored,
        status=run.status,
        terminal_reason=run.terminal_reason,
        counts=run.counts,
        message=run.message,
        heldout=heldout,
        heldout_episodes=None if unscored else record.heldout_episodes,
        final_score=final,
        no_final_score=None if final is not None else unscored or against.no_expert,
        episodes_used=run.episodes_used,
        submissions=len(run.submissions),
        wall_seconds=_wall_seconds(run.started, run.ended),
        tokens=None if agent is None else agent.tokens,
        tokens_complete=agent is not None and agent.tokens_complete,
        cost_usd=None if agent is None else agent.cost_usd,
        estimated_cost_usd=None if agent is None else agent.estimated_cost_usd,
    )
    empty = bool(run.counts) and run.selected is None and record.config.assessment is not None
    return PlayedRun(record, row, against, empty)


def _unscored(record: Record) -> str | None:
    """Return why a Run is not scored, or None if it is."""
    run = record.run
    if run.status == "running":
        return "it has not ended, or was killed"
    if not run.counts:
        return f"it does not count: {run.terminal_reason or 'no reason is known'}"
    if run.agent is None:
        return "no agent was started"
    if record.config.assessment is None:
        return "it was made without Assessment"
    if run.selected is None:
        return f"nothing was selected; the search ended with {run.terminal_reason}"
    if run.assessment_score is None or not record.heldout_episodes:
        return "no held-out Episode could be measured"
    return None


def _wall_seconds(started: str, ended: str | None) -> float | None:
    try:
        took = datetime.fromisoformat(ended or "") - datetime.fromisoformat(started)
    except (ValueError, TypeError):  # no time, or one with and one without a zone
        return None
    return took.total_seconds()
