"""The facts that a policy would have had about recorded replies, with its own opinions and judges.

A record holds each reply's confidence before and after others were asked. A policy may ask about
other replies than the policy of that time. Its decision is then based on the confidence that it
would have had. Where it would ask and nobody was asked, the confidence without opinions is used,
and such replies are counted. The same holds for a judge and for log-probabilities: signals that a
policy does not use change none of its confidences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.conditions.facts import Facts
from policies.deciding.policy import Policy


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The facts of a reply as a policy would have had them.

    `asks_others` says whether the policy asks others about it, and `is_known` is False where it
    asks and the record lacks their answers. The other two fields are the same for a judge.
    """

    facts: Facts
    asks_others: bool = False
    is_known: bool = True
    is_judged: bool = False
    is_judgement_known: bool = True


def facts_known_to(policy: Policy, facts: Facts) -> KnownFacts:
    """Return the facts as they would have been under the policy, and if it asks others or a judge.

    The confidence, its calibrator and its basis are those from before second opinions, a judge and
    log-probabilities where the policy does not use these. With `Policy.ask`, opinions always count.
    """
    unaided = without_signals(facts)
    alone, second_opinion = without_opinions(unaided), policy.second_opinion
    asks_others = second_opinion is not None and second_opinion.is_wanted(alone)
    uses_opinions = policy.ask is not None  # the less sure replies count
    before = unaided if asks_others or uses_opinions else alone
    is_judged = policy.judge is not None and policy.judge.is_wanted(before)
    policy_facts = facts if before == unaided and (is_judged or policy.logprobs) else before
    return KnownFacts(
        policy_facts,
        asks_others,
        is_known=not asks_others or facts.alone is not None,
        is_judged=is_judged,
        is_judgement_known=not is_judged or facts.judged is not None,
    )


def without_signals(facts: Facts) -> Facts:
    """Return the facts from before a judge and log-probabilities were used.

    Their fields get the defaults. Where `unaided` is recorded, it becomes the confidence, with its
    calibrator; otherwise the confidence stays.
    """
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
    """Return the facts from before others were asked, and before signals were used.

    Signals are a judge and log-probabilities. Where `alone` is recorded, it becomes the confidence,
    with its calibrator, and the opinions are removed; otherwise only the signals are.
    """
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
    """Return the bases of a confidence without `opinions`."""
    return tuple(each for each in basis if each != "opinions")


def judgements(known: Sequence[KnownFacts]) -> tuple[int, int]:
    """Return (replies that a judge is asked about, those of them whose judgement is unknown)."""
    judged = [each for each in known if each.is_judged]
    return len(judged), sum(not each.is_judgement_known for each in judged)


def counts(known: Sequence[KnownFacts]) -> tuple[int, int]:
    """Return (replies about which others are asked, those of them whose answers are unknown)."""
    replies = [each for each in known if each.asks_others]
    return len(replies), sum(not each.is_known for each in replies)
