"""What an agent is told about an environment: written texts as data, a generic one for the rest.

`texts/*.toml` has one table a registered id; `also` names more ids with the same text, `extends`
an entry to take missing fields from. A component is `[name, unit, low, high, meaning]`. An
observation is a list of blocks: components (once a row with `rows` or `repeat`) or `about` alone.
"""

from __future__ import annotations

import inspect
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from types import MappingProxyType
from typing import Any

from evopolicygym.errors import BenchmarkError
from evopolicygym.spaces import Space, describe

__all__ = ["HEADINGS", "generic_text", "observation_ranges", "task_text"]

_NEEDED = {"objective", "observation", "action", "reward", "termination", "notes"}
_KEYS = _NEEDED | {"also", "extends", "about", "action_about", "steps"}
_BLOCK_KEYS = {"path", "about", "rows", "repeat", "axes", "components"}
_UNKNOWN = "not documented"
_FEW = 3
_TITLES = {  # heading: words in the titles of the documentation's sections
    "Objective": "description|mission space",
    "Observation": "observation|starting state",
    "Action": "action",
    "Reward": "reward",
    "Termination": "terminat|episode end|truncat",
    "Notes": "note|dynamics",
}
HEADINGS = ("Objective", "Policy Interface", *list(_TITLES)[1:])


@cache
def _texts() -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = {}
    for file in files("evopolicygym.envs").joinpath("texts").iterdir():
        entries = tomllib.loads(file.read_text("utf-8"))
        if given.keys() & entries:
            raise BenchmarkError(f"task texts given twice: {sorted(given.keys() & entries)}")
        given |= entries
    texts: dict[str, dict[str, Any]] = {}
    for name, entry in given.items():
        full = {**given.get(entry.get("extends", ""), {}), **entry}
        about = entry.get("about", {})
        blocks = [{"path": "", "about": "", **block} for block in full.get("observation", ())]
        blocks = [{**b, "about": about.get(b["path"], b["about"])} for b in blocks]
        unknown = (entry.keys() - _KEYS).union(*(b.keys() - _BLOCK_KEYS for b in blocks))
        unknown |= about.keys() - {block["path"] for block in blocks}
        rows = [row for b in blocks for row in b.get("components", ())]
        rows += [row for row in full.get("action", ()) if not isinstance(row, str)]
        wrong = [row for row in rows if len(row) != 5 or not row[2] <= row[3]]
        if unknown or wrong or not full.keys() >= _NEEDED:
            why = f"unknown {sorted(unknown)}, {sorted(_NEEDED - full.keys())} missing, {wrong}"
            raise BenchmarkError(f"task text {name}: {why}")
        for env_id in (name, *entry.get("also", ())):
            texts[env_id] = {**full, "observation": blocks}
    return texts


def observation_ranges(env_id: str) -> dict[tuple[str, int], tuple[float, float]]:
    """Return what the text says about each element: (path, flat index) to (low, high).

    A path is the keys of nested Dict and Tuple spaces, joined by `/`; it is empty at the top.
    """
    ranges: dict[tuple[str, int], tuple[float, float]] = {}
    for block in _texts()[env_id.removeprefix("gymnasium/")]["observation"]:
        path, start = block["path"], sum(key[0] == block["path"] for key in ranges)
        rows = block.get("components", []) * _repeat(block)
        ranges |= {(path, start + k): (float(r[2]), float(r[3])) for k, r in enumerate(rows)}
    return ranges


def _repeat(block: Mapping[str, Any]) -> int:
    return len(block["rows"]) if "rows" in block else int(block.get("repeat", 1))


def task_text(
    env_id: str, observation_space: Space, action_space: Space, max_episode_steps: int
) -> str | None:
    """Return the written text of a registered id (with or without `gymnasium/`), or None."""
    text = _texts().get(env_id.removeprefix("gymnasium/"))
    if text is None:
        return None
    action = [f"- `{n}`: {row}" for n, row in enumerate(text["action"])]
    if not isinstance(text["action"][0], str):
        action = _table(text["action"], 0, "{}")
    return _render(
        observation_space,
        action_space,
        min(max_episode_steps, text.get("steps", max_episode_steps)),
        text["objective"],
        "\n\n".join(filter(None, _observation(text["observation"]))),
        f"{text.get('action_about', '')}\n\n" + "\n".join(action),
        text["reward"],
        text["termination"],
        "\n".join("- " + re.sub(r"\n(?=.)", "\n  ", note) for note in text["notes"]),
    )


def _render(observation: Space, action: Space, steps: int, *sections: str) -> str:
    texts = dict(zip(_TITLES, sections, strict=True))
    texts["Policy Interface"] = (
        f"`act(observation)` gets {_value(observation)}. It returns {_value(action)}; "
        "anything outside the action space fails the Episode."
    )
    texts["Termination"] += f"\n\nTruncated after {steps} steps."
    return "\n".join(f"## {heading}\n\n{texts[heading].strip()}\n" for heading in HEADINGS)


