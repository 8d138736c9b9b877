"""What OpenAI's formats have in common: choices, chunks, our member, and errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proxy.errors import ProxyError
from proxy.formats.base.format import MEMBER, NOTHING, UNREAD, Assembler, Choice, EventMeaning, Json
from proxy.formats.events.called import has_call, seems_call
from proxy.formats.events.merging import index_of
from proxy.formats.events.readings import StreamReading
from proxy.http.wire.json_splice import dumps, json_object, may_be_object, member_bytes
from proxy.http.wire.sse import Event, event_bytes, is_done, is_one_line, name_of

_CONSTRAINTS = (
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
    *("json_schema", "grammar", "regex", "ebnf", "format"),
)  # of vLLM; llama.cpp, SGLang and Ollama
_BOM = b"\xef\xbb\xbf"
_NESTED = ("error", "errors", "detail", "base_resp")
_WORDS = (  # members of an error
    *("type", "code", "message", "param", "status"),
    *("msg", "status_code", "status_msg"),
)
_OF_CHUNKS = frozenset(
    {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"}
)  # members of a chunk; only the choices hold parts of an answer
_OF_ERROR_OBJECTS = frozenset(
    {*_WORDS, "metadata", "details", "innererror", "request_id", "error_type"}
)
OF_ERRORS = frozenset(
    {
        *("error", "type", "code", "message", "param", "status", "status_code", "detail"),
        *("id", "object", "created", "model", "provider", "user_id", "request_id"),
        *("sequence_number", "event_id", "errors", "msg", "success", "base_resp"),
        *("error_code", "error_msg"),
    }
)  # members of an error's event; none of them holds a part of an answer
_ENDINGS = (None, "", "error", "stop", "length", "content_filter")


class ChoicesFormat(ABC):
    """What OpenAI's formats with a list of `choices` share."""

    @abstractmethod
    def message(self, choice: Json) -> Json | None:
        """Return a choice's message in the form of chat completions, or None if it has none."""

    def count(self, payload: Json) -> int:
        """Return how many choices a request wants, at least 1."""
        n = payload.get("n")
        return n if isinstance(n, int) and n > 1 else 1

    def without_effects(self, payload: Json) -> Json | None:
        """Return the members to change so that one choice is made and nothing is stored.

        Empty if the request needs no change.
        """
        single = {"n": 1} if self.count(payload) > 1 else {}
        return single | ({"store": False} if payload.get("store") else {})

    def revision(self, payload: Json, completion: Json, problems: str) -> Json | None:
        """Return None: without messages there is no turn to add."""
        return None

    def wants_schema(self, payload: Json) -> bool:
        """Return whether a request wants JSON, or constrains the answer in a server's own way."""
        response_format = payload.get("response_format")
        is_formatted = (
            isinstance(response_format, dict) and response_format.get("type", "text") != "text"
        )
        return is_formatted or is_constrained(payload)

    def choices(self, completion: Json) -> list[Choice]:
        """Return the choices of a completion; an empty list if one of them has no message."""
        parts = completion.get("choices")
        choices = []
        for position, choice in enumerate(parts if isinstance(parts, list) else ()):
            message = self.message(choice) if isinstance(choice, dict) else None
            if message is None:
                return []
            reason, logprobs = choice.get("finish_reason"), choice.get("logprobs")
            choices.append(
                Choice(
                    index_of(choice, position),
                    message,
                    reason if isinstance(reason, str) else None,
                    logprobs if isinstance(logprobs, dict) else None,
                )
            )
        return choices

    def add_notice(self, completion: Json, notice: str) -> Json | None:
        """Return the completion with a notice after each text, or None if no choice has a text."""
        choices = [self.choice_with_notice(choice, notice) for choice in completion["choices"]]
        return {**completion, "choices": choices} if choices != completion["choices"] else None

    @abstractmethod
    def choice_with_notice(self, choice: Json, notice: str) -> Json:
        """Return the choice with a notice after its text, or unchanged if it has no text."""

    def annotate_event(self, event: Event, member: Mapping[str, Any]) -> bytes:
        return add_member(event, member)

    def error_body(self, error: ProxyError) -> bytes:
        return error_body(error)

    def error_event(self, error: ProxyError) -> bytes:
        return error_event(error)


