"""Whole Runs through the SDK, with real agent processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from evopolicygym import Program
from evopolicygym.agents import Command, Search
from evopolicygym.envs import load
from evopolicygym.errors import ConfigurationError
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import (
    AssessmentConfig,
    RunConfig,
    RunEvent,
    RunResult,
    TerminalReason,
    ValidationConfig,
    run,
)
from evopolicygym.run.dialogue import prompt_line
from evopolicygym.run.files import read_json, read_lines
from evopolicygym.run.ledger import episodes_used
from evopolicygym.run.measurement import derive_seed, training_pool
from evopolicygym.run.replay import replay
from evopolicygym.skills import AgentSkill

START = Program(
    {
        "policy.py": b"""
class Policy:
    def act(self, observation):
        return 1
def make_policy(context):
    return Policy()
"""
    }
)
BETTER = """
class Policy:
    def act(self, observation):
        here, there = observation
        return 0 if there < here else 2
def make_policy(context):
    return Policy()
"""
CONFIG = RunConfig(
    episode_budget=8,
    max_submissions=4,
    seed=42,
    validation=ValidationConfig(3, max_candidates=2),
    assessment=AssessmentConfig(4),
    agent_timeout_seconds=60,
    jobs=2,
)
PRELUDE = f"""
import json, os, subprocess, sys, time
from pathlib import Path
BETTER = {BETTER!r}
def session(*argv):
    done = subprocess.run(["evopolicygym-session", *argv], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)
