"""What a policy would have known of recorded replies: with the second opinions that it asks for.

A record says of each reply what its confidence was before and after others were heard. A policy
that asks about other replies than the one at the time is judged by the number that it would have
had; where it would ask and nobody did, by the number without, and such replies are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.conditions.facts import Facts
from policies.deciding.policy import Policy


@dataclass(frozen=True, slots=True)
class Heard:
    """The facts of a reply as a policy would have had them; `is_asked` says whether it asks others
    about it, `is_known` whether what they say is known then."""

    facts: Facts
    is_asked: bool = False
    is_known: bool = True


def heard(policy: Policy, facts: Facts) -> Heard:
    """Return the facts with the number that the policy would have had."""
    alone, asking = without_opinions(facts), policy.second_opinion
    if asking is not None and asking.is_wanted(alone):
        return Heard(facts, is_asked=True, is_known=facts.alone is not None)
    hears_anyway = policy.ask is not None  # the replies that were not the surest
    return Heard(facts if hears_anyway else alone)


def without_opinions(facts: Facts) -> Facts:
    """Return the facts as they were before others were heard."""
    if facts.alone is None:
        return facts
    return replace(
        facts,
        confidence=facts.alone,
        calibrator=facts.alone_calibrator,
        alone=None,
        alone_calibrator=None,
        alone_score=None,
        opinions=(),
    )


def counts(found: Sequence[Heard]) -> tuple[int, int]:
    """Return of how many replies others are asked, and of how many of those it is not known what
    they say."""
    asked = [each for each in found if each.is_asked]
    return len(asked), sum(not each.is_known for each in asked)
