"""The way of a completion: parse, call upstream, score, decide, apply, record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from policies import Asking, Block, Clarify, Decision, Deliver, Escalate, Hold, StreamMode
from proxy.completions import apply as actions
from proxy.completions.calls import Calls
from proxy.completions.clarify import written_question
from proxy.completions.decide import Governing
from proxy.completions.escalate import escalate
from proxy.completions.heartbeats import is_done, late
from proxy.completions.live_record import LiveRecord
from proxy.completions.live_stream import LiveStream
from proxy.completions.parallel_calls import SeveralCalls
from proxy.completions.random_audit import Audit
from proxy.config.policy_book import PolicyBook
from proxy.config.sections import Config
from proxy.errors import ProxyError, StoreError, UnreadableReplyError, UpstreamBrokenError
from proxy.exchange.answer import (
    UNDECIDED,
    UPSTREAM_STATUS,
    Answer,
    Unread,
    is_event_stream,
    is_success,
    outgoing,
    read_answer,
    unscorable_reason,
)
from proxy.exchange.call import Call
from proxy.exchange.conversations import Conversations
from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome, summarise
from proxy.exchange.request import CompletionRequest, read_completion_request
from proxy.exchange.stream_results import Results
from proxy.formats import RESPONSES, Assembler, Choice, Format, Json
from proxy.gate.key_hash import hash_key
from proxy.holds.binding import Earlier
from proxy.holds.held import answer_from, comes_later, outcome_from, postpone, resumed
from proxy.holds.hold import Holding
from proxy.holds.ownership import Ownership, is_stored, ownership_of
from proxy.holds.waiting import Verdicts
from proxy.policy_context.domains import Domains
from proxy.scoring.deadlines import Deadlines
from proxy.scoring.recalibrated import Scores
from proxy.scoring.scoring import Status
from proxy.store.owned_ids import WITHHELD
from proxy.store.record.writer import Records
from proxy.store.reviews.held_replies import BLOCKED, RELEASED, HeldReply, Store
from proxy.upstreams.router import Router
from proxy.upstreams.upstream import UpstreamReply, UpstreamRequest
from proxy.wire.encoding import decoded
from proxy.wire.headers import POLICY, Headers, header, to_client, to_upstream, without
from proxy.wire.http import Reply, Request
from proxy.wire.spelling import path_after_v1
from proxy.wire.sse import Event

LIVE = StreamMode("passthrough")


@dataclass(slots=True)
class Completions:
    """Handles the surfaces that are scored, with the parts that one proxy consists of."""

    config: Config
    governing: Governing
    book: PolicyBook
    router: Router
    scoring: Scores
    store: Store
    results: Results
    verdicts: Verdicts
    records: Records | None = None
    conversations: Conversations = field(default_factory=Conversations)
    audit: Audit | None = None
    recordings: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    stream_waits: Deadlines = field(init=False)  # of finish events for their scores
    holding: Holding = field(init=False)
    ownership: Ownership = field(init=False)
    domains: Domains = field(init=False)
    may_take_long: bool = field(init=False)  # also where upstream's answer is whole
    stricter: dict[str, Completions] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.holding = Holding(
            self.governing.policies, self.store, self.conversations, self.verdicts
        )
        owned, is_enforced = self.conversations.owned, self.governing.is_enforced
        self.ownership = ownership_of(owned, self.store, self.config, is_enforced)
        self.domains = Domains(self.config, self.router)
        self.stream_waits = Deadlines(self.config.limits.stream_wait_ms / 1_000)
        score_s, commit_s = self.config.calibrator.timeout_s, self.config.limits.commit_after_s
        self.may_take_long = (
            self.governing.asks_again or self.holding.may_wait or score_s > commit_s
        )

    def asked_for(self, request: Request) -> Completions:
        """These parts, with the policy that the request asks for deciding too.

        Raises BadRequestError for a policy that nobody can ask for.
        """
        if POLICY not in request.values:
            return self
        policy = self.book.asked_for(request.headers)
        if policy in self.governing.policies:
            return self
        if policy.name not in self.stricter:
            both = self.governing.with_asked(policy)
            self.stricter[policy.name] = replace(self, governing=both)
        return self.stricter[policy.name]

    async def handle(self, format: Format, request: Request) -> Reply:
        """One request, top to bottom; raises ProxyError for what the client is told as an error."""
        exchange = Exchange(request, self.records)
        with exchange:
            parts = self.asked_for(request)
            asked = await read_completion_request(request, format, self.config.limits.max_body)
            asked.domain = self.domains.fact(asked.model, asked.caller.team, asked.domain)
            await parts.ownership.check_body(request)
            digest = await asked.apart(parts.holding.request_digest, asked, request)
            if digest and (earlier := await parts.holding.earlier(format, digest, request)):
                return await Way(parts, exchange, asked).go_on(earlier)
            if format is RESPONSES:
                asked = await resumed(self.conversations, self.store, asked, hash_key(request))
            exchange.conversation = asked.conversation = parts.conversations.of(asked)
            return await Way(parts, exchange, asked, digest).go()


@dataclass(slots=True)
class Way:
    """One completion's way through the parts."""

    parts: Completions
    exchange: Exchange
    asked: CompletionRequest
    digest: str | None = None  # of the request, to which calls that are held are bound
    mode: StreamMode = LIVE  # of a stream
    earlier: HeldReply | None = None  # what was held for the same request before
    is_status_out: bool = False  # then an error can no longer be one of HTTP

    async def go(self) -> Reply:
        if self.asked.is_stream:
            self.mode = self._stream_mode()
        asking = self.parts.governing.asking
        if asking is not None and len(models := self._models(asking)) > 1:
            return await self._ask_each(models)
        reply = await self._ask(self.asked.model)
        if reason := unscorable_reason(reply):
            return await self._relayed(reply, reason)
        is_stream = is_event_stream(reply)
        if is_stream and self.asked.is_stream and self.mode.mode != "buffer":
            return self._live(reply)
        if reply.is_whole and not self.parts.may_take_long:
            return await self._settled(reply)  # only the score is waited for, which has a deadline
        return await self._in_time(self._settled(reply), reply, is_stream)

    async def go_on(self, earlier: Earlier) -> Reply:
        """With the reply that was held when the same was asked before; nobody is asked again."""
        self.earlier = earlier.held
        self.exchange.note_poll(self.asked, self.parts.holding.polls.count(earlier.held.id))
        answer = answer_from(earlier.held, self.asked)
        work = self._apply(answer, outcome_from(earlier, self.exchange.request_id))
        return await self._in_time(work, answer, self.asked.is_stream)

    def _stream_mode(self) -> StreamMode:
        """What the policy, going by the request, can do with the answer at most."""
        return self.parts.governing.stream_mode(self.asked)

    def _models(self, asking: Asking) -> tuple[str, ...]:
        """Whom to ask, an entry for each reply; what runs in the background is not asked twice."""
        if self.asked.payload.get("background") is True:
            return (self.asked.model,)
        return asking.models_for(self.asked.facts())

    async def _ask(self, model: str) -> UpstreamReply:
        """Sends the client's bytes to the upstream of `model`."""
        exchange, router = self.exchange, self.parts.router
        name = self._upstream_of(model)
        exchange.upstream, exchange.model = name, model
        exchange.is_stream = self.asked.is_stream
        headers = to_upstream(exchange.request.headers)
        if self.mode.mode != "passthrough":
            headers = without(headers, b"accept-encoding")  # what is in it must be read, undecoded
        sent = self._request(model, headers)
        if self.parts.scoring.name is not None:  # scoring will ask for it; now upstream is busy
            asyncio.get_running_loop().call_soon(self.asked.read_ahead)
        with exchange.in_upstream:
            return await router.upstream(name).send(sent)

    def _upstream_of(self, model: str) -> str:
        return self.parts.router.name_or_default(model)

    def _request(self, model: str, headers: Headers) -> UpstreamRequest:
        request = self.exchange.request
        body, path = self.asked.body_for(model), path_after_v1(request.path)
        return UpstreamRequest(request.method, path, headers, body, request.query)

    async def _relayed(self, reply: UpstreamReply, reason: str) -> Reply:
        """What is no completion, an error of upstream's above all, goes on as it came."""
        if reason == UPSTREAM_STATUS and self._stream_mode().mode != "passthrough":
            otherwise = None if is_success(reply.status) else reason
            return await self._settled(reply, otherwise)  # there may be an answer in it
        try:
            headers = self._unscored(reply, reason)
        except ProxyError:
            await reply.aclose()
            raise
        return Reply(reply.status, headers, reply.chunks, on_close=reply.aclose)

    def _unscored(self, reply: UpstreamReply, reason: str) -> Headers:
        """The headers of a reply without a number; raises where the policy had to decide on it."""
        if reason not in UNDECIDED and self._stream_mode().mode != "passthrough":
            raise UnreadableReplyError(reason)
        exchange = self.exchange
        status = UNDECIDED.get(reason, Status.NOT_SUPPORTED)
        outcome = exchange.finish(exchange.unscored(status, reason), reply.status)
        return [*to_client(reply.headers), *self._headers(outcome)]

    # --- whole answers: bodies, and streams that wait for their score ---------------------------

    async def _settled(self, reply: UpstreamReply, otherwise: str | None = None) -> Reply:
        """Reads the whole answer, scores it, decides and applies; `otherwise` says what is none."""
        answer = await self._read(reply)
        if isinstance(answer, Unread):
            answer.reason = otherwise or answer.reason
            return self._unread(reply, answer)
        self._remember(answer.completion)
        return await self._decided(answer)

    def _unread(self, reply: UpstreamReply, answer: Unread) -> Reply:
        if answer.completion is not None:
            self._remember(answer.completion)
        headers = self._unscored(reply, answer.reason)
        if answer.bare is None or self._stream_mode().mode == "passthrough":
            return Reply(reply.status, headers, answer.body)
        return Reply(reply.status, without(headers, b"content-encoding"), answer.bare)

    async def _decided(self, answer: Answer) -> Reply:
        outcome = await self._judge(answer)
        if outcome.decision is not None and isinstance(outcome.decision.applied, Escalate):
            answer, outcome = await self._escalate(answer, outcome, outcome.decision)
        return await self._apply(answer, outcome)

    async def _read(self, reply: UpstreamReply) -> Answer | Unread:
        limit = self.parts.config.limits.max_body
        try:
            with self.exchange.in_upstream:
                return await read_answer(reply, self.asked.format, limit)
        finally:
            await reply.aclose()

    def _remember(self, completion: Json) -> None:
        """Keeps what a later request may only name."""
        if self.asked.format is RESPONSES:
            request, upstream = self.exchange.request, self.exchange.upstream or ""
            self.parts.conversations.keep(self.asked, completion, hash_key(request), upstream)
            self._note(completion)

    def _note(self, completion: Json, withheld: str | None = None) -> None:
        """Whose a stored answer is, and whether it may be read at upstream's."""
        self.parts.ownership.note_answer(self.asked, self.exchange.request, completion, withheld)

    async def _judge(self, answer: Answer) -> Outcome:
        """Scores every choice and decides; the strictest decision speaks for all choices."""
        if not answer.confidences:
            await self._score(answer, self.asked.model)
        facts = answer.facts(self.asked, self.parts.scoring.name)
        outcome = self._outcome(answer, [self.parts.governing.decide(each) for each in facts])
        outcome.facts = facts
        return outcome

    async def _score(self, answer: Answer, model: str) -> None:
        """`model` is the one that was asked, for an answer that does not name its own."""
        asked, model, team = self.asked, answer.model or model, self.asked.caller.team
        domain = self.parts.domains.of_curve(asked.model, team, asked.domain)
        began = time.perf_counter()
        try:
            answer.confidences = await self.parts.scoring.score(
                asked.question, answer.choices, model, domain, team
            )
        finally:
            self.exchange.scoring_s = (self.exchange.scoring_s or 0.0) + time.perf_counter() - began

    def _outcome(self, answer: Answer, decisions: list[Decision]) -> Outcome:
        id, calibrator = self.exchange.request_id, self.parts.scoring.name
        return summarise(id, answer.choices, answer.confidences, decisions, calibrator)

    # --- further calls, see calls.py -------------------------------------------------------------

    async def _ask_each(self, models: tuple[str, ...]) -> Reply:
        """Asks all at once; the surest reply goes the way of any other."""
        exchange, asked = self.exchange, self.asked
        exchange.model, exchange.is_stream = asked.model, asked.is_stream
        several = SeveralCalls(self._calls(), models)
        work = asyncio.create_task(self._surest(several))
        if await is_done(work, several.head):
            return work.result()
        return await self._in_time(work, several.head.result(), asked.is_stream)

    async def _surest(self, several: SeveralCalls) -> Reply:
        first, *others = await several.made()
        surest = several.surest([first, *others])
        if surest is None:
            return await self._first_failure(first)
        await first.aclose()
        several.calls.keep(surest)
        self._remember(surest.whole.completion)
        return await self._decided(surest.whole)

    async def _first_failure(self, call: Call) -> Reply:
        """Where nobody answered, what the first model said goes on as it came."""
        self.exchange.upstream = call.upstream
        if call.raised is not None:
            raise call.raised
        if call.reply is None or self.is_status_out:
            await call.aclose()
            raise UpstreamBrokenError("no model gave a whole reply")
        if call.unread is not None:
            return self._unread(call.reply, call.unread)
        return await self._relayed(call.reply, unscorable_reason(call.reply) or "")

    async def _escalate(
        self, answer: Answer, before: Outcome, decision: Decision
    ) -> tuple[Answer, Outcome]:
        """Other models are asked, one after the other; one of the replies is kept."""
        calls = self._calls()
        first = calls.kept(answer)
        kept, decisions = await escalate(calls, first, decision, self._decided_again)
        if kept is not first:
            self._remember(kept.whole.completion)
        outcome = self._outcome(kept.whole, decisions)
        outcome.facts, outcome.shadowed = before.facts, before.shadowed
        outcome.escalated_from = first.model if kept.model != first.model else None
        if outcome.action == "deliver":
            outcome.action = "escalate"
        return kept.whole, outcome

    def _decided_again(self, answer: Answer, decision: Decision) -> list[Decision]:
        after = self.parts.governing.after_escalation
        facts = answer.facts(self.asked, self.parts.scoring.name)
        return [after(decision, each) for each in facts]

    async def _clarify(self, answer: Answer, outcome: Outcome, clarify: Clarify) -> Clarify:
        """The clarification as it is sent: with the policy's question, or one of a model's."""
        question = None
        if clarify.ask == "generate":
            limit_s = self.parts.config.limits.clarify_timeout_s
            question = await written_question(self._calls(), clarify, answer, limit_s)
        outcome.clarification = "template" if question is None else "generated"
        return clarify if question is None else replace(clarify, text=question)

    def _calls(self) -> Calls:
        return Calls(self.parts.router, self.exchange, self.asked, self._read, self._score)

    async def _apply(self, answer: Answer, outcome: Outcome) -> Reply:
        """Carries the decision out; what it does not have to change stays as it came."""
        applied = outcome.decision.applied if outcome.decision else None
        is_kept = type(applied) is Deliver and applied.notice is None
        completion = None if is_kept else await self._changed(answer, outcome)
        if not isinstance(applied, Block | Clarify | Hold):
            self._note(answer.completion)
        self.exchange.finish(outcome, answer.status)
        if self.parts.audit is not None:
            self.parts.audit.consider(self.exchange, self.asked, outcome, answer.stored)
        member = outcome.member() if self.parts.config.attach.body else None
        kept, body = outgoing(answer, self.asked, completion, member)
        return Reply(answer.status, [*kept, *self._headers(outcome)], body)

    async def _changed(self, answer: Answer, outcome: Outcome) -> Json | None:
        """What the action puts in the answer's place, None for the answer itself.

        Raises ProxyError where that is an error and the status can still say so.
        """
        action = outcome.decision.applied if outcome.decision else None
        if isinstance(action, Hold):
            return await self._hold(answer, outcome, action)
        if isinstance(action, Block | Clarify):
            self._note(answer.completion, WITHHELD)
        if isinstance(action, Clarify):
            action = await self._clarify(answer, outcome, action)
        if isinstance(action, Block):
            self._raise_in_time(outcome, actions.blocked_error(action), answer)
            return actions.blocked(answer, self.asked.format, action)
        return actions.changed(answer, self.asked, action)

    async def _hold(self, answer: Answer, outcome: Outcome, hold: Hold) -> Json | None:
        """What stands for an answer that is held; None where it was released as it is by now.

        Raises ProxyError where that is an error.
        """
        asked, holding = self.asked, self.parts.holding
        try:
            held = self.earlier or await holding.hold(
                answer, asked, outcome, hold, self.exchange.request, self.digest
            )
            self._note(answer.completion, held.id)
            self.exchange.note_held(outcome, held.id)
            standing, held = await holding.standing(held, asked.format, hold)
        except StoreError as error:
            self._raise(outcome, error)
        outcome.action = {RELEASED: "deliver", BLOCKED: "block"}.get(standing, "hold")
        if standing == RELEASED:
            return await holding.revised(held, answer)
        told = actions.withheld_error(standing, hold, answer, asked, held)
        if not self.is_status_out and comes_later(standing, hold, asked, self.exchange.request):
            postpone(answer, asked.format, held.id)
        elif told is not None:
            self._raise_in_time(outcome, told, answer)
        return actions.withheld(standing, answer, asked.format, held)

    def _raise_in_time(self, outcome: Outcome, error: ProxyError, answer: Answer) -> None:
        """Raises the error unless a JSON body has begun, in which nothing could tell it."""
        if answer.events is not None or not self.is_status_out:
            self._raise(outcome, error)

    def _raise(self, outcome: Outcome, error: ProxyError) -> NoReturn:
        """An error that carries the outcome in its headers, as a reply would."""
        self.exchange.stamp(outcome)
        given = {name for name, _ in error.headers}
        error.headers += [field for field in self._headers(outcome) if field[0] not in given]
        raise error

    def _headers(self, outcome: Outcome) -> Headers:
        return outcome.headers() if self.parts.config.attach.headers else []

    async def _in_time(
        self, work: Awaitable[Reply], head: UpstreamReply | Answer, is_stream: bool
    ) -> Reply:
        """Nothing is written before the outcome, for `commit_after_s` at most; after that the
        status is out and pings keep the connection alive until there is one."""
        task, limits = asyncio.ensure_future(work), self.parts.config.limits
        if await is_done(task, within_s=limits.commit_after_s):
            return task.result()
        self.is_status_out, self.exchange.status = True, head.status
        opening = self.exchange.unscored(Status.PENDING, "buffered", self.parts.scoring.name)
        kept = without(to_client(head.headers), b"content-length", b"content-encoding")
        headers = [*kept, *self._headers(opening)]
        body = asyncio.ensure_future(self._late_body(task))

        async def stop() -> None:
            body.cancel()

        error_event = self.asked.format.error_event if is_stream else None
        return Reply(head.status, headers, late(body, error_event), on_close=stop)

    async def _late_body(self, task: asyncio.Future[Reply]) -> bytes:
        """The body of the reply that the task ends in; its headers are out, without an encoding."""
        with self.exchange:
            settled = await task
            return await decoded(settled.whole(), header(settled.headers, b"content-encoding"))

    # --- streams that go through live -----------------------------------------------------------

    def _live(self, reply: UpstreamReply) -> Reply:
        """Status and events at once; the outcome stands in the finish event."""
        exchange, scoring, config = self.exchange, self.parts.scoring, self.parts.config

        async def judge(choices: list[Choice], assembler: Assembler) -> Outcome:
            if is_stored(self.asked):
                self._remember(assembler.completion())
                self._note(assembler.completion())
            model = {"model": assembler.model}
            return await self._judge(Answer(reply.status, [], model, choices, events=[]))

        async def settle(
            assembler: Assembler, withheld: list[Event], finishes: frozenset[int]
        ) -> bytes:
            whole, choices = assembler.completion(), assembler.choices()
            answer = Answer(reply.status, [], whole, choices, events=withheld, finishes=finishes)
            answer.continues = assembler
            self._remember(whole)
            with exchange:
                return (await self._decided(answer)).whole()

        stream = LiveStream(
            self.asked.format,
            judge,
            exchange.unscored(Status.PENDING, "late", scoring.name),
            self.parts.stream_waits,
            attach=config.attach.body,
            max_bytes=config.limits.max_body,
            settle=settle if self.mode.mode == "buffer_tools" else None,
        )
        reply.chunks = self.parts.ownership.noting(reply.chunks, self.asked, exchange.request)
        exchange.status = reply.status
        opening = exchange.unscored(Status.PENDING, "stream", scoring.name)
        opening.overhead_ms = exchange.overhead_ms()
        record = LiveRecord(self.parts, exchange, self.asked, opening)
        headers = [*without(to_client(reply.headers), b"content-length"), *self._headers(opening)]
        body = record.recorded(stream, reply)
        return Reply(reply.status, headers, body, on_close=reply.aclose)
