"""`evopolicygym suite`: many Runs by one file, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from evopolicygym.cli.output import FAILED, notice, number, print_json, reported, table
from evopolicygym.errors import ConfigurationError, near_miss

if TYPE_CHECKING:
    from evopolicygym.suite.cells import Cell
    from evopolicygym.suite.config import SuiteFile
    from evopolicygym.suite.play import Prepared
    from evopolicygym.suite.states import CellState

__all__ = ["app"]

app = typer.Typer(
    help="Play many Runs by one file, and show what became of them.",
    invoke_without_command=True,
    # Of an error that the command reports itself nothing else is shown.
    pretty_exceptions_enable=False,
)

_Config = Annotated[Path | None, typer.Option("--config", help="TOML or JSON file.")]
_Root = Annotated[Path | None, typer.Option("--root", help="Root of the records; over the file's.")]
_Jobs = Annotated[int | None, typer.Option("--jobs", help="Runs at once; over the file's.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
@reported
def _play(
    context: typer.Context,
    config: _Config = None,
    root: _Root = None,
    jobs: _Jobs = None,
    repeats: Annotated[
        int | None, typer.Option(help="Runs of each environment by each agent; over the file's.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the cells and what they may cost; play none.")
    ] = False,
    force_cell: Annotated[
        list[str] | None, typer.Option(help="Play this cell again; the old record is kept.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Play every cell of a file that has no record yet, then show the table."""
    if context.invoked_subcommand is not None:
        if config is not None:
            raise ConfigurationError(f"give --config after {context.invoked_subcommand}")
        return
    file, cells, home = _read(config, root, jobs=jobs, repeats=repeats)
    if dry_run:
        _show_plan(cells, home, json)
        return
    names = [cell.name for cell in cells]
    for name in force_cell or ():
        if name not in names:
            raise ConfigurationError(
                f"--force-cell is {name!r}, which is no cell of this suite.{near_miss(name, names)}"
            )
    _run(file, cells, home, again=set(force_cell or ()), as_json=json)


@app.command("status")
@reported
def _status(config: _Config = None, root: _Root = None, json: _Json = False) -> None:
    """Show what became of every cell."""
    _, cells, home = _read(config, root)
    states = _states(home, cells)
    if json:
        print_json({"root": str(home), "cells": [_described(state) for state in states]})
        return
    _show_states(home, states)


