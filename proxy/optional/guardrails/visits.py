"""A visit of a gateway: its reply is handled like a reply of the proxy, from the score on.

The gateway has already called its upstream. Its reply is scored, decided on, held and recorded like
any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from proxy.completions.apply import apply
from proxy.completions.escalate import escalate
from proxy.completions.job import Job
from proxy.completions.recording import CompletionRecorder
from proxy.completions.services import Services
from proxy.errors import ProxyError, StoreError, UnreadableReplyError
from proxy.exchange.answer import Answer
from proxy.exchange.exchange import Exchange
from proxy.exchange.outcome import Outcome
from proxy.exchange.request import read_completion_request
from proxy.formats import MEMBER, Choice, Format, Json, NoAnswerError
from proxy.formats.events.called import tool_calls
from proxy.holds.binding import digest_of_calls
from proxy.http.wire.caller import ANYONE, Caller
from proxy.http.wire.headers import DOMAIN, POLICY, TAGS
from proxy.http.wire.http import JSON, Reply, Request
from proxy.http.wire.json_splice import dumps, json_object
from proxy.scoring.scoring import Confidence, Status

NO_QUESTION = "no_question"  # the reason where a gateway sends a text alone
POLICY_ERROR = "policy_error"
OF_GATEWAY = (POLICY, TAGS, DOMAIN)  # our header fields that a gateway's operator may set


@dataclass(frozen=True, slots=True)
class Visit:
    """A reply that a gateway asks about.

    `completion` is the reply in `format`. `request` is its request, or None where the gateway does
    not send it. `caller` is the client that the gateway names.
    """

    gateway: str
    format: Format
    completion: Json
    request: Json | None
    caller: Caller = ANYONE


@dataclass(frozen=True, slots=True)
class VisitResult:
    """The result of a visit.

    `outcome` is the outcome that the proxy reports, or None where the policy's action is an error.
    `completion` replaces the reply, or is None where the reply stays; `choices` are its choices.
    """

    visit: Visit
    outcome: Outcome | None
    error: ProxyError | None = None
    completion: Json | None = None
    choices: Sequence[Choice] = field(default=())  # the choices of the completion

    @property
    def is_withheld(self) -> bool:
        """Whether the reply must not be delivered."""
        return self.error is not None or (
            self.outcome is not None and self.outcome.action in ("hold", "block")
        )

    @property
    def reason(self) -> str:
        """A sentence for the client that waits for the reply, with the id of its review."""
        if self.error is not None:
            message, review_id = self.error.message, self.error.details.get("review_id")
        else:
            texts = (each.message.get("content") for each in self.choices)
            message = next((text for text in texts if isinstance(text, str) and text), "withheld")
            review_id = self.outcome.review_id if self.outcome is not None else None
        is_named = review_id is None or str(review_id) in message
        return message + ("" if is_named else f" ({review_id})")

    @property
    def refusal(self) -> Json:
        """A completion that says why the reply is withheld."""
        if self.completion is not None:
            return self.completion
        visit = self.visit
        return visit.format.replace_text(visit.completion, self.reason, "content_filter")

    def facts(self) -> Json:
        """Return the `pinocchio` object; for an error its code and details are added."""
        facts: Json = {} if self.outcome is None else self.outcome.member()
        if self.error is not None:
            facts |= {"code": self.error.machine_code, **self.error.details}
        return facts


def request_for(http: Request, body: bytes, presented: bytes, caller: Caller) -> Request:
    """Return the gateway's request as a request for a completion.

    It has none of the gateway's credentials, because they are not upstream's. `presented`
    identifies the client, so that all requests of a gateway have one owner however they send the
    token.
    """
    headers = [*JSON, *(each for each in http.headers if each[0] in OF_GATEWAY)]
    caller = replace(caller, generation=http.caller.generation)
    request = Request("POST", http.path, "", headers, body, caller, http.metrics, http.started)
    request.presented = presented
    return request


async def assess(services: Services, http: Request, visit: Visit, presented: bytes) -> VisitResult:
    """Score a reply, decide on it and carry the decision out: it may be held, changed or recorded.

    `presented` identifies the gateway. Raises ProxyError for a visit that cannot be read; an error
    of the policy or the store is returned in the result.
    """
    body = dumps(visit.request or {"model": visit.completion.get("model")})
    request = request_for(http, body, presented, visit.caller)
    exchange = Exchange(request, services.records)
    exchange.upstream = visit.gateway
    outcome = None
    try:
        with CompletionRecorder(exchange) as recording:
            requested = services.with_requested_policy(request)
            job = recording.begin(await _job(requested, exchange, visit))
            answer = _answer(visit)
            if not answer.choices:
                return _unread(job, visit)
            if visit.request is None:
                unknown = Confidence(None, Status.SKIPPED, NO_QUESTION)
                answer.confidences = [unknown for _ in answer.choices]
            await job.score(answer)
            outcome = job.decide(answer)
            answer, outcome = await escalate(job, answer, outcome)
            reply = await apply(job, answer, outcome)
            assert isinstance(reply, Reply)  # a visit never opens a stream
    except ProxyError as error:
        if error.type != POLICY_ERROR and not isinstance(error, StoreError):
            raise
        return VisitResult(visit, exchange.outcome or outcome, error)
    return _visit_result(visit, outcome, reply)


async def score_visit(services: Services, http: Request, visit: Visit, presented: bytes) -> Outcome:
    """Score a reply and record it; the policy's decision is reported and not carried out.

    Raises ProxyError for a visit that cannot be read.
    """
    request = request_for(http, dumps(visit.request or {}), presented, visit.caller)
    exchange = Exchange(request, services.records)
    exchange.upstream = visit.gateway
    with CompletionRecorder(exchange) as recording:
        job = recording.begin(await _job(services, exchange, visit))
        answer = _answer(visit)
        if not answer.choices:
            raise UnreadableReplyError("not_a_completion")
        await job.score(answer)
        outcome = job.decide(answer)
        outcome.action = "deliver"
        exchange.finish(outcome, 200)
    return outcome


async def _job(services: Services, exchange: Exchange, visit: Visit) -> Job:
    """Return the job for the reply of a visit, with an earlier hold of the same request."""
    http = exchange.request
    max_body = services.max_body
    request = await read_completion_request(http, visit.format, max_body)
    exchange.model, exchange.is_stream = request.model, request.is_stream
    team = visit.caller.team
    request.domain = services.domains.fact(request.model, team, request.domain)
    exchange.conversation = request.conversation = services.conversations.of(request)
    digest = earlier = None
    if visit.request is not None:
        digest = await request.apart(services.holding.request_digest, request, http)
    if digest is not None:
        # all clients of a gateway share its token: an approval is for the one that asked
        identity = dumps([digest, visit.caller.key, visit.caller.team])
        digest = hashlib.sha256(identity).hexdigest()
        calls = digest_of_calls(visit.format, dumps(visit.completion))
        earlier = await services.holding.earlier(visit.format, digest, http, calls)
    return Job(services, exchange, request, digest, earlier)


def _answer(visit: Visit) -> Answer:
    """Return the completion of a visit as an answer, with no choices if it holds none."""
    body = dumps(visit.completion)
    try:
        choices = visit.format.choices(visit.completion)
    except NoAnswerError:
        choices = []
    return Answer(200, [*JSON], visit.completion, choices, body, body)


def _unread(job: Job, visit: Visit) -> VisitResult:
    """Return the finding for a reply in which no answer is found, since no policy can decide on it.

    Raises UnreadableReplyError where a policy is enforced.
    """
    reason = "not_a_completion"
    outcome = job.exchange.unscored_outcome(Status.SKIPPED, reason, job.services.scoring.name)
    if job.services.governing.is_enforced:
        job.exchange.stamp(outcome)
        raise UnreadableReplyError(reason)
    job.exchange.finish(outcome, 200)
    return VisitResult(visit, outcome)


def _visit_result(visit: Visit, outcome: Outcome, reply: Reply) -> VisitResult:
    """Return the result of a visit; `completion` is set only if the reply was changed."""
    completion = json_object(reply.whole()) or {}
    completion.pop(MEMBER, None)
    choices = visit.format.choices(completion)
    if _choice_contents(choices) == _choice_contents(visit.format.choices(visit.completion)):
        return VisitResult(visit, outcome)
    return VisitResult(visit, outcome, None, completion, choices)


def _choice_contents(choices: Sequence[Choice]) -> list[object]:
    """Return the text and the tool calls of each choice."""
    return [(each.message.get("content"), tool_calls(each.message)) for each in choices]
