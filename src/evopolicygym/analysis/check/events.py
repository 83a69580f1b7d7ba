"""The event log: its order, and that it tells what the files tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from evopolicygym.analysis.check.account import Account
from evopolicygym.analysis.check.documents import Documents, directories
from evopolicygym.analysis.check.finding import FindingCode
from evopolicygym.analysis.check.outcome import cut_short
from evopolicygym.run.models import (
    EpisodeEntry,
    EpisodesFile,
    EventLine,
    HandedOverBy,
    RunFile,
)

__all__ = ["check_events"]

_EVENTS = "events.jsonl"

_PHASES = {
    "run_started": 0,
    **dict.fromkeys(("agent_started", "agent_ended", "turn_ended", "agent_retry"), 1),
    **dict.fromkeys(("submission_started", "submission_published"), 1),
    "search_ended": 2,
    **dict.fromkeys(("validation_started", "validation_ended"), 3),
    **dict.fromkeys(("assessment_started", "assessment_ended"), 4),
    "run_ended": 5,
}
"""Every kind of event but `episode_ended`, in the order in which they may come."""

_ONCE = [kind for kind in _PHASES if kind.startswith(("run", "search", "valid", "assess"))]
_EPISODE_PHASES = {"validation": 3, "assessment": 4}


def check_events(documents: Documents, account: Account | None) -> None:
    """Check order and content of the events."""
    events, run = documents.events, documents.run
    if events is None or run is None:
        return
    problems = [*_order_problems(events, run)]
    problems += _submission_problems(documents, events, account)
    problems += _agent_problems(documents, events)
    if documents.finished:
        problems += _phase_problems(documents, events, run)
    for problem in problems:
        documents.findings.add(FindingCode.EVENTS, _EVENTS, problem)


def _order_problems(events: Sequence[EventLine], run: RunFile) -> Iterable[str]:
    counts = Counter(event.kind for event in events)
    yield from (f"{counts[kind]} events {kind}, expected one" for kind in _ONCE if counts[kind] > 1)
    required = ["run_started"]
    if run.status != "running":
        required.append("run_ended")
        required += [] if cut_short(run) else ["search_ended"]
    yield from (f"there is no event {kind}" for kind in required if not counts[kind])
    phase = 0
    for number, event in enumerate(events, start=1):
        if event.kind == "episode_ended":
            now = _EPISODE_PHASES.get(str(event.data.get("where")), 1)
        elif event.kind in _PHASES:
            now = _PHASES[event.kind]
        else:
            yield f"line {number}: unknown kind {event.kind}"
            continue
        if now < phase:
            yield f"line {number}: {event.kind} comes too late"
        phase = max(phase, now)
    if events and run.status == "running" and counts["run_ended"]:
        yield "there is an event run_ended, but run.json says running"


# -------------------------------------------------------------------------------- submissions


def _submission_problems(
    documents: Documents, events: Sequence[EventLine], account: Account | None
) -> Iterable[str]:
    """Compare the published Submissions with their events."""
    published = [event.data for event in events if event.kind == "submission_published"]
    names = [str(data.get("submission")) for data in published]
    if documents.finished and documents.run is not None and names != documents.run.submissions:
        yield (
            f"submission_published of {', '.join(names) or 'none'}, run.json has "
            f"{', '.join(documents.run.submissions) or 'none'}"
        )
    for name, data in zip(names, published, strict=True):
        submission = documents.submissions.get(name)
        if submission is None:
            continue
        expected: dict[str, object] = {"score": submission.score}
        entry = None if account is None else account.entries.get(name)
        if entry is not None and documents.config is not None:
            expected["episodes_used"] = entry.used_after
            expected["episodes_remaining"] = documents.config.episode_budget - entry.used_after
        yield from _differences(f"submission_published of {name}", data, expected)
        rest = _between(events, name)
        if rest is None:
            yield f"{name} has no single submission_started before its submission_published"
            continue
        started, ended = rest
        yield from _differences(
            f"submission_started of {name}", started, {"selector": submission.selector}
        )
        yield from _episode_problems(name, ended, documents.of("submissions").get(name))


def _between(
    events: Sequence[EventLine], name: str
) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Return the data of a Submission's start, and of its Episodes up to its publication."""
    started: list[dict[str, Any]] = []
    ended: list[dict[str, Any]] = []
    for event in events:
        if event.data.get("submission") == name and event.kind == "submission_started":
            started.append(event.data)
        elif event.data.get("submission") == name and event.kind == "submission_published":
            break
        elif event.kind == "episode_ended" and event.data.get("where") == name and started:
            ended.append(event.data)
    return (started[0], ended) if len(started) == 1 else None


