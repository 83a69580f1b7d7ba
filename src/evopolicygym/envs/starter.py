"""A starter Program for any Benchmark: valid, deterministic, and easy to edit."""

from __future__ import annotations

from typing import Any

import numpy as np

from evopolicygym.benchmark import Benchmark
from evopolicygym.program import Program
from evopolicygym.spaces import Space, describe

__all__ = ["action_literal", "starter_program"]

_LISTED = 16


def starter_program(benchmark: Benchmark) -> Program:
    """Return a Program that answers every observation with one constant, valid action.

    Its comments hold the Benchmark's own description.
    """
    spec = benchmark.spec
    description = "\n".join(f"# {line}".rstrip() for line in spec.description.strip().splitlines())
    action = action_literal(spec.action_space)
    imports = "import numpy as np\n\n\n" if "np." in action else "\n"
    source = f'''\
"""A policy for {spec.id}."""

{description}
#
# Observation space: {describe(spec.observation_space)}
# Action space: {describe(spec.action_space)}
# An Episode has at most {spec.max_episode_steps} steps.

{imports}class Policy:
    """Plays one Episode; a new one is made for each."""

    def __init__(self, context):
        # Plain mappings with dtype, shape and bounds; context.policy_seed is there too.
        self.observation_space = context.observation_space
        self.action_space = context.action_space

    def act(self, observation):
        """Return one action for one observation."""
        return {action}


def make_policy(context):
    """Called once an Episode, in a fresh process."""
    return Policy(context)
'''
    return Program({"policy.py": source.encode()})


def action_literal(space: Space) -> str:
    """Return a Python expression for one member of `space`."""
    kind = space["type"]
    if kind == "Discrete":
        return str(int(space.get("start", 0)))
    if kind in ("MultiDiscrete", "MultiBinary"):
        if kind == "MultiBinary":
            return f"np.zeros({_shape(space['shape'])}, dtype=np.int8)"
        start = np.broadcast_to(space.get("start", 0), np.shape(space["nvec"])).tolist()
        return f"np.array({start!r})"
    if kind == "Box":
        return _box(space)
    if kind == "Dict":
        items = ", ".join(f"{k!r}: {action_literal(v)}" for k, v in space["spaces"].items())
        return f"{{{items}}}"
    if kind == "Tuple":
        items = ", ".join(map(action_literal, space["spaces"]))
        return f"({items},)" if space["spaces"] else "()"
    if kind == "OneOf":
        return f"(0, {action_literal(space['spaces'][0])})"
    if kind == "Text":
        return repr((space["charset"] or "a")[0] * int(space["min_length"]))
    if kind == "Sequence":
        return "()"
    node: Any = space["node_space"]
    shape = [1, *node.get("shape", [])]
    return f"(np.zeros({_shape(shape)}, dtype=np.{node.get('dtype', 'int64')}), None, None)"


def _box(space: Space) -> str:
    """The member nearest to 0, element by element."""
    shape, dtype = tuple(space["shape"]), str(space["dtype"])
    low = np.broadcast_to(np.asarray(space["low"], dtype=np.float64), shape)
    high = np.broadcast_to(np.asarray(space["high"], dtype=np.float64), shape)
    nearest = np.clip(np.zeros(shape), low, high)
    if np.dtype(dtype).kind in "iu":
        nearest = np.ceil(nearest)
    if not nearest.any():
        return f"np.zeros({_shape(shape)}, dtype=np.{dtype})"
    if nearest.size <= _LISTED:
        return f"np.array({nearest.tolist()!r}, dtype=np.{dtype})"
    if (nearest == nearest.flat[0]).all():
        return f"np.full({_shape(shape)}, {nearest.flat[0].item()!r}, dtype=np.{dtype})"
    return f"np.clip(0.0, self.action_space['low'], self.action_space['high']).astype(np.{dtype})"


def _shape(shape: Any) -> str:
    return repr(tuple(int(n) for n in shape))
