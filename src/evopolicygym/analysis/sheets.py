"""What people read of a table: a few tables of text, the same for every format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evopolicygym.analysis.table_models import CellRow, MeanValue, Spread, TableFile, Usage

__all__ = ["Sheet", "caption", "sheets"]

_UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table of text.

    Attributes:
        title: What it shows.
        columns: Names of the columns.
        rows: The cells.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers; those are right-aligned."""
        number = re.compile(rf"{_UNKNOWN}|(≥ )?-?\d.*")
        return [
            all(number.fullmatch(row[place]) for row in self.rows)
            for place in range(len(self.columns))
        ]


def caption(table: TableFile) -> list[str]:
    """Return what every number depends on, a line each."""
    random = "among them uniform-random, from the anchors"
    return [
        f"Ties: {table.ties}, {table.tie_rule}.",
        f"Entries: {table.entry_count}, {random if table.random_entry else 'agents only'}. "
        "An environment's ranks are among the N entries that have a value there.",
        f"Anchors of final scores: {table.anchors}; sources under Environments.",
        "Means are over repeats, with their range; n = 1 is one Run, without a range. "
        f"{_UNKNOWN} is unknown, not 0.",
        *table.notes,
    ]


def sheets(table: TableFile) -> list[Sheet]:
    """Return the tables that people read, less those without a row."""
    cells = {(cell.environment, cell.entry): cell for cell in table.cells}

    def matrix(title: str, shown: Callable[[CellRow], str]) -> Sheet:
        """Environments down, entries across: there are more of the former."""
        return Sheet(
            title,
            ["Environment", *(row.entry for row in table.entries)],
            [
                [one.environment, *(shown(cells[one.environment, e.entry]) for e in table.entries)]
                for one in table.environments
            ],
        )

    shown = [
        _ranking(table),
        matrix("Held-out mean", lambda cell: _spread(cell.heldout, _figure)),
        matrix(
            "Final score, 0 is random and 100 the expert",
            lambda cell: _spread(cell.final_score, _tenth),
        ),
        matrix("Rank score", lambda cell: _number(cell.rank_score, _thousandth)),
        _usage(table),
        _environments(table),
        _reasons(table),
        _unscored(table),
        Sheet("Left out", ["Directory", "Why"], [[o.record, o.reason] for o in table.left_out]),
    ]
    return [sheet for sheet in shown if sheet.rows]


def _ranking(table: TableFile) -> Sheet:
    families = list(table.entries[0].family_rank_scores) if table.entries else []
    return Sheet(
        "Ranking: mean rank score over environments",
        ["Entry", "Rank score", "Over", *families, "Final score", "Over"],
        [
            [
                row.entry,
                _number(row.rank_score.value, _thousandth),
                _over(row.rank_score),
                *(_family(row.family_rank_scores[name]) for name in families),
                _number(row.final_score.value, _tenth),
                _over(row.final_score),
            ]
            for row in table.entries
        ],
    )


def _over(score: MeanValue) -> str:
    return f"{score.environments} of {score.of}"


def _family(score: MeanValue) -> str:
    """Return a family's score; of a part of its environments it says so."""
    shown = _number(score.value, _thousandth)
    return shown if score.environments in (0, score.of) else f"{shown} ({_over(score)})"


def _usage(table: TableFile) -> Sheet:
    return Sheet(
        "What it took, mean a scored Run",
        [
            "Environment",
            "Entry",
            "Runs",
            "Unscored",
            "Held-out Episodes",
            "Episodes used",
            "Submissions",
            "Wall time, s",
            "Tokens",
            "Cost, USD",
        ],
        [
            [
                cell.environment,
                cell.entry,
                str(cell.repeats),
                str(cell.unscored),
                _range(cell.heldout_episodes),
                *_used(cell.usage),
            ]
            for cell in table.cells
            if cell.repeats or cell.unscored
        ],
    )


def _used(usage: Usage | None) -> list[str]:
    if usage is None:
        return [_UNKNOWN] * 5
    least = "" if usage.tokens_complete else "≥ "
    cost = _number(usage.cost_usd, lambda value: f"{value:.2f}")
    if usage.cost_usd is None and usage.estimated_cost_usd is not None:
        cost = f"{usage.estimated_cost_usd:.2f} (estimated)"
    return [
        _number(usage.episodes_used, _short),
        _number(usage.submissions, _short),
        _number(usage.wall_seconds, lambda value: f"{value:.0f}"),
        _UNKNOWN if usage.tokens is None else f"{least}{usage.tokens:.0f}",
        cost,
    ]


def _environments(table: TableFile) -> Sheet:
    return Sheet(
        "Environments",
        [
            "Environment",
            "Family",
            "Better",
            "Budget",
            "Validation",
            "Held-out",
            "N",
            "Random",
            "Source of random",
            "Expert",
            "Source of expert",
        ],
        [
            [
                one.environment,
                one.family or _UNKNOWN,
                "larger" if one.score_direction == "maximize" else "smaller",
                *_sizes(one.settings),
                str(one.ranked_entries),
                _number(one.random.value if one.random else None, _figure),
                one.random.source if one.random else one.no_random or _UNKNOWN,
                _number(one.expert.value if one.expert else None, _figure),
                one.expert.source if one.expert else one.no_expert or _UNKNOWN,
            ]
            for one in table.environments
        ],
    )


def _sizes(settings: Mapping[str, Any] | None) -> list[str]:
    if settings is None:
        return ["mixed"] * 3
    names = ("episode_budget", "validation.episodes_per_candidate", "assessment.episodes")
    return [str(settings.get(name, _UNKNOWN)) for name in names]


def _reasons(table: TableFile) -> Sheet:
    entries: dict[tuple[str, str, str], list[str]] = {}
    for cell in table.cells:
        reasons = (cell.no_final_score or "", cell.no_rank_score or "")
        if any(reasons):
            entries.setdefault((cell.environment, *reasons), []).append(cell.entry)
    return Sheet(
        "Why there is no number",
        ["Environment", "Final score", "Rank score", "Entries"],
        [[*reasons, ", ".join(names)] for reasons, names in entries.items()],
    )


def _unscored(table: TableFile) -> Sheet:
    return Sheet(
        "Unscored Runs: missing data, not 0",
        ["Environment", "Entry", "Terminal reason", "Why", "Message", "Record"],
        [
            [
                run.environment,
                run.entry or _UNKNOWN,
                run.terminal_reason or _UNKNOWN,
                run.unscored_reason or "",
                run.message or _UNKNOWN,
                run.record,
            ]
            for run in table.runs
            if not run.scored
        ],
    )


# ------------------------------------------------------------------------------------ numbers


def _number(value: float | None, shown: Callable[[float], str]) -> str:
    return _UNKNOWN if value is None else shown(value)


def _spread(spread: Spread | None, shown: Callable[[float], str]) -> str:
    if spread is None:
        return _UNKNOWN
    if spread.n == 1:
        return f"{shown(spread.mean)} (n = 1)"
    return f"{shown(spread.mean)} [{shown(spread.min)}, {shown(spread.max)}] (n = {spread.n})"


def _figure(value: float) -> str:
    """Return a mean return: they range from 0.9 to thousands."""
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:.{digits}f}" if abs(value) < 1e7 else f"{value:.4g}"


def _tenth(value: float) -> str:
    return f"{value:.1f}"


def _thousandth(value: float) -> str:
    return f"{value:.3f}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _range(values: Sequence[int]) -> str:
    if not values:
        return _UNKNOWN
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
