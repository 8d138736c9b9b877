"""A whole answer of an upstream: its bytes, its choices and their confidences.

A reply that was not streamed keeps its body, and a buffered stream its events. `with_outcome`
returns exactly what arrived, except for our own member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from calibrator import NO_SIGNALS, Signals
from policies import Facts
from proxy.errors import UNREADABLE_EVENT, UpstreamBrokenError, UpstreamError
from proxy.exchange.outcome import Outcome
from proxy.exchange.request import CompletionRequest
from proxy.formats import MEMBER, Assembler, Choice, Format, Json, NoAnswerError
from proxy.formats.base.openai import error_alone, is_error, is_failed
from proxy.formats.events.called import add_notes, tool_calls
from proxy.formats.events.readings import AMBIGUOUS, DECISIVE, is_ambiguous
from proxy.formats.messages.messages_stream import answering_model
from proxy.http.wire.bounded_cache import LONGEST, remembers
from proxy.http.wire.encoding import can_decode, decode_body
from proxy.http.wire.headers import Headers, to_client, without
from proxy.http.wire.json_splice import (
    Pieces,
    TooManyValuesError,
    dumps,
    json_object,
    replace_member,
    with_member,
)
from proxy.http.wire.large_json import has_many, large_object, object_read_once
from proxy.http.wire.sse import (
    MAX_EVENTS,
    Event,
    EventReader,
    EventTooLargeError,
    data_of,
    hides_data,
)
from proxy.http.wire.upstream import UpstreamReply, too_large
from proxy.scoring.scoring import Confidence, Status, least_sure

READ_AT_ONCE = 2_000  # events read before other tasks may run
EVENT_STREAM = b"text/event-stream"
UPSTREAM_STATUS = "upstream_status"
UNDECIDED = {  # replies without a decision: upstream's errors, and answers that do not exist yet
    UPSTREAM_STATUS: Status.SKIPPED,
    "upstream_error": Status.SKIPPED,
    "background": Status.PENDING,
}


@dataclass(slots=True)
class Answer:
    """A completion with its confidences, one for each choice (empty until it is scored)."""

    status: int
    headers: Headers
    completion: Json
    choices: list[Choice]
    body: bytes = b""
    raw: bytes = b""  # the body as it arrived, which may be encoded
    events: list[Event] | None = None  # the events of a stream, whose `body` and `raw` are empty
    finishes: frozenset[int] = frozenset()  # positions of the events that finish a choice
    confidences: Sequence[Confidence] = ()
    alone: Sequence[Confidence] = ()  # the confidences before second opinions
    signals: Sequence[Signals] = ()  # one for each choice, where any are read
    unaided: Sequence[Confidence] = ()  # the confidences before signals counted
    continues: Assembler | None = None  # the stream whose beginning the client has
    is_restarted: bool = False  # the events are written again from the completion
    is_out: bool = False  # the client has the text; only the event that finishes it waits

    @property
    def model(self) -> str | None:
        """The name of the answering model as upstream reports it, or None."""
        if self.completion.get("type") == "message":  # Anthropic may use a fallback model
            return answering_model(self.completion)
        model = self.completion.get("model")
        return model if isinstance(model, str) else None

    @property
    def lowest(self) -> Confidence | None:
        """The confidence of the least sure choice, or None before scoring.

        A choice without a number counts as the least sure.
        """
        return least_sure(self.confidences) if self.confidences else None

    def is_surer_than(self, other: Answer) -> bool:
        """Return whether this answer's least sure choice has a higher confidence than the other's.

        The confidences of the texts alone are compared. An answer with a number is surer than one
        without.
        """
        mine, theirs = self._least_alone(), other._least_alone()
        return mine is not None and (theirs is None or mine > theirs)

    def _least_alone(self) -> float | None:
        """Return the lowest confidence of the texts alone, or None without a number."""
        confidences = self.alone or self.unaided or self.confidences
        return least_sure(confidences).value if confidences else None

    @property
    def has_tool_calls(self) -> bool:
        """Whether any choice calls a tool."""
        return any(tool_calls(choice.message) for choice in self.choices)

    def facts(self, request: CompletionRequest, calibrator: str | None) -> list[Facts]:
        """Return the facts that a policy may use, one set for each choice.

        `calibrator` is the name of the calibrator that gave the confidences.
        """
        n = request.format.count(request.payload)
        found = []
        for choice, confidence in zip(self.choices, self.confidences, strict=True):
            message, text = choice.message, choice.plain_text()
            stand_in, findings = confidence.stand_in, confidence.findings
            by = calibrator if stand_in is None else stand_in.calibrator
            facts = Facts(
                confidence.value,
                request.model,
                () if text is not None else add_notes(request.calls_in(choice), confidence.notes),
                request.is_stream,
                choice.finish_reason,
                n,
                request.domain,
                request.tags,
                request.caller.team,
                request.caller.key,
                choice.is_refusal or bool(message.get("refusal")),
                text_length(message.get("content")) if text is None else len(text),
                None,  # the share of recent replies below it, which is filled in elsewhere
                by,
                request.conversation,
                findings.support,
                findings.basis,
                findings.act,
                findings.needs_facts,
                findings.is_familiar,
            )
            if (evidence := confidence.evidence) is not None:
                facts.alone, facts.alone_score = evidence.before, evidence.score_before
                facts.opinions = evidence.opinions
                facts.alone_calibrator, facts.calibrator = by, evidence.calibrator
            if confidence.signals is not NO_SIGNALS and confidence.signals.kinds:
                _note_signals(facts, confidence)
            found.append(facts)
        return found

    def stored_body(self) -> bytes:
        """Return the whole completion as one JSON object, for review and release."""
        return self.body if self.events is None else dumps(self.completion)

    def with_outcome(self, format: Format, outcome: Outcome | None) -> bytes | Pieces:
        """Return the body for the client, with the outcome's `pinocchio` object added.

        It is added to the JSON object, or to the stream's events that finish a choice. Without an
        outcome the bytes are those that upstream sent. A large body is returned in pieces.
        """
        if self.events is None and outcome is not None:
            return with_member(self.body, MEMBER, dumps(outcome.member()))
        if self.events is None:
            return self.raw
        return self.annotated_events(format, None if outcome is None else outcome.member())

    def annotated_events(self, format: Format, member: Mapping[str, Any] | None) -> bytes:
        """Return the bytes of a stream's events, with a member in those that finish a choice."""
        events = self.events or ()
        parts = [event.raw for event in events]
        if member is not None:
            for position in self.finishes:
                parts[position] = format.annotate_event(events[position], member)
        return b"".join(parts)


