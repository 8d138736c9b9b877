"""The questions that the small encoder is taught by: well formed, and none of the sixty."""

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
    """Two thousand facts of fifty relations, and 350 single questions; right is never wrong."""
    pairs = taught()
    assert len(all_facts()) > 2_000
    assert len({pair.group for pair in pairs}) > 45
    assert len(single_pairs()) == 700
    assert all(pair.question and pair.right and pair.wrong for pair in pairs)
    assert [pair for pair in pairs if pair.right.casefold() == pair.wrong.casefold()] == []
    assert [pair for pair in pairs if "{" in pair.question + pair.right + pair.wrong] == []


def test_the_same_seed_gives_the_same_pairs() -> None:
    """And another seed other wrong answers."""
    assert list(relation_pairs(1)) == list(relation_pairs(1)) != list(relation_pairs(2))


def is_told(question: EverydayQuestion, asked: str, right: str) -> bool:
    """Whether a fact is that of a question: the same answer, to a text of the same words."""
    if contents(question.right) != contents(right):
        return False
    wanted = contents(question.question)
    return len(wanted & contents(asked)) >= max(2, 0.6 * len(contents(asked)))


def test_no_fact_of_the_sixty_is_taught() -> None:
    """Neither a question of the sixty nor the same answer to one of much the same words."""
    everyday = everyday_questions()
    asked = {one.question.casefold() for one in everyday}
    every = [*taught(), *single_pairs(HELD_OUT)]
    assert [pair.question for pair in every if pair.question.casefold() in asked] == []
    facts = [*all_facts(), *((pair.question, pair.right) for pair in every)]
    found = [
        (one.question, question, answer)
        for one in everyday
        for question, answer in facts
        if is_told(one, question, answer)
    ]
    assert found == []


def test_what_is_judged_by_is_not_taught() -> None:
    """The held-out questions are none of the taught ones."""
    taught_questions = {pair.question for pair in taught()}
    held_out = {pair.question for pair in single_pairs(HELD_OUT)}
    assert len(held_out) == 164
    assert not held_out & taught_questions
