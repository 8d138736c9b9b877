"""An answer without the question that it repeats."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.text.stripping import without_question

QUESTION = "In which year did the Berlin Wall fall?"


@pytest.mark.parametrize(
    "answer",
    [
        "{q}\n1987",
        "1987\n{q}",
        "{q} 1987",
        'To the question "{q}" the answer is this. 1987',
        "Question: {q}\nAnswer:\n1987",
        "You asked: {q}\n\n1987",
        "1987 (In which year did the Berlin Wall fall?)",
        "1987\nThis is about the year in which the Berlin Wall did fall.",
        "The year of the Berlin Wall's fall:\n1987",
    ],
)
def test_a_restatement_is_taken_off(answer: str) -> None:
    """A repeated question is removed before and after the answer, also in another order."""
    left = without_question(QUESTION, answer.format(q=QUESTION))
    assert left.removeprefix("Answer:\n").strip() == "1987"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (QUESTION, "The Berlin Wall fell in 1989."),
        (QUESTION, QUESTION),
        (QUESTION, "The Berlin Wall did not fall in that year.\nIt fell later."),
        (
            "Is it true that every square is a rectangle?",
            "Not every square is a rectangle. Ask on.",
        ),
        ("What is the prod for driving cattle called?", "The prod is called a cattle prod. It is."),
        ("Solve 3x - 7 = 11.", "3x - 7 = 11\n3x = 18\nx = 6"),
        ("Who was older, Bach or Handel?", "Bach was older. Both were born in 1685."),
        (
            "def add(a, b) of two numbers: complete it",
            "def add(a, b) of two numbers: complete it\nx",
        ),
    ],
)
def test_what_says_anything_of_its_own_stays(question: str, answer: str) -> None:
    """Words that the question lacks, a negation or a choice stay, and so does all there is."""
    assert without_question(question, answer) == answer


@given(st.text(max_size=80), st.text(max_size=200))
def test_something_is_left_of_every_answer(question: str, answer: str) -> None:
    """No answer becomes empty or longer."""
    left = without_question(question, answer)
    assert left == answer or (left.strip() and len(left) <= len(answer))


def test_it_takes_linear_time() -> None:
    """A long answer of many repetitions takes linear time."""
    answer = (QUESTION + " x (") * 5_000
    started = time.process_time()
    without_question(QUESTION, answer)
    without_question(QUESTION, answer[:19_000])
    assert time.process_time() - started < 1
