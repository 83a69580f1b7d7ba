"""Agent providers; each is one small module."""

from evopolicygym.agents.acp import Acp
from evopolicygym.agents.claude_code import ClaudeCode
from evopolicygym.agents.codex import Codex
from evopolicygym.agents.command import Command
from evopolicygym.agents.kimi_code import KimiCode
from evopolicygym.agents.search import Search

__all__ = ["Acp", "ClaudeCode", "Codex", "Command", "KimiCode", "Search"]
