"""`pinocchio explain`: how a recorded reply was decided on, rule by rule."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.commands.opening.exits import NAME_SHOWN, ConfigOption, plain, stop
from proxy.commands.opening.opened_record import (
    NOT_CONFIGURED,
    JsonOption,
    RequestId,
    opened_record,
    usable_setup,
    without_withdrawn,
)
from proxy.errors import ExitStatus

if TYPE_CHECKING:
    from policies import Decision, Explanation, Facts, Policy
    from proxy.store.database.verdicts import VerdictStore
    from proxy.store.record.reader import RecordedExchange
    from proxy.store.reviews.polls import HoldState


def explain(
    request_id: RequestId,
    config: ConfigOption = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Explain by this pack or policy file, not the configured one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show how a recorded reply was decided on, and how today's policy decides, rule by rule."""
    from policies import explain as run
    from proxy.store.record.reader import find
    from proxy.store.reviews.polls import hold_state_of

    setup = usable_setup(config, policy)
    with opened_record(config) as findings:
        recorded = find(findings.engine, request_id)
        if recorded is None:
            raise stop(ExitStatus.FAILED, f"there is no record of {request_id}")
        recorded = _with_held_arguments(recorded, findings)
        held = hold_state_of(findings.engine, recorded.review_id) if recorded.review_id else None
        namesakes = [] if policy else [p for p in setup.book if p.name == recorded.policy_name]
        now = without_withdrawn(next(iter(namesakes), setup.policy), findings)
    explanations = [run(now, facts) for facts in recorded.facts]
    is_poll = request_id not in (recorded.request_id, recorded.review_id)
    if as_json:
        values = _explained_values(recorded, now, explanations)
        poll = {"is_poll": is_poll, "review": held and held._asdict()}
        typer.echo(json.dumps(values | poll))
        return
    if is_poll:
        typer.echo(f"{request_id} asked again for the reply that is held as {recorded.review_id}")
    for paragraph in _explain_record(recorded, now, explanations):
        typer.echo("\n".join(plain(line) for line in paragraph.split("\n")))
    if recorded.policy and not (policy or namesakes):
        typer.echo(
            f"policy {plain(recorded.policy_name)} {NOT_CONFIGURED}; explain by it with --policy"
        )
    if held is not None:
        typer.echo(_review_line(held))


def _with_held_arguments(recorded: RecordedExchange, findings: VerdictStore) -> RecordedExchange:
    """Return the record with its calls' arguments, where the held reply still has all of them.

    Else the record is returned unchanged.
    """
    from proxy.desk.decisions.waiting_calls import with_arguments
    from proxy.store.record.facts import NOT_KEPT
    from proxy.store.reviews.polls import stored_reply

    if recorded.review_id is None or "arguments" not in recorded.lacks:
        return recorded
    if (held := stored_reply(findings.engine, recorded.review_id)) is None:
        return recorded
    facts = with_arguments(recorded.facts, held)
    if any(call.arguments == NOT_KEPT for each in facts for call in each.tools):
        return recorded
    return replace(recorded, facts=facts, lacks=recorded.lacks - {"arguments"})


def _review_line(held: HoldState) -> str:
    """Return a line about a held reply: its id, state, who decided, how often it was asked for."""
    from proxy.store.reviews.held_replies import HELD

    state = held.state
    if state == HELD:
        state = "waits for a reviewer" if held.expires_at > time.time() else "expired"
    by = f" by {held.decided_by}" if held.decided_by else ""
    times = "once" if held.polls == 1 else f"{held.polls} times"
    poll_note = f"; its client asked again {times}" if held.polls else ""
    return f"review {held.review_id}: {state}{by}{poll_note}"


