"""Decisions: the first rule that matches, a missing score, shadow mode, and escalations."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import (
    Block,
    Clarify,
    Decision,
    Deliver,
    Escalate,
    Facts,
    Hold,
    Policy,
    ToolCall,
    after_escalation,
    decide,
    parse_policy,
    strictest,
)
from policies.deciding.actions import severity

LADDER = """
version: 1
name: ladder
mode: {mode}
on_score_error: {on_score_error}
rules:
  - name: irreversible tools
    when: {{tools: ["send*"], confidence: {{below: 0.95}}}}
    then: {{hold: {{queue: oncall}}}}
  - name: Very unsure!
    when: {{confidence: {{below: 0.2}}}}
    then: block
  - name: unsure
    when: {{confidence: {{below: 0.5}}, model: "small-*"}}
    then: {{escalate: {{to: big, otherwise: {{hold: {{queue: senior}}}}}}}}
  - name: other models
    when: {{confidence: {{below: 0.5}}}}
    then: {{escalate: {{to: big}}}}
  - name: short
    when: {{finish_reason: length}}
    then: clarify
default: deliver
"""


@cache
def ladder(mode: str = "enforce", on_score_error: str = "hold") -> Policy:
    return parse_policy(LADDER.format(mode=mode, on_score_error=on_score_error), "ladder.yaml")


def facts(
    confidence: float | None, *tools: str, model: str = "small-1", finish_reason: str = "stop"
) -> Facts:
    calls = tuple(ToolCall(name) for name in tools)
    return Facts(confidence, model, tools=calls, finish_reason=finish_reason)


@pytest.mark.parametrize(
    ("given_facts", "action", "rule"),
    [
        (facts(0.9), Deliver(), "default"),
        (facts(0.9, "send_email"), Hold("oncall"), "irreversible tools"),
        (facts(0.1, "send_email"), Hold("oncall"), "irreversible tools"),
        (facts(0.95, "send_email"), Deliver(), "default"),
        (facts(0.1), Block(), "Very unsure!"),
        (facts(0.2), Escalate("big", otherwise=Hold("senior")), "unsure"),
        (facts(0.2, model="other"), Escalate("big"), "other models"),
        (facts(0.9, finish_reason="length"), Clarify(), "short"),
    ],
)
def test_the_first_rule_that_matches_decides(given_facts: Facts, action: object, rule: str) -> None:
    """The first rule that matches decides, otherwise the default."""
    decision = decide(ladder(), given_facts)
    assert (decision.action, decision.rule) == (action, rule)
    assert decision.because == ("default" if rule == "default" else "rule")
    assert decision.applied == action


@pytest.mark.parametrize(
    ("word", "action"), [("hold", Hold()), ("block", Block()), ("deliver", Deliver())]
)
def test_a_rule_that_lacks_only_the_score_hands_over_to_on_score_error(
    word: str, action: object
) -> None:
    """A rule that lacks only the score gives way to `on_score_error`."""
    decision = decide(ladder(on_score_error=word), facts(None))
    assert decision.action == action
    assert (decision.rule, decision.because) == ("on_score_error", "score_error")


def test_a_missing_score_matters_only_where_a_rule_needs_it() -> None:
    """A missing score matters only where a rule needs it and its other conditions hold."""
    policy = parse_policy(
        """
        version: 1
        name: p
        rules:
          - {name: tools, when: {tools: any, confidence: {below: 0.5}}, then: block}
          - {name: long, when: {finish_reason: length}, then: clarify}
        default: deliver
        """,
        "p.yaml",
    )
    assert policy.needs_score
    assert decide(policy, facts(None)).because == "default"
    assert decide(policy, facts(None, finish_reason="length")).rule == "long"
    assert decide(policy, facts(None, "x", finish_reason="length")).because == "score_error"


def test_a_broken_score_is_a_missing_one() -> None:
    """A score of NaN counts as missing."""
    assert decide(ladder(), facts(float("nan"))).because == "score_error"


def test_shadow_decides_and_applies_nothing() -> None:
    """In shadow mode the decision is the same and the reply is delivered."""
    decision = decide(ladder(mode="shadow"), facts(0.1))
    assert decision.action == Block()
    assert decision.applied == Deliver()
    assert not decision.is_enforced


def test_the_label_names_policy_rule_and_digest() -> None:
    """The label names policy, rule and digest."""
    policy = ladder()
    assert decide(policy, facts(0.1)).label == f"ladder/very-unsure@{policy.digest}"
    assert decide(policy, facts(0.9)).label == f"ladder/default@{policy.digest}"
    assert decide(policy, facts(None)).label == f"ladder/on_score_error@{policy.digest}"


def after(kept: Facts, policy: Policy | None = None) -> Decision:
    policy = policy or ladder()
    return after_escalation(policy, decide(policy, facts(0.3)), kept)


@pytest.mark.parametrize(
    ("kept", "action", "rule"),
    [
        (facts(0.7), Deliver(), "default"),
        (facts(0.3), Hold("senior"), "unsure"),
        (facts(0.3, model="other"), Deliver(), "other models"),
        (facts(None), Hold(), "on_score_error"),
        (facts(0.8, "send_email"), Hold("oncall"), "irreversible tools"),
        (facts(0.3, "send_email"), Hold("oncall"), "irreversible tools"),
        (facts(0.1), Block(), "Very unsure!"),
        (facts(0.7, finish_reason="length"), Clarify(), "short"),
    ],
)
def test_the_kept_reply_is_escalated_only_once(kept: Facts, action: object, rule: str) -> None:
    """All rules judge the kept reply, but a second escalation becomes `otherwise` or delivery."""
    decision = after(kept)
    assert (decision.action, decision.rule) == (action, rule)


def test_an_escalating_default_delivers_the_kept_reply() -> None:
    """A default that escalates delivers the kept reply."""
    text = "version: 1\nname: p\ndefault: {escalate: {to: big}}"
    policy = parse_policy(text, "p.yaml")
    decision = after(facts(0.1), policy)
    assert (decision.action, decision.rule, decision.because) == (Deliver(), "default", "default")


def test_a_decision_without_escalation_is_unchanged() -> None:
    """A decision that did not escalate is returned unchanged."""
    policy = ladder()
    held = decide(policy, facts(0.9, "send_email"))
    assert after_escalation(policy, held, facts(0.99)) is held


def test_the_strictest_decision_wins() -> None:
    """The strictest of several decisions wins, the first of equals."""
    policy = ladder()
    decisions = [decide(policy, facts(confidence)) for confidence in (0.9, 0.3, 0.1, 0.15, 0.6)]
    assert strictest(decisions) is decisions[2]
    assert strictest(decisions[:1]) is decisions[0]


probabilities = st.floats(0, 1)
some_facts = st.builds(
    Facts,
    confidence=st.none() | probabilities,
    model=st.sampled_from(["small-1", "small-2", "big"]),
    tools=st.lists(st.builds(ToolCall, st.sampled_from(["send", "look"])), max_size=2).map(tuple),
    finish_reason=st.sampled_from(["stop", "length", None]),
)


@given(probabilities, probabilities, st.floats(0.0001, 1))
def test_a_below_rule_is_monotone(one: float, other: float, threshold: float) -> None:
    """A surer reply is never treated more severely than a less sure one."""
    text = (
        "version: 1\nname: p\nrules:\n"
        f"- {{name: unsure, when: {{confidence: {{below: {threshold:.6f}}}}}, then: hold}}\n"
        "default: deliver"
    )
    policy = parse_policy(text, "p.yaml")
    unsure, sure = (decide(policy, facts(each)) for each in sorted((one, other)))
    assert severity(sure.action) <= severity(unsure.action)


@given(some_facts.filter(lambda facts: len(facts.tools) < 2))
def test_a_policy_decides_as_the_first_of_its_rules_that_does(given_facts: Facts) -> None:
    """A policy decides as the first of its rules that decides alone, otherwise by default."""
    policy = ladder()
    alone = [decide(replace(policy, rules=(rule,)), given_facts) for rule in policy.rules]
    default = decide(replace(policy, rules=()), given_facts)
    first = next((each for each in alone if each.because != "default"), default)
    assert decide(policy, given_facts) == first


@given(some_facts, some_facts)
def test_shadow_never_applies_anything(first: Facts, kept: Facts) -> None:
    """In shadow mode the applied action is delivery for all facts."""
    policy = ladder(mode="shadow")
    decision = decide(policy, first)
    assert decision.applied == Deliver()
    assert after_escalation(policy, decision, kept).applied == Deliver()
    assert decision.action == decide(ladder(on_score_error="hold"), first).action


@given(some_facts)
def test_nothing_is_escalated_twice(kept: Facts) -> None:
    """A decision after an escalation never escalates."""
    assert not isinstance(after(kept).action, Escalate)


# --- rules in shadow and ladders ----------------------------------------------------------------

TRIED = """
version: 1
name: tried
rules:
  - {name: strict, when: {confidence: {below: 0.9}}, then: block, shadow: true}
  - {name: long, when: {finish_reason: length}, then: clarify, shadow: true}
  - {name: unsure, when: {confidence: {below: 0.5}}, then: hold}
  - {name: late, when: {confidence: {below: 0.9}}, then: block, shadow: true}
