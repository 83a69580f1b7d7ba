"""`evopolicygym agents`, and what `run` does with the options of agents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evopolicygym.agents.catalog import PROVIDERS, option_names
from evopolicygym.run.models import TerminalReason
from evopolicygym.run.outcome import DISPOSITIONS

from .tools import ROOT, SOLVED, Preloaded, run_file

DOCUMENT = (ROOT / "docs" / "agents.md").read_text()


def client(directory: Path, name: str, version: str) -> Path:
    path = directory / name
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}"\n')
    path.chmod(0o755)
    return path


def test_it_lists_every_provider(
    preloaded: Preloaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = preloaded("agents", "--json", cwd=tmp_path).json["agents"]
    assert [row["agent"] for row in listed] == list(PROVIDERS)
    for row in listed:
        assert row["options"] == option_names(row["agent"])
        if row["agent"] in ("codex", "claude", "kimi"):
            assert row["install"].startswith("npm install -g @")
            assert row["login"]
            assert (row["found"], row["version"] is None) in ((True, False), (False, True))
    text = preloaded("agents", cwd=tmp_path)
    assert text.code == 0
    for row in listed:
        if row["install"]:
            assert f"install: {row['install']}" in text.stdout, "to be copied, so in one piece"


def test_the_documents_name_every_option_and_reason() -> None:
    for kind in PROVIDERS:
        assert f"| `{kind}` |" in DOCUMENT
    for kind in ("codex", "claude", "kimi"):
        for option in PROVIDERS[kind].__slots__:
            assert f"`{option}" in DOCUMENT or f" {option}=" in DOCUMENT, (kind, option)
    rows = re.findall(r"^\| `(\w+)` \| .* \| (yes)? ?\| (yes)? ?\| (yes)? ?\|$", DOCUMENT, re.M)
    told = {name: tuple(word == "yes" for word in words) for name, *words in rows}
    assert told == {
        reason.value: (row.retry, row.grade, row.count) for reason, row in DISPOSITIONS.items()
    }
    assert set(told) == {reason.value for reason in TerminalReason}


@pytest.mark.damaged_record("private")  # the client prints its environment, token included
def test_arguments_and_options_reach_the_client(preloaded: Preloaded, tmp_path: Path) -> None:
    fake = tmp_path / "codex"
    fake.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && { echo "fake 7.8.9"; exit; }\n'
        'printf "%s\\n" "$@" > analysis/argv.txt; env > analysis/env.txt\n'
        f"cat > program/policy.py <<'END'\n{SOLVED}END\n"
        "evopolicygym-session submit program --episodes 0 > /dev/null\n"
        "evopolicygym-session finish submission-000001 > /dev/null\n"
        """echo '{"type":"turn.completed","usage":{"input_tokens":9,"output_tokens":1}}'\n"""
    )
    fake.chmod(0o755)
    done = preloaded(
        *("run", "--json", "--env", "toy", "--budget", "2", "--root", "record"),
        *("--agent", "codex", "--model", "some-model", "--agent-option", f"executable={fake}"),
        *("--agent-option", "environment.MY_API_KEY=secret-value-1"),
        *("--agent-option", "environment.COLOUR=red", "--bind", "127.0.0.1"),
        *("--", "--first", "--api-key", "secret-value-2"),
        cwd=tmp_path,
    )
    assert (done.code, done.json["reason"]) == (0, "finished"), done
    argv = (tmp_path / "record/workspace/analysis/argv.txt").read_text().split("\n")
    assert argv[0] == "exec"
    assert "some-model" in argv
    assert argv[-5:] == ["--first", "--api-key", "secret-value-2", "-", ""]
    environment = (tmp_path / "record/workspace/analysis/env.txt").read_text()
    assert "MY_API_KEY=secret-value-1\n" in environment
    assert "COLOUR=red\n" in environment
    assert re.search(r"^EVOPOLICYGYM_SESSION_URL=http://127\.0\.0\.1:\d+$", environment, re.M)
    token = re.search(r"^EVOPOLICYGYM_SESSION_TOKEN=(\S{40,})$", environment, re.M)
    assert token is not None
    agent = run_file(tmp_path / "record")["agent"]
    assert agent["version"] == "fake 7.8.9"
    assert agent["tokens"] == {"input": 9, "cache_read": 0, "cache_write": 0, "output": 1}
    assert agent["cost_usd"] is None
    for path in (tmp_path / "record").rglob("*"):
        if path.is_file() and "workspace" not in path.parts:
            for secret in ("secret-value-1", "secret-value-2", token[1]):
                assert secret not in path.read_text(errors="replace"), path


def test_costs_are_estimated_by_the_given_prices(preloaded: Preloaded, tmp_path: Path) -> None:
    prices = {"input": 2.0, "cache_read": 0.5, "cache_write": 3.0, "output": 10.0}
    table = {"schema": "evopolicygym.prices/1", "version": "v", "models": {"m": prices}}
    (tmp_path / "prices.json").write_text(json.dumps(table))
    usage = {"input": 1000, "cache_read": 2000, "cache_write": 100, "output": 300}
    answer = json.dumps({"turn": 1, "data": {"usage": usage, "model": "m"}})
    done = preloaded(
        *("run", "--json", "--env", "toy", "--budget", "2", "--root", "record"),
        *("--prices", "prices.json", "--agent", "command", "--", "echo", answer),
        cwd=tmp_path,
    )
    assert done.json["reason"] == "exited", done
    agent = run_file(tmp_path / "record")["agent"]
    assert agent["tokens"] == usage
    assert agent["estimated_cost_usd"] == pytest.approx(
        (2.0 * 1000 + 0.5 * 2000 + 3.0 * 100 + 10.0 * 300) / 1e6
    )
    assert agent["prices"] == table
