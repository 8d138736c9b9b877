"""Word pieces of remembered words equal the pieces of the whole text."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED
from calibrator.text import word_pieces
from calibrator.text.word_pieces import Layout, WordPieces, encode, load_tokenizer

TOKENIZER = load_tokenizer(CHECKPOINTS / EMBEDDED)
WORDS = WordPieces(TOKENIZER)
PARTS = st.sampled_from(
    [
        *("The", "tokens", "naïve", "e\u0301", "\u0301", "1,234.5", "don't", "[MASK]", "[UN", "K]"),
        *("\t", "\r", "\n", "\x0b", "\x00", "\u2028", " ", "_", "---", "a" * 101, "日本"),
        *("\ud83d", "\ude42", "\u226e", "\u017f\u0130", "\u00b5"),
    ]
)


@given(st.lists(PARTS | st.text(max_size=12), max_size=12).map("".join))
def test_words_in_a_row_are_cut_as_the_whole_text_is(text: str) -> None:
    """Any text has the same pieces as from the tokenizer."""
    assert [*map(list, WORDS.encode([text, text], Layout()))] == encode(
        TOKENIZER, [text, text], Layout()
    )


def test_the_memory_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of words is bounded in number and length, and forgetting changes no id."""
    monkeypatch.setattr(word_pieces, "MOST_WORDS", 5)
    words = WordPieces(TOKENIZER)
    text = " ".join(["seven words that are cut one by one", "b" * 60])
    assert [*map(list, words.encode([text] * 2, Layout()))] == encode(
        TOKENIZER, [text] * 2, Layout()
    )
    assert len(words._words) <= 5
    assert not any(len(word) > word_pieces.LONGEST_WORD for word in words._words)


def test_a_tokenizer_of_another_kind_cuts_whole_texts() -> None:
    """A tokenizer that does not end words at spaces cuts whole texts."""
    tokenizer = Tokenizer(WordLevel({"two words": 7, "?": 1}, unk_token="?"))
    assert WordPieces(tokenizer).encode(["two words"], Layout()) == [array("i", [7])]
