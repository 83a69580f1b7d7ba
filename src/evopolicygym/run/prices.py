"""What tokens cost, by an explicit, versioned table; there is none built in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evopolicygym.errors import ConfigurationError
from evopolicygym.run.agent import TokenUsage
from evopolicygym.strict_json import loads

__all__ = ["ModelPrice", "PriceTable"]

_Price = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class ModelPrice(BaseModel):
    """Prices of one model, USD for a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: _Price
    cache_read: _Price
    cache_write: _Price
    output: _Price

    def cost(self, usage: TokenUsage) -> float:
        """Return what `usage` costs, USD."""
        return (
            self.input * usage.input
            + self.cache_read * usage.cache_read
            + self.cache_write * usage.cache_write
            + self.output * usage.output
        ) / 1e6


class PriceTable(BaseModel):
    """Prices by model name; a record keeps the table that it was estimated with."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Literal["evopolicygym.prices/1"] = Field("evopolicygym.prices/1", alias="schema")
    version: str = Field(min_length=1, description="names this table, e.g. a date")
    models: dict[str, ModelPrice]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PriceTable:
        """Read a JSON file.

        Raises:
            ConfigurationError: It is missing or no price table; names the place.
        """
        try:
            return cls.model_validate(loads(Path(path).read_bytes()))
        except OSError as error:
            raise ConfigurationError(f"{path} can't be read: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(["$", *map(str, first["loc"])])
            raise ConfigurationError(f"{path}: {where}: {first['msg']}") from None
        except ValueError as error:
            raise ConfigurationError(f"{path} is not valid JSON: {error}") from None

    def cost(self, model: str | None, usage: TokenUsage | None) -> float | None:
        """Return what the tokens of a model cost, USD; None where that is not known."""
        price = None if model is None else self.models.get(model)
        return None if price is None or usage is None else price.cost(usage)