class ChunkAssembler(Assembler, ABC):
    """What the assemblers of these formats share: a stream's chunks, each with the same head."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.reading = StreamReading()
        self._head: Json = {}  # id, created, model .. of the first chunk
        self._usage: Json | None = None

    def add(self, event: Event) -> EventMeaning:
        """Add one event: [DONE], an error, a chunk, or what cannot be read.

        Return what it means.
        """
        if not event.data:
            return NOTHING
        if is_done(event.data):
            return EventMeaning(is_end=True)
        chunk = self.reading.object_in(event)
        if chunk is None:
            return self.note_unread(unreadable(event.data))
        if is_error(chunk) or (event.raw.startswith(b"event") and name_of(event.raw) == "error"):
            return error_meaning(chunk)
        return self._add_chunk(chunk)

    def _add_chunk(self, chunk: Json) -> EventMeaning:
        """Add a chunk: keep its head, model and usage, and add its choices.

        Return what it means.
        """
        if not self._head and "id" in chunk:
            self._head = chunk.copy()
            self._head.pop("choices", None)
            self._head.pop("usage", None)
        if isinstance(chunk.get("model"), str) and chunk["model"]:
            self.model = chunk["model"]
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        parts = chunk.get("choices")
        unknown_keys = chunk.keys() - _OF_CHUNKS
        is_stray = bool(unknown_keys) and has_call({key: chunk[key] for key in unknown_keys})
        if isinstance(parts, list):
            meaning = self.add_parts(parts)
            return replace(meaning, is_unread=True) if is_stray else meaning
        return self.note_unread(UNREAD) if parts or is_stray else NOTHING

    @abstractmethod
    def add_parts(self, parts: list[Any]) -> EventMeaning:
        """Add the `choices` of a chunk, and return what they mean."""


def is_constrained(payload: Json) -> bool:
    """Return whether a request constrains the answer by a server's own member, as `guided_json`."""
    return any(payload.get(name) not in (None, "") for name in _CONSTRAINTS)


def is_error(body: Json) -> bool:
    """Return whether an object says that it is an error, in the words of any server.

    These are `error`, and in an object without choices `errors`, `object: error` (vLLM),
    `success: false`, Baidu's `error_code` and MiniMax's `base_resp` with another status than 0.
    """
    if body.get("error"):
        return True
    if body.get("choices"):
        return False
    base = body.get("base_resp")
    if isinstance(base, dict) and base.get("status_code") not in (None, 0):
        return True
    if body.get("error_code") or body.get("errors"):
        return True
    return body.get("object") == "error" or body.get("success") is False


def is_failed(completion: Json) -> bool:
    """Return whether a completion has an error, and no text or call, in place of an answer.

    Gateways send the error beside its choices, or in one of them.
    """
    choices = completion.get("choices")
    if not isinstance(choices, list):
        return False
    # whether there is an error costs little; looking for text in each member of a reply does not
    if not completion.get("error") and not any(
        isinstance(choice, dict) and choice.get("error") for choice in choices
    ):
        return False
    return all(map(_says_nothing, choices))


def _says_nothing(choice: Any) -> bool:
    """Return whether a choice has no text and no call, though perhaps an error or a reason.

    False for a value that is no object.
    """
    if not isinstance(choice, dict):
        return False
    for key, value in choice.items():
        if key in ("delta", "message") and isinstance(value, dict):
            message = {**value, "role": None} if value.get("role") == "assistant" else value
            is_empty = _is_no_text(message)
        elif key in ("finish_reason", "native_finish_reason"):
            is_empty = value in _ENDINGS
        else:
            is_plain_error = (
                key == "error" and isinstance(value, dict) and _harmless_content(value) == value
            )
            is_empty = is_plain_error or _is_no_text(value)
        if not is_empty:
            return False
    return True


