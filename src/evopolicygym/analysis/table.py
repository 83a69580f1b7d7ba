"""From records to the table: who reached what in which environment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from evopolicygym import __version__
from evopolicygym.analysis.comparable import check_comparable, settings
from evopolicygym.analysis.played import PlayedRun, played_run
from evopolicygym.analysis.records import LeftOut, Record, path_text
from evopolicygym.analysis.scores import (
    FAMILIES,
    TIE_RULES,
    MeanScore,
    Rank,
    Reference,
    TieRule,
    mean,
    rank_scores,
    score_means,
)
from evopolicygym.analysis.table_models import (
    AnchorValue,
    CellRow,
    EntryRow,
    EnvironmentRow,
    MeanValue,
    RunRow,
    SkippedRow,
    Spread,
    TableFile,
    Usage,
)
from evopolicygym.envs.catalog import CORE_16
from evopolicygym.errors import ConfigurationError

__all__ = ["RANDOM", "make_table"]

RANDOM = "uniform-random"
"""The entry that is made of the catalog's anchors, called as in the paper."""


def make_table(
    records: Sequence[Record],
    left_out: Sequence[LeftOut] = (),
    *,
    ties: TieRule = "best",
    random_entry: bool = True,
    allow_mixed: bool = False,
) -> TableFile:
    """Put Runs side by side.

    A Run is scored if it counts, has ended and has a held-out score. All others are listed with
    the reason; they are missing data, never 0 and never ranked. An entry's value in an environment
    is the mean over its scored Runs there; ranks are among the entries that have one. An entry
    that has none, because its Runs count but handed over nothing, has the last rank.

    Args:
        records: The Runs.
        left_out: Directories to list as not part of it.
        ties: What equal means share in a ranking.
        random_entry: Whether the uniform random policy, as the catalog's anchors have it, is an
            entry.
        allow_mixed: Take Runs of different settings together and note the differences.

    Raises:
        ConfigurationError: Runs are not comparable, or an agent has the name `uniform-random`.
    """
    runs = [played_run(record) for record in records]
    runs.sort(key=lambda one: (_place(one.row.environment), one.row.entry or "", one.row.record))
    if any(one.row.entry == RANDOM for one in runs):
        raise ConfigurationError(f"an agent is called {RANDOM!r}: that is the anchors' own name")
    scored = [one.record for one in runs if one.row.scored]
    differences = check_comparable(scored, allow_mixed=allow_mixed)
    names = list(dict.fromkeys(one.row.environment for one in runs))
    agents = {one.row.entry: one.record for one in runs if one.row.entry is not None}
    columns = [
        _Column(name, [one for one in runs if one.row.environment == name], random_entry)
        for name in names
    ]
    entries = sorted(agents)
    if any(RANDOM in column.means for column in columns):
        entries.append(RANDOM)
    cells = {
        (entry, column.name): cell
        for column in columns
        for entry, cell in column.cells(entries, ties).items()
    }
    rows = [
        _entry_row(entry, agents.get(entry), {name: cells[entry, name] for name in names})
        for entry in entries
    ]
    rows.sort(key=_standing)  # equal ones stay in the order of their names
    return TableFile(
        ties=ties,
        tie_rule=TIE_RULES[ties],
        entry_count=len(entries),
        random_entry=RANDOM in entries,
        anchors=f"evopolicygym {__version__}, envs/anchors.toml",
        mixed=bool(differences),
        entries=rows,
        environments=[column.row() for column in columns],
        cells=[cells[row.entry, name] for name in names for row in rows],
        runs=[one.row for one in runs],
        left_out=[
            SkippedRow(record=path_text(one.path), reason=path_text(one.reason)) for one in left_out
        ],
        notes=[
            *(f"Mixed: {text}." for text in differences),
            *_notes(entries, columns),
        ],
    )


def _place(environment: str) -> tuple[int, str]:
    """Return the sort key of an environment: Core-16 in the paper's order, then by name."""
    known = environment in CORE_16
    return (CORE_16.index(environment) if known else len(CORE_16)), environment


# ------------------------------------------------------------------------------- environments


