"""Reads what an agent answered in the line protocol; see `docs/agents.md`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evopolicygym.agents.transcripts import amount, cost, mapping, text
from evopolicygym.run.agent import AgentErrorKind, AgentEvidence, TokenUsage, Transcript

__all__ = ["read_dialogue"]


def read_dialogue(evidence: AgentEvidence) -> Transcript:
    """Read the answers of one process; without any it was a one-shot program."""
    # A turn that was refused by the provider costs nothing that anybody would report.
    paid = [a.data for a in evidence.answers if not a.data.get("error") or a.data.get("usage")]
    usages = [usage for data in paid if (usage := _usage(data)) is not None]
    costs = [cost(data.get("cost_usd")) for data in paid]
    models = [model for data in paid if (model := text(data.get("model")))]
    known = Transcript(
        model=models[-1] if models else None,
        usage=sum(usages, TokenUsage()) if usages else None,
        usage_complete=evidence.answered and len(usages) == len(paid),
        several_models=len(set(models)) > 1,
        cost_usd=sum(value for value in costs if value is not None)
        if costs and None not in costs
        else None,
    )
    if not evidence.answered:
        return known
    last = evidence.answers[-1]
    error, calls = mapping(last.data.get("error")), last.data.get("model_calls")
    kind = error.get("kind")
    return replace(
        known,
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
