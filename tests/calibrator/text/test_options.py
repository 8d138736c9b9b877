"""The final option of a reply: changed wherever it is stated as the answer."""

from __future__ import annotations

import random
import time

import pytest

from calibrator.text.options import (
    argued_option_changed,
    final_letter,
    final_option_changed,
    options_of,
)

QUESTION = "Which gas do plants take up?\nA. oxygen\nB. carbon dioxide\n(C) helium\nD) neon"


def changed(answer: str, seed: int = 0, question: str = QUESTION) -> str | None:
    return final_option_changed(question, answer, random.Random(seed))


def test_options_are_read_in_their_usual_forms() -> None:
    """Options are read with a dot or brackets; a single one is no choice."""
    assert options_of(QUESTION) == {
        "A": "oxygen",
        "B": "carbon dioxide",
        "C": "helium",
        "D": "neon",
    }
    assert options_of("A. oxygen") == {}


@pytest.mark.parametrize(
    "answer",
    [
        "Plants need B to grow. The answer is (B).",
        "Plants need B to grow. **Answer:** B",
        'Plants need B to grow. {"answer": "B"}',
        "Plants need B to grow. \\boxed{B}",
        "Plants need B to grow. \\boxed{\\text{B}}",
        "Plants need B to grow. \u7b54\u6848\u662fB",
    ],
)
def test_the_letter_changes_and_the_working_stays(answer: str) -> None:
    """Only the letter changes, to another option of the question."""
    for seed in range(10):
        new = changed(answer, seed)
        assert new is not None
        assert new.startswith("Plants need B to grow. ")
        places = [n for n, (a, b) in enumerate(zip(answer, new, strict=True)) if a != b]
        assert len(places) == 1
        assert new[places[0]] in "ACD"


def test_the_options_text_changes_with_its_letter() -> None:
    """The option's text changes with its letter."""
    new = changed("The answer is B. carbon dioxide, which they need.")
    assert new in {
        "The answer is A. oxygen, which they need.",
        "The answer is C. helium, which they need.",
        "The answer is D. neon, which they need.",
    }


def test_every_statement_of_the_answer_changes_alike() -> None:
    """Every statement of the answer changes to the same option."""
    letters = set()
    for seed in range(10):
        new = changed("\\boxed{B}\n\nThe correct answer is B. Option A is wrong.", seed)
        assert new is not None
        box, sentence = new[7], new[len("\\boxed{B}\n\nThe correct answer is ")]
        assert box == sentence
        assert new.endswith("Option A is wrong.")
        letters.add(box)
    assert letters == {"A", "C", "D"}


@pytest.mark.parametrize(
    "answer",
    [
        "The answer is a gas that plants need.",
        "The answer is A gas that plants need.",
        "The answer is I think carbon dioxide.",
        "The answer is carbon dioxide.",
        "The answer is (E).",
        "",
    ],
)
def test_no_option_no_change(answer: str) -> None:
    """An article, a pronoun or an unknown letter is no final option."""
    assert changed(answer) is None


def test_without_options_in_the_question_nothing_changes() -> None:
    """Without options in the question nothing changes."""
    assert changed("The answer is (B).", question="Which gas do plants take up?") is None
    assert final_letter("The answer is (B).") is not None


@pytest.mark.parametrize(
    "text", ["answer is" + " " * 100_000, "answer: (" * 12_000, "A. x\n" * 20_000]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    """Hostile text of 100 kB is read within a second."""
    start = time.perf_counter()
    changed(text)
    changed("The answer is (B).", question=text)
    assert time.perf_counter() - start < 1


def test_a_changed_argument_keeps_the_final_option() -> None:
    """The working argues for another option, and the final one stays."""
    reply = "Plants take up carbon dioxide, so option B fits. The answer is (B)."
    for seed in range(9):
        made = argued_option_changed(QUESTION, reply, random.Random(seed))
        assert made is not None
        assert made.endswith("The answer is (B).")
        assert "carbon dioxide" not in made
        assert "option B" not in made
    assert argued_option_changed(QUESTION, "The answer is (B).", random.Random(0)) is None
