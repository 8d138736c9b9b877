"""A completion in progress: the data that its steps share, its scoring and its decision.

A stream's last event waits here for its score for a limited time (`Job.score`). If the score is
late, nothing is decided yet, and `recording.py` decides when it is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace

from calibrator import Signals
from policies import Decision, Facts, StreamMode
from proxy.completions.further_calls.calls import Calls
from proxy.completions.further_calls.judging import CompletionJudge, Judgement
from proxy.completions.further_calls.opinions import Opinions, others_of
from proxy.completions.sending.live_stream import LiveStream
from proxy.completions.services import Services
from proxy.exchange.answer import Answer, Unread, read_answer
from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome, summarise
from proxy.exchange.request import CompletionRequest
from proxy.formats import RESPONSES, Json
from proxy.formats.base.logprobs import summary
from proxy.formats.events.called import without_calls
from proxy.gate.key_hash import hash_key
from proxy.holds.binding import Earlier
from proxy.holds.held import outcome_from
from proxy.http.wire.headers import Headers
from proxy.http.wire.http import Request
from proxy.http.wire.spelling import path_after_v1
from proxy.http.wire.upstream import UpstreamReply, UpstreamRequest
from proxy.scoring.scoring import ScoreRequest, Status


@dataclass(slots=True)
class Job:
    """A completion between its request and its record.

    `fetched_from` is the upstream of a stored response that the request names by its id; without
    it, the request is for a new one. `is_known` says whether the request of a stored response is
    known here.
    """

    services: Services
    exchange: Exchange
    request: CompletionRequest
    digest: str | None = None  # the request's, to which held calls are bound
    earlier: Earlier | None = None  # the reply that was held for the same request before
    fetched_from: str | None = None
    is_known: bool = True
    is_status_out: bool = False  # whether it is too late for an error status
    stream: LiveStream | None = None  # the reply, if it goes on while it arrives
    is_withheld: bool = False  # whether the calls of this stream are being decided on
    opinions: Opinions | None = None  # set if the policy may want second opinions
    judging: CompletionJudge | None = None  # set if the policy wants a judge
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # a stream's, by the first choice
    last_member: Json | None = None  # the last member that the client got
    late: tuple[tuple[Answer, asyncio.Task[None]], ...] = ()  # answers whose scores are late

    @property
    def http(self) -> Request:
        """The client's request, unchanged."""
        return self.exchange.request

    def headers(self, outcome: Outcome) -> Headers:
        """Return an outcome's `x-pinocchio-` headers; [] if `attach.headers` is off."""
        return outcome.headers() if self.services.tells_headers else []

    def stream_mode(self) -> StreamMode:
        """Return how far the answer must be buffered for the policies to decide on this request.

        If a stored response's request is unknown, any rule might apply, so all of it is buffered.
        """
        governing = self.services.governing
        if self.is_known or not governing.is_enforced:
            return governing.stream_mode(self.request)
        return StreamMode("buffer")

    # --- The call -------------------------------------------------------------------------------

    def models(self) -> tuple[str, ...]:
        """Return the names of the models to call for this request, one for each reply.

        Only the requested one unless a policy wants several; background and stored responses always
        have one.
        """
        asking = self.services.governing.asking
        is_one = self.fetched_from is not None or self.request.payload.get("background") is True
        if asking is None or is_one:
            return (self.request.model,)
        return asking.models_for(self.request.facts())

    def upstream_request(self, headers: Headers) -> UpstreamRequest:
        """Return the request to upstream with the client's own bytes and these headers."""
        http = self.exchange.request
        body = http.body if self.fetched_from is not None else self.request.body
        path = path_after_v1(http.path)
        return UpstreamRequest(http.method, path, headers, body, http.query, self.request.model)

    async def read(self, reply: UpstreamReply) -> Answer | Unread:
        """Read a whole reply, close it, and return it as an answer, or as unread with the reason.

        Raises UpstreamError where it breaks off or is too large.
        """
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
        """Return an object that makes further calls for this completion.

        For a stored response it makes none, because there is no request to send.
        """
        router, has_request = self.services.router, self.fetched_from is None
        return Calls(
            router, self.exchange, self.request, self.read, self.score_as, has_request=has_request
        )

    def keep_for_followups(self, completion: Json) -> None:
        """Remember a response, which a later request may name by its id (`previous_response_id`).

        Also notes its owner. Does nothing for other formats and for unknown requests.
        """
        if self.request.format is RESPONSES and self.is_known:
            upstream, key_hash = self.exchange.upstream or "", hash_key(self.http)
            self.services.conversations.keep(self.request, completion, key_hash, upstream)
            self.note_owner(completion)

    def note_owner(self, completion: Json, withheld: str | None = None) -> None:
        """Note the client's key as owner of a stored answer.

        `withheld` is the id of the held reply, or WITHHELD if the answer may not be read at
        upstream.
        """
        http = self.exchange.request
        self.services.ownership.note_answer(self.request, http, completion, withheld)

    # --- The score and the decision ---------------------------------------------------------------

    def score(self, answer: Answer) -> Awaitable[None]:
        """Score all choices of an answer, with second opinions and judge if the policy wants them.

        For an answer that the client has already, waits only for a limited time.
        """
        return self._score_in_time(answer) if answer.is_out else self._score_once(answer)

    async def _score_in_time(self, answer: Answer) -> None:
        """Score an answer of a live stream, and wait for the score for at most `stream_wait_ms`.

        A late score continues and is recorded.
        """
        scoring = asyncio.get_running_loop().create_task(self._score_once(answer))
        if self.services.attaches_member:
            await self.services.stream_waits.wait_for(scoring)
        if scoring.done():
            scoring.result()
        else:
            self.late = (*self.late, (answer, scoring))
            self.exchange.is_score_late = True

    async def _score_once(self, answer: Answer) -> None:
        """Score an answer as the policy wants: alone, beside other answers, and with signals.

        Does nothing for a reply that was held before. Sets `answer.confidences`; for a stored
        response with an unknown request, also the model's name.
        """
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
        """Set `answer.signals`, a judge's verdict and the tokens' probabilities, and apply them.

        The confidences change if any signal counts.
        """
        judged: Sequence[Judgement | None] = [None] * len(answer.choices)
        if self.judging is not None:
            facts = answer.facts(self.request, self.services.scoring.name)
            judged = await self.judging.ask_about(answer, facts)
        counts_logprobs = self.services.governing.counts_logprobs
        answer.signals = [
            Signals(
                None if judgement is None else judgement.probability,
                "" if judgement is None else judgement.judge,
                summary(choice) if counts_logprobs else None,
            )
            for choice, judgement in zip(answer.choices, judged, strict=True)
        ]
        self._join_signals(answer)

    def _join_signals(self, answer: Answer) -> None:
        """Change the confidences by the signals that were read, if there are any."""
        if any(each.kinds for each in answer.signals):
            answer.unaided = answer.confidences
            pairs = zip(answer.unaided, answer.signals, strict=True)
            with_signals = self.services.scoring.with_signals
            answer.confidences = [
                with_signals(confidence, signals) for confidence, signals in pairs
            ]

    async def weigh_others(self, answer: Answer) -> None:
        """Change an answer's confidences by other calls' answers to the same question.

        Does nothing without any. Signals are applied to the result again.
        """
        others = others_of(self.exchange, answer)
        if not others:
            return
        began, request = time.perf_counter(), self._score_request(answer, self.request.model)
        answer.alone = answer.alone or answer.unaided or answer.confidences
        answer.confidences = await self.services.scoring.with_others(request, answer.alone, others)
        self.exchange.note_scoring(began)
        self._join_signals(answer)

    async def score_as(self, answer: Answer, model: str) -> None:
        """Score all choices of an answer, set its confidences, and note the time.

        `model` is the one that was called, used if the answer names none.
        """
        request = self._score_request(answer, model)
        began = time.perf_counter()
        try:
            answer.confidences = await self.services.scoring.score(request)
        finally:
            self.exchange.note_scoring(began)

    def _score_request(self, answer: Answer, model: str) -> ScoreRequest:
        """Return the input of a score of all choices; `model` is for an answer that names none."""
        request, team = self.request, self.request.caller.team
        domain = self.services.domains.of_curve(request.model, team, request.domain)
        model = answer.model or model
        return ScoreRequest(request.question, answer.choices, model, domain, team)

    def decide(self, answer: Answer) -> Outcome:
        """Decide on each choice; the strictest decision applies to all of them.

        Returns the outcome: without a decision and `pending` if the score is late, and that of the
        first time for a reply that was held before. For a live stream the outcome is kept in
        `outcomes`.
        """
        if self.earlier is not None:
            return outcome_from(self.earlier, self.exchange.request_id, answer.choices)
        services = self.services
        if not answer.confidences:
            return self.exchange.unscored_outcome(Status.PENDING, "late", services.scoring.name)
        facts = answer.facts(self.request, services.scoring.name)
        if self.request.format is RESPONSES:
            self._leave_out_approved(answer, facts)
        decide, decisions = services.governing.decide, []
        for each in facts:
            decisions.append(decide(each))
        outcome = self.outcome(answer, decisions)
        outcome.facts = facts
        if answer.is_out:
            self.exchange.add_calls(outcome)
            self.outcomes[answer.choices[0].index] = outcome
        return outcome

    def _leave_out_approved(self, answer: Answer, facts: Sequence[Facts]) -> None:
        """Remove from the facts the calls that upstream made after their approval.

        They were decided on when upstream requested the approval.
        """
        approvals = self.services.conversations.approvals
        approved_ids = approvals.approved_ids(answer.completion, hash_key(self.http))
        if approved_ids:
            for each, choice in zip(facts, answer.choices, strict=True):
                message = dict(without_calls(choice.message, approved_ids))
                each.tools = self.request.calls_in(replace(choice, message=message))

    def outcome(self, answer: Answer, decisions: list[Decision]) -> Outcome:
        """Return the outcome of an answer from the decisions, one for each choice, in order."""
        id, calibrator = self.exchange.request_id, self.services.scoring.name
        return summarise(id, answer.choices, answer.confidences, decisions, calibrator)