class _Column:
    """One environment: its Runs, and what each entry reached.

    Args:
        name: The environment.
        runs: All its Runs, at least one.
        random_entry: Whether the anchors make an entry.

    Attributes:
        name: The environment.
        means: Entry → mean held-out score, where there is one.
    """

    def __init__(self, name: str, runs: Sequence[PlayedRun], random_entry: bool) -> None:
        self.name = name
        self._runs = runs
        self._scored = [one for one in runs if one.row.scored]
        self._first = (self._scored or list(runs))[0]
        self._reference = self._first.reference
        if any(one.reference != self._reference for one in self._scored):
            why = "the Runs have different step limits"
            self._reference = Reference(None, None, None, why, why)
        self._repeats: dict[str, list[RunRow]] = {}
        for one in self._scored:
            self._repeats.setdefault(str(one.row.entry), []).append(one.row)
        self.means = {
            entry: mean(row.heldout for row in rows if row.heldout is not None)
            for entry, rows in self._repeats.items()
        }
        if random_entry and self._reference.random is not None:
            self.means[RANDOM] = self._reference.random
        self._empty = {
            str(one.row.entry)
            for one in runs
            if one.empty_handed and str(one.row.entry) not in self.means
        }

    @property
    def ranked(self) -> Mapping[str, float]:
        """Return what is ranked, means and the worst for who came empty-handed; one alone is not.

        If who hands over nothing where it is hard were left out there, failing would pay.
        """
        worst = -math.inf if self._first.record.spec.score_direction == "maximize" else math.inf
        ranked = {**self.means, **dict.fromkeys(self._empty, worst)}
        return ranked if len(ranked) > 1 else {}

    def cells(self, entries: Sequence[str], ties: TieRule) -> dict[str, CellRow]:
        """Return the cell of every entry."""
        ranks: Mapping[str, Rank] = {}
        if self.ranked:
            ranks = rank_scores(
                self.ranked, direction=self._first.record.spec.score_direction, ties=ties
            )
        return {entry: self._cell(entry, ranks.get(entry)) for entry in entries}

    def _cell(self, entry: str, rank: Rank | None) -> CellRow:
        if entry == RANDOM:
            values, finals, episodes = self._random()
            missing = self._reference.no_random
            no_final = self._reference.no_expert
        else:
            rows = self._repeats.get(entry, [])
            values = [row.heldout for row in rows if row.heldout is not None]
            finals = [row.final_score for row in rows if row.final_score is not None]
            episodes = [row.heldout_episodes or 0 for row in rows]
            missing = None if values else self._missing(entry)
            no_final = missing or next(filter(None, (row.no_final_score for row in rows)), None)
        return CellRow(
            entry=entry,
            environment=self.name,
            repeats=len(self._repeats.get(entry, [])),
            unscored=self._unscored(entry),
            heldout=_spread(values),
            heldout_episodes=episodes,
            # A mean over some of the repeats would not belong to the mean beside it.
            final_score=_spread(finals) if len(finals) == len(values) else None,
            no_final_score=None if finals and len(finals) == len(values) else no_final,
            rank=None if rank is None else rank.rank,
            rank_score=None if rank is None else rank.score,
            no_rank_score=None if rank is not None else missing or "no other entry to rank against",
            usage=_usage(self._repeats.get(entry, [])),
        )

    def _random(self) -> tuple[list[float], list[float], list[int]]:
        """Return value, final score and Episodes of the anchors' entry, where they are known."""
        row, value = self._reference.anchors, self.means.get(RANDOM)
        if row is None or value is None:
            return [], [], []
        finals = [] if self._reference.expert is None else [0.0]
        return [value], finals, [row.random.episodes]

    def _unscored(self, entry: str) -> int:
        return sum(one.row.entry == entry and not one.row.scored for one in self._runs)

    def _missing(self, entry: str) -> str:
        unscored = self._unscored(entry)
        return f"no scored Run; unscored: {unscored}" if unscored else "no Run"

    @property
    def versions(self) -> dict[str, set[str]]:
        """Return distribution → versions, of those that the anchors name and the Runs record."""
        row = self._reference.anchors
        found = {} if row is None else {name: {version} for name, version in row.versions.items()}
        for one in self._scored:
            for name in found:
                if name in one.record.run.versions:
                    found[name].add(one.record.run.versions[name])
        return found

    def row(self) -> EnvironmentRow:
        """Return what is said of the environment as a whole."""
        against, spec = self._reference, self._first.record.spec
        random = expert = None
        if against.anchors is not None:
            measured = against.anchors.random
            random = AnchorValue(
                value=measured.mean,
                source=f"uniform random policy, {measured.episodes} Episodes of split "
                f"{against.anchors.split}, seed {against.anchors.seed}",
            )
        if against.anchors is not None and against.anchors.expert is not None:
            known = against.anchors.expert
            expert = AnchorValue(value=known.value, source=f"{known.kind}: {known.source}")
        shared = [settings(one.record) for one in self._scored or self._runs]
        return EnvironmentRow(
            environment=self.name,
            benchmark_ids=sorted({one.record.run.benchmark_id for one in self._runs}),
            family=next((name for name, ids in FAMILIES.items() if self.name in ids), None),
            score_direction=spec.score_direction,
            primary_metric=spec.primary_metric,
            max_episode_steps=spec.max_episode_steps,
            settings=shared[0] if all(one == shared[0] for one in shared) else None,
            ranked_entries=len(self.ranked),
            random=random,
            no_random=against.no_random,
            expert=expert,
            no_expert=against.no_expert,
        )


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(mean=mean(values), min=min(values), max=max(values), n=len(values))


