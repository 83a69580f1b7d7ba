"""The shipped skill does what it says: its commands run, in order, as they are written."""

from __future__ import annotations

import re
from pathlib import Path

from evopolicygym.agents.catalog import PROVIDERS
from evopolicygym.run.models import TerminalReason
from evopolicygym.skills import AgentSkill

from .tools import ROOT, command

SKILL = ROOT / "skills" / "evopolicygym"
TEXT = (SKILL / "SKILL.md").read_text()


def test_its_commands_run(tmp_path: Path) -> None:
    lines = [
        line
        for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(lines) >= 9
    outputs = {}
    for line in lines:
        done = command("sh", "-ec", line, cwd=tmp_path)
        assert done.code == 0, (line, done)
        outputs[line.split()[0] + " " + line.split()[1]] = done.stdout
    assert outputs["python3 -c"].startswith("done finished True ")
    assert '"turn":1' in outputs["cat runs/skill-example/agent/turns.jsonl"]


def test_what_it_names_exists() -> None:
    for path in re.findall(r"`((?:docs|skills)/[\w./-]+|[A-Z]+\.md)`", TEXT):
        assert (ROOT / path).exists() or path == "TASK.md", path
    reasons = {reason.value for reason in TerminalReason}
    for word in re.findall(r"`([a-z]+_[a-z]+)`", TEXT):
        assert word in reasons | {"assessment_score", "terminal_reason"}, word
    (kinds,) = re.findall(r"--agent ([a-z|]+)", TEXT)
    assert set(kinds.split("|")) <= set(PROVIDERS)


def test_it_is_a_skill(tmp_path: Path) -> None:
    skill = AgentSkill.from_directory(SKILL)
    head = re.match(r"---\nname: (\S+)\ndescription: (.+)\n---\n", TEXT)
    assert head is not None
    assert head[1] == skill.name == "evopolicygym"
    done = command(
        *("evopolicygym", "run", "--json", "--env", "toy", "--budget", "2", "--root", "record"),
        *("--valid-size", "0", "--final-size", "0", "--skill", str(SKILL)),
        cwd=tmp_path,
    )
    assert done.code == 0, done
    workspace = tmp_path / "record" / "workspace"
    installed = workspace / "skills" / "evopolicygym" / "SKILL.md"
    assert installed.read_text() == TEXT
    assert installed.stat().st_mode & 0o222 == 0
    assert "skills/evopolicygym/SKILL.md" in (workspace / "TASK.md").read_text()
