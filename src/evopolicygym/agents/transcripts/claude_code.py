"""Reads `claude -p --output-format stream-json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evopolicygym.agents.transcripts import amount, cost, error_kind, events, mapping, session, text
from evopolicygym.run.agent import AgentErrorKind, AgentEvidence, TokenUsage, Transcript

__all__ = ["read_claude_code"]


def read_claude_code(evidence: AgentEvidence) -> Transcript:
    """Read one `claude -p`."""
    session_id = evidence.session_id
    model = final_message = None
    result: Mapping[str, Any] = {}
    messages: dict[str, Mapping[str, Any]] = {}
    tools, begun = 0, False
    for event in events(evidence.stdout):
        kind, begun = event.get("type"), True
        session_id = session(event.get("session_id")) or session_id
        if kind == "system" and event.get("subtype") == "init":
            model = text(event.get("model"))
        elif kind == "assistant":
            message = mapping(event.get("message"))
            content = message.get("content")
            parts = [mapping(part) for part in content] if isinstance(content, list) else []
            tools += sum(part.get("type") == "tool_use" for part in parts)
            words = [text(part.get("text")) for part in parts if part.get("type") == "text"]
            if event.get("parent_tool_use_id") is None:
                final_message = next((word for word in reversed(words) if word), final_message)
            # One message comes in several events; the newest has its newest count.
            messages[str(message.get("id"))] = mapping(message.get("usage"))
        elif kind == "result":
            result = event
    failed = result.get("is_error") is True
    failure = (text(result.get("result")) or str(result.get("subtype"))) if failed else None
    status = result.get("api_error_status")
    provider = failed and (status is not None or result.get("terminal_reason") == "api_error")
    if failure is not None and error_kind(failure) is AgentErrorKind.AUTH and not tools:
        provider = True  # e.g. not logged in: no request was ever made
    return Transcript(
        session_id=session_id,
        model=model,
        usage=_total(mapping(result.get("modelUsage"))) or _parts(messages),
        usage_complete=bool(mapping(result.get("modelUsage"))),
        several_models=len(mapping(result.get("modelUsage"))) > 1,
        cost_usd=cost(result.get("total_cost_usd")) or None,  # it says 0 where it knows no price
        model_calls=sum(1 for usage in messages.values() if any(map(amount, usage.values()))),
        tool_calls=tools,
        final_message=failure if failed else text(result.get("result")) or final_message,
        stop_reason=text(result.get("terminal_reason")) or text(result.get("subtype")),
        error=error_kind(f"{status or ''} {failure}") if provider else None,
        error_message=failure,
        closed=bool(result),
        begun=begun,
    )


def _total(by_model: Mapping[str, Any]) -> TokenUsage | None:
    """Return the session's account, of all models, so subagents are in it once."""
    total = TokenUsage()
    for usage in map(mapping, by_model.values()):
        total += TokenUsage(
            input=amount(usage.get("inputTokens")),
            cache_read=amount(usage.get("cacheReadInputTokens")),
            cache_write=amount(usage.get("cacheCreationInputTokens")),
            output=amount(usage.get("outputTokens")),
        )
    return total if by_model else None


def _parts(messages: Mapping[str, Mapping[str, Any]]) -> TokenUsage | None:
    """Return a lower bound for a process that ended early; output counts come late."""
    total = TokenUsage()
    for usage in messages.values():
        total += TokenUsage(
            input=amount(usage.get("input_tokens")),
            cache_read=amount(usage.get("cache_read_input_tokens")),
            cache_write=amount(usage.get("cache_creation_input_tokens")),
            output=amount(usage.get("output_tokens")),
        )
    return total if total != TokenUsage() else None
