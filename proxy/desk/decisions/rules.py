"""The rule that decided on a reply, while its policy is still the version that decided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from policies import Policy, Rule, rule_slug, threshold_of


class Leaning(NamedTuple):
    """The side of the threshold on which a confidence is, by the rule that decided."""

    side: Literal["low", "high"] | None = None
    threshold: float | None = None


def policy_of(book: Iterable[Policy], label: str) -> Policy | None:
    """Return the policy that a label `policy/rule@digest` names, in that version, or None."""
    name, digest = label.partition("/")[0], label.rpartition("@")[2]
    return next((each for each in book if (each.name, each.digest) == (name, digest)), None)


def rule_of(policy: Policy, label: str) -> Rule | None:
    """Return the rule that a label names; None for the policy's default and for a missing score."""
    slug = label.partition("/")[2].rpartition("@")[0]
    return next((each for each in policy.rules if rule_slug(each.name) == slug), None)


def leaning(book: Iterable[Policy], label: str | None, confidence: float | None) -> Leaning:
    """Return how a confidence compares with the threshold that counted for it.

    That is the deciding rule's threshold. Where the default decided, it is the lowest threshold
    that a rule required and that was missed, or else the highest one that the confidence was not
    below.
    """
    policy = policy_of(book, label) if label and confidence is not None else None
    if policy is None or label is None or confidence is None:
        return Leaning()
    rule = rule_of(policy, label)
    if rule is not None:
        return _side(confidence, threshold_of(rule))
    found = [threshold for each in policy.rules if (threshold := threshold_of(each))]
    missed = [at for at, is_below in found if not is_below and confidence < at]
    passed = [at for at, is_below in found if is_below and confidence >= at]
    if missed:
        return Leaning("low", min(missed))
    return Leaning("high", max(passed)) if passed else Leaning()


def _side(confidence: float, threshold: tuple[float, bool] | None) -> Leaning:
    if threshold is None:
        return Leaning()
    return Leaning("low" if confidence < threshold[0] else "high", threshold[0])
