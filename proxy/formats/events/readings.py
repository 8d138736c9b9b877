"""Answers and events that two readers could take for two things.

Of a member that stands twice one reader takes the first and another the last; some do not tell
cases apart; and a call that stands where the format has none is read by whoever looks there. A
policy that decides on one of these readings would let the other one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.formats.called import has_call
from proxy.wire.json_splice import RepeatedMemberError, check_repeated, json_object
from proxy.wire.large_json import check_members
from proxy.wire.sse import DONE, Event

AMBIGUOUS: Final = "ambiguous"
_PARTS: Final = (
    *("choices", "message", "delta", "content", "content_block", "output", "item", "response"),
    *("tool_calls", "function_call", "function", "custom"),
)  # members in which answers and their calls stand
_DECISIVE: Final = frozenset(
    {
        *_PARTS,
        *("id", "index", "type", "role", "object", "status", "error", "text", "refusal", "name"),
        *("arguments", "input", "code", "action", "call_id", "finish_reason", "stop_reason"),
        *("partial_json", "output_index", "output_text", "incomplete_details"),
    }
)


def is_event_ambiguous(event: Event) -> bool:
    """Whether readers could differ in what an event of a stream says."""
    data = event.data
    if not data or data == DONE or data.find("{") < 0:
        return False
    try:
        check_repeated(data.encode(errors="surrogatepass"), _DECISIVE)
    except RepeatedMemberError:
        return True
    return differs_by_case(json_object(data))


async def is_answer_ambiguous(body: bytes, completion: Mapping[str, Any]) -> bool:
    """The same of a whole answer; `completion` is what we read in its body."""
    try:
        await check_members(body, _DECISIVE)
    except RepeatedMemberError:
        return True
    return has_stray_call(completion) or differs_by_case(completion)


def has_stray_call(completion: Mapping[str, Any]) -> bool:
    """Whether there is a call where chat completions have none: beside the choices, or in a choice
    beside its message."""
    choices = completion.get("choices")
    if not isinstance(choices, list):
        return False
    told = [completion, *(choice for choice in choices if isinstance(choice, dict))]
    known = ("choices", "message")
    return any(has_call({k: v for k, v in each.items() if k not in known}) for each in told)


def _is_spelled_twice(members: Mapping[str, Any], name: str) -> bool:
    return sum(key.casefold() == name for key in members) > 1


def differs_by_case(answer: Any) -> bool:
    """Whether two members differ by their case alone, in the objects that an answer consists of."""
    waiting: list[Any] = [answer]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            folded = {key.casefold() for key in each}
            twice = folded & _DECISIVE if len(folded) < len(each) else ()
            if any(_is_spelled_twice(each, name) for name in twice):
                return True
            waiting += (each[key] for key in _PARTS if key in each)
    return False
