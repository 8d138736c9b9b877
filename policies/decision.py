"""From a policy and the facts of a completion to what happens with it.

    decision = decide(policy, facts)
    decision.applied                      # the action to carry out; always Deliver() in shadow
    decision.label                        # "helpdesk/very-unsure@3f2a9c1d", safe in a header

With several choices in one completion, the `strictest` decision counts for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from policies.actions import Action, Deliver, Escalate, severity
from policies.facts import Facts
from policies.policy import Mode, Policy, slug

Because: TypeAlias = Literal["rule", "default", "score_error"]


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

    applied: Action = field(init=False)
    """The action to carry out."""
    label: str = field(init=False)
    """Policy, rule and digest of the policy, in ASCII that is safe in a header."""

    def __post_init__(self) -> None:
        applied = self.action if self.is_enforced else Deliver()
        object.__setattr__(self, "applied", applied)
        object.__setattr__(self, "label", f"{self.policy}/{slug(self.rule)}@{self.digest}")

    @property
    def is_enforced(self) -> bool:
        """False in shadow mode, where the action is recorded and not carried out."""
        return self.mode == "enforce"


def decide(policy: Policy, facts: Facts) -> Decision:
    """Return what the first rule that matches says, or else the policy's default.

    A rule that lacks only the score to match, all its other conditions holding, hands the decision
    to the policy's `on_score_error`.
    """
    action, rule, because = _first_match(policy, facts)
    known = policy.decisions.get((rule, because))
    if known is None:
        known = Decision(action, policy.name, policy.digest, rule, because, policy.mode)
        policy.decisions[rule, because] = known
    return known


def after_escalation(policy: Policy, decision: Decision, facts: Facts) -> Decision:
    """Return what happens to the reply that the escalation `decision` kept, going by its `facts`.

    That reply is judged from the first rule on like any other, so a rule about its tool calls or
    a missing score still counts. Only a second escalation is not: the rule's `otherwise` takes its
    place, or delivery where it has none. A decision that escalated nothing stands as it is.
    """
    if not isinstance(decision.action, Escalate):
        return decision
    kept = decide(policy, facts)
    if isinstance(kept.action, Escalate):
        return replace(kept, action=kept.action.otherwise or Deliver())
    return kept


def strictest(decisions: Iterable[Decision]) -> Decision:
    """Return the first of the decisions with the severest action; there has to be at least one."""
    first, *others = decisions
    return max(first, *others, key=lambda d: severity(d.action)) if others else first


def _first_match(policy: Policy, facts: Facts) -> tuple[Action, str, Because]:
    for rule in policy.rules:
        if rule.when.holds(facts):
            if facts.confidence is None and rule.when.confidence is not None:
                return policy.on_score_error, "on_score_error", "score_error"
            return rule.then, rule.name, "rule"
    return policy.default, "default", "default"
