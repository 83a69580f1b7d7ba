from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import TokenUsage
from evopolicygym.run.prices import ModelPrice, PriceTable

PRICE = {"input": 3, "cache_read": 0.3, "cache_write": 3.75, "output": 15}
TABLE = {"schema": "evopolicygym.prices/1", "version": "2026-11-29", "models": {"m": PRICE}}


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (TokenUsage(), 0.0),
        (TokenUsage(input=1_000_000), 3.0),
        (TokenUsage(cache_read=1_000_000), 0.3),
        (TokenUsage(cache_write=1_000_000), 3.75),
        (TokenUsage(output=1_000_000), 15.0),
        (TokenUsage(159, 120, 21, 60), 0.00149175),
    ],
)
def test_costs(usage: TokenUsage, cost: float) -> None:
    assert ModelPrice(**PRICE).cost(usage) == pytest.approx(cost, rel=1e-12)


counts = st.integers(0, 2**40)
usages = st.builds(TokenUsage, counts, counts, counts, counts)


@given(usages, usages)
def test_what_two_sessions_cost_is_what_both_cost(one: TokenUsage, two: TokenUsage) -> None:
    price = ModelPrice(**PRICE)
    assert price.cost(one + two) == pytest.approx(price.cost(one) + price.cost(two), rel=1e-9)


def test_a_table(tmp_path: Path) -> None:
    table = PriceTable.from_file(written(tmp_path / "prices.json", TABLE))
    usage = TokenUsage(output=2_000_000)
    assert table.version == "2026-11-29"
    assert table.cost("m", usage) == 30.0
    assert table.cost("m", TokenUsage()) == 0.0
    assert table.cost("n", usage) is None  # what is not known is not 0
    assert table.cost("M", usage) is None
    assert table.cost(None, usage) is None
    assert table.cost("m", None) is None
    assert table.model_dump(by_alias=True) == TABLE


def test_the_schema_may_be_left_out(tmp_path: Path) -> None:
    value = {"version": "v", "models": {}}
    table = PriceTable.from_file(str(written(tmp_path / "p", value)))
    assert table.schema_ == "evopolicygym.prices/1"
    assert table.cost("m", TokenUsage()) is None


def test_a_table_does_not_change() -> None:
    table = PriceTable.model_validate(TABLE)
    with pytest.raises(ValidationError):
        table.version = "other"


def model(**changes: Any) -> dict[str, Any]:
    price = {**PRICE, **changes}
    return {**TABLE, "models": {"m": {k: v for k, v in price.items() if v != "left out"}}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not valid JSON: "),
        ("", "is not valid JSON: "),
        ('{"version":"v","models":{"m":{"input":NaN}}}', "is not valid JSON: "),
        ("[]", ": $: "),
        ("null", ": $: "),
        ({"version": "v"}, ": $.models: Field required"),
        ({"models": {}}, ": $.version: Field required"),
        ({**TABLE, "version": ""}, ": $.version: "),
        ({**TABLE, "version": 1}, ": $.version: "),
        ({**TABLE, "schema": "evopolicygym.prices/2"}, ": $.schema: "),
        ({**TABLE, "currency": "EUR"}, ": $.currency: Extra inputs are not permitted"),
        ({**TABLE, "models": []}, ": $.models: "),
        ({**TABLE, "models": {"m": 3}}, ": $.models.m: "),
        (model(input=-1), ": $.models.m.input: Input should be greater than or equal to 0"),
        (model(output="left out"), ": $.models.m.output: Field required"),
        (model(reasoning=1), ": $.models.m.reasoning: Extra inputs are not permitted"),
        (model(output=None), ": $.models.m.output: "),
        (model(output="cheap"), ": $.models.m.output: "),
        (model(output="NaN"), ": $.models.m.output: "),
        (model(output="Infinity"), ": $.models.m.output: "),
        (model(output=[1]), ": $.models.m.output: "),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_what_is_no_table(tmp_path: Path, value: Any, message: str) -> None:
    path = written(tmp_path / "prices.json", value)
    with pytest.raises(ConfigurationError) as error:
        PriceTable.from_file(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_what_can_not_be_read(tmp_path: Path) -> None:
    for path, why in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(ConfigurationError) as error:
            PriceTable.from_file(path)
        assert str(error.value) == f"{path} can't be read: {why}"
    (tmp_path / "latin").write_bytes(b'{"version":"\xff"}')
    with pytest.raises(ConfigurationError, match="is not valid JSON"):
        PriceTable.from_file(tmp_path / "latin")


@pytest.mark.parametrize("value", [True, "3"])
def test_a_price_is_a_number(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ConfigurationError):
        PriceTable.from_file(written(tmp_path / "prices.json", model(output=value)))
