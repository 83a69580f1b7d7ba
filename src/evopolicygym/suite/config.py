"""Configuration files of `run` and `suite`: TOML or JSON, one validated model each.

A file has `[run]` or `[[run]]`, `[agent]` or `[[agent]]`, `[server]`, `[suite]` and `[defaults]`,
whose keys are those of `[run]` and hold where a run says nothing. Every error names its path, and
all of a file's errors come at once.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from evopolicygym.agents.catalog import PROVIDERS, option_names
from evopolicygym.errors import ConfigurationError, near_miss
from evopolicygym.strict_json import loads

__all__ = [
    "AgentSection",
    "RunSection",
    "ServerSection",
    "SuiteFile",
    "SuiteSection",
    "read_config",
]

_MAX_BYTES = 1 << 20
_COUNT = 1_000_000

Count = Annotated[int, Field(ge=1, le=_COUNT)]
OrNone = Annotated[int, Field(ge=0, le=_COUNT)]
Seconds = Annotated[float, Field(gt=0, le=1e7, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RunSection(_Section):
    """`[run]`: what is played, and its limits. What is None was not given.

    Attributes:
        env: Benchmark id.
        bulk: A named set of environments instead of `env`: `core16`.
        data: Directory of data splits (`data make`); with `bulk`, of one such directory for each.
        key: Tells this run from others of the same environment; part of the experiment's name.
        exp_id: Name of the experiment in the layout.
        model: The agents' model, where an agent names none.
        runs: Root of the layout, for `run`; a suite has `suite.root`.
        root: Directory of the record instead of the layout, for `run`.
        budget: Episodes that all Submissions may use.
        pool: Training Episodes; the budget if not given.
        max_submissions: Most Submissions.
        minimum: Fewest Episodes of one Submission.
        maximum: Most Episodes of one Submission.
        valid_size: Validation Episodes a candidate; 0 for no Validation.
        candidates: Most candidates with Validation.
        final_size: Held-out Episodes; 0 for no Assessment.
        seed: Seed of the Run; repeat n of a suite has `seed + n`.
        jobs: Worker processes of one Run.
        timeout: Policy time of one Episode, seconds.
        agent_timeout: Time of the agent, seconds.
        max_turns: Most prompts to an agent that stops without finish.
        program: Initial Program directory; a starter if not given.
        skills: Directories of agent skills.
        prices: Price table (JSON).
        execution: How policies run: `unsafe`.
    """

    env: Name | None = None
    bulk: Name | None = None
    data: Name | None = None
    key: Name | None = None
    exp_id: Name | None = None
    model: Name | None = None
    runs: Name | None = None
    root: Name | None = None
    budget: Count | None = None
    pool: Count | None = None
    max_submissions: Count | None = None
    minimum: Count | None = None
    maximum: Count | None = None
    valid_size: OrNone | None = None
    candidates: Annotated[int, Field(ge=1, le=1_000)] | None = None
    final_size: OrNone | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    jobs: Annotated[int, Field(ge=1, le=1_024)] | None = None
    timeout: Seconds | None = None
    agent_timeout: Seconds | None = None
    max_turns: Count | None = None
    program: Name | None = None
    skills: list[Name] | None = None
    prices: Name | None = None
    execution: Name | None = None


class AgentSection(BaseModel):
    """`[agent]`: who plays. Further keys are options of the provider, see docs/agents.md.

    Attributes:
        kind: A provider: search, codex, claude, kimi, acp or command.
        name: What it is called in the layout and in tables; its model or kind if not given.
        model: Name of the model.
        binary: Program of the client, if it is not the one on PATH.
        args: Of `command` and `acp` the command; further arguments for the other clients.
        retries: How often it is tried again after errors of its model's provider.
        retry_backoff: Wait before the first retry, seconds; it doubles.
        limit: Most cells of a suite that this agent plays at once.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    kind: Name
    name: Name | None = None
    model: Name | None = None
    binary: Name | None = None
    args: list[str] | None = None
    retries: Annotated[int, Field(ge=0, le=100)] | None = None
    retry_backoff: Seconds | None = None
    limit: Count | None = None

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of the provider."""
        own = {} if self.binary is None else {"executable": self.binary}
        return {**(self.model_extra or {}), **own}


class ServerSection(_Section):
    """`[server]`: the session over HTTP.

    Attributes:
        bind: Loopback address.
        port: Its port; 0 picks a free one.
    """

    bind: Name | None = None
    port: Annotated[int, Field(ge=0, le=65_535)] = 0


class SuiteSection(_Section):
    """`[suite]`: how many Runs, and where.

    Attributes:
        name: Name of the suite; of its experiments where a run has none.
        root: Where its records go: `root/<model>/<env>/<exp-id>/`.
        repeats: Runs of each environment by each agent, with different seeds.
        jobs: Runs at once.
        retries: How often a Run is played again whose agent was rate-limited or did not start.
    """

    name: Name = "suite"
    root: Name | None = None
    repeats: Annotated[int, Field(ge=1, le=1_000)] = 1
    jobs: Annotated[int, Field(ge=1, le=1_024)] = 1
    retries: Annotated[int, Field(ge=0, le=100)] = 1


class SuiteFile(_Section):
    """A whole file."""

    run: list[RunSection] = Field(min_length=1)
    agent: list[AgentSection] = Field(default=[AgentSection(kind="search")], min_length=1)
    server: ServerSection = ServerSection()
    suite: SuiteSection = SuiteSection()
    defaults: RunSection = RunSection()

    def runs(self) -> list[RunSection]:
        """Return the runs with what the defaults say where they say nothing."""
        common = self.defaults.model_dump(exclude_none=True)
        return [RunSection(**{**common, **_own(run, common)}) for run in self.run]


def _own(run: RunSection, common: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run says itself; an `env` of its own replaces a default `bulk`, and back."""
    own = run.model_dump(exclude_none=True)
    for one, other in (("env", "bulk"), ("bulk", "env")):
        if one in own and other in common and other not in own:
            own[other] = None
    return own


