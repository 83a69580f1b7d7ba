"""`evopolicygym`: the command line, a thin layer on the SDK."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from evopolicygym import __version__
from evopolicygym.cli import (
    agents,
    anchors,
    check,
    check_envs,
    data,
    discover_envs,
    doctor,
    evaluate,
    init,
    replay,
    run,
    suite,
    table,
)
from evopolicygym.cli.output import INTERRUPTED

__all__ = ["app", "main"]

app = typer.Typer(
    name="evopolicygym",
    help="Can a coding agent improve a policy from a limited budget of environment feedback?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("run", context_settings={"allow_extra_args": True})(run.command)
app.command("agents")(agents.command)
app.command("anchors")(anchors.command)
app.command("evaluate")(evaluate.command)
app.command("init")(init.command)
app.command("replay")(replay.command)
app.command("doctor")(doctor.command)
app.command("check-envs")(check_envs.command)
app.command("discover-envs")(discover_envs.command)
app.command("table")(table.command)
app.command("check")(check.command)
app.add_typer(data.app, name="data")
app.add_typer(suite.app, name="suite")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"evopolicygym {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    # Whoever stops a Run with SIGTERM gets what Ctrl-C gives: a record that says so.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # e.g. `evopolicygym … | head`
        sys.stderr.close()
        sys.exit(1)
