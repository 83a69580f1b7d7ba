"""`evopolicygym table`: finished Runs side by side."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, get_args

import typer

from evopolicygym.cli.output import print_json, reported
from evopolicygym.errors import ConfigurationError, near_miss

if TYPE_CHECKING:
    from evopolicygym.analysis.table_models import TableFile

__all__ = ["command", "show"]

_PIPE_WIDTH = 220

Name = TypeVar("Name", bound=str)


@reported
def command(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Directories with records in them.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            help="terminal, markdown, csv, json or latex; default: by the ending of --output, "
            "else terminal."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
    ties: Annotated[
        str, typer.Option(help="Rank that equal means share: best, average or worst.")
    ] = "best",
    no_random: Annotated[
        bool, typer.Option("--no-random", help="Leave the uniform random policy out of ranks.")
    ] = False,
    allow_mixed: Annotated[
        bool, typer.Option("--allow-mixed", help="Take Runs of different settings together.")
    ] = False,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="List records that can't be read; go on.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare finished Runs: held-out means, final scores, rank scores, what it took."""
    from evopolicygym.analysis.records import read_records
    from evopolicygym.analysis.render import FORMATS, Format, render
    from evopolicygym.analysis.scores import TIE_RULES
    from evopolicygym.analysis.table import make_table
    from evopolicygym.run.files import write_atomically

    if json and format is not None and output is None:
        raise ConfigurationError(
            f"--json prints JSON: leave out --format, or name a file for {format!r} with --output"
        )
    by_ending = "terminal" if output is None else FORMATS.get(output.suffix, "terminal")
    kind = _one_of("--format", format or by_ending, get_args(Format))
    rule = _one_of("--ties", ties, TIE_RULES)
    records, left_out = read_records(directories, skip_unreadable=skip_unreadable)
    table = make_table(
        records, left_out, ties=rule, random_entry=not no_random, allow_mixed=allow_mixed
    )
    if output is not None:
        write_atomically(output, render(table, kind).encode())
    if json:
        print_json(table.model_dump(mode="json", by_alias=True))
    elif output is not None:
        typer.echo(f"wrote {output}")
    elif kind == "terminal":
        show(table)
    else:
        typer.echo(render(table, kind), nl=False)


def _one_of(option: str, value: str, known: Iterable[Name]) -> Name:
    """Return the known name that a value is.

    Raises:
        ConfigurationError: It is none.
    """
    names = list(known)
    for name in names:
        if name == value:
            return name
    expected = f"{', '.join(names[:-1])} or {names[-1]}"
    raise ConfigurationError(
        f"{option} is {value!r}, expected {expected}.{near_miss(value, names)}"
    )


def show(table: TableFile) -> None:
    """Print a table for a person."""
    from rich.console import Console

    from evopolicygym.analysis.render import print_table

    console = Console()
    if not console.is_terminal:  # a pipe has no width, and nobody wants its lines folded at 80
        console.width = _PIPE_WIDTH
    print_table(table, console)