def _explain_record(
    recorded: RecordedExchange, policy: Policy, explanations: Sequence[Explanation]
) -> Iterator[str]:
    """Yield what a record says, what was decided then, and what the policy decides today.

    The last line says whether both decisions are the same.
    """
    from policies import strictest

    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(recorded.started_at))
    model_name = recorded.facts[0].model if recorded.facts else recorded.model
    model = plain((model_name or "none")[:NAME_SHOWN])
    yield f"{recorded.request_id} at {at}: model {model}, status {recorded.status}"
    if not recorded.facts:
        why = recorded.reason or recorded.error or recorded.confidence_status
        yield f"no policy decided on it: {why}"
        return
    score = "none" if recorded.confidence is None else f"{recorded.confidence:.4f}"
    yield f"confidence {score} ({recorded.confidence_status}) by {recorded.calibrator}"
    if recorded.facts[0].basis:
        yield _describe_basis(recorded.facts[0])
    yield f"then  {recorded.policy}: {_then(recorded)}"
    if recorded.would_action:
        yield f"      in shadow, so the action was {recorded.action}"
    if recorded.escalated_from:
        yield f"      escalated from {recorded.escalated_from}; below is what its reply led to"
    for rule, action in recorded.shadowed:
        yield f"      rule {rule} in shadow would {action}"
    lacks = sorted(recorded.lacks & policy.looks_at)
    if lacks and recorded.is_by(policy):
        yield f"now   the same version of the policy; its rules look at {', '.join(lacks)},"
        yield "      which the record does not keep, so they are not tried again"
        yield "the same decision"
        return
    for index, explanation in enumerate(explanations):
        choice = f" choice {index}," if len(explanations) > 1 else ""
        yield f"now{choice}  {explanation}"
    if lacks:
        yield f"the record lacks what a rule looks at: {', '.join(lacks)}"
    if open_ones := _list_possible(recorded, policy):
        yield "what it would be depends on that: " + "; ".join(open_ones)
        yield "whether the decision is the same cannot be told"
        return
    now = strictest(each.decision for each in explanations)
    yield "the same decision" if _is_same(recorded, now) else "another decision than then"


def _describe_basis(facts: Facts) -> str:
    """Return a line on what the confidence of a choice is based on, and other findings."""
    parts = [f"based on {', '.join(facts.basis)}"]
    parts += [f"support {facts.support:.4f}"] if facts.support is not None else []
    parts += [f"act {facts.act}"] if facts.act not in (None, "answer") else []
    parts += ["needs facts from outside"] if facts.needs_facts else []
    parts += ["an unfamiliar task"] if facts.familiar is False else []
    return "; ".join(parts)


def _list_possible(recorded: RecordedExchange, policy: Policy) -> list[str]:
    """Return the possible decisions of each choice that the record leaves open, as text.

    Empty where the record has all that the policy looks at.
    """
    from policies import describe_decisions, possible_decisions

    decisions = (possible_decisions(policy, facts, recorded.lacks) for facts in recorded.facts)
    return [describe_decisions(possible) for possible in decisions if len(possible) > 1]


def _explained_values(
    recorded: RecordedExchange, policy: Policy, explanations: Sequence[Explanation]
) -> dict[str, object]:
    """Return the explanation as JSON values; `now` is None where it cannot be told."""
    from policies import facts_as_values, strictest

    lacks = sorted(recorded.lacks & policy.looks_at)
    then = {"policy": recorded.policy, "action": _then(recorded)}
    facts = [facts_as_values(facts) for facts in recorded.facts]
    values = {"request_id": recorded.request_id, "then": then, "facts": facts, "lacks": lacks}
    if lacks and recorded.is_by(policy):
        return {**values, "now": then, "is_same": True, "rules": []}
    now = strictest(each.decision for each in explanations) if explanations else None
    if _list_possible(recorded, policy):
        now = None
    return {
        **values,
        "now": {"policy": now.label, "action": now.action.name} if now else None,
        "is_same": _is_same(recorded, now) if now else None,
        "rules": [
            [{"rule": r.rule, "verdict": r.verdict, "reasons": r.reasons} for r in each.rules]
            for each in explanations
        ],
    }


def _then(recorded: RecordedExchange) -> str | None:
    """Return the action that the policy decided then; in shadow another one was taken."""
    return recorded.would_action or recorded.action


def _is_same(recorded: RecordedExchange, now: Decision) -> bool:
    """Return whether today's decision is by the same rule and of the same action as then.

    An escalation is the same where today's policy escalates: the record has its end, which depends
    on another reply than the facts.
    """
    if recorded.action == "escalate" or recorded.escalated_from:
        return now.action.name == "escalate"
    rule = now.label.partition("/")[2].partition("@")[0]
    return rule == recorded.rule and now.action.name in (_then(recorded), "escalate")
