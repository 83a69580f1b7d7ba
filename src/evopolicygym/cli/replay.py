"""`evopolicygym replay`: play one recorded Episode again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evopolicygym.cli.output import FAILED, execution_named, fail, print_json, reported

__all__ = ["command"]


@reported
def command(
    record: Annotated[Path, typer.Argument(help="Directory of the Run.")],
    submission: Annotated[str, typer.Argument(help="e.g. submission-000001")],
    index: Annotated[int, typer.Argument(help="Pool index of the Episode.")],
    execution: Annotated[str, typer.Option(help="How policies run: unsafe.")] = "unsafe",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Play one Episode of a record again and say whether its hash agrees."""
    from evopolicygym.envs import load
    from evopolicygym.run.replay import read_run, replay

    run = read_run(record)
    result = replay(
        record, submission, index, load(run.benchmark_id), execution=execution_named(execution)
    )
    if result.episode.environment_error is not None:
        fail(f"the environment failed: {result.episode.environment_error}", FAILED)
    if json:
        print_json(
            {
                "agrees": result.agrees,
                "recorded_hash": result.recorded_hash,
                "replayed_hash": result.episode.trajectory_hash,
                "recorded_return": result.recorded_return,
                "replayed_return": result.episode.total_reward,
                "steps": result.episode.steps,
            }
        )
    else:
        typer.echo(f"recorded  {result.recorded_hash}  return {result.recorded_return:g}")
        typer.echo(
            f"replayed  {result.episode.trajectory_hash}  return {result.episode.total_reward:g}"
        )
        typer.echo("the hashes agree" if result.agrees else "the hashes DIFFER")
    if not result.agrees:
        raise typer.Exit(FAILED)
