from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.benchmark import BenchmarkSpec
from evopolicygym.program import Program
from evopolicygym.run.selection import host_candidates, select
from evopolicygym.run.session import Submission
from evopolicygym.run.session_models import SubmissionStatus


def spec(direction: Any = "maximize") -> BenchmarkSpec:
    space = {"type": "Discrete", "n": 2}
    return BenchmarkSpec(
        id="lab",
        description="",
        observation_space=space,
        action_space=space,
        max_episode_steps=1,
        failure_return=0.0,
        score_direction=direction,
    )


def submission(
    number: int,
    score: float | None,
    *,
    episodes: int = 1,
    program: int | None = None,
    status: SubmissionStatus = SubmissionStatus.PUBLISHED,
) -> Submission:
    source = f"make_policy = {number if program is None else program}".encode()
    return Submission(
        submission_id=f"submission-{number:06d}",
        request_id=str(number),
        program=Program({"policy.py": source}),
        selector="0",
        episode_indices=tuple(range(episodes)),
        status=status,
        score=score,
    )


def chosen(
    submissions: Sequence[Submission], *, most: int = 10, direction: str = "maximize"
) -> list[int]:
    """Numbers of the Host's candidates."""
    found = host_candidates(submissions, spec(direction), most=most)
    return [int(name.removeprefix("submission-")) for name in found]


# ----------------------------------------------------------------------- candidates


@pytest.mark.parametrize(
    ("direction", "expected"), [("maximize", [3, 1, 2]), ("minimize", [2, 1, 3])]
)
def test_candidates_are_ordered_by_score(direction: str, expected: list[int]) -> None:
    submissions = [submission(1, 0.0), submission(2, -1.5), submission(3, 7.0)]
    assert chosen(submissions, direction=direction) == expected


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_no_more_candidates_than_allowed(most: int) -> None:
    submissions = [submission(number, float(number)) for number in (1, 2, 3)]
    assert chosen(submissions, most=most) == [3, 2, 1][:most]


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_equal_scores_prefer_more_episodes_then_the_earlier(direction: str) -> None:
    submissions = [
        submission(1, 2.0, episodes=4),
        submission(2, 2.0, episodes=5),
        submission(3, 2.0, episodes=5),
        submission(4, 2.0, episodes=4),
    ]
    assert chosen(submissions, direction=direction) == [2, 3, 1, 4]


def test_each_program_is_a_candidate_once_by_its_best_submission() -> None:
    submissions = [
        submission(1, 1.0, program=7),
        submission(2, 3.0, program=7),
        submission(3, 2.0, program=8),
        submission(4, 0.5, program=9),
    ]
    assert chosen(submissions) == [2, 3, 4]
    assert chosen(submissions, most=2) == [2, 3]


@pytest.mark.parametrize(
    "other",
    [
        submission(2, 9.0, status=SubmissionStatus.EVALUATING),
        submission(2, 9.0, status=SubmissionStatus.FAILED),
        submission(2, None),
    ],
    ids=["evaluating", "failed", "no score"],
)
def test_only_published_scores_count(other: Submission) -> None:
    assert chosen([submission(1, -3.0), other]) == [1]
    assert chosen([other]) == []


def test_nothing_was_submitted() -> None:
    assert chosen([]) == []


@given(
    st.lists(
        st.tuples(st.none() | st.integers(-2, 2).map(float), st.integers(1, 3), st.integers(0, 3)),
        max_size=8,
    ),
    st.integers(1, 4),
    st.sampled_from(["maximize", "minimize"]),
)
def test_no_candidate_is_worse_than_one_left_out(
    rows: list[tuple[float | None, int, int]], most: int, direction: str
) -> None:
    submissions = [
        submission(number, score, episodes=episodes, program=program)
        for number, (score, episodes, program) in enumerate(rows)
    ]
    numbers = chosen(submissions, most=most, direction=direction)
    programs = [rows[number][2] for number in numbers]
    scored = {program for score, _, program in rows if score is not None}
    assert len(set(programs)) == len(programs) == min(most, len(scored))
    sign = 1 if direction == "maximize" else -1
    best = {
        program: max(sign * s for s, _, p in rows if s is not None and p == program)
        for program in scored
    }
    for number in numbers:
        score = rows[number][0]
        assert score is not None
        assert sign * score == best[rows[number][2]]
    ordered = [best[program] for program in programs]
    assert ordered == sorted(best.values(), reverse=True)[: len(ordered)]


# ------------------------------------------------------------------------ selection


@pytest.mark.parametrize(
    ("scores", "highest", "lowest"),
    [
        ({"a": 1.0, "b": 2.0, "c": 0.0}, "b", "c"),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, "a", "a"),
        ({"a": None, "b": -1.0, "c": None}, "b", "b"),
        ({"a": None, "b": -2.0, "c": -1.0}, "c", "b"),
        ({"b": -1.0}, "b", "b"),
        ({"a": None}, None, None),
        ({}, None, None),
        ({"z": 5.0}, None, None),
    ],
)
def test_the_best_candidate_is_selected(
    scores: dict[str, float | None], highest: str | None, lowest: str | None
) -> None:
    assert select(["a", "b", "c"], scores, spec("maximize")) == highest
    assert select(["a", "b", "c"], scores, spec("minimize")) == lowest


def test_equal_scores_prefer_the_earlier_candidate_not_the_earlier_score() -> None:
    assert select(["c", "a"], {"a": 1.0, "c": 1.0}, spec()) == "c"


def test_no_candidates() -> None:
    assert select([], {"a": 1.0}, spec()) is None
