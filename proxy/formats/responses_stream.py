"""The streams of `/v1/responses`: named, typed, numbered events about items and their parts.

The event that finishes a response holds all of it, so deltas are looked into only where a server
leaves that out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrator import answer_message, is_call
from proxy.formats.format import NOTHING, Assembler, Choice, Json, Sight
from proxy.formats.merging import Pieces, joined
from proxy.formats.responses_events import Writer, named_event
from proxy.json_splice import dumps, json_object
from proxy.sse import DONE, Event

_MATTERS = re.compile(
    r'response\.(?:created|queued|in_progress|completed|incomplete|failed|cancelled)"'
    r'|output_item|_call[_.]|"error"'
)
_FINISHED = ("response.completed", "response.incomplete")
_FAILED = ("response.failed", "response.cancelled")
_BEGUN = ("response.created", "response.queued", "response.in_progress")
_GROWING = {  # by the end of a delta's type: the member that grows
    "function_call_arguments.delta": "arguments",
    "mcp_call_arguments.delta": "arguments",
    "custom_tool_call_input.delta": "input",
    "code_interpreter_call_code.delta": "code",
}
_REASONS = {"max_output_tokens": "length", "content_filter": "content_filter"}


def finish_reason(response: Mapping[str, Any]) -> str | None:
    """In the words of chat completions; None for a response that is not finished."""
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
    """Where the first part of a tool call stands: what a client has before it."""

    number: int
    output_index: int
    items: list[Any]


class ResponsesAssembler(Assembler):
    """Typed events; the finishing one counts for more than those before it."""

    def __init__(self) -> None:
        self.model: str | None = None
        self._response: Json = {}  # as the last event about all of it has it
        self._added: dict[int, Any] = {}  # items by their index
        self._done: dict[int, Any] = {}
        self._deltas: list[str] = []  # events nobody has looked into
        self._events = 0
        self._is_finished = False
        self._break: _Break | None = None

    def add(self, event: Event) -> Sight:
        data = event.data
        if not data or self._is_finished:
            return NOTHING
        if data == DONE:
            return Sight(is_end=True)
        self._events += 1
        value = json_object(data) if _MATTERS.search(data) else None
        if value is None:
            self._deltas.append(data)
            return NOTHING
        return self._add_parsed(str(value.get("type")), value, data)

    def _add_parsed(self, kind: str, value: Json, data: str) -> Sight:
        if kind == "error" or value.get("error"):
            return Sight(is_end=True, is_error=True)
        if kind in _FAILED:
            return _failure(kind, value)
        if kind in _FINISHED:
            return self._finish(value)
        if kind in _BEGUN:
            self._take(value.get("response"))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            return self._add_item(kind, value)
        elif "_call" in kind:
            self._deltas.append(data)
            return self._call(value)
        else:
            self._deltas.append(data)
        return NOTHING

    def _take(self, response: Any) -> None:
        if isinstance(response, dict):
            self._response = response
            if isinstance(response.get("model"), str) and response["model"]:
                self.model = response["model"]

    def _add_item(self, kind: str, value: Json) -> Sight:
        item, index = value.get("item"), _index(value, len(self._added))
        sight = self._call(value) if is_call(item) else NOTHING
        (self._done if kind.endswith("done") else self._added)[index] = item
        return sight

    def _call(self, value: Json) -> Sight:
        """Part of a tool call; the first one is where a continuation begins."""
        if self._break is None:
            number = value.get("sequence_number")
            items = self._items()
            self._break = _Break(
                number if isinstance(number, int) else self._events - 1, len(items), items
            )
        return Sight(calls_tool=True)

    def _finish(self, value: Json) -> Sight:
        response = value.get("response")
        if not isinstance(response, dict):
            return NOTHING
        self._take(response)
        items = self._items()
        told = response.get("output")
        if not isinstance(told, list) or len(told) < len(items):
            self._response = {**response, "output": items}
        has_call = any(map(is_call, self._response["output"]))
        if has_call:
            self._call(value)
        self._is_finished = True
        self._deltas.clear()
        return Sight((0,), is_end=True, calls_tool=has_call)

    def _items(self) -> list[Any]:
        """What has arrived of the output, item by item."""
        indices = sorted(self._added.keys() | self._done.keys())
        if any(index not in self._done for index in indices):
            grown = {i: _opened(self._added[i]) for i in self._added if i not in self._done}
            for data in self._deltas:
                _grow(grown, json_object(data) or {})
            return [self._done.get(i, joined(grown.get(i))) for i in indices]
        return [self._done[index] for index in indices]

    def choices(self) -> list[Choice]:
        if not self._events:
            return []
        items = self._response.get("output") if self._is_finished else self._items()
        reason = finish_reason(self._response) or "stop" if self._is_finished else None
        return [Choice(0, answer_message(items or []), reason)]

    def completion(self) -> Json:
        return self._response if self._is_finished else {**self._response, "output": self._items()}

    def continued(self, completion: Json, payload: Json) -> list[bytes]:
        at = self._break or _Break(self._events, len(self._added), self._items())
        writer = Writer(at.number)
        items = completion.get("output") or []
        for index, item in enumerate(items, at.output_index):
            writer.item(index, item)
        writer.finish({**completion, "output": [*at.items, *items]})
        return writer.events


def _index(value: Mapping[str, Any], default: int) -> int:
    index = value.get("output_index")
    return index if isinstance(index, int) else default


def _failure(kind: str, value: Json) -> Sight:
    """A failure; what came to be before it stands in its event all the same."""
    response = value.get("response")
    items = response.get("output") if isinstance(response, dict) else None
    if not items or not isinstance(items, list):
        return Sight(is_end=True, is_error=True)
    bare = named_event(kind, dumps({**value, "response": {**value["response"], "output": []}}))
    has_call = any(map(is_call, items))
    return Sight(is_end=True, is_error=True, calls_tool=has_call, bare=bare)


def _opened(item: Any) -> Any:
    """A copy that deltas may grow."""
    opened = dict(item) if isinstance(item, dict) else {}
    return {**opened, "content": list(opened.get("content") or ())} if _is_message(item) else opened


def _is_message(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "message"


def _grow(items: dict[int, Any], delta: Json) -> None:
    """Takes the delta of a text, a refusal or a call into the item that it belongs to."""
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


def _append(grown: Json, key: str, text: str) -> None:
    """Adds to a text, which stays in pieces until it is needed."""
    pieces = grown.get(key)
    if not isinstance(pieces, Pieces):
        pieces = grown[key] = Pieces([str(pieces or "")])
    pieces.append(text)
