"""Properties of every valid policy and all facts."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from policies import (
    Decision,
    Facts,
    Policy,
    decide,
    decide_calls,
    explain,
    facts_as_values,
    facts_from_values,
    lint,
    strictest,
)
from policies.deciding.actions import SEVERITY, severity
from tests.builders.policy_strategies import (
    bands,
    counts,
    documents,
    facts,
    glob_lists,
    parsed,
    policies,
    tools,
    whens_and_actions,
)


def fresh_decision(policy: Policy, given_facts: Facts) -> Decision:
    """Return the decision without using earlier ones."""
    policy.decisions.clear()
    return decide(policy, given_facts)


@given(policies, facts)
def test_any_valid_policy_gives_exactly_one_decision_for_any_facts(
    policy: Policy, given_facts: Facts
) -> None:
    """Any facts give one decision, always the same, with an action of the policy."""
    decision = fresh_decision(policy, given_facts)
    assert fresh_decision(policy, given_facts) == decision == decide(policy, given_facts)
    places = {rule.name: rule.then for rule in policy.rules}
    places |= {"default": policy.default, "on_score_error": policy.on_score_error}
    assert decision.action == places[decision.rule]
    assert decision.action.name in SEVERITY
    assert decision.is_enforced or decision.applied.name == "deliver"


@given(documents(), whens_and_actions, st.booleans(), facts)
def test_a_rule_below_changes_nothing_that_matched_above(
    document: dict[str, Any], rule: dict[str, Any], is_shadow: bool, given_facts: Facts
) -> None:
    """One more rule at the end does not change what a rule above decided."""
    longer = deepcopy(document)
    longer["rules"].append({"name": "below", **rule, "shadow": is_shadow})
    if "max_error" in rule["when"].get("confidence", {}):
        longer["default"] = document["default"] = "hold"
    given_facts.tools = given_facts.tools[:1]
    before, after = decide(parsed(document), given_facts), decide(parsed(longer), given_facts)
    if before.because != "default":
        assert (after.rule, after.action, after.shadowed) == (
            before.rule,
            before.action,
            before.shadowed,
        )
    else:
        assert after.rule in ("below", "default", "on_score_error")


@given(
    st.integers(1, 98), st.integers(1, 50), st.booleans(), st.sampled_from(["hold", "block"]), facts
)
def test_a_stricter_threshold_never_delivers_more(
    threshold: int, stricter: int, is_allowed: bool, then: str, given_facts: Facts
) -> None:
    """A higher threshold never delivers more."""

    def policy(percent: int) -> Policy:
        confidence = "at_least" if is_allowed else "below"
        rule = {
            "name": "gate",
            "when": {"confidence": {confidence: percent / 100}},
            "then": "deliver" if is_allowed else then,
        }
        default = then if is_allowed else "deliver"
        return parsed({"version": 1, "name": "p", "rules": [rule], "default": default})

    lax = decide(policy(threshold), given_facts)
    strict = decide(policy(min(99, threshold + stricter)), given_facts)
    assert severity(strict.action) >= severity(lax.action)


@given(policies, facts)
def test_parallel_calls_are_as_strict_as_the_strictest_of_them(
    policy: Policy, given_facts: Facts
) -> None:
    """Parallel calls are decided at least as strictly as the strictest of them alone."""
    decision = decide(policy, given_facts)
    each = decide_calls(policy, given_facts)
    assert len(each) == len(given_facts.tools)
    if policy.looks_at_tools and each:
        assert severity(decision.action) >= severity(strictest(each).action)


@given(policies, facts)
def test_the_explanation_agrees_with_the_decision(policy: Policy, given_facts: Facts) -> None:
    """The explanation's deciding rule is the decision's."""
    given_facts.tools = given_facts.tools[:1]
    explanation = explain(policy, given_facts)
    decision = decide(policy, given_facts)
    assert explanation.decision == decision
    assert len(explanation.rules) == len(policy.rules) + (decision.rule == "default")
    deciding = [trace for trace in explanation.rules if trace.verdict in ("matched", "no score")]
    assert len(deciding) == 1
    if decision.because != "score_error":
        assert deciding[0].rule == decision.rule
    shadowed = [trace.rule for trace in explanation.rules if trace.verdict == "shadowed"]
    assert shadowed == [each.rule for each in decision.shadowed]
    assert all(trace.reasons and all(trace.reasons) for trace in explanation.rules)


narrow_rules = st.fixed_dictionaries(
    {
        "when": st.fixed_dictionaries(
            {"confidence": bands},
            optional={"model": glob_lists, "tools": tools, "length": counts(0)},
        ),
        "then": st.sampled_from(["hold", "block", "deliver"]),
    }
)


@given(st.lists(narrow_rules, min_size=2, max_size=6), st.lists(facts, min_size=5, max_size=20))
def test_an_unreachable_rule_never_decides(
    rules: list[dict[str, Any]], many_facts: list[Facts]
) -> None:
    """No facts lead to a rule that a warning calls unreachable."""
    named = [{"name": f"r{index}"} | rule for index, rule in enumerate(rules)]
    policy = parsed({"version": 1, "name": "p", "rules": named, "default": "hold"})
    messages = [warning.message for warning in lint(policy)]
    unreachable = {
        rule.name
        for rule in policy.rules
        if any(each.startswith(f"rule {rule.name!r} can never match") for each in messages)
    }
    for given_facts in many_facts:
        given_facts.tools = given_facts.tools[:1]
        assert decide(policy, given_facts).rule not in unreachable


@given(facts)
def test_facts_survive_being_recorded(given_facts: Facts) -> None:
    """Facts survive being recorded and read, also through JSON."""
    values = json.loads(json.dumps(facts_as_values(given_facts)))
    assert facts_from_values(values, "record") == given_facts