"""
UNSAFE = ProcessExecution.unsafe()


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., RunResult]:
    def play(script: str, config: RunConfig = CONFIG, **options: Any) -> RunResult:
        agent = tmp_path / "agent.py"
        agent.write_text(PRELUDE + script)
        return run(
            options.pop("program", START),
            options.pop("benchmark", None) or load("toy"),
            agent=Command([sys.executable, str(agent)]),
            execution=UNSAFE,
            record_to=tmp_path / "record",
            config=config,
            **options,
        )

    return play


GOOD_AGENT = """
code, first = session("submit", "program", "--episodes", "0:2")
assert code == 0, first
Path("program/policy.py").write_text(BETTER)
code, second = session("submit", "program", "--episodes", "0:2")
assert second["score"] > first["score"], (first, second)
feedback = json.loads(Path("feedback/latest.json").read_text())
assert feedback["submission_id"] == second["submission_id"]
assert Path("feedback", second["submission_id"], "feedback.json").exists()
assert session("finish", first["submission_id"], second["submission_id"])[0] == 0
"""


def test_search_validation_assessment_record(play: Callable[..., RunResult]) -> None:
    events: list[RunEvent] = []
    result = play(GOOD_AGENT, observer=events.append)

    assert result.terminal_reason is TerminalReason.FINISHED
    assert [s.submission_id for s in result.submissions] == [
        "submission-000001",
        "submission-000002",
    ]
    assert result.submissions[0].episode_indices == (0, 1)
    assert result.candidate_submission_ids == ("submission-000001", "submission-000002")
    assert result.final_submission is result.submissions[1]
    assert result.validation is not None
    assert result.validation_score == result.validation.scores["submission-000002"]
    assert result.validation.scores["submission-000001"] < result.validation_score
    assert result.assessment is not None
    assert result.assessment_score == result.assessment.score > 0
    assert len(result.assessment.episodes) == 4
    assert result.episodes_used == 4 == episodes_used(result.record / "ledger.jsonl")
    assert result.message is None

    document = read_json(result.record / "run.json")
    assert document["status"] == "done"
    assert document["handed_over_by"] == "agent"
    assert document["selected"] == "submission-000002"
    assert document["agent"]["no_descendant_survived"] is True
    assert document["agent"]["exit_status"] == 0
    kinds = [line["kind"] for line in read_lines(result.record / "events.jsonl")]
    assert kinds == [event.kind for event in events]
    assert kinds[0] == "run_started"
    assert kinds[-1] == "run_ended"
    assert kinds.count("episode_ended") == 4 + 2 * 3 + 4


def test_the_record_and_the_workspace_hold_the_same_feedback(
    play: Callable[..., RunResult],
) -> None:
    result = play(GOOD_AGENT)
    for name in ("submission-000001", "submission-000002"):
        master = result.record / "submissions" / name / "feedback"
        copy = result.record / "workspace" / "feedback" / name
        files = sorted(p.relative_to(master) for p in master.rglob("*") if p.is_file())
        assert files == sorted(p.relative_to(copy) for p in copy.rglob("*") if p.is_file())
        assert Path("feedback.json") in files
        for file in files:
            assert (master / file).read_bytes() == (copy / file).read_bytes()
        rows = json.loads((master / "feedback.json").read_text())["episodes"]
        for row in rows:
            lines = (master / row["trajectory"]).read_bytes().split(b"\n")[:-1]
            assert len(lines) == row["steps"] + 1
            rewards = [json.loads(line)["reward"] for line in lines[:-1]]
            assert sum(rewards) == row["total_reward"]


def test_nothing_private_is_in_the_workspace(play: Callable[..., RunResult]) -> None:
    result = play(GOOD_AGENT)
    episodes = list(training_pool(load("toy"), CONFIG))
    for purpose, split, count in (("validation", "validation", 3), ("assessment", "test", 4)):
        seed = derive_seed(CONFIG.seed, purpose)
        episodes += load("toy").episodes(split, seed=seed, count=count)
    secrets = {str(e.environment_seed) for e in episodes} | {str(e.policy_seed) for e in episodes}
    secrets |= {str(result.record), os.environ.get("HOME", "/nowhere-at-all")}
    workspace = result.record / "workspace"
    seen = 0
    for path in workspace.rglob("*"):
        if path.is_file():
            text = path.read_bytes().decode("utf-8", "replace")
            assert not [secret for secret in secrets if secret in text], path
            seen += 1
    assert seen > 10
    names = {path.name for path in workspace.rglob("*")}
    assert not names & {"validation", "assessment", "episodes.json", "run.json", "ledger.jsonl"}


def test_pool_validation_and_assessment_never_share_a_seed() -> None:
    benchmark = load("toy")
    config = RunConfig(episode_budget=500, seed=7)
    pool = {e.environment_seed for e in training_pool(benchmark, config)}
    private = [
        {e.environment_seed
         for e in benchmark.episodes("train", seed=derive_seed(7, purpose), count=500)}
        for purpose in ("validation", "assessment")
    ]  # fmt: skip
    # Even with the split of training: the domains are separate. 2**29 seeds: a collision of
    # 500 with 500 has a probability below 0.001, and the plans are fixed.
    assert not pool & private[0]
    assert not pool & private[1]
    assert not private[0] & private[1]


@pytest.mark.parametrize(
    ("script", "reason", "handed_over_by", "selected"),
    [
        ("", "exited", None, None),
        ("sys.exit(3)", "crashed", None, None),
        ("os.kill(os.getpid(), 9)", "killed", None, None),
        ('session("submit", "program", "--episodes", "0")', "exited", "host", 1),
        ('session("submit", "program", "--episodes", "0:8")', "budget_exhausted", "host", 1),
        (
            'session("submit", "program", "--episodes", "0", "--no-wait")',
            "exited",
            "host",
            1,
        ),
        (
            'session("submit", "program", "--episodes", "0")\n'
            'Path("program/policy.py").write_text(BETTER)\n'
            'session("submit", "program", "--episodes", "0:2")\n'
            "sys.exit(1)",
            "crashed",
            "host",
            2,
        ),
    ],
)
def test_an_agent_that_does_not_finish_is_still_measured(
    play: Callable[..., RunResult],
    script: str,
    reason: str,
    handed_over_by: str | None,
    selected: int | None,
) -> None:
    result = play(script)
    assert result.terminal_reason == reason
    assert result.handed_over_by == handed_over_by
    name = None if selected is None else f"submission-{selected:06d}"
    assert (result.final_submission and result.final_submission.submission_id) == name
    document = read_json(result.record / "run.json")
    assert document["terminal_reason"] == reason
    assert document["selected"] == name
    assert document["status"] == ("done" if name else "failed")
    if name is None:
        assert result.assessment is None
        assert document["assessment_score"] is None
    else:
        assert result.assessment_score is not None


def test_an_agent_out_of_time_is_ended_and_measured(play: Callable[..., RunResult]) -> None:
    began = time.monotonic()
    result = play(
        'session("submit", "program", "--episodes", "0")\n'
        "subprocess.Popen(['sleep', '4471'], start_new_session=True)\n"
        "time.sleep(1000)",
        RunConfig(episode_budget=2, agent_timeout_seconds=3),
    )
    assert time.monotonic() - began < 30
    assert result.terminal_reason is TerminalReason.TIMED_OUT
    assert result.final_submission is not None
    assert read_json(result.record / "run.json")["agent"]["stopped_by_host"] is True
    assert _processes("4471") == []


def _processes(marker: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if marker in command and "pytest" not in command:
                found.append(command)
    return found


@pytest.mark.parametrize("trap", [False, True])
def test_descendants_end_with_the_agent(play: Callable[..., RunResult], trap: bool) -> None:
    marker = "4472" if trap else "4473"
    play(
        f"""
