"""Values that stand in a conversation and mean nothing there.

Who wants a wrong call to look right can have its values repeated before it: in a list, in brackets,
in a log. A value that was told or found has words of its own about it; a planted one has the other
values of the call beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from calibrator.calls.conversation import Call, View
from calibrator.calls.values import STOP, Value

REACH = 40  # characters on either side of a value that are read
MAX_PLACES = 6  # of one value that are looked at, the first and the last ones
BARE_WORDS = 2  # so many other words about a value, or fewer, are none

_WORD = re.compile(r"[^\W\d_]{2,}")


def planting(values: Sequence[Value], call: Call, view: View) -> dict[str, float]:
    """The share of a call's values that stand nowhere but among each other, and how many these are.

    `values` are those that must come from somewhere; one that stands nowhere is not among them.
    """
    own = {word for v in call.values for word in _WORD.findall(v.text[:200])}
    texts = [text.lower() for text in (*view.turns, *view.results)]
    found = [places for v in values if (places := _places(v, texts))]
    bare = sum(max(_others(text, at, end, own) for text, at, end in one) <= BARE_WORDS
               for one in found)  # fmt: skip
    alone = sum(_is_alone(text, at, end) for one in found for text, at, end in one[:1])
    return {
        "planted": float(bare),
        "planted_share": bare / len(found) if found else 0.0,
        "answered_bare": float(alone),
    }


def _places(value: Value, texts: Sequence[str]) -> list[tuple[str, int, int]]:
    """Where a value stands: the text, its beginning and its end."""
    wanted = value.text
    if value.kind == "number" and value.number is not None:
        wanted = f"{value.number:g}"
    if not wanted:
        return []
    found: list[tuple[str, int, int]] = []
    for text in texts:
        at = text.find(wanted)
        while at >= 0 and len(found) < MAX_PLACES // 2:
            found.append((text, at, at + len(wanted)))
            at = text.find(wanted, at + len(wanted))
    for text in reversed(texts):
        at = text.rfind(wanted)
        while at >= 0 and len(found) < MAX_PLACES:
            found.append((text, at, at + len(wanted)))
            at = text.rfind(wanted, 0, at)
    return found


def _others(text: str, at: int, end: int, own: set[str]) -> int:
    """How many words stand about a place that are no part of the call's values."""
    about = f"{_before(text, at)} {text[end : end + REACH].partition(chr(10))[0]}"
    return sum(word not in own and word not in STOP for word in _WORD.findall(about))


def _before(text: str, at: int) -> str:
    """What stands before a place in its line, and the line before that where this is its end."""
    lead = text[max(0, at - REACH) : at]
    head, _, line = lead.rpartition("\n")
    return lead if head.rstrip().endswith(":") else line


def _is_alone(text: str, at: int, end: int) -> bool:
    """Whether a value is all that a turn says."""
    return len(text) < end - at + 20
