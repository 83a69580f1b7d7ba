"""Settings of the property tests: the same examples on every run, no time limit an example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("unit", deadline=None, derandomize=True, database=None)
settings.load_profile("unit")
