"""`evopolicygym check`: whether records are complete, add up and say one thing everywhere."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evopolicygym.cli.output import FAILED, execution_named, notice, print_json, reported

if TYPE_CHECKING:
    from evopolicygym.analysis.check import Finding

__all__ = ["command"]

_SCHEMA = "evopolicygym.check/1"


@reported
def command(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="Directories with records in them.")
    ],
    replay: Annotated[
        bool, typer.Option("--replay", help="Also play one Episode of each Submission again.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check every invariant of the records in some directories.

    Exit code 1 says that there is something to see, 2 that there is no record.
    """
    from evopolicygym.analysis.check import check_record, find_records
    from evopolicygym.envs.check import private_stdout

    records = find_records(directories)
    if replay:
        execution_named("unsafe")
    found: dict[Path, tuple[Finding, ...]] = {}
    with private_stdout():  # environment packages print when they are loaded
        for record in records:
            found[record] = check_record(record, replay=replay)
    total = sum(map(len, found.values()))
    if json:
        print_json(
            {
                "schema": _SCHEMA,
                "replayed": replay,
                "findings": total,
                "records": [
                    {"record": str(record), "findings": [asdict(one) for one in findings]}
                    for record, findings in found.items()
                ],
            }
        )
    else:
        for record, findings in found.items():
            typer.echo(f"{record}: {_count(findings)}")
            for one in findings:
                typer.echo(f"  {one.code.value:<11} {one.path}: {one.message}")
    if total:
        bad = sum(map(bool, found.values()))
        notice(f"{total} findings in {bad} of {len(found)} records")
        raise typer.Exit(FAILED)


def _count(findings: tuple[Finding, ...]) -> str:
    return f"{len(findings)} findings" if findings else "good"
