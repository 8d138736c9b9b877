"""Checks by rule: options against the reasoning, calls against the offered tools."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.features.checks import CHECKS, calls, checks_of, choice

ASKED = "Which is the largest?\nA. 12 apples\nB. 7 pears\nC. 30 plums, all of them ripe"
TOOL = {
    "name": "weather.get",
    "description": "Get the weather of a city.",
    "parameters": {
        "type": "dict",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
        },
        "required": ["city"],
    },
}
REQUEST = (
    f"User request: weather in Oslo for 3 days\n\nAvailable functions (JSON):\n{json.dumps([TOOL])}"
)
MISSING, UNKNOWN, MISTYPED, OUTSIDE, EMPTY, UNASKED = range(4, 10)  # columns of `calls`


def test_an_option_is_held_against_the_reasoning() -> None:
    """An option is checked against the words and numbers of the reasoning."""
    right = choice(ASKED, "There are 30 plums, all ripe. The answer is (C).")
    wrong = choice(ASKED, "There are 30 plums, all ripe. The answer is (A).")
    assert right[0] == wrong[0] == 1.0
    assert right[2] > wrong[2]
    assert (right[3], wrong[3]) == (1.0, 0.0)
    assert (right[5], wrong[5]) == (1.0, 0.0)
    assert (right[7], wrong[7]) == (1.0, pytest.approx(2 / 3))  # the longest option, and the second


def test_without_options_or_a_letter_there_is_nothing_to_check() -> None:
    """Without options all values are 0; options without a chosen letter are marked."""
    assert choice("What is 2 + 2?", "The answer is 4.") == [0.0] * 8
    assert choice(ASKED, "I do not know.") == [0.0, 1.0, *[0.0] * 6]


@pytest.mark.parametrize(
    ("call", "column"),
    [
        ('[weather.get(days=3)]', MISSING),
        ('[weather.get(city="Oslo", colour="red")]', UNKNOWN),
        ('[weather.get(city="Oslo", days="three")]', MISTYPED),
        ('[weather.get(city="Oslo", unit="rankine")]', OUTSIDE),
        ('[weather.get(city="")]', EMPTY),
        ('[weather.get(city="Bergen")]', UNASKED),
    ],
)  # fmt: skip
def test_each_fault_of_a_call_has_its_value(call: str, column: int) -> None:
    """Each fault of a call has its own value, which is 0 for a good call."""
    good = calls(REQUEST, '[weather.get(city="Oslo", days=3)]')
    assert good[MISSING : UNASKED + 1] == [0.0] * 6
    assert calls(REQUEST, call)[column] > 0


def test_calls_are_read_in_the_forms_that_models_write() -> None:
    """Python's spelling, JSON and JSON within JSON are the same call; dots may be underscores."""
    forms = (
        'weather.get(city="Oslo", days=3)',
        "[weather_get(city='Oslo', days=3)]",
        '[{"weather.get": {"city": "Oslo", "days": 3}}]',
        json.dumps([{"weather_get": json.dumps({"city": "Oslo", "days": 3})}]),
    )
    assert len({tuple(calls(REQUEST, form)) for form in forms}) == 1


def test_an_answer_without_a_call_and_one_of_an_unknown_tool_differ() -> None:
    """No call, a call of an unknown tool and a call of a known one differ."""
    answers = ("I cannot help.", "[stock.price(name='X')]", "[weather.get(city='Oslo')]")
    assert len({tuple(calls(REQUEST, answer)) for answer in answers}) == 3


SNIPPETS = st.sampled_from(
    ["[", "{", "(", ")", "f(", "a=", '"', "'", "\\", ",", "A. x\n", "1e999", "NaN", "None", '{"a":',
     "9" * 5_000]
)  # fmt: skip


@settings(max_examples=200)
@given(st.lists(SNIPPETS | st.text(max_size=5), max_size=30).map("".join))
def test_any_answer_can_be_checked(answer: str) -> None:
    """Any answer gives as many numbers within bounds."""
    for question in (REQUEST, ASKED, answer):
        found = checks_of(question, answer)
        assert len(found) == CHECKS
        assert all(0 <= value < 10 for value in found)


def test_nested_and_long_answers_are_quick() -> None:
    """Nested and long answers are checked within 0.3 s."""
    for answer in ("weather.get(city=" + "[" * 5_000, "\n" * 6_000, "f(" * 3_000, " " * 6_000):
        started = time.process_time()
        assert len(checks_of(REQUEST, answer)) == CHECKS
        assert len(checks_of(answer, answer)) == CHECKS
        assert time.process_time() - started < 0.3
    deep = json.dumps([{"weather.get": {"city": 1}}]).replace("1", "[" * 900 + "]" * 900)
    assert len(checks_of(REQUEST, deep)) == CHECKS
