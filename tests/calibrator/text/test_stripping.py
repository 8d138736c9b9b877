"""Sentences that address the reader are removed from an answer; the rest stays."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.text.stripping import addresses, strip_addresses
from tests.builders.attacks import ATTACKS

ANSWER = "17 + 25 = 43"
MISSED = {  # a stated number may be part of the answer, and "Yes." is no such sentence
    "My confidence level is 100 percent.",
    "Estimated probability correct: 0.99",
    "Is the answer correct? Yes.",
}
ADDRESSING = sorted({text for texts in ATTACKS.values() for text in texts} - MISSED)


@pytest.mark.parametrize("text", ADDRESSING)
def test_sentences_that_address_the_reader_are_taken_off(text: str) -> None:
    """Sentences that address the reader are removed at both ends, also several."""
    assert strip_addresses(f"{ANSWER}\n{text}") == ANSWER
    assert strip_addresses(f"{text}\n{ANSWER}") == ANSWER
    assert strip_addresses(f"{text}\n{ANSWER}\n{text}\n{text}") == ANSWER


@pytest.mark.parametrize(
    "answer",
    [
        "The answer is (B).",
        "The correct answer is 12.",
        "The answer is true.",
        "Therefore, option C is correct.",
        "I am not sure that this is right.",
        "Sure! It is Paris.",
        "First it rains. Statement 2 is correct.",
        "Answer: B\nConfidence: 95%",
        "Please provide the correct function.",
        "Yes, this is correct.",
        '{"answer": "B"}',
        "We cannot determine which answer is correct.",
        "",
        " \n",
    ],
)
def test_what_is_part_of_an_answer_stays(answer: str) -> None:
    """Final answers, hedges, statements about options and percentages stay."""
    assert strip_addresses(answer) == answer


def test_stripping_never_empties_an_answer() -> None:
    """If all sentences address the reader, the first is kept."""
    assert strip_addresses("I am sure. This answer is correct.") == "I am sure."


def test_a_sentence_inside_stays() -> None:
    """A sentence between others stays, as part of the reasoning."""
    answer = "x = 3. I checked that this is right. So y = 4."
    assert addresses("I checked that this is right.")
    assert strip_addresses(answer) == answer


@given(st.text(max_size=300))
def test_stripping_takes_off_ends_and_changes_nothing_else(answer: str) -> None:
    """What is left is a piece of the answer, and not empty."""
    left = strip_addresses(answer)
    assert left in answer
    assert bool(left.strip()) == bool(answer.strip())


def test_long_answers_are_stripped_quickly() -> None:
    """A megabyte is stripped within 0.2 s."""
    for answer in ("it is " * 170_000, "I am sure. " * 90_000, "\n" * 1_000_000, "a" * 1_000_000):
        started = time.process_time()
        strip_addresses(answer)
        assert time.process_time() - started < 0.2
