"""`evopolicygym anchors`: what knowing nothing scores, measured and kept in the catalog."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evopolicygym.cli.output import execution_named, notice, number, print_json, reported, table
from evopolicygym.errors import ConfigurationError, ExecutionError

if TYPE_CHECKING:
    from evopolicygym.benchmark import Benchmark
    from evopolicygym.envs.anchors import Anchors
    from evopolicygym.evaluation import EvaluationConfig, EvaluationResult
    from evopolicygym.program import Program

__all__ = ["command"]

_SPLIT = "test"
_TIMEOUT = 600.0


@reported
def command(
    env: Annotated[
        list[str] | None, typer.Option(help="Benchmark id, e.g. gym/cartpole; repeatable.")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="All of a suite: core16.")] = None,
    episodes: Annotated[int, typer.Option(help="Held-out Episodes a policy, at least 2.")] = 256,
    seed: Annotated[int, typer.Option(help="Seed of the plan.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Workers; default: one a core.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Update the catalog's rows.")] = False,
    file: Annotated[
        Path | None, typer.Option(help="The file that --write updates; default: the catalog's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure the random and the no-op policy on the held-out split."""
    from evopolicygym.envs import catalog, load
    from evopolicygym.envs.anchors import LEAST_EPISODES, anchors_file, anchors_text, read_anchors
    from evopolicygym.evaluation import EvaluationConfig, evaluate, positive_integer
    from evopolicygym.run.files import write_atomically

    positive_integer("$.episodes", episodes, least=2)  # one has no standard error
    config = EvaluationConfig(
        split=_SPLIT, episodes=episodes, seed=seed, episode_timeout_seconds=_TIMEOUT
    )
    if file is not None and not write:
        raise ConfigurationError("--file is what --write updates: give both")
    of_suite = () if suite is None else catalog.suite(suite)
    names = list(dict.fromkeys([*(env or ()), *of_suite]))
    if not names:
        raise ConfigurationError("nothing to measure: give --env ID or --suite core16")
    benchmarks = [load(name) for name in names]
    path = anchors_file() if file is None else file
    kept = read_anchors(path) if write and path.exists() else {}
    if write:  # that it can't be written is to be known before hours of playing
        write_atomically(path, anchors_text(kept).encode())
    play = partial(evaluate, execution=execution_named("unsafe"), config=config, jobs=jobs)
    measured: dict[str, Anchors] = {}
    for benchmark in benchmarks:
        notice(f"{benchmark.spec.id}: {episodes} Episodes a policy")
        key = str(benchmark.spec.metadata.get("gymnasium_id", benchmark.spec.id))
        measured[key] = _measured(benchmark, play, config, kept.get(key))
        if write:  # after each: a long list that is interrupted has not been for nothing
            kept[key] = measured[key]
            write_atomically(path, anchors_text(kept).encode())
    if json:
        print_json(
            {
                "split": _SPLIT,
                "seed": seed,
                "interval": f"normal, 95 %; null below {LEAST_EPISODES} Episodes",
                "anchors": [_document(key, row) for key, row in measured.items()],
                "written": str(path) if write else None,
            }
        )
        return
    table(
        f"anchors, {_SPLIT}, seed {seed}; normal 95 % interval from {LEAST_EPISODES} Episodes on",
        ["Environment", "Policy", "Mean", "From", "To", "Episodes"],
        [
            [key, policy, *map(number, (one.mean, *(one.interval or (None, None)))), str(episodes)]
            for key, row in measured.items()
            for policy, one in (("random", row.random), ("no-op", row.noop))
        ],
    )
    if write:
        typer.echo(f"written: {path}")


def _measured(
    benchmark: Benchmark,
    play: Callable[[Program, Benchmark], EvaluationResult],
    config: EvaluationConfig,
    before: Anchors | None,
) -> Anchors:
    """Play both policies; an expert that is already in the row stays."""
    from evopolicygym.envs.anchors import Anchors, Measurement, documented_expert, versions
    from evopolicygym.envs.baselines import noop_program, random_program

    spec = benchmark.spec

    def mean(program: Program) -> Measurement:
        result = play(program, benchmark)
        for episode in result.episodes:
            why = episode.environment_error or (episode.failure and episode.failure.message)
            if why:  # a mean over what is left would be no anchor
                raise ExecutionError(f"{spec.id}: Episode {episode.index} failed: {why}")
        return Measurement.of([episode.total_reward for episode in result.episodes])

    known = None if before is None else before.expert
    return Anchors(
        benchmark=spec.id,
        max_episode_steps=spec.max_episode_steps,
        split=config.split,
        seed=config.seed,
        random=mean(random_program(spec)),
        noop=mean(noop_program(spec)),
        expert=known or documented_expert(spec),
        versions=versions(spec),
    )


def _document(key: str, row: Anchors) -> dict[str, Any]:
    from dataclasses import asdict

    document = {"env_id": key, **asdict(row)}
    for policy, one in (("random", row.random), ("noop", row.noop)):
        document[policy]["interval"] = None if one.interval is None else list(one.interval)
    return document