def _episode_problems(
    where: str, ended: Sequence[dict[str, Any]], document: EpisodesFile | None
) -> Iterable[str]:
    """Compare the Episodes of one Evaluation; they end in any order."""
    if document is None:
        return
    rows = {row.index: row for row in document.episodes}
    indices = sorted(str(data.get("index")) for data in ended)
    if indices != sorted(map(str, rows)):
        yield (
            f"{len(ended)} episode_ended of {where} with the indices {', '.join(indices)}, "
            f"expected {len(rows)} as in episodes.json"
        )
        return
    for data in ended:
        row = rows[data["index"]] if data.get("index") in rows else None
        if row is not None:
            yield from _differences(f"episode_ended of {where}, {row.index}", data, _told(row))


def _told(row: EpisodeEntry) -> dict[str, object]:
    return {
        "steps": row.steps,
        "total_reward": row.total_reward,
        "failure": None if row.failure is None else row.failure.code.value,
        "environment_error": row.environment_error,
    }


def _differences(what: str, data: dict[str, Any], expected: dict[str, object]) -> Iterable[str]:
    for name, value in expected.items():
        if data.get(name) != value:
            yield f"{what}: {name} is {data.get(name)}, the files say {value}"


# ----------------------------------------------------------------------------- agent, phases


def _agent_problems(documents: Documents, events: Sequence[EventLine]) -> Iterable[str]:
    """Compare the agent's processes, turns and retries."""
    run, turns = documents.run, documents.turns
    report = None if run is None else run.agent
    retries = sum(event.kind == "agent_retry" for event in events)
    if report is not None and report.retries != retries:
        yield f"{retries} events agent_retry, run.json has {report.retries}"
    if run is None or not documents.finished:
        return
    homes = [home.name for home in directories(documents.root / "agent")]
    ended = None if cut_short(run) else homes
    for kind, expected in (("agent_started", homes), ("agent_ended", ended)):
        told = [str(event.data.get("process")) for event in events if event.kind == kind]
        if expected is not None and told != expected:
            yield (
                f"{kind} of {', '.join(told) or 'none'}, agent/ has {', '.join(expected) or 'none'}"
            )
    for event in events:
        invocation = documents.invocations.get(str(event.data.get("process")))
        if event.kind == "agent_started" and invocation is not None:
            what = f"agent_started of {event.data['process']}"
            yield from _differences(what, event.data, {"argv": invocation.argv})
    for turn in turns or ():
        if turn.process and turn.process not in homes:  # none where it could not be started
            yield f"turn {turn.turn} was played by {turn.process}, agent/ has no such process"
    names = ("turn", "attempt", "reason")
    lines = [[e.data.get(name) for name in names] for e in events if e.kind == "turn_ended"]
    if turns is not None and lines != [[one.turn, one.attempt, one.reason.value] for one in turns]:
        yield f"{len(lines)} turn_ended do not tell the {len(turns)} lines of agent/turns.jsonl"


def _phase_problems(
    documents: Documents, events: Sequence[EventLine], run: RunFile
) -> Iterable[str]:
    """Compare what follows the search with `run.json` and the measurements."""
    data = {event.kind: event.data for event in events if event.kind in _ONCE}
    reason = None if run.terminal_reason is None else run.terminal_reason.value
    named = {} if run.agent is None else {"agent": run.agent.name}
    expected: dict[str, dict[str, object]] = {
        "run_started": {"benchmark": run.benchmark_id, **named},
        "run_ended": {"status": run.status, "reason": reason, "selected": run.selected},
    }
    if not cut_short(run):
        by_agent = run.handed_over_by is HandedOverBy.AGENT
        expected["search_ended"] = {
            "reason": reason,
            "candidates": run.candidates if by_agent else None,
        }
    for purpose, place in (
        ("validation", "validation/selection.json"),
        ("assessment", "assessment/assessment.json"),
    ):
        measurement = documents.measurements.get(place)
        if measurement is None:
            continue
        names = list(measurement.scores)
        scores: object = measurement.scores
        if purpose == "validation":
            expected["validation_started"] = {"candidates": names}
            expected["validation_ended"] = {"scores": scores, "selected": measurement.selected}
        elif names:
            expected["assessment_started"] = {"submission": names[0]}
            expected["assessment_ended"] = {
                "submission": names[0],
                "score": measurement.scores[names[0]],
            }
        yield from _measured_problems(documents, events, purpose, names)
    for kind, values in expected.items():
        if kind in data:
            yield from _differences(kind, data[kind], values)
        elif kind.startswith(("validation", "assessment")) and not cut_short(run):
            yield f"there is no event {kind}"


def _measured_problems(
    documents: Documents, events: Sequence[EventLine], purpose: str, names: Sequence[str]
) -> Iterable[str]:
    """Compare private Episodes: the candidates were played one after the other."""
    ended = [e.data for e in events if e.kind == "episode_ended" and e.data.get("where") == purpose]
    results = documents.of(purpose)
    for name in names:
        result = results.get(name)
        if result is None:
            return
        count = len(result.episodes)
        yield from _episode_problems(f"{purpose} of {name}", ended[:count], result)
        ended = ended[count:]
    if ended:
        yield f"{len(ended)} episode_ended of {purpose} too many"
