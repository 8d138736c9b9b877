"""The decision that a policy makes about a completion, given its facts.

    decision = decide(policy, facts)
    decision.applied                      # the action to carry out; always Deliver() in shadow
    decision.label                        # "helpdesk/very-unsure@3f2a9c1d", safe in a header
    decision.shadowed                     # what rules in shadow would have done

With several tool calls, each is judged as if it were the only one, and all of them together; the
strictest decision counts for the reply, because a reply goes out whole or not at all. The
`strictest` decision of several choices counts in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from policies.conditions.facts import Facts, ToolCall
from policies.deciding.actions import Action, Annotate, Deliver, Escalate, hold_in, severity
from policies.deciding.policy import Mode, Policy
from policies.deciding.rules import slug

Because: TypeAlias = Literal["rule", "default", "score_error"]
Match: TypeAlias = tuple[int, bool, tuple[tuple[int, bool], ...]]
"""The index of the rule that decides (-1 for none), whether it lacks the score, and both values for
each rule in shadow that matched before it."""

_MAX_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class ShadowAction:
    """The action of a rule in shadow that matched."""

    rule: str
    action: Action


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of a policy about one choice of a completion, and its reason.

    `policy` is the policy's name. `rule` is the name of the rule that matched, or `default`, or
    `on_score_error` where a rule needed a score that is missing; `because` is the kind of reason.
    """

    action: Action
    policy: str
    digest: str
    rule: str
    because: Because
    mode: Mode
    shadowed: tuple[ShadowAction, ...] = ()

    applied: Action = field(init=False)
    """The action to carry out, always `Deliver()` in shadow mode."""
    label: str = field(init=False)
    """Policy, rule and digest of the policy, in ASCII that is safe in a header."""
    would_action: str | None = field(init=False)
    """The name of the action that shadow mode suppresses, None where the policy is enforced."""
    annotation: str | None = field(init=False)
    """The label of an applied annotation, or None."""
    notice: str | None = field(init=False)
    """The notice that the applied action adds to the end of a reply's text, or None."""
    additions: Mapping[str, str] = field(init=False, compare=False, repr=False)
    """The `label` and the `notice` by name, where they are not None."""

    def __post_init__(self) -> None:
        """Compute the derived fields, from `applied` to `additions`, and set them."""
        applied = self.action if self.is_enforced else Deliver()
        annotation = applied.label if isinstance(applied, Annotate) else None
        notice = applied.notice if isinstance(applied, Deliver) else None
        additions = {"label": annotation, "notice": notice}
        derived = {
            "applied": applied,
            "label": f"{self.policy}/{slug(self.rule)}@{self.digest}",
            "would_action": None if self.is_enforced else self.action.name,
            "annotation": annotation,
            "notice": notice,
            "additions": {name: value for name, value in additions.items() if value is not None},
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def is_enforced(self) -> bool:
        """Whether the action is carried out; in shadow mode it is only recorded."""
        return self.mode == "enforce"


def decide(policy: Policy, facts: Facts) -> Decision:
    """Return the decision of the first rule that matches, or else of the policy's default.

    If a rule lacks only the score to match, and all its other conditions hold, the policy's
    `on_score_error` decides. Several tool calls are judged each and together; the strictest
    decision counts.
    """
    together = decision_at(policy, _first_match(policy, facts, facts.tools))
    if len(facts.tools) < 2 or not policy.looks_at_tools:
        return together
    decisions = (together, *decide_calls(policy, facts))
    decision = strictest(decisions)
    shadowed = tuple(dict.fromkeys(each for one in decisions for each in one.shadowed))
    return decision if decision.shadowed == shadowed else replace(decision, shadowed=shadowed)


def decide_calls(policy: Policy, facts: Facts) -> tuple[Decision, ...]:
    """Return the decision for each tool call alone, in the order of the calls.

    Conditions on the number of calls still count all calls of the reply.
    """
    return tuple(decision_at(policy, _first_match(policy, facts, (call,))) for call in facts.tools)


def reaches(policy: Policy, rule: str, facts: Facts) -> bool:
    """Return whether facts reach the named rule and fulfil its conditions except the confidence.

    They reach it where no rule above it, outside shadow, decides. A certificate for the rule is
    made from such replies. Raises StopIteration where the policy has no rule of this name.
    """
    index = next(index for index, each in enumerate(policy.rules) if each.name == rule)
    decided, _, _ = _first_match(policy, facts, facts.tools)
    tests = policy.rules[index].when.tests
    return not 0 <= decided < index and all(test(facts, facts.tools) for test in tests)


def after_escalation(policy: Policy, decision: Decision, facts: Facts) -> Decision:
    """Return the decision about the reply that the escalation `decision` kept, given its `facts`.

    That reply is judged from the first rule on like any other, so a rule about its tool calls or
    a missing score still counts. Where it would be escalated again and `decision` names a further
    model, the result is an escalation to that model, with one fewer to come. Otherwise the rule's
    `otherwise` applies, or delivery where it has none. A decision without an escalation is returned
    unchanged.
    """
    escalation = decision.action
    if not isinstance(escalation, Escalate):
        return decision
    kept = decide(policy, facts)
    if not isinstance(kept.action, Escalate):
        return kept
    if escalation.further:
        to, *further = escalation.further
        return replace(kept, action=replace(escalation, to=to, further=tuple(further)))
    return replace(kept, action=kept.action.otherwise or Deliver())


def strictest(decisions: Iterable[Decision]) -> Decision:
    """Return the first of the decisions with the severest action. Raises ValueError without any.

    Applied actions are compared first, then the actions that shadow mode suppresses, then the
    approvals that applied holds need.
    """
    first, *others = decisions
    return max(first, *others, key=_severities) if others else first


def with_requested(own: Decision, requested: Decision) -> Decision:
    """Return the decision for a client that has asked for a policy besides its own.

    `own` is the decision of the client's policy and `requested` that of the other one. The result
    is `own` unless `requested` is stricter, and also where `own` shows a notice that an annotation
    or escalation would drop. Where `own` is a plain delivery, or `requested` ends in no hold, the
    result is `requested`. Otherwise it is `requested` with its hold changed: it needs at least as
    many approvals as the hold of `own`, and on expiry it rejects instead of delivering.
    """
    if strictest((own, requested)) is own:
        return own
    is_plain = own.applied == Deliver()
    if (
        not is_plain
        and isinstance(requested.applied, Annotate | Escalate)
        and own.notice is not None
    ):
        return own
    hold = hold_in(requested.action)
    if is_plain or hold is None:
        return requested
    stricter = replace(hold, approvals=max(hold.approvals, _approvals(own.action)))
    if hold.on_expiry == "deliver":
        stricter = replace(stricter, on_expiry="reject")
    if isinstance(requested.action, Escalate):
        return replace(requested, action=replace(requested.action, otherwise=stricter))
    return replace(requested, action=stricter)


def _approvals(action: Action) -> int:
    """Return the approvals that the hold in an action needs, or 1 without a hold."""
    hold = hold_in(action)
    return hold.approvals if hold is not None else 1


def _severities(decision: Decision) -> tuple[float, float, int]:
    """Return the sort key of severity: of the applied action, of the action, and the approvals.

    Of two applied holds, the one that needs more approvals is the severer.
    """
    return severity(decision.applied), severity(decision.action), _approvals(decision.applied)


def decision_at(policy: Policy, match: Match) -> Decision:
    """Return the decision that a match leads to, from the cache `policy.decisions`.

    A new decision is added to the cache while it holds fewer than 10,000.
    """
    decision = policy.decisions.get(match)
    if decision is None:
        decision = _new_decision(policy, *match)
        if len(policy.decisions) < _MAX_REMEMBERED:  # rules in shadow have too many combinations
            policy.decisions[match] = decision
    return decision


def _first_match(policy: Policy, facts: Facts, calls: tuple[ToolCall, ...]) -> Match:
    """Return the `Match` of the first rule outside shadow whose conditions hold, index -1 for none.

    `calls` are the tool calls that are judged. A missing confidence satisfies each condition on it;
    the match then says that the score is missing. Rules in shadow that hold before are listed in
    it.
    """
    confidence = facts.confidence
    shadowed: tuple[tuple[int, bool], ...] = ()
    rules_for = policy.rules_for
    for low, high, tests, index, needs_score, is_shadow in rules_for(facts, calls):
        if confidence is not None and not low <= confidence < high:
            continue
        for test in tests:
            if not test(facts, calls):
                break
        else:
            if is_shadow:
                shadowed = (*shadowed, (index, needs_score and confidence is None))
            else:
                return index, needs_score and confidence is None, shadowed
    return -1, False, shadowed


def _new_decision(
    policy: Policy, index: int, is_without_score: bool, shadowed: tuple[tuple[int, bool], ...]
) -> Decision:
    """Build the decision for the parts of a `Match`.

    The action is the policy's `on_score_error` with `is_without_score`, else that of the rule at
    `index`, or the default for index -1. `shadowed` holds (index, lacks the score) for each
    matching rule in shadow; these become `Decision.shadowed`.
    """
    would = tuple(
        ShadowAction(
            policy.rules[at].name, policy.on_score_error if lacks else policy.rules[at].then
        )
        for at, lacks in shadowed
    )
    found: tuple[Action, str, Because] = policy.default, "default", "default"
    if is_without_score:
        found = policy.on_score_error, "on_score_error", "score_error"
    elif index >= 0:
        found = policy.rules[index].then, policy.rules[index].name, "rule"
    action, rule, because = found
    return Decision(action, policy.name, policy.digest, rule, because, policy.mode, would)
