"""Escalation to stronger models in turn, as long as the kept reply would be escalated again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policies import Decision, Escalate, strictest
from proxy.completions.further_calls.calls import Calls
from proxy.completions.job import Job
from proxy.exchange.answer import Answer
from proxy.exchange.call import Call
from proxy.exchange.outcome import Outcome
from proxy.scoring.scoring import Confidence

MOST: Final = 6  # problems that are named
LONGEST: Final = 300  # characters of each
_TEXT: Final = (
    "Your reply has not reached the user: a check found that it may be wrong.",
    "Reply to the user's last message again, with this corrected. Use only what the conversation "
    "says; where it does not say enough, say so. Do not mention this check.",
)
_CALLS: Final = (
    "Not executed: a check found that this call may be wrong.",
    "Compare it with the conversation. Call again with the right arguments, look up what is "
    "missing, or ask the user.",
)


def problems_of(confidence: Confidence | None, *, has_calls: bool) -> str:
    """Return the text that tells a model what is wrong with its reply and to reply again.

    It lists up to `MOST` findings of the confidence, or none for None.
    """
    problems = dict.fromkeys(_problems(confidence) if confidence else ())
    sentences = [each[:LONGEST] for each in problems][:MOST]
    first, last = _CALLS if has_calls else _TEXT
    return "\n".join([first, *(f"- {each}" for each in sentences), last])


def _problems(confidence: Confidence) -> Iterator[str]:
    """Yield a sentence for each mark of a call, unsupported sentence and other finding."""
    for notes in confidence.notes or ():
        for mark in notes.marks:
            yield mark.text
    for each in confidence.findings.unsupported:
        relation = "contradicted by" if each.kind == "contradicted" else "not in"
        yield f"{relation} the given text: {each.sentence}"
    yield from confidence.because


def is_escalated(job: Job, outcome: Outcome) -> bool:
    """Return whether the decision is to call a stronger model.

    False without a decision, and for a reply that was held before, which is final.
    """
    decision = outcome.decision
    return decision is not None and isinstance(decision.applied, Escalate) and not job.earlier


async def escalate(job: Job, answer: Answer, before: Outcome) -> tuple[Answer, Outcome]:
    """Call stronger models as the decision says, and return the kept answer and its outcome.

    A call that fails leaves the answer that was kept. A model is called at most once, so no
    escalation runs in a circle; a revision calls it as often as the policy says. Unchanged if
    nothing is to be escalated.
    """
    decision = before.decision
    if decision is None or not is_escalated(job, before):
        return answer, before
    calls = job.further_calls()
    kept = first = calls.chosen_call(answer)
    decisions, is_revised = [decision], False
    models = {call.model for call in job.exchange.calls if call.purpose == "answer"}
    while isinstance(step := decision.applied, Escalate):
        if step.is_revision or step.to not in models:
            models.add(step.to)
            call = await _next(calls, kept, step)
            if _is_better(call, kept, step):
                kept, is_revised = call, step.is_revision
                calls.keep(kept)
            await job.weigh_others(kept.whole)
        decisions = _decide_again(job, kept.whole, decision)
        decision = strictest(decisions)
    if kept is not first:
        beginning = first.whole.continues  # a stream whose beginning the client has
        kept.whole.continues, kept.whole.is_restarted = beginning, beginning is not None
        job.keep_for_followups(kept.whole.completion)
    outcome = job.outcome(kept.whole, decisions)
    outcome.facts, outcome.shadowed = before.facts, before.shadowed
    outcome.escalated_from = first.model if kept.model != first.model else None
    outcome.is_revised = is_revised
    if outcome.action == "deliver":
        outcome.action = "escalate"
    return kept.whole, outcome


async def _next(calls: Calls, kept: Call, step: Escalate) -> Call:
    """Call the next model: for a reply of its own, or for a revision of the kept one."""
    if not step.is_revision:
        return await calls.escalate_to(step.to)
    answer = kept.whole
    problems = problems_of(answer.lowest, has_calls=answer.has_tool_calls)
    return await calls.revise(step.to or kept.model, answer, problems)


def _decide_again(job: Job, answer: Answer, decision: Decision) -> list[Decision]:
    """Decide on each choice of an answer that an escalation keeps."""
    facts = answer.facts(job.request, job.services.scoring.name)
    return [job.services.governing.after_escalation(decision, each) for each in facts]


def _is_better(call: Call, kept: Call, step: Escalate) -> bool:
    """Return whether a call's answer replaces the kept one.

    Not without an answer, nor if one is a stream and the other is not. Otherwise if the policy
    keeps the last one, or if it has the higher confidence.
    """
    if call.answer is None or (call.answer.events is None) != (kept.whole.events is None):
        return False
    return step.keep == "last" or call.answer.is_surer_than(kept.whole)
