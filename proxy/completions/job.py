"""One completion that is being handled: what its steps share, and how it is scored and decided.

A stream's last event waits for its score for a while here (`Job.score`); where the number is late,
nothing is decided yet, and `recording.py` does it when the number is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace

from calibrator import Signals
from policies import Decision, Facts, StreamMode
from proxy.completions.further_calls.calls import Calls
from proxy.completions.further_calls.judging import Judgement, Judging
from proxy.completions.further_calls.opinions import Opinions, others_of
from proxy.completions.live_stream import LiveStream
from proxy.completions.services import Services
from proxy.exchange.answer import Answer, Unread, read_answer
from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome, summarise
from proxy.exchange.request import CompletionRequest
from proxy.formats import RESPONSES, Json
from proxy.formats.called import without_calls
from proxy.formats.logprobs import summary
from proxy.gate.key_hash import hash_key
from proxy.holds.binding import Earlier
from proxy.holds.held import outcome_from
from proxy.scoring.scoring import Status
from proxy.upstreams.upstream import UpstreamReply, UpstreamRequest
from proxy.wire.headers import Headers
from proxy.wire.http import Request
from proxy.wire.spelling import path_after_v1


@dataclass(slots=True)
class Job:
    """A completion between its request and its record.

    `fetched_from` is the upstream of a stored response that the request names by its id; without
    it, the request asks for a new one. `is_known` says whether what was asked can be read here.
    """

    services: Services
    exchange: Exchange
    request: CompletionRequest
    digest: str | None = None  # of the request, to which calls that are held are bound
    earlier: Earlier | None = None  # the reply that was held for the same request before
    fetched_from: str | None = None
    is_known: bool = True
    is_status_out: bool = False  # then an error can no longer be one of HTTP
    stream: LiveStream | None = None  # the reply, where it goes on while it arrives
    is_withheld: bool = False  # the calls of this stream are being decided on
    opinions: Opinions | None = None  # of others, where the policy may want them
    judging: Judging | None = None  # where the policy wants a judge
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # of a stream, by the first choice
    told: Json | None = None  # the last member that its client got
    late: tuple[tuple[Answer, asyncio.Task[None]], ...] = ()  # their scores

    @property
    def http(self) -> Request:
        """The client's request as it came."""
        return self.exchange.request

    def headers(self, outcome: Outcome) -> Headers:
        """Return the response headers that tell an outcome, if they are switched on."""
        return outcome.headers() if self.services.tells_headers else []

    def stream_mode(self) -> StreamMode:
        """Return what the policy, going by the request, can do with the answer at most.

        Where what was asked is not known, any rule might apply.
        """
        governing = self.services.governing
        if self.is_known or not governing.is_enforced:
            return governing.stream_mode(self.request)
        return StreamMode("buffer")

    # --- the call -------------------------------------------------------------------------------

    def models(self) -> tuple[str, ...]:
        """Return whom to ask, an entry for each reply; a background reply is made only once."""
        asking = self.services.governing.asking
        is_one = self.fetched_from is not None or self.request.payload.get("background") is True
        if asking is None or is_one:
            return (self.request.model,)
        return asking.models_for(self.request.facts())

    def upstream_request(self, headers: Headers) -> UpstreamRequest:
        """Return what upstream is sent: the client's own bytes."""
        http = self.exchange.request
        body = http.body if self.fetched_from is not None else self.request.body
        path = path_after_v1(http.path)
        return UpstreamRequest(http.method, path, headers, body, http.query, self.request.model)

    async def read(self, reply: UpstreamReply) -> Answer | Unread:
        """Read a whole reply; raises UpstreamError where it breaks off or is too large."""
        limit, format = self.services.max_body, self.request.format
        is_decided_on = self.stream_mode().mode != "passthrough"
        clock = self.exchange.in_upstream
        clock.start()
        try:
            return await read_answer(reply, format, limit, is_decided_on=is_decided_on)
        finally:
            clock.stop()
            if not reply.is_over():
                await reply.aclose()

    def further_calls(self) -> Calls:
        """Return what asks further models; a stored response has no request to put to them."""
        router, has_request = self.services.router, self.fetched_from is None
        return Calls(
            router, self.exchange, self.request, self.read, self.score_as, has_request=has_request
        )

    def keep_for_followups(self, completion: Json) -> None:
        """Keep a response: a later request may name it by its id (`previous_response_id`)."""
        if self.request.format is RESPONSES and self.is_known:
            upstream, key_hash = self.exchange.upstream or "", hash_key(self.http)
            self.services.conversations.keep(self.request, completion, key_hash, upstream)
            self.note_owner(completion)

    def note_owner(self, completion: Json, withheld: str | None = None) -> None:
        """Note whose a stored answer is, and whether it may be read at upstream's."""
        http = self.exchange.request
        self.services.ownership.note_answer(self.request, http, completion, withheld)

    # --- its score and the decision ---------------------------------------------------------------

    def score(self, answer: Answer) -> Awaitable[None]:
        """Score every choice of an answer, by what others answered too where they are asked."""
        return self._score_in_time(answer) if answer.is_out else self._score_once(answer)

    async def _score_in_time(self, answer: Answer) -> None:
        """Let the last event of a live stream wait for its score, for `stream_wait_ms` at most; the
        score itself goes on and is recorded."""
        scoring = asyncio.get_running_loop().create_task(self._score_once(answer))
        if self.services.tells_member:
            await self.services.stream_waits.wait_for(scoring)
        if scoring.done():
            scoring.result()
        else:
            self.late = (*self.late, (answer, scoring))
            self.exchange.is_score_late = True

    async def _score_once(self, answer: Answer) -> None:
        if self.earlier is not None:
            return
        if not self.is_known:
            self.exchange.model = answer.model
            self.request = replace(self.request, model=answer.model or "")
        if not answer.confidences:
            await self.score_as(answer, self.exchange.model or self.request.model)
        if self.opinions is not None:
            facts = answer.facts(self.request, self.services.scoring.name)
            await self.opinions.ask_about(answer, facts)
        if self.exchange.calls:
            self.further_calls().note_answer(answer)
            await self.weigh_others(answer)
        if self.judging is not None or self.services.governing.counts_logprobs:
            await self._read_signals(answer)

    async def _read_signals(self, answer: Answer) -> None:
        """Let what a judge says, and how probable the tokens were, change the confidences."""
        judged: Sequence[Judgement | None] = [None] * len(answer.choices)
        if self.judging is not None:
            facts = answer.facts(self.request, self.services.scoring.name)
            judged = await self.judging.ask_about(answer, facts)
        counts_logprobs = self.services.governing.counts_logprobs
        answer.signals = [
            Signals(
                None if said is None else said.probability,
                "" if said is None else said.judge,
                summary(choice) if counts_logprobs else None,
            )
            for choice, said in zip(answer.choices, judged, strict=True)
        ]
        self._join_signals(answer)

    def _join_signals(self, answer: Answer) -> None:
        """Move the confidences by the signals that were read, if any."""
        if any(each.kinds for each in answer.signals):
            answer.unaided = answer.confidences
            pairs = zip(answer.unaided, answer.signals, strict=True)
            joined = self.services.scoring.with_signals
            answer.confidences = [joined(found, signals) for found, signals in pairs]

    async def weigh_others(self, answer: Answer) -> None:
        """Let what other calls answered to the same question change an answer's confidences."""
        others = others_of(self.exchange, answer)
        if not others:
            return
        request = self.request
        began, model, team = time.perf_counter(), answer.model or request.model, request.caller.team
        domain = self.services.domains.of_curve(request.model, team, request.domain)
        answer.alone = answer.alone or answer.unaided or answer.confidences
        answer.confidences = await self.services.scoring.with_others(
            request.question, answer.choices, answer.alone, others, model, domain, team
        )
        self.exchange.note_scoring(began)
        self._join_signals(answer)

    async def score_as(self, answer: Answer, model: str) -> None:
        """Score an answer; `model` was asked, for an answer that does not name its own."""
        request, model, team = self.request, answer.model or model, self.request.caller.team
        domain = self.services.domains.of_curve(request.model, team, request.domain)
        began = time.perf_counter()
        try:
            answer.confidences = await self.services.scoring.score(
                request.question, answer.choices, model, domain, team
            )
        finally:
            self.exchange.note_scoring(began)

    def decide(self, answer: Answer) -> Outcome:
        """Decide on every choice; the strictest decision speaks for all of them.

        Where the score is late, nothing is decided yet; a reply that was held before stays so.
        """
        if self.earlier is not None:
            return outcome_from(self.earlier, self.exchange.request_id, answer.choices)
        services = self.services
        if not answer.confidences:
            return self.exchange.unscored(Status.PENDING, "late", services.scoring.name)
        facts = answer.facts(self.request, services.scoring.name)
        if self.request.format is RESPONSES:
            self._leave_out_approved(answer, facts)
        decide, decisions = services.governing.decide, []
        for each in facts:
            decisions.append(decide(each))
        outcome = self.outcome(answer, decisions)
        outcome.facts = facts
        if answer.is_out:
            self.exchange.tell_calls(outcome)
            self.outcomes[answer.choices[0].index] = outcome
        return outcome

    def _leave_out_approved(self, answer: Answer, facts: Sequence[Facts]) -> None:
        """Let no call be decided on twice: one that upstream made after its approval was decided on
        when upstream asked for that."""
        approvals = self.services.conversations.approvals
        made = approvals.made(answer.completion, hash_key(self.http))
        if made:
            for each, choice in zip(facts, answer.choices, strict=True):
                message = dict(without_calls(choice.message, made))
                each.tools = self.request.calls_in(replace(choice, message=message))

    def outcome(self, answer: Answer, decisions: list[Decision]) -> Outcome:
        """Return what the decisions, one for each choice, come to."""
        id, calibrator = self.exchange.request_id, self.services.scoring.name
        return summarise(id, answer.choices, answer.confidences, decisions, calibrator)
