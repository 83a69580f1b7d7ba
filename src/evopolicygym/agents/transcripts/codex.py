"""Reads `codex exec --json` and the rollout file of its thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evopolicygym.agents.transcripts import amount, error_kind, events, mapping, session, text
from evopolicygym.run.agent import AgentEvidence, TokenUsage, Transcript

__all__ = ["read_codex"]

# Items that are no tools; every other kind of item is one.
_WORDS = ("agent_message", "reasoning", "error", "todo_list", "plan")


def read_codex(evidence: AgentEvidence, home: Path) -> Transcript:
    """Read one `codex exec`.

    Args:
        evidence: What the process left behind.
        home: `CODEX_HOME`, where the session's rollout file is.
    """
    session_id = evidence.session_id
    usage, tools, begun = None, 0, False
    final_message = stop_reason = failure = None
    for event in events(evidence.stdout):
        kind, begun = event.get("type"), True
        if kind == "thread.started":
            session_id = session(event.get("thread_id")) or session_id
        elif kind == "item.completed":
            item = mapping(event.get("item"))
            if item.get("type") == "agent_message":
                final_message = text(item.get("text"))
            tools += item.get("type") not in _WORDS
        elif kind == "turn.completed":
            stop_reason, failure = "turn.completed", None
            usage = _usage(mapping(event.get("usage")))
        elif kind == "turn.failed":
            stop_reason = "turn.failed"
            failure = text(mapping(event.get("error")).get("message")) or "turn.failed"
    closed = stop_reason is not None
    rollouts = _rollouts(home, session_id)
    model, calls = None, None
    if rollouts:
        counted, model, calls = _count(rollouts)
        usage = counted or usage
    return Transcript(
        session_id=session_id,
        model=model,
        usage=usage,
        usage_complete=closed and usage is not None,
        model_calls=calls,
        tool_calls=tools,
        final_message=final_message,
        stop_reason=stop_reason,
        error=None if failure is None else error_kind(failure),
        error_message=failure,
        closed=closed,
        begun=begun,
        files={path.name: path for path in rollouts if path.is_file()},
    )


def _rollouts(home: Path, session_id: str | None) -> list[Path]:
    """Return the rollout files of a session: its thread's own, then those of its subagents."""
    if session_id is None:
        return []
    own = next(home.glob(f"sessions/*/*/*/rollout-*-{session_id}.jsonl"), None)
    if own is None:
        return []
    # Paths hold the time; subagents come later. Each says first whose session it is of.
    later = sorted(p for p in home.glob("sessions/*/*/*/rollout-*.jsonl") if str(p) > str(own))
    return [own, *(path for path in later if _session_of(path) == session_id)]


def _session_of(path: Path) -> str | None:
    first = next(events(path), {})
    return text(mapping(first.get("payload")).get("session_id"))


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    """Return disjoint counts: Codex's input includes what was cached. Totals of the thread."""
    read = amount(usage.get("cached_input_tokens"))
    write = amount(usage.get("cache_write_input_tokens"))
    return TokenUsage(
        input=max(0, amount(usage.get("input_tokens")) - read - write),
        cache_read=read,
        cache_write=write,
        output=amount(usage.get("output_tokens")),
    )


def _count(
    rollouts: Sequence[Path],
) -> tuple[TokenUsage | None, str | None, int | None]:
    """Return tokens of all responses so far, the model, and the responses of the newest turn.

    Each response has its record as soon as it is there, also in a turn that is killed; the
    thread's own totals lose those.
    """
    total, model, turn = TokenUsage(), None, None
    calls: dict[str | None, int] = {}
    for path in rollouts:
        for line in events(path):
            payload = mapping(line.get("payload"))
            if line.get("type") == "turn_context" and path == rollouts[0]:
                model = text(payload.get("model")) or model
            elif line.get("type") == "token_usage_record":
                total += _usage(mapping(payload.get("usage")))
                root = text(payload.get("root_turn_id"))
                calls[root] = calls.get(root, 0) + 1
                turn = root if path == rollouts[0] else turn
    return (total, model, calls.get(turn)) if calls else (None, model, None)
