"""Questions of our own with a right and a wrong answer.

Relations (`facts.yaml`) make questions by templates; `everyday_lessons.txt` has single questions.
Another 164 (`everyday_held_out.txt`) are never taught.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

LESSONS, HELD_OUT = "everyday_lessons.txt", "everyday_held_out.txt"
SINGLE = "single"  # the group of questions without a relation
WRONG_ANSWERS = 2  # short ones for each question of a relation, besides one in a sentence


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """A question with a right and a wrong answer, both short or both in a sentence."""

    question: str
    right: str
    wrong: str
    group: str = SINGLE


@cache
def single_pairs(name: str = LESSONS) -> tuple[AnswerPair, ...]:
    """Return two pairs for each question of a file: answers in short, and in a sentence.

    A line is `question|sentence with {}|right|wrong`; lines with `#` are comments. `name` is a file
    of this folder, which is read once.
    """
    found = []
    for line in _text(name).splitlines():
        if line.startswith("#"):
            continue
        question, sentence, right, wrong = line.split("|")
        found.append(AnswerPair(question, right, wrong))
        found.append(
            AnswerPair(
                question, _capitalize(sentence.format(right)), _capitalize(sentence.format(wrong))
            )
        )
    return tuple(found)


def relation_pairs(seed: int) -> Iterator[AnswerPair]:
    """Yield pairs of answers to the questions of `facts.yaml`, and to those of reversed relations.

    For each question there are two with short answers and one with sentences. The same seed gives
    the same pairs.
    """
    rng = random.Random(seed)
    for relation in yaml.safe_load(_text("facts.yaml")):
        yield from _of_relation(relation, "", rng)
        if "back_questions" in relation:
            yield from _of_relation(relation, "back_", rng)


def all_facts() -> list[tuple[str, str]]:
    """Return (subject, answer) of all relations, such as `("France", "Paris")`.

    After these come the single questions, each twice, as (question, right answer): in short and in
    a sentence.
    """
    relations = yaml.safe_load(_text("facts.yaml"))
    found = [pair for relation in relations for pair in _split(relation["pairs"])]
    return found + [(pair.question, pair.right) for pair in single_pairs()]


def _of_relation(relation: dict[str, Any], way: str, rng: random.Random) -> Iterator[AnswerPair]:
    """Yield pairs of answers to the questions of a relation, an entry of `facts.yaml`.

    `way` is "" or `back_`; then the questions ask for the subject by the answer. A wrong answer is
    the one in `wrong`, or a random answer of another subject.
    """
    pairs = _split(relation["pairs"])
    if way:
        pairs = [(answer, subject) for subject, answer in pairs]
    wrong_answers = dict(_split(relation["wrong"])) if "wrong" in relation else {}
    known: dict[str, set[str]] = defaultdict(set)
    for subject, answer in pairs:
        known[subject].add(answer)
    every = sorted({answer for _, answer in pairs})
    for subject, answer in pairs:
        others = (
            [wrong_answers[subject]]
            if wrong_answers
            else [x for x in every if x not in known[subject]]
        )
        for question in relation[f"{way}questions"]:
            text_of_question = _capitalize(question.format(subject))
            for _ in range(WRONG_ANSWERS):
                yield AnswerPair(text_of_question, answer, rng.choice(others), relation["name"])
            sentence = rng.choice(relation[f"{way}sentences"]).replace("{s}", subject)
            right, wrong = (
                _capitalize(sentence.replace("{a}", text)) for text in (answer, rng.choice(others))
            )
            yield AnswerPair(text_of_question, right, wrong, relation["name"])


def _split(pairs: str) -> list[tuple[str, str]]:
    """Split `France=Paris; Spain=Madrid` into [("France", "Paris"), ("Spain", "Madrid")]."""
    found = []
    for each in pairs.split(";"):
        subject, _, answer = each.strip().rpartition("=")
        found.append((subject, answer))
    return found


def _capitalize(text: str) -> str:
    """Return the text with its first letter as a capital; the others stay."""
    return text[:1].upper() + text[1:]


def _text(name: str) -> str:
    """Return the text of a file of this folder."""
    return (
        files("calibrator.lab.training.fits.knowledge").joinpath(name).read_text(encoding="utf-8")
    )
