"""What `docs/envs/status.md` says about counts is what the checks found."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

from evopolicygym.envs.families import FAMILIES

DOCS = Path(__file__).parents[3] / "docs" / "envs"
COLUMNS = (
    *("ids", "L1", "L2", "L3", "L4", "deterministic", "conforms"),
    *("expected", "failed", "missing"),
)


def test_the_counts_are_those_of_the_data() -> None:
    document = json.loads((DOCS / "discovered.json").read_bytes())
    found: dict[str, Counter[str]] = {}
    for family in document["families"]:
        counts = Counter(family["counts"]) + Counter({"ids": len(family["environments"])})
        found.setdefault(family["extra"] or "–", Counter()).update(counts)
        found.setdefault("**all**", Counter()).update(counts)
    text = (DOCS / "status.md").read_text("utf-8")
    said = {
        cells[0]: [int(cell) for cell in cells[2:]]
        for line in re.findall(r"(?m)^\| (?:env-|–|\*\*all).*$", text)
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 12
    }
    assert said == {name: [counts[c] for c in COLUMNS] for name, counts in found.items()}


def test_every_family_was_checked_somewhere() -> None:
    document = json.loads((DOCS / "discovered.json").read_bytes())
    checked = {f["name"]: f["counts"]["checked"] for f in document["families"]}
    for family in FAMILIES:
        assert checked[family.name] > 0, family.name
