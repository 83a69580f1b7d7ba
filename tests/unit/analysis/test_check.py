"""`check_record`: nothing to find in good records, and each of many corruptions of one."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from evopolicygym import Program
from evopolicygym.agents import Command, Search
from evopolicygym.analysis.check import FindingCode, check_record, find_records
from evopolicygym.benchmark import (
    BenchmarkSpec,
    Episode,
    EpisodeRecord,
    Feedback,
    mean_return_feedback,
    plan_episodes,
)
from evopolicygym.envs import load
from evopolicygym.errors import ConfigurationError
from evopolicygym.execution import ProcessExecution
from evopolicygym.run import AssessmentConfig, RunConfig, ValidationConfig, run
from evopolicygym.run.files import read_json, read_lines
from evopolicygym.run.measurement import derive_seed
from evopolicygym.skills import AgentSkill
from evopolicygym.strict_json import dumps, pretty

pytestmark = pytest.mark.damaged_record()  # that is what they are about

Code = FindingCode

UNSAFE = ProcessExecution.unsafe()
CONFIG = RunConfig(
    episode_budget=8,
    max_submissions=4,
    max_episodes_per_submission=4,
    seed=42,
    validation=ValidationConfig(2, max_candidates=2),
    assessment=AssessmentConfig(3),
    jobs=1,
)
STAY = Program(
    {
        "policy.py": b"class Policy:\n"
        b"    def act(self, observation):\n        return 1\n\n\n"
        b"def make_policy(context):\n    return Policy()\n"
    }
)
FIRST, SECOND = "submission-000001", "submission-000002"


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a Run on `toy` by the built-in agent; to be copied."""
    root = tmp_path_factory.mktemp("check") / "record"
    skill = AgentSkill("lines", {"SKILL.md": b"# Lines\n"})
    run(STAY, load("toy"), agent=Search(), execution=UNSAFE, record_to=root, config=CONFIG,
        skills=(skill,))  # fmt: skip
    document = read_json(root / "run.json")
    assert len(document["submissions"]) >= 3, "the corruptions need that many"
    assert len(document["candidates"]) == 2
    return root


@pytest.fixture
def record(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "record"))


def found(root: Path, **options: Any) -> list[tuple[str, str]]:
    return [(one.code.value, one.path) for one in check_record(root, **options)]


def test_a_good_record_has_no_findings_and_is_not_touched(record: Path) -> None:
    before = {path: path.read_bytes() for path in record.rglob("*") if path.is_file()}
    assert check_record(record, replay=True) == ()
    assert {path: path.read_bytes() for path in record.rglob("*") if path.is_file()} == before


# -------------------------------------------------------------------------------- corruptions


@contextmanager
def edited(path: Path) -> Iterator[Any]:
    document = read_json(path)
    yield document
    path.write_bytes(pretty(document))  # write_json waits for the disk


@contextmanager
def edited_lines(path: Path) -> Iterator[list[Any]]:
    lines = read_lines(path)
    yield lines
    path.write_bytes(b"".join(dumps(line) + b"\n" for line in lines))


def submission(root: Path, name: str = FIRST) -> Path:
    return root / "submissions" / name


def feedback(root: Path) -> Path:
    return submission(root) / "feedback" / "feedback.json"


def trajectory(root: Path) -> Path:
    return submission(root) / "feedback" / "episodes" / "000000" / "trajectory.jsonl"


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new, 1))


CORRUPTIONS: dict[str, tuple[Code, Callable[[Path], object]]] = {}


def corruption(code: Code) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    def register(corrupt: Callable[[Path], object]) -> Callable[[Path], object]:
        name = corrupt.__name__.removeprefix("_")
        assert name not in CORRUPTIONS
        CORRUPTIONS[name] = code, corrupt
        return corrupt

    return register


