"""The last step of a decision: the reply is delivered, held, blocked or replaced by a question."""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

from policies import Block, Clarify, Deliver, Hold
from proxy.completions.further_calls.clarify import written_question
from proxy.completions.job import Job
from proxy.completions.sending import replacements
from proxy.errors import ProxyError, StoreError
from proxy.exchange.answer import Answer, client_reply
from proxy.exchange.outcome import Outcome
from proxy.formats import Json
from proxy.holds.held import comes_later, postpone
from proxy.holds.mcp_approvals import approving_items
from proxy.http.wire.http import Reply
from proxy.store.database.owned_ids import WITHHELD
from proxy.store.reviews.held_replies import BLOCKED, RELEASED

QUESTION_S = 10.0  # how long a model may take to write a clarifying question


async def apply(job: Job, answer: Answer, outcome: Outcome) -> Reply | bytes:
    """Carry out a decision.

    Returns the client's reply, or the next bytes of its live stream. Raises ProxyError where the
    decision is reported as an error.
    """
    is_kept = answer.is_out or is_delivered(outcome)
    completion = None if is_kept else await _replace_answer(job, answer, outcome)
    return deliver(job, answer, outcome, completion)


def is_delivered(outcome: Outcome) -> bool:
    """Return whether the answer is delivered unchanged."""
    applied = outcome.decision.applied if outcome.decision else None
    return type(applied) is Deliver and applied.notice is None


def deliver(
    job: Job, answer: Answer, outcome: Outcome, completion: Json | None = None
) -> Reply | bytes:
    """Return the client's reply with the answer or, if given, the completion that replaces it.

    Finishes the exchange and offers the reply to the random audit. For an answer that the client
    has already, returns its remaining events with the outcome.
    """
    if answer.is_out:
        job.told = outcome.member() if job.services.tells_member else None
        return answer.annotated_events(job.request.format, job.told)
    applied = outcome.decision.applied if outcome.decision else None
    if not isinstance(applied, Block | Clarify | Hold):
        job.note_owner(answer.completion)
    job.exchange.finish(outcome, answer.status)
    if job.services.audit is not None:
        job.services.audit.consider(job.exchange, job.request, outcome, answer.stored_body)
    told = outcome if job.services.tells_member else None
    kept, body = client_reply(answer, job.request, completion, told)
    reply = Reply(answer.status, [*kept, *job.headers(outcome)], body)
    return reply if job.stream is None else reply.whole()


async def _replace_answer(job: Job, answer: Answer, outcome: Outcome) -> Json | None:
    """Return the completion that the action puts in place of the answer, None for the answer.

    Raises ProxyError where an error replaces it and the status can still report it.
    """
    action = outcome.decision.applied if outcome.decision else None
    if isinstance(action, Hold):
        return await _hold(job, answer, outcome, action)
    if isinstance(action, Block | Clarify):
        job.note_owner(answer.completion, WITHHELD)
    if isinstance(action, Clarify):
        action = await _clarify(job, answer, outcome, action)
    if isinstance(action, Block):
        _raise_in_time(job, outcome, replacements.blocked_error(action), answer)
        return replacements.replace_blocked(answer, job.request.format, action)
    return replacements.replace_by_action(answer, job.request, action)


async def _clarify(job: Job, answer: Answer, outcome: Outcome, clarify: Clarify) -> Clarify:
    """Return the clarification with the policy's question, or with one that a model has written."""
    question = None
    if clarify.ask == "generate":
        question = await written_question(job.further_calls(), clarify, answer, QUESTION_S)
    outcome.clarification = "template" if question is None else "generated"
    return clarify if question is None else replace(clarify, text=question)


async def _hold(job: Job, answer: Answer, outcome: Outcome, hold: Hold) -> Json | None:
    """Store an answer for a reviewer, and return the completion that replaces it meanwhile.

    Waits for the reviewer first if the policy says so. Returns None if the answer goes out: a
    standing approval covers it, or it has been released unchanged. Raises ProxyError where an error
    replaces it.
    """
    request, holding = job.request, job.services.holding
    try:
        held = job.earlier.held if job.earlier else None
        if held is None and (used := await holding.use_approvals(answer, outcome, job.http)):
            outcome.action, outcome.standing_approval = "deliver", ", ".join(used)
            job.note_owner(answer.completion)
            return None
        held = held or await holding.hold(answer, request, outcome, hold, job.http, job.digest)
        job.note_owner(answer.completion, held.id)
        job.exchange.note_held(outcome, held.id)
        standing, held = await holding.wait_for_state(held, request.format, hold)
    except StoreError as error:
        _raise(job, outcome, error)
    outcome.action = {RELEASED: "deliver", BLOCKED: "block"}.get(standing, "hold")
    if standing == RELEASED:
        outcome.approvals = approving_items(answer.completion)
        outcome.is_rewritten = held.revised is not None
        return await holding.revised_completion(held, answer)
    refusal = replacements.withheld_error(standing, hold, answer, request, held)
    if not job.is_status_out and comes_later(standing, hold, request, job.http):
        postpone(answer, request.format, held.id)
    elif refusal is not None:
        _raise_in_time(job, outcome, refusal, answer)
    return replacements.replace_held(standing, hold, answer, request, held)


def _raise_in_time(job: Job, outcome: Outcome, error: ProxyError, answer: Answer) -> None:
    """Raise the error, unless a JSON body has begun, which cannot report it."""
    if answer.events is not None or not job.is_status_out:
        _raise(job, outcome, error)


def _raise(job: Job, outcome: Outcome, error: ProxyError) -> NoReturn:
    """Raise an error that carries the outcome in its headers, as a reply would."""
    job.exchange.stamp(outcome)
    named = {name for name, _ in error.headers}
    error.headers += [field for field in job.headers(outcome) if field[0] not in named]
    raise error
