"""`evopolicygym run`: play one Run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evopolicygym.cli.output import (
    FAILED,
    RunProgress,
    execution_named,
    fail,
    notice,
    number,
    print_json,
    reported,
    table,
)
from evopolicygym.errors import ConfigurationError, RecordError

if TYPE_CHECKING:
    from evopolicygym.run.config import RunConfig
    from evopolicygym.run.result import RunResult

__all__ = ["command"]


@reported
def command(
    context: typer.Context,
    env: Annotated[str, typer.Option(help="Benchmark id, e.g. gym/cartpole.")],
    budget: Annotated[int, typer.Option(help="Episodes that all Submissions may use.")],
    agent: Annotated[
        str, typer.Option(help="search, codex, claude, kimi, or acp or command with ARGV after --.")
    ] = "search",
    agent_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the agent; may be repeated."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Data splits to play, see `data make`.")] = None,
    program: Annotated[
        Path | None, typer.Option(help="Initial Program directory; default: a starter.")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Root of the layout <model>/<env>/<exp-id>; default: runs.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The agent's model; names it in the layout, too.")
    ] = None,
    exp_id: Annotated[
        str | None, typer.Option("--exp-id", help="Name in the layout; default: the next number.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Directory of the record, instead of the layout.")
    ] = None,
    pool: Annotated[int | None, typer.Option(help="Training Episodes; default: budget.")] = None,
    max_submissions: Annotated[int, typer.Option(help="Most Submissions.")] = 20,
    minimum: Annotated[int, typer.Option(help="Fewest Episodes of one Submission.")] = 1,
    maximum: Annotated[int | None, typer.Option(help="Most Episodes of one Submission.")] = None,
    valid_size: Annotated[
        int, typer.Option(help="Validation Episodes a candidate; 0 for no Validation.")
    ] = 16,
    candidates: Annotated[int, typer.Option(help="Most candidates with Validation.")] = 3,
    final_size: Annotated[int, typer.Option(help="Held-out Episodes; 0 for no Assessment.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the Run.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Workers; default: one a core.")] = None,
    timeout: Annotated[float, typer.Option(help="Policy time of one Episode, seconds.")] = 30.0,
    agent_timeout: Annotated[float, typer.Option(help="Time of the agent, seconds.")] = 3600.0,
    max_turns: Annotated[
        int, typer.Option(help="Most prompts to an agent that stops without finish.")
    ] = 1,
    retries: Annotated[int, typer.Option(help="Retries after errors of the provider.")] = 3,
    retry_backoff: Annotated[
        float, typer.Option(help="Wait before the first retry, seconds; it doubles.")
    ] = 15.0,
    skill: Annotated[
        list[Path] | None, typer.Option(help="Directory of an agent skill; may be repeated.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="Price table (JSON) to estimate the agent's costs with.")
    ] = None,
    bind: Annotated[
        str | None, typer.Option(help="Loopback address: serve the session over HTTP there, too.")
    ] = None,
    port: Annotated[int, typer.Option(help="Its port; 0 picks a free one.")] = 0,
    execution: Annotated[str, typer.Option(help="How policies run: unsafe.")] = "unsafe",
    json: Annotated[bool, typer.Option("--json", help="End with one JSON object.")] = False,
) -> None:
    """Play one Run: search, Validation, Assessment, record.

    What follows -- goes to the agent; for command and acp it is the agent:
    evopolicygym run --env toy --budget 8 --agent command -- python agent.py
    """
    from evopolicygym.agents.catalog import create
    from evopolicygym.data import SplitBenchmark, read_splits
    from evopolicygym.envs import load
    from evopolicygym.envs.starter import starter_program
    from evopolicygym.program import Program
    from evopolicygym.run.config import AssessmentConfig, RunConfig, ValidationConfig
    from evopolicygym.run.layout import run_directory
    from evopolicygym.run.loop import run
    from evopolicygym.run.prices import PriceTable
    from evopolicygym.skills import AgentSkill

    if root is not None and any(option is not None for option in (runs, exp_id)):
        raise ConfigurationError("--root replaces the layout: leave out --runs and --exp-id")
    for option, size, least in (
        ("--valid-size", valid_size, 0),
        ("--final-size", final_size, 0),
        ("--candidates", candidates, 1),
    ):
        if size < least:
            raise ConfigurationError(f"{option} is {size}, expected {least} or more")
    config = RunConfig(
        max_submissions=max_submissions,
        episode_budget=budget,
        episode_pool_size=pool,
        min_episodes_per_submission=minimum,
        max_episodes_per_submission=maximum,
        seed=seed,
        episode_timeout_seconds=timeout,
        agent_timeout_seconds=agent_timeout,
        max_turns=max_turns,
        agent_retries=retries,
        agent_retry_backoff_seconds=retry_backoff,
        bind=bind,
        port=port,
        validation=ValidationConfig(valid_size, max_candidates=candidates) if valid_size else None,
        assessment=AssessmentConfig(final_size) if final_size else None,
        jobs=jobs,
    )
    provider = create(
        agent, model=model, options=_options(agent_option or []), argv=list(context.args)
    )
    provider.check()
    skills = [AgentSkill.from_directory(directory) for directory in skill or []]
    table_of_prices = None if prices is None else PriceTable.from_file(prices)
    chosen = execution_named(execution)
    benchmark = load(env)
    if data is not None:
        benchmark = SplitBenchmark(benchmark, read_splits(data))
    start = starter_program(benchmark) if program is None else Program.from_directory(program)
    if agent == "search" and program is not None:
        notice("note: the search agent starts from a policy of its own, not from --program")
    if model is None:
        model = provider.model or provider.name
    record = run_directory(runs or Path("runs"), model, env, exp_id) if root is None else root
    with RunProgress(budget) as progress:
        result = _played(
            json,
            record,
            run,
            start,
            benchmark,
            agent=provider,
            execution=chosen,
            record_to=record,
            config=config,
            skills=skills,
            prices=table_of_prices,
            observer=progress,
        )
    done = result.final_submission is not None and (
        config.assessment is None or result.assessment_score is not None
    )
    _show(result, config, done=done, as_json=json)
    if not done:
        raise typer.Exit(FAILED)


def _played(
    as_json: bool, root: Path, call: Callable[..., RunResult], *arguments: Any, **options: Any
) -> RunResult:
    """Play; a record that can't be written now is a failed Run, not a usage error."""
    try:
        return call(*arguments, **options)
    except (RecordError, OSError) as error:
        fail(str(error), FAILED)
    except KeyboardInterrupt:
        if as_json:
            print_json({"done": False, "reason": "interrupted", "root": str(root)})
        if root.exists():
            notice(f"Record: {root}")
        raise


