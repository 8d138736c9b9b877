"""One answer of an upstream, whole: its bytes, its choices, their confidences.

A reply that was not streamed keeps its body, a buffered stream its events; `annotated` gives back
exactly what arrived but for the one member of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policies import Facts, ToolCall
from proxy.chat_request import ChatRequest
from proxy.completion import (
    MEMBER,
    Choice,
    StreamAssembler,
    annotate_event,
    choices_of,
    events_of,
    finished_indices,
    json_object,
)
from proxy.encoding import can_decode, decode
from proxy.errors import ProxyError, UpstreamBrokenError, UpstreamError
from proxy.headers import to_client, without
from proxy.json_splice import add_member, dumps
from proxy.scoring import Confidence
from proxy.sse import DONE, Event, EventReader, EventTooLargeError
from proxy.upstream import Headers, UpstreamReply

EVENT_STREAM = "text/event-stream"


@dataclass(slots=True)
class Answer:
    """A completion with its confidences, one for each choice (empty until it is scored)."""

    status: int
    headers: Headers
    completion: dict[str, Any]
    choices: list[Choice]
    body: bytes = b""
    raw: bytes = b""  # the body as it came, which may be encoded
    events: list[Event] | None = None  # of a stream; `body` and `raw` are then empty
    confidences: list[Confidence] = field(default_factory=list)

    @property
    def model(self) -> str | None:
        """The answering model's name, as upstream gives it."""
        model = self.completion.get("model")
        return model if isinstance(model, str) else None

    @property
    def lowest(self) -> Confidence | None:
        """The confidence of the least sure choice; one without a number counts as the least."""
        return min(
            self.confidences, key=lambda c: -1.0 if c.value is None else c.value, default=None
        )

    def is_surer_than(self, other: Answer) -> bool:
        """Compares the least sure choices; a score beats none."""
        mine, theirs = self.lowest, other.lowest
        if mine is None or mine.value is None:
            return False
        return theirs is None or theirs.value is None or mine.value > theirs.value

    @property
    def has_tool_calls(self) -> bool:
        return any(_tool_calls(choice) for choice in self.choices)

    def facts(self, chat: ChatRequest) -> list[Facts]:
        """What a policy may look at, one for each choice."""
        return [
            Facts(
                confidence=confidence.value,
                model=chat.model,
                tools=_tool_calls(choice),
                stream=chat.is_stream,
                finish_reason=choice.finish_reason,
                n=chat.n,
                domain=chat.domain,
                tags=chat.tags,
            )
            for choice, confidence in zip(self.choices, self.confidences, strict=True)
        ]

    def stored(self) -> bytes:
        """The whole completion as one JSON object, for a reviewer and for release."""
        return self.body if self.events is None else dumps(self.completion).encode()

    def annotated(self, member: Mapping[str, Any] | None) -> bytes:
        """The bytes for the client; with a member, it stands in the object or the finish chunks."""
        if self.events is None:
            return self.raw if member is None else add_member(self.body, MEMBER, member)
        return b"".join(
            event.raw if member is None else _with_member(event, member) for event in self.events
        )


def _with_member(event: Event, member: Mapping[str, Any]) -> bytes:
    chunk = json_object(event.data) if event.data else None
    return annotate_event(event, member) if chunk and finished_indices(chunk) else event.raw


def _tool_calls(choice: Choice) -> tuple[ToolCall, ...]:
    listed = choice.message.get("tool_calls")
    calls = list(listed) if isinstance(listed, list) else []
    if isinstance(choice.message.get("function_call"), dict):
        calls.append({"function": choice.message["function_call"]})
    functions = [
        call.get("function") or call.get("custom") for call in calls if isinstance(call, dict)
    ]
    return tuple(
        ToolCall(str(f.get("name") or ""), str(f.get("arguments") or f.get("input") or ""))
        for f in functions
        if isinstance(f, dict)
    )


def is_event_stream(reply: UpstreamReply) -> bool:
    return (reply.header("content-type") or "").lower().startswith(EVENT_STREAM)


def unscorable_reason(reply: UpstreamReply) -> str | None:
    """Why a reply cannot be a completion that we can read, as a machine word; None if it may be."""
    if reply.status != 200:
        return "upstream_status"
    if not can_decode(reply.header("content-encoding")):
        return "encoding"
    if is_event_stream(reply):
        return (
            "encoding" if (reply.header("content-encoding") or "identity") != "identity" else None
        )
    is_json = "json" in (reply.header("content-type") or "").lower()
    return None if is_json else "content_type"


@dataclass(frozen=True, slots=True)
class Unread:
    """A reply that is no completion after all; its bytes are as they came."""

    body: bytes
    reason: str


async def read_answer(reply: UpstreamReply, limit: int) -> Answer | Unread:
    """Reads a whole reply; raises UpstreamError when it breaks off or exceeds `limit` bytes."""
    if is_event_stream(reply):
        return await _read_events(reply, limit)
    raw = await _read_bytes(reply, limit)
    encoding = reply.header("content-encoding")
    body = decode(raw, encoding) if encoding else raw
    completion = json_object(body)
    choices = choices_of(completion) if completion else []
    if completion is None or not choices:
        return Unread(raw, "not_a_completion")
    headers = without(to_client(reply.headers), "content-length")
    return Answer(reply.status, headers, completion, choices, body, raw)


async def _read_bytes(reply: UpstreamReply, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in reply.chunks:
        parts.append(chunk)
        size += len(chunk)
        if size > limit:
            raise UpstreamBrokenError(
                f"upstream's reply is larger than {limit} bytes (limits.max_body)"
            )
    return b"".join(parts)


async def _whole_stream(reply: UpstreamReply, limit: int) -> list[Event]:
    """All events; raises UpstreamError when the stream breaks off before [DONE]."""
    reader = EventReader()
    events: list[Event] = []
    size = 0
    try:
        async for part in reply.chunks:
            size += len(part)
            if size > limit:
                raise UpstreamBrokenError(
                    f"upstream's reply is larger than {limit} bytes (limits.max_body)"
                )
            events += reader.feed(part)
    except EventTooLargeError as error:
        raise UpstreamBrokenError(str(error)) from error
    except UpstreamError:
        if not any(event.data == DONE for event in events):
            raise
    if rest := reader.rest():
        events.append(Event(rest, None))
    return events


async def _read_events(reply: UpstreamReply, limit: int) -> Answer | Unread:
    events, assembler = await _whole_stream(reply, limit), StreamAssembler()
    for event in events:
        chunk = json_object(event.data) if event.data and event.data != DONE else None
        if chunk is not None and "error" in chunk:
            return Unread(event.raw, "upstream_error")  # the text before it was not decided on
        if chunk is not None:
            assembler.add(chunk)
    choices = assembler.choices()
    if not choices:
        return Unread(b"".join(event.raw for event in events), "not_a_completion")
    if any(choice.finish_reason is None for choice in choices):
        raise UpstreamBrokenError("upstream's stream ended before its finish chunk")
    headers = without(to_client(reply.headers), "content-length")
    return Answer(reply.status, headers, assembler.completion(), choices, events=events)


def rewritten(answer: Answer, completion: dict[str, Any], include_usage: bool) -> bytes:
    """Another completion in the form in which the answer came: one object, or a stream."""
    if answer.events is None:
        return dumps(completion).encode()
    return b"".join(events_of(completion, include_usage))


def error_event(error: ProxyError) -> bytes:
    """How a failure is told when a stream's status is already out: no [DONE] follows."""
    return b"data: " + error.body() + b"\n\n"
