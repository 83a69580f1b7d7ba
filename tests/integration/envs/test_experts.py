"""The experts that are Programs of ours still reach what the catalog says of them."""

from __future__ import annotations

import ast
import math
import statistics
import sys
from pathlib import Path

import pytest

from evopolicygym.envs import load
from evopolicygym.envs.anchors import anchors, own_experts
from evopolicygym.evaluation import EvaluationConfig, evaluate
from evopolicygym.execution import ProcessExecution
from evopolicygym.program import Program

EXPERTS = Path(__file__).parents[3] / "benchmarks" / "experts"
QUICK = ("Blackjack-v1", "CliffWalking-v1", "Pendulum-v1", "cartpole", "toy")
EPISODES = 32


@pytest.mark.parametrize(
    "env_id",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in own_experts()
    ],
)
@pytest.mark.timeout(600)
def test_it_reaches_what_was_measured(env_id: str) -> None:
    row, own = anchors(env_id), own_experts()[env_id]
    assert row is not None
    assert row.expert == own.expert
    config = EvaluationConfig(
        split=row.split, episodes=EPISODES, seed=row.seed, episode_timeout_seconds=600.0
    )
    program = Program.from_directory(EXPERTS / own.program)
    result = evaluate(
        program, load(row.benchmark), execution=ProcessExecution.unsafe(), config=config
    )
    returns = [episode.total_reward for episode in result.episodes]
    assert not any(one.failure or one.environment_error for one in result.episodes)
    error = own.returns.standard_deviation / math.sqrt(EPISODES)
    assert statistics.fmean(returns) == pytest.approx(own.returns.mean, abs=4.0 * error + 1e-9)


def test_every_program_is_small_and_is_somebodys() -> None:
    names = {own.program for own in own_experts().values()}
    assert {path.name for path in EXPERTS.iterdir()} - {"__pycache__"} == names
    for name in names:
        (path,) = EXPERTS.joinpath(name).glob("*.py")
        source = path.read_text("utf-8")
        assert path.name == "policy.py"
        assert len(source.splitlines()) < 150
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = [part.name for part in node.names] if isinstance(node, ast.Import) else []
                modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert {name.partition(".")[0] for name in modules} <= {
                    "numpy",
                    *sys.stdlib_module_names,
                }
