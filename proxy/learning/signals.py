"""The weights of a judge and of log-probabilities, learnt from verdicts as recalibrations are.

They join the calibrator's own score, of the reply alone or knowing others. The confidence with them
is tried against the one in force, on verdicts that the weights did not see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrator import (
    WITH_OTHERS,
    LabelledConfidences,
    LabelledSignals,
    Recalibrations,
    Signals,
    compare_fits,
    fit_signals,
    fixed_confidences,
    knows_others,
    predict_unseen,
    weigh_by_prior,
    weigh_replies,
    without_signals,
)
from proxy.learning.labels import Labels
from proxy.learning.recalibrating import LearnedFit, check_enough, usable
from proxy.store.verdicts.labels import LabelledReply


@dataclass(frozen=True, slots=True)
class _SignalReply:
    """A labelled reply with signals, and the confidence that it would have now."""

    reply: LabelledReply
    own: LabelledSignals
    now: float


def learn_signals(
    labels: Labels, checkpoint: str, counting: Recalibrations, *, is_held_only: bool = False
) -> LearnedFit:
    """Fit weights on labels of replies that `checkpoint` scored, and compare with what is in force.

    Raises NotLearntError for too few labels, or of held replies alone, and CalibratorError where no
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
        weights = fit_signals([own[at] for at in known])
        return weigh_replies(weights, [own[at] for at in judged], now[list(judged)])

    tried = compare_fits(observed, fixed_confidences(now), predict_unseen(observed, learn))
    return LearnedFit(fit_signals(own), tried, len(signalled) - len(found))


def signals_of(reply: LabelledReply) -> Signals:
    """Return the recorded signals of a reply: a judge's verdict and log-probabilities."""
    if (facts := reply.facts) is None:
        return Signals()
    logprobs = (facts.logprobs[0], facts.logprobs[1]) if len(facts.logprobs) == 2 else None
    return Signals(facts.judged, facts.judge or "", logprobs)


def _read_reply(
    reply: LabelledReply, checkpoint: str, counting: Recalibrations
) -> _SignalReply | None:
    """Return the reply with its own score and its confidence now, or None without an own score."""
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
    told = None if weights is None else weights.weigh(own, stage, signals)
    told = told or weigh_by_prior(now, stage, signals)
    now = now if told is None else told.confidence
    return _SignalReply(reply, LabelledSignals(reply.is_correct, own, stage, signals), now)


def _stage(name: str, checkpoint: str) -> str:
    """Return the source of a checkpoint's number, without the deployment's recalibration."""
    _, sign, hash_and_curve = name.partition(WITH_OTHERS)
    return checkpoint + sign + hash_and_curve.partition("+")[0] if sign else checkpoint
