"""Reads `kimi -p --output-format stream-json` and the wire files of its session."""

from __future__ import annotations

import re
from pathlib import Path

from evopolicygym.agents.transcripts import amount, error_kind, events, mapping, session, text
from evopolicygym.run.agent import AgentEvidence, TokenUsage, Transcript

__all__ = ["read_kimi_code"]

_FAILURE = re.compile(r"error: failed to run prompt: (.*)")


def read_kimi_code(evidence: AgentEvidence, home: Path, *, own_home: bool) -> Transcript:
    """Read one `kimi -p`.

    Args:
        evidence: What the process left behind.
        home: `KIMI_CODE_HOME`, where the session's files are.
        own_home: Whether nobody else uses that home.
    """
    session_id, hint = evidence.session_id, None
    final_message, tools, calls, begun = None, 0, 0, False
    for event in events(evidence.stdout):
        begun = True
        if event.get("type") == "session.resume_hint":
            hint = session(event.get("session_id"))
            own_home = False  # it has said which session; no other one is
        elif event.get("role") == "assistant":
            calls += 1
            called = event.get("tool_calls")
            tools += len(called) if isinstance(called, list) else 0
            final_message = text(event.get("content")) or final_message
    wires = _wires(home, hint or session_id, own_home=own_home)
    if wires:
        session_id = wires[0].parents[2].name
    total, models = TokenUsage(), list[str | None]()
    for wire in wires:
        for event in events(wire):
            if event.get("type") != "usage.record":
                continue
            usage = mapping(event.get("usage"))
            models.append(text(event.get("model")))
            total += TokenUsage(
                input=amount(usage.get("inputOther")),
                cache_read=amount(usage.get("inputCacheRead")),
                cache_write=amount(usage.get("inputCacheCreation")),
                output=amount(usage.get("output")),
            )
    failed = hint is None and evidence.status not in (None, 0)
    failure = _failure(evidence.stderr) if failed else None
    provider = failure is not None and "provider." in failure
    return Transcript(
        session_id=hint or session_id,
        model=models[0] if models else None,
        usage=total if models else None,
        usage_complete=bool(models) and hint is not None,
        several_models=len(set(models)) > 1,
        model_calls=calls,
        tool_calls=tools,
        final_message=final_message,
        stop_reason="session.resume_hint" if hint is not None else failure,
        error=error_kind(failure or "") if provider else None,
        error_message=failure,
        closed=hint is not None,
        begun=begun,
        files={f"wire-{wire.parent.name}.jsonl": wire for wire in wires},
    )


def _wires(home: Path, session_id: str | None, *, own_home: bool) -> list[Path]:
    """Return the wire files of a session, the main agent's first, then its subagents'."""
    if session_id is None and not own_home:
        return []
    found = [
        path
        for path in home.glob("sessions/*/*/agents/*/wire.jsonl")
        if path.is_file() and session(path.parents[2].name) and session(path.parent.name)
    ]
    if session_id is not None:
        found = [path for path in found if path.parents[2].name == session_id]
    else:  # it ended before it said its name: the newest is this process's
        newest = max((path.parents[2] for path in found), key=_age, default=None)
        found = [path for path in found if path.parents[2] == newest]
    return sorted(found, key=lambda path: (path.parent.name != "main", path.parent.name))


def _age(path: Path) -> float:
    return path.stat().st_mtime


def _failure(stderr: Path) -> str | None:
    try:
        data = stderr.read_bytes()[-65536:]
    except OSError:
        return None
    # It ends with that line and one that names its log; tools print here, too.
    last = data.decode(errors="replace").strip().split("\n")[-2:]
    found = [match[1] for line in last if (match := _FAILURE.match(line))]
    return found[-1] if found else None
