"""Agent providers; each is one small module."""

from evopolicygym.agents.command import Command
from evopolicygym.agents.search import Search

__all__ = ["Command", "Search"]
