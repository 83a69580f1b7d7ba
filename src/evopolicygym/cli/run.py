"""`evopolicygym run`: play one Run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from evopolicygym.cli.output import (
    FAILED,
    RunProgress,
    fail,
    notice,
    number,
    print_json,
    reported,
    table,
)
from evopolicygym.errors import ConfigurationError, RecordError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from evopolicygym.run.config import RunConfig
    from evopolicygym.run.result import RunEvent, RunResult
    from evopolicygym.suite.config import AgentSection, RunSection, ServerSection
    from evopolicygym.suite.play import Prepared

__all__ = ["command"]


@reported
def command(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="TOML or JSON file; options here go before what it says."),
    ] = None,
    env: Annotated[str | None, typer.Option(help="Benchmark id, e.g. gym/cartpole.")] = None,
    budget: Annotated[
        int | None, typer.Option(help="Episodes that all Submissions may use.")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            help="search, codex, claude, kimi, or acp or command with ARGV after --. "
            "[default: search]"
        ),
    ] = None,
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
    max_submissions: Annotated[
        int | None, typer.Option(help="Most Submissions. [default: 20]")
    ] = None,
    minimum: Annotated[
        int | None, typer.Option(help="Fewest Episodes of one Submission. [default: 1]")
    ] = None,
    maximum: Annotated[int | None, typer.Option(help="Most Episodes of one Submission.")] = None,
    valid_size: Annotated[
        int | None,
        typer.Option(help="Validation Episodes a candidate; 0 for no Validation. [default: 16]"),
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Most candidates with Validation. [default: 3]")
    ] = None,
    final_size: Annotated[
        int | None, typer.Option(help="Held-out Episodes; 0 for no Assessment. [default: 32]")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the Run. [default: 0]")] = None,
    jobs: Annotated[int | None, typer.Option(help="Workers; default: one a core.")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Policy time of one Episode, seconds. [default: 30]")
    ] = None,
    agent_timeout: Annotated[
        float | None, typer.Option(help="Time of the agent, seconds. [default: 3600]")
    ] = None,
    max_turns: Annotated[
        int | None,
        typer.Option(help="Most prompts to an agent that stops without finish. [default: 1]"),
    ] = None,
    retries: Annotated[
        int | None, typer.Option(help="Retries after errors of the provider. [default: 3]")
    ] = None,
    retry_backoff: Annotated[
        float | None,
        typer.Option(help="Wait before the first retry, seconds; it doubles. [default: 15]"),
    ] = None,
    skill: Annotated[
        list[Path] | None, typer.Option(help="Directory of an agent skill; may be repeated.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="Price table (JSON) to estimate the agent's costs with.")
    ] = None,
    bind: Annotated[
        str | None, typer.Option(help="Loopback address: serve the session over HTTP there, too.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Its port; 0 picks a free one. [default: 0]")
    ] = None,
    execution: Annotated[
        str | None, typer.Option(help="How policies run: unsafe. [default: unsafe]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="End with one JSON object.")] = False,
) -> None:
    """Play one Run: search, Validation, Assessment, record.

    What follows -- goes to the agent; for command and acp it is the agent:
    evopolicygym run --env toy --budget 8 --agent command -- python agent.py
    """
    from evopolicygym.execution import UNSAFE_NOTICE
    from evopolicygym.run.layout import run_directory
    from evopolicygym.suite.play import prepared

    for option, size, least in (
        ("--valid-size", valid_size, 0),
        ("--final-size", final_size, 0),
        ("--candidates", candidates, 1),
    ):
        if size is not None and size < least:
            raise ConfigurationError(f"{option} is {size}, expected {least} or more")
    if root is not None and any(option is not None for option in (runs, exp_id)):
        raise ConfigurationError("--root replaces the layout: leave out --runs and --exp-id")
    settings, who, server = _read(config)
    if runs is not None or exp_id is not None:
        settings = settings.model_copy(update={"root": None})
    settings = _over(
        settings,
        env=env,
        data=data,
        model=model,
        exp_id=exp_id,
        runs=runs,
        root=root,
        budget=budget,
        pool=pool,
        max_submissions=max_submissions,
        minimum=minimum,
        maximum=maximum,
        valid_size=valid_size,
        candidates=candidates,
        final_size=final_size,
        seed=seed,
        jobs=jobs,
        timeout=timeout,
        agent_timeout=agent_timeout,
        max_turns=max_turns,
        program=program,
        skills=None if skill is None else [*map(str, skill)],
        prices=prices,
        execution=execution,
    )
    if agent is not None and agent != who.kind:
        # The options of another kind are none of its; an unknown one is refused where it is made.
        who = type(who).model_construct(kind=agent)
    who = _over(who, model=model, retries=retries, retry_backoff=retry_backoff)
    who = _over(who, args=[*context.args] or None, **_options(agent_option or []))
    server = _over(server, bind=bind, port=port)
    if settings.env is None or settings.budget is None:
        missing = "--env" if settings.env is None else "--budget"
        raise ConfigurationError(f"{missing} is missing: give it, or a file with --config")
    ready = prepared(settings, who, server)
    notice(UNSAFE_NOTICE)
    if who.kind == "search" and settings.program is not None:
        notice("note: the search agent starts from a policy of its own, not from --program")
    names = (who.name, ready.agent.model, settings.model, ready.agent.name)
    label = next(name for name in names if name is not None)
    record = (
        run_directory(Path(settings.runs or "runs"), label, settings.env, settings.exp_id)
        if settings.root is None
        else Path(settings.root)
    )
    with RunProgress(settings.budget) as progress:
        result = _played(json, record, ready, progress)
    done = result.final_submission is not None and (
        ready.config.assessment is None or result.assessment_score is not None
    )
    _show(result, ready.config, done=done, as_json=json)
    if not done:
        raise typer.Exit(FAILED)


def _read(config: Path | None) -> tuple[RunSection, AgentSection, ServerSection]:
    """Return the one Run of a file, or what is not said where there is no file.

    Raises:
        ConfigurationError: The file can't be used, or it is a suite.
    """
    from evopolicygym.suite.config import AgentSection, RunSection, ServerSection, read_config

    if config is None:
        return RunSection(), AgentSection(kind="search"), ServerSection()
    file = read_config(config)
    (settings, *others), (who, *rivals) = file.runs(), file.agent
    if others or rivals or settings.bulk is not None:
        raise ConfigurationError(
            f"{config} has more than one Run: play it with `evopolicygym suite --config {config}`"
        )
    return settings, who, file.server


S = TypeVar("S", bound="BaseModel")


def _over(section: S, **given: Any) -> S:
    """Return a section with what was given on the command line instead of what it says."""
    said = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None
    }
    return section.model_copy(update=said) if said else section


def _played(
    as_json: bool, root: Path, ready: Prepared, observer: Callable[[RunEvent], None]
) -> RunResult:
    """Play; a record that can't be written now is a failed Run, not a usage error."""
    try:
        return ready.play(root, observer)
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
