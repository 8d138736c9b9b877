"""The call to upstream and its result: a reply to pass on, an answer, or a live stream.

A request goes to one model, or to several at once. If a reply to the same request was held before,
it is used again and no model is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from policies import surest
from proxy.completions.further_calls.calls import Calls
from proxy.completions.further_calls.fallbacks import send_or_fall_back
from proxy.completions.job import Job
from proxy.completions.sending.heartbeats import is_done
from proxy.completions.sending.live_stream import FinishEvent, LiveStream, ShortWay, WithholdMarker
from proxy.errors import ProxyError, UnreadableReplyError, UpstreamBrokenError
from proxy.exchange.answer import (
    UNDECIDED,
    UPSTREAM_STATUS,
    Answer,
    Unread,
    is_event_stream,
    is_success,
    unscorable_reason,
)
from proxy.exchange.call import Call
from proxy.exchange.exchange import SharedClock
from proxy.gate.key_hash import hash_key
from proxy.holds.held import answer_from
from proxy.holds.ownership import is_stored
from proxy.http.wire.headers import Headers, to_client, to_upstream, without
from proxy.http.wire.http import Reply
from proxy.http.wire.upstream import ReplyPieces, UpstreamReply, UpstreamRequest
from proxy.scoring.scoring import Status
from proxy.upstreams.router import Way


@dataclass(slots=True)
class SlowReply:
    """A reply that may take long: its head, and a function that reads the rest."""

    head: UpstreamReply | Answer
    read: Callable[[], Awaitable[Answer | Reply]]


@dataclass(slots=True)
class Live:
    """A stream that goes on while it arrives.

    Some of its pieces are answers to decide on: the choices that a `FinishEvent` finishes and, from
    a `WithholdMarker` on, everything that follows, once it is complete.
    """

    reply: UpstreamReply
    stream: LiveStream
    pieces: AsyncGenerator[bytes | FinishEvent | WithholdMarker]
    short_way: ShortWay | None


async def call_upstream(job: Job) -> Reply | Answer | SlowReply | Live:
    """Call upstream, or several models, and return the result.

    A `Reply` is passed on without a decision; an `Answer` is whole; a `SlowReply` has begun and is
    read later; a `Live` stream goes on while it arrives. Raises ProxyError where there is no reply.
    """
    if job.earlier is not None:
        return _resume_held(job)
    if len(models := job.models()) > 1:
        return await _ask_several(job, models)
    way = _way(job)
    upstream_request = _prepare_request(job)
    if way.fallback is not None:
        reply = await send_or_fall_back(job.further_calls(), way.fallback, upstream_request)
    else:
        clock = job.exchange.in_upstream  # called directly, because `with` is slower
        clock.start()
        try:
            reply = await way.upstream.send(upstream_request)
        finally:
            clock.stop()
    if reason := unscorable_reason(reply):
        return await _pass_on(job, reply, reason)
    if _goes_live(job, reply):
        return _read_live(job, reply)
    if job.services.may_take_long or not reply.is_whole():
        return SlowReply(reply, partial(_read_whole, job, reply))
    return await _read_whole(job, reply)


def _way(job: Job) -> Way:
    """Return upstream and fallback for the request's model, and note the upstream's name.

    For a stored response, it is the upstream that has it, without a fallback.
    """
    router, name = job.services.router, job.fetched_from
    way = router.way_to(job.request.model) if name is None else Way(name, router.upstream(name))
    job.exchange.upstream = way.name
    return way


def _prepare_request(job: Job) -> UpstreamRequest:
    """Return the request to upstream, with the client's own bytes.

    The question is read now, before upstream works: later, other requests have displaced this one's
    memory from the processor's caches.
    """
    exchange, request = job.exchange, job.request
    exchange.model, exchange.is_stream = request.model, request.is_stream
    headers = to_upstream(exchange.request.headers)
    if request.is_stream and job.stream_mode().mode != "passthrough":
        headers = without(headers, b"accept-encoding")  # the stream must be readable undecoded
    if job.services.scoring.name is not None:
        request.read_ahead()
    return job.upstream_request(headers)


# --- Replies that are no answers ------------------------------------------------------------------


async def _pass_on(job: Job, reply: UpstreamReply, reason: str) -> Reply | Answer:
    """Return a reply that is no completion, mostly an error of upstream, unchanged and unread.

    If a policy must decide, an error's body is read, because it may hold an answer. Raises
    UnreadableReplyError where a policy must decide on something else.
    """
    if reason == UPSTREAM_STATUS and job.stream_mode().mode != "passthrough":
        return await _read_whole(job, reply, None if is_success(reply.status) else reason)
    try:
        headers = _unscored_headers(job, reply, reason)
    except ProxyError:
        await reply.aclose()
        raise
    return Reply(reply.status, headers, reply.chunks, on_close=reply.aclose)


def _unscored_headers(job: Job, reply: UpstreamReply, reason: str) -> Headers:
    """Finish the exchange without a confidence and return the reply's headers.

    Raises UnreadableReplyError where a policy must decide on the reply.
    """
    if reason not in UNDECIDED and job.stream_mode().mode != "passthrough":
        raise UnreadableReplyError(reason)
    exchange, status = job.exchange, UNDECIDED.get(reason, Status.NOT_SUPPORTED)
    outcome = exchange.finish(exchange.unscored_outcome(status, reason), reply.status)
    return [*to_client(reply.headers), *job.headers(outcome)]


# --- Whole answers --------------------------------------------------------------------------------


async def _read_whole(
    job: Job, reply: UpstreamReply, otherwise: str | None = None
) -> Answer | Reply:
    """Read the whole reply, and return it as an answer, or as a reply without a score.

    `otherwise` is the reason to report if it is not an answer. Raises UpstreamError where it breaks
    off or is too large.
    """
    answer = await job.read(reply)
    if isinstance(answer, Unread):
        answer.reason = otherwise or answer.reason
        return _pass_on_unread(job, reply, answer)
    job.keep_for_followups(answer.completion)
    return answer


def _pass_on_unread(job: Job, reply: UpstreamReply, unread: Unread) -> Reply:
    """Return a reply that cannot be scored to the client, with the reason in its headers.

    It goes out decompressed if policies decide on whole replies.
    """
    if unread.completion is not None:
        job.keep_for_followups(unread.completion)
    headers = _unscored_headers(job, reply, unread.reason)
    if unread.bare is None or job.stream_mode().mode == "passthrough":
        return Reply(reply.status, headers, unread.body)
    return Reply(reply.status, without(headers, b"content-encoding"), unread.bare)


def _resume_held(job: Job) -> SlowReply:
    """Return the reply that was held for the same request before, without another call.

    Counts the request as a poll for it.
    """
    assert job.earlier is not None
    held = job.earlier.held
    job.exchange.note_poll(job.request, job.services.holding.polls.count(held.id))
    answer = answer_from(held, job.request)

    async def read() -> Answer:
        return answer

    return SlowReply(answer, read)


class SeveralCalls:
    """Concurrent calls, one for each entry of `models`.

    `head` is the first reply that may become an answer of the requested kind.
    """

    def __init__(self, calls: Calls, models: Sequence[str]) -> None:
        self.calls = calls
        self.head: asyncio.Future[UpstreamReply] = asyncio.get_running_loop().create_future()
        self._models = models

    async def make_all(self) -> list[Call]:
        """Make all calls and return them in order, including those that failed.

        The first model's reply stays open if it is no answer, so that it can be passed on.
        """
        self.calls.exchange.in_upstream = SharedClock()
        first = self.calls.add_call(self._models[0])
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.calls.put(first, on_head=self._note))
                others = [
                    group.create_task(self.calls.ask(model, on_head=self._note))
                    for model in self._models[1:]
                ]
        except BaseException:
            await first.aclose()
            raise
        return [first, *(task.result() for task in others)]

    def surest(self, calls: Sequence[Call]) -> Call | None:
        """Return the call with the highest confidence, the first of equals; None if none is usable.

        A reply of the other kind than requested, a stream or one object, is usable only if none of
        the right kind has begun, because the client may be receiving that one already.
        """
        is_stream = self.calls.request.is_stream
        answered = [call for call in calls if call.answer is not None]
        alike = [call for call in answered if (call.whole.events is not None) == is_stream]
        usable = alike if self.head.done() else answered
        return usable[surest([call.confidence for call in usable])] if usable else None

    def _note(self, reply: UpstreamReply) -> None:
        """Set `head` to the first reply that is a stream where one is requested, or else JSON."""
        if is_event_stream(reply) == self.calls.request.is_stream and not self.head.done():
            self.head.set_result(reply)


async def _ask_several(job: Job, models: Sequence[str]) -> Reply | Answer | SlowReply:
    """Call all models at once and return the reply with the highest confidence.

    Returns a `SlowReply` if the first suitable reply begins before that.
    """
    exchange, request = job.exchange, job.request
    exchange.model, exchange.is_stream = request.model, request.is_stream
    calls = SeveralCalls(job.further_calls(), models)
    work = asyncio.create_task(_surest(job, calls))
    if await is_done(work, calls.head):
        return work.result()

    async def read() -> Answer | Reply:
        return await work

    return SlowReply(calls.head.result(), read)


async def _surest(job: Job, calls: SeveralCalls) -> Answer | Reply:
    """Wait for all models, and return the answer with the highest confidence as the kept one.

    Returns the first model's reply, or raises its error, if no model answered.
    """
    first, *others = await calls.make_all()
    surest = calls.surest([first, *others])
    if surest is None:
        return await _first_failure(job, first)
    await first.aclose()
    calls.calls.keep(surest)
    job.keep_for_followups(surest.whole.completion)
    return surest.whole


async def _first_failure(job: Job, call: Call) -> Answer | Reply:
    """Return the first model's reply unchanged, for the case that no model answered.

    Raises its error if there is none.
    """
    job.exchange.upstream = call.upstream
    if call.raised is not None:
        raise call.raised
    if call.reply is None or job.is_status_out:
        await call.aclose()
        raise UpstreamBrokenError("no model gave a whole reply")
    if call.unread is not None:
        return _pass_on_unread(job, call.reply, call.unread)
    return await _pass_on(job, call.reply, unscorable_reason(call.reply) or "")


# --- Streams that go on while they arrive ---------------------------------------------------------


def _goes_live(job: Job, reply: UpstreamReply) -> bool:
    """Return whether a reply is passed on while it arrives; notes the stream mode.

    False for anything but an event stream, and if the policies must see the whole reply first.
    """
    if not job.request.is_stream or not is_event_stream(reply):
        return False
    mode = job.exchange.stream_mode = job.stream_mode().mode
    return mode != "buffer"


def _read_live(job: Job, reply: UpstreamReply) -> Live:
    """Begin to read a reply as a live stream, noted in `job.stream`, and return it."""
    services, exchange = job.services, job.exchange
    gates_calls = exchange.stream_mode == "buffer_tools"
    max_bytes = services.max_body
    job.stream = stream = LiveStream(
        job.request.format, max_bytes=max_bytes, gates_calls=gates_calls
    )
    exchange.status = reply.status
    chunks = services.ownership.note_owner(reply.chunks, job.request, job.http)
    short_way = None
    if isinstance(chunks, ReplyPieces) and not gates_calls:
        short_way = ShortWay(stream, chunks, exchange.in_upstream)
    pieces = live_pieces(stream, chunks, exchange.in_upstream)
    return Live(reply, stream, pieces, short_way)


async def live_pieces(
    stream: LiveStream, chunks: AsyncIterator[bytes], in_upstream: AbstractContextManager[None]
) -> AsyncGenerator[bytes | FinishEvent | WithholdMarker]:
    """Yield the pieces of a stream from upstream's chunks; `in_upstream` measures the waiting.

    A failure becomes an event. It is raised only if the stream is no longer parsed, because it may
    then be in the middle of an event.
    """
    failure: ProxyError | None = None
    try:
        while True:
            with in_upstream:
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            for piece in stream.feed(chunk):
                yield piece
    except ProxyError as error:
        if stream.is_opaque:
            raise
        failure = error.with_traceback(None)  # its frames would keep the error alive
    if last := stream.end(failure):
        yield last


def opening_of(job: Job, live: Live) -> Reply:
    """Return the reply of a live stream without its body, with the status `pending` in its headers.

    From now on its result can be fetched.
    """
    exchange, calibrator = job.exchange, job.services.scoring.name
    opening = exchange.unscored_outcome(Status.PENDING, "stream", calibrator)
    opening.overhead_ms = exchange.overhead_ms()
    job.services.results.expect(exchange.request_id, hash_key(job.http), opening.member)
    headers = to_client(live.reply.headers)
    if live.reply.is_whole():  # the proxied stream has another length
        headers = without(headers, b"content-length")
    return Reply(live.reply.status, [*headers, *job.headers(opening)])


def finished_answer(job: Job, live: Live, finished: FinishEvent) -> Answer:
    """Return an answer with the choices that this event of a live stream finishes.

    The client has their text already; only the event itself still waits for the decision.
    """
    assembler = live.stream.assembler
    if is_stored(job.request):
        job.keep_for_followups(assembler.completion())
        job.note_owner(assembler.completion())
    choices = assembler.choices(finished.choices)
    if assembler.has_unread:
        for choice in choices:
            choice.is_part_unread = True
    return Answer(
        live.reply.status,
        [],
        {"model": assembler.model},
        choices,
        events=[finished.event],
        finishes=frozenset({0}),
        is_out=True,
    )


def withheld_answer(job: Job, live: Live) -> Answer:
    """Return the whole answer of a stream whose tool calls wait for a decision.

    The client has its beginning already.
    """
    job.is_withheld = True
    assembler, (events, finishes) = live.stream.assembler, live.stream.waiting_events()
    whole = assembler.completion()
    job.keep_for_followups(whole)
    return Answer(
        live.reply.status,
        [],
        whole,
        assembler.choices(),
        events=events,
        finishes=finishes,
        continues=assembler,
    )
