"""Decide whether a newly learnt correction beats the current one, on labels it did not see.

    trial(found, before)                       # a recalibration
    compared(found, fixed(before), unseen(found, learn))    # anything that is learnt

The current correction is judged as it is, even if it was fitted on some of these labels, which
favours it. The rule of promotion has two parts:

    evidence   the labels are visited in the order of time; each is bet on, by the curve that
               was fitted on those before it, at the odds of the current correction. If these
               odds were right, the wealth would reach `ENOUGH` = 20 with a probability of at
               most 1/20 (Ville's inequality; Wasserman, Ramdas and Balakrishnan 2020 on such
               ratios)
    gain       the log loss of the new one, cross-fitted by questions, is lower

A bet on a reply of weight w, one of m to the same question, is the ratio to the power
w / (m max w), at most 1. With that the inequality holds for unequal weights (Jensen) and however
replies to one question depend on each other (Hoelder). ECE, Brier score and the gain with its
bootstrap interval are reported too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from calibrator.errors import JudgingError
from calibrator.metrics.intervals import RESAMPLES, SEED, Interval, percentile_interval
from calibrator.metrics.metrics import Floats, auroc, brier, ece, log_losses
from calibrator.metrics.sampling import effective_size
from calibrator.recalibration.curves import By, Kind
from calibrator.recalibration.fit import FOLDS, LabelledConfidences, apply_to_groups, fit_observed
from calibrator.rows.selection import share_of

ENOUGH: Final = 20.0
ROUNDS: Final = 20  # fits in the order of time, each on all labels before it


Learn = Callable[[Sequence[int], Sequence[int]], Floats]
"""A function that learns from the labels at some positions and returns confidences at others.

Raises JudgingError for too few labels, or labels of one kind.
"""


@dataclass(frozen=True, slots=True)
class UnseenConfidences:
    """Confidences of replies, (n,) each, from fits that did not see their labels.

    `across` was learnt from the other folds of questions. `in_time` was learnt from the earlier
    labels, and is nan where these were too few.
    """

    across: Floats
    in_time: Floats


@dataclass(frozen=True, slots=True)
class Figures:
    """Measures of confidences; for all but `auroc` lower is better.

    `auroc` ignores the weights of the labels.
    """

    ece: float
    brier: float
    log_loss: float
    auroc: float


@dataclass(frozen=True, slots=True)
class Trial:
    """The gain of the new recalibration; `effective_labels` is the effective number of labels."""

    labels: int
    effective_labels: float
    before: Figures
    after: Figures
    gain: Interval  # in log loss; above 0 the new one is better
    evidence: float  # against the current one: the final wealth, starting from 1

    @property
    def is_better(self) -> bool:
        """Whether the new one may replace the current one."""
        return self.evidence >= ENOUGH and self.gain.value > 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"is_better": self.is_better}


def trial(
    found: LabelledConfidences, before: ArrayLike, *, kind: Kind = "platt", by: By | None = None
) -> Trial:
    """Compare recalibrations of this kind with the current confidences, on replies in time order.

    `before` (n,) are the current confidences. The curves are judged on replies that they did not
    see.
    """
    return compare_fits(
        found, fixed_confidences(before), recalibrate_unseen(found, kind=kind, by=by)
    )


def recalibrate_unseen(
    found: LabelledConfidences, *, kind: Kind = "platt", by: By | None = None
) -> UnseenConfidences:
    """Return the confidences that curves of this kind give to replies they did not see.

    Once across folds of clusters, and once in time: learnt on earlier replies.
    """

    def learn(known: Sequence[int], judged: Sequence[int]) -> Floats:
        curve, observed = fit_observed(found.take(known), kind=kind, by=by), found.take(judged)
        return apply_to_groups(curve, observed.groups, observed.confidence)

    return predict_unseen(found, learn)


def fixed_confidences(confidence: ArrayLike) -> UnseenConfidences:
    """Return confidences that were not learnt from these labels, as `UnseenConfidences`."""
    numbers = np.asarray(confidence, dtype=np.float64)
    return UnseenConfidences(numbers, numbers)


def predict_unseen(
    found: LabelledConfidences, learn: Learn, progress: Callable[[], None] = lambda: None
) -> UnseenConfidences:
    """Return the confidences that `learn` gives to replies it did not see, in folds and in time.

    `progress` is called after each of the at most `FOLDS + ROUNDS` fits. Where the other folds have
    too few labels, the confidence stays. In time it is nan where the earlier replies have too few,
    as in the first round, which has none.
    """
    across, in_time = found.confidence.copy(), np.full(len(found.correct), np.nan)
    for target, parts in ((across, _folds(found.clusters)), (in_time, _rounds(found.clusters))):
        for known, judged in parts:
            with suppress(JudgingError):
                target[judged] = learn(known, judged)
            progress()
    return UnseenConfidences(across, in_time)


def compare_fits(
    found: LabelledConfidences, before: UnseenConfidences, after: UnseenConfidences
) -> Trial:
    """Return the figures of both sets of confidences, and the gain of `after` over `before`.

    The gain is the mean log loss that is saved, with its interval over resamples of clusters, from
    the confidences across folds. The evidence, at most e^700, is from those in time.
    """
    saved = log_losses(found.correct, before.across) - log_losses(found.correct, after.across)
    return Trial(
        len(found.correct),
        effective_size(found.weights),
        _figures(found, before.across),
        _figures(found, after.across),
        _mean_interval(saved, found),
        math.exp(min(_log_evidence(found, before.in_time, after.in_time), 700.0)),
    )


def log_loss_gain(found: LabelledConfidences, before: Floats, after: Floats) -> Interval:
    """Return the fall of the mean log loss, with its 95 % interval over clusters (linearised).

    It takes memory for one number per reply, where a `Trial` resamples. Both confidences are (n,).
    """
    saved = log_losses(found.correct, before) - log_losses(found.correct, after)
    gain = float(np.average(saved, weights=found.weights))
    _, cluster = np.unique(np.asarray(found.clusters), return_inverse=True)
    residuals = np.bincount(cluster, weights=found.weights * (saved - gain))
    reach = 1.96 * float(np.sqrt((residuals**2).sum())) / float(found.weights.sum())
    return Interval(gain, gain - reach, gain + reach)


def _log_evidence(found: LabelledConfidences, before: Floats, after: Floats) -> float:
    """Return log of the wealth that 1 becomes by betting, in time order, on `after` over `before`.

    Both are (n,); replies where either is nan are not bet on. Large values are evidence that
    `after` is better.
    """
    replies = Counter(found.clusters)
    power = found.weights / (found.weights.max() * np.array([replies[c] for c in found.clusters]))
    at = np.flatnonzero(np.isfinite(before) & np.isfinite(after))
    if not len(at):
        return 0.0
    y = found.correct[at]
    return float(power[at] @ (log_losses(y, before[at]) - log_losses(y, after[at])))


def _folds(clusters: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield positions to learn from and positions to judge, for each fold of clusters."""
    folds = np.array([int(share_of(cluster) * FOLDS) for cluster in clusters])
    for fold in range(FOLDS):
        yield np.flatnonzero(folds != fold).tolist(), np.flatnonzero(folds == fold).tolist()


