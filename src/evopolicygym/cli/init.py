"""`evopolicygym init`: write a starter Program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evopolicygym.cli.output import print_json, reported

__all__ = ["command"]


@reported
def command(
    directory: Annotated[Path | None, typer.Argument(help="New directory.")] = None,
    env: Annotated[str | None, typer.Option(help="Benchmark id, e.g. gym/cartpole.")] = None,
    list_envs: Annotated[bool, typer.Option("--list", help="List the ids and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write a starter Program with the environment's own description in comments."""
    from evopolicygym.envs import known_ids, load
    from evopolicygym.envs.starter import starter_program
    from evopolicygym.errors import ConfigurationError
    from evopolicygym.run.record import prepare_directory

    if list_envs:
        ids = known_ids()
        if json:
            print_json({"environments": ids})
        else:
            typer.echo("\n".join([*ids, "gymnasium/<Registered-Id>"]))
        return
    if directory is None or env is None:
        raise ConfigurationError("expected DIRECTORY and --env ID, e.g. init my-policy --env toy")
    program = starter_program(load(env))
    prepare_directory(directory)
    program.write_to(directory)
    if json:
        print_json({"directory": str(directory), "program_digest": program.digest})
    else:
        typer.echo(f"wrote {directory / 'policy.py'}")
        typer.echo(f"try it: evopolicygym evaluate {directory} --env {env}")
