"""What must hold for the files of the project as they are committed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

from evopolicygym.run import schemas

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"


def _tracked() -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_registry_host_and_no_path_of_a_machine() -> None:
    # Spelled in parts, so that this file does not name them either.
    hosts = [
        ".".join(p)
        for p in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("debian", "org"),
        )
    ]
    places = ["/" + "work/", "/" + "root/", "/" + "home/"]
    for path in _tracked():
        text = path.read_text(errors="replace")
        for word in [*hosts, *places]:
            assert word not in text, f"{path.relative_to(ROOT)} names {word}"


@pytest.mark.parametrize("name", sorted(schemas.generate()))
def test_committed_schemas_are_the_generated_ones(name: str) -> None:
    committed = json.loads((SCHEMAS / name).read_text())
    assert committed == json.loads(json.dumps(schemas.generate()[name])), "run `make schemas`"
    if name.endswith(".schema.json"):
        jsonschema.Draft202012Validator.check_schema(committed)


def test_no_schema_is_left_over() -> None:
    assert {path.name for path in SCHEMAS.iterdir()} == schemas.generate().keys()


def test_the_lock_pins_every_hash() -> None:
    text = (ROOT / "uv.lock").read_text()
    files = re.findall(r"\{ path = [^}]+\}", text)
    assert len(files) > 100
    assert all('hash = "sha256:' in entry for entry in files)


def test_versions_agree() -> None:
    import tomllib

    from evopolicygym import __version__

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "docs/agents.md",
        "docs/protocol.md",
        "docs/scoring.md",
        "skills/evopolicygym/SKILL.md",
        "tests/unit/agents/recorded/README.md",
    ],
)
def test_links_and_paths_in_documents_exist(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), f"{document} links to {target}"
