"""Baselines that compare a reply with the text before it."""

from __future__ import annotations

import pytest

from calibrator import Item
from calibrator.lab.judging.baselines.overlap import (
    text_before,
    tfidf_cosines,
    word_shares,
    words_of,
)

SAID = [
    {"role": "system", "content": "Refunds within 30 days."},
    {"role": "user", "content": [{"type": "text", "text": "Can I have my money back?"}]},
]


def reply(text: str) -> Item:
    return Item("Can I have my money back?", text, messages=SAID)


def test_all_messages_are_the_text_before_a_reply() -> None:
    """The text before a reply is all messages, or the question without messages."""
    assert text_before(reply("Yes")) == "Refunds within 30 days.\nCan I have my money back?"
    assert text_before(Item("Why?", "So")) == "Why?"
    odd = [{"role": "user", "content": 7}, "text", {"role": "user", "content": "Why?"}]
    assert text_before(Item("", "So", messages=odd)) == "Why?"


def test_the_share_of_words_that_occur_before() -> None:
    """The share of words that occur before counts repeated words and ignores case."""
    texts = ("Within 30 days.", "Within 60 days!", "60 60 days days", "?")
    shares = word_shares([reply(text) for text in texts])
    assert shares.tolist() == pytest.approx([1, 2 / 3, 1 / 2, 0])


def test_scripts_without_spaces_are_read_by_character() -> None:
    """Scripts without spaces are read by character."""
    assert words_of("退款期 30 天, OK") == ["退", "款", "期", "30", "天", "ok"]


def test_the_cosine_goes_from_nothing_to_the_same_text() -> None:
    """The cosine grows with shared words, and rare words weigh more."""
    same, near, far = tfidf_cosines(
        [Item("one two three", "three two one"), Item("a b c d", "a b x y"), Item("a b", "p q")]
    )
    assert (same, far) == (pytest.approx(1), 0)
    assert 0 < near < 1
    common = [Item("the rare", text) for text in ("the", "rare")] + [Item("the", "the")] * 5
    assert tfidf_cosines(common)[0] < tfidf_cosines(common)[1]
    assert tfidf_cosines([Item("", "?")]).tolist() == [0]