def _note_signals(facts: Facts, confidence: Confidence) -> None:
    """Add to `facts`, in place, what a judge and log-probabilities said about a choice.

    The number without them is added where they moved it.
    """
    signals, aided = confidence.signals, confidence.aided
    if signals.judged is not None:
        facts.judged, facts.judge = signals.judged, signals.judge
    facts.logprobs = signals.logprobs or ()
    if aided is not None:
        facts.calibrator, facts.unaided = aided.calibrator, aided.before
        facts.unaided_calibrator = aided.calibrator_before
        facts.unaided_score = aided.score_before


def text_length(content: Any) -> int:
    """Count the characters of text in a message's content, a string or a list of parts."""
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return sum(len(text) for text in texts if isinstance(text, str))


def is_event_stream(reply: UpstreamReply) -> bool:
    """Return whether a reply is a stream of server-sent events."""
    return _is_event_stream(reply.values.get(b"content-type", b""))


@remembers(256)
def _is_event_stream(content_type: bytes) -> bool:
    """Return whether a `content-type` is that of server-sent events."""
    return content_type.lower().startswith(EVENT_STREAM)


def is_success(status: int) -> bool:
    """Return whether clients treat a reply of this status as an answer."""
    return 200 <= status < 300


def unscorable_reason(reply: UpstreamReply) -> str | None:
    """Return why a reply's head rules out a readable completion, or None if it may be one.

    The reason is a machine word: `upstream_status` for any status but 200, `encoding`, or
    `content_type`.
    """
    if reply.status != 200:
        return UPSTREAM_STATUS
    type, encoding = (
        reply.values.get(b"content-type", b""),
        reply.values.get(b"content-encoding", b"identity"),
    )
    is_short = len(type) + len(encoding) <= LONGEST
    return (_unreadable if is_short else _unreadable.__wrapped__)(type, encoding)


