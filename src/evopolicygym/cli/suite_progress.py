"""What `suite` shows while it plays: a grid on a terminal, lines otherwise, or JSON lines."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evopolicygym.cli.output import notice, number, print_json

if TYPE_CHECKING:
    from evopolicygym.suite.scheduler import CellEvent

__all__ = ["SuiteProgress"]

_ROWS = 30
_TOLD = ("cell_started", "cell_retry", "cell_ended", "submission_published", "search_ended")


@dataclass
class _Shown:
    """What is shown of one cell."""

    state: str = "waiting"
    episodes: int = 0
    last: float | None = None
    score: float | None = None
    reason: str = ""


class SuiteProgress:
    """Observer of a suite.

    Args:
        budgets: Cell → Episode budget, in order.
        as_json: Print JSON lines to stdout instead.
    """

    def __init__(self, budgets: Mapping[str, int], as_json: bool) -> None:
        self._budgets, self._json = budgets, as_json
        self._cells = {name: _Shown() for name in budgets}
        self._live: Any = None
        if not as_json and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True, refresh_per_second=4)

    def __enter__(self) -> SuiteProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, event: CellEvent) -> None:
        """Show one event."""
        if self._json:
            if event.kind in _TOLD:
                print_json({"kind": event.kind, "cell": event.cell, "data": dict(event.data)})
            return
        self._note(self._cells[event.cell], event.kind, event.data)
        if self._live is not None:
            self._live.update(self._grid())
        else:
            self._line(event)

    def _note(self, cell: _Shown, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "cell_started":
            cell.state, cell.episodes, cell.last, cell.reason = "search", 0, None, ""
        elif kind == "submission_published":
            cell.episodes, cell.last = data["episodes_used"], data["score"]
        elif kind in ("validation_started", "assessment_started"):
            cell.state = kind.removesuffix("_started")
        elif kind == "cell_retry":
            cell.state, cell.reason = "waits for a retry", data["reason"]
        elif kind == "cell_ended":
            cell.state = "ended" if data["counts"] else "unscored"
            cell.score, cell.reason = data["score"], data["reason"]

    def _line(self, event: CellEvent) -> None:
        cell = self._cells[event.cell]
        if event.kind == "cell_started":
            notice(f"{event.cell}: started")
        elif event.kind == "cell_retry":
            notice(f"{event.cell}: {cell.reason}; again in {event.data['seconds']:g} s")
        elif event.kind == "cell_ended":
            done = sum(one.state in ("ended", "unscored") for one in self._cells.values())
            score = number(cell.score)
            notice(f"{done}/{len(self._cells)}  {event.cell}: {cell.reason}, held-out {score}")

    def _grid(self) -> Any:
        from rich.table import Table

        counts = Counter(cell.state for cell in self._cells.values())
        title = ", ".join(f"{count} {state}" for state, count in counts.items())
        view = Table(title=title)
        for column in ("Cell", "State", "Episodes", "Training", "Held-out", ""):
            view.add_column(column)
        for name in self._busy():
            cell = self._cells[name]
            view.add_row(
                *(name, cell.state, f"{cell.episodes}/{self._budgets[name]}"),
                *(number(cell.last), number(cell.score), cell.reason[:60]),
            )
        return view

    def _busy(self) -> Sequence[str]:
        """Return the cells that fit on a screen: those at work, then those that ended last."""
        order = ("search", "validation", "assessment", "waits for a retry", "unscored", "ended")
        names = sorted(
            (name for name, cell in self._cells.items() if cell.state in order),
            key=lambda name: order.index(self._cells[name].state),
        )
        shown = {*names[:_ROWS]}
        return [name for name in self._cells if name in shown]
