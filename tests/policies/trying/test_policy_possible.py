"""Possible decisions where a record lacks facts: a missing fact never counts as matched."""

from __future__ import annotations

import itertools
import json

import pytest

from policies import (
    Exchange,
    Facts,
    ToolCall,
    decide,
    load_policy,
    parse_policy,
    possible_decisions,
    replay,
)

ARGUMENTS = frozenset({"arguments"})
TEXT = """
version: 1
name: gate
rules:
  - {name: large, when: {tools: [{name: "pay*", arguments: {amount: {above: 9}}}]}, then: block}
  - {name: named, when: {tools: [delete_row]}, then: hold}
  - {name: unsure, when: {confidence: {below: 0.5}, tools: any}, then: {hold: {queue: unsure}}}
  - {name: seen, when: {tools: any}, then: block, shadow: true}
default: deliver
"""
GATE = parse_policy(TEXT, "gate.yaml")


def facts(*names: str, confidence: float | None = 0.9, arguments: str = "{}") -> Facts:
    return Facts(confidence, "m", tools=tuple(ToolCall(name, arguments) for name in names))


def actions(*names: str, confidence: float | None = 0.9) -> list[str]:
    found = possible_decisions(GATE, facts(*names, confidence=confidence), ARGUMENTS)
    return sorted(each.action.name for each in found)


def test_only_rules_on_what_is_lacking_are_open() -> None:
    """Only rules on missing facts are open; a name that does not match excludes a rule."""
    assert actions() == ["deliver"]
    assert actions("search") == ["deliver"]
    assert actions("delete_row") == ["hold"]
    assert actions("pay_bill") == ["block", "deliver"]
    assert actions("pay_bill", confidence=0.2) == ["block", "hold"]
    assert actions("pay_bill", "delete_row") == ["block", "hold"]


def test_without_a_score_a_rule_that_needs_one_decides_by_on_score_error() -> None:
    """Without a score a rule that needs one gives way to `on_score_error`, as live."""
    found = possible_decisions(GATE, facts("pay_bill", confidence=None), ARGUMENTS)
    assert [each.rule for each in found] == ["large", "on_score_error"]


def test_what_the_same_version_decided_is_no_question() -> None:
    """A label of the same policy version picks its decision; another version's picks none."""
    for amount in (5, 50):
        whole = decide(GATE, facts("pay_bill", arguments=json.dumps({"amount": amount})))
        assert [
            each.action
            for each in possible_decisions(GATE, facts("pay_bill"), ARGUMENTS, whole.label)
        ] == [whole.action]
    assert len(possible_decisions(GATE, facts("pay_bill"), ARGUMENTS, "gate/large@other")) == 2


@pytest.mark.parametrize("pack", ["agent-tools", "helpdesk", "finance"])
def test_the_truth_is_among_what_is_possible(pack: str) -> None:
    """The true decision is always among the possible ones."""
    policy = load_policy(pack)
    names = ("transfer_money", "run_sql", "bash", "get_weather", "refund_order", "http_request")
    texts = ("{}", '{"amount": 5000}', '{"sql": "DROP TABLE t"}', "[", '{"method": "POST"}')
    calls = [ToolCall(name, text) for name in names for text in texts]
    pairs = list(itertools.product(calls, calls))[::7]
    for tools in [(call,) for call in calls] + pairs:
        for confidence in (None, 0.2, 0.7, 0.99):
            true = Facts(confidence, "m", tools=tools)
            bare = Facts(confidence, "m", tools=tuple(ToolCall(c.name, "?") for c in tools))
            possible = possible_decisions(policy, bare, ARGUMENTS)
            assert decide(policy, true).label in {each.label for each in possible}


def test_a_replay_gives_a_range_and_keeps_recorded_decisions() -> None:
    """A replay gives a range where decisions are open, and keeps recorded ones."""
    others = parse_policy(TEXT.replace("above: 9", "above: 99"), "gate.yaml")
    amounts = [50] * 11 + [5] * 2
    read = [
        Exchange(
            facts("pay_bill"),
            lacks=ARGUMENTS,
            label=decide(GATE, facts("pay_bill", arguments=json.dumps({"amount": amount}))).label,
        )
        for amount in amounts
    ]
    same = replay(GATE, read, before=GATE)
    assert "15.4% of 13 replies delivered" in str(same)
    assert (same.after.unknown, same.lacks, same.unknown) == (0, {}, 0)
    found = replay(others, read, before=GATE)
    assert (found.after.coverage, found.after.most_coverage) == (0.0, 1.0)
    assert "between 0.0% and 100.0% of 13 replies delivered" in str(found)
    assert "  13 of them cannot be told: the record lacks 'arguments'" in str(found)
    assert (found.changes, found.unknown, found.lacks) == ({}, 13, {"arguments": 13})
    assert "0 to 13 of 13 replies are treated differently" in str(found)


def test_an_open_cost_has_two_ends() -> None:
    """Cost has a lower and an upper end where decisions are open."""
    text = TEXT.replace("then: block}", "then: hold}") + "costs: {deliver: 1, manual: 10}\n"
    after = replay(parse_policy(text, "p"), [Exchange(facts("pay_x"), lacks=ARGUMENTS)] * 3).after
    assert (after.cost, after.most_cost) == (3, 30)
    assert "cost: 3.00 to 30.00 USD; all by hand: 30.00 USD" in str(after)
