"""What the author of a policy may import: the standard library and numpy are all it needs.

A Program's `policy.py` defines `make_policy(context)`; the returned object's
`act(observation)` is called once a step. Nothing here has to be imported to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["POLICY_ABI", "Graph", "MakePolicy", "Policy", "PolicyContext"]

POLICY_ABI = 1
"""Version of the contract between Host and policy; part of every Program digest."""


class Graph(NamedTuple):
    """A value of a Graph space.

    Attributes:
        nodes: Node features, shape `(n, *node_shape)`.
        edges: Edge features, shape `(m, *edge_shape)`, or None where the space has no edges.
        edge_links: Pairs of node indices, int array of shape `(m, 2)`, or None.
    """

    nodes: npt.NDArray[Any]
    edges: npt.NDArray[Any] | None
    edge_links: npt.NDArray[np.integer[Any]] | None


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """All that a policy is told before its Episode starts.

    It never holds an environment seed, a pool index, a Host path, a score or a credential.
    Fields are attributes; `context["name"]` reads the same fields.

    Attributes:
        observation_space: Plain mapping, e.g. `{"type": "Box", "dtype": "float32",
            "shape": [4], "low": [...], "high": [...]}` (see `docs/protocol.md`, "Spaces").
        action_space: The same for actions.
        metadata: Public facts about the Benchmark.
        environment_parameters: Public constructor parameters of the environment.
        max_episode_steps: Steps after which the Episode is truncated.
        policy_seed: Seed of this Episode's policy, in `[0, 2**31)`. `random` and
            `numpy.random` are already seeded from it.
    """

    observation_space: Mapping[str, Any]
    action_space: Mapping[str, Any]
    metadata: Mapping[str, Any]
    environment_parameters: Mapping[str, Any]
    max_episode_steps: int
    policy_seed: int

    def __getitem__(self, name: str) -> Any:
        if name not in PolicyContext.__slots__:
            raise KeyError(name)
        return getattr(self, name)


class Policy(Protocol):
    """The object that `make_policy` returns; it lives for one Episode."""

    def act(self, observation: Any) -> Any:
        """Return the action for `observation`; it must denote one member of the action space."""
        ...


MakePolicy: TypeAlias = Callable[[PolicyContext], Policy]
"""Type of a Program's entry point."""
