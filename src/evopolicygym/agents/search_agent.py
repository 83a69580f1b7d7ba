"""The search agent's process: an honest baseline without a language model.

It speaks only the public session and reads only its workspace, so it is also the worked example
for authors of agents. Run as `python -m evopolicygym.agents.search_agent OPTIONS-JSON`.

The plan: about 60 % of the Episodes explore. Each exploring Submission carries a batch of
parameter vectors; every Episode plays one of them, and its return is what the optimiser learns.
The rest confirms the best vectors, each in a Submission of its own, which are then handed over.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evopolicygym.agents import search_policy as template
from evopolicygym.run.client import SessionClient

__all__ = ["main"]

Vector = npt.NDArray[np.float64]

_EXPLORE_SHARE = 0.6
_BATCH = 12
_MAX_CMA_PARAMETERS = 600  # beyond, a covariance matrix costs more than it finds


@dataclass(slots=True)
class _Shape:
    """Size of the searched policy and the normalisation of its inputs."""

    hidden: int
    dimension: int
    scale: Vector


@dataclass(slots=True)
class _Found:
    """A parameter vector, with the returns that were seen of it."""

    vector: Vector
    shape: _Shape
    returns: list[float] = field(default_factory=list)

    def mean(self) -> float:
        return sum(self.returns) / len(self.returns)


class _RandomDirections:
    """Augmented random search: step along the difference of the better and the worse half."""

    def __init__(self, dimension: int, sigma: float, rng: np.random.Generator) -> None:
        self._mean = np.zeros(dimension)
        self._sigma = sigma
        self._rng = rng

    def ask(self, count: int) -> list[Vector]:
        return [
            self._mean + self._sigma * self._rng.standard_normal(len(self._mean))
            for _ in range(count)
        ]

    def tell(self, vectors: Sequence[Vector], losses: Sequence[float]) -> None:
        ranks = np.argsort(np.argsort(losses))
        weights = 0.5 - (ranks + 0.5) / len(losses)
        step = sum(w * (v - self._mean) for w, v in zip(weights, vectors, strict=True))
        self._mean = self._mean + 4.0 * step / len(losses)

    def favorite(self) -> Vector:
        return self._mean


class _Cma:
    """CMA-ES, from the `cma` package."""

    def __init__(self, dimension: int, sigma: float, seed: int, batch: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that it can't plot
            import cma

        options = {"seed": seed % 2**31 + 1, "verbose": -9, "popsize": max(4, batch)}
        self._es = cma.CMAEvolutionStrategy(np.zeros(dimension), sigma, options)

    def ask(self, count: int) -> list[Vector]:
        return [np.asarray(v) for v in self._es.ask(number=count)]

    def tell(self, vectors: Sequence[Vector], losses: Sequence[float]) -> None:
        # It wants at least half a population; the worst is repeated where fewer were played.
        vectors, losses = list(vectors), list(losses)
        while len(vectors) < self._es.sp.popsize:
            worst = int(np.argmax(losses))
            vectors.append(vectors[worst])
            losses.append(losses[worst])
        self._es.tell(vectors, losses)

    def favorite(self) -> Vector:
        return np.asarray(self._es.result.xfavorite)


class _Search:
    """One search, from the first Submission to `finish`."""

    def __init__(self, client: SessionClient, options: dict[str, Any]) -> None:
        self.client = client
        self.options = options
        self.rng = np.random.default_rng(options["seed"])
        self.info = client.info()
        self.spec = self.info["benchmark"]
        self.sign = 1.0 if self.spec["score_direction"] == "maximize" else -1.0
        self.next_index = 0
        self.found: list[_Found] = []
        self.favorite: _Found | None = None

    # ------------------------------------------------------------------ submissions

    @property
    def remaining(self) -> int:
        return int(self.info["episodes_remaining"])

    def indices(self, count: int) -> str:
        """Take the next unused Episodes; begin again at 0 where the pool is used up."""
        size = self.info["episode_pool_size"]
        count = min(count, size)
        if self.next_index + count > size:
            self.next_index = 0
        first, self.next_index = self.next_index, self.next_index + count
        return f"{first}:{first + count}"

    def allowed(self, count: int) -> int:
        """Return `count`, moved into what one Submission may use now."""
        most = int(self.info["max_episodes_per_submission"] or self.remaining)
        least = int(self.info["min_episodes_per_submission"])
        return max(min(count, most, int(self.info["episode_pool_size"])), least)

    def submit(self, vectors: Sequence[Vector], shape: _Shape, selector: str) -> dict[str, Any]:
        """Write the Program, submit it, wait, return the Feedback."""
        program = Path("program")
        for entry in program.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        shutil.copy(template.__file__, program / "policy.py")
        np.savez(
            program / "parameters.npz",
            vectors=np.asarray(vectors),
            scale=shape.scale,
            hidden=shape.hidden,
        )
        receipt = self.client.submit("program", selector)
        receipt = self.client.wait(receipt["submission_id"])
        self.info = self.client.info()
        if receipt["feedback"] is None:
            raise SystemExit(f"{receipt['submission_id']} was not published: {receipt['message']}")
        feedback: dict[str, Any] = json.loads(Path(receipt["feedback"]).read_bytes())
        print(receipt["submission_id"], selector, "score", receipt["score"], flush=True)
        return feedback

    # ------------------------------------------------------------------- exploring

    def explore(self) -> None:
        """Spend the exploring share of the budget."""
        confirmations = self.confirmations()
        rounds = max(0, self.info["submissions_remaining"] - confirmations)
        episodes = int(self.remaining * _EXPLORE_SHARE)
        if rounds == 0 or episodes == 0:
            return
        batch = self.allowed(max(_BATCH, -(-episodes // rounds)))
        shape = self.first_shape()
        optimiser = self.optimiser(shape, batch)
        for number in range(rounds):
            count = min(batch, episodes, self.allowed(episodes))
            if count < 1 or count < min(self.info["min_episodes_per_submission"], self.remaining):
                return
            # Eight vectors an Episode: then hardly two Episodes pick the same one.
            vectors = optimiser.ask(8 * count)
            feedback = self.submit(vectors, shape, self.indices(count))
            episodes -= count
            self.learn(feedback, vectors, shape, optimiser)
            if number == 0 and template.table_size(self.spec["observation_space"]) is None:
                shape = self.measured_shape(feedback, shape)
                optimiser = self.optimiser(shape, batch)

    def learn(
        self, feedback: dict[str, Any], vectors: Sequence[Vector], shape: _Shape, optimiser: Any
    ) -> None:
        """Tell the optimiser which vectors were played and what they returned."""
        played: dict[int, list[float]] = {}
        home = Path("feedback") / feedback["submission_id"]
        for episode in feedback["episodes"]:
            if episode["score_return"] is None or episode["stdout"] is None:
                continue
            match = re.search(r"vector (\d+)", (home / episode["stdout"]).read_text())
            if match:
                played.setdefault(int(match[1]), []).append(self.sign * episode["score_return"])
        if not played:
            return
        self.found += [_Found(vectors[i], shape, values) for i, values in played.items()]
        chosen = [vectors[i] for i in played]
        losses = [-sum(values) / len(values) for values in played.values()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimiser.tell(chosen, losses)
        self.favorite = _Found(optimiser.favorite(), shape)

    def optimiser(self, shape: _Shape, batch: int) -> Any:
        algorithm = self.options["algorithm"]
        if algorithm == "auto":
            algorithm = "cma" if shape.dimension <= _MAX_CMA_PARAMETERS else "ars"
        if algorithm == "cma" and shape.dimension >= 2:
            return _Cma(shape.dimension, self.options["sigma"], self.options["seed"], batch)
        return _RandomDirections(shape.dimension, self.options["sigma"], self.rng)

    def first_shape(self) -> _Shape:
        """Shape of the policy before anything was seen: inputs as they are."""
        space, hidden = self.spec["observation_space"], self.options["hidden"]
        outputs = template.output_size(self.spec["action_space"])
        states = template.table_size(space)
        if states is not None:
            return _Shape(0, states * outputs, np.zeros(0))
        features = _feature_count(space)
        dimension = template.parameter_count(features, hidden, outputs)
        return _Shape(hidden, dimension, np.ones(features))

    def measured_shape(self, feedback: dict[str, Any], shape: _Shape) -> _Shape:
        """Scale the inputs by what the first Submission saw.

        Half-way to unit spread (the root of 1 / std): in our runs on Classic Control that was the
        best compromise between raw inputs and normalised ones.
        """
        rows = list(_observations(feedback, self.spec["observation_space"]))
        if len(rows) < 2:
            return shape
        spread = np.asarray(rows).std(axis=0)
        scale = np.where(spread > 1e-8, np.maximum(spread, 1e-8) ** -0.5, 1.0)
        return _Shape(shape.hidden, shape.dimension, scale)

    # ------------------------------------------------------------------ confirming

    def confirmations(self) -> int:
        """Return how many vectors get a Submission of their own."""
        return min(3, int(self.info["submissions_remaining"]))

    def confirm(self) -> list[str]:
        """Play the best vectors alone; return their Submissions, best first."""
        best = sorted(self.found, key=_Found.mean, reverse=True)
        chosen = best[: self.confirmations()]
        if self.favorite is not None and len(chosen) > 2:
            chosen[-1] = self.favorite  # the optimiser's own opinion, beside two lucky draws
        if not chosen:
            shape = self.first_shape()
            chosen = [_Found(np.zeros(shape.dimension), shape)]
        scores: list[tuple[float, str]] = []
        for left in range(len(chosen), 0, -1):
            candidate = chosen[len(chosen) - left]
            count = min(self.allowed(self.remaining // left), self.remaining)
            if count < 1:
                break
            selector = self.indices(count)
            feedback = self.submit([candidate.vector], candidate.shape, selector)
            if feedback["score"] is not None:
                scores.append((self.sign * feedback["score"], feedback["submission_id"]))
        scores.sort(key=lambda pair: -pair[0])
        return [name for _, name in scores]


def _feature_count(space: dict[str, Any]) -> int:
    kind = space["type"]
    if kind == "Discrete":
        return min(int(space["n"]), template.MAX_FEATURES)
    if kind == "Dict":
        return sum(_feature_count(child) for child in space["spaces"].values())
    if kind == "Tuple":
        return sum(_feature_count(child) for child in space["spaces"])
    if kind == "MultiDiscrete":
        return min(int(np.size(space["nvec"])), template.MAX_FEATURES)
    if kind in ("Box", "MultiBinary"):
        return min(int(np.prod(space["shape"], dtype=np.int64)), template.MAX_FEATURES)
    return 0


def _observations(feedback: dict[str, Any], space: dict[str, Any], most: int = 5_000) -> Any:
    """Yield the feature vectors of the observations in a Submission's trajectories."""
    home = Path("feedback") / feedback["submission_id"]
    count = 0
    for episode in feedback["episodes"]:
        if episode["trajectory"] is None:
            continue
        arrays = np.load(home / episode["observations"]) if episode["observations"] else {}
        for line in (home / episode["trajectory"]).read_bytes().split(b"\n")[:-1]:
            observation = _restore(json.loads(line)["obs"], arrays)
            if observation is not None:
                yield template.flatten(space, observation)
                count += 1
            if count >= most:
                return


def _restore(value: Any, arrays: Any) -> Any:
    """Put the rows of `observations.npz` back in place; None where one was cut."""
    if isinstance(value, dict):
        if value.keys() == {"npz", "row"}:
            return None if value["row"] is None else arrays[value["npz"]][value["row"]]
        items = {key: _restore(item, arrays) for key, item in value.items()}
        return None if any(item is None for item in items.values()) else items
    if isinstance(value, list):
        return [float(item) if isinstance(item, str) else item for item in value]
    return value


def main(arguments: list[str]) -> int:
    """Search within the session of this workspace.

    Args:
        arguments: Options as JSON: `algorithm`, `hidden`, `sigma`, `seed`.
    """
    client = SessionClient()
    search = _Search(client, json.loads(arguments[0]))
    search.explore()
    names = search.confirm()
    if not names:
        print("nothing was measured", file=sys.stderr)
        return 1
    client.finish(names[: search.info["max_candidates"]])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
