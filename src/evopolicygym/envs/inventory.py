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

from evopolicygym.envs.catalog import ALIASES, CORE_16
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
    "registered_id",
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


def expected_failure(benchmark_id: str) -> tuple[str, str] | None:
    """Return the (pattern, reason) that says that an id can't run, or None."""
    env_id = registered_id(benchmark_id)
    if env_id is None:
        return None
    return next((row for row in known_failures() if re.fullmatch(row[0], env_id)), None)


def registered_id(benchmark_id: str) -> str | None:
    """Return the id that Gymnasium knows a Benchmark id by, or None if it is none of its."""
    if benchmark_id in ALIASES:
        return ALIASES[benchmark_id].env_id
    name, _, env_id = benchmark_id.partition("/")
    return env_id if name == "gymnasium" else None


def family_name(benchmark_id: str) -> str:
    """Return the family that a Benchmark id looks like one of."""
    env_id = registered_id(benchmark_id)
    family = family_of(env_id) if env_id is not None else None
    return OTHER if family is None else family.name


def installed(benchmark_id: str) -> bool:
    """Return whether the family of an id is installed; nothing is imported."""
    name = family_name(benchmark_id)
    modules = [m for family in FAMILIES if family.name == name for m in family.modules]
    return all(find_spec(module.partition(".")[0]) for module in modules)


def default_ids() -> list[str]:
    """Return every id with a name of its own, and Core-16, as far as they are installed."""
    from evopolicygym.envs import known_ids

    ids = [*known_ids(), *(f"gymnasium/{env_id}" for env_id in CORE_16)]
    return [benchmark_id for benchmark_id in ids if installed(benchmark_id)]


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
    before: set[str] = set()
    families: list[dict[str, Any]] = []
    for family in FAMILIES:
        reason = ""
        try:
            register(family)
        except ConfigurationError as error:
            reason = one_line(str(error))
        ids = sorted(gymnasium.registry.keys() - before)
        before.update(ids)
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
                "ids": ids,
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
