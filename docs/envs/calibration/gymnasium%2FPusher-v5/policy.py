"""The policy that the search agent tunes: copied as it is into the Program as `policy.py`.

A linear map, or one hidden layer, over the flattened observation; a table where the observation
is discrete. `parameters.npz` next to it holds one or more parameter vectors. With more than one,
each Episode plays the one its policy seed picks and prints which, so that a single Submission
tries as many vectors as it has Episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Space = Mapping[str, Any]
Vector = npt.NDArray[np.float64]

MAX_FEATURES = 128
MAX_TABLE = 4096
REACH = 1e6
BIAS = 0.1
"""Constant input. A small one: policies that mostly answer the observation are found sooner."""


def table_size(space: Space) -> int | None:
    """Return the number of states of a discrete observation space, or None."""
    size = 1
    for child in space["spaces"] if space["type"] == "Tuple" else [space]:
        if child["type"] != "Discrete":
            return None
        size *= int(child["n"])
    return size if size <= MAX_TABLE else None


def state(space: Space, observation: Any) -> int:
    """Return the index of a discrete observation."""
    if space["type"] == "Discrete":
        return int(observation) - int(space.get("start", 0))
    index = 0
    for child, item in zip(space["spaces"], observation, strict=True):
        index = index * int(child["n"]) + state(child, item)
    return index


def flatten(space: Space, observation: Any) -> Vector:
    """Return a flat float vector; large arrays are averaged down to `MAX_FEATURES`."""
    kind = space["type"]
    if kind == "Discrete":
        one_hot = np.zeros(min(space["n"], MAX_FEATURES))
        one_hot[(observation - space.get("start", 0)) % len(one_hot)] = 1.0
        return one_hot
    if kind == "Dict":
        parts = [flatten(space["spaces"][k], observation[k]) for k in sorted(space["spaces"])]
        return np.concatenate(parts) if parts else np.zeros(0)
    if kind == "Tuple":
        return np.concatenate(
            [flatten(s, o) for s, o in zip(space["spaces"], observation, strict=True)]
        )
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        flat = np.nan_to_num(np.asarray(observation, dtype=np.float64)).ravel()
        if flat.size > MAX_FEATURES:
            edges = np.linspace(0, flat.size, MAX_FEATURES + 1).astype(int)[:-1]
            flat = np.add.reduceat(flat, edges) / np.diff([*edges, flat.size])
        return flat
    return np.zeros(0)


def output_size(space: Space) -> int:
    """Return how many numbers an action of `space` is made from."""
    kind = space["type"]
    if kind == "Discrete":
        return int(space["n"])
    if kind == "MultiDiscrete":
        return int(np.sum(space["nvec"]))
    if kind in ("Box", "MultiBinary"):
        return int(np.prod(space["shape"], dtype=np.int64))
    if kind in ("Dict", "Tuple", "OneOf"):
        children = space["spaces"].values() if kind == "Dict" else space["spaces"]
        return sum(map(output_size, children)) + (len(children) if kind == "OneOf" else 0)
    return 0


def to_action(space: Space, numbers: Vector) -> Any:
    """Return the action that `numbers` stand for; always a member of `space`."""
    kind = space["type"]
    if kind == "Discrete":
        return int(np.argmax(numbers)) + space.get("start", 0)
    if kind == "MultiDiscrete":
        parts = np.split(numbers, np.cumsum(np.ravel(space["nvec"]))[:-1])
        choices = np.array([int(np.argmax(part)) for part in parts])
        return choices.reshape(np.shape(space["nvec"])) + np.asarray(space.get("start", 0))
    if kind == "MultiBinary":
        return (numbers > 0).astype(np.int8).reshape(space["shape"])
    if kind == "Box":
        return _box_action(space, numbers)
    if kind == "Dict":
        action = {}
        for key, child in space["spaces"].items():
            size = output_size(child)
            action[key], numbers = to_action(child, numbers[:size]), numbers[size:]
        return action
    if kind == "Tuple":
        items = []
        for child in space["spaces"]:
            size = output_size(child)
            items.append(to_action(child, numbers[:size]))
            numbers = numbers[size:]
        return tuple(items)
    if kind == "OneOf":
        count = len(space["spaces"])
        branch, numbers = int(np.argmax(numbers[:count])), numbers[count:]
        sizes = [output_size(child) for child in space["spaces"]]
        start = sum(sizes[:branch])
        return branch, to_action(space["spaces"][branch], numbers[start : start + sizes[branch]])
    if kind == "Text":
        return (space["charset"] or "a")[0] * space["min_length"]
    if kind == "Graph":
        node = space["node_space"]
        return np.zeros((0, *node.get("shape", [])), dtype=node.get("dtype", "int64")), None, None
    return ()


def _box_action(space: Space, numbers: Vector) -> Any:
    """Squash `numbers` into the bounds; an unbounded side is taken to be `REACH` away."""
    dtype, shape = np.dtype(space["dtype"]), tuple(space["shape"])
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        low, high = (
            np.broadcast_to(np.asarray(space[side], dtype=np.float64), shape).ravel()
            for side in ("low", "high")
        )
        low, high = (
            np.where(np.isfinite(low), low, np.minimum(high, 0.0) - REACH),
            np.where(np.isfinite(high), high, np.maximum(low, 0.0) + REACH),
        )
        low, high = np.maximum(low, float(limits.min)), np.minimum(high, float(limits.max))
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        values = np.clip(middle + np.tanh(numbers) * half, low, high).astype(dtype)
        return np.clip(values, low.astype(dtype), high.astype(dtype)).reshape(shape)
    # Python integers: 64-bit bounds do not fit into floats.
    bits = 8 * dtype.itemsize
    least, most = (
        (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.kind == "i" else (0, 2**bits - 1)
    )
    most = 1 if dtype.kind == "b" else most
    sides = []
    for side, bound in (("low", least), ("high", most)):
        items = np.broadcast_to(np.asarray(space[side], dtype=object), shape).ravel().tolist()
        sides.append([bound if abs(item) == np.inf else int(item) for item in items])
    chosen = []
    for number, low_item, high_item in zip(numbers, *sides, strict=True):
        first, last = max(low_item, -int(REACH)), min(high_item, int(REACH))
        first, last = min(first, high_item), max(last, low_item)
        share = (np.tanh(number) + 1.0) / 2.0
        chosen.append(min(max(first + round(share * (last - first)), low_item), high_item))
    return np.array(chosen, dtype=dtype).reshape(shape)


def parameter_count(features: int, hidden: int, outputs: int) -> int:
    """Return the length of one parameter vector; `hidden` 0 is the linear policy."""
    if hidden:
        return (features + 1) * hidden + (hidden + 1) * outputs
    return (features + 1) * outputs


def compute(vector: Vector, inputs: Vector, hidden: int, outputs: int) -> Vector:
    """Return the outputs of the policy for one feature vector."""
    inputs = np.append(inputs, BIAS)
    if hidden:
        cut = len(inputs) * hidden
        inputs = np.append(np.tanh(vector[:cut].reshape(hidden, -1) @ inputs), BIAS)
        vector = vector[cut:]
    result: Vector = vector.reshape(outputs, -1) @ inputs
    return result


class SearchPolicy:
    """Plays one parameter vector."""

    def __init__(self, context: Any) -> None:
        self.observation_space = context.observation_space
        self.action_space = context.action_space
        with np.load(Path(__file__).parent / "parameters.npz") as data:
            vectors, self.scale = data["vectors"], data["scale"]
            self.hidden = int(data["hidden"])
        choice = context.policy_seed % len(vectors)
        if len(vectors) > 1:
            print(f"vector {choice}")
        self.vector = vectors[choice]
        self.outputs = output_size(self.action_space)
        self.table = table_size(self.observation_space)

    def act(self, observation: Any) -> Any:
        """Return the action for `observation`."""
        if self.table is not None:
            row = self.vector.reshape(self.table, -1)[state(self.observation_space, observation)]
            return to_action(self.action_space, row)
        features = flatten(self.observation_space, observation) * self.scale
        outputs = compute(self.vector, np.clip(features, -10, 10), self.hidden, self.outputs)
        return to_action(self.action_space, outputs)


def make_policy(context: Any) -> SearchPolicy:
    """Entry point of the Program."""
    return SearchPolicy(context)