@lru_cache(maxsize=256)
def _unreadable(content_type: bytes, encoding: bytes) -> str | None:
    """Return `encoding` or `content_type` if a body of these types cannot be read, else None."""
    if not can_decode(encoding.decode("latin-1")):
        return "encoding"
    if _is_event_stream(content_type):
        return None if encoding in (b"identity", b"") else "encoding"
    return None if b"json" in content_type.lower() else "content_type"


@dataclass(slots=True)
class Unread:
    """A reply that turned out to be no completion, with its bytes as they arrived."""

    body: bytes
    reason: str
    completion: Json | None = None  # an object of the format, without an answer
    bare: bytes | None = None  # the decoded body, without the piece of an answer in it


async def read_answer(
    reply: UpstreamReply, format: Format, limit: int, *, is_decided_on: bool = False
) -> Answer | Unread:
    """Read a whole reply, JSON or a stream, as an Answer, or as an Unread with a reason.

    Where a policy decides on it (`is_decided_on`), a reply in which readers could find two answers
    is unread. Raises UpstreamError where the reply breaks off or exceeds `limit` bytes.
    """
    if is_event_stream(reply):
        events = await _whole_stream(reply, format, limit)
        return await read_events(reply, format, events, is_decided_on=is_decided_on)
    raw = reply.whole(limit)
    if raw is None:
        raw = await reply.read(limit)
    encoding = reply.header(b"content-encoding")
    try:
        body = await decode_body(raw, encoding, limit) if encoding else raw
    except UpstreamBrokenError:
        return Unread(raw, "encoding")  # the client may be able to read it
    is_repeated = False
    try:
        if is_decided_on:
            completion, is_repeated = await object_read_once(body, DECISIVE)
        elif has_many(body):
            completion = await large_object(body)
        else:
            completion = json_object(body, is_counted=True)
    except TooManyValuesError:
        return Unread(raw, "too_many_values")
    try:
        choices = format.choices(completion) if completion else []
    except NoAnswerError as error:
        bare = _without_part(body, completion or {}, error.part) if error.part else None
        return Unread(raw, error.reason, completion, bare)
    if completion is None or not choices or is_failed(completion):
        return _without_answer(raw, completion or {})
    if is_decided_on and (is_repeated or is_ambiguous(completion)):
        return Unread(raw, AMBIGUOUS)
    headers = reply.crossing  # cached where upstream sends the same fields each time
    if headers is None:
        headers = to_client(reply.headers)
    return Answer(reply.status, headers, completion, choices, body, raw)


def _without_answer(raw: bytes, completion: Json) -> Unread:
    """Return the unread reply for a JSON object that is no completion.

    Its reason is `upstream_error` for an error, which some servers send with status 200, else
    `not_a_completion`.
    """
    if not is_error(completion) and not is_failed(completion):
        return Unread(raw, "not_a_completion")
    alone = error_alone(completion)
    return Unread(raw, "upstream_error", bare=None if alone == completion else dumps(alone))


def _without_part(body: bytes, completion: Json, part: str) -> bytes:
    """Return the body with an empty list as its member `part`.

    A body that is nested too deeply for that is serialized again.
    """
    try:
        return replace_member(body, part, [])
    except ValueError:
        return dumps({**completion, part: []})


