"""The table for people and for other programs: terminal, Markdown, LaTeX, CSV, JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evopolicygym.analysis.sheets import caption, sheets
from evopolicygym.analysis.table_models import RunRow, Spread, TableFile
from evopolicygym.strict_json import pretty

__all__ = ["FORMATS", "Format", "print_table", "render"]

Format = Literal["terminal", "markdown", "csv", "json", "latex"]

FORMATS: Mapping[str, Format] = {
    ".md": "markdown",
    ".csv": "csv",
    ".json": "json",
    ".tex": "latex",
    ".txt": "terminal",
}
"""Ending of a file's name → what is written into it."""

_FILE_WIDTH = 220
"""Characters of a line of the terminal's tables where no terminal says how many it has."""


def render(table: TableFile, kind: Format) -> str:
    """Return the table as text that ends with a line feed; equal tables give equal texts."""
    if kind == "json":
        return pretty(table.model_dump(mode="json", by_alias=True)).decode()
    if kind == "csv":
        return _csv(table)
    if kind == "markdown":
        return _markdown(table)
    if kind == "latex":
        return _latex(table)
    text = io.StringIO()
    print_table(table, Console(file=text, width=_FILE_WIDTH, color_system=None))
    return text.getvalue()


def print_table(table: TableFile, console: Console) -> None:
    """Print the table to a terminal."""
    for sheet in sheets(table):
        view = Table(title=_plain(sheet.title), title_justify="left", title_style="bold")
        for name, numeric in zip(sheet.columns, sheet.numeric, strict=True):
            side: Literal["right", "left"] = "right" if numeric else "left"
            view.add_column(_plain(name), justify=side, overflow="fold")
        for row in sheet.rows:
            view.add_row(*map(_plain, row))
        console.print(view)
    for line in caption(table):
        console.print(_plain(line))


def _plain(text: str) -> Text:
    """Return text in which rich finds no markup and no emoji."""
    return Text(_clean(text))


def _clean(text: str) -> str:
    """Return one line: what an agent says can't drive a terminal or break a table."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text)


# ----------------------------------------------------------------------------------- Markdown


def _markdown(table: TableFile) -> str:
    parts = []
    for sheet in sheets(table):
        lines = [f"**{_markdown_text(sheet.title)}**", "", _markdown_row(sheet.columns)]
        lines.append("".join("|--:" if numeric else "|:--" for numeric in sheet.numeric) + "|")
        lines += map(_markdown_row, sheet.rows)
        parts.append("\n".join(lines))
    parts.append("\n".join(f"- {_markdown_text(line)}" for line in caption(table)))
    return "\n\n".join(parts) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_markdown_text, cells))} |"


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|~&$])", r"\\\1", _clean(text))


# -------------------------------------------------------------------------------------- LaTeX

_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "–": "--",
        "…": r"\ldots{}",
        "≥": r"$\geq$",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)


def _latex(table: TableFile) -> str:
    parts = []
    for sheet in sheets(table):
        rows = ["    " + " & ".join(map(_latex_text, row)) + r" \\" for row in sheet.rows]
        columns = "".join("r" if numeric else "l" for numeric in sheet.numeric)
        parts += [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{_latex_text(sheet.title)}}}",
            rf"  \begin{{tabular}}{{{columns}}}",
            r"    \hline",
            "    " + " & ".join(map(_latex_text, sheet.columns)) + r" \\",
            r"    \hline",
            *rows,
            r"    \hline",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    parts += [r"\begin{itemize}", *(rf"  \item {_latex_text(o)}" for o in caption(table))]
    return "\n".join([*parts, r"\end{itemize}"]) + "\n"


def _latex_text(text: str) -> str:
    escaped = _clean(text).translate(_LATEX)
    # A hyphen before a number is a minus sign. A row that begins with [ would be an option of \\.
    escaped = re.sub(r"(?<![\w.)}-])-(?=\d)", "$-$", escaped)
    return f"{{{escaped}}}" if escaped.startswith(("[", "*")) else escaped


# ---------------------------------------------------------------------------------------- CSV

_CSV = (
    *("row", "entry", "environment", "family", "score_direction", "repeats", "unscored"),
    *("heldout_mean", "heldout_min", "heldout_max", "heldout_episodes"),
    *("final_score", "final_score_min", "final_score_max", "no_final_score"),
    *("rank", "rank_score", "no_rank_score", "ranked_entries", "environments", "of"),
    "scored_environments",
    *("episodes_used", "submissions", "wall_seconds", "tokens", "tokens_complete"),
    *("cost_usd", "estimated_cost_usd", "terminal_reason", "unscored_reason", "record"),
    *("random", "random_source", "expert", "expert_source", "ties", "entry_count", "anchors"),
)


def _csv(table: TableFile) -> str:
    """One rectangle: rows of the kinds `total`, `family`, `cell` and `unscored`.

    Unknown is empty. The last columns say what the numbers depend on, in every row.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV, restval="", lineterminator="\n")
    writer.writeheader()
    about = {"ties": table.ties, "entry_count": table.entry_count, "anchors": table.anchors}
    for row in _csv_rows(table):
        writer.writerow(
            {
                name: _clean(value) if isinstance(value, str) else value
                for name, value in (about | row).items()
            }
        )
    return text.getvalue()


def _csv_rows(table: TableFile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for entry in table.entries:
        scores = {"total": entry.rank_score, **entry.family_rank_scores}
        for name, score in scores.items():
            named = {"row": "total"} if name == "total" else {"row": "family", "family": name}
            rank = {"entry": entry.entry, "rank_score": score.value, "of": score.of}
            rows.append({**named, **rank, "environments": score.environments})
        rows[-len(scores)]["final_score"] = entry.final_score.value
        rows[-len(scores)]["scored_environments"] = entry.final_score.environments
    environments = {one.environment: one for one in table.environments}
    for cell in table.cells:
        one = environments[cell.environment]
        rows.append(
            {
                "row": "cell",
                **cell.model_dump(exclude={"heldout", "heldout_episodes", "final_score", "usage"}),
                **({} if cell.usage is None else cell.usage.model_dump()),
                "family": one.family,
                "score_direction": one.score_direction,
                "ranked_entries": one.ranked_entries,
                **_csv_spread("heldout", "heldout_mean", cell.heldout),
                "heldout_episodes": " ".join(map(str, cell.heldout_episodes)),
                **_csv_spread("final_score", "final_score", cell.final_score),
                "random": one.random and one.random.value,
                "random_source": one.random and one.random.source,
                "expert": one.expert and one.expert.value,
                "expert_source": one.expert and one.expert.source,
            }
        )
    return rows + [_csv_unscored(run) for run in table.runs if not run.scored]


def _csv_spread(name: str, mean: str, spread: Spread | None) -> dict[str, float]:
    if spread is None:
        return {}
    return {mean: spread.mean, f"{name}_min": spread.min, f"{name}_max": spread.max}


def _csv_unscored(run: RunRow) -> dict[str, Any]:
    names = {"entry", "environment", "terminal_reason", "unscored_reason", "record"}
    return {"row": "unscored", **run.model_dump(mode="json", include=names)}
