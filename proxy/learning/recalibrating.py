"""Recalibrations from verdicts, fitted with their weights and tried against the one in force.

Curves are fitted on the calibrator's own `score`, so that a new recalibration replaces the one
before and is not built upon it. Where others were asked, the confidence of the reply alone and the
one that knows them are different numbers: each has a recalibration of its own, fitted on numbers
of exactly its name.

The weights of a judge and of log-probabilities are learnt in the same way. They join the
calibrator's own score, and their confidence is tried on verdicts that the weights did not see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibrator import (
    WITH_OTHERS,
    By,
    CalibratorError,
    Kind,
    LabelledConfidences,
    LabelledSignals,
    Recalibration,
    Recalibrations,
    Signals,
    SignalWeights,
    Trial,
    compare_fits,
    fit_observed,
    fit_signals,
    fixed_confidences,
    group_key,
    knows_others,
    knows_signals,
    predict_unseen,
    trial,
    weigh_by_prior,
    weigh_replies,
    without_signals,
)
from policies import plural
from proxy.learning.labels import Labels
from proxy.store.verdicts.labels import LabelledReply

LEAST_LABELS: Final = 50
"""The least labels for a fit: with fewer, each of five folds leaves too few others."""


class NotLearntError(CalibratorError):
    """The verdicts do not allow the requested fit; the sentence says what is missing."""


@dataclass(frozen=True, slots=True)
class LearnedFit:
    """A fit on all labels, and its trial on labels that it did not see.

    `unknown` counts labels that were left out because the calibrator's own score is unknown.
    """

    recalibration: Recalibration | SignalWeights
    trial: Trial
    unknown: int = 0


def learn_recalibration(
    labels: Labels,
    calibrator: str,
    current: Recalibration | None = None,
    *,
    kind: Kind = "platt",
    by: By | None = None,
    is_held_only: bool = False,
    known: Sequence[Recalibration] = (),
) -> LearnedFit:
    """Fit a recalibration on replies that `calibrator` scored, and compare it with `current`.

    `calibrator` names a checkpoint, or the source of its numbers that know others. `current` is the
    one in force, None for none. `known` are recalibrations that can be undone where the own score
    was not recorded. With `is_held_only` only labels of held replies count. Raises NotLearntError
    for too few labels, for labels of one kind, or of held replies alone without `is_held_only`.
    """
    labels = usable(labels, is_held_only)
    replies, scores, unknown = _with_own_scores(labels.replies, calibrator, known)
    check_enough(len(replies), labels)
    weights = np.array(Labels(replies, labels.totals).weights())
    confidences = LabelledConfidences(
        np.array([int(each.is_correct) for each in replies]),
        np.array(scores),
        [group_key(by, each.model, each.domain, each.team) for each in replies],
        [each.question for each in replies],
        weights,
    )
    if not confidences.is_mixed:
        which = "correct" if replies[0].is_correct else "wrong"
        raise NotLearntError(
            f"all {len(replies)} labelled replies are {which}: a recalibration needs both kinds"
        )
    before = [
        _recalibrate(current, each, score) for each, score in zip(replies, scores, strict=True)
    ]
    tried = trial(confidences, before, kind=kind, by=by)
    return LearnedFit(
        fit_observed(confidences, kind=kind, by=by, calibrator=calibrator), tried, unknown
    )


def usable(labels: Labels, is_held_only: bool = False) -> Labels:
    """Return the labels for which a fit is valid: all, or those of held replies.

    With `is_held_only` the labels of held replies are returned. Without it, raises NotLearntError
    where all labels are of held replies.
    """
    if is_held_only:
        return labels.of("held")
    if labels.replies and not labels.of("delivered").replies:
        raise NotLearntError(
            f"all {len(labels.replies)} labels are of held replies: they say nothing about those "
            "that were delivered. Draw a random audit (`audit: {share: 0.01}` in proxy.yaml), or "
            "state --held-only for what is right for held replies alone"
        )
    return labels


def _with_own_scores(
    replies: Sequence[LabelledReply], calibrator: str, known: Sequence[Recalibration]
) -> tuple[list[LabelledReply], list[float], int]:
    """Return (the replies with a known own score, these scores, the number of other replies)."""
    by_name = {one.name: one for one in known}
    scores = [own_score(each, calibrator, by_name) for each in replies]
    found = [
        (each, score) for each, score in zip(replies, scores, strict=True) if score is not None
    ]
    return [each for each, _ in found], [score for _, score in found], len(replies) - len(found)


def own_score(
    reply: LabelledReply, calibrator: str, by_name: Mapping[str, Recalibration]
) -> float | None:
    """Return the calibrator's own score of a reply, recorded or with its recalibration undone.

    None where it is unknown. `by_name` are recalibrations that can be undone. Of a reply about
    which others were asked, a checkpoint's own score is the one without them. A number that knows
    signals is replaced by the one without signals.
    """
    confidence, name, score = reply.confidence, reply.calibrator, reply.score
    if knows_signals(name):
        if (facts := reply.facts) is None or facts.unaided is None:
            return None
        confidence, name, score = facts.unaided, facts.unaided_calibrator or "", facts.unaided_score
    if knows_others(name) and not knows_others(calibrator):
        if (facts := reply.facts) is None or facts.alone is None:
            return None
        confidence, name, score = facts.alone, facts.alone_calibrator or "", facts.alone_score
    if score is not None:
        return score
    if name == calibrator:
        return confidence
    one = by_name.get(name.removeprefix(f"{calibrator}+"))
    return one.undo(confidence, reply.model, reply.domain, reply.team) if one else None


def name_with_others(replies: Sequence[LabelledReply], checkpoint: str) -> str:
    """Return the name of this checkpoint's latest numbers that know others' replies.

    The name has no recalibration of the deployment. Raises NotLearntError where there is none.
    """
    prefix = checkpoint + WITH_OTHERS
    found = [each.calibrator for each in replies if each.calibrator.startswith(prefix)]
    if not found:
        raise NotLearntError(
            f"no verdict is on a number of {checkpoint} that knows a second opinion; a policy's "
            "`second_opinion` has others asked, and the audit draws replies to be reviewed"
        )
    return prefix + found[-1].removeprefix(prefix).partition("+")[0]


def check_enough(
    count: int,
    labels: Labels,
    one: str = "labelled reply is",
    several: str = "labelled replies are",
) -> None:
    """Refuse to learn from fewer than LEAST_LABELS labels; raises NotLearntError.

    `one` and `several` are the words for what is counted, with their verb. `labels` says how many
    more could not be used.
    """
    if count >= LEAST_LABELS:
        return
    undrawn = (
        f"; {labels.undrawn} more are of replies that were neither held nor drawn by the audit, "
        "which say nothing about others"
        if labels.undrawn
        else ""
    )
    raise NotLearntError(
        f"{plural(count, one, several)} too few for a "
        f"recalibration: {LEAST_LABELS} are the least, "
        f"{LEAST_LABELS - count} more, and 200 are better{undrawn}"
    )


def _recalibrate(current: Recalibration | None, reply: LabelledReply, score: float) -> float:
    """Return the confidence that a recalibration makes of a score; the score itself for None."""
    if current is None:
        return score
    return current.apply_to(score, reply.model, reply.domain, reply.team)


@dataclass(frozen=True, slots=True)
class _SignalReply:
    """A labelled reply with signals, and the confidence that it would have now."""

    reply: LabelledReply
    own: LabelledSignals
    now: float


def learn_signals(
    labels: Labels, checkpoint: str, counting: Recalibrations, *, is_held_only: bool = False
) -> LearnedFit:
    """Fit weights of signals on replies that `checkpoint` scored, and compare them.

    They are compared with the recalibrations in force, `counting`. Raises NotLearntError for too
    few labels, or of held replies alone without `is_held_only`, and CalibratorError where no
    combination of signals has enough of both kinds.
    """
    labels = usable(labels, is_held_only)
    signalled = [each for each in labels.replies if signals_of(each).kinds]
    found = [known for each in signalled if (known := _read_reply(each, checkpoint, counting))]
    check_enough(len(found), labels, "labelled reply with signals is", "replies with signals are")
    now = np.array([each.now for each in found])
    observed = LabelledConfidences(
        np.array([int(each.own.is_correct) for each in found]),
        now,
        [""] * len(found),
        [each.reply.question for each in found],
        np.array(Labels([each.reply for each in found], labels.totals).weights()),
    )
    own = [
        LabelledSignals(
            each.own.is_correct,
            each.own.confidence,
            each.own.calibrator,
            each.own.signals,
            weight,
        )
        for each, weight in zip(found, observed.weights.tolist(), strict=True)
    ]

    def learn(known: Sequence[int], judged: Sequence[int]) -> np.ndarray:
        """Return the confidences of the labels `judged`, with weights fitted on the labels `known`.

        Both are positions; the result has the shape (number judged,).
        """
        weights = fit_signals([own[at] for at in known])
        return weigh_replies(weights, [own[at] for at in judged], now[list(judged)])

    tried = compare_fits(observed, fixed_confidences(now), predict_unseen(observed, learn))
    return LearnedFit(fit_signals(own), tried, len(signalled) - len(found))


def signals_of(reply: LabelledReply) -> Signals:
    """Return the recorded signals of a reply: a judge's verdict and two log-probabilities.

    They are empty where the facts are not on record.
    """
    if (facts := reply.facts) is None:
        return Signals()
    logprobs = (facts.logprobs[0], facts.logprobs[1]) if len(facts.logprobs) == 2 else None
    return Signals(facts.judged, facts.judge or "", logprobs)


def _read_reply(
    reply: LabelledReply, checkpoint: str, counting: Recalibrations
) -> _SignalReply | None:
    """Return the reply with its own score, and its confidence with what is in force now.

    None without a recorded own score or facts.
    """
    name, facts = without_signals(reply.calibrator), reply.facts
    stage = _stage(name, checkpoint)
    own = reply.score
    if own is None and name == reply.calibrator == stage:
        own = reply.confidence
    if own is None or facts is None:
        return None
    signals = signals_of(reply)
    curve = counting.with_others if knows_others(stage) else counting.alone
    now = own
    if curve is not None and curve.calibrator in ("", stage):
        now = curve.apply_to(own, reply.model, reply.domain, reply.team)
    weights = counting.signals
    weighed = None if weights is None else weights.weigh(own, stage, signals)
    weighed = weighed or weigh_by_prior(now, stage, signals)
    now = now if weighed is None else weighed.confidence
    return _SignalReply(reply, LabelledSignals(reply.is_correct, own, stage, signals), now)


def _stage(name: str, checkpoint: str) -> str:
    """Return the name of a checkpoint's own number, with the part for others' replies of `name`.

    The deployment's recalibration is left out.
    """
    _, sign, hash_and_curve = name.partition(WITH_OTHERS)
    return checkpoint + sign + hash_and_curve.partition("+")[0] if sign else checkpoint
