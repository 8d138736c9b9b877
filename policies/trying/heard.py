"""What a policy would have known of recorded replies: with the opinions and judges it asks for.

A record says of each reply what its confidence was before and after others were heard. A policy
that asks about other replies than the one at the time is judged by the number that it would have
had; where it would ask and nobody did, by the number without, and such replies are counted. The
same of a judge, and of log-probabilities: what a policy does not look at moves none of its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.conditions.facts import Facts
from policies.deciding.policy import Policy


@dataclass(frozen=True, slots=True)
class Heard:
    """The facts of a reply as a policy would have had them; `is_asked` says whether it asks others
    about it, `is_known` whether what they say is known then; the same of a judge."""

    facts: Facts
    is_asked: bool = False
    is_known: bool = True
    is_judged: bool = False
    is_judgement_known: bool = True


def heard(policy: Policy, facts: Facts) -> Heard:
    """Return the facts with the number that the policy would have had."""
    unaided = without_signals(facts)
    alone, asking = without_opinions(unaided), policy.second_opinion
    is_asked = asking is not None and asking.is_wanted(alone)
    hears_anyway = policy.ask is not None  # the replies that were not the surest
    before = unaided if is_asked or hears_anyway else alone
    is_judged = policy.judge is not None and policy.judge.is_wanted(before)
    told = facts if before == unaided and (is_judged or policy.logprobs) else before
    return Heard(
        told,
        is_asked,
        is_known=not is_asked or facts.alone is not None,
        is_judged=is_judged,
        is_judgement_known=not is_judged or facts.judged is not None,
    )


def without_signals(facts: Facts) -> Facts:
    """Return the facts as they were before a judge and log-probabilities counted."""
    plain = replace(
        facts,
        judged=None,
        judge=None,
        logprobs=(),
        unaided=None,
        unaided_calibrator=None,
        unaided_score=None,
    )
    if facts.unaided is None:
        return plain
    basis = facts.basis if facts.opinions else _without_opinions(facts.basis)
    return replace(
        plain, confidence=facts.unaided, calibrator=facts.unaided_calibrator, basis=basis
    )


def without_opinions(facts: Facts) -> Facts:
    """Return the facts as they were before others were heard, and before signals counted."""
    facts = without_signals(facts)
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
        basis=_without_opinions(facts.basis),
    )


def _without_opinions(basis: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in basis if each != "opinions")


def judgements(found: Sequence[Heard]) -> tuple[int, int]:
    """Return how many replies a judge is asked about, and of how many its word is not known."""
    judged = [each for each in found if each.is_judged]
    return len(judged), sum(not each.is_judgement_known for each in judged)


def counts(found: Sequence[Heard]) -> tuple[int, int]:
    """Return of how many replies others are asked, and of how many of those it is not known what
    they say."""
    asked = [each for each in found if each.is_asked]
    return len(asked), sum(not each.is_known for each in asked)
