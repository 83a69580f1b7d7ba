from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

import evopolicygym.policy
from evopolicygym.policy import POLICY_ABI, Graph, PolicyContext

CONTEXT = PolicyContext(
    observation_space={"type": "Discrete", "n": 3},
    action_space={"type": "Discrete", "n": 2},
    metadata={"family": "toy"},
    environment_parameters={"size": 10},
    max_episode_steps=20,
    policy_seed=7,
)


def test_the_contract_has_version_1() -> None:
    assert POLICY_ABI == 1


def test_a_context_holds_exactly_what_a_policy_may_know() -> None:
    assert [field.name for field in fields(PolicyContext)] == [
        "observation_space",
        "action_space",
        "metadata",
        "environment_parameters",
        "max_episode_steps",
        "policy_seed",
    ]


@pytest.mark.parametrize("name", [field.name for field in fields(PolicyContext)])
def test_items_are_attributes(name: str) -> None:
    assert CONTEXT[name] is getattr(CONTEXT, name)


@pytest.mark.parametrize("name", ["environment_seed", "__class__", "__getitem__", ""])
def test_nothing_else_is_an_item(name: str) -> None:
    with pytest.raises(KeyError) as caught:
        CONTEXT[name]
    assert caught.value.args == (name,)


def test_a_context_is_read_only() -> None:
    with pytest.raises(FrozenInstanceError):
        CONTEXT.policy_seed = 8  # type: ignore[misc]
    # Python 3.11: a frozen class with slots raises TypeError for a name it does not know.
    with pytest.raises((FrozenInstanceError, TypeError, AttributeError)):
        CONTEXT.score = 1.0  # type: ignore[attr-defined]


def test_a_graph_is_a_tuple_of_three() -> None:
    nodes = np.zeros((2, 3))
    graph = Graph(nodes, None, None)
    assert tuple(graph) == (nodes, None, None)
    assert Graph._fields == ("nodes", "edges", "edge_links")


def test_exported_names() -> None:
    assert sorted(evopolicygym.policy.__all__) == [
        "Graph",
        "MakePolicy",
        "POLICY_ABI",
        "Policy",
        "PolicyContext",
    ]
