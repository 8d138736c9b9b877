"""Kinds of corruption: each makes wrong replies of right ones, the same for a seed."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from calibrator.lab.data.corruptions import KINDS, TAUGHT_KINDS, corrupt_rows
from calibrator.lab.data.corruptions.kinds import _names_of
from calibrator.lab.data.corruptions.sentences import OFF_TOPIC
from calibrator.lab.judging.sensitivity.pairs import off_topic_sentences
from calibrator.rows.rows import Row, parse_row

CITIES = ["Oslo", "Lima", "Cairo", "Quito", "Hanoi", "Dakar", "Perth", "Turin"]


def row(number: int, answer: str | None = None, **changes: Any) -> Row:
    city, total = CITIES[number % len(CITIES)], 3 * (number + 4)
    text = (
        f"We look for the city where shop {number} is. It is said to be large and warm. "
        f"It sells 3 * {number + 4} = {total} hats, as everybody there can tell you, and it is in "
        f"{city} indeed. With {total} hats it is large. The answer is (B)."
    )
    raw = {
        "question_id": f"q{number}",
        "question": f"Where is shop {number} and its hats?\nA. nowhere\nB. there\nC. here",
        "response": text if answer is None else answer,
        "correct": 1,
        "gold": "B",
    }
    return parse_row({**raw, **changes})


ROWS = [row(n) for n in range(12)]


@pytest.mark.parametrize("kind", [*KINDS, *TAUGHT_KINDS])
def test_each_kind_changes_right_replies(kind: str) -> None:
    """Each kind changes every right row, and skips wrong ones."""
    found = corrupt_rows([*ROWS, row(50, correct=0)], kind)
    assert [one.row for one in found] == ROWS
    assert {one.kind for one in found} == {kind}
    assert all(one.answer != one.row.answer for one in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_decides_everything(kind: str) -> None:
    """The same seed gives the same replies, and another seed others if there is a choice."""
    assert corrupt_rows(ROWS, kind, 3) == corrupt_rows(ROWS, kind, 3)
    fixed = kind in ("echo", "nearest question")
    assert fixed or corrupt_rows(ROWS, kind, 3) != corrupt_rows(ROWS, kind, 4)


@pytest.mark.parametrize("kind", [*KINDS, *TAUGHT_KINDS])
def test_where_a_kind_does_not_apply_there_is_nothing(kind: str) -> None:
    """A short reply without number, name, verb or option can only be replaced as a whole."""
    found = corrupt_rows([row(1, "hm", question="Well?")], kind)
    assert (kind in ("off topic", "echo")) == bool(found)


def test_what_takes_the_place_of_a_reply() -> None:
    """A reply is replaced by another question's reply, a sentence of the list, or the question."""
    replies = {each.answer: each.question_id for each in ROWS}
    for kind in ("another question", "nearest question"):
        assert all(replies[c.answer] != c.row.question_id for c in corrupt_rows(ROWS, kind))
    assert {c.answer for c in corrupt_rows(ROWS, "off topic")} <= set(OFF_TOPIC)
    assert all(c.answer == c.row.question for c in corrupt_rows(ROWS, "echo"))


def test_a_copy_of_the_question_is_not_another_question() -> None:
    """The reply to a copy of the question is no wrong reply."""
    rows = [row(n, f"Reply number {n} to the same.", question="Same thing?") for n in range(6)]
    assert corrupt_rows(rows, "another question") == []
    assert corrupt_rows(rows, "nearest question") == []


def test_a_short_reply_with_the_same_gold_is_not_wrong() -> None:
    """A short reply with the same gold is not used as a wrong one."""
    short = [row(n, f"Yes, surely, {n}.", gold="yes") for n in range(4)]
    assert corrupt_rows(short, "another question") == []
    mixed = [*short[:2], row(7, "No.", gold="no")]
    assert {c.answer for c in corrupt_rows(mixed, "another question", 1)} <= {
        "No.",
        "Yes, surely, 0.",
        "Yes, surely, 1.",
    }
    assert len(corrupt_rows(ROWS, "another question")) == len(ROWS)


def test_a_cut_reply_that_has_the_answer_is_not_wrong() -> None:
    """A cut reply that still has the answer is not used as a wrong one."""
    text = "Canberra. " + "It was chosen as the capital a long time ago. " * 5
    assert corrupt_rows([row(1, text, gold="canberra/Canberra, ACT")], "cut off") == []
    assert len(corrupt_rows([row(1, text, gold="Sydney")], "cut off")) == 1


def test_a_word_that_is_no_name_is_not_swapped() -> None:
    """A word that is small elsewhere, or in every reply, is no name to swap."""
    rows = [
        row(n, f"As the Encyclopedia and the Total say, the total of it is {n}.") for n in range(8)
    ]
    assert corrupt_rows(rows, "entity") == []


def test_an_unknown_kind_is_an_error() -> None:
    """An unknown kind is an error."""
    with pytest.raises(KeyError):
        corrupt_rows(ROWS, "nonsense")


def hostile() -> list[Row]:
    """Return huge, empty, wordless and half-encoded replies and questions."""
    texts = ["", " ", "1" * 100_000, "A" * 100_000, "\ud83d", "\u7b54\u6848" * 9, "Ab " * 33_000]
    texts += ["= 1 + 2 = 3 " * 8_000, "\n" * 100_000, "(A) " * 25_000, "is not " * 14_000]
    rng = random.Random(1)
    return [
        row(n, text, question=rng.choice(texts) or "?", gold=[1], question_id=f"h{n}")
        for n, text in enumerate(texts)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_rows_neither_crash_nor_take_long(kind: str) -> None:
    """Hostile rows are corrupted within two seconds."""
    rows, start = hostile(), time.perf_counter()
    assert all(isinstance(one.answer, str) for one in corrupt_rows(rows, kind))
    assert time.perf_counter() - start < 2


def test_measuring_has_other_sentences_than_training() -> None:
    """Measuring and training have different sentences off the topic."""
    assert len(set(off_topic_sentences())) == len(off_topic_sentences()) >= 20
    assert not set(off_topic_sentences()) & set(OFF_TOPIC)


def test_ordinary_words_and_headings_are_no_names() -> None:
    """Ordinary words and names in most replies are not swapped.

    A word is ordinary if it occurs in small letters too.
    """
    texts = [f"As the Gazette says, we met in {city}." for city in CITIES]
    names, ordinary = _names_of([row(0, text) for text in [*texts, "It was a Turin, a turin."]])
    assert ordinary == {"Gazette", "Turin"}
    assert set(names) == set(CITIES) - {"Turin"}
