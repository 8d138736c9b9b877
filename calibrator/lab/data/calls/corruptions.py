"""Corruptions that make right calls wrong in one respect, by rule.

Each kind changes what its name says and nothing else. These labels are certain, unlike those of
some graded rows, and can be made for any tool. They train the calibrator for calls, and `evaluate`
tests with them whether a calibrator detects such faults.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from calibrator.lab.data.calls.changes import KINDS, put_request
from calibrator.lab.data.calls.drafts import apply_change
from calibrator.readers.calls.reading.conversation import view_of
from calibrator.rows.rows import Row
from calibrator.scorer import ToolUse
from calibrator.text.transcript import message_text, read_question

OTHER_REQUEST = "other request"  # a kind beside `KINDS` that needs other replies


def corrupted_calls(rows: Sequence[Row], seed: int = 0) -> dict[str, list[tuple[Row, Row]]]:
    """Return pairs (right row, copy with one fault) by kind of fault, such as `number moved`.

    Rows that are not labelled as correct, or that call no tool, are skipped. A kind that fits
    no row has no entry; the same seed gives the same pairs.
    """
    right = [row for row in rows if row.tool_use and row.tool_use.has_calls and row.correct == 1]
    alike: dict[tuple[str | None, str | None], list[Row]] = {}
    for row in right:
        alike.setdefault((row.benchmark, row.domain), []).append(row)
    found: dict[str, list[tuple[Row, Row]]] = {}
    for number, row in enumerate(right):
        others = [
            other.tool_use
            for other in alike[row.benchmark, row.domain]
            if other.question_id != row.question_id and other.tool_use is not None
        ]
        for kind, wrong in _wrong_variants(row, others, f"{seed} {number}"):
            found.setdefault(kind, []).append((row, with_tool_use(row, wrong, 0)))
    return found


def _wrong_variants(
    row: Row, others: Sequence[ToolUse], seed: str
) -> Iterator[tuple[str, ToolUse]]:
    """Yield (kind, wrong reply) for each kind of fault that can be made in a right row's reply.

    `others` are replies to other questions of the same benchmark and domain, from which a
    request is taken.
    """
    assert row.tool_use is not None
    for kind, change in KINDS.items():
        wrong = apply_change(row.tool_use, change, random.Random(f"{kind} {seed}"))
        if wrong is not None:
            yield kind, wrong
    wrong = other_request(row.tool_use, others, random.Random(f"{OTHER_REQUEST} {seed}"))
    if wrong is not None:
        yield OTHER_REQUEST, wrong


def other_request(used: ToolUse, others: Sequence[ToolUse], rng: random.Random) -> ToolUse | None:
    """Return a copy of the reply whose last user message is another reply's request.

    Up to ten of `others` are drawn; one with the same request or the same first call does not
    count. Returns None if none differs, or the reply cannot be changed.
    """
    own = view_of(used)
    for _ in range(min(10, len(others))):
        other = view_of(rng.choice(others))
        is_same = other.request == own.request or other.calls[:1] == own.calls[:1]
        if other.request and not is_same:
            return apply_change(used, partial(put_request, request=other.request), rng)
    return None


def with_tool_use(row: Row, used: ToolUse, correct: int) -> Row:
    """Return the row with `used` as conversation and reply, also in `raw`, and the label."""
    raw = {
        **row.raw,
        "messages": list(used.messages),
        "tools": list(used.tools),
        "response": used.message,
        "correct": correct,
    }
    return replace(
        row,
        question=read_question(used.messages, used.tools).text,
        answer=message_text(used.message),
        correct=correct,
        raw=raw,
        tool_use=used,
    )
