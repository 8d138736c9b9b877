"""Chat completions as the proxy reads them: only what is scored and decided on.

A completion that was not streamed is its bytes, a buffered stream its events; both give the same
choices, so everything after this module treats them alike. Nothing is re-declared as a model:
what we do not know survives because we never write it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.json_splice import add_member, dumps
from proxy.sse import DONE, Event, event_bytes

MEMBER = "pinocchio"  # the one member of ours in a completion or a finish chunk
_WHOLE = ("id", "role", "type")  # strings that come whole, if perhaps more than once


@dataclass(slots=True)
class Choice:
    """One choice: the assistant message, put together from its deltas if it was streamed."""

    index: int
    message: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


def json_object(data: bytes | str) -> dict[str, Any] | None:
    """The JSON object in `data`, or None when it is anything else, UTF-16 for one."""
    try:
        value = json.loads(data.decode("utf-8-sig") if isinstance(data, bytes) else data)
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
        reason, logprobs = choice.get("finish_reason"), choice.get("logprobs")
        choices.append(
            Choice(
                _index(choice, position),
                choice["message"],
                reason if isinstance(reason, str) else None,
                logprobs if isinstance(logprobs, dict) else None,
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
        self._calls: dict[int, dict[int, dict[str, Any]]] = {}  # of each choice, by their index
        self.model: str | None = None
        self.head: dict[str, Any] = {}  # id, created, model .. of the first chunk
        self.usage: dict[str, Any] | None = None

    def add(self, chunk: Mapping[str, Any]) -> list[int]:
        """Takes one chunk in; returns the indices of the choices that it finishes."""
        if not self.head and "id" in chunk:
            self.head = {k: v for k, v in chunk.items() if k not in ("choices", "usage", "object")}
        if isinstance(chunk.get("model"), str) and chunk["model"]:
            self.model = chunk["model"]
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        listed = chunk.get("choices")
        finished = []
        for position, part in enumerate(listed if isinstance(listed, list) else ()):
            if not isinstance(part, dict):
                continue
            choice = self._choices.setdefault(index := _index(part, position), Choice(index))
            with contextlib.suppress(RecursionError):  # no answer is nested that deeply
                self._extend(choice, part)
            if isinstance(part.get("finish_reason"), str) and choice.finish_reason is None:
                choice.finish_reason = part["finish_reason"]
                finished.append(index)
        return finished

    def _extend(self, choice: Choice, part: Mapping[str, Any]) -> None:
        delta, logprobs = part.get("delta"), part.get("logprobs")
        if isinstance(logprobs, dict):
            choice.logprobs = choice.logprobs or {}
            _merge(choice.logprobs, logprobs)
        if not isinstance(delta, dict):
            return
        if isinstance(delta.get("tool_calls"), list):
            calls = self._calls.setdefault(choice.index, {})
            _merge_calls(calls, delta["tool_calls"])
            choice.message["tool_calls"] = [calls[index] for index in sorted(calls)]
            delta = {key: value for key, value in delta.items() if key != "tool_calls"}
        _merge(choice.message, delta)

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
                "logprobs": choice.logprobs,
                "finish_reason": choice.finish_reason,
            }
            for choice in self.choices()
        ]
        usage = {} if self.usage is None else {"usage": self.usage}
        return {**self.head, "object": "chat.completion", "choices": listed, **usage}


def _merge(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Text and lists grow, objects merge, anything else is kept as it came last."""
    for key, value in delta.items():
        old = message.get(key)
        if key in _WHOLE:
            message[key] = value or old
        elif isinstance(value, str) and isinstance(old, str):
            message[key] = old + value
        elif isinstance(value, list) and isinstance(old, list):
            old.extend(value)
        elif isinstance(value, dict) and isinstance(old, dict):
            _merge(old, value)
        elif value is not None or key not in message:
            message[key] = value.copy() if isinstance(value, dict | list) else value


def _merge_calls(calls: dict[int, dict[str, Any]], deltas: Iterable[Any]) -> None:
    """Tool calls merge by their index; where there is none, another id begins another call."""
    for delta in deltas:
        if not isinstance(delta, dict):
            continue
        last = max(calls, default=-1)
        is_new = not calls or delta.get("id") not in (None, "", calls[last].get("id"))
        call = calls.setdefault(_index(delta, last + 1 if is_new else last), {})
        _merge(call, {key: value for key, value in delta.items() if key != "index"})


def finished_indices(chunk: Mapping[str, Any]) -> list[int]:
    """The choices whose finish_reason stands in this chunk."""
    listed = chunk.get("choices")
    return [
        _index(part, position)
        for position, part in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(part, dict) and isinstance(part.get("finish_reason"), str)
    ]


def annotate_event(event: Event, member: Mapping[str, Any]) -> bytes:
    """The event with the `pinocchio` member in its chunk; untouched if it carries no object."""
    if event.data is None or event.data == DONE:
        return event.raw
    data = event.data.encode()
    try:
        annotated = add_member(data, MEMBER, member)
    except ValueError:
        return event.raw
    if event.raw.count(data) == 1:  # other fields of the event and its line ends stay
        return event.raw.replace(data, annotated)
    return event_bytes(annotated.decode())


def events_of(completion: Mapping[str, Any], include_usage: bool = False) -> list[bytes]:
    """A completion as a stream of chunks: role and content, then the finish, usage, [DONE]."""
    head = {k: v for k, v in completion.items() if k not in ("choices", "usage", "object", MEMBER)}
    head["object"] = "chat.completion.chunk"
    chunks: list[dict[str, Any]] = []
    for choice in completion["choices"]:
        delta = dict(choice["message"])
        if isinstance(calls := delta.get("tool_calls"), list):
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
        start = {"index": choice["index"], "delta": delta, "logprobs": choice.get("logprobs")}
        finish = {"index": choice["index"], "delta": {}, "logprobs": None}
        chunks.append({**head, "choices": [{**start, "finish_reason": None}]})
        chunks.append({**head, "choices": [{**finish, "finish_reason": choice["finish_reason"]}]})
    if MEMBER in completion and chunks:
        chunks[-1][MEMBER] = completion[MEMBER]
    if include_usage:
        chunks.append({**head, "choices": [], "usage": completion.get("usage")})
    events = [event_bytes(dumps(chunk)) for chunk in chunks]
    return [*events, event_bytes(DONE)]
