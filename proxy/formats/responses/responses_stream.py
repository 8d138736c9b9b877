"""The streams of `/v1/responses`: named, typed, numbered events about items and their parts.

The event that finishes a response holds all of it, so deltas are read only if a server leaves that
out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from calibrator import answer_message, is_call
from proxy.formats.base.format import NOTHING, UNREAD, Assembler, Choice, EventMeaning, Json
from proxy.formats.base.openai import error_meaning, kind_of, unreadable
from proxy.formats.events.called import beyond_text, has_call, is_stray, may_hold_part, unknown_call
from proxy.formats.events.known_types import ITEMS, RESPONSE_EVENTS
from proxy.formats.events.merging import Pieces, join_texts
from proxy.formats.events.readings import StreamReading
from proxy.formats.responses.responses_events import EventWriter, named_event
from proxy.formats.responses.responses_items import item_type, logprobs_of
from proxy.http.wire.json_splice import canonical, dumps, json_object
from proxy.http.wire.sse import Event, is_done

_TOLD_OF = re.compile(  # events about texts, and those without content
    r"response\.(?:output_text|refusal|content_part|reasoning\w*|audio\w*)(?:\.[a-z_.]+)?"
    r"|ping|keepalive|response\.rate_limits\.updated"
)
_EXPECTED = {"response.output_item": ("item",)}
_CALL_EVENTS = (  # events with name and arguments beside their type, not in an item
    "response.function_call_arguments.",
    "response.mcp_call_arguments.",
    "response.custom_tool_call_input.",
    "response.code_interpreter_call_code.",
)
_OF_CALL_EVENTS = ("name", "arguments", "input", "code")
_GROWN = ("arguments", "input", "code")
_OF_CALLS = ("type", "name", "call_id", "arguments", "input", "action", "code", "server_label")
_FINISHED = ("response.completed", "response.incomplete")
_FAILED = ("response.failed", "response.cancelled")
_BEGUN = ("response.created", "response.queued", "response.in_progress")
_GROWING = {  # the member that grows, by the end of a delta's type
    "function_call_arguments.delta": "arguments",
    "mcp_call_arguments.delta": "arguments",
    "custom_tool_call_input.delta": "input",
    "code_interpreter_call_code.delta": "code",
}
_TEXTS = ("response.output_text.delta", "response.output_text.done", "response.refusal.delta")
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


def finish_reason(response: Mapping[str, Any]) -> str | None:
    """Return why a response finished, in the words of chat completions, such as `length`.

    Returns None for a response that is not finished.
    """
    if response.get("status") == "incomplete":
        details = response.get("incomplete_details")
        reason = str(details.get("reason")) if isinstance(details, dict) else "unknown"
        return _REASONS.get(reason, reason)
    if response.get("status") != "completed":
        return None
    items = response.get("output")
    return "tool_calls" if isinstance(items, list) and items and is_call(items[-1]) else "stop"


@dataclass(frozen=True, slots=True)
class _Break:
    """The position of the first part of a tool call, and what a client has before it."""

    number: int
    output_index: int
    items: list[Any]


class ResponsesAssembler(Assembler):
    """Puts typed events together; the finishing one takes precedence over those before it."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.reading = StreamReading()
        self._response: Json = {}  # from the last event about all of it
        self._added: dict[int, Any] = {}  # items by index
        self._done: dict[int, Any] = {}
        self._deltas: list[str] = []  # events that were not parsed further
        self._events = 0
        self._is_finished = False
        self._break: _Break | None = None
        self._unknown: list[Json] = []  # events of unknown types
        self._called: list[Any] = []  # calls as in the events before the last one
        self._arguments: set[str] = set()  # of calls, from events that have them whole
        self._names: set[str] = set()  # of calls, from the events that end their arguments

    def add(self, event: Event) -> EventMeaning:
        """Add one event and return what it means; what cannot be read is remembered."""
        data = event.data
        if not data:
            return NOTHING
        if is_done(data):
            return EventMeaning(is_end=True)
        self._events += 1
        value = self.reading.object_in(event)
        if value is None:
            return self.note_unread(unreadable(data))
        kind = kind_of(value, event)
        if kind is None:
            return self.note_unread(UNREAD)
        try:
            if self._is_finished:
                return self._after_the_end(value)
            return self.note_unread(self._add(kind, value, data))
        except RecursionError:  # no real answer is nested so deeply
            return self.note_unread(UNREAD)

    def _after_the_end(self, value: Json) -> EventMeaning:
        """Return the meaning of an event after the end: UNREAD if it has an item or a call.

        Such a call belongs to no answer. Any other event means nothing.
        """
        return UNREAD if "item" in value or "response" in value or has_call(value) else NOTHING

    def _add(self, kind: str, value: Json, data: str) -> EventMeaning:
        """Add an event of a type to the response, and return what it means."""
        if kind == "error" or value.get("error"):
            return error_meaning(value, "error")
        if kind in _FAILED:
            return _failure(kind, value)
        of_call = _OF_CALL_EVENTS if kind.startswith(_CALL_EVENTS) else ()
        expected = _EXPECTED.get(kind.rpartition(".")[0], ("response", "part"))
        if is_stray(value, *expected, *of_call):
            return UNREAD
        if kind in _FINISHED:
            return self._finish(value)
        if kind in _BEGUN:
            return self._begin(value)
        if kind in ("response.output_item.added", "response.output_item.done"):
            return self._add_item(kind, value)
        self._deltas.append(data)
        content_kind = RESPONSE_EVENTS.get(kind)
        if content_kind == "call" or (content_kind is None and "_call" in kind):
            self._arguments |= {value[key] for key in _GROWN if _is_text(value, key)}
            self._names |= {value["name"]} if _is_text(value, "name") else set()
            return self._call(value)
        if content_kind is not None or _TOLD_OF.fullmatch(kind):
            return NOTHING
        if not may_hold_part(kind, value):  # clients ignore it, like rate limits
            return NOTHING
        self._unknown.append(value)
        return self._call(value)

    def _begin(self, value: Json) -> EventMeaning:
        """Take over the response as it is at first; return what the event means.

        Items in it count like those that are added later.
        """
        response = value.get("response")
        items = response.get("output") if isinstance(response, dict) else None
        if items and not isinstance(items, list):
            return UNREAD
        self._take(response)
        if not any(map(may_call, items or ())):
            return NOTHING
        self._called += filter(may_call, items or ())
        return self._call(value)

    def _take(self, response: Any) -> None:
        """Remember a response, and its model if it names one; ignore any other value."""
        if isinstance(response, dict):
            self._response = response
            if isinstance(response.get("model"), str) and response["model"]:
                self.model = response["model"]

    def _add_item(self, kind: str, value: Json) -> EventMeaning:
        """Remember an item that begins or is done, and return what the event means."""
        item, index = value.get("item"), _index(value, len(self._added))
        meaning = NOTHING
        if may_call(item):
            meaning = self._call(value)
            self._called.append(item if kind.endswith("done") else _named_only(item))
        (self._done if kind.endswith("done") else self._added)[index] = item
        return meaning

    def _call(self, value: Json) -> EventMeaning:
        """Return the meaning of a part of a call, and remember where the first one is.

        A continuation begins there.
        """
        if self._break is None:
            number = value.get("sequence_number")
            items = self._items()
            self._break = _Break(
                number if isinstance(number, int) else self._events - 1, len(items), items
            )
        return EventMeaning(calls_tool=True)

    def _finish(self, value: Json) -> EventMeaning:
        """Take over the finished response, and return what the event means.

        Items that it lacks are added from the events. It is unread where its calls differ from
        those in the events.
        """
        response = value.get("response")
        if not isinstance(response, dict):
            return UNREAD
        self._take(response)
        items = self._items()
        output = response.get("output")
        if not isinstance(output, list) or len(output) < len(items):
            self._response = {**response, "output": items}
        calls_tool = any(map(may_call, self._response["output"]))
        if calls_tool:
            self._call(value)
        self._is_finished = True
        is_unread = bool(output) and not isinstance(output, list)
        if not self._is_same(self._response["output"], items):
            is_unread = True
        self._deltas.clear()
        return EventMeaning((0,), is_end=True, calls_tool=calls_tool, is_unread=is_unread)

    def _is_same(self, output: list[Any], items: list[Any]) -> bool:
        """Return whether `output` has each call of the events before, and of `items`, unchanged."""
        known_calls = {_call_of(each) for item in output for each in (item, _named_only(item))}
        begun_items = [item if _has_begun(item) else _named_only(item) for item in items]
        calls = [*self._called, *filter(may_call, begun_items)]
        texts = {item[key] for item in output for key in _GROWN if _is_text(item, key)}
        names = {item["name"] for item in output if _is_text(item, "name")}
        has_calls = all(_call_of(call) in known_calls for call in calls)
        return has_calls and self._arguments <= texts and self._names <= names

    def _items(self) -> list[Any]:
        """Return the items of the output as they are now, in order.

        Items that are not done are put together from their deltas.
        """
        indices = sorted(self._added.keys() | self._done.keys())
        if not indices and self._deltas:
            return self._items_of_texts()
        if any(index not in self._done for index in indices):
            open_items = {i: _copy_item(self._added[i]) for i in self._added if i not in self._done}
            for data in self._deltas:
                _grow(open_items, json_object(data) or {})
            return [self._done.get(i, join_texts(open_items.get(i))) for i in indices]
        return [self._done[index] for index in indices]

    def _items_of_texts(self) -> list[Any]:
        """Return messages for the texts in the deltas whose items were never announced.

        They are in the order of their output index.
        """
        items: dict[int, Any] = {}
        events = [json_object(data) or {} for data in self._deltas]
        for value in events:
            if value.get("type") in _TEXTS and isinstance(index := value.get("output_index"), int):
                items.setdefault(index, {"type": "message", "role": "assistant", "content": []})
        for value in events:
            _grow(items, value)
        for value in events:  # a text without a delta is only in the event that ends it
            message = items.get(_index(value, -1))
            if message and not message["content"] and _is_text(value, "text"):
                message["content"].append({"type": "output_text", "text": value["text"]})
        return [join_texts(items[index]) for index in sorted(items)]

    def choices(self, only: Collection[int] | None = None) -> list[Choice]:
        """Return the one choice as it is now, as a chat message; none before the first event."""
        if not self._events:
            return []
        items = self._response.get("output") if self._is_finished else self._items()
        reason = finish_reason(self._response) or "stop" if self._is_finished else None
        items = items or []
        return [Choice(0, answer_to(items, self._unknown), reason, logprobs_of(items))]

    def completion(self) -> Json:
        """Return the response that the same reply would have been without a stream."""
        return self._response if self._is_finished else {**self._response, "output": self._items()}

    def continue_stream(self, completion: Json, payload: Json) -> list[bytes]:
        """Return the events that add the items of `completion` and finish the response.

        They follow the events before the first call, and count on from their number.
        """
        at = self._break or _Break(self._events, len(self._added), self._items())
        writer = EventWriter(at.number)
        items = completion.get("output") or []
        for index, item in enumerate(items, at.output_index):
            writer.item(index, item)
        writer.finish({**completion, "output": [*at.items, *items]})
        return writer.events


