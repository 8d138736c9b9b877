"""Which arguments of a call stand nowhere in the conversation, and what each costs its number.

It is tried: had the user named the value, how sure would the call be? The `share` is the number as
it is, divided by that one: 1 where naming it changes nothing. An argument that does stand somewhere
has none, for nothing speaks against it. Nor have the fields of a reply in JSON: marks by the same
reading stood by right replies oftener than by those in which a value was altered (.22 and .13).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from calibrator.calls.reading.reply import ReadReply
from calibrator.calls.reading.values import name_words
from calibrator.calls.reasons import unfounded
from calibrator.scorer import FieldDoubt, ToolUse

MOST: Final = 8  # fields of one reply that are told
MOST_NAME: Final = 60  # characters
Numbers = Callable[[Sequence[ToolUse]], Sequence[float]]


def argument_doubts(
    reply: ReadReply, confidence: float, numbers: Numbers
) -> tuple[FieldDoubt, ...]:
    """The arguments of a reply's calls that come from nowhere, the most costly first.

    `numbers` gives the confidence of other replies as that of this one came to be.
    """
    told = [
        (at, name, mark) for at, each in enumerate(unfounded(reply)) for name, mark in each.items()
    ]
    told = told[:MOST]
    if not told:
        return ()
    calls = reply.view.calls
    edited = [_named(reply.used, name, calls[at].arguments[name]) for at, name, _ in told]
    found = iter(numbers([each for each in edited if each is not None]))
    doubts = [
        FieldDoubt(name[:MOST_NAME], mark, at, _share(confidence, next(found)) if edit else None)
        for (at, name, mark), edit in zip(told, edited, strict=True)
    ]
    return tuple(sorted(doubts, key=lambda each: 1.0 if each.share is None else each.share))


def _share(confidence: float, named: float) -> float:
    return min(1.0, confidence / named) if named > 0 else 1.0


def _named(used: ToolUse, name: str, value: Any) -> ToolUse | None:
    """The reply after a conversation in which the user names the value; None without a user."""
    told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    sentence = f"The {' '.join(name_words(name)) or 'value'} is {told}."
    messages = list(used.messages)
    for at in reversed(range(len(messages))):
        message = messages[at]
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            content = f"{content.rstrip()} {sentence}"
        elif isinstance(content, list):
            content = [*content, {"type": "text", "text": sentence}]
        else:
            return None
        messages[at] = {**message, "content": content}
        return ToolUse(messages, used.tools, used.message)
    return None
