"""Agent skills: read-only directories that an agent finds in its workspace."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evopolicygym.errors import ConfigurationError, ProgramError
from evopolicygym.program import ProgramLimits, read_tree

__all__ = ["AgentSkill"]


@dataclass(frozen=True, slots=True)
class AgentSkill:
    """Immutable snapshot of one skill; never visible to a policy process.

    Attributes:
        name: Name of its directory in `workspace/skills/`.
        files: Relative POSIX paths → contents; one of them is `SKILL.md`.
    """

    name: str
    files: Mapping[str, bytes]

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> AgentSkill:
        """Capture a directory, with the refusals of `Program.from_directory`.

        Raises:
            ConfigurationError: It can't be captured, has no `SKILL.md` or an unusable name.
        """
        name = Path(path).absolute().name
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
            raise ConfigurationError(
                f"skill directory {name!r}: expected 1 to 64 characters of A-Z a-z 0-9 . _ -"
            )
        try:
            files = read_tree(path, ProgramLimits())
        except ProgramError as error:
            raise ConfigurationError(f"skill {name}: {error}") from None
        if "SKILL.md" not in files:
            raise ConfigurationError(f"skill {name}: SKILL.md is missing")
        return cls(name, files)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over name, sorted paths and contents."""
        state = hashlib.sha256()
        for part in [
            self.name.encode(),
            *(x for p in sorted(self.files) for x in (p.encode(), self.files[p])),
        ]:
            state.update(len(part).to_bytes(8, "big") + part)
        return state.hexdigest()

    def install(self, directory: Path) -> None:
        """Copy the skill, read-only, to `directory/<name>/`."""
        root = directory / self.name
        for path, content in self.files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(0o444)
        for parent in sorted((p for p in root.rglob("*") if p.is_dir()), reverse=True):
            parent.chmod(0o555)
        root.chmod(0o555)
