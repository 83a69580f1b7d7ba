from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evopolicygym.run.dialogue import Answer, AnswerError, parse_answer, prompt_line

texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.integers(1, 10_000), texts)
def test_a_prompt_is_one_line_of_json(turn: int, message: str) -> None:
    line = prompt_line(turn, message)
    assert "\n" not in line
    assert json.loads(line) == {"type": "prompt", "turn": turn, "message": message}


@pytest.mark.parametrize("message", ["a\nb", "a\r\nb", "a\u2028b\x85c", "\x00", "😀", "", '"\\'])
def test_prompts_of_any_characters(message: str) -> None:
    line = prompt_line(1, message)
    assert line.split("\n") == [line]
    assert json.loads(line)["message"] == message


def test_how_a_prompt_looks() -> None:
    assert prompt_line(2, "go on") == '{"type":"prompt","turn":2,"message":"go on"}'


@given(
    st.integers(1, 2**53),
    texts,
    st.booleans(),
    st.dictionaries(texts, plain, max_size=3),
    st.booleans(),
)
def test_answers_survive(
    turn: int, text: str, stop: bool, data: dict[str, Any], ascii_only: bool
) -> None:
    value = {"turn": turn, "text": text, "stop": stop, "data": data}
    line = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_answer(line) == Answer(turn, text, stop, data)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ('{"turn":1}', Answer(1)),
        (' {"turn" : 3 }\r', Answer(3)),
        ('{"turn":1,"text":""}', Answer(1)),
        ('{"turn":1,"text":"a\u2028b\x85"}', Answer(1, "a\u2028b\x85")),
        ('{"turn":1,"text":"\\ud83d\\ude00"}', Answer(1, "😀")),
        (
            '{"turn":1,"stop":true,"data":{"usage":{"input":1}}}',
            Answer(1, "", True, {"usage": {"input": 1}}),
        ),
        ('{"turn":1,"type":"answer","more":[1]}', Answer(1)),
        ('{"turn":99999999999999999999}', Answer(99999999999999999999)),
    ],
)
def test_answers(line: str, answer: Answer) -> None:
    assert parse_answer(line) == answer


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "is not JSON: "),
        ("hello", "is not JSON: "),
        ('{"turn":1', "is not JSON: "),
        ("{'turn':1}", "is not JSON: "),
        ('{"turn":1} {"turn":2}', "is not JSON: "),
        ('{"turn":NaN}', "is not JSON: "),
        ('{"turn":1,"data":{"cost_usd":1e999}}', "is not JSON: "),
        ('{"turn":1,"text":"a\nb"}', "is not JSON: "),
        ('{"turn":1,"text":"\\ud800"}', "is not JSON: "),
        ('{"turn":1,"text":"\ud800"}', "is not JSON: "),
        ('\ufeff{"turn":1}', "is not JSON: "),
        ('{"turn":1,"data":' + "[" * 100_000, "is not JSON: nested too deeply"),
        ("[]", "is no JSON object"),
        ("1", "is no JSON object"),
        ('"turn"', "is no JSON object"),
        ("null", "is no JSON object"),
        ("{}", "has turn None, expected the number of a prompt"),
        ('{"turn":null}', "has turn None, expected the number of a prompt"),
        ('{"turn":0}', "has turn 0, expected the number of a prompt"),
        ('{"turn":-1}', "has turn -1, expected the number of a prompt"),
        ('{"turn":true}', "has turn True, expected the number of a prompt"),
        ('{"turn":1.0}', "has turn 1.0, expected the number of a prompt"),
        ('{"turn":"1"}', "has turn '1', expected the number of a prompt"),
        ('{"turn":1,"text":null}', "has text of type NoneType, not str"),
        ('{"turn":1,"text":["a"]}', "has text of type list, not str"),
        ('{"turn":1,"stop":1}', "has stop of type int, not bool"),
        ('{"turn":1,"stop":"false"}', "has stop of type str, not bool"),
        ('{"turn":1,"data":null}', "has data of type NoneType, not dict"),
        ('{"turn":1,"data":[]}', "has data of type list, not dict"),
    ],
    ids=lambda value: ascii(value[:40]),
)
def test_what_is_no_answer(line: str, why: str) -> None:
    with pytest.raises(AnswerError) as error:
        parse_answer(line)
    assert str(error.value).startswith(why)


@given(st.text(st.characters()))
def test_any_line_is_an_answer_or_an_answer_error(line: str) -> None:
    try:
        found = parse_answer(line)
    except AnswerError:
        return
    assert found.turn >= 1


@given(
    st.fixed_dictionaries(
        {}, optional={key: plain | st.floats() for key in ("turn", "text", "stop", "data")}
    )
)
def test_any_object_is_an_answer_or_an_answer_error(value: dict[str, Any]) -> None:
    try:
        found = parse_answer(json.dumps(value))
    except AnswerError:
        return
    assert type(found.turn) is int
    assert (type(found.text), type(found.stop), type(found.data)) == (str, bool, dict)


def test_a_message_is_short() -> None:
    with pytest.raises(AnswerError) as error:
        parse_answer(json.dumps({"turn": "x" * 100_000}))
    assert len(str(error.value)) < 1000
