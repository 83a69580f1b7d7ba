"""`evopolicygym agents`: which providers there are, and which of them are ready here."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from evopolicygym.cli.output import print_json, reported, table

__all__ = ["command"]


@reported
def command(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the agents: found or not, version, how to install and log in, options."""
    from evopolicygym.agents.catalog import PROVIDERS, option_names

    rows = [{**_row(kind, PROVIDERS[kind]), "options": option_names(kind)} for kind in PROVIDERS]
    if json:
        print_json({"agents": rows})
        return
    found = {True: "yes", False: "no", None: "–"}
    table(
        "agents",
        ["Agent", "Found", "Version"],
        [[row["agent"], found[row["found"]], row["version"] or "–"] for row in rows],
    )
    for row in rows:
        typer.echo(f"{row['agent']}:")
        for name in ("install", "login"):
            if row[name] is not None:
                typer.echo(f"  {name}: {row[name]}")
        typer.echo(f"  options: {', '.join(row['options'])}")


def _row(kind: str, provider: type[Any]) -> dict[str, Any]:
    from importlib.util import find_spec

    from evopolicygym import __version__
    from evopolicygym.agents.provider import Provider
    from evopolicygym.errors import ConfigurationError

    row: dict[str, Any] = {"agent": kind, "found": True, "version": __version__}
    row |= {"executable": None, "install": None, "login": None}
    if issubclass(provider, Provider):
        client = provider()
        row |= {"install": provider.INSTALL, "login": provider.LOGIN}
        try:
            row |= {"executable": client.found(), "version": client.version()}
        except ConfigurationError:
            row |= {"found": False, "version": None}
    elif kind == "acp":
        row |= {
            "found": find_spec("acp") is not None,
            "version": None,
            "install": 'pip install "evopolicygym[agents]"',
            "login": "as the agent after -- asks for",
        }
    elif kind == "command":
        row |= {"found": None, "version": None}
    return row
