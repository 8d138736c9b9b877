"""Replay: a policy's decisions on recorded exchanges, with errors, reviews and cost."""

from __future__ import annotations

import math
import random

import pytest

from policies import (
    Costs,
    Escalate,
    Exchange,
    Facts,
    Hold,
    Policy,
    ToolCall,
    load_policy,
    parse_policy,
    replay,
)
from policies.deciding.actions import Annotate, Block, Clarify, Deliver


def gate(threshold: float, more: str = "") -> Policy:
    return parse_policy(
        f"version: 1\nname: gate\n{more}\nrules:\n"
        f"- {{name: unsure, when: {{confidence: {{below: {threshold}}}}}, then: hold}}\n"
        "- {name: tools, when: {tools: any}, then: {hold: {queue: tools}}}\n"
        "default: deliver\n",
        "p.yaml",
    )


def exchange(confidence: float | None, label: bool | None = None, *tools: str) -> Exchange:
    facts = Facts(confidence, "m", tools=tuple(map(ToolCall, tools)))
    return Exchange(facts, label, at_s=86_400.0 * (confidence or 0.0))


EXCHANGES = [
    *[exchange(0.1 * n, n > 4) for n in range(10)],
    exchange(0.9, None, "send"),
    exchange(None),
]


def test_both_policies_and_all_changes_are_counted() -> None:
    """Actions, rules and queues of both policies are counted, and all changes."""
    found = replay(gate(0.7), EXCHANGES, before=gate(0.35))
    assert found.before is not None
    assert found.before.actions == {"hold": 6, "deliver": 6}
    assert found.after.actions == {"hold": 9, "deliver": 3}
    assert found.after.coverage == 0.25
    assert found.after.queues == {"review": 8, "tools": 1}
    assert found.after.rules["hold by rule 'unsure'"] == 7
    assert found.changes == {("deliver by default", "hold by rule 'unsure'"): 3}
    assert "3 of 12 replies are treated differently" in str(found)
    assert "review queue tools: 1 (8.3%, 1.1 a day)" in str(found)


@pytest.mark.parametrize(
    ("old", "new", "differences"),
    [
        ("{hold: {queue: a}}", "{hold: {queue: b}}", ("queue a", "queue b")),
        (
            "{hold: {expires: 30m}}",
            "{hold: {expires: 1h, reply: error}}",
            ("reply not given, expires 1800 s", "reply error, expires 3600 s"),
        ),
        ("block", "{block: {message: Ask us.}}", ("message not given", "message Ask us.")),
        (
            "{escalate: {to: big}}",
            "{escalate: {to: [big, huge], otherwise: block}}",
            ("otherwise not given, further none", "otherwise block, further huge"),
        ),
    ],
)
def test_a_change_within_a_rule_shows_its_difference(
    old: str, new: str, differences: tuple[str, str]
) -> None:
    """A change is shown by its difference if action and rule are the same."""
    before, after = (
        parse_policy(f"version: 1\nname: p\ndefault: {action}\n", "p.yaml") for action in (old, new)
    )
    [(was, becomes)] = replay(after, [exchange(0.5)], before=before).changes
    name = before.default.name
    assert (was, becomes) == tuple(f"{name} by default ({each})" for each in differences)


def test_a_policy_in_shadow_is_replayed_as_if_it_were_enforced() -> None:
    """A policy in shadow is replayed as if it were enforced, and the output says so."""
    shadow = replay(gate(0.5, "mode: shadow"), [exchange(0.1)]).after
    assert shadow.actions == {"hold": 1}
    assert ", in shadow, as if it were enforced: 0.0% of 1 reply delivered" in str(shadow)
    assert "shadow" not in str(replay(gate(0.5), [exchange(0.1)]).after)


def test_errors_come_with_their_interval() -> None:
    """Labelled errors have an exact interval; expected ones follow from the confidences."""
    errors = replay(gate(0.35), EXCHANGES).after.errors
    assert (errors.labelled, errors.wrong) == (6, 1)
    assert errors.rate == pytest.approx((0.0042, 0.6412), abs=1e-4)
    assert errors.scored == 6
    assert errors.expected == pytest.approx(6 - sum((0.4, 0.5, 0.6, 0.7, 0.8, 0.9)))
    spread = 1.96 * math.sqrt(sum(c * (1 - c) for c in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)))
    assert errors.high - errors.expected == pytest.approx(spread, abs=0.01)
    assert errors.low == pytest.approx(max(0.0, errors.expected - spread), abs=0.01)