def _index(value: Mapping[str, Any], default: int) -> int:
    """Return an event's `output_index`, or `default` if it is no number."""
    index = value.get("output_index")
    return index if isinstance(index, int) else default


def _failure(kind: str, value: Json) -> EventMeaning:
    """Return the meaning of a failure's event, which may hold what was generated before.

    `bare` is then the event without that.
    """
    response = value.get("response")
    fields = response if isinstance(response, dict) else {}
    extra = value.keys() - {"type", "sequence_number", "response"}
    if not extra and not fields.get("output") and not fields.get("output_text"):
        return EventMeaning(is_end=True, is_error=True)
    kept = {key: each for key, each in fields.items() if key != "output_text"} | {"output": []}
    bare = named_event(kind, dumps({"type": kind, "response": kept}))
    items = fields.get("output")
    calls_tool = bool(extra) or not isinstance(items, list) or any(map(may_call, items))
    return EventMeaning(is_end=True, is_error=True, calls_tool=calls_tool, bare=bare)


def may_call(item: Any) -> bool:
    """Return whether an item calls a tool, or is of an unknown type that could hold a call."""
    return is_call(item) or not _is_known(item)


def _is_known(item: Any) -> bool:
    """Return whether an item's type is known, or could hold no part of an answer."""
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str):
        return False
    if kind in ITEMS or kind.endswith("_output") or is_call(item):
        return True
    return not may_hold_part(kind, item)


