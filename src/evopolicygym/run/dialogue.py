"""The line protocol of persistent agents: one prompt line and one answer line a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evopolicygym.strict_json import dumps, loads

__all__ = ["Answer", "AnswerError", "parse_answer", "prompt_line"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent says at the end of a turn.

    Attributes:
        turn: Number of the prompt that it answers.
        text: Its words.
        stop: Whether it wants no further turn.
        data: Anything else; `usage`, `cost_usd`, `model`, `tool_calls`, `stop_reason` and
            `error` are understood, see `docs/agents.md`.
    """

    turn: int
    text: str = ""
    stop: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)


class AnswerError(ValueError):
    """A line is no answer."""


def prompt_line(turn: int, message: str) -> str:
    """Return the line that begins a turn, without its line feed."""
    return dumps({"type": "prompt", "turn": turn, "message": message}).decode()


def parse_answer(line: str) -> Answer:
    """Return the answer that a line holds.

    Raises:
        AnswerError: It is none; says why.
    """
    try:
        value = loads(line.encode())
    except ValueError as error:
        raise AnswerError(f"is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise AnswerError("is no JSON object")
    turn, text = value.get("turn"), value.get("text", "")
    stop, data = value.get("stop", False), value.get("data", {})
    if isinstance(turn, bool) or not isinstance(turn, int) or turn < 1:
        raise AnswerError(f"has turn {repr(turn)[:40]}, expected the number of a prompt")
    for name, item, kind in (("text", text, str), ("stop", stop, bool), ("data", data, dict)):
        if not isinstance(item, kind):
            raise AnswerError(f"has {name} of type {type(item).__name__}, not {kind.__name__}")
    return Answer(turn, text, stop, data)
