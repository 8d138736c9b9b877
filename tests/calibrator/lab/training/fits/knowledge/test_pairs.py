"""Questions that teach the small encoder: well formed, and none of the sixty."""

from __future__ import annotations

import re
from functools import cache

from calibrator.lab.judging.sensitivity.everyday import EverydayQuestion, everyday_questions
from calibrator.lab.training.fits.knowledge.pairs import (
    HELD_OUT,
    AnswerPair,
    all_facts,
    relation_pairs,
    single_pairs,
)

_OF_NO_CONTENT = """
    a an and are at by can did do does for from has have how in into is it its many most much of
    on one or people said she so that the there they this to was what when where which who with
"""
OF_NO_CONTENT = frozenset(_OF_NO_CONTENT.split())


@cache
def contents(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold())) - OF_NO_CONTENT


def taught() -> list[AnswerPair]:
    return [*relation_pairs(1), *single_pairs()]


def test_there_are_thousands_over_many_relations() -> None:
    """There are 2,000 facts of fifty relations and 350 single questions, right never wrong."""
    pairs = taught()
    assert len(all_facts()) > 2_000
    assert len({pair.group for pair in pairs}) > 45
    assert len(single_pairs()) == 700
    assert all(pair.question and pair.right and pair.wrong for pair in pairs)
    assert [pair for pair in pairs if pair.right.casefold() == pair.wrong.casefold()] == []
    assert [pair for pair in pairs if "{" in pair.question + pair.right + pair.wrong] == []


def test_the_same_seed_gives_the_same_pairs() -> None:
    """The same seed gives the same pairs, and another seed other wrong answers."""
    assert list(relation_pairs(1)) == list(relation_pairs(1)) != list(relation_pairs(2))


def is_same_fact(question: EverydayQuestion, text: str, right: str) -> bool:
    """Return whether a fact has the answer of a question, and much the same words."""
    if contents(question.right) != contents(right):
        return False
    wanted = contents(question.question)
    return len(wanted & contents(text)) >= max(2, 0.6 * len(contents(text)))


def test_no_fact_of_the_sixty_is_taught() -> None:
    """No question of the sixty, and no fact that answers one, is taught."""
    everyday = everyday_questions()
    questions = {one.question.casefold() for one in everyday}
    every = [*taught(), *single_pairs(HELD_OUT)]
    assert [pair.question for pair in every if pair.question.casefold() in questions] == []
    facts = [*all_facts(), *((pair.question, pair.right) for pair in every)]
    found = [
        (one.question, question, answer)
        for one in everyday
        for question, answer in facts
        if is_same_fact(one, question, answer)
    ]
    assert found == []


def test_what_is_judged_by_is_not_taught() -> None:
    """The held-out questions are not taught."""
    taught_questions = {pair.question for pair in taught()}
    held_out = {pair.question for pair in single_pairs(HELD_OUT)}
    assert len(held_out) == 164
    assert not held_out & taught_questions
