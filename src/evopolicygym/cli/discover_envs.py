"""`evopolicygym discover-envs`: what is installed here, by family, as data and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from evopolicygym.cli.output import print_json, reported

__all__ = ["command"]

_FINDINGS = (
    *("level", "status", "deterministic", "conforms", "failure_return_known"),
    *("known_failure", "reason", "environment_digest", "trace"),
)
_MARKS = ("deterministic", "conforms")
_STATUS = ("expected", "failed", "missing")


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

    Families that were checked in another installation are listed from that. Equal installations
    give equal files: there are no dates and no paths in them.
    """
    from evopolicygym.envs.inventory import inventory
    from evopolicygym.strict_json import pretty

    found = inventory()
    families = {family["name"]: {**family, **_here(found, family)} for family in found["families"]}
    for path in checked or ():
        for family in _checked(path):
            before = families.get(family["name"], {"environments": []})
            if before.keys() | family.keys() == {"name", "environments"}:
                continue  # nothing is known of its installation
            rows = {row["id"]: row for row in (*before["environments"], *family["environments"])}
            families[family["name"]] = {**before, **family, "environments": [*rows.values()]}
    for family in families.values():
        family["counts"] = _counts(family["environments"])
    document = {
        "ids": sum(len(family["environments"]) for family in families.values()),
        "checked": bool(checked),
        "families": [*families.values()],
    }
    if output is not None:
        output.write_bytes(pretty(document))
    if markdown is not None:
        markdown.write_text(_page(document), "utf-8")
    if json:
        print_json(document)
        return
    for family in families.values():
        count = len(family["environments"])
        typer.echo(f"{family['name']}: {count} ids" if count else f"{family['name']}: none")
    for written in filter(None, (output, markdown)):
        typer.echo(f"wrote {written}")


def _here(found: Mapping[str, Any], family: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a family of this installation that was not checked."""
    from evopolicygym.envs.catalog import benchmark_id

    rows = [{"id": name} for name in map(benchmark_id, family.pop("ids"))]
    return {"simulators": found["simulators"] if rows else {}, "environments": rows}


def _checked(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the families of a check.

    Raises:
        ConfigurationError: The file is no check of all that is installed.
    """
    from evopolicygym.errors import ConfigurationError
    from evopolicygym.strict_json import loads

    try:
        report = loads(path.read_bytes())
        # A check of single ids does not look at the installation; it adds to one that did.
        installation = report["installation"] or {"families": []}
        known = {family["name"]: family for family in installation["families"]}
        found: dict[str, list[dict[str, Any]]] = {}
        for row in report["environments"]:
            kept = {"id": row["id"], **{name: row[name] for name in _FINDINGS}}
            found.setdefault(row["family"], []).append(kept)
        for name, rows in found.items():
            facts: dict[str, Any] = {"name": name, "environments": rows}
            if name in known:
                facts |= {**known[name], "installed": True, "reason": ""}
                facts["simulators"] = installation["simulators"]
            yield facts
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"--checked {path} is not what `check-envs [--bulk] --json` prints: {error}"
        ) from None


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    from evopolicygym.envs.levels import LEVELS

    done = [row for row in rows if "level" in row]
    return {
        "checked": len(done),
        **{level: sum(row["level"] >= level for row in done) for level in LEVELS[1:]},
        **{name: sum(row[name] is True for row in done) for name in _MARKS},
        **{status: sum(row["status"] == status for row in done) for status in _STATUS},
    }


def _page(document: Mapping[str, Any]) -> str:
    """Return the same as Markdown."""
    from evopolicygym.envs.levels import LEVELS

    families: Sequence[Mapping[str, Any]] = document["families"]
    counted = [*LEVELS[1:], *_MARKS, *_STATUS] if document["checked"] else []
    lines = [
        "# Environments by family",
        "",
        "Made by `evopolicygym discover-envs`; do not edit. Levels come from `check-envs`:",
        "[status.md](status.md) says what each asks for.",
        "",
        "| " + " | ".join(["family", "extra", "versions", "ids", *counted]) + " |",
        "|" + "---|" * (4 + len(counted)),
    ]
    for family in families:
        shown = ", ".join(f"{name} {v}" for name, v in family["versions"].items())
        cells = [family["name"], family["extra"], shown if family["installed"] else "not installed"]
        cells += [str(len(family["environments"]))]
        cells += [str(family["counts"][name]) for name in counted]
        lines.append("| " + " | ".join(cells) + " |")
    totals = [str(sum(family["counts"][name] for family in families)) for name in counted]
    cells = ["**all**", "", "", str(document["ids"]), *totals]
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
            marks = [_mark(row.get(name)) for name in _MARKS]
            remark = row.get("known_failure") or row.get("reason", "not checked")
            cells = [f"`{row['id']}`", row.get("level", "L0"), *marks, remark.replace("|", "\\|")]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _mark(value: bool | None) -> str:
    return "–" if value is None else ("yes" if value else "no")