import signal
code = "import signal, sys, time; {"signal.signal(15, signal.SIG_IGN);" if trap else ""} " \\
       "sys.argv; time.sleep(1000)"
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp(sys.executable, [sys.executable, "-c", code, "{marker}"])
    os._exit(0)
time.sleep(0.3)
""",
        RunConfig(episode_budget=2),
    )
    assert _processes(marker) == []


def test_the_agents_environment_is_an_allow_list(
    play: Callable[..., RunResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary-1234")
    result = play(
        'Path("analysis/env.json").write_text(json.dumps(dict(os.environ)))\n'
        'Path("analysis/stdin.txt").write_text(sys.stdin.read())',
        RunConfig(episode_budget=2),
    )
    environment = read_json(result.record / "workspace" / "analysis" / "env.json")
    assert "canary-1234" not in json.dumps(environment)
    task = (result.record / "workspace" / "TASK.md").read_text()
    assert environment["EVOPOLICYGYM_TASK"] == task
    assert (result.record / "workspace" / "analysis" / "stdin.txt").read_text() == prompt_line(
        1, task
    ) + "\n"
    assert environment["EVOPOLICYGYM_WORKSPACE"] == str(result.record / "workspace")


def test_an_agent_cannot_reach_the_account(play: Callable[..., RunResult]) -> None:
    """Whatever the agent edits in its workspace, the Host's state stays as it was."""
    result = play(
        'session("submit", "program", "--episodes", "0:2")\n'
        "import shutil\n"
        'shutil.rmtree("feedback"); Path("TASK.md").write_text("budget: 10000")\n'
        'Path("feedback").symlink_to("/tmp")\n'
        'code, answer = session("submit", "program", "--episodes", "0:2")\n'
        'Path("analysis/answer.json").write_text(json.dumps(answer))\n',
        RunConfig(episode_budget=4),
    )
    assert result.episodes_used == 4
    answer = read_json(result.record / "workspace" / "analysis" / "answer.json")
    assert answer["episodes_remaining"] == 0
    assert not (result.record / "workspace" / "feedback").is_symlink()
    assert (result.record / "submissions" / "submission-000001" / "feedback").is_dir()


class FaultyToy:
    """Toy, but the Episodes with an odd position in the pool raise in the environment."""

    def __init__(self, every: bool = False) -> None:
        self._toy = load("toy")
        self._every = every
        self.spec = self._toy.spec

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Any]:
        import dataclasses

        plan = self._toy.episodes(split, seed=seed, count=count)
        return [
            dataclasses.replace(e, scenario={"bad": split == "train" and (self._every or i % 2)})
            for i, e in enumerate(plan)
        ]

    def make_environment(self, episode: Any) -> Any:
        if episode.scenario["bad"]:
            raise RuntimeError("no simulator today")
        return self._toy.make_environment(episode)

    def feedback(self, records: Sequence[Any]) -> Any:
        return self._toy.feedback(records)


@pytest.fixture(autouse=True)
def _by_value() -> None:
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_host_faults_are_refunded_and_the_run_goes_on(play: Callable[..., RunResult]) -> None:
    result = play(
        'session("submit", "program", "--episodes", "0:4")\n'
        'session("submit", "program", "--episodes", "0,2,4,6")\n',
        RunConfig(episode_budget=6, episode_pool_size=8, assessment=AssessmentConfig(2)),
        benchmark=FaultyToy(),
    )
    assert [len(s.episode_indices) for s in result.submissions] == [4, 4]
    assert result.episodes_used == 6
    ledger = read_lines(result.record / "ledger.jsonl")
    assert [(line["kind"], line["episode_indices"]) for line in ledger] == [
        ("charge", [0, 1, 2, 3]),
        ("refund", [1, 3]),
        ("charge", [0, 2, 4, 6]),
    ]
    feedback = (result.record / "submissions/submission-000001/feedback/feedback.json").read_text()
    assert "simulator" not in feedback
    rows = json.loads(feedback)["episodes"]
    assert [row["environment_error"] is not None for row in rows] == [False, True, False, True]
    assert [row["score_return"] is None for row in rows] == [False, True, False, True]
    assert (
        "no simulator today"
        in (result.record / "submissions/submission-000001/episodes.json").read_text()
    )