def answer_to(items: list[Any], events: Sequence[Any] = ()) -> Json:
    """Return the chat message for these items; unknown items and `events` become calls.

    Parts that are no text, such as images, become members of the message.
    """
    messages = (item for item in items if item_type(item) == "message")
    contents = (item["content"] for item in messages if isinstance(item.get("content"), list))
    message = answer_message(items) | beyond_text(chain.from_iterable(contents))
    unknown = [*(item for item in items if not _is_known(item)), *events]
    if not unknown:
        return message
    calls = [unknown_call(item_type(each), each) for each in unknown]
    return {**message, "tool_calls": [*message.get("tool_calls", ()), *calls]}


def _named_only(item: Any) -> Any:
    """Return a call with `type`, `name` and `call_id` alone, as it is when it has just begun.

    What is no object is returned unchanged.
    """
    if not isinstance(item, dict):
        return item
    return {"type": item.get("type"), "name": item.get("name"), "call_id": item.get("call_id")}


def _call_of(item: Any) -> bytes:
    """Return the members that identify a call, as canonical JSON."""
    if not isinstance(item, dict):
        return canonical(item)
    return canonical({key: item[key] for key in _OF_CALLS if item.get(key) is not None})


def _is_text(item: Any, key: str) -> bool:
    """Return whether an item has a text as this member."""
    return isinstance(item, dict) and isinstance(item.get(key), str)


