"""`evopolicygym discover-envs`: what is installed here, by family, as data and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from evopolicygym.cli.output import print_json, reported

__all__ = ["command"]

_FINDINGS = (
    *("level", "status", "deterministic", "conforms", "failure_return_known"),
    *("known_failure", "reason"),
)
_COUNTED = ("L1", "L2", "deterministic", "conforms", "expected", "failed", "missing")


@reported
def command(
    output: Annotated[Path | None, typer.Option(help="Write the data to this JSON file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a page to this file.")] = None,
    checked: Annotated[
        list[Path] | None,
        typer.Option(help="What `check-envs --json` printed: adds levels; repeatable, last wins."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List families, versions, registered ids and, where they were checked, levels.

    Equal installations give equal files: there are no dates and no paths in them.
    """
    from evopolicygym.envs.inventory import inventory
    from evopolicygym.strict_json import pretty

    checks: dict[str, Mapping[str, Any]] = {}
    for path in checked or ():
        checks |= _checks(path)
    found = inventory()
    families = [_family(family, checks) for family in found["families"]]
    document = {
        "simulators": found["simulators"],
        "ids": sum(len(family["environments"]) for family in families),
        "checked": bool(checks),
        "families": families,
    }
    if output is not None:
        output.write_bytes(pretty(document))
    if markdown is not None:
        markdown.write_text(_page(document), "utf-8")
    if json:
        print_json(document)
        return
    for family in families:
        count = len(family["environments"])
        typer.echo(f"{family['name']}: {count} ids" if count else f"{family['name']}: none")
    for written in filter(None, (output, markdown)):
        typer.echo(f"wrote {written}")


def _checks(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return the rows of a check by id.

    Raises:
        ConfigurationError: The file is none.
    """
    from evopolicygym.errors import ConfigurationError
    from evopolicygym.strict_json import loads

    try:
        rows = loads(path.read_bytes())["environments"]
        return {row["id"]: {name: row[name] for name in _FINDINGS} for row in rows}
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"--checked {path} is not what `check-envs --json` prints: {error}"
        ) from None


def _family(family: Mapping[str, Any], checks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    from evopolicygym.envs.catalog import benchmark_id

    names = map(benchmark_id, family["ids"])
    rows: list[dict[str, Any]] = [{"id": name, **checks.get(name, {})} for name in names]
    counts: dict[str, int] = {}
    if checks:
        done = [row for row in rows if "level" in row]
        counts = {
            "checked": len(done),
            **{level: sum(row["level"] >= level for row in done) for level in ("L1", "L2")},
            **{n: sum(row[n] is True for row in done) for n in ("deterministic", "conforms")},
            **{s: sum(row["status"] == s for row in done) for s in _COUNTED[-3:]},
        }
    kept = {name: family[name] for name in ("name", "extra", "installed", "reason", "versions")}
    return {**kept, "counts": counts, "environments": rows}


def _page(document: Mapping[str, Any]) -> str:
    """Return the same as Markdown."""
    families: Sequence[Mapping[str, Any]] = document["families"]
    counted = _COUNTED if document["checked"] else ()
    versions = ", ".join(f"{name} {v}" for name, v in document["simulators"].items())
    lines = [
        "# Environments that are installed",
        "",
        "Made by `evopolicygym discover-envs`; do not edit. Levels come from `check-envs`: L1",
        "runs, L2 has a task text under every heading too. L3 needs anchors: not measured here.",
        "",
        f"{document['ids']} registered ids. Simulators: {versions}.",
        "",
        "| " + " | ".join(["family", "extra", "versions", "ids", *counted]) + " |",
        "|" + "---|" * (4 + len(counted)),
    ]
    for family in families:
        shown = ", ".join(f"{name} {v}" for name, v in family["versions"].items())
        cells = [family["name"], family["extra"], shown if family["installed"] else "not installed"]
        cells += [str(len(family["environments"]))]
        cells += [str(family["counts"].get(name, 0)) for name in counted]
        lines.append("| " + " | ".join(cells) + " |")
    for family in families:
        if not family["environments"]:
            continue
        lines += ["", f"## {family['name']}", ""]
        if not document["checked"]:
            lines += [f"- `{row['id']}`" for row in family["environments"]]
            continue
        lines += ["| id | level | deterministic | conforms | remark |", "|---|---|---|---|---|"]
        for row in family["environments"]:
            marks = [_mark(row.get(name)) for name in ("deterministic", "conforms")]
            remark = row.get("known_failure") or row.get("reason", "not checked")
            cells = [f"`{row['id']}`", row.get("level", "L0"), *marks, remark.replace("|", "\\|")]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _mark(value: bool | None) -> str:
    return "–" if value is None else ("yes" if value else "no")
