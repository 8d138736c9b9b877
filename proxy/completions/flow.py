"""A completion from top to bottom: parse, call upstream, score, decide, apply, record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

from proxy.completions.apply import apply, deliver, is_delivered
from proxy.completions.call_upstream import (
    Live,
    SlowReply,
    call_upstream,
    finished_answer,
    opening_of,
    withheld_answer,
)
from proxy.completions.escalate import escalate, is_escalated
from proxy.completions.further_calls.judging import CompletionJudge
from proxy.completions.further_calls.opinions import Opinions
from proxy.completions.job import Job
from proxy.completions.recording import CompletionRecorder, OpenRecording
from proxy.completions.sending.heartbeats import is_done, late, pings_until
from proxy.completions.sending.live_stream import FinishEvent
from proxy.completions.services import Services
from proxy.errors import ProxyError
from proxy.exchange.answer import Answer
from proxy.exchange.exchange import Exchange
from proxy.exchange.request import read_at_once, read_completion_request
from proxy.formats import RESPONSES, Format
from proxy.gate.key_hash import hash_key
from proxy.holds.held import resume_request
from proxy.http.wire.encoding import decode_body
from proxy.http.wire.headers import header, to_client, without
from proxy.http.wire.http import BodyWriter, Reply, Request
from proxy.scoring.scoring import Status

Parse = Callable[[Services, Exchange], Awaitable[Job]]


async def complete(services: Services, http: Request, parse: Parse) -> Reply:
    """Handle a completion and return its reply; that of a live stream has a body that goes on.

    A whole reply is one answer. A live stream has one for each event that finishes choices, and one
    for the tool calls that wait for a decision. Raises ProxyError where the client gets an error.
    """
    exchange = Exchange(http, services.records)
    with CompletionRecorder(exchange) as recording:  # record
        job = recording.begin(await parse(services.with_requested_policy(http), exchange))
        received = await call_upstream(job)
        if isinstance(received, Answer):
            return _whole(await conclude(job, received))
        if isinstance(received, Live):
            return _live_reply(recording, job, received)
        if isinstance(received, SlowReply):
            return await _reply_in_time(recording, job, received)
        return received  # there is nothing to decide on


async def conclude(job: Job, answer: Answer) -> Reply | bytes:
    """Score an answer, decide on it, escalate if needed, and carry the decision out.

    Returns the client's reply, or the next bytes of its stream. Raises ProxyError.
    """
    await job.score(answer)
    outcome = job.decide(answer)
    if is_escalated(job, outcome):
        answer, outcome = await escalate(job, answer, outcome)
    if answer.is_out or is_delivered(outcome):
        return deliver(job, answer, outcome)
    return await apply(job, answer, outcome)


def handle(format: Format, services: Services, http: Request) -> Awaitable[Reply]:
    """Answer a request for a completion; raises ProxyError where the client gets an error."""
    return complete(services, http, partial(parse_request, format))


async def parse_request(format: Format, services: Services, exchange: Exchange) -> Job:
    """Parse a request for a completion, and return its job with what is known about it.

    An earlier held reply to the same request is looked up, and calls for second opinions may begin.
    Raises ProxyError for a request that cannot be read, or that names something of another key's.
    """
    http, holding = exchange.request, services.holding
    decisive = services.governing.decisive
    request = read_at_once(http, format, decisive=decisive)
    if request is None:
        max_body = services.max_body
        request = await read_completion_request(http, format, max_body, decisive=decisive)
    request.domain = services.domains.fact(request.model, http.caller.team, request.domain)
    if services.ownership.is_active:
        await services.ownership.check_body(http)
    digest = None
    if holding.may_bind:
        digest = await request.apart(holding.request_digest, request, http)
    if digest and (earlier := await holding.earlier(format, digest, http)):
        return Job(services, exchange, request, earlier=earlier)
    if format is RESPONSES:
        request = await resume_request(
            services.conversations, services.store, request, hash_key(http)
        )
    exchange.conversation = request.conversation = services.conversations.of(request)
    job = Job(services, exchange, request, digest)
    if (second_opinion := services.governing.second_opinion) is not None:
        job.opinions = Opinions(second_opinion, job.further_calls(), services.scoring)
    if (judge := services.governing.judge) is not None:
        job.judging = CompletionJudge(judge, job.further_calls())
    return job


# --- Whole replies --------------------------------------------------------------------------------


def _whole(reply: Reply | bytes) -> Reply:
    assert isinstance(reply, Reply)  # bytes only occur in live streams
    return reply


async def _reply_in_time(recording: CompletionRecorder, job: Job, waiting: SlowReply) -> Reply:
    """Return the reply if it is there within `commit_after_s` seconds, else one with a later body.

    In that case the status is sent, and pings keep the connection alive until the body is there.
    """
    work = asyncio.ensure_future(_reply_at_last(recording, job, waiting))
    if await is_done(work, within_s=job.services.config.limits.commit_after_s):
        return work.result()
    return _late_reply(job, waiting, work)


async def _reply_at_last(recording: CompletionRecorder, job: Job, waiting: SlowReply) -> Reply:
    """Wait for the whole answer, decide on it, and return the client's reply.

    The completion is recorded at the end, also after an error.
    """
    with recording:
        received = await waiting.read()
        return received if isinstance(received, Reply) else _whole(await conclude(job, received))


def _late_reply(job: Job, waiting: SlowReply, work: asyncio.Future[Reply]) -> Reply:
    """Return a reply whose status goes out now, and whose body follows when `work` is done.

    Until then, heartbeats keep the connection alive. The headers have no confidence yet.
    """
    head = waiting.head
    job.is_status_out, job.exchange.status = True, head.status
    opening = job.exchange.unscored_outcome(Status.PENDING, "buffered", job.services.scoring.name)
    headers = without(to_client(head.headers), b"content-length", b"content-encoding")
    body = asyncio.ensure_future(_late_body(work))

    async def stop() -> None:
        body.cancel()

    error_event = job.request.format.error_event if job.request.is_stream else None
    return Reply(head.status, [*headers, *job.headers(opening)], late(body, error_event), stop)


async def _late_body(work: asyncio.Future[Reply]) -> bytes:
    """Wait for the reply and return its body, decompressed, since its headers have been sent."""
    reply = await work
    return await decode_body(reply.whole(), header(reply.headers, b"content-encoding"))


# --- Live streams ---------------------------------------------------------------------------------


def _live_reply(recording: CompletionRecorder, job: Job, live: Live) -> Reply:
    """Return the reply of a stream that is passed on while it arrives.

    It is recorded when its body ends, or when the reply is closed without one.
    """
    opening = opening_of(job, live)
    open_recording = recording.keep_open()  # so that it is recorded however it ends

    async def close() -> None:
        with open_recording:  # ends the block if the body was never written
            await live.reply.aclose()

    opening.body, opening.on_close = partial(_write_live, job, live, open_recording), close
    return opening


async def _write_live(
    job: Job, live: Live, open_recording: OpenRecording, writer: BodyWriter
) -> None:
    """Write a live stream to the client: unchanged parts, decided ones, and pings meanwhile.

    Parts that end a choice are scored first. Tool calls may be withheld until they are decided on;
    an error after that is written as the format's event, an earlier one is raised as ProxyError.
    """
    if live.short_way is not None:
        live.short_way.open(writer)
    try:
        with open_recording:
            async with aclosing(live.pieces) as pieces:
                async for piece in pieces:
                    if isinstance(piece, bytes):
                        await writer.write(piece)
                    elif isinstance(piece, FinishEvent):
                        answer = finished_answer(job, live, piece)
                        await writer.write(await _next_part(job, answer))
                    else:
                        async for each in pings_until(
                            asyncio.ensure_future(_release_events(job, live))
                        ):
                            await writer.write(each)
            if live.stream.withholds() and not job.is_withheld:
                await writer.write(await _next_part(job, withheld_answer(job, live)))
    except ProxyError as error:
        if not job.is_withheld:
            raise
        await writer.write(job.request.format.error_event(error))


async def _next_part(job: Job, answer: Answer) -> bytes:
    """Score and decide on an answer of a live stream, and return its next bytes."""
    reply = await conclude(job, answer)
    assert isinstance(reply, bytes)
    return reply


async def _release_events(job: Job, live: Live) -> bytes:
    """Return the bytes in place of events that waited: decided ones, or upstream's error."""
    piece = await anext(live.pieces, b"")
    assert isinstance(piece, bytes)
    if piece or not live.stream.withholds():
        return piece
    return await _next_part(job, withheld_answer(job, live))
