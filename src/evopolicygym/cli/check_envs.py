"""`evopolicygym check-envs`: play environments and say what level each one earns."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evopolicygym.cli.output import FAILED, notice, print_json, reported, table

if TYPE_CHECKING:
    from evopolicygym.envs.check import EnvironmentCheck

__all__ = ["command"]

_LOUD = ("failed", "missing")


@reported
def command(
    env: Annotated[list[str] | None, typer.Option(help="Benchmark id; repeatable.")] = None,
    bulk: Annotated[
        bool, typer.Option("--bulk", help="Every registered id of every installed family.")
    ] = False,
    isolate: Annotated[
        bool, typer.Option(help="Check in other processes, each with a time limit.")
    ] = True,
    jobs: Annotated[int, typer.Option(help="Processes at a time.")] = 1,
    min_level: Annotated[str, typer.Option(help="Level that is expected: L0 to L4.")] = "L1",
    discover: Annotated[
        bool, typer.Option("--discover", help="List the ids that would be checked and end.")
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds an id.")] = 60.0,
    family: Annotated[str | None, typer.Option(help="Only this family.")] = None,
    extra: Annotated[str | None, typer.Option(help="Only families of this extra.")] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many ids, spread evenly.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check that environments run, have a task text, are deterministic and keep the contract.

    Without --env and --bulk: every short name and Core-16, as far as they are installed.
    """
    from evopolicygym.envs.inventory import inventory
    from evopolicygym.envs.isolation import check_isolated
    from evopolicygym.errors import UnknownEnvironmentError

    _require(jobs, min_level, timeout, limit, bulk, env)
    installation = None if env else inventory()
    families = _chosen(env, bulk, installation, family, extra, limit)
    if discover:
        _show_ids(families, json)
        return
    total = sum(map(len, families.values()))
    began = time.monotonic()
    progress = _progress(total, min_level, bool(env))
    if isolate:
        rows = check_isolated([*families.values()], jobs=jobs, timeout=timeout, report=progress)
    else:
        rows = _check_here(families, progress)
    if env:
        unknown = next((row for row in rows if row.unknown), None)
        if unknown is not None:
            raise UnknownEnvironmentError(unknown.reason.partition("Error: ")[2])
    names = {i: name for name, ids in families.items() for i in ids}
    listed = [_described(row, names[row.id], min_level, bool(env)) for row in rows]
    report: dict[str, Any] = {
        "passed": not any(row["status"] == "failed" for row in listed),
        "min_level": min_level,
        "summary": _summary(listed),
        "stale_known_failures": _stale(listed),
        "installation": installation and _installation(installation, names.values()),
        "seconds": round(time.monotonic() - began, 1),
        "environments": listed,
    }
    for pattern in report["stale_known_failures"]:
        notice(f"note: known_failures.toml has {pattern!r}, but an id of it runs here")
    if json:
        print_json(report)
    else:
        _show(report)
    if not report["passed"]:
        raise typer.Exit(FAILED)


def _require(
    jobs: int,
    min_level: str,
    timeout: float,
    limit: int | None,
    bulk: bool,
    env: Sequence[str] | None,
) -> None:
    from evopolicygym.envs.levels import LEVELS
    from evopolicygym.errors import ConfigurationError

    if bulk and env:
        raise ConfigurationError("expected --env or --bulk, not both")
    if min_level not in LEVELS:
        raise ConfigurationError(f"--min-level is {min_level!r}, expected {', '.join(LEVELS)}")
    if jobs < 1:
        raise ConfigurationError(f"--jobs is {jobs}, expected >= 1")
    if limit is not None and limit < 1:
        raise ConfigurationError(f"--limit is {limit}, expected >= 1")
    if not 0 < timeout <= 86_400:
        raise ConfigurationError(f"--timeout is {timeout:g}, expected seconds in (0, 86400]")


