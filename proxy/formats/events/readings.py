"""Answers and events that two readers could understand differently.

If a member is repeated, one reader takes the first and another the last. Some readers ignore case.
A call where the format has none is found only by readers who look there. A policy that decides on
one of these readings would let the other one pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from proxy.formats.events.called import has_call
from proxy.http.wire.json_splice import (
    RepeatedMemberError,
    check_repeated,
    json_object,
    object_without_repeats,
)
from proxy.http.wire.sse import DONE, Event

AMBIGUOUS: Final = "ambiguous"
_PARTS: Final = frozenset(
    {
        *("choices", "message", "delta", "content", "content_block", "output", "item", "response"),
        *("tool_calls", "function_call", "function", "custom"),
    }
)  # members that contain answers and their calls
DECISIVE: Final = frozenset(
    {
        *_PARTS,
        *("id", "index", "type", "role", "object", "status", "error", "text", "refusal", "name"),
        *("arguments", "input", "code", "action", "call_id", "finish_reason", "stop_reason"),
        *("partial_json", "output_index", "output_text", "incomplete_details"),
    }
)
_PLAIN: Final = frozenset(
    {
        *("id", "object", "created", "model", "system_fingerprint", "service_tier"),
        *("index", "finish_reason", "text"),
    }
)  # members beside a message that are no call if they are plain values
_HOLDING: Final = frozenset({dict, list})
_OF_ANSWER: Final = frozenset(
    {
        *("id", "object", "created", "model", "choices", "usage"),
        *("system_fingerprint", "service_tier"),
    }
)
_OF_CHOICE: Final = frozenset({"index", "message", "finish_reason", "logprobs"})
_OF_MESSAGE: Final = frozenset({"role", "content", "refusal", "annotations", "reasoning_content"})


class StreamReading:
    """The objects in the events of one stream, each parsed once.

    Where a policy decides on the stream (`is_strict`), the same pass finds the events that say the
    same to all readers.
    """

    def __init__(self) -> None:
        self.is_strict = False
        self.clear: Event | None = None  # the last such event

    def object_in(self, event: Event) -> dict[str, Any] | None:
        """Return the object in an event's data, or None if it is anything else.

        The data must not be empty. If `is_strict`, `clear` becomes the event if all readers agree
        on it.
        """
        data = event.data or ""
        if not self.is_strict:
            return json_object(data)
        value = object_without_repeats(data.encode(errors="surrogatepass"))
        if value is None:
            return json_object(data)
        if not differs_by_case(value):
            self.clear = event
        return value

    def is_ambiguous(self, event: Event) -> bool:
        """Return whether readers could differ in what an event says; quick for the `clear` one."""
        return event is not self.clear and is_event_ambiguous(event)


def is_event_ambiguous(event: Event) -> bool:
    """Return whether an event's object has a decisive member twice, also in two cases.

    Events without an object never have.
    """
    data = event.data
    if not data or data == DONE or data.find("{") < 0:
        return False
    encoded = data.encode(errors="surrogatepass")
    if (value := object_without_repeats(encoded)) is not None:
        return differs_by_case(value)
    try:
        check_repeated(encoded, DECISIVE)
    except RepeatedMemberError:
        return True
    return differs_by_case(json_object(data))


def is_ambiguous(completion: Mapping[str, Any]) -> bool:
    """Return whether readers could differ in what a completion says.

    It has a call where the format has none, or a member in two cases. The caller has checked for
    repeated members.
    """
    if is_one_text(completion):
        return False
    return has_stray_call(completion) or differs_by_case(completion)


def is_one_text(completion: Mapping[str, Any]) -> bool:
    """Return whether a chat completion is one message of text, with members of its format only.

    Then no reader finds a call in it, and no name is there in two cases.
    """
    match completion:
        case {"choices": [{"message": {"content": str(), **said}, **beside}], **around}:
            return (
                around.keys() <= _OF_ANSWER
                and beside.keys() <= _OF_CHOICE
                and said.keys() <= _OF_MESSAGE
                and _holds_none(around, "usage")
                and _holds_none(beside, "logprobs")
            )
    return False


def _holds_none(members: dict[Any, Any], ignored: str) -> bool:
    """Return whether no member is an object or a list, except one that only describes.

    That member is removed from `members`.
    """
    members.pop(ignored, None)
    return _HOLDING.isdisjoint(map(type, members.values()))


def has_stray_call(completion: Mapping[str, Any]) -> bool:
    """Return whether there is a call where chat completions have none.

    Such places are beside the choices, and in a choice beside its message.
    """
    choices = completion.get("choices")
    if not isinstance(choices, list):
        return False
    return any(map(_has_call_beside, (completion, *choices)))


def _has_call_beside(owner: Any) -> bool:
    """Return whether there is a call beside a choice's message, or beside an answer's choices."""
    if not isinstance(owner, dict):
        return False
    rest = owner.copy()
    for known in ("choices", "message", "logprobs", "usage"):  # the last two only describe
        rest.pop(known, None)
    is_plain = rest.keys() <= _PLAIN and _HOLDING.isdisjoint(map(type, rest.values()))
    return not is_plain and has_call(rest)


def _is_spelled_twice(members: Mapping[str, Any]) -> bool:
    """Return whether a decisive member is there in two cases."""
    counts = Counter(map(str.casefold, members))
    return any(counts[name] > 1 for name in counts.keys() & DECISIVE)


def differs_by_case(answer: Any) -> bool:
    """Return whether two members of an object differ by case alone, such as `text` and `Text`.

    Only decisive members count, in the objects that make up an answer.
    """
    waiting: list[Any] = [answer]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            names = "".join(each)
            if names != names.casefold() and _is_spelled_twice(each):
                return True
            waiting += map(each.__getitem__, _PARTS.intersection(each))
    return False