def read_config(path: Path) -> SuiteFile:
    """Read and validate a file.

    Args:
        path: `.toml` or `.json`.

    Raises:
        ConfigurationError: It can't be read, or something in it is wrong: all of that, one line
            each.
    """
    if path.suffix not in (".toml", ".json"):
        raise ConfigurationError(f"{path}: expected a file that ends in .toml or .json")
    try:
        data = path.read_bytes()
        if len(data) > _MAX_BYTES:
            raise ConfigurationError(f"{path} has {len(data)} bytes, expected at most {_MAX_BYTES}")
        value = loads(data) if path.suffix == ".json" else tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no {path.suffix[1:].upper()}: {error}") from None
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from None
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path}: expected an object with run and agent")
    single = {name for name in ("run", "agent") if isinstance(value.get(name), dict)}
    for name in single:
        value[name] = [value[name]]
    try:
        file, errors = SuiteFile.model_validate(value), []
    except ValidationError as error:
        file, errors = None, [_said(one, single) for one in error.errors()]
    errors += _further(value, single)
    if errors or file is None:
        lines = "\n  ".join(dict.fromkeys(errors))
        raise ConfigurationError(f"{path}:\n  {lines}" if len(errors) > 1 else f"{path}: {lines}")
    return file


def _path(place: tuple[int | str, ...], single: set[str]) -> str:
    """Return `$.run[2].budget`; a table that is no list has no number."""
    text = "$"
    for at, part in enumerate(place):
        if isinstance(part, int):
            text += "" if at == 1 and place[0] in single else f"[{part}]"
        else:
            text += f".{part}"
    return text


