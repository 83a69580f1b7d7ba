"""`evopolicygym evaluate`: play one Program and score it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from evopolicygym.cli.output import (
    FAILED,
    execution_named,
    notice,
    number,
    print_json,
    reported,
    table,
)

__all__ = ["command"]


@reported
def command(
    program: Annotated[Path, typer.Argument(help="Program directory.")],
    env: Annotated[str, typer.Option(help="Benchmark id, e.g. gym/cartpole.")],
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "validation",
    episodes: Annotated[int, typer.Option(help="Number of Episodes.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of the plan.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Workers; default: one a core.")] = None,
    timeout: Annotated[float, typer.Option(help="Policy time of one Episode, seconds.")] = 30.0,
    trajectories: Annotated[
        Path | None, typer.Option(help="Write trajectories to this directory.")
    ] = None,
    execution: Annotated[str, typer.Option(help="How policies run: unsafe.")] = "unsafe",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Evaluate a Program on a Benchmark."""
    from evopolicygym.benchmark import SPLITS
    from evopolicygym.envs import load
    from evopolicygym.errors import near_miss
    from evopolicygym.evaluation import EvaluationConfig, evaluate
    from evopolicygym.program import Program
    from evopolicygym.run.record import prepare_directory

    config = EvaluationConfig(
        split=split, episodes=episodes, seed=seed, episode_timeout_seconds=timeout
    )
    hint = near_miss(split, SPLITS)
    if split not in SPLITS and hint:
        notice(f"note: the split {split!r} is none of {', '.join(SPLITS)}.{hint}")
    chosen = execution_named(execution)
    snapshot = Program.from_directory(program)
    benchmark = load(env)
    if trajectories is not None:
        prepare_directory(trajectories)
    result = evaluate(
        snapshot,
        benchmark,
        execution=chosen,
        config=config,
        jobs=jobs,
        directory=trajectories,
    )
    failed = [e for e in result.episodes if e.failure or e.environment_error]
    if json:
        print_json(
            {
                "benchmark_id": result.benchmark_id,
                "environment_digest": result.environment_digest,
                "program_digest": result.program_digest,
                "score": result.score,
                "content": result.feedback.content,
                "episodes": [asdict(episode) for episode in result.episodes],
            }
        )
    else:
        rows = [
            [
                str(episode.index),
                str(episode.steps),
                number(episode.score_return),
                "environment_error"
                if episode.environment_error
                else f"{episode.failure.code}: {episode.failure.message}"
                if episode.failure
                else "terminated"
                if episode.terminated
                else "truncated",
            ]
            for episode in result.episodes
        ]
        table(
            f"{env}, {split}: score {number(result.score)}, {len(failed)} of {episodes} failed",
            ["Episode", "Steps", "Return", "End"],
            rows,
        )
    if result.score is None:
        raise typer.Exit(FAILED)
