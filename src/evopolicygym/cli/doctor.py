"""`evopolicygym doctor`: can this machine play Runs?"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from evopolicygym.cli.output import FAILED, print_json, reported, table

__all__ = ["command"]


@reported
def command(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check what a Run needs, and say what to do where something is missing."""
    results: list[dict[str, object]] = []
    for name, check in _CHECKS.items():
        try:
            detail, passed = check(), True
        except Exception as error:
            detail, passed = f"{type(error).__name__}: {error}", False
        results.append({"check": name, "passed": passed, "detail": detail})
    passed = all(result["passed"] for result in results)
    if json:
        print_json({"passed": passed, "checks": results})
    else:
        rows = [
            [str(r["check"]), "ok" if r["passed"] else "FAILED", str(r["detail"])] for r in results
        ]
        table("doctor", ["Check", "Result", "Detail"], rows)
    if not passed:
        raise typer.Exit(FAILED)


def _python() -> str:
    if sys.platform != "linux":
        raise RuntimeError(f"{sys.platform}: policies run on Linux only")
    return f"Python {sys.version.split()[0]} on Linux"


def _packages() -> str:
    names = ("numpy", "gymnasium", "pydantic", "msgspec", "fastapi", "uvicorn", "cma")
    return ", ".join(f"{name} {version(name)}" for name in names)


def _session_command() -> str:
    tools = Path(sys.executable).absolute().parent
    found = shutil.which("evopolicygym-session", path=str(tools))
    if found is None:
        raise RuntimeError(f"evopolicygym-session is not in {tools}: install the package again")
    return found


def _cores() -> str:
    from evopolicygym.execution import available_cores

    return f"{available_cores()} usable; one worker a core by default"


def _socket_directory() -> str:
    from evopolicygym.execution.runtime_directory import runtime_directory

    with runtime_directory() as directory:
        return f"private directories in {directory.parent}"


def _episode() -> str:
    from evopolicygym.envs.starter import starter_program
    from evopolicygym.envs.toy import ToyBenchmark
    from evopolicygym.evaluation import evaluate
    from evopolicygym.execution import ProcessExecution

    began = time.perf_counter()
    result = evaluate(
        starter_program(ToyBenchmark()),
        ToyBenchmark(),
        execution=ProcessExecution.unsafe(),
        jobs=1,
    )
    failure = result.episodes[0].failure
    if failure is not None:
        raise RuntimeError(f"the starter policy failed: {failure.message}")
    return f"worker, zygote and policy work ({time.perf_counter() - began:.1f} s)"


def _extras() -> str:
    found = []
    for name in ("box2d", "mujoco", "minigrid", "highway-env", "gymnasium-robotics", "ale-py"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return (
        ", ".join(found)
        or "none: Classic Control, Toy Text and toy only; "
        "Box2D and MuJoCo come with the extra env-gym"
    )


_CHECKS: dict[str, Callable[[], str]] = {
    "python": _python,
    "packages": _packages,
    "session command": _session_command,
    "cores": _cores,
    "socket directory": _socket_directory,
    "one Episode": _episode,
    "environment extras": _extras,
}