def _observation(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    count: dict[str, int] = {}
    for block in blocks:
        path, components = block["path"], block.get("components", [])
        start, size, repeat = count.get(path, 0), len(components), _repeat(block)
        count[path] = start + size * repeat
        label, base = ("{}", start) if repeat == 1 else (f"{start} + {size} * row + {{}}", 0)
        label = f"{block['axes'][:-1]}, {{}}]" if "axes" in block else label
        rows = ", ".join(f"{n} {row}" for n, row in enumerate(block.get("rows", ())))
        rows = f"Rows: {rows}." * bool(rows)
        yield " ".join(filter(None, (f"`{path}`:" * bool(path), block["about"], rows)))
        yield "\n".join(_table(components, base, label) if components else ())


def _table(components: Sequence[Sequence[Any]], start: int, label: str) -> list[str]:
    lines = ["| index | name | unit | low | high | meaning |\n|---|---|---|---|---|---|"]
    for number, (name, unit, low, high, meaning) in enumerate(components, start):
        cells = (label.format(number), name, unit, f"{low:.6g}", f"{high:.6g}", meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _value(space: Space) -> str:
    """Say what a member of a space is in Python."""
    kind, start = space["type"], space.get("start", 0)
    if kind == "Discrete":
        return f"an `int` from {start} to {start + space['n'] - 1}"
    if kind in ("Box", "MultiBinary", "MultiDiscrete"):
        dtype = space.get("dtype", "int8" if kind == "MultiBinary" else "int64")
        shape = f"shape `{tuple(space['shape'])}`" if "shape" in space else "the shape of `nvec`"
        return f"a numpy array of dtype `{dtype}` and {shape}"
    if kind == "Dict":
        parts = (f"{keys} ({_value(part)})" for keys, part in _alike(space["spaces"]))
        return "a `dict` with " + ", ".join(parts)
    if kind == "Tuple":
        return f"a `tuple` of ({'; '.join(map(_value, space['spaces']))})"
    return "a `str`" if kind == "Text" else f"a `tuple`, a member of {describe(space)}"


def _alike(parts: Mapping[str, Space]) -> Iterator[tuple[str, Space]]:
    """Yield keys and part of a Dict; many equal neighbours, agents for instance, are named once."""
    for _, group in groupby(parts.items(), key=lambda item: repr(item[1])):
        items = list(group)
        if len(items) > _FEW:
            yield f"`{items[0][0]}` to `{items[-1][0]}`, {len(items)} keys, each", items[0][1]
        else:
            yield from ((f"`{key}`", part) for key, part in items)


def generic_text(
    observation_space: Space,
    action_space: Space,
    max_episode_steps: int,
    documentation: str | None,
    texts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a text of the spaces and the environment's own documentation; nothing is invented.

    Args:
        observation_space: Plain mapping.
        action_space: Plain mapping.
        max_episode_steps: Step limit.
        documentation: Docstring of the environment.
        texts: What is known besides: heading → Markdown, put before what is documented.
    """
    said: dict[str, str] = {}
    text = inspect.cleandoc(documentation or "")
    level, *_ = [*re.findall(r"(?m)^#+(?= )", text), "#"]
    pieces = re.split(rf"(?m)^{level} +(.+?) *$", text)
    for title, body in zip(["description", *pieces[1::2]], pieces[0::2], strict=True):
        heading = next((h for h, words in _TITLES.items() if re.search(words, title.lower())), "")
        text = re.sub(r"(?m)^(?=#)", r"\\", body.strip())
        said[heading] = f"{said.get(heading, '')}\n\n{text}".strip()
    known = {h: "\n\n".join(filter(None, (texts.get(h), said.get(h)))) for h in _TITLES}
    said = {heading: known[heading] or _UNKNOWN for heading in _TITLES}
    head = "| component | meaning | low | high |\n|---|---|---|---|\n"
    for heading, space in (("Observation", observation_space), ("Action", action_space)):
        said[heading] = head + "\n".join([*_declared(space, ""), "", said[heading]])
    said["Notes"] += "\n\nWhere the documentation differs from the spaces, the spaces hold."
    return _render(observation_space, action_space, max_episode_steps, *said.values())


def _declared(space: Space, path: str) -> Iterator[str]:
    """Yield every component with its declared range; equal neighbours share a line."""
    kind, parts = space["type"], space.get("spaces", ())
    named = _alike(parts) if isinstance(parts, Mapping) else enumerate(parts)
    for key, part in named:
        yield from _declared(part, f"{path}/{str(key).replace('`', '')}".strip("/"))
    if kind in ("Box", "MultiBinary"):
        low, high = _flat(space.get("low", 0)), _flat(space.get("high", 1))
        size = math.prod(space["shape"])
        low, high = (side * size if len(side) == 1 else side for side in (low, high))
    elif kind in ("Discrete", "MultiDiscrete"):
        counts, low = _flat(space.get("n", space.get("nvec"))), _flat(space.get("start", 0))
        low = low * len(counts) if len(low) == 1 else low
        high = [start + n - 1 for start, n in zip(low, counts, strict=True)]
    else:
        low = high = [] if parts else [_UNKNOWN]
    next_index = 0
    for bounds, group in groupby(zip(low, high, strict=True)):
        index, next_index = next_index, next_index + len(list(group))
        where = f"{path} {index}" + (f" to {next_index - 1}" if next_index > index + 1 else "")
        yield f"| {where.strip()} | {_UNKNOWN} | {bounds[0]} | {bounds[1]} |"


def _flat(values: Any) -> list[Any]:
    return [x for v in values for x in _flat(v)] if isinstance(values, list) else [values]
