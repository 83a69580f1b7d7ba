"""What the command line shows: progress, tables, errors."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import typer

from evopolicygym.errors import ConfigurationError, EvoPolicyGymError, RecordError
from evopolicygym.strict_json import dumps

if TYPE_CHECKING:
    from evopolicygym.execution import ProcessExecution
    from evopolicygym.run.result import RunEvent

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "USAGE",
    "RunProgress",
    "execution_named",
    "fail",
    "notice",
    "number",
    "print_json",
    "reported",
    "table",
]

FAILED, USAGE, INTERRUPTED = 1, 2, 130

_OPTIONS = {
    "$.episode_budget": "--budget",
    "$.episode_pool_size": "--pool",
    "$.max_submissions": "--max-submissions",
    "$.min_episodes_per_submission": "--minimum",
    "$.max_episodes_per_submission": "--maximum",
    "$.validation.episodes_per_candidate": "--valid-size",
    "$.validation.max_candidates": "--candidates",
    "$.assessment.episodes": "--final-size",
    "$.episode_timeout_seconds": "--timeout",
    "$.agent_timeout_seconds": "--agent-timeout",
    "$.max_turns": "--max-turns",
    "$.agent_retries": "--retries",
    "$.agent_retry_backoff_seconds": "--retry-backoff",
    "$.bind": "--bind",
    "$.port": "--port",
    "$.agent.kind": "--agent",
    "$.episodes": "--episodes",
    "$.split": "--split",
    "$.seed": "--seed",
    "$.jobs": "--jobs",
}
"""Where a configuration value comes from on the command line."""

P = ParamSpec("P")
R = TypeVar("R")


def print_json(value: Any) -> None:
    """Print one strict JSON object on one line of stdout."""
    sys.stdout.write(dumps(value).decode() + "\n")
    sys.stdout.flush()


def notice(text: str) -> None:
    """Print a line for a person to stderr; an agent's words can't drive the terminal."""
    readable = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", text)
    sys.stderr.write(readable.encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stderr.flush()


def fail(message: str, code: int) -> NoReturn:
    """Print an error and end with `code`."""
    notice(f"error: {message}")
    raise typer.Exit(code)


def reported(command: Callable[P, R]) -> Callable[P, R]:
    """Turn every deliberate error of a command into a message and an exit code."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ConfigurationError, RecordError) as error:
            fail(re.sub(r"\$[.\w]+", _option, str(error)), USAGE)
        except EvoPolicyGymError as error:
            fail(str(error), FAILED)
        except BrokenPipeError:  # e.g. `evopolicygym … | head`
            raise
        except OSError as error:
            named = f"{error.filename}: " if error.filename else ""
            fail(f"{named[:200]}{error.strerror or error}", USAGE)
        except UnicodeEncodeError as error:
            fail(f"a name is no UTF-8 text: {error.reason}", USAGE)
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)

    return wrapper


def _option(path: re.Match[str]) -> str:
    """Return where a configuration value comes from on the command line."""
    _, found, option = path[0].partition("$.agent.")
    return _OPTIONS.get(path[0], f"--agent-option {option}" if found else path[0])


def execution_named(kind: str) -> ProcessExecution:
    """Return the execution of `--execution`, and say what it means.

    Raises:
        ConfigurationError: There is none of that name.
    """
    from evopolicygym.execution import UNSAFE_NOTICE, ProcessExecution

    if kind != "unsafe":
        raise ConfigurationError(f"--execution is {kind!r}, expected unsafe")
    notice(UNSAFE_NOTICE)
    return ProcessExecution.unsafe()


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table to stdout; columns of numbers are right-aligned."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    view = Table()
    for position, column in enumerate(columns):
        cells = [row[position] for row in rows]
        numeric = all(re.fullmatch(r"–|-?[\d.]+", cell) for cell in cells)
        view.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        view.add_row(*map(escape, row))
    console = Console()
    console.print(title, style="bold", highlight=False, markup=False)
    console.print(view)


def number(value: float | None) -> str:
    """Return a score for a table; a missing one is a dash, never 0."""
    return "–" if value is None else f"{value:.2f}"


class RunProgress:
    """Observer of a Run: a live line on a terminal, plain lines otherwise, on stderr.

    Args:
        budget: The Run's Episode budget.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._live: Any = None
        self._task: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._live = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("Episodes"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._live.add_task("search", total=budget)

    def __enter__(self) -> RunProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: RunEvent) -> None:
        """Show one event."""
        if event.kind == "episode_ended":
            if self._live is not None:
                self._live.update(self._task, advance=1)
            return
        line = self._line(event.kind, event.data)
        if line is None:
            return
        if self._live is not None:
            self._live.console.print(line, highlight=False, markup=False)
        else:
            notice(line)

    def _line(self, kind: str, data: Any) -> str | None:
        if kind == "submission_started" and self._live is not None:
            self._live.update(self._task, description=data["submission"])
        elif kind == "submission_published":
            return (
                f"{data['submission']}  score {number(data['score'])}  "
                f"Episodes {data['episodes_used']}/{self._budget}"
            )
        elif kind == "agent_retry":
            return f"agent: {data['message']}; trying again in {number(data['seconds'])} s"
        elif kind == "search_ended":
            return f"search ended: {data['reason']}" + (
                f" ({data['message']})" if data["message"] else ""
            )
        elif kind in ("validation_started", "assessment_started"):
            if self._live is not None:
                self._live.reset(self._task, total=None, description=kind.removesuffix("_started"))
        elif kind == "validation_ended":
            scores = ", ".join(f"{k} {number(v)}" for k, v in data["scores"].items())
            return f"validation: {scores}; selected {data['selected']}"
        elif kind == "assessment_ended":
            return f"assessment: {data['submission']} {number(data['score'])}"
        return None