@corruption(Code.UNFINISHED)
def _the_host_was_killed(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["status"] = "running"


@corruption(Code.MISSING)
def _ledger_removed(root: Path) -> None:
    (root / "ledger.jsonl").unlink()


@corruption(Code.MISSING)
def _trajectory_removed(root: Path) -> None:
    trajectory(root).unlink()


@corruption(Code.MISSING)
def _assessment_removed(root: Path) -> None:
    shutil.rmtree(root / "assessment")


@corruption(Code.JSON)
def _nan_in_a_trajectory(root: Path) -> None:
    replaced(trajectory(root), '"reward":0.0', '"reward":NaN')


@corruption(Code.JSON)
def _infinity_in_run_json(root: Path) -> None:
    replaced(root / "run.json", '"failure_return": 0.0', '"failure_return": 1e999')


@corruption(Code.JSON)
def _a_key_twice(root: Path) -> None:
    replaced(root / "run.json", '"counts": true', '"counts": false, "counts": true')


@corruption(Code.JSON)
def _events_torn(root: Path) -> None:
    path = root / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-20])


@corruption(Code.SCHEMA)
def _schema_of_another_version(root: Path) -> None:
    with edited(submission(root) / "episodes.json") as document:
        document["schema"] = "evopolicygym.episodes/2"


@corruption(Code.SCHEMA)
def _schema_removed(root: Path) -> None:
    with edited(root / "assessment" / "assessment.json") as document:
        del document["schema"]


@corruption(Code.SCHEMA)
def _unknown_key(root: Path) -> None:
    with edited_lines(root / "ledger.jsonl") as lines:
        lines[0]["note"] = "x"


@corruption(Code.SCHEMA)
def _number_as_text(root: Path) -> None:
    with edited_lines(root / "agent" / "turns.jsonl") as lines:
        lines[0]["turn"] = "1"