def _options(pairs: list[str]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--agent-option is {pair!r}, expected NAME=VALUE")
        options[name] = value
    return options


def _show(result: RunResult, config: RunConfig, *, done: bool, as_json: bool) -> None:
    selected = result.final_submission
    if as_json:
        print_json(
            {
                "done": done,
                "reason": result.terminal_reason.value,
                "counts": result.counts,
                "message": result.message,
                "root": str(result.record),
                "submissions": len(result.submissions),
                "episodes_used": result.episodes_used,
                "candidates": list(result.candidate_submission_ids),
                "handed_over_by": result.handed_over_by,
                "selected": None if selected is None else selected.submission_id,
                "validation_score": result.validation_score,
                "assessment_score": result.assessment_score,
            }
        )
        return
    validation = result.validation.scores if result.validation else {}
    rows = [
        [
            submission.submission_id,
            str(len(submission.episode_indices)),
            number(submission.score),
            number(validation.get(submission.submission_id)),
            number(result.assessment_score) if submission is selected else "–",
            "selected" if submission is selected else "",
        ]
        for submission in result.submissions
    ]
    columns = ["Submission", "Episodes", "Training", "Validation", "Assessment", ""]
    table(
        f"{result.terminal_reason.value}, {result.episodes_used} of "
        f"{config.episode_budget} Episodes used",
        columns,
        rows,
    )
    typer.echo(f"Record: {result.record}")
    if selected is not None:
        home = f"submissions/{selected.submission_id}"
        typer.echo(f"  {home}/program/    the selected Program")
        typer.echo(f"  {home}/feedback/   its Feedback and trajectories")
    typer.echo("  run.json, events.jsonl, ledger.jsonl, agent/turns.jsonl")
    if result.message:
        notice(f"note: {result.message}")