def _usage(rows: Sequence[RunRow]) -> Usage | None:
    if not rows:
        return None
    tokens = [None if row.tokens is None else sum(row.tokens.model_dump().values()) for row in rows]
    return Usage(
        episodes_used=mean(row.episodes_used for row in rows),
        submissions=mean(row.submissions for row in rows),
        wall_seconds=_known_mean([row.wall_seconds for row in rows]),
        tokens=_known_mean(tokens),
        tokens_complete=all(row.tokens_complete for row in rows),
        cost_usd=_known_mean([row.cost_usd for row in rows]),
        estimated_cost_usd=_known_mean([row.estimated_cost_usd for row in rows]),
    )


def _known_mean(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if one is not known: the others say nothing about it."""
    known = [value for value in values if value is not None]
    return mean(known) if len(known) == len(values) else None


# ------------------------------------------------------------------------------------ entries


def _entry_row(entry: str, record: Record | None, cells: Mapping[str, CellRow]) -> EntryRow:
    ranks = score_means({name: cell.rank_score for name, cell in cells.items()})
    finals = score_means(
        {
            name: None if cell.final_score is None else cell.final_score.mean
            for name, cell in cells.items()
        }
    )
    agent = None if record is None else record.run.agent
    kind: Literal["agent", "anchor"] = "anchor" if record is None else "agent"
    return EntryRow(
        entry=entry,
        kind=kind,
        agent=None if agent is None else agent.name,
        model=None if agent is None else agent.model,
        rank_score=_mean_value(ranks.total),
        family_rank_scores={name: _mean_value(one) for name, one in ranks.families.items()},
        final_score=_mean_value(finals.total),
    )


def _standing(row: EntryRow) -> tuple[float, bool]:
    """Return the sort key of an entry: the best first, those without a rank last."""
    score = row.rank_score.value
    return 1.0 if score is None else -score, row.kind == "anchor"


def _mean_value(score: MeanScore) -> MeanValue:
    return MeanValue(value=score.value, environments=score.environments, of=score.of)


def _notes(entries: Sequence[str], columns: Sequence[_Column]) -> list[str]:
    notes = []
    if len({tuple(entry in column.ranked for column in columns) for entry in entries}) > 1:
        notes.append(
            "Not every entry was ranked in the same environments: a total or a family score says "
            "less about an entry, the fewer environments it is over."
        )
    for column in columns:
        for name, versions in column.versions.items():
            if len(versions) > 1:
                notes.append(
                    f"{column.name}: anchors and Runs were made with different versions of {name}: "
                    f"{', '.join(sorted(versions))}."
                )
    return notes
