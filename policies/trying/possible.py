"""The possible decisions of a policy on a reply whose record lacks facts.

    possible_decisions(policy, facts, frozenset({"arguments"}))   # (Hold.., Deliver..)

A condition on an unknown fact may hold or not: each rule that may match is one possibility, down
to the first that surely matches. Where the same version of the policy decided at the time, the
recorded `label` settles which. A range of possibilities holds the truth; to take a fact as matched,
or as missing, would be a guess.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from policies.conditions.conditions import Calls, ToolCalls, test_of
from policies.conditions.facts import Facts
from policies.conditions.tool_patterns import ToolPattern
from policies.deciding.decision import Decision, decide, decision_at, strictest
from policies.deciding.policy import Policy
from policies.deciding.rules import Rule

Lacks = frozenset[str]
"""Names of missing facts; `arguments` are those of tool calls, `marks` their marks and risks."""


def possible_decisions(
    policy: Policy, facts: Facts, lacks: Lacks, label: str | None = None
) -> tuple[Decision, ...]:
    """Return the policy's possible decisions, each once; a single one where the facts suffice.

    `lacks` names the facts that were not recorded. `label` is the label of the recorded decision,
    None where it is unknown or not based on these facts alone; where it is among the possible ones,
    only that decision is returned. Where facts are missing, the decisions do not name rules in
    shadow.
    """
    if lacks.isdisjoint(policy.looks_at):
        return (decide(policy, facts),)
    decisions = _possible(policy, facts, facts.tools, lacks)
    if len(facts.tools) > 1:
        for call in facts.tools:
            alone = _possible(policy, facts, (call,), lacks)
            decisions = _without_repeats(
                strictest((one, other)) for one in decisions for other in alone
            )
    return tuple(each for each in decisions if each.label == label) or decisions


def _without_repeats(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """Return the decisions without repeated labels, of each label the last one."""
    return tuple({each.label: each for each in decisions}.values())


def _possible(policy: Policy, facts: Facts, calls: Calls, lacks: Lacks) -> tuple[Decision, ...]:
    """Return the decisions of the rules that may match, down to the first that surely does.

    If none surely does, the default's decision is the last. Rules in shadow are left out.
    """
    found = []
    for index, rule in enumerate(policy.rules):
        holds = None if rule.is_shadow else _holds(rule, facts, calls, lacks)
        if rule.is_shadow or holds is False:
            continue
        is_without_score = rule.when.needs_score and facts.confidence is None
        found.append(decision_at(policy, (index, is_without_score, ())))
        if holds:
            return tuple(found)
    return (*found, decision_at(policy, (-1, False, ())))


def _holds(rule: Rule, facts: Facts, calls: Calls, lacks: Lacks) -> bool | None:
    """Return whether the rule's conditions hold, None where that depends on missing facts.

    False if any condition surely fails.
    """
    each = [
        _condition_holds(rule, name, facts, calls, lacks) for name in rule.when.condition_names()
    ]
    if False in each:
        return False
    return None if None in each else True


def _condition_holds(
    rule: Rule, name: str, facts: Facts, calls: Calls, lacks: Lacks
) -> bool | None:
    """Return whether the condition called `name` holds, None where missing facts decide it.

    `lacks` names the missing facts; a condition on tools may still fail by the tools' names.
    """
    fact = "tools" if name == "calls" else name
    if fact in lacks:
        return None
    if name == "risk" and "marks" in lacks:
        return None if calls else False
    if name == "tools" and rule.when.tools is not None and not lacks.isdisjoint(_OF_CALLS):
        return _names_match(rule.when.tools, calls, lacks)
    return test_of(rule.when, name)(facts, calls)


_OF_CALLS: Final = ("arguments", "marks")


def _names_match(tools: ToolCalls, calls: Calls, lacks: Lacks) -> bool | None:
    """Return whether `calls`, whose arguments or marks are unknown, match; None where that is open.

    True if a pattern fits that needs nothing unknown, False if no pattern's known parts fit.
    Without patterns the condition is that there is no call.
    """
    if tools.patterns is None:
        return not calls
    named = [
        each
        for call in calls
        for each in tools.patterns
        if each.matched_name(call) and ("marks" in lacks or each.has_notes(call))
    ]
    if any(_is_settled(each, lacks) for each in named):
        return True
    return None if named else False


def _is_settled(pattern: ToolPattern, lacks: Lacks) -> bool:
    """Return whether the pattern needs none of the missing arguments and marks.

    Its name is known to match.
    """
    knows_arguments = "arguments" not in lacks or not pattern.arguments
    return knows_arguments and not ("marks" in lacks and pattern.needs_notes)
