"""Confidences stated by models and judges: prompts, parsing, removal from replies."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from calibrator.lab.collecting.eliciting import judge_prompt, judged_in
from calibrator.lab.judging.baselines.stated import stated_in, stated_prompt, without_stated
from calibrator.lab.paper.sections.scored import halves


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("85", 0.85),
        ("Confidence: 90%", 0.9),
        ("I'd say 70 percent.", 0.7),
        ("Of 3 options, I am 60% sure.", 0.6),
        ("0.95", 0.95),
        ("1", 0.01),
        ("1.0", 1.0),
        ("8/10", 0.8),
        ("95 / 100", 0.95),
        ("100", 1.0),
        ("250", None),
        ("very high", None),
        ("", None),
    ],
)
def test_a_stated_confidence_is_read(text: str, stated: float | None) -> None:
    """A stated confidence is read as a number out of 100, or is None (I01)."""
    assert stated_in(text) == (None if stated is None else pytest.approx(stated))


def test_the_prompts_cut_as_the_calibrators_do() -> None:
    """The prompts have 1,500 characters of the question and 800 of the reply (F10, I01, I06)."""
    for prompt in (stated_prompt, judge_prompt):
        text = prompt("q" * 2_000, "§" * 1_000)
        assert text.count("q" * 1_500) == 1
        assert "q" * 1_501 not in text
        assert text.count("§") == 800


@pytest.mark.parametrize(
    ("text", "judged"),
    [
        ("0.73", 0.73),
        (" 1 ", 1.0),
        ("I would say 0.4, roughly", 0.4),
        ("Probability: .85", 0.85),
        ("85", 0.5),
        ("Yes, this is right", 0.8),
        ("That is correct.", 0.8),
        ("No", 0.2),
        ("The reply is incorrect", 0.2),
        ("not correct", 0.2),
        ("I cannot tell", 0.5),
        ("nan", 0.5),
    ],
)
def test_a_judges_words_are_read_in_the_papers_order(text: str, judged: float) -> None:
    """A judge's words are read as float, decimal, yes or no, otherwise as one half (I07, I18)."""
    assert judged_in(text) == judged


@pytest.mark.parametrize(
    ("answer", "freed"),
    [
        ("Answer: B\nConfidence: 95%", "Answer: B"),
        ("**Confidence:** 80%\nThe answer is 4.", "The answer is 4."),
        ("It is Rome.\n\nMy confidence level is about 70 percent.", "It is Rome."),
        ("Rome\nConfidence (90%)", "Rome"),
        ('{"answer": "B", "confidence": 0.9}', '{"answer": "B"}'),
        ("B\nconfidence: high", "B"),
    ],
)
def test_a_reply_is_freed_of_its_own_number(answer: str, freed: str) -> None:
    """A stated confidence is removed from its reply."""
    assert without_stated(answer) == freed


@pytest.mark.parametrize(
    "answer",
    [
        "The 95% confidence interval is 3 to 5.",
        "Confidence: the band's third record, 1999",
        "I am 90% water.",
        "A probability of 0.5 is a coin's.\n",
    ],
)
def test_what_is_no_statement_stays(answer: str) -> None:
    """Text that states no confidence stays unchanged."""
    assert without_stated(answer) == answer


def test_halves_share_no_question_and_have_as_many_right_ones() -> None:
    """Both halves have whole questions and as many right replies (D09, I17).

    They are as even as scikit-learn's stratified ones.
    """
    rng = np.random.default_rng(1)
    questions = np.repeat(np.arange(300), rng.integers(1, 6, 300))
    correct = (rng.random(len(questions)) < rng.random(300)[questions]).astype(int)
    fitted, judged = halves(correct, questions)
    assert sorted([*fitted, *judged]) == list(range(len(questions)))
    assert not set(questions[fitted]) & set(questions[judged])
    shares = correct[fitted].mean(), correct[judged].mean()
    assert abs(shares[0] - shares[1]) < 0.02
    assert abs(len(fitted) - len(judged)) < 0.02 * len(questions)
    one, other = train_test_split(correct, test_size=0.5, stratify=correct, random_state=0)
    assert abs(one.mean() - other.mean()) < 0.01  # even by construction
    again = halves(correct, questions)
    assert (again[0] == fitted).all()
