"""Environments as data: find a Benchmark by its id.

Ids are `toy`, the aliases of the catalog (`gym/cartpole`, …), `gymnasium/<Registered-Id>` for
anything registered with Gymnasium, `pettingzoo/<module>` for several agents, and the names that
installed distributions register under the entry-point group `evopolicygym.benchmarks`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from evopolicygym.benchmark import Benchmark
from evopolicygym.envs.catalog import ALIASES, WORST_RETURNS, registered_id
from evopolicygym.errors import BenchmarkError, UnknownEnvironmentError, near_miss

__all__ = ["ENTRY_POINT_GROUP", "known_ids", "load"]

ENTRY_POINT_GROUP = "evopolicygym.benchmarks"


def _registered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}


def known_ids() -> list[str]:
    """Return every id with a name of its own; `gymnasium/<Id>` comes on top."""
    return sorted({"toy", *ALIASES, *_registered()})


def load(benchmark_id: str) -> Benchmark:
    """Return the Benchmark of an id.

    Args:
        benchmark_id: See the module's description.

    Raises:
        UnknownEnvironmentError: No such id; names the nearest ones.
        ConfigurationError: The environment is known but can't be created here.
        BenchmarkError: A registered distribution can't be loaded.
    """
    if benchmark_id == "toy":
        from evopolicygym.envs.toy import ToyBenchmark

        return ToyBenchmark()
    env_id = registered_id(benchmark_id)
    if env_id is not None:
        from evopolicygym.envs.gymnasium_benchmark import GymnasiumBenchmark

        alias = ALIASES.get(benchmark_id)
        return GymnasiumBenchmark(
            benchmark_id,
            env_id,
            max_episode_steps=None if alias is None else alias.max_episode_steps,
            worst_return=WORST_RETURNS.get(env_id),
        )
    point = _registered().get(benchmark_id)
    if point is None:
        raise UnknownEnvironmentError(
            f"unknown environment {benchmark_id!r}.{near_miss(benchmark_id, known_ids())} "
            "Ids are listed by `evopolicygym init --list`; gymnasium/<Id> takes any registered id."
        )
    try:
        benchmark: Benchmark = point.load()()
    except Exception as error:
        raise BenchmarkError(
            f"{benchmark_id!r} ({point.value}) can't be loaded: {type(error).__name__}: {error}"
        ) from error
    return benchmark
