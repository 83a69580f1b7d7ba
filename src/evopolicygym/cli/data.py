"""`evopolicygym data`: make and check the data splits that a Run can play."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evopolicygym.cli.output import print_json, reported, table
from evopolicygym.errors import ConfigurationError

if TYPE_CHECKING:
    from evopolicygym.data import Splits

__all__ = ["app"]

app = typer.Typer(help="Make and check data splits: files of Episodes.", no_args_is_help=True)


@app.command("make")
@reported
def _make(
    root: Annotated[Path, typer.Option(help="Directory for the files.")],
    seed: Annotated[int, typer.Option(help="Seed of the splits; private as they are.")],
    env: Annotated[str | None, typer.Option(help="Benchmark id, e.g. gym/taxi.")] = None,
    suite: Annotated[
        str | None, typer.Option(help="core16: one directory below --root an environment.")
    ] = None,
    train_size: Annotated[int, typer.Option(help="Cases to search on.")] = 64,
    valid_size: Annotated[int, typer.Option(help="Cases to select on.")] = 64,
    heldout_size: Annotated[int, typer.Option(help="Cases to measure on.")] = 256,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace earlier splits.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write train.json, valid.json, heldout.json and digests.json: disjoint, from a seed.

    Whoever knows --seed knows every case: for results that count draw one at random.
    """
    from evopolicygym.data import MAX_CASES, check_seeded, make_splits, write_splits
    from evopolicygym.envs import catalog, load
    from evopolicygym.evaluation import positive_integer
    from evopolicygym.run.layout import safe_name

    str(root).encode()  # refuses what JSON can't hold
    sizes = {"train": train_size, "valid": valid_size, "heldout": heldout_size}
    for name, size in sizes.items():
        positive_integer(f"--{name}-size", size, most=MAX_CASES)
    if env is not None and suite is None:
        check_seeded(load(env))
        splits = make_splits(env, seed, sizes)
        write_splits(root, splits, overwrite=overwrite)
        written = {root: splits}
    elif env is None and suite is not None:
        sets = {
            safe_name(benchmark_id): make_splits(benchmark_id, seed, sizes)
            for benchmark_id in catalog.suite(suite)
        }
        write_splits(root, sets, overwrite=overwrite)
        written = {root / directory: splits for directory, splits in sets.items()}
    else:
        raise ConfigurationError("expected one of --env ID and --suite core16")
    _show(f"wrote {root}", written, json, {"root": str(root)})


@app.command("check")
@reported
def _check(
    directory: Annotated[Path, typer.Argument(help="What data make wrote.")],
    env: Annotated[str | None, typer.Option(help="The Benchmark id that it must be for.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check the files of one environment or of a suite: complete, disjoint, unchanged."""
    from evopolicygym.data import read_splits
    from evopolicygym.errors import near_miss

    str(directory).encode()
    homes = [directory]
    if directory.is_dir() and not (directory / "digests.json").exists():
        homes = sorted(path for path in directory.iterdir() if path.is_dir()) or homes
    checked = {home: read_splits(home) for home in homes}
    for home, splits in checked.items():
        if env is not None and splits.benchmark_id != env:
            raise ConfigurationError(
                f"{home} is for {splits.benchmark_id!r}, --env is {env!r}."
                + near_miss(env, [splits.benchmark_id])
            )
    _show(f"{directory} is complete, disjoint and unchanged", checked, json, {"passed": True})


def _show(title: str, splits: dict[Path, Splits], as_json: bool, head: dict[str, Any]) -> None:
    """Show sizes and digests; no seed."""
    if as_json:
        rows = [
            {
                "directory": str(home),
                "benchmark_id": one.benchmark_id,
                "sizes": one.sizes,
                "digests": one.digests,
            }
            for home, one in splits.items()
        ]
        print_json({**head, "splits": rows})
        return
    table(
        title,
        ["Environment", "Split", "Cases", "SHA-256"],
        [
            [one.benchmark_id, name, str(one.sizes[name]), f"{digest[:12]}…"]
            for one in splits.values()
            for name, digest in one.digests.items()
        ],
    )