@corruption(Code.SCHEMA)
def _impossible_limit(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["config"]["episode_budget"] = 0


@corruption(Code.DIGEST)
def _a_byte_of_a_program(root: Path) -> None:
    with (submission(root) / "program" / "policy.py").open("a") as file:
        file.write("#")


@corruption(Code.DIGEST)
def _a_file_in_a_program(root: Path) -> None:
    (submission(root) / "feedback" / "program" / "more.py").write_text("")


@corruption(Code.DIGEST)
def _environment_digest(root: Path) -> None:
    with edited(root / "run.json") as document:
        for holder in (document, document["spec"]):
            holder["environment_digest"] = "0" * 64


@corruption(Code.DIGEST)
def _step_limit_in_the_spec(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["spec"]["max_episode_steps"] = 21


@corruption(Code.DIGEST)
def _program_digest_in_episodes_json(root: Path) -> None:
    with edited(submission(root) / "episodes.json") as document:
        document["program_digest"] = "0" * 64


@corruption(Code.DIGEST)
def _a_skill(root: Path) -> None:
    path = root / "workspace" / "skills" / "lines" / "SKILL.md"
    path.chmod(0o644)
    path.write_text("# Points\n")


@corruption(Code.LEDGER)
def _charged_twice(root: Path) -> None:
    with edited_lines(root / "ledger.jsonl") as lines:
        used = lines[-1]["episodes_used"] + len(lines[0]["episode_indices"])
        lines.append({**lines[0], "sequence": len(lines), "episodes_used": used})


@corruption(Code.LEDGER)
def _charge_removed(root: Path) -> None:
    with edited_lines(root / "ledger.jsonl") as lines:
        lines.pop(1)


@corruption(Code.LEDGER)
def _refund_never_written(root: Path) -> None:
    with edited(submission(root) / "submission.json") as document:
        document["refunded_indices"] = [0]


@corruption(Code.LEDGER)
def _refund_of_nothing(root: Path) -> None:
    with edited_lines(root / "ledger.jsonl") as lines:
        last = lines[-1]
        refund = {"kind": "refund", "sequence": len(lines), "episode_indices": [0]}
        lines.append({**last, **refund, "episodes_used": last["episodes_used"] - 1})


@corruption(Code.LEDGER)
def _ledger_does_not_add_up(root: Path) -> None:
    with edited_lines(root / "ledger.jsonl") as lines:
        lines[1]["episodes_used"] += 1


@corruption(Code.BUDGET)
def _index_outside_the_pool(root: Path) -> None:
    with edited_lines(root / "ledger.jsonl") as lines:
        lines[0]["episode_indices"][-1] = 8


@corruption(Code.BUDGET)
def _budget_below_what_was_used(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["config"] |= {"episode_budget": 7, "episode_pool_size": 8}


@corruption(Code.BUDGET)
def _more_at_once_than_allowed(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["config"]["max_episodes_per_submission"] = 1


@corruption(Code.BUDGET)
def _more_submissions_than_allowed(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["config"]["max_submissions"] = 1


@corruption(Code.SUBMISSIONS)
def _selector_of_other_episodes(root: Path) -> None:
    with edited(submission(root) / "submission.json") as document:
        document["selector"] = "4:8"


@corruption(Code.SUBMISSIONS)
def _submission_removed(root: Path) -> None:
    shutil.rmtree(submission(root, SECOND))


@corruption(Code.SUBMISSIONS)
def _submission_added(root: Path) -> None:
    shutil.copytree(submission(root), submission(root, "submission-000009"))


@corruption(Code.EPISODES)
def _score_return(root: Path) -> None:
    with edited(submission(root) / "episodes.json") as document:
        document["episodes"][0]["score_return"] += 1.0


@corruption(Code.EPISODES)
def _episode_removed_from_assessment(root: Path) -> None:
    with edited(assessed(root)) as document:
        document["episodes"].pop()


@corruption(Code.EPISODES)
def _an_end_that_was_none(root: Path) -> None:
    with edited(assessed(root)) as document:
        document["episodes"][0]["truncated"] = False


def assessed(root: Path) -> Path:
    name = str(read_json(root / "run.json")["selected"])
    return root / "assessment" / name / "episodes.json"


@corruption(Code.SCORE)
def _assessment_score(root: Path) -> None:
    with edited(root / "assessment" / "assessment.json") as document:
        document["scores"] = dict.fromkeys(document["scores"], 20.0)


@corruption(Code.SCORE)
def _score_that_is_no_mean(root: Path) -> None:
    with edited(submission(root) / "episodes.json") as document:
        document["score"] += 0.25


@corruption(Code.TRAJECTORY)
def _reward(root: Path) -> None:
    with edited_lines(trajectory(root)) as lines:
        lines[3]["reward"] += 1.0


@corruption(Code.TRAJECTORY)
def _line_dropped(root: Path) -> None:
    with edited_lines(trajectory(root)) as lines:
        lines.pop(3)


@corruption(Code.TRAJECTORY)
def _final_observation_dropped(root: Path) -> None:
    with edited_lines(trajectory(root)) as lines:
        lines.pop()


@corruption(Code.TRAJECTORY)
def _no_truncation_at_the_end(root: Path) -> None:
    with edited_lines(trajectory(root)) as lines:
        lines[-2]["truncated"] = False


@corruption(Code.TRAJECTORY)
def _observation_outside_of_the_space(root: Path) -> None:
    with edited_lines(trajectory(root)) as lines:
        lines[0]["obs"] = [1, 2, 3]


@corruption(Code.HASH)
def _observation(root: Path) -> None:
    with edited_lines(trajectory(root)) as lines:
        lines[0]["obs"][0] = (lines[0]["obs"][0] + 1) % 10


@corruption(Code.HASH)
def _recorded_hash(root: Path) -> None:
    with edited(submission(root) / "episodes.json") as document:
        document["episodes"][0]["trajectory_hash"] = "0" * 64


@corruption(Code.PUBLICATION)
def _published_score(root: Path) -> None:
    with edited(feedback(root)) as document:
        document["score"] = 99.0


@corruption(Code.PUBLICATION)
def _published_action_counts(root: Path) -> None:
    with edited(feedback(root)) as document:
        document["episodes"][0]["actions"] = {"counts": {"7": 20}}


@corruption(Code.PUBLICATION)
def _published_statistics(root: Path) -> None:
    with edited(feedback(root)) as document:
        document["statistics"]["returns"]["mean"] = 99.0


@corruption(Code.PUBLICATION)
def _feedback_in_the_workspace(root: Path) -> None:
    with edited(root / "workspace" / "feedback" / FIRST / "feedback.json") as document:
        document["content"]["note"] = "x"


@corruption(Code.PUBLICATION)
def _latest_feedback(root: Path) -> None:
    shutil.copy(feedback(root), root / "workspace" / "feedback" / "latest.json")


@corruption(Code.PUBLICATION)
def _a_file_that_nothing_names(root: Path) -> None:
    trajectory(root).with_name("extra.txt").write_text("x")


@corruption(Code.SELECTION)
def _another_candidate_selected(root: Path) -> None:
    with edited(root / "validation" / "selection.json") as document:
        names = list(document["scores"])
        document["selected"] = names[1 - names.index(document["selected"])]


@corruption(Code.SELECTION)
def _another_one_assessed(root: Path) -> None:
    other = next(name for name in (FIRST, SECOND) if name != assessed(root).parent.name)
    assessed(root).parent.rename(root / "assessment" / other)


@corruption(Code.SELECTION)
def _candidates_by_another_rule(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["handed_over_by"] = "host"
        document["candidates"].reverse()


@corruption(Code.OVERLAP)
def _assessed_on_a_training_episode(root: Path) -> None:
    training = read_json(submission(root) / "episodes.json")["episodes"][0]
    with edited(assessed(root)) as document:
        document["episodes"][0]["environment_seed"] = training["environment_seed"]


@corruption(Code.PLAN)
def _policy_seed(root: Path) -> None:
    with edited(assessed(root)) as document:
        document["episodes"][0]["policy_seed"] += 1


@corruption(Code.PLAN)
def _seed_of_the_run(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["config"]["seed"] += 1


@corruption(Code.PLAN)
def _split(root: Path) -> None:
    with edited(root / "validation" / "selection.json") as document:
        document["split"] = "train"


@corruption(Code.EVENTS)
def _events_in_another_order(root: Path) -> None:
    with edited_lines(root / "events.jsonl") as lines:
        lines.insert(0, lines.pop(4))


@corruption(Code.EVENTS)
def _no_end_event(root: Path) -> None:
    with edited_lines(root / "events.jsonl") as lines:
        lines.pop()


@corruption(Code.EVENTS)
def _event_with_another_score(root: Path) -> None:
    with edited_lines(root / "events.jsonl") as lines:
        event = next(line for line in lines if line["kind"] == "submission_published")
        event["data"]["score"] = 99.0


@corruption(Code.EVENTS)
def _episode_event_dropped(root: Path) -> None:
    with edited_lines(root / "events.jsonl") as lines:
        lines.remove(next(line for line in lines if line["data"].get("where") == "assessment"))


@corruption(Code.EVENTS)
def _unknown_event(root: Path) -> None:
    with edited_lines(root / "events.jsonl") as lines:
        lines.insert(1, {**lines[0], "kind": "agent_cheated"})


@corruption(Code.SUMMARY)
def _counts(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["counts"] = False


@corruption(Code.SUMMARY)
def _failed_with_a_score(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["status"] = "failed"


@corruption(Code.SUMMARY)
def _episodes_used(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["episodes_used"] -= 1


@corruption(Code.SUMMARY)
def _terminal_reason(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["terminal_reason"] = "exited"


@corruption(Code.SUMMARY)
def _assessment_score_in_run_json(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["assessment_score"] += 1.0


@corruption(Code.PRIVATE)
def _seed_in_the_task(root: Path) -> None:
    seed = read_json(submission(root) / "episodes.json")["episodes"][0]["environment_seed"]
    with (root / "workspace" / "TASK.md").open("a") as file:
        file.write(f"\nHint: {seed}.\n")


@corruption(Code.PRIVATE)
def _held_out_seed_in_the_workspace(root: Path) -> None:
    seed = read_json(assessed(root))["episodes"][-1]["policy_seed"]
    (root / "workspace" / "analysis" / "notes.json").write_text(json.dumps({"seeds": [seed]}))


@corruption(Code.PRIVATE)
def _seed_of_an_episode_that_nobody_played(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["config"] |= {"episode_pool_size": 9}
    plan = load("toy").episodes("train", seed=derive_seed(42, "pool"), count=9)
    (root / "workspace" / "program" / "seed.txt").write_text(f"{plan[8].environment_seed}\n")


@corruption(Code.PRIVATE)
def _validation_in_the_workspace(root: Path) -> None:
    shutil.copy(root / "validation" / "selection.json", root / "workspace" / "analysis" / "x.json")


@corruption(Code.PRIVATE)
def _host_path_in_the_workspace(root: Path) -> None:
    (root / "workspace" / "analysis" / "notes.txt").write_text(f"see {root}/validation")


@corruption(Code.PRIVATE)
def _token_in_the_record(root: Path) -> None:
    with edited(root / "agent" / "process-001" / "invocation.json") as document:
        document["argv"].append(f"EVOPOLICYGYM_SESSION_TOKEN={'x' * 43}")


@corruption(Code.PATH)
def _absolute_path_in_feedback(root: Path) -> None:
    with edited(feedback(root)) as document:
        document["episodes"][0]["trajectory"] = "/etc/passwd"


@corruption(Code.PATH)
def _path_that_leads_out(root: Path) -> None:
    with edited(feedback(root)) as document:
        document["artifacts"] = ["../submission.json"]


@corruption(Code.PATH)
def _path_of_the_record_in_run_json(root: Path) -> None:
    with edited(root / "run.json") as document:
        document["message"] = f"{root / 'ledger.jsonl'} was full"


@corruption(Code.LEFTOVER)
def _staging_left_behind(root: Path) -> None:
    (root / ".staging" / FIRST).mkdir(parents=True)


@corruption(Code.LEFTOVER)
def _temporary_file_left_behind(root: Path) -> None:
    (submission(root) / ".submission.json.new").write_text("{}")


@corruption(Code.LEFTOVER)
def _half_a_copy_in_the_workspace(root: Path) -> None:
    (root / "workspace" / "feedback" / f".{'0' * 16}").mkdir()


@corruption(Code.REPLAY)
def _hash_of_a_held_out_episode(root: Path) -> None:
    with edited(assessed(root)) as document:
        document["episodes"][0]["trajectory_hash"] = "0" * 64


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_is_found(record: Path, name: str) -> None:
    code, corrupt = CORRUPTIONS[name]
    corrupt(record)
    findings = check_record(record, replay=code is Code.REPLAY)
    assert code in {one.code for one in findings}, findings
    for one in findings:
        assert "\n" not in one.message
        assert not Path(one.path).is_absolute()
        assert str(record) not in one.message


def test_every_code_has_a_corruption() -> None:
    assert {code for code, _ in CORRUPTIONS.values()} == set(FindingCode)
    assert len(CORRUPTIONS) >= 20


# A document of every kind, and what may have become of it.
DOCUMENTS = (
    *("run.json", "events.jsonl", "ledger.jsonl", "agent/turns.jsonl"),
    *("agent/process-001/invocation.json", f"submissions/{FIRST}/submission.json"),
    *(f"submissions/{FIRST}/episodes.json", f"submissions/{FIRST}/feedback/feedback.json"),
    f"submissions/{FIRST}/feedback/episodes/000000/trajectory.jsonl",
    *("validation/selection.json", "assessment/assessment.json"),
)
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "list": lambda data: b"[]\n",
    "object": lambda data: b"{}\n",
    "binary": lambda data: bytes(range(256)),
    "deep": lambda data: b"[" * 100_000 + b"\n",
}


@pytest.mark.parametrize("place", DOCUMENTS)
def test_whatever_became_of_a_document_is_found(record: Path, place: str) -> None:
    path = record / place
    data = path.read_bytes()
    for name, damage in DAMAGES.items():
        damaged = damage(data)
        path.unlink()
        if damaged is not None:
            path.write_bytes(damaged)
        places = [where for _, where in found(record)]
        assert places, name
        assert place in places or name == "empty", name  # no line may be missed elsewhere only
        path.write_bytes(data)
    path.unlink()
    path.mkdir()
    assert place in [where for _, where in found(record)]


# ------------------------------------------------------------------------------- good records


@pytest.fixture(autouse=True)
def _by_value() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


PRELUDE = """
import json, subprocess, sys
from pathlib import Path

def session(*argv):
    done = subprocess.run(["evopolicygym-session", *argv], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)
"""


def played(home: Path, script: str, benchmark: Any, program: Program, **limits: Any) -> Path:
    (home / "agent.py").write_text(PRELUDE + script)
    agent = Command([sys.executable, str(home / "agent.py")])
    config = RunConfig(episode_budget=4, assessment=AssessmentConfig(2), jobs=1, **limits)
    run(program, benchmark, agent=agent, execution=UNSAFE, record_to=home / "record", config=config)
    return home / "record"


class Faulty:
    """`toy`, but its Episodes with an odd position in the pool raise."""

    def __init__(self) -> None:
        self.spec = load("toy").spec

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        plan = load("toy").episodes(split, seed=seed, count=count)
        odd = split == "train"
        return [replace(one, scenario={"bad": odd and i % 2 == 1}) for i, one in enumerate(plan)]

    def make_environment(self, episode: Episode) -> Any:
        if episode.scenario["bad"]:
            raise RuntimeError("no simulator today")
        return load("toy").make_environment(episode)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        return mean_return_feedback(records)


def test_host_faults_and_refunds_are_no_findings(tmp_path: Path) -> None:
    script = 'session("submit", "program", "--episodes", "0:4")\n' * 2
    root = played(tmp_path, script, Faulty(), STAY, max_submissions=2)
    assert {line["kind"] for line in read_lines(root / "ledger.jsonl")} == {"charge", "refund"}
    assert check_record(root) == ()
    with edited_lines(root / "ledger.jsonl") as lines:
        lines.remove(next(line for line in lines if line["kind"] == "refund"))
        for number, line in enumerate(lines):
            line["sequence"] = number
    assert ("ledger", f"submissions/{FIRST}/submission.json") in found(root)


def test_what_policies_print_and_agents_note_is_no_finding(tmp_path: Path) -> None:
    talkative = Program(
        {
            "policy.py": b"""
def make_policy(context):
    print(context.policy_seed, flush=True)
    raise ValueError(f"seed {context.policy_seed}")
"""
        }
    )
    script = """
session("submit", "program", "--episodes", "0:2")
feedback = Path("feedback/submission-000001")
said = (feedback / "episodes/000000/stdout.txt").read_text()
Path("analysis/notes.md").write_text(f"{said} {Path.cwd()}/program, {Path.cwd()}")
Path("analysis/link").symlink_to("/etc")
(feedback / "episodes/000001/stdout.txt").unlink()
"""
    root = played(tmp_path, script, load("toy"), talkative)
    assert read_json(root / "run.json")["status"] == "done"
    assert check_record(root) == ()


class Gallery:
    """Observations and actions of every kind that is written in a way of its own."""

    spec = BenchmarkSpec(
        id="gallery",
        description="",
        observation_space={
            "type": "Dict",
            "spaces": {
                "shared": {"type": "Box", "dtype": "uint8", "shape": [80, 80, 3],
                           "low": 0, "high": 255},
                "large": {"type": "Box", "dtype": "float32", "shape": [300],
                          "low": float("-inf"), "high": float("inf")},
                "small": {"type": "Box", "dtype": "float64", "shape": [2],
                          "low": float("-inf"), "high": float("inf")},
                "word": {"type": "Text", "min_length": 0, "max_length": 9, "charset": None},
                "pair": {"type": "Tuple", "spaces": [{"type": "Discrete", "n": 9},
                                                     {"type": "MultiBinary", "shape": [3]}]},
                "some": {"type": "Sequence", "space": {"type": "Discrete", "n": 9}},
                "one": {"type": "OneOf", "spaces": [{"type": "Discrete", "n": 9},
                                                    {"type": "MultiDiscrete", "nvec": [3, 3]}]},
                "graph": {"type": "Graph", "edge_space": {"type": "Discrete", "n": 3},
                          "node_space": {"type": "Box", "dtype": "float32", "shape": [2],
                                         "low": 0, "high": 1}},
            },
        },
        action_space={
            "type": "Tuple",
            "spaces": [
                {"type": "Box", "dtype": "float32", "shape": [2], "low": -1, "high": 1},
                {"type": "Discrete", "n": 3},
            ],
        },
        max_episode_steps=3,
        failure_return=0.0,
        environment_parameters={"limit": float("inf")},
    )  # fmt: skip

    def episodes(self, split: str, *, seed: int, count: int) -> Sequence[Episode]:
        return plan_episodes("gallery", split, seed=seed, count=count)

    def make_environment(self, episode: Episode) -> Any:
        return _Gallery(episode.environment_seed)

    def feedback(self, records: Sequence[EpisodeRecord]) -> Feedback:
        return mean_return_feedback(records)


class _Gallery:
    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def _observation(self) -> dict[str, Any]:
        draw = self._random
        return {
            "shared": draw.integers(0, 256, (80, 80, 3)),
            "large": draw.normal(size=300).astype(np.float32),
            "small": np.array([np.inf, draw.normal()]),
            "word": "späť\u2028",
            "pair": (3, draw.integers(0, 2, 3)),
            "some": [1, 2],
            "one": (1, [2, 1]),
            "graph": ([[0.1, 0.2], [0.3, 0.4]], [2], [[0, 1]]),
        }

    def reset(self) -> tuple[Any, Mapping[str, Any]]:
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        return self._observation(), float(action[0][0]) / 3, False, False, {"n": np.nan}

    def close(self) -> None:
        pass


def test_trajectories_of_every_space_have_their_hash(tmp_path: Path) -> None:
    program = Program(
        {
            "policy.py": b"""
class Policy:
    def act(self, observation):
        return [abs(observation["large"][1]) % 1, -0.3], 2
def make_policy(context):
    return Policy()
"""
        }
    )
    script = 'session("submit", "program", "--episodes", "0:2")'
    root = played(tmp_path, script, Gallery(), program)
    assert check_record(root) == ()
    (asked, *_) = check_record(root, replay=True)
    assert (asked.code, "no such Benchmark" in asked.message) == (Code.REPLAY, True)
    path = trajectory(root)
    good = path.read_bytes()
    for change in (
        lambda obs: obs["pair"].__setitem__(0, 4),
        lambda obs: obs["shared"].__setitem__("row", 1),
        lambda obs: obs["small"].__setitem__(0, "-Infinity"),
        lambda obs: obs["graph"][0][0].__setitem__(0, 0.25),
    ):
        with edited_lines(path) as lines:
            change(lines[0]["obs"])
        assert Code.HASH in {one.code for one in check_record(root)}
        path.write_bytes(good)


def test_policies_that_fail_are_no_findings(tmp_path: Path) -> None:
    script = """
session("submit", "program", "--episodes", "0:2")
source = Path("program/policy.py").read_text()
Path("program/policy.py").write_text(source.replace("return 1", "return 7"))
session("submit", "program", "--episodes", "0")
Path("program/policy.py").write_text("raise ValueError\\n" + source)
session("submit", "program", "--episodes", "0")
"""
    root = played(tmp_path, script, load("toy"), STAY)
    failures = [read_json(submission(root, name) / "episodes.json")["episodes"][0]["failure"]
                for name in (SECOND, "submission-000003")]  # fmt: skip
    assert [failure["code"] for failure in failures] == ["invalid_action", "import_error"]
    assert check_record(root, replay=True) == ()


def test_a_run_without_a_submission_is_no_finding(tmp_path: Path) -> None:
    root = played(tmp_path, "sys.exit(3)", load("toy"), STAY)
    assert read_json(root / "run.json")["status"] == "failed"
    assert check_record(root) == ()


def test_of_an_unfinished_run_what_is_there_is_checked(record: Path) -> None:
    """What a Host leaves that was killed while it played the third Submission."""
    third = "submission-000003"
    with edited(record / "run.json") as document:
        document |= {"status": "running", "submissions": [], "candidates": [], "episodes_used": 0}
        document |= dict.fromkeys(
            ("ended", "agent", "terminal_reason", "counts", "handed_over_by", "selected")
        )
        document |= {"validation_score": None, "assessment_score": None}
    lines = (record / "events.jsonl").read_bytes().split(b"\n")
    begun = next(i for i, line in enumerate(lines) if b"submission_started" in line
                 and third.encode() in line)  # fmt: skip
    (record / "events.jsonl").write_bytes(b"\n".join(lines[: begun + 2])[:-9])
    charges = (record / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (record / "ledger.jsonl").write_bytes(b"".join(charges[:3]))
    for name in ("validation", "assessment"):
        shutil.rmtree(record / name)
    for home in sorted((record / "submissions").iterdir())[2:]:
        shutil.rmtree(home)
    (record / ".staging" / third / "episodes" / "000006").mkdir(parents=True)
    shown = record / "workspace" / "feedback"
    for home in sorted(shown.glob("submission-*"))[2:]:
        shutil.rmtree(home)
    shutil.copy(shown / SECOND / "feedback.json", shown / "latest.json")
    (record / "agent" / "turns.jsonl").write_bytes(b"")
    assert found(record) == [("unfinished", "run.json")]
    with edited_lines(trajectory(record)) as trajectory_lines:
        trajectory_lines.pop(3)
    assert {code for code, _ in found(record)} == {"unfinished", "trajectory", "publication"}


# -------------------------------------------------------------------------------- the records


def test_records_are_found_at_or_below_a_directory(good: Path, tmp_path: Path) -> None:
    shutil.copytree(good, tmp_path / "a" / "x")
    shutil.copytree(good, tmp_path / "b")
    (tmp_path / "b" / "run.json").unlink()
    (tmp_path / "a" / "x" / "workspace" / "run.json").write_text("{}")
    assert find_records([tmp_path, tmp_path / "b"]) == [tmp_path / "a" / "x", tmp_path / "b"]
    assert find_records([tmp_path / "b"]) == [tmp_path / "b"]
    assert ("missing", "run.json") in found(tmp_path / "b")


def test_where_there_is_no_record(tmp_path: Path) -> None:
    for call in (lambda path: find_records([path]), check_record):
        with pytest.raises(ConfigurationError, match=r"no Run in .*run\.json"):
            call(tmp_path)
    with pytest.raises(ConfigurationError, match="does not exist"):
        find_records([tmp_path / "nowhere"])