default: deliver
"""


@pytest.mark.parametrize(
    ("given_facts", "rule", "shadowed"),
    [
        (facts(0.95), "default", []),
        (facts(0.8), "default", ["strict", "late"]),
        (facts(0.8, finish_reason="length"), "default", ["strict", "long", "late"]),
        (facts(0.4), "unsure", ["strict"]),
        (facts(None), "on_score_error", ["strict"]),
    ],
)
def test_a_rule_in_shadow_is_recorded_and_decides_nothing(
    given_facts: Facts, rule: str, shadowed: list[str]
) -> None:
    """A rule in shadow is recorded with its action and does not change the decision."""
    policy = parse_policy(TRIED, "p.yaml")
    decision = decide(policy, given_facts)
    assert decision.rule == rule
    assert [each.rule for each in decision.shadowed] == shadowed
    has_score = given_facts.confidence is not None
    would = (Block(), Clarify()) if has_score else (policy.on_score_error,)
    assert all(each.action in would for each in decision.shadowed)
    without = replace(policy, rules=tuple(r for r in policy.rules if not r.is_shadow))
    assert decide(without, given_facts).action == decision.action


def test_a_ladder_asks_one_model_after_the_other() -> None:
    """A ladder of escalations asks each model once, until the kept reply is not escalated."""
    text = """
    version: 1
    name: p
    rules:
      - name: unsure
        when: {confidence: {below: 0.5}}
        then: {escalate: {to: [mid, big, huge], otherwise: {hold: {queue: senior}}}}
    default: deliver
    """
    policy = parse_policy(text, "p.yaml")
    decision, models = decide(policy, facts(0.1)), []
    while isinstance(decision.applied, Escalate):
        models.append(decision.applied.to)
        decision = after_escalation(policy, decision, facts(0.2))
    assert models == ["mid", "big", "huge"]
    assert decision.action == Hold("senior")
    first = decide(policy, facts(0.1))
    assert after_escalation(policy, first, facts(0.9)).action == Deliver()


def test_the_memory_of_decisions_is_bounded() -> None:
    """The remembered decisions are at most 10,000, however many rules in shadow combine."""
    rules = "".join(
        f"- {{name: s{n}, when: {{tags: t{n}}}, then: block, shadow: true}}\n" for n in range(20)
    )
    policy = parse_policy(f"version: 1\nname: p\nrules:\n{rules}default: deliver", "p.yaml")
    for number in range(12_000):
        tags = frozenset(f"t{bit}" for bit in range(20) if number >> bit & 1)
        decision = decide(policy, Facts(0.5, "m", tags=tags))
        assert len(decision.shadowed) == len(tags)
    assert len(policy.decisions) <= 10_000


def test_rules_in_shadow_are_recorded_for_each_call() -> None:
    """Rules in shadow that any of the calls matches are recorded once."""
    text = """
    version: 1
    name: p
    rules:
      - {name: a, when: {tools: [send]}, then: block, shadow: true}
      - {name: b, when: {tools: [look]}, then: clarify, shadow: true}
      - {name: c, when: {tools: [send]}, then: deliver}
    default: hold
    """
    decision = decide(parse_policy(text, "p.yaml"), facts(0.9, "send", "look"))
    assert decision.action == Hold()
    assert [each.rule for each in decision.shadowed] == ["a", "b"]


def test_a_rule_in_shadow_without_a_score_would_do_what_it_would_do_live() -> None:
    """A rule in shadow that lacks a score is recorded with `on_score_error`, as if it were live."""
    text = (
        "{version: 1, name: p, on_score_error: {hold: {queue: q}}, default: deliver, rules: "
        "[{name: unsure, when: {confidence: {below: 0.5}}, then: block%s}]}"
    )
    facts = Facts(None, "m")
    live = decide(parse_policy(text % "", "p.yaml"), facts)
    shadowed = decide(parse_policy(text % ", shadow: true", "p.yaml"), facts)
    assert shadowed.rule == "default"
    assert [(each.rule, each.action) for each in shadowed.shadowed] == [("unsure", live.action)]
    assert live.action == Hold("q")
