"""The arguments of a call that appear nowhere in the conversation, and the cost of each.

The cost is found by a trial: how sure would the call be if the user had named the value? `share` is
the confidence divided by that one: 1 if naming the value changes nothing. An argument that appears
in the conversation has no doubt, and neither have the fields of a reply in JSON: marks of the same
reading were more frequent in right replies than in those with an altered value (.22 and .13).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from calibrator.readers.calls.reading.reply import CallReply
from calibrator.readers.calls.reading.values import name_words
from calibrator.readers.calls.reasons import unfounded_arguments
from calibrator.scorer import FieldDoubt, ToolUse

MOST: Final = 8  # reported fields of one reply
MOST_NAME: Final = 60  # characters
Numbers = Callable[[Sequence[ToolUse]], Sequence[float]]


def argument_doubts(
    reply: CallReply, confidence: float, numbers: Numbers
) -> tuple[FieldDoubt, ...]:
    """Return the arguments of a reply's calls without a source, the most costly first.

    `confidence` is that of the reply; `numbers` returns the confidence of edited replies, computed
    in the same way.
    """
    told = [
        (at, name, mark)
        for at, each in enumerate(unfounded_arguments(reply))
        for name, mark in each.items()
    ]
    told = told[:MOST]
    if not told:
        return ()
    calls = reply.view.calls
    edited = [_name_value(reply.used, name, calls[at].arguments[name]) for at, name, _ in told]
    found = iter(numbers([each for each in edited if each is not None]))
    doubts = [
        FieldDoubt(name[:MOST_NAME], mark, at, _share(confidence, next(found)) if edit else None)
        for (at, name, mark), edit in zip(told, edited, strict=True)
    ]
    return tuple(sorted(doubts, key=lambda each: 1.0 if each.share is None else each.share))


def _share(confidence: float, named: float) -> float:
    return min(1.0, confidence / named) if named > 0 else 1.0


def _name_value(used: ToolUse, name: str, value: Any) -> ToolUse | None:
    """Return the reply after a conversation in which the user names the value.

    None without a user.
    """
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
