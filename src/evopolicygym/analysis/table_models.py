"""The table as plain data: what `evopolicygym table --json` prints."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from evopolicygym.analysis.scores import TieRule
from evopolicygym.run.models import TerminalReason, Tokens
from evopolicygym.run.session_models import Count, Json, Model

__all__ = [
    "AnchorValue",
    "CellRow",
    "EntryRow",
    "EnvironmentRow",
    "MeanValue",
    "RunRow",
    "SkippedRow",
    "Spread",
    "TableFile",
    "Usage",
]


class MeanValue(Model):
    """A mean over environments."""

    value: float | None
    environments: Count = Field(description="environments it is over")
    of: Count = Field(description="environments there are")


class Spread(Model):
    """A mean over repeats; with n = 1 there is no range, and all three are equal."""

    mean: float
    min: float
    max: float
    n: Count


class Usage(Model):
    """Means a scored Run; null where it is not known of every one of them."""

    episodes_used: float
    submissions: float
    wall_seconds: float | None
    tokens: float | None = Field(description="all kinds together")
    tokens_complete: bool = Field(description="if not, `tokens` is a lower bound")
    cost_usd: float | None = Field(description="as the clients report it")
    estimated_cost_usd: float | None = Field(description="by price tables")


class CellRow(Model):
    """One entry in one environment."""

    entry: str
    environment: str
    repeats: Count = Field(description="scored Runs")
    unscored: Count = Field(description="Runs without a score; they are missing data, not 0")
    heldout: Spread | None
    heldout_episodes: list[Count] = Field(description="Episodes behind each repeat's score")
    final_score: Spread | None
    no_final_score: str | None = Field(description="why it is null")
    rank: float | None
    rank_score: float | None
    no_rank_score: str | None = Field(description="why it is null")
    usage: Usage | None


class EntryRow(Model):
    """One row of the ranking."""

    entry: str
    kind: Literal["agent", "anchor"]
    agent: str | None
    model: str | None = Field(description="as it was asked for")
    rank_score: MeanValue
    family_rank_scores: dict[str, MeanValue]
    final_score: MeanValue


class AnchorValue(Model):
    """One anchor and where it comes from."""

    value: float
    source: str


class EnvironmentRow(Model):
    """One environment and what its Runs are measured against."""

    environment: str
    benchmark_ids: list[str]
    family: str | None = Field(description="of Core-16")
    score_direction: Literal["maximize", "minimize"]
    primary_metric: str
    max_episode_steps: Count
    settings: dict[str, Json] | None = Field(description="what all its Runs share, or null: mixed")
    ranked_entries: Count = Field(description="N of the rank score")
    random: AnchorValue | None
    no_random: str | None = Field(description="why it is null")
    expert: AnchorValue | None
    no_expert: str | None = Field(description="why it is null")


class RunRow(Model):
    """One Run."""

    record: str = Field(description="its directory, as it was found")
    entry: str | None
    environment: str
    seed: int
    scored: bool
    unscored_reason: str | None
    status: Literal["running", "done", "failed"]
    terminal_reason: TerminalReason | None
    counts: bool | None
    message: str | None
    heldout: float | None
    heldout_episodes: Count | None
    final_score: float | None
    no_final_score: str | None
    episodes_used: Count
    submissions: Count
    wall_seconds: float | None
    tokens: Tokens | None
    tokens_complete: bool
    cost_usd: float | None
    estimated_cost_usd: float | None


class SkippedRow(Model):
    """A directory that is not part of the table."""

    record: str
    reason: str


class TableFile(Model):
    """Runs side by side."""

    schema_: Literal["evopolicygym.table/1"] = Field(default="evopolicygym.table/1", alias="schema")
    ties: TieRule
    tie_rule: str = Field(description="in words")
    entry_count: Count = Field(description="entries of the ranking, uniform random included")
    random_entry: bool = Field(description="whether uniform random takes part in the ranking")
    anchors: str = Field(description="where random and expert anchors come from")
    mixed: bool = Field(description="whether Runs of different settings were taken together")
    entries: list[EntryRow]
    environments: list[EnvironmentRow]
    cells: list[CellRow]
    runs: list[RunRow]
    left_out: list[SkippedRow]
    notes: list[str]
