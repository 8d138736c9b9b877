"""Traits of texts: finite, bounded in time, and different for different forms."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.features.traits import MAX_CHARACTERS, TRAITS, traits_of

SURROGATES = st.characters(categories=("Cs", "L", "N", "P", "S", "Z", "C"))


@settings(max_examples=150)
@given(st.text(SURROGATES, max_size=200), st.text(SURROGATES, max_size=200))
def test_traits_are_finite_for_any_text(question: str, answer: str) -> None:
    """Any text has finite traits, also half surrogate pairs and control characters."""
    found = traits_of(question, answer)
    assert found.shape == (TRAITS,)
    assert np.isfinite(found).all()


def test_a_megabyte_takes_no_longer_than_its_ends() -> None:
    """Only the two ends of a long text are read, in linear time."""
    for text in (
        "9" * 1_000_000,
        "\n" * 1_000_000,
        "a " * 500_000,
        "\n- " * 300_000,
        "\\boxed{" * 100_000,
    ):
        started = time.process_time()
        traits_of(text, text)
        assert time.process_time() - started < 0.25
    half = MAX_CHARACTERS // 2
    ends = "x" * half + "y" * half
    middle = "x" * half + "anything 42" * 1_000 + "y" * half
    assert (traits_of("q", ends) == traits_of("q", middle)).all()


def test_forms_of_answers_differ() -> None:
    """A letter, a number, JSON, a refusal, code and nothing have different traits."""
    question = "Which one?\nA. first\nB. second"
    answers = ("B", "42", '{"answer": "B"}', "I cannot answer that.", "```\nx = 1\n```", "")
    found = {tuple(traits_of(question, answer)) for answer in answers}
    assert len(found) == len(answers)