async def _whole_stream(reply: UpstreamReply, format: Format, limit: int) -> list[Event]:
    """Read all events of a stream; raises UpstreamError where it breaks off before its end."""
    reader = EventReader()
    events: list[Event] = []
    size = looked_at = 0
    try:
        async for part in reply.chunks:
            size += len(part)
            if size > limit:
                raise too_large(limit)
            events += reader.feed(part)
            if len(events) > looked_at + READ_AT_ONCE:  # buffered parts do not yield to the loop
                looked_at = len(events)
                await asyncio.sleep(0)
            if len(events) > MAX_EVENTS:
                raise EventTooLargeError(f"a stream has more than {MAX_EVENTS} events")
    except EventTooLargeError as error:
        raise UpstreamBrokenError(str(error)) from error
    except UpstreamError:
        assembler = format.assembler()
        if not any(assembler.add(event).is_end for event in events):
            raise
    if rest := reader.rest():  # some clients read an event without its blank line
        events.append(Event(rest, data_of(rest)))
    return events


async def read_events(
    reply: UpstreamReply, format: Format, events: list[Event], *, is_decided_on: bool
) -> Answer | Unread:
    """Read the answer in all events of a stream.

    Returns an Unread for an error event, an event that cannot be read, a stream without an answer
    and, if a policy decides on it, one that can be read in two ways. Raises UpstreamBrokenError
    where a choice has no end.
    """
    assembler = format.assembler()
    assembler.reading.is_strict = is_decided_on
    finishes, is_unread, is_ambiguous = set(), False, False
    for position, event in enumerate(events):
        if position % READ_AT_ONCE == READ_AT_ONCE - 1:
            await asyncio.sleep(0)  # let other tasks run
        meaning = assembler.add(event)
        is_unread = is_unread or meaning.is_unread or hides_data(event)
        is_ambiguous = is_ambiguous or (is_decided_on and assembler.reading.is_ambiguous(event))
        if meaning.is_error:
            # no policy has decided on the text before the error
            return Unread(event.raw, "upstream_error", bare=meaning.bare)
        if meaning.finished:
            finishes.add(position)
    choices = assembler.choices()
    if not choices:
        return Unread(b"".join(event.raw for event in events), "not_a_completion")
    if any(choice.finish_reason is None for choice in choices):
        raise UpstreamBrokenError("upstream's stream ended before its finish chunk")
    if is_unread:
        return Unread(b"".join(event.raw for event in events), UNREADABLE_EVENT)
    if is_ambiguous:
        return Unread(b"".join(event.raw for event in events), AMBIGUOUS)
    headers = without(to_client(reply.headers), b"content-length")
    return Answer(
        reply.status,
        headers,
        assembler.completion(),
        choices,
        events=events,
        finishes=frozenset(finishes),
    )


def client_reply(
    answer: Answer,
    request: CompletionRequest,
    completion: Json | None,
    outcome: Outcome | None,
) -> tuple[Headers, bytes | Pieces]:
    """Return the header fields and the body for the client.

    They are those of the answer, or of the `completion` that replaces it. The outcome is added to
    the body as its `pinocchio` object unless it is None.
    """
    headers = answer.headers
    is_encoded = answer.body is not answer.raw
    if is_encoded and (completion is not None or outcome is not None):
        headers = without(headers, b"content-encoding")
    if completion is None and not answer.is_restarted:
        return headers, answer.with_outcome(request.format, outcome)
    whole = answer.completion if completion is None else completion
    members = {} if outcome is None else {MEMBER: outcome.member()}
    return headers, serialize_as(answer, whole | members, request)


def serialize_as(answer: Answer, completion: Json, request: CompletionRequest) -> bytes:
    """Serialize a completion in the form in which the answer arrived: one JSON object, or a stream.

    If the client has the beginning of a stream already, the bytes continue it.
    """
    if answer.continues is not None:  # a stream that has begun must continue as one
        return b"".join(answer.continues.continue_stream(completion, request.payload))
    if answer.events is None:
        return dumps(completion)
    return b"".join(request.format.events(completion, request.payload))
