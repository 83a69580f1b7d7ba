"""The import rule of ARCHITECTURE.md, read from the sources, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import evopolicygym
from evopolicygym import errors

SOURCE = Path(evopolicygym.__file__).parent

# What each part may import, besides itself. Parts that are missing here fail the test.
ALLOWED: dict[str, set[str]] = {
    "__init__": {"evaluation", "program"},  # lazily
    "errors": set(),
    "policy": set(),
    "spaces": {"policy"},
    "strict_json": set(),
    "benchmark": {"errors", "spaces"},
    "data": {"benchmark", "errors", "strict_json"},
    "testing": {"_conformance", "_membership", "benchmark", "errors"},
    "_conformance": {
        *("_membership", "benchmark", "errors", "execution", "policy", "spaces", "strict_json"),
    },
    "_membership": {"policy", "spaces"},
    "program": {"errors", "policy"},
    "skills": {"errors", "program"},
    "execution": {"benchmark", "errors", "policy", "program", "spaces", "strict_json"},
    "evaluation": {"benchmark", "errors", "execution", "program", "strict_json"},
    "run": {
        *("benchmark", "errors", "evaluation", "execution", "program", "skills", "spaces"),
        "strict_json",
    },
    "agents": {"__init__", "errors", "run"},
    "envs": {"benchmark", "errors", "execution", "program", "spaces", "testing"},
    "analysis": {
        *("__init__", "benchmark", "envs", "errors", "evaluation", "execution", "program", "run"),
        *("skills", "spaces", "strict_json"),
    },
    "suite": {
        *("agents", "analysis", "benchmark", "data", "envs", "errors", "execution", "program"),
        *("run", "skills", "strict_json"),
    },
    "cli": {
        *(
            "__init__",
            "agents",
            "analysis",
            "benchmark",
            "data",
            "envs",
            "errors",
            "evaluation",
            "execution",
            "program",
            "run",
        ),
        *("skills", "strict_json", "suite"),
    },
}


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "evopolicygym":
                known = len(parts) > 1 and parts[1] in ALLOWED
                found.add(parts[1] if known else "__init__")
    return found


def _part(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.name))
def test_dependencies_point_one_way(path: Path) -> None:
    part = _part(path)
    assert part in ALLOWED, f"{part} is not in the import rule: add it to ARCHITECTURE.md too"
    forbidden = _imports(path) - ALLOWED[part] - {part}
    assert not forbidden, f"{path.relative_to(SOURCE)} imports {sorted(forbidden)}"


def test_nothing_below_the_command_line_knows_an_environment_package() -> None:
    for path in SOURCE.rglob("*.py"):
        if _part(path) in ("envs", "cli"):
            continue
        assert "import gymnasium" not in path.read_text(), path


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys, evopolicygym\n"
        "heavy = {'numpy', 'gymnasium', 'pydantic', 'fastapi', 'uvicorn', 'msgspec', 'rich'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_session_client_loads_the_standard_library_only() -> None:
    code = (
        "import sys, evopolicygym.run.client\n"
        "print(sorted(n for n in sys.modules if n.partition('.')[0] in "
        "{'numpy', 'pydantic', 'fastapi', 'msgspec', 'typer', 'httpx'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            "evopolicygym",
            "EvaluationConfig EvaluationResult Program ProgramLimits __version__ evaluate",
        ),
        (
            "evopolicygym.run",
            "Agent AgentLaunch AgentTask AssessmentConfig PublishedSubmission RunConfig RunEvent "
            "RunResult TerminalReason ValidationConfig run",
        ),
        ("evopolicygym.execution", "ProcessExecution UNSAFE_NOTICE available_cores"),
        ("evopolicygym.agents", "Acp ClaudeCode Codex Command KimiCode Search"),
        ("evopolicygym.envs", "ENTRY_POINT_GROUP known_ids load"),
        (
            "evopolicygym.benchmark",
            "Artifact Benchmark BenchmarkSpec Environment Episode EpisodeRecord Failure "
            "FailureCode Feedback SPLITS ScoreDirection mean_return_feedback plan_episodes",
        ),
        ("evopolicygym.policy", "Graph MakePolicy POLICY_ABI Policy PolicyContext"),
        ("evopolicygym.skills", "AgentSkill"),
    ],
)
def test_exported_names_are_pinned(module: str, names: str) -> None:
    loaded = __import__(module, fromlist=["__all__"])
    assert sorted(loaded.__all__) == sorted(names.split())
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None


def test_every_error_is_in_the_tree() -> None:
    for name in errors.__all__:
        value = getattr(errors, name)
        if isinstance(value, type):
            assert issubclass(value, errors.EvoPolicyGymError)
