"""The cells of a suite: every run with every agent, as often as it is repeated.

A cell's record is `root/<model>/<env>/<exp-id>/`, with the safe reversible names of
`evopolicygym.run.layout`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evopolicygym.envs.catalog import suite as named_set
from evopolicygym.errors import ConfigurationError
from evopolicygym.run.layout import run_directory, safe_name
from evopolicygym.suite.config import AgentSection, RunSection, ServerSection, SuiteFile
from evopolicygym.suite.play import Prepared, prepared

__all__ = ["Cell", "cells_of", "identity"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One Run of a suite.

    Attributes:
        name: `<model>/<env>/<exp-id>`, the place of its record below the suite's root.
        agent_name: What the agent is called in the layout and in tables.
        env: Benchmark id.
        repeat: Number of the repeat, from 0.
        settings: Its `[run]`, complete; its seed is the repeat's own.
        agent: Its `[agent]`.
        server: `[server]`.
        where: Tables of the file that it comes from, for messages.
    """

    name: str
    agent_name: str
    env: str
    repeat: int
    settings: RunSection
    agent: AgentSection
    server: ServerSection
    where: tuple[str, str]

    def prepared(self) -> Prepared:
        """Load, read and check what it needs.

        Raises:
            ConfigurationError: Something can't be used, or is not installed; says where.
        """
        return prepared(self.settings, self.agent, self.server, where=self.where[0])

    @property
    def provider(self) -> str:
        """What a cap on cells at once counts by."""
        return self.agent_name


def cells_of(file: SuiteFile) -> list[Cell]:
    """Return every cell, in the order of the file: runs, their environments, agents, repeats.

    Raises:
        ConfigurationError: A key does not belong in a suite, a set of environments is unknown, or
            two cells would have the same record: says where.
    """
    cells: list[Cell] = []
    owners: dict[str, tuple[str, str]] = {}
    one = len(file.run) == 1
    for number, settings in enumerate(file.runs()):
        where = "$.run" if one else f"$.run[{number}]"
        for key in ("runs", "root"):
            if getattr(settings, key) is not None:
                raise ConfigurationError(f"{where}.{key}: in a suite it is $.suite.root")
        if settings.bulk is None:
            environments: Sequence[str] = (str(settings.env),)
        else:
            try:
                environments = named_set(settings.bulk)
            except ConfigurationError as error:
                said = str(error).replace("--suite", f"{where}.bulk")
                raise ConfigurationError(said) from None
        for env in environments:
            data = settings.data
            if data is not None and settings.bulk is not None:
                data = str(Path(data) / safe_name(env))
            for at, agent in enumerate(file.agent):
                whose = "$.agent" if len(file.agent) == 1 else f"$.agent[{at}]"
                model = agent.model or settings.model
                label = agent.name or model or agent.kind
                for repeat in range(file.suite.repeats):
                    seed = (settings.seed or 0) + repeat
                    exp = _experiment(file, settings, repeat)
                    own = settings.model_copy(
                        update={"env": env, "bulk": None, "data": data, "seed": seed, "exp_id": exp}
                    )
                    name = run_directory(Path(), label, env, exp).as_posix()
                    other = owners.setdefault(name, (where, whose))
                    if other != (where, whose):
                        raise ConfigurationError(
                            f"{where} with {whose} and {other[0]} with {other[1]} have the same "
                            f"record {name}: give runs a key of their own, or agents a name"
                        )
                    cells.append(
                        Cell(name, label, env, repeat, own, agent, file.server, (where, whose))
                    )
    if file.server.port and file.suite.jobs > 1 and len(cells) > 1:
        raise ConfigurationError(
            f"$.server.port is {file.server.port}, expected 0 with $.suite.jobs > 1: cells that "
            "are played at once can't share a port"
        )
    return cells


def _experiment(file: SuiteFile, settings: RunSection, repeat: int) -> str:
    parts = [settings.exp_id or file.suite.name, *filter(None, (settings.key,))]
    if file.suite.repeats > 1:
        parts.append(f"{repeat + 1:03d}")
    return "-".join(parts)


_HOW = frozenset({"jobs", "runs", "root", "data", "program", "skills", "prices", "execution"})
"""Settings that change no score, or that stand here as digests of what they name."""


def identity(cell: Cell, ready: Prepared) -> dict[str, Any]:
    """Return what a cell is, as JSON values: equal ones are the same cell."""
    spec = ready.benchmark.spec
    settings = cell.settings.model_dump(exclude_none=True)
    config = dataclasses.asdict(ready.config)
    for name in ("jobs", "bind", "port"):
        config.pop(name)
    data: Mapping[str, str] | None = getattr(ready.benchmark, "data_digests", None)
    return {
        "env": cell.env,
        "environment_digest": spec.environment_digest,
        "data": None if data is None else dict(data),
        "agent": {"name": cell.agent_name, "kind": cell.agent.kind, **_plain(ready.agent)},
        "config": config,
        "program": ready.program.digest,
        "skills": {skill.name: skill.digest for skill in ready.skills},
        "settings": {name: value for name, value in settings.items() if name not in _HOW},
    }


def _plain(agent: Any) -> dict[str, Any]:
    """Return an agent's model and public options."""
    return {"model": agent.model, "options": dict(agent.describe())}
