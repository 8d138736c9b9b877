"""The streams of `/v1/messages`: a message as named events, one block after another.

    message_start  (content_block_start  content_block_delta*  content_block_stop)*
    message_delta  message_stop, with a `ping` anywhere and an `error` in place of the rest

`message_delta` has the stop reason, so it is the event that finishes the only choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from calibrator import blocks_message, is_tool_use
from proxy.formats.base.format import MEMBER, NOTHING, UNREAD, Assembler, Choice, EventMeaning, Json
from proxy.formats.base.openai import error_meaning, kind_of, unreadable
from proxy.formats.events.called import beyond_text, is_stray, may_hold_part, unknown_call
from proxy.formats.events.known_types import BLOCK_DELTAS, BLOCKS
from proxy.formats.events.merging import Pieces, index_of, join_texts, merge
from proxy.formats.events.readings import StreamReading
from proxy.http.wire.json_splice import dumps, json_object
from proxy.http.wire.sse import Event, event_bytes, is_done

REFUSAL = "refusal"
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    REFUSAL: "content_filter",
}
_FINISH = EventMeaning((0,))
_END = EventMeaning(is_end=True)
_CALLS_TOOL = EventMeaning(calls_tool=True)
_EXPECTED = {  # the parts of an answer that an event may have
    "message_start": ("message",),
    "content_block_start": ("content_block",),
    "content_block_delta": ("delta",),
    "message_delta": ("delta", "usage"),
}
_OF_DELTA = ("stop_reason", "stop_sequence", "stop_details", "container")
_UNREADABLE = "INVALID_JSON"  # Anthropic's member, too, for arguments that are not JSON


def may_call(block: Any) -> bool:
    """Return whether a block calls a tool, or is of an unknown type that could hold a call."""
    return is_tool_use(block) or not _is_known(block)


def _is_known(block: Any) -> bool:
    """Return whether a block has a known type, or one that holds no part of an answer.

    False for a value that is no object or has no type.
    """
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        return False
    if kind in BLOCKS or kind.endswith("_result") or is_tool_use(block):
        return True
    return not may_hold_part(kind, block)


def with_unknown(message: Json, blocks: list[Any], others: Sequence[Any] = ()) -> Json:
    """Return the chat message with a call for each unknown block, and for each of `others`.

    Parts that are no text, such as images, become members of the message.
    """
    unknown = [
        unknown_call(each.get("type") if isinstance(each, dict) else None, each)
        for each in (*(block for block in blocks if not _is_known(block)), *others)
    ]
    message = message | beyond_text(blocks)
    if not unknown:
        return message
    return {**message, "tool_calls": [*message.get("tool_calls", ()), *unknown]}


def model_after(block: Any) -> str | None:
    """Return the model that answers from a `fallback` block on; None for any other block."""
    is_fallback = isinstance(block, dict) and block.get("type") == "fallback"
    next_model = block.get("to") if is_fallback else None
    model = next_model.get("model") if isinstance(next_model, dict) else None
    return model if isinstance(model, str) and model else None


def answering_model(completion: Json) -> str | None:
    """Return the name of the model whose words an Anthropic message holds, or None.

    That is the one that `usage.iterations` names as having stepped in, else the one of the last
    `fallback` block, else the message's own.
    """
    usage, blocks = completion.get("usage"), completion.get("content")
    iterations = usage.get("iterations") if isinstance(usage, dict) else None
    for each in reversed(iterations if isinstance(iterations, list) else []):
        is_fallback = isinstance(each, dict) and each.get("type") == "fallback_message"
        if is_fallback and isinstance(model := each.get("model"), str) and model:
            return model
    models = filter(None, map(model_after, reversed(blocks if isinstance(blocks, list) else [])))
    model = next(models, None) or completion.get("model")
    return model if isinstance(model, str) else None


def finish_reason(stop_reason: Any) -> str | None:
    """Return a stop reason in the words of chat completions, such as `length`.

    An unknown one is returned unchanged, and None for a value that is no text.
    """
    return _FINISH_REASONS.get(stop_reason, stop_reason) if isinstance(stop_reason, str) else None


class MessagesAssembler(Assembler):
    """Puts the events together as Anthropic's own clients do."""

    def __init__(self) -> None:
        self.model: str | None = None
        self.reading = StreamReading()
        self._message: Json | None = None  # without the blocks of later events
        self._blocks: dict[int, Json] = {}
        self._arguments: dict[int, Pieces] = {}  # of tool calls, by the index of their block
        self._open: set[int] = set()  # blocks whose stop has not arrived
        self._before_calls: tuple[int, frozenset[int]] | None = None  # next index, open blocks
        self._unknown: list[Json] = []  # events of unknown types

    def add(self, event: Event) -> EventMeaning:
        """Add one event and return what it means; what cannot be read is remembered."""
        # Anthropic's clients read on after the end mark of OpenAI's streams, so it ends nothing.
        if not event.data or is_done(event.data):
            return NOTHING
        data = self.reading.object_in(event)
        if data is None:
            return self.note_unread(unreadable(event.data))
        kind = kind_of(data, event)
        if kind is None:
            return self.note_unread(UNREAD)
        try:
            return self.note_unread(self._add(kind, data))
        except RecursionError:  # no real answer is nested so deeply
            return self.note_unread(UNREAD)

    def _add(self, kind: str, data: Json) -> EventMeaning:
        """Add an event of a type to the message, and return what it means."""
        if kind != "error" and is_stray(data, *_EXPECTED.get(kind, ())):
            return UNREAD
        match kind:
            case "content_block_delta":
                return self._extend(index_of(data, 0), data.get("delta"))
            case "content_block_start":
                return self._start(index_of(data, len(self._blocks)), data.get("content_block"))
            case "content_block_stop":
                self._open.discard(index_of(data, 0))
            case "message_start":
                return self._begin(data.get("message"))
            case "message_delta":
                return self._finish(data)
            case "message_stop":
                return _END
            case "error":
                return error_meaning(data, "error")
            case "ping":
                pass
            case _ if may_hold_part(kind, data):
                self._unknown.append(data)
                return self._calls()
        return NOTHING

    def _begin(self, message: Any) -> EventMeaning:
        """Begin the message, perhaps with blocks; return what the event means.

        A second beginning is unread.
        """
        if not isinstance(message, dict) or self._message is not None:
            return UNREAD
        self._message = dict(message)
        model, blocks = message.get("model"), message.get("content")
        self.model = model if isinstance(model, str) and model else None
        if blocks and not isinstance(blocks, list):
            return UNREAD
        meanings = [self._start(index, block) for index, block in enumerate(blocks or ())]
        return next((meaning for meaning in meanings if meaning is not NOTHING), NOTHING)

    def _start(self, index: int, block: Any) -> EventMeaning:
        """Begin a block; return what the event means. A second block of an index is unread."""
        if not isinstance(block, dict) or index in self._blocks:
            return UNREAD
        meaning = self._calls() if may_call(block) else NOTHING
        self.model = model_after(block) or self.model
        self._blocks[index] = block
        self._open.add(index)
        return meaning

    def _calls(self) -> EventMeaning:
        """Return the meaning of a part of a call, and remember where the first one is.

        A continuation begins there.
        """
        if self._before_calls is None:
            sent_count = max(self._blocks, default=-1) + 1
            self._before_calls = sent_count, frozenset(self._open)
        return _CALLS_TOOL

    def _extend(self, index: int, delta: Any) -> EventMeaning:
        """Extend a block by a delta; return what the event means.

        A delta without its block, and one for arguments that the block has already, are unread.
        """
        block = self._blocks.get(index)
        if block is None or not isinstance(delta, dict):
            return UNREAD
        is_twice = bool(block.get("input")) and "partial_json" in delta
        self._add_members(index, block, delta)
        if is_twice:  # one reader uses the block's first input, another the deltas
            return UNREAD
        kind = delta.get("type")
        if isinstance(kind, str) and (kind in BLOCK_DELTAS or not may_hold_part(kind, delta)):
            return NOTHING  # clients ignore deltas of types that they do not know
        self._unknown.append(delta)
        return self._calls()

    def _add_members(self, index: int, block: Json, delta: Json) -> None:
        """Add a delta's members to a block in place: texts and arguments grow, others merge."""
        for key, value in delta.items():
            if key == "partial_json" and isinstance(value, str):
                self._arguments.setdefault(index, Pieces()).append(value)
            elif key == "citation":
                block["citations"] = block.get("citations") or []
                block["citations"].append(value)
            elif key == "signature":
                block[key] = value
            elif isinstance(value, str) and isinstance(block.get(key), str) and key != "type":
                block[key] = Pieces([block[key], value])
            elif key != "type":
                merge(block, {key: value})

    def _finish(self, data: Json) -> EventMeaning:
        """Add the stop reason and the usage to the message; return what the event means.

        Only the first stop reason finishes the choice.
        """
        if isinstance(delta := data.get("delta"), dict) and is_stray(delta):
            return UNREAD
        message = self._message = self._message or {}
        was_finished = message.get("stop_reason") is not None
        if isinstance(delta, dict):
            _update(message, delta)
        if isinstance(usage := data.get("usage"), dict):  # totals, not parts
            before = message.get("usage")
            message["usage"] = dict(before) if isinstance(before, dict) else {}
            _update(message["usage"], usage)
            self.model = answering_model({"model": self.model, "usage": message["usage"]})
        left_out = ("type", "delta", "usage", MEMBER)
        message.update({key: value for key, value in data.items() if key not in left_out})
        is_finish = isinstance(message.get("stop_reason"), str) and not was_finished
        return _FINISH if is_finish else NOTHING

    def choices(self, only: Collection[int] | None = None) -> list[Choice]:
        """Return the one choice as it is now, as a chat message; none before the message begins."""
        if self._message is None:
            return []
        order = sorted(self._blocks)
        message = blocks_message(
            [join_texts(self._blocks[index]) for index in order],
            [join_texts(self._arguments.get(index)) for index in order],
        )
        message = with_unknown(message, [*self._blocks.values()], self._unknown)
        reason = self._message.get("stop_reason")
        return [Choice(0, message, finish_reason(reason), is_refusal=reason == REFUSAL)]

    def completion(self) -> Json:
        """Return the message that the same reply would have been without a stream."""
        blocks = [self._whole(index) for index in sorted(self._blocks)]
        return {**(self._message or {}), "content": blocks}

    def _whole(self, index: int) -> Json:
        """Return a block as it is now; arguments that are no JSON are kept as text in an object."""
        block: Json = join_texts(self._blocks[index])
        if arguments := join_texts(self._arguments.get(index)):
            parsed = json_object(arguments)
            block["input"] = {_UNREADABLE: arguments} if parsed is None else parsed
        return block

    def continue_stream(self, completion: Json, payload: Json) -> list[bytes]:
        """Return the events that end the stream with `completion`, after those before its calls.

        Blocks that are still open are ended first.
        """
        next_index, still_open = self._before_calls or (0, frozenset())
        stops = [_event(type="content_block_stop", index=index) for index in sorted(still_open)]
        return [*stops, *remaining_events(completion, next_index)]


