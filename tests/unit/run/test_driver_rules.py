"""The driver's rules that need no process: when to try again, and what to say."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.envs.toy import ToyBenchmark
from evopolicygym.run.config import RunConfig, ValidationConfig
from evopolicygym.run.driver import continuation, retry_delay
from evopolicygym.run.ledger import Ledger
from evopolicygym.run.session import Evaluated, Session, Submission


@pytest.mark.parametrize(
    ("first", "delays"),
    [
        (15.0, [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]),
        (0.5, [0.5, 1.0, 2.0, 4.0]),
        (600.0, [600.0, 600.0]),
        (601.0, [600.0, 600.0]),
        (1e9, [600.0]),
    ],
)
def test_waits_double_up_to_ten_minutes(first: float, delays: list[float]) -> None:
    assert [retry_delay(first, retry) for retry in range(1, len(delays) + 1)] == delays


@given(st.floats(1e-6, 1e9), st.integers(1, 10**6))
def test_a_wait_is_never_shorter_than_the_one_before(first: float, retry: int) -> None:
    delay = retry_delay(first, retry)
    assert type(delay) is float
    assert min(first, 600.0) <= delay <= 600.0
    assert delay <= retry_delay(first, retry + 1)


def test_very_many_retries_overflow_nothing() -> None:
    assert retry_delay(15, 10**9) == 600.0


# ------------------------------------------------------------------------ continuation


class Stand:
    """A session whose scores the test sets."""

    def __init__(self, root: Path, config: RunConfig, scores: Mapping[str, float | None]) -> None:
        (root / "workspace" / "program").mkdir(parents=True)
        (root / "workspace" / "program" / "policy.py").write_bytes(b"def make_policy(c): ...\n")
        self.config = config
        self.scores = dict(scores)
        self.session = Session(
            config,
            ToyBenchmark().spec,
            root / "workspace",
            Ledger(root / "ledger.jsonl", budget=config.episode_budget),
            self.evaluate,
        )

    def evaluate(self, submission: Submission) -> Evaluated:
        score = self.scores[submission.submission_id]
        return Evaluated(score, (), lambda settled, used, left: None)

    def submit(self, selector: str, request: str) -> None:
        receipt = self.session.submit("program", selector, request)
        self.session.receipt(receipt.submission_id, wait=5)

    def says(self) -> str:
        return continuation(self.session, self.config)


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    config = RunConfig(episode_budget=10, episode_pool_size=20, max_submissions=4)
    scores = {"submission-000001": 12.5, "submission-000002": None, "submission-000003": 1 / 3}
    return Stand(tmp_path, config, scores)


def test_before_the_first_submission(stand: Stand) -> None:
    assert stand.says() == (
        "The Run goes on: `evopolicygym-session finish` was not called. "
        "10 of 10 Episodes and 4 submissions are left. Published: none. "
        "`finish` takes published submissions: exactly 1 of them. TASK.md has the rules; go on."
    )


def test_what_was_published_is_named_with_its_score(stand: Stand) -> None:
    stand.submit("0:2", "a")
    stand.submit("3", "b")
    stand.submit("4:8", "c")
    assert stand.says() == (
        "The Run goes on: `evopolicygym-session finish` was not called. "
        "3 of 10 Episodes and 1 submissions are left. "
        "Published: submission-000001 (score 12.5, 2 Episodes), "
        "submission-000002 (score none, 1 Episodes), "
        "submission-000003 (score 0.333333, 4 Episodes). "
        "`finish` takes published submissions: exactly 1 of them. TASK.md has the rules; go on."
    )


@pytest.mark.parametrize("most", [1, 2, 5])
def test_how_many_candidates_finish_takes(tmp_path: Path, most: int) -> None:
    config = RunConfig(episode_budget=4, validation=ValidationConfig(4, max_candidates=most))
    said = Stand(tmp_path, config, {}).says()
    wanted = "exactly 1 of them." if most == 1 else f"1 to {most} of them, best first."
    assert f"`finish` takes published submissions: {wanted}" in said


@pytest.mark.parametrize(
    ("score", "shown"), [(0.0, "0"), (-2.5, "-2.5"), (1e9, "1e+09"), (123456.0, "123456")]
)
def test_scores(stand: Stand, score: float, shown: str) -> None:
    stand.scores["submission-000001"] = score
    stand.submit("0", "a")
    assert f"submission-000001 (score {shown}, 1 Episodes)" in stand.says()


def test_what_is_still_being_evaluated_is_not_named(stand: Stand) -> None:
    go = threading.Event()
    evaluate = stand.evaluate

    def wait(submission: Submission) -> Evaluated:
        assert go.wait(10)
        return evaluate(submission)

    stand.session._evaluate = wait  # type: ignore[method-assign]
    receipt = stand.session.submit("program", "0:2", "a")
    try:
        said = stand.says()
    finally:
        go.set()
    stand.session.receipt(receipt.submission_id, wait=5)
    assert "8 of 10 Episodes and 3 submissions are left. Published: none." in said
    assert "Published: submission-000001 (score 12.5, 2 Episodes)." in stand.says()


def test_it_is_one_line(stand: Stand) -> None:
    stand.submit("0:2", "a")
    assert "\n" not in stand.says()