def _chosen(
    env: Sequence[str] | None,
    bulk: bool,
    installation: Mapping[str, Any] | None,
    family: str | None,
    extra: str | None,
    limit: int | None,
) -> dict[str, list[str]]:
    """Return the ids to check by family; no family is empty."""
    from evopolicygym.envs.catalog import benchmark_id
    from evopolicygym.envs.families import FAMILIES
    from evopolicygym.envs.inventory import OTHER, default_ids, family_name
    from evopolicygym.errors import ConfigurationError, near_miss

    extras = {known.name: known.extra for known in FAMILIES}
    for option, given, known in (
        ("--family", family, [*extras, OTHER]),
        ("--extra", extra, sorted({*extras.values()})),
    ):
        if given is not None and given not in known:
            raise ConfigurationError(
                f"{option} is {given!r}, expected {', '.join(known)}.{near_miss(given, known)}"
            )
    found: dict[str, list[str]] = {}
    if installation is not None and bulk:
        for entry in installation["families"]:
            if entry["installed"]:
                found[entry["name"]] = [*map(benchmark_id, entry["ids"])]
    else:
        for name in dict.fromkeys(env or default_ids()):
            found.setdefault(family_name(name), []).append(name)
    found = {
        name: ids
        for name, ids in found.items()
        if family in (None, name) and extra in (None, extras.get(name))
    }
    every = [(name, asked) for name, ids in found.items() for asked in ids]
    if not every:
        raise ConfigurationError("there is nothing to check: no id of that kind is installed")
    if limit is not None and limit < len(every):
        every = [every[at * len(every) // limit] for at in range(limit)]
    return {name: ids for name in found if (ids := [i for owner, i in every if owner == name])}


def _check_here(
    families: Mapping[str, Sequence[str]], progress: Callable[[EnvironmentCheck], None]
) -> list[EnvironmentCheck]:
    from evopolicygym.envs.check import check_environment, private_stdout

    rows = []
    with private_stdout():
        for ids in families.values():
            for benchmark_id in ids:
                rows.append(check_environment(benchmark_id))
                progress(rows[-1])
    return rows


def _progress(total: int, min_level: str, asked: bool) -> Callable[[EnvironmentCheck], None]:
    """Return what tells a person about each row: all of few, of many the bad ones and some."""
    count = 0

    def tell(row: EnvironmentCheck) -> None:
        nonlocal count
        count += 1
        status = _status(row, min_level, asked)
        if status in _LOUD or total <= 40 or count % 25 == 0 or count == total:
            reason = f"  {row.reason}" if row.reason and status != "expected" else ""
            notice(f"{count}/{total}  {row.id}  {row.level} {status}{reason}")

    return tell


def _status(row: EnvironmentCheck, min_level: str, asked: bool) -> str:
    """Return ok, failed, expected (known not to run) or missing (a package is)."""
    from evopolicygym.envs.inventory import expected_failure

    if row.level >= min_level:
        return "ok"
    if row.level == "L0" and expected_failure(row.id):
        return "expected"
    return "missing" if row.missing and not asked else "failed"


def _described(row: EnvironmentCheck, family: str, min_level: str, asked: bool) -> dict[str, Any]:
    from evopolicygym.envs.inventory import expected_failure

    status = _status(row, min_level, asked)
    known = expected_failure(row.id)
    entry = asdict(row)
    for name in ("stage", "unknown", "missing"):
        del entry[name]
    expected = known[1] if known and status == "expected" else ""
    return {**entry, "family": family, "status": status, "known_failure": expected}


def _installation(found: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return what was checked: extras and versions by family."""
    from evopolicygym.envs.inventory import OTHER

    kept = ("name", "extra", "versions")
    families = [{n: family[n] for n in kept} for family in found["families"]]
    families.append({"name": OTHER, "extra": "", "versions": {}})
    families = [family for family in families if family["name"] in names]
    return {"families": families, "simulators": found["simulators"]}


def _stale(listed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the patterns of known failures that an id that runs matches."""
    from evopolicygym.envs.inventory import expected_failure

    known = [expected_failure(row["id"]) for row in listed if row["level"] != "L0"]
    return sorted({match[0] for match in known if match})


def _summary(listed: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Count by family; a level's count has the ids that reach it or more."""
    from evopolicygym.envs.levels import LEVELS

    summary = {}
    for family in dict.fromkeys(row["family"] for row in listed):
        rows = [row for row in listed if row["family"] == family]
        status = Counter(row["status"] for row in rows)
        summary[family] = {
            "ids": len(rows),
            **{n: sum(row["level"] >= n for row in rows) for n in LEVELS[1:]},
            "deterministic": sum(row["deterministic"] is True for row in rows),
            "not_deterministic": sum(row["deterministic"] is False for row in rows),
            "conforms": sum(row["conforms"] is True for row in rows),
            "does_not_conform": sum(row["conforms"] is False for row in rows),
            "failure_return_known": sum(row["failure_return_known"] is True for row in rows),
            **{name: status[name] for name in ("failed", "missing", "expected")},
        }
    return summary


def _show(report: Mapping[str, Any]) -> None:
    from evopolicygym.envs.levels import LEVELS

    rows = report["environments"]
    order = ("failed", "missing", "expected", "ok")
    if len(rows) > 60:  # of many only what needs a look
        rows = [row for row in rows if row["status"] != "ok" or row["reason"]]
    rows = sorted(rows, key=lambda row: order.index(row["status"]))
    cells = [
        [
            *(row["status"], row["level"], row["id"]),
            *(_mark(row[name]) for name in ("deterministic", "conforms")),
            row["known_failure"] or row["reason"],
        ]
        for row in rows
    ]
    columns = ["Status", "Level", "Id", "Deterministic", "Conforms", "Reason"]
    table("environments", columns, cells)
    columns = ["ids", *LEVELS[1:], "deterministic", "conforms", "failed", "missing", "expected"]
    lines = [[name, *(str(row[c]) for c in columns)] for name, row in report["summary"].items()]
    table("by family", ["family", *columns], lines)


def _mark(value: bool | None) -> str:
    return "–" if value is None else ("yes" if value else "NO")


def _show_ids(families: Mapping[str, Sequence[str]], json: bool) -> None:
    if json:
        print_json({"families": families})
    else:
        typer.echo("\n".join(i for ids in families.values() for i in ids))
