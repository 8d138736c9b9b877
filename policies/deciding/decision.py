"""From a policy and the facts of a completion to what happens with it.

    decision = decide(policy, facts)
    decision.applied                      # the action to carry out; always Deliver() in shadow
    decision.label                        # "helpdesk/very-unsure@3f2a9c1d", safe in a header
    decision.shadowed                     # what rules in shadow would have done

With several tool calls, each is judged as if it were the only one, and all of them together; the
strictest decision counts for the reply, because a reply goes out whole or not at all. So does the
`strictest` decision of several choices.
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
"""The index of the rule that decides (-1: none), whether it lacks the score, and the same of the
rules in shadow before it that matched."""

_MAX_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Shadowed:
    """What a rule in shadow would have done, had it not been in shadow."""

    rule: str
    action: Action


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy says about one choice of a completion, and why.

    `policy` is the policy's name. `rule` is the name of the rule that matched, or `default`, or
    `on_score_error` where a rule needed a score that is missing; `because` tells which.
    """

    action: Action
    policy: str
    digest: str
    rule: str
    because: Because
    mode: Mode
    shadowed: tuple[Shadowed, ...] = ()

    applied: Action = field(init=False)
    """The action to carry out."""
    label: str = field(init=False)
    """Policy, rule and digest of the policy, in ASCII that is safe in a header."""
    would_action: str | None = field(init=False)
    """The name of the action that shadow mode keeps from being carried out."""
    annotation: str | None = field(init=False)
    """The label that the applied action annotates a reply with."""
    notice: str | None = field(init=False)
    """What the applied action puts behind a reply's text."""
    additions: Mapping[str, str] = field(init=False, compare=False, repr=False)
    """The label and the notice, as far as there are any."""

    def __post_init__(self) -> None:
        applied = self.action if self.is_enforced else Deliver()
        label = applied.label if isinstance(applied, Annotate) else None
        notice = applied.notice if isinstance(applied, Deliver) else None
        additions = {"label": label, "notice": notice}
        derived = {
            "applied": applied,
            "label": f"{self.policy}/{slug(self.rule)}@{self.digest}",
            "would_action": None if self.is_enforced else self.action.name,
            "annotation": label,
            "notice": notice,
            "additions": {name: value for name, value in additions.items() if value is not None},
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def is_enforced(self) -> bool:
        """False in shadow mode, where the action is recorded and not carried out."""
        return self.mode == "enforce"


def decide(policy: Policy, facts: Facts) -> Decision:
    """Return what the first rule that matches says, or else the policy's default.

    A rule that lacks only the score to match, all its other conditions holding, hands the decision
    to the policy's `on_score_error`. Several tool calls are judged each and together.
    """
    together = decision_at(policy, _first_match(policy, facts, facts.tools))
    if len(facts.tools) < 2 or not policy.looks_at_tools:
        return together
    decisions = (together, *decide_calls(policy, facts))
    decision = strictest(decisions)
    shadowed = tuple(dict.fromkeys(each for one in decisions for each in one.shadowed))
    return decision if decision.shadowed == shadowed else replace(decision, shadowed=shadowed)


def decide_calls(policy: Policy, facts: Facts) -> tuple[Decision, ...]:
    """Return what would happen for each tool call alone, in their order.

    Conditions on the number of calls still look at how many there are in the reply.
    """
    return tuple(decision_at(policy, _first_match(policy, facts, (call,))) for call in facts.tools)


def reaches(policy: Policy, rule: str, facts: Facts) -> bool:
    """Whether the rule of this name is asked and all of it holds but perhaps its confidence.

    Such replies are what a certificate for the rule is made from.
    """
    index = next(index for index, each in enumerate(policy.rules) if each.name == rule)
    decided, _, _ = _first_match(policy, facts, facts.tools)
    tests = policy.rules[index].when.tests
    return not 0 <= decided < index and all(test(facts, facts.tools) for test in tests)


def after_escalation(policy: Policy, decision: Decision, facts: Facts) -> Decision:
    """Return what happens to the reply that the escalation `decision` kept, going by its `facts`.

    That reply is judged from the first rule on like any other, so a rule about its tool calls or
    a missing score still counts. Where it would be escalated again, the next model of `decision`
    is asked, if it names one: the decision returned is then an escalation to that model, with one
    fewer to come. Else the rule's `otherwise` takes its place, or delivery where it has none. A
    decision that escalated nothing stands as it is.
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
    """Return the first of the decisions with the severest action; there has to be at least one.

    Of several policies, what is carried out counts before what one in shadow mode would have done.
    """
    first, *others = decisions
    return max(first, *others, key=_severities) if others else first


def with_asked(own: Decision, asked: Decision) -> Decision:
    """Return what is done where a client has asked for a policy beside its own.

    The asked one counts where it is stricter, and takes nothing back: a visible notice stays unless
    the reply is withheld, and a hold delivers by itself, on expiry, only what would be delivered as
    it is without it.
    """
    if strictest((own, asked)) is own:
        return own
    is_plain = own.applied == Deliver()
    if not is_plain and isinstance(asked.applied, Annotate | Escalate) and own.notice is not None:
        return own
    hold = hold_in(asked.action)
    if is_plain or hold is None:
        return asked
    stricter = replace(hold, approvals=max(hold.approvals, _approvals(own.action)))
    if hold.on_expiry == "deliver":
        stricter = replace(stricter, on_expiry="reject")
    if isinstance(asked.action, Escalate):
        return replace(asked, action=replace(asked.action, otherwise=stricter))
    return replace(asked, action=stricter)


def _approvals(action: Action) -> int:
    hold = hold_in(action)
    return hold.approvals if hold is not None else 1


def _severities(decision: Decision) -> tuple[float, float, int]:
    """Of two holds the one that more people have to approve is severer."""
    return severity(decision.applied), severity(decision.action), _approvals(decision.applied)


def decision_at(policy: Policy, match: Match) -> Decision:
    """Return the decision of a match, made once."""
    known = policy.decisions.get(match)
    if known is None:
        known = _new_decision(policy, *match)
        if len(policy.decisions) < _MAX_REMEMBERED:  # rules in shadow combine without end
            policy.decisions[match] = known
    return known


def _first_match(policy: Policy, facts: Facts, calls: tuple[ToolCall, ...]) -> Match:
    """Which rule decides; see `Match`."""
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
    would = tuple(
        Shadowed(policy.rules[at].name, policy.on_score_error if lacks else policy.rules[at].then)
        for at, lacks in shadowed
    )
    found: tuple[Action, str, Because] = policy.default, "default", "default"
    if is_without_score:
        found = policy.on_score_error, "on_score_error", "score_error"
    elif index >= 0:
        found = policy.rules[index].then, policy.rules[index].name, "rule"
    action, rule, because = found
    return Decision(action, policy.name, policy.digest, rule, because, policy.mode, would)
