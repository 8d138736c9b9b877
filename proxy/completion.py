"""Chat completions as the proxy reads them: only what is scored and decided on.

A completion that was not streamed is its bytes, a buffered stream its events; both give the same
choices, so everything after this module treats them alike. Nothing is re-declared as a model:
what we do not know survives because we never write it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.json_splice import add_member
from proxy.sse import DONE, Event, event_bytes

MEMBER = "pinocchio"  # the one member of ours in a completion or a finish chunk


@dataclass(slots=True)
class Choice:
    """One choice: the assistant message, put together from its deltas if it was streamed."""

    index: int
    message: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None


def json_object(data: bytes | str) -> dict[str, Any] | None:
    """The JSON object in `data`, or None when it is anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def choices_of(completion: Mapping[str, Any]) -> list[Choice]:
    """The choices of a `chat.completion`; an empty list when it is no such object."""
    listed = completion.get("choices")
    if not isinstance(listed, list):
        return []
    choices = []
    for position, choice in enumerate(listed):
        if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
            return []
        reason = choice.get("finish_reason")
        choices.append(
            Choice(
                _index(choice, position),
                choice["message"],
                reason if isinstance(reason, str) else None,
            )
        )
    return choices


def _index(value: Mapping[str, Any], default: int) -> int:
    index = value.get("index")
    return index if isinstance(index, int) and index >= 0 else default


class StreamAssembler:
    """Puts chunks together into choices, as the clients' own accumulators do."""

    def __init__(self) -> None:
        self._choices: dict[int, Choice] = {}
        self.model: str | None = None
        self.head: dict[str, Any] = {}  # id, created, model .. of the first chunk

    def add(self, chunk: Mapping[str, Any]) -> list[int]:
        """Takes one chunk in; returns the indices of the choices that it finishes."""
        if not self.head and "id" in chunk:
            self.head = {k: v for k, v in chunk.items() if k not in ("choices", "usage", "object")}
        if isinstance(chunk.get("model"), str) and chunk["model"]:
            self.model = chunk["model"]
        listed = chunk.get("choices")
        finished = []
        for position, part in enumerate(listed if isinstance(listed, list) else ()):
            if not isinstance(part, dict):
                continue
            choice = self._choices.setdefault(index := _index(part, position), Choice(index))
            if isinstance(part.get("delta"), dict):
                _merge(choice.message, part["delta"])
            if isinstance(part.get("finish_reason"), str) and choice.finish_reason is None:
                choice.finish_reason = part["finish_reason"]
                finished.append(index)
        return finished

    def choice(self, index: int) -> Choice:
        return self._choices[index]

    def choices(self) -> list[Choice]:
        return [self._choices[index] for index in sorted(self._choices)]

    def completion(self) -> dict[str, Any]:
        """What the same reply would have been, had it not been streamed."""
        listed = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": None, **choice.message},
                "finish_reason": choice.finish_reason,
            }
            for choice in self.choices()
        ]
        return {**self.head, "object": "chat.completion", "choices": listed}


def _merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Text grows, lists of indexed parts (tool calls) merge by index, anything else is kept."""
    for key, value in delta.items():
        old = message.get(key)
        if key == "tool_calls" and isinstance(value, list):
            message[key] = _merge_calls(old if isinstance(old, list) else [], value)
        elif key != "role" and isinstance(value, str) and isinstance(old, str):
            message[key] = old + value
        elif isinstance(value, dict) and isinstance(old, dict):
            _merge(old, value)
        elif value is not None or key not in message:
            message[key] = dict(value) if isinstance(value, dict) else value


def _merge_calls(calls: list[Any], deltas: Iterable[Any]) -> list[Any]:
    for delta in deltas:
        if not isinstance(delta, dict):
            continue
        index = _index(delta, len(calls) if delta.get("id") else max(len(calls) - 1, 0))
        while len(calls) <= index and len(calls) < 1_024:  # a hostile index builds no huge list
            calls.append({})
        if index >= len(calls):
            continue
        call = calls[index]
        for key in ("id", "type"):
            if isinstance(delta.get(key), str):
                call[key] = delta[key]
        function = delta.get("function")
        if isinstance(function, dict):
            merged = call.setdefault("function", {"name": "", "arguments": ""})
            for key in ("name", "arguments"):
                if isinstance(function.get(key), str):
                    merged[key] += function[key]
    return calls


def finished_indices(chunk: Mapping[str, Any]) -> list[int]:
    """The choices whose finish_reason stands in this chunk."""
    listed = chunk.get("choices")
    parts = [part for part in listed if isinstance(part, dict)] if isinstance(listed, list) else []
    return [
        _index(part, i)
        for i, part in enumerate(parts)
        if isinstance(part.get("finish_reason"), str)
    ]


def annotate_event(event: Event, member: Mapping[str, Any]) -> bytes:
    """The event with the `pinocchio` member in its chunk; untouched if it carries no object."""
    if event.data is None or event.data == DONE:
        return event.raw
    try:
        return event_bytes(add_member(event.data.encode(), MEMBER, member).decode())
    except ValueError:
        return event.raw


def events_of(completion: Mapping[str, Any], include_usage: bool = False) -> list[bytes]:
    """A completion as a stream of chunks: role and content, then the finish, usage, [DONE]."""
    head = {k: v for k, v in completion.items() if k not in ("choices", "usage", "object", MEMBER)}
    head["object"] = "chat.completion.chunk"
    chunks: list[dict[str, Any]] = []
    for choice in completion["choices"]:
        delta = dict(choice["message"])
        if isinstance(calls := delta.get("tool_calls"), list):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
        place = {"index": choice["index"], "logprobs": None}
        chunks.append({**head, "choices": [{**place, "delta": delta, "finish_reason": None}]})
        finish = {**place, "delta": {}, "finish_reason": choice["finish_reason"]}
        chunks.append({**head, "choices": [finish]})
    if MEMBER in completion and chunks:
        chunks[-1][MEMBER] = completion[MEMBER]
    if include_usage:
        chunks.append({**head, "choices": [], "usage": completion.get("usage")})
    events = [event_bytes(json.dumps(chunk, ensure_ascii=False)) for chunk in chunks]
    return [*events, event_bytes(DONE)]