def _harmless_content(content: Any) -> Any:
    """Return the content of an error unchanged, or without what may be part of an answer.

    Of an object with such members only known words stay, such as `code` and `message`.
    """
    if content is None or isinstance(content, str | int | float):
        return content
    if isinstance(content, list):
        return [_harmless_content(each) for each in content if not isinstance(each, list)]
    words = content if isinstance(content, dict) else {}
    unknown = [words[key] for key in words.keys() - _OF_ERROR_OBJECTS]
    if words and all(map(_is_no_text, unknown)) and not seems_call(words):
        return content
    known = (key for key in _WORDS if key in words)
    kept = {key: words[key] for key in known if isinstance(words[key], str | int | None)}
    return kept if any(kept.values()) else {**kept, "message": "upstream failed"}


def _is_no_text(value: Any) -> bool:
    """Return whether a JSON value has no text at any depth."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif isinstance(value, str) and value:
            return False
    return True


def unreadable(data: str) -> EventMeaning:
    """Return the meaning of an event whose data we cannot read as a JSON object.

    It is UNREAD if another reader might, else NOTHING.
    """
    return UNREAD if may_be_object(data) else NOTHING


def error_alone(body: Json) -> Json:
    """Return a copy of an error's object without members that may be a part of an answer.

    It equals `body` if none could be one; members that are null or empty cannot.
    """
    kept = {
        key: _harmless_content(value) if value else value
        for key, value in body.items()
        if value is None
        or value == []
        or (key in OF_ERRORS and (key in _NESTED or not isinstance(value, dict | list)))
    }
    choices = body.get("choices")
    if isinstance(choices, list) and choices and all(map(_says_nothing, choices)):
        kept["choices"] = choices
    return kept


def error_meaning(body: Json, name: str | None = None) -> EventMeaning:
    """Return the meaning of an error's event; `name` is the event's, where it needs one.

    `bare` is the event without possible parts of an answer, None if it has none.
    """
    kept = error_alone(body)
    if kept == body:
        return EventMeaning(is_end=True, is_error=True)
    bare = event_bytes(dumps(kept))
    if name is not None:
        bare = b"event: %b\n%b" % (name.encode(), bare)
    return EventMeaning(is_end=True, is_error=True, calls_tool=True, bare=bare)


def kind_of(data: Json, event: Event) -> str | None:
    """Return an event's type, from its body or else its name; None where the two differ.

    An event with `error` and neither is of type "error".
    """
    kind, name = data.get("type"), name_of(event.raw)
    if kind is None and name is None and data.get("error"):
        return "error"
    if kind is None:
        return name
    return kind if isinstance(kind, str) and name in (None, kind) else None


def includes_usage(payload: Json) -> bool:
    """Return whether a request wants the usage in the stream."""
    options = payload.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def add_member(event: Event, member: Mapping[str, Any]) -> bytes:
    """Return an event's bytes with our member in its object, or unchanged without an object."""
    data = json_object(event.data) if event.data and not is_done(event.data) else None
    if data is None:
        return event.raw
    end = _end_of_object(event.raw)
    return b"%b%b%b" % (event.raw[:end], member_bytes(MEMBER, member, not data), event.raw[end:])


def _end_of_object(raw: bytes) -> int:
    """Return the index of the brace that closes the object in an event's bytes.

    It is the last one in the last line of data that has one. Raises ValueError if there is none.
    """
    end = len(raw)
    if is_one_line(raw) and raw.endswith(b"}\n\n"):
        return end - 3
    while end > 0:
        start = max(raw.rfind(b"\n", 0, end), raw.rfind(b"\r", 0, end)) + 1
        if raw.startswith((b"data:", _BOM + b"data:"), start):
            brace = raw.rfind(b"}", start, end)
            if brace >= 0:
                return brace
        end = start - 1
    raise ValueError("an event without an object")


def error_body(error: ProxyError) -> bytes:
    """Return an error in OpenAI's envelope."""
    return error.body()


def error_event(error: ProxyError) -> bytes:
    """Return an error as a server-sent event in OpenAI's envelope."""
    return event_bytes(error.body())
