"""Escalation: stronger models in turn, while the reply that is kept would be escalated again."""

from __future__ import annotations

from collections.abc import Callable

from policies import Decision, Escalate, strictest
from proxy.completions.calls import Calls
from proxy.exchange.answer import Answer
from proxy.exchange.call import Call


async def escalate(
    calls: Calls,
    first: Call,
    decision: Decision,
    decided_again: Callable[[Answer, Decision], list[Decision]],
) -> tuple[Call, list[Decision]]:
    """The call whose reply is kept, and what is decided about each of its choices.

    `first` is the call whose reply `decision` escalates; `decided_again` is what becomes of a reply
    that an escalation keeps (`policies.after_escalation`, for each choice). A call that fails
    leaves what was kept. A model that was asked already is not asked once more, so no escalation
    runs in a circle.
    """
    kept, decisions = first, [decision]
    tried = {call.model for call in calls.exchange.calls}
    while isinstance(step := decision.applied, Escalate):
        if step.to not in tried:
            tried.add(step.to)
            call = await calls.ask(step.to)
            if _is_better(call, kept, step):
                kept = call
        decisions = decided_again(kept.whole, decision)
        decision = strictest(decisions)
    if kept is not first:
        begun = first.whole.continues  # a stream of which the client has the beginning
        kept.whole.continues, kept.whole.is_restarted = begun, begun is not None
        calls.keep(kept)
    return kept, decisions


def _is_better(call: Call, kept: Call, step: Escalate) -> bool:
    """Whether a reply takes the place of the one before; a stream cannot go on as JSON."""
    if call.answer is None or (call.answer.events is None) != (kept.whole.events is None):
        return False
    return step.keep == "last" or call.answer.is_surer_than(kept.whole)
