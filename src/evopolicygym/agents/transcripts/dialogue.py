"""Reads what an agent answered in the line protocol; see `docs/agents.md`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evopolicygym.agents.transcripts import amount, cost, events, mapping, text
from evopolicygym.run.agent import AgentErrorKind, AgentEvidence, TokenUsage, Transcript
from evopolicygym.run.dialogue import Answer, AnswerError, answer_in

__all__ = ["read_dialogue"]


def read_dialogue(evidence: AgentEvidence) -> Transcript:
    """Read the answers of one process; without any it was a one-shot program."""
    by_turn: dict[int, Answer] = {}
    for event in events(evidence.stdout):
        try:
            answer = answer_in(event)
        except AnswerError:
            continue
        by_turn.setdefault(answer.turn, answer)
    if not by_turn:
        return Transcript()
    answers = list(by_turn.values())
    last = answers[-1]
    # A turn that was refused by the provider costs nothing that anybody would report.
    paid = [a for a in answers if a.data.get("error") is None or "usage" in a.data]
    usages = [usage for answer in paid if (usage := _usage(answer.data)) is not None]
    costs = [cost(a.data.get("cost_usd")) for a in answers if a.data.get("error") is None]
    error = mapping(last.data.get("error"))
    kind = error.get("kind")
    calls = last.data.get("model_calls")
    return Transcript(
        model=text(last.data.get("model")),
        usage=sum(usages, TokenUsage()) if usages else None,
        usage_complete=bool(usages) and len(usages) == len(paid),
        cost_usd=sum(value for value in costs if value is not None)
        if costs and None not in costs
        else None,
        model_calls=None if calls is None else amount(calls),
        tool_calls=amount(last.data.get("tool_calls")),
        final_message=text(last.text),
        stop_reason=text(last.data.get("stop_reason")),
        error=AgentErrorKind(kind) if kind in list(AgentErrorKind) else None,
        error_message=text(error.get("message")),
        stop=last.stop,
    )


def _usage(data: Mapping[str, Any]) -> TokenUsage | None:
    """Return the tokens of one turn, or None where the agent does not say."""
    usage = data.get("usage")
    if not isinstance(usage, dict):
        return None
    names = ("input", "cache_read", "cache_write", "output")
    return TokenUsage(**{name: amount(usage.get(name)) for name in names})
