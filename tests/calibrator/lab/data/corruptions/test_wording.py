"""Names, negations and ends of replies, each changed in one place."""

from __future__ import annotations

import random
import time

import pytest

from calibrator.lab.data.corruptions.kinds import (
    MIN_CUT,
    cut_off,
    entity_swapped,
    names_in,
    negation_changed,
)

POOL = ["Paris", "Rome", "Bank of England", "Marie Curie"]


def test_names_are_capitalised_words_that_do_not_just_begin_a_sentence() -> None:
    """Names are capitalised words that do not begin a sentence, a line or a quotation."""
    text = "Today we met Ada Lovelace in Oslo. Then the Bank of Norway called.\nNumbers followed."
    assert names_in(text) == ["Ada Lovelace", "Oslo", "Bank of Norway"]


def test_a_name_is_swapped_everywhere() -> None:
    """A name is swapped everywhere by the same other one."""
    answer = "The capital is Vienna, and Vienna lies on a river."
    for seed in range(10):
        new = entity_swapped("Which capital?", answer, POOL, random.Random(seed))
        assert new in {f"The capital is {one}, and {one} lies on a river." for one in POOL[:2]}


@pytest.mark.parametrize(
    ("question", "answer", "pool"),
    [
        ("Is Vienna the capital?", "Yes, it is Vienna.", POOL),  # the question has the name
        ("Which capital?", "it is vienna", POOL),  # no name
        ("Which capital?", "It is Vienna.", []),  # no other name
        ("Which capital?", "It is Paris, not Rome.", ["Paris", "Rome"]),  # both are in the reply
    ],
)
def test_without_a_name_to_swap_nothing_changes(
    question: str, answer: str, pool: list[str]
) -> None:
    """Without a name to swap the result is None."""
    assert entity_swapped(question, answer, pool, random.Random(1)) is None


def test_words_that_name_nothing_are_left_alone() -> None:
    """Words in the list of ordinary ones are not swapped."""
    answer = "We refer to Wikipedia for help."
    assert entity_swapped("q", answer, POOL, random.Random(1), {"Wikipedia"}) is None


@pytest.mark.parametrize(
    ("answer", "denied"),
    [
        ("Paris is large.", "Paris is not large."),
        ("Paris is not large.", "Paris is large."),
        ("It isn't large.", "It is large."),
        ("It isn\u2019t large.", "It is large."),
        ("It can't swim.", "It can swim."),
        ("It cannot swim.", "It can swim."),
        ("It won't rain.", "It will rain."),
        ("They have been here.", "They have not been here."),
        ("It did not rain.", "It did rain."),
        ("It is   not here.", "It is here."),
    ],
)
def test_a_negation_is_dropped_or_added(answer: str, denied: str) -> None:
    """A negation is dropped or added, contracted or not."""
    assert negation_changed(answer, random.Random(1)) == denied


@pytest.mark.parametrize(
    "answer", ["42", "", "Yes.", "\u7b54\u6848", "od roku 1982 do roku 1993", "They have 3 cats."]
)
def test_where_nothing_can_be_denied_nothing_changes(answer: str) -> None:
    """Without a verb that `not` can follow nothing is denied."""
    assert negation_changed(answer, random.Random(1)) is None


def test_a_negation_changes_one_place() -> None:
    """Of several verbs one is denied."""
    answer = "It is here. They are there. He was away."
    for seed in range(10):
        new = negation_changed(answer, random.Random(seed))
        assert new is not None
        assert new.count(" not") == 1
        assert new.replace(" not", "") == answer


def test_a_cut_reply_is_a_beginning() -> None:
    """A cut reply is its beginning, between a third and four fifths; a short one is not cut."""
    answer = "word " * 100
    for seed in range(20):
        kept = cut_off(answer, random.Random(seed))
        assert kept is not None
        assert answer.startswith(kept)
        assert 0.32 < len(kept) / len(answer) < 0.81
    assert cut_off("x" * (MIN_CUT - 1), random.Random(1)) is None


@pytest.mark.parametrize("text", ["Aa Bb " * 20_000, "Abc " * 30_000, "is " * 40_000, "\ud83d" * 9])
def test_hostile_text_takes_no_time(text: str) -> None:
    """Hostile text of 100 kB is read within a second."""
    start = time.perf_counter()
    entity_swapped(text, text + " Unheard Of", POOL * 500, random.Random(1))
    negation_changed(text, random.Random(1))
    cut_off(text, random.Random(1))
    assert time.perf_counter() - start < 1