@app.command("retry")
@reported
def _retry(
    only: Annotated[
        str, typer.Option(help="infra (unscored or crashed), failed (no score), or missing.")
    ],
    config: _Config = None,
    root: _Root = None,
    jobs: _Jobs = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Play cells of one kind again; what they had is kept."""
    from evopolicygym.suite.states import State

    kinds = {
        "infra": {State.UNSCORED, State.CRASHED},
        "failed": {State.FAILED},
        "missing": {State.MISSING},
    }
    if only not in kinds:
        raise ConfigurationError(
            f"--only is {only!r}, expected infra, failed or missing.{near_miss(only, kinds)}"
        )
    file, cells, home = _read(config, root, jobs=jobs)
    chosen = {state.name for state in _states(home, cells) if state.state in kinds[only]}
    _run(file, [c for c in cells if c.name in chosen], home, cells, chosen, as_json=json)


def _read(
    config: Path | None,
    root: Path | None,
    *,
    jobs: int | None = None,
    repeats: int | None = None,
) -> tuple[SuiteFile, list[Cell], Path]:
    """Read a file, with what the command line says instead; return its cells and their root."""
    from evopolicygym.evaluation import positive_integer
    from evopolicygym.suite.cells import cells_of
    from evopolicygym.suite.config import read_config

    if config is None:
        raise ConfigurationError("--config is missing: name a TOML or JSON file")
    file = read_config(config)
    given = {"jobs": jobs, "repeats": repeats}
    for name, value in given.items():
        if value is not None:
            positive_integer(f"--{name}", value, most=1_000)
    update = {name: value for name, value in given.items() if value is not None}
    file = file.model_copy(update={"suite": file.suite.model_copy(update=update)})
    try:
        cells = cells_of(file)
    except ConfigurationError as error:
        raise ConfigurationError(f"{config}: {error}") from None
    return file, cells, root or Path(file.suite.root or Path("runs") / file.suite.name)


def _prepare(cells: Sequence[Cell]) -> tuple[dict[str, Prepared], dict[str, str]]:
    """Prepare every cell; return those that can be played, and why the others can't."""
    ready: dict[str, Prepared] = {}
    missing: dict[str, str] = {}
    for cell in cells:
        try:
            ready[cell.name] = cell.prepared()
        except ConfigurationError as error:
            missing[cell.name] = f"{' with '.join(cell.where)}: {error}"
    return ready, missing


def _run(
    file: SuiteFile,
    cells: Sequence[Cell],
    home: Path,
    every: Sequence[Cell] | None = None,
    again: set[str] | None = None,
    *,
    as_json: bool,
) -> None:
    """Play cells that have no record, or whose record is to be set aside."""
    from evopolicygym.cli.suite_progress import SuiteProgress
    from evopolicygym.execution import UNSAFE_NOTICE
    from evopolicygym.run.record import now, versions
    from evopolicygym.suite.cells import identity
    from evopolicygym.suite.lock import hold_to
    from evopolicygym.suite.scheduler import exclusive, play_cells
    from evopolicygym.suite.states import set_aside

    every = cells if every is None else every
    ready, missing = _prepare(every)
    if missing:
        lines = "\n  ".join(dict.fromkeys(missing.values()))
        raise ConfigurationError(f"{len(missing)} cells can't be played:\n  {lines}")
    needed = {name: v for name, v in versions().items() if name != "platform"}
    with exclusive(home):
        hold_to(home, file.suite.name, needed, {c.name: identity(c, ready[c.name]) for c in every})
        for cell in cells:
            if cell.name in (again or ()) and (home / cell.name).exists():
                set_aside(home, cell.name, "played again on request", now())
        waiting = [cell for cell in cells if not (home / cell.name).exists()]
        if waiting:
            notice(UNSAFE_NOTICE)
        elif not as_json:
            notice("nothing to play: every cell has a record")
        budgets = {cell.name: ready[cell.name].config.episode_budget for cell in waiting}
        with SuiteProgress(budgets, as_json) as progress:
            play_cells(
                home, waiting, jobs=file.suite.jobs, retries=file.suite.retries, report=progress
            )
    states = _states(home, every)
    if as_json:
        listed = [_described(state) for state in states]
        print_json({"kind": "suite_ended", "played": len(waiting), "cells": listed})
    else:
        _show_result(home, states)
    if any(state.state != "done" for state in states):
        raise typer.Exit(FAILED)


def _states(home: Path, cells: Sequence[Cell]) -> list[CellState]:
    from evopolicygym.suite.states import state_of

    return [state_of(home, cell.name) for cell in cells]


def _described(state: CellState) -> dict[str, Any]:
    return {**asdict(state), "state": state.state.value}


def _show_states(home: Path, states: Sequence[CellState]) -> None:
    rows = [
        [
            *(state.name, state.state.value, number(state.score)),
            "–" if state.episodes is None else str(state.episodes),
            *(str(state.attempts), state.reason),
        ]
        for state in states
    ]
    columns = ["Cell", "State", "Held-out", "Episodes", "Earlier attempts", "Reason"]
    table(f"{home}: {_counted(states)}", columns, rows)


def _counted(states: Sequence[CellState]) -> str:
    counts: dict[str, int] = {}
    for state in states:
        counts[state.state.value] = counts.get(state.state.value, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _show_result(home: Path, states: Sequence[CellState]) -> None:
    """Show the table, and every cell that has no place in it."""
    from evopolicygym.analysis.records import read_records
    from evopolicygym.analysis.table import make_table
    from evopolicygym.cli.table import show

    others = [state for state in states if state.state != "done"]
    if others:
        _show_states(home, others)
    records = [home / state.name for state in states if state.state in ("done", "failed")]
    if records:
        try:
            show(make_table(*read_records(records)))
        except ConfigurationError as error:
            notice(f"note: there is no table of all of them: {error}")
    typer.echo(f"{len(states)} cells: {_counted(states)}")
    typer.echo(f"Records: {home}")


def _show_plan(cells: Sequence[Cell], home: Path, as_json: bool) -> None:
    """Show what would be played, what it may cost, and what is missing for it."""
    from evopolicygym.suite.play import run_config

    _, missing = _prepare(cells)
    rows: list[Mapping[str, Any]] = []
    for cell in cells:
        config = run_config(cell.settings, cell.agent, cell.server)
        validation, assessment = config.validation, config.assessment
        rows.append(
            {
                "cell": cell.name,
                "env": cell.env,
                "agent": cell.agent_name,
                "seed": config.seed,
                "training": config.episode_budget,
                "validation": 0
                if validation is None
                else validation.episodes_per_candidate * validation.max_candidates,
                "assessment": 0 if assessment is None else assessment.episodes,
                "missing": missing.get(cell.name),
            }
        )
    counted: tuple[Literal["training"], Literal["validation"], Literal["assessment"]]
    counted = ("training", "validation", "assessment")
    totals = {name: sum(row[name] for row in rows) for name in counted}
    if as_json:
        print_json({"root": str(home), "cells": [dict(row) for row in rows], "at_most": totals})
        return
    cells_shown = [
        [*(str(row[n]) for n in ("cell", "seed", *counted)), row["missing"] or ""] for row in rows
    ]
    columns = ["Cell", "Seed", "Training", "Validation", "Assessment", "Missing"]
    table(f"{len(rows)} cells below {home}; Episodes at most", columns, cells_shown)
    typer.echo(
        f"At most {sum(totals.values())} Episodes: "
        + ", ".join(f"{count} {name}" for name, count in totals.items())
    )
