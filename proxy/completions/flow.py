"""One completion, top to bottom: parse, call upstream, score, decide, apply, record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from functools import partial

from proxy.completions.apply import apply
from proxy.completions.call_upstream import Opening, Waiting, call_upstream
from proxy.completions.escalate import escalate
from proxy.completions.further_calls.judging import Judging
from proxy.completions.further_calls.opinions import Opinions
from proxy.completions.heartbeats import is_done, late, pings_until
from proxy.completions.job import Job
from proxy.completions.recording import Recording
from proxy.completions.services import Services
from proxy.errors import ProxyError
from proxy.exchange.answer import Answer
from proxy.exchange.exchange import Exchange
from proxy.exchange.request import read_completion_request
from proxy.formats import RESPONSES, Format
from proxy.gate.key_hash import hash_key
from proxy.holds.held import resumed
from proxy.scoring.scoring import Status
from proxy.wire.encoding import decoded
from proxy.wire.headers import header, to_client, without
from proxy.wire.http import Reply, Request

Parse = Callable[[Services, Exchange], Awaitable[Job]]
NOBODY_ASKED = nullcontext()
Piece = Waiting | Opening | Reply | bytes
Pieces = AsyncGenerator[Piece]


async def complete(services: Services, http: Request, parse: Parse) -> Pieces:
    """Handle one completion; yields its reply, or the head of a live stream and then its bytes.

    A whole reply is one answer. A live stream has one for every event that finishes choices, and
    one for the tool calls that may not go on before they are decided on. Raises ProxyError for what
    the client is told as an error.
    """
    exchange = Exchange(http, services.records)
    with Recording(exchange) as recording:  # record
        job = recording.job = await parse(services.with_requested_policy(http), exchange)
        with job.opinions or NOBODY_ASKED:  # of others, who are asked meanwhile or after the score
            async with aclosing(call_upstream(job)) as pieces:
                async for piece in pieces:
                    if not isinstance(piece, Answer):
                        yield piece  # nothing to decide on
                        continue
                    await job.score(piece)
                    outcome = job.decide(piece)
                    answer, outcome = await escalate(job, piece, outcome)
                    yield await apply(job, answer, outcome)


async def handle(format: Format, services: Services, http: Request) -> Reply:
    """Answer a request for a completion; raises ProxyError for what the client is told."""
    return await deliver(complete(services, http, partial(parse_request, format)))


async def parse_request(format: Format, services: Services, exchange: Exchange) -> Job:
    """Read a request for a completion, and find what is known of it already.

    Raises ProxyError for a request that cannot be read, or names what is not its key's.
    """
    http, holding = exchange.request, services.holding
    max_body, decisive = services.config.limits.max_body, services.governing.decisive
    request = await read_completion_request(http, format, max_body, decisive=decisive)
    request.domain = services.domains.fact(request.model, http.caller.team, request.domain)
    await services.ownership.check_body(http)
    digest = await request.apart(holding.request_digest, request, http)
    if digest and (earlier := await holding.earlier(format, digest, http)):
        return Job(services, exchange, request, earlier=earlier)
    if format is RESPONSES:
        request = await resumed(services.conversations, services.store, request, hash_key(http))
    exchange.conversation = request.conversation = services.conversations.of(request)
    job = Job(services, exchange, request, digest)
    if (wanted := services.governing.second_opinion) is not None:
        job.opinions = Opinions(wanted, job.further_calls(), services.scoring)
    if (judge := services.governing.judge) is not None:
        job.judging = Judging(judge, job.further_calls())
    return job


# --- from pieces to a reply -----------------------------------------------------------------------


async def deliver(pieces: Pieces) -> Reply:
    """Return the reply whose pieces these are.

    Nothing is written before the outcome, for `commit_after_s` at most; after that the status is
    out, and pings keep the connection alive until there is one.
    """
    piece = await anext(pieces)
    if isinstance(piece, Waiting):
        waiting, work = piece, asyncio.ensure_future(anext(pieces))
        if not await is_done(work, within_s=waiting.job.services.config.limits.commit_after_s):
            return _late_reply(waiting, work, pieces)
        piece = work.result()
    if isinstance(piece, Opening):
        piece.reply.body = _live_body(piece.job, pieces)
        return piece.reply
    assert isinstance(piece, Reply)
    await _finish(pieces)
    return piece


async def _finish(pieces: Pieces) -> None:
    """Let the flow go on to its end, after its reply."""
    rest = await anext(pieces, None)
    assert rest is None


def _late_reply(waiting: Waiting, work: asyncio.Future[Piece], pieces: Pieces) -> Reply:
    job, head = waiting.job, waiting.head
    job.is_status_out, job.exchange.status = True, head.status
    opening = job.exchange.unscored(Status.PENDING, "buffered", job.services.scoring.name)
    kept = without(to_client(head.headers), b"content-length", b"content-encoding")
    body = asyncio.ensure_future(_late_body(work, pieces))

    async def stop() -> None:
        body.cancel()

    error_event = job.request.format.error_event if job.request.is_stream else None
    return Reply(head.status, [*kept, *job.headers(opening)], late(body, error_event), stop)


async def _late_body(work: asyncio.Future[Piece], pieces: Pieces) -> bytes:
    """Return the body of a reply whose headers are out, without an encoding."""
    reply = await work
    assert isinstance(reply, Reply)
    await _finish(pieces)
    return await decoded(reply.whole(), header(reply.headers, b"content-encoding"))


async def _live_body(job: Job, pieces: Pieces) -> AsyncIterator[bytes]:
    """Yields the bytes of a live stream, and pings while calls in it wait for their decision."""
    try:
        async for piece in pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            async for each in pings_until(asyncio.ensure_future(_next_bytes(pieces))):
                yield each
    except ProxyError as error:
        if not job.is_withheld:
            raise
        yield job.request.format.error_event(error)
    finally:
        await pieces.aclose()


async def _next_bytes(pieces: Pieces) -> bytes:
    piece = await anext(pieces, b"")
    assert isinstance(piece, bytes)
    return piece
