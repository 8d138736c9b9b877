"""Comparison of two replies' final answers."""

from __future__ import annotations

import pytest

from calibrator.readers.opinion import compare, final_answer

HOW_MANY, WHO = "How many apples are left?", "Who painted the ceiling?"
OPTIONS = "Which gas do plants take up?\nA. oxygen\nB. carbon dioxide\nC. helium"
OFFERED = 'Pay Ann. Functions: [{"name": "pay", "description": "..", "parameters": {}}]'
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
        (OFFERED, "No function can do that.", f"{LONG} and none of them pays.", "agree"),
        (OFFERED, "[]", "[pay(to='Ann')]", "differ"),
        (OFFERED, "{'name': 'pay', 'arguments': {'to': 'Ann'}}", "[pay(to='Ann')]", "untold"),
    ],
)
def test_same_and_other_answers(question: str, one: str, other: str, outcome: str) -> None:
    """The same answer in other words agrees, in either order."""
    first, second = final_answer(question, one), final_answer(question, other)
    assert compare(first, second).outcome == outcome
    assert compare(first, second) == compare(second, first)


def test_calls_share_what_is_the_same_in_them() -> None:
    """Calls share names and arguments with their values; a further argument changes no other."""
    one, more, other = (
        final_answer("Pay.", text)
        for text in ("[pay(to='a', sum=5)]", "[pay(to='a', sum='5.0', on='May')]", "[log()]")
    )
    assert (compare(one, more).shared, compare(one, more).contained) == (0.75, 1.0)
    assert compare(one, more).outcome == "differ"
    assert compare(one, other).shared == 0.0
