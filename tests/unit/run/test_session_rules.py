"""The session's rules, without HTTP and without processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from evopolicygym.envs.toy import ToyBenchmark
from evopolicygym.errors import SessionError
from evopolicygym.run.config import RunConfig, ValidationConfig
from evopolicygym.run.ledger import Ledger, episodes_used
from evopolicygym.run.server import HTTP_STATUS
from evopolicygym.run.session import Evaluated, Session, Submission
from evopolicygym.run.session_models import SessionErrorCode, SubmissionStatus

POLICY = b"def make_policy(context): ...\n"
Evaluate = Callable[[Submission], Evaluated]


class Stand:
    """A session over a real workspace and ledger, with an evaluation the test controls."""

    def __init__(self, root: Path, config: RunConfig, evaluate: Evaluate | None = None) -> None:
        self.workspace = root / "workspace"
        (self.workspace / "program").mkdir(parents=True)
        (self.workspace / "program" / "policy.py").write_bytes(POLICY)
        self.path = root / "ledger.jsonl"
        self.ledger = Ledger(self.path, budget=config.episode_budget)
        self.go = threading.Event()
        self.go.set()
        self.published: list[str] = []
        self.session = Session(
            config, ToyBenchmark().spec, self.workspace, self.ledger, evaluate or self.evaluate
        )

    def evaluate(self, submission: Submission) -> Evaluated:
        self.go.wait(10)
        return Evaluated(
            float(len(submission.episode_indices)),
            (),
            lambda settled, used, left: self.published.append(settled.submission_id),
        )

    def submit(self, selector: str, request: str = "r1", program: str = "program") -> str:
        receipt = self.session.submit(program, selector, request)
        return receipt.submission_id

    def refused(self, call: Callable[[], object]) -> str:
        used = self.ledger.used
        with pytest.raises(SessionError) as error:
            call()
        assert self.ledger.used == used == episodes_used(self.path)
        return error.value.code


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path, RunConfig(episode_budget=10, episode_pool_size=20, max_submissions=3))


def test_a_submission_is_charged_evaluated_and_published(stand: Stand) -> None:
    name = stand.submit("0:2,4")
    receipt = stand.session.receipt(name, wait=5)
    assert receipt.status is SubmissionStatus.PUBLISHED
    assert receipt.score == 3.0
    assert receipt.episode_indices == [0, 1, 4]
    assert (receipt.episodes_used, receipt.episodes_remaining) == (3, 7)
    assert receipt.submissions_remaining == 2
    assert receipt.feedback == "feedback/submission-000001/feedback.json"
    assert stand.published == [name] == ["submission-000001"]
    assert episodes_used(stand.path) == 3


@pytest.mark.parametrize(
    "selector", ["3:1", "0,0", "1:2,1", "9999", " 1", "", "20", "0:21", "a", "1;2", "-1"]
)
def test_bad_selectors_are_free(stand: Stand, selector: str) -> None:
    assert stand.refused(lambda: stand.submit(selector)) == SessionErrorCode.INVALID_SELECTOR


def test_over_budget_is_free(stand: Stand) -> None:
    stand.session.receipt(stand.submit("0:8"), wait=5)
    assert stand.refused(lambda: stand.submit("0:3", "r2")) == SessionErrorCode.OVER_BUDGET
    stand.session.receipt(stand.submit("0:2", "r3"), wait=5)
    assert stand.ledger.remaining == 0


def test_the_number_of_submissions_is_limited(stand: Stand) -> None:
    for number in range(3):
        stand.session.receipt(stand.submit("0", f"r{number}"), wait=5)
    assert stand.refused(lambda: stand.submit("1", "r9")) == SessionErrorCode.SUBMISSION_LIMIT


def test_minimum_and_maximum_of_one_submission(tmp_path: Path) -> None:
    config = RunConfig(
        episode_budget=10, min_episodes_per_submission=4, max_episodes_per_submission=6
    )
    stand = Stand(tmp_path, config)
    assert stand.refused(lambda: stand.submit("0:3")) == SessionErrorCode.TOO_FEW_EPISODES
    assert stand.refused(lambda: stand.submit("0:7")) == SessionErrorCode.TOO_MANY_EPISODES
    stand.session.receipt(stand.submit("0:6"), wait=5)
    stand.session.receipt(stand.submit("0:4", "r2"), wait=5)


def test_the_last_episodes_may_be_fewer_than_the_minimum(tmp_path: Path) -> None:
    stand = Stand(tmp_path, RunConfig(episode_budget=5, min_episodes_per_submission=3))
    stand.session.receipt(stand.submit("0:3"), wait=5)
    stand.session.receipt(stand.submit("0:2", "r2"), wait=5)
    assert stand.ledger.remaining == 0


@pytest.mark.parametrize(
    ("program", "prepare"),
    [
        ("missing", None),
        ("/etc", None),
        ("../outside", None),
        ("program/../program/..", None),
        (".", None),
        ("", None),
        ("link", lambda w: (w / "link").symlink_to(w / "program")),
        ("link/program", lambda w: (w / "link").symlink_to(w)),
        ("program", lambda w: (w / "program" / "x").symlink_to("/etc/passwd")),
        ("program", lambda w: (w / "program" / "policy.py").unlink()),
        ("program", lambda w: (w / "program" / "policy.py").write_text("x = 1")),
    ],
)
def test_programs_that_cannot_be_captured_are_free(
    stand: Stand, program: str, prepare: Callable[[Path], object] | None
) -> None:
    if prepare is not None:
        prepare(stand.workspace)
    code = stand.refused(lambda: stand.submit("0", program=program))
    assert code == SessionErrorCode.INVALID_PROGRAM


def test_refusals_name_no_host_path(stand: Stand) -> None:
    (stand.workspace / "program" / "link").symlink_to("/etc/passwd")
    with pytest.raises(SessionError) as error:
        stand.submit("0")
    assert str(stand.workspace.parent) not in str(error.value)
    assert "link" in str(error.value)


def test_the_same_request_is_charged_once(stand: Stand) -> None:
    first = stand.submit("0:2", "same")
    assert stand.submit("0:2", "same") == first
    stand.session.receipt(first, wait=5)
    assert stand.submit("0:2", "same") == first
    assert episodes_used(stand.path) == 2
    code = stand.refused(lambda: stand.submit("0:3", "same"))
    assert code == SessionErrorCode.REQUEST_CONFLICT


@pytest.mark.parametrize("request_id", ["", "a b", "x" * 65, "ä", "a/b", "a\n"])
def test_request_ids_are_checked(stand: Stand, request_id: str) -> None:
    code = stand.refused(lambda: stand.submit("0", request_id))
    assert code == SessionErrorCode.INVALID_REQUEST


def test_two_at_once_is_busy(stand: Stand) -> None:
    stand.go.clear()
    name = stand.submit("0:2", "a")
    assert stand.refused(lambda: stand.submit("2:4", "b")) == SessionErrorCode.BUSY
    assert stand.refused(lambda: stand.session.finish([name])) == SessionErrorCode.BUSY
    assert stand.session.receipt(name).status is SubmissionStatus.EVALUATING
    stand.go.set()
    assert stand.session.receipt(name, wait=5).status is SubmissionStatus.PUBLISHED


def test_parallel_submits_never_overdraw(tmp_path: Path) -> None:
    """8 clients of 32 Episodes each with a budget of 128: exactly 4 are accepted."""
    stand = Stand(tmp_path, RunConfig(episode_budget=128, max_submissions=20))
    accepted, refused = [], []

    def client(number: int) -> None:
        while True:
            try:
                name = stand.submit("0:32", f"client-{number}")
            except SessionError as error:
                if error.code == SessionErrorCode.BUSY:
                    continue
                refused.append(error.code)
                return
            accepted.append(name)
            stand.session.receipt(name, wait=5)
            return

    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(accepted) == [f"submission-{n:06d}" for n in range(1, 5)]
    assert refused == [SessionErrorCode.OVER_BUDGET] * 4
    assert episodes_used(stand.path) == 128


def test_finish_hands_over_one_candidate(stand: Stand) -> None:
    names = []
    for number in range(2):
        names.append(stand.submit("0", f"r{number}"))
        stand.session.receipt(names[-1], wait=5)
    for bad in ([], names, [names[0], names[0]]):
        code = stand.refused(lambda bad=bad: stand.session.finish(bad))  # type: ignore[misc]
        assert code == SessionErrorCode.INVALID_CANDIDATES
    code = stand.refused(lambda: stand.session.finish(["submission-000009"]))
    assert code == SessionErrorCode.UNKNOWN_SUBMISSION
    assert stand.session.candidates is None
    stand.session.finish([names[1]])
    assert stand.session.candidates == (names[1],)
    stand.session.finish([names[1]])  # the same again changes nothing
    assert stand.refused(lambda: stand.session.finish([names[0]])) == "session_closed"
    assert stand.refused(lambda: stand.submit("1", "r7")) == "session_closed"


def test_validation_takes_an_ordered_list(tmp_path: Path) -> None:
    config = RunConfig(episode_budget=10, validation=ValidationConfig(1, max_candidates=2))
    stand = Stand(tmp_path, config)
    names = []
    for number in range(3):
        names.append(stand.submit("0", f"r{number}"))
        stand.session.receipt(names[-1], wait=5)
    code = stand.refused(lambda: stand.session.finish(names))
    assert code == SessionErrorCode.INVALID_CANDIDATES
    stand.session.finish([names[2], names[0]])
    assert stand.session.candidates == (names[2], names[0])


def test_host_faults_are_refunded(tmp_path: Path) -> None:
    stand = Stand(
        tmp_path,
        RunConfig(episode_budget=5),
        lambda submission: Evaluated(1.0, (1, 2), lambda *_: None),
    )
    receipt = stand.session.receipt(stand.submit("0:4"), wait=5)
    assert receipt.status is SubmissionStatus.PUBLISHED
    assert (receipt.episodes_used, receipt.episodes_remaining) == (2, 3)
    assert "2 Episodes met an environment error" in (receipt.message or "")
    assert episodes_used(stand.path) == 2


def test_an_evaluation_that_cannot_be_done_is_refunded_and_reported(tmp_path: Path) -> None:
    def broken(submission: Submission) -> Evaluated:
        raise OSError("disk full")

    stand = Stand(tmp_path, RunConfig(episode_budget=5), broken)
    receipt = stand.session.receipt(stand.submit("0:4"), wait=5)
    assert receipt.status is SubmissionStatus.FAILED
    assert episodes_used(stand.path) == 0
    assert "disk full" in str(stand.session.broken)
    assert "disk full" not in (receipt.message or "")
    assert stand.refused(lambda: stand.submit("0", "r2")) == SessionErrorCode.HOST_FAILURE


def test_publishing_that_fails_refunds_once(tmp_path: Path) -> None:
    def publish(*_: object) -> None:
        raise OSError("disk full")

    stand = Stand(tmp_path, RunConfig(episode_budget=5), lambda _: Evaluated(1.0, (0,), publish))
    receipt = stand.session.receipt(stand.submit("0:4"), wait=5)
    assert receipt.status is SubmissionStatus.FAILED
    assert episodes_used(stand.path) == 0


def test_info_tells_limits_and_state(stand: Stand) -> None:
    name = stand.submit("0:2")
    stand.session.receipt(name, wait=5)
    info = stand.session.info()
    assert info.state == "open"
    assert (info.episode_pool_size, info.episode_budget) == (20, 10)
    assert [s.submission_id for s in info.submissions] == [name]
    assert "seed" not in info.model_dump_json()


def test_close_waits_for_what_was_charged(stand: Stand) -> None:
    stand.go.clear()
    name = stand.submit("0")
    assert not stand.session.close(timeout=0.05)
    assert stand.refused(lambda: stand.submit("1", "r2")) == SessionErrorCode.SESSION_CLOSED
    stand.go.set()
    assert stand.session.close(timeout=5)
    assert stand.session.receipt(name).status is SubmissionStatus.PUBLISHED


def test_every_refusal_has_a_status() -> None:
    assert HTTP_STATUS.keys() == set(SessionErrorCode)