def _has_begun(item: Any) -> bool:
    """Return whether a call has arguments, input or code; True for any other value."""
    return not isinstance(item, dict) or any(item.get(key) for key in _GROWN)


def _copy_item(item: Any) -> Any:
    """Return a copy of an item that deltas may extend.

    A message's list of contents is copied too.
    """
    item_copy = dict(item) if isinstance(item, dict) else {}
    return (
        {**item_copy, "content": list(item_copy.get("content") or ())}
        if _is_message(item)
        else item_copy
    )


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "message"


def _grow(items: dict[int, Any], delta: Json) -> None:
    """Add the delta of a text, a refusal or a call to its item, in place.

    `items` are by output index. Deltas without an item, and other kinds, are ignored.
    """
    kind, text = str(delta.get("type")).removeprefix("response."), delta.get("delta")
    item = items.get(_index(delta, -1))
    if not isinstance(item, dict) or not isinstance(text, str):
        return
    if member := _GROWING.get(kind):
        _append(item, member, text)
        return
    key = {"output_text.delta": "text", "refusal.delta": "refusal"}.get(kind)
    if key is None or not _is_message(item):
        return
    part_type = "output_text" if key == "text" else "refusal"
    if not item["content"] or item["content"][-1].get("type") != part_type:
        item["content"].append({"type": part_type, key: ""})
    _append(item["content"][-1], key, text)


def _append(item: Json, key: str, text: str) -> None:
    """Add a text to a member of an object, in place; it stays in pieces until it is needed."""
    pieces = item.get(key)
    if not isinstance(pieces, Pieces):
        pieces = item[key] = Pieces([str(pieces or "")])
    pieces.append(text)