def test_replies_of_one_conversation_are_decided_each_and_judged_once() -> None:
    """Each reply of a conversation is decided, and one of them counts for errors and shares."""
    turns = [
        Exchange(Facts(0.9, "m", conversation=f"c{n // 4}"), False if n == 1 else None)
        for n in range(8)
    ]
    after = replay(gate(0.5), turns).after
    assert after.actions == {"deliver": 8}
    errors = after.errors
    assert (errors.labelled, errors.wrong, errors.scored) == (1, 1, 2)
    lowest = parse_policy(
        "version: 1\nname: lowest\nrules:\n"
        "- {name: least sure, when: {confidence: {lowest_share: 0.1}}, then: hold}\n"
        "default: deliver\n",
        "p.yaml",
    )
    chats = [Exchange(Facts(0.9, "m", conversation=f"c{n % 60}")) for n in range(180)]
    assert replay(lowest, [*chats, exchange(0.1)]).after.actions == {"deliver": 181}
    others = [exchange(0.9) for _ in range(100)]
    assert replay(lowest, [*others, exchange(0.1)]).after.actions["hold"] == 1


def test_a_replay_of_a_minute_says_nothing_of_a_day() -> None:
    """Reviews a day are shown for a record of a day or more."""
    for days, is_told in ((0.0007, False), (0.5, False), (1.0, True)):
        found = [Exchange(Facts(0.1, "m"), None, n * days * 86_400) for n in range(2)]
        assert ("a day" in str(replay(gate(0.5), found))) is is_told


def test_nothing_is_known_of_no_errors() -> None:
    """A replay of no exchanges is empty and divides by nothing."""
    found = replay(gate(0.5), [])
    assert (found.after.replies, found.after.coverage, found.after.days) == (0, 0.0, None)
    assert "nothing is known" in str(found)


@pytest.mark.parametrize(
    ("action", "cost"),
    [
        (Deliver(), 1.0),
        (Annotate("x"), 1.0),
        (Clarify(), 2.0),
        (Block(), 0.0),
        (Hold("nurse"), 10.0),
        (Hold("other"), 25.0),
        (Escalate("big"), 1.5),
        (Escalate("big", otherwise=Hold("nurse")), 10.5),
    ],
)
def test_every_action_has_its_price(action: object, cost: float) -> None:
    """Every action has its price; a queue without one costs as much as work by hand."""
    costs = Costs("EUR", deliver=1, escalate=0.5, clarify=2, manual=25, queues={"nurse": 10})
    assert costs.of(action) == cost  # type: ignore[arg-type]


def test_money_is_summed_with_the_cost_of_delivered_errors() -> None:
    """Costs come from the policy or the argument, and include the cost of delivered errors."""
    stated = gate(0.35, "costs: {deliver: 1, error: 100, manual: 10, queues: {review: 5}}")
    after = replay(stated, EXCHANGES).after
    assert (after.cost, after.manual_cost, after.currency) == (6 + 5 * 5 + 10 + 100, 120, "USD")
    replaced = replay(stated, EXCHANGES, costs=Costs("EUR", deliver=2)).after
    assert (replaced.cost, replaced.currency) == (12, "EUR")
    assert replay(gate(0.35), EXCHANGES).after.cost is None


def test_the_healthcare_pack_costs_what_its_tiers_imply() -> None:
    """The healthcare pack's cost of 1,006 replies is about 12,998 dollars (Q04, V31)."""
    tiers = [0.9] * 342 + [0.6] * 251 + [0.2] * 413
    after = replay(load_policy("healthcare"), map(exchange, tiers)).after
    assert after.cost == 342 * 0.5 + 251 * 10 + 413 * 25 == pytest.approx(12_998, abs=10)
    assert after.manual_cost == 25_150


def test_facts_that_were_not_recorded_are_named() -> None:
    """The output names the missing facts that a rule needs, with the number of replies."""
    lacking = [Exchange(Facts(0.9, "m"), lacks=frozenset({"tools", "team"}))] * 3
    found = replay(gate(0.5), [*lacking, exchange(0.9)])
    assert found.lacks == {"tools": 3}
    assert "3 replies lack 'tools', which a rule looks at" in str(found)


def test_the_least_sure_share_is_found_on_the_way() -> None:
    """A missing `lowest_share` is computed from the model's earlier replies."""
    policy = parse_policy(
        "version: 1\nname: p\ndefault: deliver\nrules:\n"
        "- {name: least sure, when: {confidence: {lowest_share: 0.1}}, then: hold}",
        "p.yaml",
    )
    rng = random.Random(1)
    after = replay(policy, [exchange(rng.random()) for _ in range(2_000)]).after
    assert after.actions["hold"] / 1_900 == pytest.approx(0.1, abs=0.02)
    few = replay(policy, [exchange(rng.random()) for _ in range(100)]).after
    assert few.actions == {"deliver": 100}