def _said(error: ErrorDetails, single: set[str]) -> str:
    """Return one error of the model as a line."""
    place, kind, context = error["loc"], error["type"], error.get("ctx", {})
    path = _path(place, single)
    if kind == "missing":
        return f"{path} is missing"
    if kind == "extra_forbidden":
        known = _known(place)
        near = near_miss(str(place[-1]), known, count=1)
        return f"{path} is no key, expected {_words(known)}.{near}"
    if kind == "too_short" and len(place) == 1:
        return f"{path} is empty, expected at least one table"
    value = error["input"]
    return f"{path} is {_shown(value)}, expected {_expected(kind, context)}"


_BOUNDS = {
    "greater_than_equal": ">= {ge}",
    "greater_than": "> {gt}",
    "less_than_equal": "<= {le}",
    "less_than": "< {lt}",
    "string_too_short": "a text that is not empty",
    "string_too_long": "at most {max_length} characters",
    "too_short": "at least one",
    "finite_number": "a finite number",
}
_TYPES = {
    "int": "an integer",
    "float": "a number",
    "string": "text",
    "list": "a list",
    "bool": "true or false",
    "model": "a table",
    "dict": "a table",
}


def _expected(kind: str, context: Mapping[str, Any]) -> str:
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**context)
    return _TYPES.get(kind.partition("_")[0], kind)


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:59] + "…"


def _words(names: list[str]) -> str:
    return ", ".join(names)


_SECTIONS: dict[str, type[BaseModel]] = {
    "run": RunSection,
    "defaults": RunSection,
    "agent": AgentSection,
    "server": ServerSection,
    "suite": SuiteSection,
}


def _known(place: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the table that a key is in."""
    model = SuiteFile if len(place) == 1 else _SECTIONS[str(place[0])]
    return [*model.model_fields]


def _further(value: Mapping[str, Any], single: set[str]) -> list[str]:
    """Return what is wrong beyond single values; says nothing of what is wrong in itself."""
    errors: list[str] = []
    defaults = value.get("defaults") if isinstance(value.get("defaults"), dict) else {}
    for at, table in _tables(value, "run"):
        merged = {**(defaults or {}), **table}
        where = _path(("run", at), single)
        if ("env" in table) and ("bulk" in table):
            errors.append(f"{where} has env and bulk, expected one of them")
        if not {"env", "bulk"} & merged.keys():
            errors.append(f"{where}.env is missing: a Benchmark id, or bulk for a set of them")
        if "budget" not in merged:
            errors.append(f"{where}.budget is missing")
        errors += _contradictions(where, merged)
    for at, table in _tables(value, "agent"):
        errors += _agent_errors(_path(("agent", at), single), table)
    return errors


def _tables(value: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    tables = value.get(name)
    for at, table in enumerate(tables if isinstance(tables, list) else ()):
        if isinstance(table, dict):
            yield at, table


def _contradictions(where: str, run: Mapping[str, Any]) -> Iterator[str]:
    def number(name: str) -> Any:
        value = run.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    pool = number("pool") if "pool" in run else number("budget")
    order: tuple[tuple[str, Any, str, Any], ...] = (
        ("minimum", number("minimum"), "maximum", number("maximum")),
        ("minimum", number("minimum"), "budget", number("budget")),
        ("minimum", number("minimum"), "pool", pool),
    )
    for small, least, large, most in order:
        if least is not None and most is not None and least > most:
            yield f"{where}.{small} is {least}, expected at most {large}, which is {most}"


def _agent_errors(where: str, table: Mapping[str, Any]) -> Iterator[str]:
    kind = table.get("kind")
    if not isinstance(kind, str):
        return
    if kind not in PROVIDERS:
        near = near_miss(kind, PROVIDERS, count=1)
        yield f"{where}.kind is {kind!r}, expected {_words([*PROVIDERS])}.{near}"
        return
    known = [*AgentSection.model_fields, *option_names(kind)]
    for name in table:
        if name.partition(".")[0] not in known:
            yield (
                f"{where}.{name} is no key of the {kind} agent, expected {_words(known)}."
                f"{near_miss(name, known, count=1)}"
            )