def test_a_host_that_can_play_nothing_stops_the_run(play: Callable[..., RunResult]) -> None:
    result = play(
        'session("submit", "program", "--episodes", "0:4")\ntime.sleep(100)',
        RunConfig(episode_budget=6),
        benchmark=FaultyToy(every=True),
    )
    assert result.terminal_reason is TerminalReason.HOST_FAILURE
    assert result.episodes_used == 0
    assert result.final_submission is None


def test_skills_are_read_only_and_recorded(play: Callable[..., RunResult], tmp_path: Path) -> None:
    home = tmp_path / "my-skill"
    (home / "notes").mkdir(parents=True)
    (home / "SKILL.md").write_text("# a skill")
    (home / "notes" / "a.txt").write_text("x")
    skill = AgentSkill.from_directory(home)
    result = play("", RunConfig(episode_budget=1), skills=(skill,))
    copy = result.record / "workspace" / "skills" / "my-skill"
    assert (copy / "notes" / "a.txt").read_text() == "x"
    assert stat.S_IMODE((copy / "SKILL.md").stat().st_mode) == 0o444
    assert read_json(result.record / "run.json")["skills"] == [
        {"name": "my-skill", "digest": skill.digest}
    ]


def test_a_replayed_episode_is_the_same_bit_for_bit(play: Callable[..., RunResult]) -> None:
    result = play(GOOD_AGENT)
    for index in (0, 1):
        again = replay(result.record, "submission-000002", index, load("toy"), execution=UNSAFE)
        assert again.agrees
        assert again.episode.total_reward == again.recorded_return
    with pytest.raises(ConfigurationError, match="has no Episode 5"):
        replay(result.record, "submission-000002", 5, load("toy"), execution=UNSAFE)
    with pytest.raises(ConfigurationError, match="environment digest"):
        replay(result.record, "submission-000002", 0, load("gym/taxi"), execution=UNSAFE)


def test_bad_input_writes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "record"
    with pytest.raises(ConfigurationError, match="was not found"):
        run(START, load("toy"), agent=Command(["no-such-agent"]), execution=UNSAFE,
            record_to=target)  # fmt: skip
    assert not target.exists()
    target.mkdir()
    (target / "precious").write_text("x")
    with pytest.raises(ConfigurationError, match="not empty"):
        run(START, load("toy"), agent=Search(), execution=UNSAFE, record_to=target)
    assert sorted(p.name for p in target.iterdir()) == ["precious"]


@pytest.mark.damaged_record("unfinished")
def test_killing_the_host_leaves_no_process_and_an_exact_account(tmp_path: Path) -> None:
    """SIGKILL in the middle of an evaluation: all ends, and the charge is on disk."""
    import subprocess

    (tmp_path / "agent.py").write_text(
        PRELUDE
        + "subprocess.Popen(['sleep', '4474'], start_new_session=True)\n"
        + 'Path("program/policy.py").write_text("import os, time\\n'
        + "if os.fork() == 0:\\n    os.setsid()\\n    os.execvp('sleep', ['sleep', '4475'])\\n"
        + 'def make_policy(context): time.sleep(1000)\\n")\n'
        + 'session("submit", "program", "--episodes", "0:3")\n'
    )
    (tmp_path / "host.py").write_text(
        f"""
import sys
from evopolicygym import Program
from evopolicygym.agents import Command
from evopolicygym.envs import load
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import RunConfig, run
run(Program({{"policy.py": b"def make_policy(c): ..."}}), load("toy"),
    agent=Command([sys.executable, {str(tmp_path / "agent.py")!r}]),
    execution=ProcessExecution.unsafe(), record_to={str(tmp_path / "record")!r},
    config=RunConfig(episode_budget=5, episode_timeout_seconds=500))
"""
    )
    host = subprocess.Popen([sys.executable, str(tmp_path / "host.py")])
    deadline = time.monotonic() + 30
    while len(_processes("4474")) < 1 or len(_processes("sleep 4475")) < 2:
        assert time.monotonic() < deadline
        assert host.poll() is None
        time.sleep(0.05)
    host.send_signal(signal.SIGKILL)
    host.wait()
    deadline = time.monotonic() + 10
    while left := [
        *_processes("sleep 4474"), *_processes("sleep 4475"), *_processes(str(tmp_path))
    ]:  # fmt: skip
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert episodes_used(tmp_path / "record" / "ledger.jsonl") == 3
    assert read_json(tmp_path / "record" / "run.json")["status"] == "running"