def _rounds(clusters: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield, in the order of time, the positions of all earlier replies and of the next round.

    The replies of a cluster are together, at the place of the first.
    """
    first: dict[str, int] = {}
    for at, cluster in enumerate(clusters):
        first.setdefault(cluster, at)
    order = sorted(range(len(clusters)), key=lambda at: first[clusters[at]])
    start = 0
    for end in _round_ends([clusters[at] for at in order]):
        yield order[:start], order[start:end]
        start = end


def _round_ends(clusters: list[str]) -> list[int]:
    """Return the positions after the last reply of each round; no round separates a cluster.

    Each round has at least 1 / `ROUNDS` of the replies; only the last one may be shorter.
    """
    least = max(1, len(clusters) // ROUNDS)
    ends: list[int] = []
    for at in range(1, len(clusters) + 1):
        is_whole = at == len(clusters) or clusters[at] != clusters[at - 1]
        if is_whole and at - (ends[-1] if ends else 0) >= least:
            ends.append(at)
    return ends if ends and ends[-1] == len(clusters) else [*ends, len(clusters)]


def _figures(found: LabelledConfidences, confidence: Floats) -> Figures:
    """Return weighted ECE, Brier score and log loss of confidences (n,), and their AUROC."""
    y, w = found.correct, found.weights
    losses = log_losses(y, confidence)
    return Figures(
        ece(y, confidence, weights=w),
        brier(y, confidence, weights=w),
        float(np.average(losses, weights=w)),
        auroc(y, confidence),
    )


def _mean_interval(values: Floats, found: LabelledConfidences) -> Interval:
    """Return the weighted mean of `values` (n,), and its interval over resamples of whole clusters.

    The resamples are `RESAMPLES` and the same in each call.
    """
    _, cluster = np.unique(np.asarray(found.clusters), return_inverse=True)
    sums = np.bincount(cluster, weights=values * found.weights)
    sizes = np.bincount(cluster, weights=found.weights)
    rng = np.random.default_rng(SEED)
    drawn = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=RESAMPLES)
    means = (drawn @ sums) / (drawn @ sizes)
    return percentile_interval(float(sums.sum() / sizes.sum()), means)
