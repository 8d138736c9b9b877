"""Pairs of a right reply and its corruption: which replies, and how many of each kind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from calibrator.lab.data.corruptions import KINDS
from calibrator.lab.judging.sensitivity.pairs import MIN_CHARACTERS, off_topic_sentences, pairs_of
from calibrator.rows.rows import Row, parse_row

NAMES = (
    "Ada Byron", "Lea Nilsen", "Omar Haddad", "Ines Costa", "Yuki Mori", "Tom Brand", "Eva Lund",
    "Ravi Menon", "Zoe Adler", "Max Keller", "Ana Petrov", "Leo Marsh",
)  # fmt: skip


def row(number: int, answer: str, benchmark: str = "riddles", **changes: Any) -> Row:
    raw = {
        "question_id": f"{benchmark}/{number}",
        "question": f"What is behind door {number} of the {benchmark}?",
        "benchmark": benchmark,
        "response": answer,
        "model": "some-model",
        "correct": 1,
    }
    return parse_row({**raw, **changes})


def long_row(number: int, benchmark: str = "riddles", **changes: Any) -> Row:
    name = NAMES[number % len(NAMES)]
    answer = f"Behind it there is a box with {number + 10} coins, which is heavy, as {name} told."
    return row(number, answer, benchmark, **changes)


def test_only_right_replies_of_some_length_count() -> None:
    """Only right replies of at least `MIN_CHARACTERS` are made wrong."""
    rows = [*map(long_row, range(6)), long_row(7, correct=0), row(8, "B"), row(9, "x" * 39)]
    pairs = pairs_of(rows)
    assert {pair.right.question_id for pair in pairs} == {f"riddles/{n}" for n in range(6)}
    assert min(len(pair.right.answer) for pair in pairs) >= MIN_CHARACTERS


def test_a_benchmark_of_letters_does_not_count() -> None:
    """A benchmark most of whose right replies are a letter does not count."""
    stated = [row(n, f"Answer: B\nConfidence: {n + 50}%", "letters") for n in range(8)]
    rows = [*stated, *(long_row(n + 20, "letters") for n in range(5)), *map(long_row, range(6))]
    assert {pair.benchmark for pair in pairs_of(rows)} == {"riddles"}


def test_a_pair_is_of_one_row_and_one_benchmark() -> None:
    """A pair has the same question, model and benchmark, and another reply."""
    rows = [long_row(n, name) for n in range(6) for name in ("riddles", "trivia")]
    for pair in pairs_of(rows):
        assert pair.changed.answer != pair.right.answer
        same = ("question", "question_id", "model", "benchmark", "domain")
        for name in same:
            assert getattr(pair.changed, name) == getattr(pair.right, name)
        if pair.kind in ("another question", "nearest question"):
            own = [row.answer for row in rows if row.benchmark == pair.benchmark]
            assert pair.changed.answer in own


def test_at_most_so_many_pairs_of_the_same_replies() -> None:
    """Kinds that apply to all replies change the same ones, chosen by the seed."""
    rows = [long_row(n) for n in range(30)]
    pairs = pairs_of(rows, max_pairs=10)
    assert pairs == pairs_of(rows, max_pairs=10)
    assert pairs != pairs_of(rows, max_pairs=10, seed=4)
    counts = Counter(pair.kind for pair in pairs)
    assert counts == {
        kind: 10 for kind in KINDS if kind not in ("final option", "working", "cut off")
    }
    chosen = {
        kind: {pair.right.question_id for pair in pairs if pair.kind == kind} for kind in counts
    }
    assert len({frozenset(each) for each in chosen.values()}) == 1


def test_sentences_off_the_topic_are_those_of_measuring() -> None:
    """Sentences off the topic come from the set for measuring, not for training."""
    pairs = [pair for pair in pairs_of([long_row(n) for n in range(9)]) if pair.kind == "off topic"]
    assert len(pairs) == 9
    assert {pair.changed.answer for pair in pairs} <= set(off_topic_sentences())


def call_row(number: int) -> Row:
    call = {"name": "refund", "arguments": f'{{"order": "A-{number}", "amount": {number + 20}}}'}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": call}],
    }
    tools = [
        {
            "type": "function",
            "function": {
                "name": "refund",
                "parameters": {
                    "type": "object",
                    "properties": {"order": {"type": "string"}, "amount": {"type": "number"}},
                    "required": ["order", "amount"],
                },
            },
        }
    ]
    message_of_user = f"Please refund {number + 20} for order A-{number}, not for A-{number + 500}."
    return parse_row(
        {
            "question_id": f"c{number}",
            "benchmark": "shop",
            "messages": [{"role": "user", "content": message_of_user}],
            "tools": tools,
            "response": message,
            "correct": 1,
        }
    )


def test_replies_that_call_tools_get_corruptions_of_calls() -> None:
    """Replies that call tools get only corruptions of their calls."""
    pairs = pairs_of([*(call_row(n) for n in range(12)), *(long_row(n) for n in range(6))])
    calls = [pair for pair in pairs if pair.is_call]
    assert calls
    for pair in calls:
        assert pair.kind not in KINDS
        assert pair.right.tool_use is not None
        assert pair.changed.tool_use is not None
        assert pair.changed.tool_use != pair.right.tool_use
    assert {pair.benchmark for pair in pairs if not pair.is_call} == {"riddles"}


@pytest.mark.parametrize("rows", [[], [long_row(1)], [row(1, "B")]])
def test_too_few_rows_are_no_error(rows: list[Row]) -> None:
    """Too few rows give fewer pairs and no error."""
    assert all(pair.right in rows for pair in pairs_of(rows))