def test_scores_do_not_depend_on_jobs(tmp_path: Path) -> None:
    results = []
    for jobs in (1, 2):
        result = run(
            START, load("gym/cartpole"), agent=Search(), execution=UNSAFE,
            record_to=tmp_path / str(jobs),
            config=RunConfig(episode_budget=24, max_submissions=5, seed=3, jobs=jobs,
                             validation=ValidationConfig(2), assessment=AssessmentConfig(2)),
        )  # fmt: skip
        hashes = [
            [row["trajectory_hash"] for row in read_json(path)["episodes"]]
            for path in sorted(result.record.rglob("episodes.json"))
        ]
        scores: Mapping[str, Any] = {s.submission_id: s.score for s in result.submissions}
        results.append((hashes, scores, result.validation_score, result.assessment_score))
    assert results[0] == results[1]


@pytest.mark.parametrize("benchmark_id", ["toy", "gym/pendulum", "gym/taxi", "gym/blackjack"])
def test_the_search_agent_plays_every_kind_of_space(benchmark_id: str, tmp_path: Path) -> None:
    result = run(
        START, load(benchmark_id), agent=Search(), execution=UNSAFE,
        record_to=tmp_path / "record",
        config=RunConfig(episode_budget=16, max_submissions=4, max_episodes_per_submission=6,
                         assessment=AssessmentConfig(2)),
    )  # fmt: skip
    assert result.terminal_reason is TerminalReason.FINISHED, result.message
    assert result.assessment_score is not None
    assert all(
        row["failure"] is None
        for path in (result.record / "submissions").rglob("episodes.json")
        for row in read_json(path)["episodes"]
    )


def test_nothing_is_accepted_after_the_agents_time(play: Callable[..., RunResult]) -> None:
    """An agent that ignores SIGTERM has some seconds more, but no session."""
    result = play(
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        'first = session("submit", "program", "--episodes", "0")\n'
        "time.sleep(2.5)\n"
        'late = [session("submit", "program", "--episodes", "1"),\n'
        '        session("finish", "submission-000001")]\n'
        'Path("analysis/late.json").write_text(json.dumps([first, *late]))\n'
        "time.sleep(60)",
        RunConfig(episode_budget=4, agent_timeout_seconds=2),
    )
    assert result.terminal_reason is TerminalReason.TIMED_OUT
    assert result.handed_over_by == "host"
    assert result.episodes_used == 1
    answers = json.loads((result.record / "workspace" / "analysis" / "late.json").read_text())
    assert [code for code, _ in answers] == [0, 4, 4]


class RandomToy(FaultyToy):
    """Toy whose rewards come from the global generators, as in many an environment."""

    def make_environment(self, episode: Any) -> Any:
        import random

        import numpy as np

        environment = self._toy.make_environment(episode)
        step = environment.step
        environment.step = lambda action: (
            *step(action)[:1], random.random() + np.random.rand(), False, False, {}
        )  # fmt: skip
        return environment


def test_environments_that_use_global_generators_are_deterministic() -> None:
    from evopolicygym import EvaluationConfig, evaluate

    results = [
        evaluate(
            START, RandomToy(), execution=UNSAFE, jobs=jobs, config=EvaluationConfig(episodes=4)
        )
        for jobs in (1, 2)
    ]
    hashes = [[episode.trajectory_hash for episode in result.episodes] for result in results]
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == 4


def test_an_observer_that_raises_changes_nothing(play: Callable[..., RunResult]) -> None:
    def observe(event: RunEvent) -> None:
        raise ValueError(event.kind)

    with pytest.warns(UserWarning, match="the observer raised"):
        result = play(GOOD_AGENT, observer=observe)
    assert result.terminal_reason is TerminalReason.FINISHED
    assert read_json(result.record / "run.json")["status"] == "done"


def test_output_is_published_and_does_not_stay_in_memory(play: Callable[..., RunResult]) -> None:
    chatty = Program(
        {
            "policy.py": b"""
import sys
print("hello")
class Policy:
    def act(self, observation):
        sys.stderr.write("x")
        return 1
def make_policy(context):
    return Policy()
"""
        }
    )
    result = play('session("submit", "program", "--episodes", "0:2")', program=chatty)
    home = result.record / "workspace" / "feedback" / "submission-000001"
    rows = json.loads((home / "feedback.json").read_text())["episodes"]
    assert [(home / row["stdout"]).read_text() for row in rows] == ["hello\n"] * 2
    assert [(home / row["stderr"]).read_text() for row in rows] == ["x" * 20] * 2
    assert result.assessment is not None
    assert all(len(outcome.stderr) <= 2_048 for outcome in result.assessment.outcomes)
