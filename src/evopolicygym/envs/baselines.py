"""Policies that know nothing, as Programs: what the anchors of a score are measured with."""

from __future__ import annotations

from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.envs.starter import action_literal
from evopolicygym.program import Program
from evopolicygym.spaces import describe

__all__ = ["noop_program", "random_program"]

_DRAWING = '''
import numpy as np


class Policy:
    """Draws every action anew, whatever is observed."""

    def __init__(self, context):
        self._draw = drawer(context.action_space, np.random.default_rng(context.policy_seed))

    def act(self, observation):
        return self._draw()


def make_policy(context):
    return Policy(context)


def drawer(space, rng):
    """Return a function that draws a member of `space`."""
    kind = space["type"]
    if kind == "Box":
        return box(space, rng)
    if kind == "Discrete":
        start, count = int(space.get("start", 0)), int(space["n"])
        return lambda: start + int(rng.integers(count))
    if kind == "MultiDiscrete":
        counts, start = np.asarray(space["nvec"]), np.asarray(space.get("start", 0))
        return lambda: start + rng.integers(counts)
    if kind == "MultiBinary":
        return lambda: rng.integers(2, size=tuple(space["shape"]), dtype=np.int8)
    if kind == "Dict":
        named = {key: drawer(child, rng) for key, child in space["spaces"].items()}
        return lambda: {key: draw() for key, draw in named.items()}
    if kind == "Tuple":
        parts = [drawer(child, rng) for child in space["spaces"]]
        return lambda: tuple(draw() for draw in parts)
    if kind == "OneOf":
        branches = [drawer(child, rng) for child in space["spaces"]]
        return lambda: one_of(branches, rng)
    if kind == "Sequence":
        item = drawer(space["space"], rng)
        return lambda: tuple(item() for _ in range(rng.geometric(0.25)))
    if kind == "Text":
        return text(space, rng)
    return graph(space, rng)


def box(space, rng):
    dtype, shape = np.dtype(space["dtype"]), tuple(space["shape"])
    if dtype.kind != "f":
        limits = np.iinfo(dtype) if dtype.kind in "iu" else None
        least, most = (int(limits.min), int(limits.max)) if limits else (0, 1)
        # As Python integers: a bound may be infinite or beyond the dtype.
        low = whole(np.broadcast_to(np.asarray(space["low"]), shape), least, most)
        high = whole(np.broadcast_to(np.asarray(space["high"]), shape), least, most)
        low, high = (np.array(side, dtype).reshape(shape) for side in (low, high))
        return lambda: np.asarray(rng.integers(low, high, shape, dtype, True), dtype)
    low = np.broadcast_to(np.asarray(space["low"], dtype), shape)
    high = np.broadcast_to(np.asarray(space["high"], dtype), shape)
    below, above = np.isfinite(low), np.isfinite(high)
    both = below & above
    bounded = bool(both.all())
    floor = np.where(below, low, 0).astype(np.float64)
    ceiling = np.where(above, high, 0).astype(np.float64)

    def draw():
        part = rng.random(shape)
        values = floor * (1.0 - part) + ceiling * part
        if not bounded:
            tail, free = rng.exponential(size=shape), rng.normal(size=shape)
            outside = np.where(below, floor + tail, np.where(above, ceiling - tail, free))
            values = np.where(both, values, outside)
        # Rounding to the dtype may have left the bounds.
        return np.asarray(np.clip(np.asarray(values, dtype), low, high), dtype)

    return draw


def whole(bounds, least, most):
    return [least if b < least else most if b > most else int(b) for b in bounds.ravel().tolist()]


def one_of(branches, rng):
    branch = int(rng.integers(len(branches)))
    return branch, branches[branch]()


def text(space, rng):
    letters = sorted("abcdefghijklmnopqrstuvwxyz" if space["charset"] is None else space["charset"])
    shortest, longest = int(space["min_length"]), int(space["max_length"])
    if not letters:
        return lambda: ""

    def draw():
        size = int(rng.integers(shortest, longest, endpoint=True))
        return "".join(letters[i] for i in rng.integers(len(letters), size=size))

    return draw


def graph(space, rng):
    node, edge = (space[name] and drawer(space[name], rng) for name in ("node_space", "edge_space"))

    def stack(draw, item, count):
        shape, dtype = tuple(item.get("shape", ())), item.get("dtype", "int64")
        return np.asarray([draw() for _ in range(count)], dtype).reshape(count, *shape)

    def draw():
        nodes = int(rng.integers(1, 11))
        if edge is None:
            return stack(node, space["node_space"], nodes), None, None
        edges = int(rng.integers(nodes * (nodes - 1) + 1))
        links = rng.integers(nodes, size=(edges, 2), dtype=np.int32)
        parts = stack(node, space["node_space"], nodes), stack(edge, space["edge_space"], edges)
        return *parts, links

    return draw
'''


def random_program(spec: BenchmarkSpec) -> Program:
    """Return a Program that draws every action from the action space, seeded by the policy seed.

    Finite spaces and bounded Boxes are uniform. Where nothing is uniform, draws follow
    `gymnasium.Space.sample`: an unbounded element is standard normal, one with a single bound lies
    an exponential step (mean 1) inside of it, a Sequence's length is geometric (0.25), a Text's
    uniform; a Graph has 1 to 10 nodes and up to n (n - 1) edges.
    """
    about = f"Random actions for {spec.id}: {describe(spec.action_space)}."
    return Program({"policy.py": f"{_comment(about)}\n{_DRAWING}".encode()})


def noop_program(spec: BenchmarkSpec) -> Program:
    """Return a Program that always answers with the member of the action space nearest to 0.

    The rule is the starter Program's.
    """
    about = f"The action nearest to 0 for {spec.id}: {describe(spec.action_space)}."
    source = f"""\
{_comment(about)}

import numpy as np


class Policy:
    def __init__(self, context):
        self.action_space = context.action_space
        self.action = {action_literal(spec.action_space)}

    def act(self, observation):
        return self.action


def make_policy(context):
    return Policy(context)
"""
    return Program({"policy.py": source.encode()})


def _comment(text: str) -> str:
    return "# " + " ".join(text.split())
