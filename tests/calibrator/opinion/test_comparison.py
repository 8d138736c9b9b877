"""Comparison: whether two replies come to the same."""

from __future__ import annotations

import pytest

from calibrator.opinion import compare, final_answer

HOW_MANY, WHO = "How many apples are left?", "Who painted the ceiling?"
OPTIONS = "Which gas do plants take up?\nA. oxygen\nB. carbon dioxide\nC. helium"
LONG = "Here is what I know of it and of those who worked there " * 4


@pytest.mark.parametrize(
    ("question", "one", "other", "outcome"),
    [
        (HOW_MANY, "5", "There are five and a half, no: the answer is 5 apples.", "agree"),
        (HOW_MANY, "5", "6", "differ"),
        ("Compute the ratio.", "0.333", "The answer is 1/3", "agree"),
        ("Compute it.", "The answer is 41", "The answer is 42", "differ"),
        (OPTIONS, "B", "It is carbon dioxide: the answer is (B).", "agree"),
        (OPTIONS, "B", "A", "differ"),
        (WHO, "Michelangelo Buonarroti", "The ceiling was painted by Michelangelo.", "agree"),
        (WHO, "Michelangelo", "Raphael", "differ"),
        (WHO, "Michelangelo", f"{LONG} until Michelangelo came.", "agree"),
        (WHO, LONG, f"{LONG} and more of it, which nobody can compare", "untold"),
        ("Is 91 a prime?", "Yes.", "No, it is 7 * 13.", "differ"),
        ("Pay.", "[pay(to='a')]", "[pay(to='a')]", "agree"),
        ("Pay.", "[pay(to='a')]", "[pay(to='b')]", "differ"),
    ],
)
def test_same_and_other_answers(question: str, one: str, other: str, outcome: str) -> None:
    """The same answer in other words agrees; which reply comes first makes no difference."""
    first, second = final_answer(question, one), final_answer(question, other)
    assert compare(first, second).outcome == outcome
    assert compare(first, second) == compare(second, first)
