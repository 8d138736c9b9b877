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
        exchange = find(findings.engine, request_id)
        if exchange is None:
            raise stop(ExitStatus.FAILED, f"there is no record of {request_id}")
        exchange = _with_held_arguments(exchange, findings)
        held = hold_state_of(findings.engine, exchange.review_id) if exchange.review_id else None
        namesakes = [] if policy else [p for p in setup.book if p.name == exchange.policy_name]
        now = without_withdrawn(next(iter(namesakes), setup.policy), findings)
    explanations = [run(now, facts) for facts in exchange.facts]
    is_poll = request_id not in (exchange.request_id, exchange.review_id)
    if as_json:
        values = _explained_values(exchange, now, explanations)
        poll = {"is_poll": is_poll, "review": held and held._asdict()}
        typer.echo(json.dumps(values | poll))
        return
    if is_poll:
        typer.echo(f"{request_id} asked again for the reply that is held as {exchange.review_id}")
    for paragraph in _explain_record(exchange, now, explanations):
        typer.echo("\n".join(plain(line) for line in paragraph.split("\n")))
    if exchange.policy and not (policy or namesakes):
        typer.echo(
            f"policy {plain(exchange.policy_name)} {NOT_CONFIGURED}; explain by it with --policy"
        )
    if held is not None:
        typer.echo(_review_line(held))


def _with_held_arguments(exchange: RecordedExchange, findings: VerdictStore) -> RecordedExchange:
    """Return the record with its calls' arguments, where the held reply still has all of them.

    Else the record is returned unchanged.
    """
    from proxy.desk.decisions.waiting_calls import with_arguments
    from proxy.store.record.facts import NOT_KEPT
    from proxy.store.reviews.polls import stored_reply

    if exchange.review_id is None or "arguments" not in exchange.lacks:
        return exchange
    if (held := stored_reply(findings.engine, exchange.review_id)) is None:
        return exchange
    facts = with_arguments(exchange.facts, held)
    if any(call.arguments == NOT_KEPT for each in facts for call in each.tools):
        return exchange
    return replace(exchange, facts=facts, lacks=exchange.lacks - {"arguments"})


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
    exchange: RecordedExchange, policy: Policy, explanations: Sequence[Explanation]
) -> Iterator[str]:
    """Yield what a record says, what was decided then, and what the policy decides today.

    The last line says whether both decisions are the same.
    """
    from policies import strictest

    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(exchange.started_at))
    model_name = exchange.facts[0].model if exchange.facts else exchange.model
    model = plain((model_name or "none")[:NAME_SHOWN])
    yield f"{exchange.request_id} at {at}: model {model}, status {exchange.status}"
    if not exchange.facts:
        why = exchange.reason or exchange.error or exchange.confidence_status
        yield f"no policy decided on it: {why}"
        return
    score = "none" if exchange.confidence is None else f"{exchange.confidence:.4f}"
    yield f"confidence {score} ({exchange.confidence_status}) by {exchange.calibrator}"
    if exchange.facts[0].basis:
        yield _describe_basis(exchange.facts[0])
    yield f"then  {exchange.policy}: {_then(exchange)}"
    if exchange.would_action:
        yield f"      in shadow, so the action was {exchange.action}"
    if exchange.escalated_from:
        yield f"      escalated from {exchange.escalated_from}; below is what its reply led to"
    for rule, action in exchange.shadowed:
        yield f"      rule {rule} in shadow would {action}"
    lacks = sorted(exchange.lacks & policy.looks_at)
    if lacks and exchange.is_by(policy):
        yield f"now   the same version of the policy; its rules look at {', '.join(lacks)},"
        yield "      which the record does not keep, so they are not tried again"
        yield "the same decision"
        return
    for index, explanation in enumerate(explanations):
        choice = f" choice {index}," if len(explanations) > 1 else ""
        yield f"now{choice}  {explanation}"
    if lacks:
        yield f"the record lacks what a rule looks at: {', '.join(lacks)}"
    if open_ones := _list_possible(exchange, policy):
        yield "what it would be depends on that: " + "; ".join(open_ones)
        yield "whether the decision is the same cannot be told"
        return
    now = strictest(each.decision for each in explanations)
    yield "the same decision" if _is_same(exchange, now) else "another decision than then"


def _describe_basis(facts: Facts) -> str:
    """Return a line on what the confidence of a choice is based on, and other findings."""
    parts = [f"based on {', '.join(facts.basis)}"]
    parts += [f"support {facts.support:.4f}"] if facts.support is not None else []
    parts += [f"act {facts.act}"] if facts.act not in (None, "answer") else []
    parts += ["needs facts from outside"] if facts.needs_facts else []
    parts += ["an unfamiliar task"] if facts.familiar is False else []
    return "; ".join(parts)


def _list_possible(exchange: RecordedExchange, policy: Policy) -> list[str]:
    """Return the possible decisions of each choice that the record leaves open, as text.

    Empty where the record has all that the policy looks at.
    """
    from policies import describe_decisions, possible_decisions

    decisions = (possible_decisions(policy, facts, exchange.lacks) for facts in exchange.facts)
    return [describe_decisions(possible) for possible in decisions if len(possible) > 1]


def _explained_values(
    exchange: RecordedExchange, policy: Policy, explanations: Sequence[Explanation]
) -> dict[str, object]:
    """Return the explanation as JSON values; `now` is None where it cannot be told."""
    from policies import facts_as_values, strictest

    lacks = sorted(exchange.lacks & policy.looks_at)
    then = {"policy": exchange.policy, "action": _then(exchange)}
    facts = [facts_as_values(facts) for facts in exchange.facts]
    values = {"request_id": exchange.request_id, "then": then, "facts": facts, "lacks": lacks}
    if lacks and exchange.is_by(policy):
        return {**values, "now": then, "is_same": True, "rules": []}
    now = strictest(each.decision for each in explanations) if explanations else None
    if _list_possible(exchange, policy):
        now = None
    return {
        **values,
        "now": {"policy": now.label, "action": now.action.name} if now else None,
        "is_same": _is_same(exchange, now) if now else None,
        "rules": [
            [{"rule": r.rule, "verdict": r.verdict, "reasons": r.reasons} for r in each.rules]
            for each in explanations
        ],
    }


def _then(exchange: RecordedExchange) -> str | None:
    """Return the action that the policy decided then; in shadow another one was taken."""
    return exchange.would_action or exchange.action


def _is_same(exchange: RecordedExchange, now: Decision) -> bool:
    """Return whether today's decision is by the same rule and of the same action as then.

    An escalation is the same where today's policy escalates: the record has its end, which depends
    on another reply than the facts.
    """
    if exchange.action == "escalate" or exchange.escalated_from:
        return now.action.name == "escalate"
    rule = now.label.partition("/")[2].partition("@")[0]
    return rule == exchange.rule and now.action.name in (_then(exchange), "escalate")
