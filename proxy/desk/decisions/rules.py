"""The rule that decided on a reply, while its policy is still the version that decided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from policies import Policy, Rule, rule_slug, threshold_of


class ThresholdSide(NamedTuple):
    """The side of the threshold on which a confidence is.

    The threshold is the deciding rule's, or that of an agent that stopped its own call.
    """

    side: Literal["low", "high"] | None = None
    threshold: float | None = None
    whose: str = "the rule's"

    def figure(self, confidence: float) -> str:
        """Return a confidence as text with two digits, or as many as show on which side it is."""
        for digits in (2, 3, 4):
            text = f"{confidence:.{digits}f}"
            if self.threshold is None or (float(text) < self.threshold) is (self.side == "low"):
                return text
        return repr(confidence)


def policy_of(book: Iterable[Policy], label: str) -> Policy | None:
    """Return the policy that a label `policy/rule@digest` names, in that version, or None."""
    name, digest = label.partition("/")[0], label.rpartition("@")[2]
    return next((each for each in book if (each.name, each.digest) == (name, digest)), None)


def rule_of(policy: Policy, label: str) -> Rule | None:
    """Return the policy's rule that a label `policy/rule@digest` names.

    None for the policy's default and for a missing score.
    """
    slug = label.partition("/")[2].rpartition("@")[0]
    return next((each for each in policy.rules if rule_slug(each.name) == slug), None)


def compare_threshold(
    book: Iterable[Policy], label: str | None, confidence: float | None
) -> ThresholdSide:
    """Return on which side of the threshold that counted for it a confidence is.

    That is the deciding rule's threshold. Where the default decided, it is the lowest threshold
    that a rule required and that was missed, or else the highest one that the confidence was not
    below. Both fields are None without a confidence, a threshold, or the version that decided.
    """
    policy = policy_of(book, label) if label and confidence is not None else None
    if policy is None or label is None or confidence is None:
        return ThresholdSide()
    rule = rule_of(policy, label)
    if rule is not None:
        return _side(confidence, threshold_of(rule))
    found = [threshold for each in policy.rules if (threshold := threshold_of(each))]
    missed = [at for at, is_below in found if not is_below and confidence < at]
    passed = [at for at, is_below in found if is_below and confidence >= at]
    if missed:
        return ThresholdSide("low", min(missed))
    return ThresholdSide("high", max(passed)) if passed else ThresholdSide()


def leaning_of_agent(threshold: float, confidence: float | None) -> ThresholdSide:
    """Return on which side of an agent's threshold a confidence is; the agent stopped the call."""
    if confidence is None:
        return ThresholdSide()
    return _side(confidence, (threshold, True))._replace(whose="the agent's")


def _side(confidence: float, threshold: tuple[float, bool] | None) -> ThresholdSide:
    """Return the side of a threshold, of which only the number counts; both None without one."""
    if threshold is None:
        return ThresholdSide()
    return ThresholdSide("low" if confidence < threshold[0] else "high", threshold[0])
