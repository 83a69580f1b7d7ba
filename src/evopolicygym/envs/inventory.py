"""What is installed here: families, the ids they register, and which of those can't run.

`python -P -m evopolicygym.envs.inventory` prints it as one JSON object; the command line asks a
process of its own, because importing every family is slow, loud and changes that process.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from evopolicygym.envs.catalog import CORE_16, benchmark_id, registered_id
from evopolicygym.envs.families import FAMILIES, family_of
from evopolicygym.errors import ConfigurationError, ExecutionError

__all__ = [
    "OTHER",
    "default_ids",
    "expected_failure",
    "family_name",
    "installed",
    "inventory",
    "known_failures",
]

OTHER = "other"
"""Family of ids that no family of the table registers: `toy` and entry points."""

_SIMULATORS = ("box2d", "mujoco", "numpy", "pygame-ce")
_SECONDS = 300


@cache
def known_failures() -> tuple[tuple[str, str], ...]:
    """Return (pattern, reason): registered ids that are known not to run; see the file."""
    text = files("evopolicygym.envs").joinpath("known_failures.toml").read_text("utf-8")
    return tuple((row["pattern"], row["reason"]) for row in tomllib.loads(text)["failure"])


def expected_failure(name: str) -> tuple[str, str] | None:
    """Return the (pattern, reason) that says that an id can't run, or None."""
    env_id = registered_id(name)
    if env_id is None:
        return None
    return next((row for row in known_failures() if re.fullmatch(row[0], env_id)), None)


def family_name(name: str) -> str:
    """Return the family that a Benchmark id looks like one of."""
    env_id = registered_id(name)
    family = family_of(env_id) if env_id is not None else None
    return OTHER if family is None else family.name


def installed(name: str) -> bool:
    """Return whether the family of an id is installed; nothing is imported."""
    own = family_name(name)
    modules = [m for family in FAMILIES if family.name == own for m in family.modules]
    return all(find_spec(module.partition(".")[0]) for module in modules)


def default_ids() -> list[str]:
    """Return every id with a name of its own, and Core-16, as far as they are installed."""
    from evopolicygym.envs import known_ids

    return list(filter(installed, [*known_ids(), *map(benchmark_id, CORE_16)]))


def inventory() -> dict[str, Any]:
    """Return families, their ids and versions, by importing them in another process.

    Raises:
        ExecutionError: That process failed.
    """
    argv = [sys.executable, "-P", "-m", "evopolicygym.envs.inventory"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise ExecutionError(f"the families can't be listed: {error}") from None
    return found


def _found() -> dict[str, Any]:
    """Import every family that is installed here and see what it registers."""
    import gymnasium

    from evopolicygym.envs.check import one_line
    from evopolicygym.envs.families import register

    distributions = packages_distributions()
    reasons: dict[str, str] = {}
    ids: dict[str, list[str]] = {family.name: [] for family in FAMILIES}
    before: set[str] = set()
    for family in FAMILIES:
        reasons[family.name] = ""
        try:
            register(family)
        except ConfigurationError as error:
            reasons[family.name] = one_line(str(error))
        for env_id in sorted(gymnasium.registry.keys() - before):
            before.add(env_id)
            # A package may have several rows here.
            alike = family_of(env_id)
            own = alike is not None and not {*family.modules}.isdisjoint(alike.modules)
            ids[alike.name if own and alike is not None else family.name].append(env_id)
    families: list[dict[str, Any]] = []
    for family in FAMILIES:
        reason = reasons[family.name]
        families.append(
            {
                "name": family.name,
                "extra": family.extra,
                "installed": not reason,
                "reason": reason,
                "versions": {
                    name: version(name)
                    for module in family.modules
                    for name in sorted(set(distributions.get(module.partition(".")[0], ())))
                    if not reason
                },
                "ids": sorted(ids[family.name]),
            }
        )
    return {"families": families, "simulators": _versions()}


def _versions() -> Mapping[str, str]:
    found = {}
    for name in _SIMULATORS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    """Print what is installed as one JSON object."""
    from evopolicygym.envs.check import private_stdout

    with private_stdout() as stream:
        stream.write(json.dumps(_found()))


if __name__ == "__main__":
    main()