def _update(target: Json, news: Json) -> None:
    """Update an object in place by another; a null does not replace a value."""
    target.update({k: v for k, v in news.items() if v is not None or target.get(k) is None})


# A message as events


def named_event(name: str, data: bytes) -> bytes:
    """Return an event with a name; Anthropic's clients ignore events without one."""
    return b"event: %b\n%b" % (name.encode(), event_bytes(data))


def _event(**data: Any) -> bytes:
    """Return an event named by its `type`, with these members."""
    return named_event(data["type"], dumps(data))


def opening_events(completion: Json) -> list[bytes]:
    """Return the events before the first block: `message_start` alone."""
    left_out = ("stop_details", "container", MEMBER)
    usage = {"input_tokens": 0, **(completion.get("usage") or {}), "output_tokens": 0}
    opening = {key: value for key, value in completion.items() if key not in left_out}
    opening |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    return [_event(type="message_start", message=opening)]


def remaining_events(completion: Json, index: int) -> list[bytes]:
    """Return the events of the blocks, numbered from `index`, and of the message's end.

    Our member is in `message_delta`, which finishes the choice.
    """
    events = []
    for position, block in enumerate(completion["content"], index):
        start, deltas = _parts(block)
        events.append(_event(type="content_block_start", index=position, content_block=start))
        events += [
            _event(type="content_block_delta", index=position, delta=delta) for delta in deltas
        ]
        events.append(_event(type="content_block_stop", index=position))
    delta = {key: completion.get(key) for key in _OF_DELTA if key in completion}
    usage = completion.get("usage") or {"output_tokens": 0}
    member = {MEMBER: completion[MEMBER]} if MEMBER in completion else {}
    events.append(_event(type="message_delta", delta=delta, usage=usage, **member))
    return [*events, _event(type="message_stop")]


def _parts(block: Json) -> tuple[Json, list[Json]]:
    """Return (the start of a block, the deltas that complete it).

    Blocks other than texts, thoughts and calls are whole in their start.
    """
    if is_tool_use(block):
        arguments = dumps(block.get("input", {})).decode()
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]
    match block.get("type"):
        case "text":
            return _text_parts(block)
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, list(_thinking_deltas(block))
    return block, []


def _text_parts(block: Json) -> tuple[Json, list[Json]]:
    """Return (the start of a text's block, deltas with its citations and then its text)."""
    citations = block.get("citations") or []
    start = {**block, "text": ""} | ({"citations": []} if citations else {})
    cited = [{"type": "citations_delta", "citation": citation} for citation in citations]
    return start, [*cited, {"type": "text_delta", "text": block.get("text", "")}]


def _thinking_deltas(block: Json) -> Iterator[Json]:
    """Yield the deltas of a thought: its text, and its signature if it has one."""
    yield {"type": "thinking_delta", "thinking": block.get("thinking", "")}
    if signature := block.get("signature"):
        yield {"type": "signature_delta", "signature": signature}
