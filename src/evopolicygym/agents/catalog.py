"""Providers by the name that files and command lines use, and their options as text."""

from __future__ import annotations

import dataclasses
import shlex
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from evopolicygym.agents.acp import Acp
from evopolicygym.agents.claude_code import ClaudeCode
from evopolicygym.agents.codex import Codex
from evopolicygym.agents.command import Command
from evopolicygym.agents.kimi_code import KimiCode
from evopolicygym.agents.provider import Provider
from evopolicygym.agents.search import Search
from evopolicygym.errors import ConfigurationError, near_miss
from evopolicygym.run.agent import Agent

__all__ = ["PROVIDERS", "create", "option_names"]

PROVIDERS: dict[str, type[Any]] = {
    "search": Search,
    "codex": Codex,
    "claude": ClaudeCode,
    "kimi": KimiCode,
    "acp": Acp,
    "command": Command,
}
"""Every provider by its kind."""

_NOT_OPTIONS = ("argv", "model")  # they have a place of their own


def option_names(kind: str) -> list[str]:
    """Return the names of a provider's options."""
    return [f.name for f in dataclasses.fields(PROVIDERS[kind]) if f.name not in _NOT_OPTIONS]


def create(
    kind: str,
    *,
    model: str | None = None,
    options: Mapping[str, Any] | None = None,
    argv: Sequence[str] = (),
) -> Agent:
    """Create a provider.

    Args:
        kind: A key of `PROVIDERS`.
        model: Name of the model, or None.
        options: Option → value, as text or of its own type. `environment.NAME` sets one variable.
        argv: The command of `command` and `acp`; further arguments for the other clients.

    Raises:
        ConfigurationError: Unknown kind or option, or a value that does not fit; says where.
    """
    if kind not in PROVIDERS:
        raise ConfigurationError(
            f"$.agent.kind is {kind!r}, expected one of {', '.join(PROVIDERS)}."
            f"{near_miss(kind, PROVIDERS, count=1)}"
        )
    provider = PROVIDERS[kind]
    values: dict[str, Any] = {}
    for name, value in (options or {}).items():
        _set(values, kind, name, value)
    if provider is Search:
        if argv:
            raise ConfigurationError(
                f"the search agent takes no command: {shlex.join(argv)!r}; "
                "did you mean $.agent.kind command?"
            )
    else:
        values["model"] = model
        if issubclass(provider, Provider):
            values["args"] = [*values.get("args", ()), *argv]
        else:
            values["argv"] = tuple(argv)
    agent: Agent = provider(**values)
    return agent


def _set(values: dict[str, Any], kind: str, name: str, value: Any) -> None:
    field, _, key = name.partition(".")
    known = option_names(kind)
    if field not in known:
        raise ConfigurationError(
            f"$.agent.{name}: the {kind} agent has no such option, expected one of "
            f"{', '.join(known) or 'none'}.{near_miss(field, known, count=1)}"
        )
    hint = get_type_hints(PROVIDERS[kind])[field]
    if get_origin(hint) is Mapping:
        new = {key: value} if key else value
        if not isinstance(new, Mapping) or not all(isinstance(v, str) for v in new.values()):
            raise ConfigurationError(
                f"$.agent.{name}: expected text under a name, e.g. {field}.NAME=value"
            )
        values[field] = {**values.get(field, {}), **new}
    elif key:
        raise ConfigurationError(f"$.agent.{name}: {field} is one value, it has no parts")
    else:
        values[field] = _converted(f"$.agent.{name}", hint, value)


def _converted(path: str, hint: Any, value: Any) -> Any:
    """Return `value` as a field's type asks for it."""
    if get_origin(hint) in (Union, types.UnionType):
        if value is None:
            return None
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        hint = str
    if get_origin(hint) is Sequence:
        items = [item for item in value.split(",") if item] if isinstance(value, str) else value
        if isinstance(items, list | tuple) and all(isinstance(item, str) for item in items):
            return tuple(items)
        raise ConfigurationError(f"{path} is {value!r}, expected a list of words: one,two")
    if hint is bool:
        word = value if isinstance(value, bool) else _BOOLEANS.get(str(value).lower())
        if word is None:
            raise ConfigurationError(f"{path} is {value!r}, expected true or false")
        return word
    if isinstance(value, str) and hint is not str:
        try:
            return hint(value)
        except ValueError:
            raise ConfigurationError(f"{path} is {value!r}, expected a number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float) if hint is float else hint):
        raise ConfigurationError(
            f"{path} is {value!r}, expected {'text' if hint is str else 'a number'}"
        )
    return value


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
