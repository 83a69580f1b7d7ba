"""Which Runs may stand in one table: what they must have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from evopolicygym.analysis.records import Record, path_text
from evopolicygym.envs.catalog import registered_id
from evopolicygym.errors import ConfigurationError
from evopolicygym.strict_json import dumps

__all__ = ["check_comparable", "entry_of", "environment_of", "settings"]

_CHANGES_NO_SCORE = frozenset(
    {"seed", "jobs", "bind", "port", "agent_retries", "agent_retry_backoff_seconds"}
)
_ALWAYS = ("score_direction", "primary_metric")
"""What no option can mix: there is no mean over two kinds of scores."""

_MOST_SHOWN = 5
_MOST_TEXT = 60


def environment_of(record: Record) -> str:
    """Return what the environment is called: its registered id, or the Benchmark's own."""
    return registered_id(record.run.benchmark_id) or record.run.benchmark_id


def entry_of(record: Record) -> str | None:
    """Return who played: the Run's label, or the agent and its model where one was asked for.

    Returns:
        None where no agent was ever started.
    """
    agent = record.run.agent
    if agent is None or record.run.label is not None:
        return record.run.label
    return agent.name if agent.model is None else f"{agent.name} ({agent.model})"


def settings(record: Record) -> dict[str, Any]:
    """Return what all Runs of one environment must have in common, by name."""
    run = record.run
    config = {name: value for name, value in run.config.items() if name not in _CHANGES_NO_SCORE}
    if config.get("episode_pool_size") is None:  # then it is the budget
        config["episode_pool_size"] = config.get("episode_budget")
    return {
        "benchmark_id": run.benchmark_id,
        "environment_digest": run.environment_digest,
        **{name: getattr(record.spec, name) for name in _ALWAYS},
        "data": run.data,
        "initial_program_digest": run.initial_program_digest,
        **dict(_flat(config)),
    }


def _agent_settings(record: Record) -> dict[str, Any]:
    """Return what the repeats of one entry must have in common on top."""
    agent = record.run.agent
    options = {} if agent is None else agent.description
    return {"skills": record.run.skills, **dict(_flat(options, "agent's "))}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def check_comparable(records: Sequence[Record], *, allow_mixed: bool) -> list[str]:
    """Check that the scored Runs of each environment may be compared.

    All Runs of an environment must have equal `settings`, the repeats of an entry equal options of
    the agent and equal skills, and any two entries of an environment at least one seed in common,
    because the held-out Episodes follow from it.

    Args:
        records: Scored Runs.
        allow_mixed: Return the differences instead of raising.

    Returns:
        One line a difference.

    Raises:
        ConfigurationError: They may not.
    """
    found: list[str] = []
    grouped = _grouped(records, environment_of)
    for environment, runs in sorted(grouped.items()):
        differences = _differences(runs, settings)
        entries = _grouped(runs, lambda record: str(entry_of(record)))
        texts = [f"{environment}: {text}" for text in differences.values()]
        for entry, repeats in sorted(entries.items()):
            options = _differences(repeats, _agent_settings).values()
            texts += [f"{environment}, {entry}: {text}" for text in options]
        seeds = {entry: {one.config.seed for one in some} for entry, some in entries.items()}
        texts += [
            f"{environment}: {one} (seeds {_numbers(seeds[one])}) and {other} "
            f"(seeds {_numbers(seeds[other])}) have no seed in common"
            for one, other in combinations(sorted(seeds), 2)
            if seeds[one].isdisjoint(seeds[other])
        ]
        if any(name in differences for name in _ALWAYS):
            raise ConfigurationError(f"Runs can't be compared: {_listed(texts)}")
        found += texts
    if found and not allow_mixed:
        raise ConfigurationError(
            f"Runs are not comparable: {_listed(found)}. Name directories whose Runs have one "
            "setting (and one --model a kind of agent), or take them together with --allow-mixed"
        )
    return found


def _grouped(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def _differences(
    records: Sequence[Record], described: Callable[[Record], Mapping[str, Any]]
) -> dict[str, str]:
    """Return setting → how the records differ in it."""
    descriptions = [described(record) for record in records]
    names = dict.fromkeys(name for one in descriptions for name in one)
    differences = {}
    for name in names:
        holders: dict[str, list[Record]] = {}
        for record, one in zip(records, descriptions, strict=True):
            holders.setdefault(dumps(one.get(name)).decode(), []).append(record)
        if len(holders) > 1:
            parts = [f"{_cut(value)} in {_places(some)}" for value, some in sorted(holders.items())]
            differences[name] = f"{name} is {', '.join(parts)}"
    return differences


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


def _places(records: Sequence[Record]) -> str:
    more = f" and {len(records) - 1} more" if len(records) > 1 else ""
    return f"{path_text(records[0].path)}{more}"


def _numbers(seeds: set[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_SHOWN
    return "; ".join(texts[:_MOST_SHOWN]) + (f"; and {more} more" if more > 0 else "")
