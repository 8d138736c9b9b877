"""The way of a chat completion: parse, call upstream, score, decide, apply, record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import structlog

from policies import (
    Block,
    Clarify,
    Decision,
    Escalate,
    Hold,
    Policy,
    after_escalation,
    decide,
    stream_mode,
    strictest,
)
from proxy.actions import (
    blocked_error,
    clarification,
    held_error,
    unreadable_error,
    wants_error,
)
from proxy.answer import (
    Answer,
    Unread,
    is_event_stream,
    read_answer,
    rewritten,
    unscorable_reason,
)
from proxy.asgi import Reply, Request
from proxy.chat_request import ChatRequest, parse_chat_request
from proxy.completion import MEMBER, Choice
from proxy.config import Config
from proxy.errors import ProxyError, StoreError
from proxy.exchange import Exchange, hash_key
from proxy.headers import to_client, to_upstream, without
from proxy.heartbeats import pings_until
from proxy.held import held_reply, new_held_id, placeholder_for
from proxy.live_stream import LiveStream
from proxy.outcome import Outcome, joined, summarise
from proxy.results import Results
from proxy.routing import Router
from proxy.scoring import Confidence, Scoring, Status
from proxy.store import Store
from proxy.upstream import Headers, UpstreamReply, UpstreamRequest

log = structlog.get_logger(__name__)

PATH = "/chat/completions"
UPSTREAMS_OWN = ("upstream_status", "upstream_error")  # errors, which no policy decides on


@dataclass(slots=True)
class ChatCompletions:
    """Handles `POST /v1/chat/completions` with the parts that one proxy consists of."""

    config: Config
    policy: Policy
    router: Router
    scoring: Scoring
    store: Store
    results: Results
    recordings: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def handle(self, request: Request) -> Reply:
        """One request, top to bottom; raises ProxyError for what the client is told as an error."""
        exchange = Exchange(request)
        with exchange.logged():
            chat = parse_chat_request(request)
            reply = await self._ask(exchange, chat, chat.model)
            if reason := unscorable_reason(reply):
                return await self._relayed(exchange, chat, reply, reason)
            if is_event_stream(reply) and chat.is_stream and self._only_delivers(chat):
                return self._live(exchange, chat, reply)
            if is_event_stream(reply):
                return await self._settled_in_time(exchange, chat, reply)
            return await self._settled(exchange, chat, reply)

    def _only_delivers(self, chat: ChatRequest) -> bool:
        """Whether the policy, going by the request, can do nothing but deliver."""
        mode = stream_mode(self.policy, model=chat.model, domain=chat.domain, tags=chat.tags).mode
        return mode == "passthrough"

    async def _ask(self, exchange: Exchange, chat: ChatRequest, model: str) -> UpstreamReply:
        """Sends the client's bytes to the upstream of `model`."""
        name = self.router.name_for(model)
        exchange.upstream, exchange.model, exchange.is_stream = name, model, chat.is_stream
        headers = to_upstream(exchange.request.headers)
        if chat.is_stream and not self._only_delivers(chat):
            headers = without(headers, "accept-encoding")  # it is read whole, and undecoded
        query = exchange.request.query
        sent = UpstreamRequest("POST", PATH, headers, chat.body_for(model), query)
        with exchange.in_upstream():
            return await self.router.upstream(name).send(sent)

    async def _relayed(
        self, exchange: Exchange, chat: ChatRequest, reply: UpstreamReply, reason: str
    ) -> Reply:
        """What is no completion, an error of upstream's above all, goes on as it came."""
        try:
            headers = self._unscored(exchange, chat, reply, reason)
        except ProxyError:
            await reply.aclose()
            raise
        return Reply(reply.status, headers, reply.chunks, on_close=reply.aclose)

    def _unscored(
        self, exchange: Exchange, chat: ChatRequest, reply: UpstreamReply, reason: str
    ) -> Headers:
        """The headers of a reply without a number; raises where the policy had to decide on it."""
        if reason not in UPSTREAMS_OWN and not self._only_delivers(chat):
            raise unreadable_error(reason)
        status = Status.SKIPPED if reason == "upstream_status" else Status.NOT_SUPPORTED
        outcome = exchange.finish(exchange.unscored(status, reason), reply.status)
        return [*to_client(reply.headers), *self._headers(outcome)]

    # --- whole answers: bodies, and streams that wait for their score ---------------------------

    async def _settled(self, exchange: Exchange, chat: ChatRequest, reply: UpstreamReply) -> Reply:
        """Reads the whole answer, scores it, decides and applies."""
        answer = await self._read(exchange, reply)
        if isinstance(answer, Unread):
            headers = self._unscored(exchange, chat, reply, answer.reason)
            return Reply(reply.status, headers, answer.body)
        outcome = await self._judge(exchange, chat, answer)
        if outcome.decision is not None and isinstance(outcome.decision.applied, Escalate):
            answer, outcome = await self._escalate(
                exchange, chat, answer, outcome, outcome.decision.applied
            )
        return await self._apply(exchange, chat, answer, outcome)

    async def _read(self, exchange: Exchange, reply: UpstreamReply) -> Answer | Unread:
        try:
            with exchange.in_upstream():
                return await read_answer(reply, self.config.limits.max_body)
        finally:
            await reply.aclose()

    async def _judge(self, exchange: Exchange, chat: ChatRequest, answer: Answer) -> Outcome:
        """Scores every choice and decides; the strictest decision speaks for all choices."""
        answer.confidences = await self._confidences(exchange, chat, answer.choices, answer.model)
        decisions = [decide(self.policy, facts) for facts in answer.facts(chat)]
        return self._outcome(exchange, answer.choices, answer.confidences, decisions)

    async def _confidences(
        self, exchange: Exchange, chat: ChatRequest, choices: list[Choice], model: str | None
    ) -> list[Confidence]:
        with exchange.in_scoring():
            return await self.scoring.score(chat.question, choices, model or chat.model)

    def _outcome(
        self,
        exchange: Exchange,
        choices: list[Choice],
        confidences: list[Confidence],
        decisions: list[Decision],
    ) -> Outcome:
        outcome = summarise(exchange.request_id, choices, confidences, decisions, self.scoring.name)
        outcome.decision = strictest(decisions)
        outcome.action = outcome.decision.applied.name
        return outcome

    async def _escalate(
        self,
        exchange: Exchange,
        chat: ChatRequest,
        first: Answer,
        before: Outcome,
        escalate: Escalate,
    ) -> tuple[Answer, Outcome]:
        """A second, counted call to another model; the surer answer is kept, or the last one.

        When the second call fails, the first answer is all there is and is decided on again.
        """
        kept, asked = first, chat.model
        try:
            reply = await self._ask(exchange, chat, escalate.to)
            if unscorable_reason(reply):
                await reply.aclose()
                second = None
            else:
                second = await self._read(exchange, reply)
        except ProxyError as error:
            log.warning(
                "escalation_failed",
                request_id=exchange.request_id,
                to=escalate.to,
                code=error.machine_code,
            )
            second = None
        if isinstance(second, Answer):
            second.confidences = await self._confidences(
                exchange, chat, second.choices, second.model
            )
            if escalate.keep == "last" or second.is_surer_than(first):
                kept, asked = second, escalate.to
        assert before.decision is not None
        decisions = [
            after_escalation(self.policy, before.decision, facts) for facts in kept.facts(chat)
        ]
        outcome = self._outcome(exchange, kept.choices, kept.confidences, decisions)
        outcome.escalated_from = chat.model if asked != chat.model else None
        if outcome.action == "deliver":
            outcome.action = "escalate"
        return kept, outcome

    async def _apply(
        self, exchange: Exchange, chat: ChatRequest, answer: Answer, outcome: Outcome
    ) -> Reply:
        """Carries the decision out; what it does not have to change stays as it came."""
        action = outcome.decision.applied if outcome.decision else None
        completion = None
        if isinstance(action, Hold):
            completion = await self._hold(exchange, chat, answer, outcome, action)
        elif isinstance(action, Block):
            self._raise(exchange, outcome, blocked_error())
        elif isinstance(action, Clarify):
            completion = clarification(answer, action)
        exchange.finish(outcome, answer.status)
        member = outcome.member() if self.config.attach.body else None
        if completion is None:
            body = answer.annotated(member)
        else:
            body = rewritten(
                answer, completion | ({MEMBER: member} if member else {}), chat.include_usage
            )
        is_as_it_came = completion is None and member is None
        kept = answer.headers if is_as_it_came else without(answer.headers, "content-encoding")
        return Reply(answer.status, [*kept, *self._headers(outcome)], body)

    async def _hold(
        self, exchange: Exchange, chat: ChatRequest, answer: Answer, outcome: Outcome, hold: Hold
    ) -> dict[str, object]:
        """Stores the answer, then gives the placeholder or raises HeldForReviewError."""
        id, key_hash = new_held_id(), hash_key(exchange.request)
        held = held_reply(answer, chat, outcome, hold, id=id, key_hash=key_hash)
        try:
            await self.store.hold(held)
        except StoreError as error:
            self._raise(exchange, outcome, error)
        outcome.review_id = id
        if wants_error(hold, answer, chat):
            self._raise(exchange, outcome, held_error(id))
        return placeholder_for(answer, id)

    def _raise(self, exchange: Exchange, outcome: Outcome, error: ProxyError) -> None:
        """An error that carries the outcome in its headers, as a reply would."""
        exchange.outcome = outcome
        outcome.overhead_ms = exchange.overhead_ms()
        given = {name for name, _ in error.headers}
        headers = self._headers(outcome)
        error.headers += [(name, value) for name, value in headers if name not in given]
        raise error

    def _headers(self, outcome: Outcome) -> Headers:
        return outcome.headers() if self.config.attach.headers else []

    # --- streams --------------------------------------------------------------------------------

    def _live(self, exchange: Exchange, chat: ChatRequest, reply: UpstreamReply) -> Reply:
        """Status and events at once; the outcome stands in the finish chunk."""
        pending = exchange.unscored(Status.PENDING, "late", self.scoring.name)

        async def judge(choices: list[Choice], model: str | None) -> Outcome:
            answer = Answer(reply.status, [], {"model": model}, choices, events=[])
            return await self._judge(exchange, chat, answer)

        stream = LiveStream(
            exchange.timed(reply.chunks),
            judge,
            pending,
            wait_s=self.config.limits.stream_wait_ms / 1_000,
            attach=self.config.attach.body,
        )
        opening = exchange.unscored(Status.PENDING, "stream", self.scoring.name)
        opening.overhead_ms = exchange.overhead_ms()
        self._keep_result(exchange, opening)
        headers = [*without(to_client(reply.headers), "content-length"), *self._headers(opening)]
        return Reply(
            reply.status,
            headers,
            self._recorded(exchange, stream, reply.status),
            on_close=reply.aclose,
        )

    async def _recorded(
        self, exchange: Exchange, stream: LiveStream, status: int
    ) -> AsyncIterator[bytes]:
        """The stream's bytes; its end waits for no score, and neither does a client that left."""
        try:
            async for part in stream:
                yield part
        finally:
            recording = asyncio.create_task(self._record(exchange, stream, status))
            self.recordings.add(recording)
            recording.add_done_callback(self.recordings.discard)

    async def _record(self, exchange: Exchange, stream: LiveStream, status: int) -> None:
        """The request's line and result, once all is known."""
        outcome = joined(await stream.outcomes()) or exchange.unscored(
            Status.SKIPPED,
            "stream_broke_off" if stream.failure else "no_finish_chunk",
            self.scoring.name,
        )
        self._keep_result(exchange, exchange.finish(outcome, status))

    def _keep_result(self, exchange: Exchange, outcome: Outcome) -> None:
        self.results.keep(exchange.request_id, hash_key(exchange.request), outcome.member())

    async def _settled_in_time(
        self, exchange: Exchange, chat: ChatRequest, reply: UpstreamReply
    ) -> Reply:
        """Buffers a stream. Nothing is written before the outcome, for `commit_after_s` at most;
        after that the status is out and pings keep the connection alive until there is one."""
        work = asyncio.create_task(self._settled(exchange, chat, reply))
        try:
            done, _ = await asyncio.wait({work}, timeout=self.config.limits.commit_after_s)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if done:
            return work.result()
        opening = exchange.unscored(Status.PENDING, "buffered", self.scoring.name)
        headers = [*without(to_client(reply.headers), "content-length"), *self._headers(opening)]
        return Reply(reply.status, headers, pings_until(work, exchange))
