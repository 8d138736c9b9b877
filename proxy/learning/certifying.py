"""The verdicts in the store that a certificate may use: a fair sample of delivered replies.

The exact test of `pinocchio certify` assumes replies drawn at random with the same probability:
audited ones, of one share. One reply of each conversation counts, and one of each question. Held
replies are in no such sample, nor are replies that somebody labelled for other reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from calibrator import (
    WITH_OTHERS,
    CalibratorError,
    Recalibrations,
    has_prior,
    knows_others,
    knows_signals,
)
from policies import LabelledScore, Policy, Scope, one_per_question, reaches
from proxy.store.verdicts.labels import LabelledReply, first_replies, labelled_replies


def audited_labels(
    engine: Any, since: float, calibrator: str, scope: Scope, policy: Policy | None = None
) -> list[LabelledScore]:
    """Return the audited replies in this scope with a verdict, scored by exactly this calibrator.

    `policy` is the one whose rule the scope names. Raises CalibratorError where there are none, or
    where they were drawn with several shares, and StoreError.
    """
    firsts = first_replies(engine, since)
    return _labels_of(_audit_labels(engine, since), firsts, calibrator, scope, policy)


def _audit_labels(engine: Any, since: float) -> list[LabelledReply]:
    """Return the labelled replies of the audit's sample since a time."""
    return [each for each in labelled_replies(engine, since) if each.stratum == "audited"]


def _labels_of(
    audited: Sequence[LabelledReply],
    firsts: Mapping[str, str],
    calibrator: str,
    scope: Scope,
    policy: Policy | None,
) -> list[LabelledScore]:
    """Return the labels of one calibrator's confidences in a scope, one of each question.

    `firsts` has the first reply of each conversation. Raises CalibratorError as `audited_labels`.
    """
    replies = [each for each in audited if each.calibrator == calibrator]
    found = [each for each in replies if _is_in(scope, policy, each)]
    if not found:
        raise CalibratorError(_missing_text(audited, replies, calibrator, scope))
    shares = sorted({each.share or 0.0 for each in found})
    if len(shares) > 1:
        listed = ", ".join(f"{share:g}" for share in shares)
        raise CalibratorError(
            f"these replies were drawn with shares of {listed}, and the exact test needs one: "
            "take a --since after the last change, or a --team"
        )
    chosen = {each.id for each in one_per_question(map(_by_conversation, found))}
    return [
        LabelledScore(
            each.question,
            each.confidence,
            each.is_correct,
            each.request_id,
            is_first=_is_first(each, scope, firsts),
        )
        for each in found
        if each.request_id in chosen
    ]


def audited_knowing(
    engine: Any,
    since: float,
    checkpoint: str,
    counting: Recalibrations,
    scope: Scope,
    policy: Policy | None = None,
) -> dict[str | None, list[LabelledScore]]:
    """Return the audited labels of confidences that know more than the reply, by calibrator.

    These are confidences of this checkpoint that know second opinions, a judge or
    log-probabilities, under names that are still given with the recalibrations in force
    (`counting`). Empty where there are none, or none in this scope. Raises StoreError.
    """
    audited, firsts = _audit_labels(engine, since), first_replies(engine, since)
    calibrators = {each.calibrator for each in audited if each.is_by(checkpoint)}
    knowing = {name for name in calibrators if knows_others(name) or knows_signals(name)}
    names = sorted(name for name in knowing if _is_in_force(name, counting))
    found: dict[str | None, list[LabelledScore]] = {}
    for name in names:
        with suppress(CalibratorError):  # no label in this scope, or several shares
            found[name] = _labels_of(audited, firsts, name, scope, policy)
    return found


def _is_in_force(name: str, counting: Recalibrations) -> bool:
    """Return whether a confidence that knows more than its reply still gets the name `name`.

    `counting` are the recalibrations in force.
    """
    if has_prior(name):  # weighed by a prior, until weights are learnt from labels
        return counting.signals is None
    if knows_signals(name):
        return counting.signals is not None and name in counting.signals.names()
    recalibration = counting.with_others
    before, _, opinion = name.partition(WITH_OTHERS)
    hash, _, curve = opinion.partition("+")
    stage = before + WITH_OTHERS + hash
    corrects = recalibration is not None and recalibration.calibrator == stage
    return curve == (recalibration.name if corrects and recalibration else "")


def _is_first(reply: LabelledReply, scope: Scope, firsts: Mapping[str, str]) -> bool:
    """Return whether the proxy's monitor of this scope would have counted the reply.

    For the scope of a rule it is not known which reply was the first, so each counts.
    """
    if scope.rule is not None or reply.conversation is None:
        return True
    return firsts.get(reply.conversation, reply.request_id) == reply.request_id


def _by_conversation(reply: LabelledReply) -> LabelledScore:
    """Return the label under its conversation as the question, so that one of each is chosen."""
    name = reply.conversation or reply.request_id
    return LabelledScore(name, reply.confidence, reply.is_correct, reply.request_id)


def _is_in(scope: Scope, policy: Policy | None, reply: LabelledReply) -> bool:
    """Return whether a reply is in a scope: of its model and team, and reaching its rule.

    False if its facts are not on record.
    """
    if reply.facts is None:
        return False
    if scope.model not in (None, reply.facts.model) or scope.team not in (None, reply.team):
        return False
    if scope.rule is None or policy is None:
        return True
    return reaches(policy, scope.rule, reply.facts)


def _missing_text(
    audited: Iterable[LabelledReply],
    replies: Iterable[LabelledReply],
    calibrator: str,
    scope: Scope,
) -> str:
    """Return the sentence that says why there is no label in a scope."""
    if list(replies):
        return f"no verdict on an audited reply is within {scope}"
    others = sorted({each.calibrator for each in audited})
    if others:
        return (
            f"the verdicts on audited replies are on confidences of {', '.join(others)}, none of "
            f"{calibrator}, which is configured now: thresholds are for one version"
        )
    return (
        "there is no verdict on an audited reply; let the audit draw some (`audit: {share: 0.01}` "
        "in proxy.yaml) and have them reviewed"
    )
