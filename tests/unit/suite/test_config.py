"""Configuration files: what is wrong is said with its place, all of it at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.errors import ConfigurationError
from evopolicygym.suite.cells import cells_of
from evopolicygym.suite.config import read_config

ROOT = Path(__file__).parents[3]
FILES = sorted([*(ROOT / "config").glob("*.toml"), *(ROOT / "docs" / "examples").glob("*.toml")])

GOOD: dict[str, Any] = {
    "run": [{"env": "toy", "budget": 8}, {"env": "cartpole", "budget": 4}],
    "agent": {"kind": "search"},
    "suite": {"name": "s"},
}


def read(tmp_path: Path, value: Any) -> Any:
    path = tmp_path / "file.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return read_config(path)


def with_(**sections: Any) -> dict[str, Any]:
    return {**GOOD, **sections}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_checked_in_file_is_valid_and_expands(path: Path) -> None:
    file = read_config(path)
    cells = cells_of(file)
    assert len({cell.name for cell in cells}) == len(cells) >= 1
    if path.name.startswith("main-128"):
        assert len(cells) == 16
        for cell in cells:
            settings = cell.settings
            assert (settings.budget, settings.minimum, settings.maximum) == (128, 1, 128)
            assert (settings.valid_size, settings.final_size) == (64, 256)
    if path.name.startswith("smoke-8"):
        assert [(cell.env, cell.settings.budget) for cell in cells] == [("toy", 8), ("cartpole", 8)]


def test_there_are_the_files_that_the_readme_promises() -> None:
    names = {path.name for path in FILES}
    for kind in ("codex", "claude", "kimi"):
        assert {f"smoke-8-{kind}-suite.toml", f"main-128-{kind}-suite.toml"} <= names
        assert f"cartpole-{kind}.toml" in names
    assert {"smoke-8-suite.toml", "main-128-search-suite.toml"} <= names


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (with_(run=[{"env": "toy", "budget": 8}] * 2 + [{"env": "toy", "budget": "8"}]),
         '$.run[2].budget is "8", expected an integer'),
        (with_(run={"env": "toy", "budget": 0}), "$.run.budget is 0, expected >= 1"),
        (with_(run={"env": "toy", "budget": True}), "$.run.budget is true, expected an integer"),
        (with_(run={"env": "toy", "budget": 8, "timeout": "fast"}),
         '$.run.timeout is "fast", expected a number'),
        (with_(run={"env": "toy", "budget": 8, "timeout": 0}), "$.run.timeout is 0, expected > 0"),
        (with_(run={"env": "toy", "buget": 8}),
         "$.run.buget is no key, expected env, bulk, data"),
        (with_(run={"env": "toy", "buget": 8}), "Did you mean 'budget'?"),
        (with_(run={"budget": 8}), "$.run.env is missing: a Benchmark id, or bulk"),
        (with_(run={"env": "toy"}), "$.run.budget is missing"),
        (with_(run={"env": "toy", "bulk": "core16", "budget": 8}), "$.run has env and bulk"),
        (with_(run={"env": "", "budget": 8}), "expected a text that is not empty"),
        (with_(run={"env": "toy", "budget": 8, "minimum": 5, "maximum": 2}),
         "$.run.minimum is 5, expected at most maximum, which is 2"),
        (with_(run={"env": "toy", "budget": 8, "minimum": 9}),
         "$.run.minimum is 9, expected at most budget, which is 8"),
        (with_(run={"env": "toy", "budget": 8, "seed": -1}), "$.run.seed is -1, expected >= 0"),
        (with_(run=[]), "$.run is empty"),
        (with_(run=3), "$.run is 3, expected a list"),
        (with_(run=[3]), "$.run[0] is 3, expected a table"),
        ({"agent": {"kind": "search"}}, "$.run is missing"),
        (with_(agents={}), "$.agents is no key, expected run, agent, server, suite, defaults. "
         "Did you mean 'agent'?"),
        (with_(agent={"kind": "serch"}), "$.agent.kind is 'serch', expected search, codex"),
        (with_(agent={"kind": "serch"}), "Did you mean 'search'?"),
        (with_(agent={}), "$.agent.kind is missing"),
        (with_(agent=[{"kind": "search"}, {"kind": "codex", "bypas": True}]),
         "$.agent[1].bypas is no key of the codex agent"),
        (with_(agent={"kind": "codex", "bypas": True}), "Did you mean 'bypass'?"),
        (with_(agent={"kind": "search", "retries": -1}), "$.agent.retries is -1, expected >= 0"),
        (with_(suite={"job": 2}), "$.suite.job is no key, expected name, root, repeats, jobs"),
        (with_(suite={"repeats": 0}), "$.suite.repeats is 0, expected >= 1"),
        (with_(server={"port": 70_000}), "$.server.port is 70000, expected <= 65535"),
        (with_(defaults={"budgt": 1}), "$.defaults.budgt is no key"),
        ("[1]", "expected an object with run and agent"),
        ("{", "is no JSON"),
        ('{"run": {"env": "toy", "budget": 8, "timeout": NaN}}', "is no JSON"),
        ("[" * 100_000, "is no JSON"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, value)
    assert message in str(caught.value)


def test_all_errors_of_a_file_come_at_once(tmp_path: Path) -> None:
    value = {
        "run": [{"env": "toy", "budget": 0}, {"envv": "toy", "budget": 8}],
        "agent": [{"kind": "codx"}],
        "suite": {"jobs": "two"},
    }
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, value)
    for place in (
        "$.run[0].budget",
        "$.run[1].envv",
        "$.run[1].env is",
        "$.agent.kind",
        "$.suite.jobs",
    ):
        assert place.replace("$.agent.", "$.agent[0].") in str(caught.value)


def test_a_toml_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("[run\n")
    with pytest.raises(ConfigurationError, match="is no TOML"):
        read_config(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="is no TOML"):
        read_config(path)
    with pytest.raises(ConfigurationError, match="can't be read: No such file"):
        read_config(tmp_path / "missing.toml")
    with pytest.raises(ConfigurationError, match=r"ends in \.toml or \.json"):
        read_config(tmp_path / "file.yaml")


def test_defaults_hold_where_a_run_says_nothing(tmp_path: Path) -> None:
    defaults = {"budget": 8, "bulk": "core16", "final_size": 3}
    file = read(tmp_path, {"run": [{}, {"env": "toy", "budget": 4}], "defaults": defaults})
    first, second = file.runs()
    assert (first.bulk, first.env, first.budget, first.final_size) == ("core16", None, 8, 3)
    assert (second.bulk, second.env, second.budget, second.final_size) == (None, "toy", 4, 3)
    assert len(cells_of(file)) == 17


def test_a_suite_is_runs_by_agents_by_repeats(tmp_path: Path) -> None:
    value = with_(
        agent=[{"kind": "search"}, {"kind": "search", "name": "big", "hidden": 8}],
        suite={"name": "s", "repeats": 3},
    )
    cells = cells_of(read(tmp_path, value))
    assert len(cells) == 2 * 2 * 3
    assert [cell.name for cell in cells[:4]] == [
        *("search/toy/s-001", "search/toy/s-002", "search/toy/s-003", "big/toy/s-001"),
    ]
    assert [cell.settings.seed for cell in cells[:3]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (with_(agent=[{"kind": "search"}, {"kind": "search", "hidden": 8}]),
         "$.run[0] with $.agent[1] and $.run[0] with $.agent[0] have the same record"),
        (with_(run=[{"env": "toy", "budget": 8}, {"env": "toy", "budget": 4}]),
         "$.run[1] with $.agent and $.run[0] with $.agent have the same record search/toy/s: "
         "give runs a key"),
        (with_(run={"env": "toy", "budget": 8, "root": "x"}), "$.run.root: in a suite"),
        (with_(run={"bulk": "core61", "budget": 8}), "$.run.bulk is 'core61', expected core16."),
        (with_(server={"port": 8000}, suite={"jobs": 2}), "$.server.port is 8000, expected 0"),
    ],
)  # fmt: skip
def test_cells_that_can_not_be(tmp_path: Path, value: Any, message: str) -> None:
    file = read(tmp_path, value)
    with pytest.raises(ConfigurationError) as caught:
        cells_of(file)
    assert message in str(caught.value)


def test_a_key_tells_runs_of_one_environment_apart(tmp_path: Path) -> None:
    runs = [{"env": "toy", "budget": n, "key": f"b{n}"} for n in (4, 8)]
    names = [cell.name for cell in cells_of(read(tmp_path, with_(run=runs)))]
    assert names == ["search/toy/s-b4", "search/toy/s-b8"]


def test_data_of_a_set_are_a_directory_each(tmp_path: Path) -> None:
    value = with_(run={"bulk": "core16", "budget": 8, "data": "splits"})
    first, *_ = cells_of(read(tmp_path, value))
    assert first.settings.data == "splits/gymnasium%2FAcrobot-v1"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["env", "budget", "kind", "jobs", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["run", "agent", "suite", "server", "defaults", "x"]), JSON))
def test_whatever_a_file_holds_is_taken_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: Any
) -> None:
    said = ""
    try:
        assert cells_of(read(tmp_path_factory.mktemp("any"), value))
    except ConfigurationError as error:
        said = str(error)
    assert not said or "$" in said
