"""Explanations of a decision: each rule with each of its conditions, in words.

print(explain(policy, facts))
#   no   'irreversible tools'   tools: no call matches
# shadow 'strict'               would hold
#  yes   'unsure'               hold; confidence 0.4100 is below 0.5
#        'unclear question'     not reached
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from policies.conditions.conditions import Calls, When, test_of
from policies.conditions.confidence import Confidence, LowestShare, MaxError
from policies.conditions.facts import Facts
from policies.conditions.findings import ON_FINDINGS, finding_reason
from policies.conditions.globs import Globs
from policies.counting import plural
from policies.deciding.decision import Decision, decide, decide_calls
from policies.deciding.policy import Policy
from policies.deciding.rules import Rule
from policies.reading.reading import either
from policies.trying.matches import held_reasons

Verdict: TypeAlias = Literal["matched", "shadowed", "no score", "not matched", "not evaluated"]

_LABELS: Final = {
    "matched": "yes",
    "shadowed": "shadow",
    "no score": "?",
    "not matched": "no",
    "not evaluated": "",
}


@dataclass(frozen=True, slots=True)
class Trace:
    """The verdict on one rule.

    `reasons` are the conditions that did not hold, or else the action and why the conditions hold,
    such as the pattern that matched.
    """

    rule: str
    line: int
    verdict: Verdict
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        """Return one line: `yes`, `shadow`, `?`, `no` or nothing, then the rule and its reasons."""
        return f"{_LABELS[self.verdict]:>6}  {self.rule}: {'; '.join(self.reasons)}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The decision with its trace; with several tool calls, `calls` explain each alone."""

    decision: Decision
    rules: tuple[Trace, ...]
    calls: tuple[tuple[str, Decision, tuple[Trace, ...]], ...] = ()

    def __str__(self) -> str:
        """Return a line for the decision and for each rule, then the same for each call alone."""
        decision = self.decision
        lines = [f"{decision.label}: {decision.action.name}", *map(str, self.rules)]
        if not decision.is_enforced:
            lines[0] += " in shadow, so the reply is delivered"
        for call, alone, traces in self.calls:
            lines += [f"call of {call} alone: {alone.action.name}", *map(str, traces)]
        return "\n".join(lines)


def explain(policy: Policy, facts: Facts) -> Explanation:
    """Return the decision `decide(policy, facts)` with the verdict on each rule, in their order.

    With two or more tool calls, in a policy that looks at tools, `calls` has (name, decision,
    traces) for each call alone; otherwise it is empty.
    """
    decision = decide(policy, facts)
    calls: tuple[tuple[str, Decision, tuple[Trace, ...]], ...] = ()
    if len(facts.tools) > 1 and policy.looks_at_tools:
        calls = tuple(
            (call.name, alone, _traces(policy, facts, (call,)))
            for call, alone in zip(facts.tools, decide_calls(policy, facts), strict=True)
        )
    return Explanation(decision, _traces(policy, facts, facts.tools), calls)


def _traces(policy: Policy, facts: Facts, calls: Calls) -> tuple[Trace, ...]:
    """Return the verdict on each rule about these calls, and on `default` if no rule decides.

    Rules below the deciding one are `not evaluated`.
    """
    traces = []
    is_decided = False
    for rule in policy.rules:
        verdict, reasons = _explain_rule(rule, policy, facts, calls)
        if is_decided:
            verdict, reasons = "not evaluated", ("an earlier rule decided",)
        is_decided = is_decided or verdict in ("matched", "no score")
        traces.append(Trace(rule.name, rule.line, verdict, reasons))
    if not is_decided:
        then = (policy.default.name,)
        return (*traces, Trace("default", 0, "matched", then))
    return tuple(traces)


def _explain_rule(
    rule: Rule, policy: Policy, facts: Facts, calls: Calls
) -> tuple[Verdict, tuple[str, ...]]:
    """Return (verdict, reasons in words) of one rule, as if it were reached.

    Conditions that do not hold are the reasons of `not matched`. For a match, the action comes
    first, then why the conditions hold. `no score` is a match that lacks only the confidence.
    """
    failed = tuple(
        _reason(rule.when, name, facts)
        for name in rule.when.condition_names()
        if not test_of(rule.when, name)(facts, calls)
    )
    if failed:
        return "not matched", failed
    if rule.is_shadow:
        why = held_reasons(rule.when, facts, calls)
        return "shadowed", (f"would {rule.then.name}", *why)
    if rule.when.needs_score and facts.confidence is None:
        return "no score", (f"needs a score, so on_score_error: {policy.on_score_error.name}",)
    return "matched", (rule.then.name, *held_reasons(rule.when, facts, calls))


def _reason(when: When, name: str, facts: Facts) -> str:
    """Return in words why the condition called `name` does not hold: `no tool call matches`.

    For a fact, both values are named, such as `model 'a' is not b*`, or `length 3 is not at least
    5`.
    """
    condition: Any = getattr(when, name)
    if name == "confidence":
        return _confidence_reason(condition, facts)
    if name in ON_FINDINGS:
        return finding_reason(name, condition, facts, holds=False)
    if name == "tools":
        return "no tool call matches" if condition.patterns is not None else "it calls a tool"
    if name == "risk":
        return f"no call has risk {condition}"
    if name == "calls":
        return f"{plural(len(facts.tools), 'tool call')}, not {_range(condition)}"
    fact = getattr(facts, name)
    if isinstance(condition, range):
        return f"{name} {fact} is not {_range(condition)}"
    if isinstance(condition, bool):
        return f"{name} is {str(fact).lower()}"
    wanted = condition.patterns if isinstance(condition, Globs) else sorted(condition)
    if name == "tags":
        return f"no tag {either(wanted)}"
    return f"{name} {'none' if fact is None else repr(fact)} is not {either(wanted)}"


def _confidence_reason(condition: Confidence, facts: Facts) -> str:
    """Return in words why a condition on the confidence does not hold for these facts.

    For example: `confidence 0.4100 is not at least 0.5`.
    """
    if isinstance(condition, LowestShare):
        share = facts.share_below
        known = "too few replies are known" if share is None else f"{share:.4g} were less sure"
        return f"confidence is not {condition}: {known}"
    if isinstance(condition, MaxError):
        grant = condition.grant(facts)
        if grant is None:
            return f"confidence is not {condition}: no certificate speaks about this reply"
        return f"confidence {facts.confidence:.4f} is below the certified {grant.threshold:g}"
    return f"confidence {facts.confidence:.4f} is not {condition}"


def _range(numbers: range) -> str:
    """Return a range of counts in words: `2`, `at least 2` or `from 2 below 5`."""
    if len(numbers) == 1:
        return str(numbers.start)
    if numbers.stop > 10**9:
        return f"at least {numbers.start}"
    return f"from {numbers.start} below {numbers.stop}"
