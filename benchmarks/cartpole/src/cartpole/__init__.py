"""CartPole as an EvoPolicyGym Benchmark, written on the public API only: copy it for your own."""

from __future__ import annotations

from importlib.resources import files

from cartpole.benchmark import CartPoleBenchmark
from evopolicygym import Program

__all__ = ["CartPoleBenchmark", "baseline_program"]


def baseline_program() -> Program:
    """Return a weak but honest starting policy: push towards the side the pole leans to."""
    return Program({"policy.py": files("cartpole").joinpath("baseline_policy.py").read_bytes()})
