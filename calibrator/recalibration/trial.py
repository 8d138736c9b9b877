"""Whether what was learnt is better than what counts now, judged on labels it did not see.

    trial(found, before)                       # a recalibration
    compared(found, fixed(before), unseen(found, learn))    # anything that is learnt

What counts now is taken as it is, also where it was fitted on some of these labels, which favours
it. The rule of promotion has two parts:

    evidence   the labels are gone through in the order of time; each is bet on, by the curve that
               was fitted on those before it, at the odds that what counts now gives. Were these
               right, the wealth would reach `ENOUGH` = 20 with a probability of at most 1/20
               (Ville's inequality; Wasserman, Ramdas and Balakrishnan 2020 on such ratios)
    gain       the log loss of the new one, cross-fitted by questions, is lower

A bet on a reply of weight w, of m to the same question, is the ratio to the power w / (m max w),
at most 1: with that the inequality holds for unequal weights (Jensen) and however replies to one
question depend on each other (Hoelder). ECE, Brier score and the gain with its bootstrap interval
are told beside it.
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
from calibrator.recalibration.fit import FOLDS, Observed, apply_to_groups, fit_observed
from calibrator.rows.selection import share_of

ENOUGH: Final = 20.0
ROUNDS: Final = 20  # so often is the curve fitted anew on what came before


Learn = Callable[[Sequence[int], Sequence[int]], Floats]
"""Learns from the labels at some positions and gives the confidences of the replies at others;
raises JudgingError where there are too few to learn from, or of one kind."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """Confidences of replies by what did not see their labels, (n,) each.

    `across` was learnt from the other folds of questions; `in_time` from the labels before it, and
    is nan where these were too few.
    """

    across: Floats
    in_time: Floats


@dataclass(frozen=True, slots=True)
class Figures:
    """How good confidences are, each lower is better but for `auroc`, which is of the labels as
    they are, without their weights."""

    ece: float
    brier: float
    log_loss: float
    auroc: float


@dataclass(frozen=True, slots=True)
class Trial:
    """What the new recalibration gains; `effective_labels` is what the weighed labels are worth."""

    labels: int
    effective_labels: float
    before: Figures
    after: Figures
    gain: Interval  # of log loss, above 0 is better
    evidence: float  # against what counts now: the wealth, of which one unit was the beginning

    @property
    def is_better(self) -> bool:
        """Whether the new one may take the place of what counts now."""
        return self.evidence >= ENOUGH and self.gain.value > 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"is_better": self.is_better}


def trial(
    found: Observed, before: ArrayLike, *, kind: Kind = "platt", by: By | None = None
) -> Trial:
    """Tries a curve of this kind on replies in the order of time, whose confidences were `before`
    (n,)."""
    return compared(found, fixed(before), recalibrated(found, kind=kind, by=by))


def recalibrated(found: Observed, *, kind: Kind = "platt", by: By | None = None) -> Unseen:
    """What a curve of this kind says of replies in the order of time."""

    def learn(known: Sequence[int], judged: Sequence[int]) -> Floats:
        curve, its = fit_observed(found.taken(known), kind=kind, by=by), found.taken(judged)
        return apply_to_groups(curve, its.groups, its.confidence)

    return unseen(found, learn)


def fixed(confidence: ArrayLike) -> Unseen:
    """Of what is there already."""
    given = np.asarray(confidence, dtype=np.float64)
    return Unseen(given, given)


def unseen(found: Observed, learn: Learn, progress: Callable[[], None] = lambda: None) -> Unseen:
    """What `learn` says of replies in the order of time; `progress` hears of each of the
    `FOLDS + ROUNDS` times that it learns, or a few less.

    Where the other folds have too few labels the confidence stays as it is.
    """
    across, in_time = found.confidence.copy(), np.full(len(found.correct), np.nan)
    for target, parts in ((across, _folds(found.clusters)), (in_time, _rounds(found.clusters))):
        for known, judged in parts:
            with suppress(JudgingError):
                target[judged] = learn(known, judged)
            progress()
    return Unseen(across, in_time)


def compared(found: Observed, before: Unseen, after: Unseen) -> Trial:
    """What is gained by `after` over `before`."""
    saved = log_losses(found.correct, before.across) - log_losses(found.correct, after.across)
    return Trial(
        len(found.correct),
        effective_size(found.weights),
        _figures(found, before.across),
        _figures(found, after.across),
        _mean_interval(saved, found),
        math.exp(min(_log_evidence(found, before.in_time, after.in_time), 700.0)),
    )


def _log_evidence(found: Observed, before: Floats, after: Floats) -> float:
    """The logarithm of what one unit has become; nothing is bet where either has no confidence."""
    replies = Counter(found.clusters)
    power = found.weights / (found.weights.max() * np.array([replies[c] for c in found.clusters]))
    at = np.flatnonzero(np.isfinite(before) & np.isfinite(after))
    if not len(at):
        return 0.0
    y = found.correct[at]
    return float(power[at] @ (log_losses(y, before[at]) - log_losses(y, after[at])))


def _folds(clusters: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
    """What is learnt from and what is judged, of each fold of clusters."""
    folds = np.array([int(share_of(cluster) * FOLDS) for cluster in clusters])
    for fold in range(FOLDS):
        yield np.flatnonzero(folds != fold).tolist(), np.flatnonzero(folds == fold).tolist()


def _rounds(clusters: Sequence[str]) -> Iterator[tuple[list[int], list[int]]]:
    """The same in the order of time: all that came before, and what comes next."""
    first: dict[str, int] = {}
    for at, cluster in enumerate(clusters):
        first.setdefault(cluster, at)
    order = sorted(range(len(clusters)), key=lambda at: first[clusters[at]])
    start = 0
    for end in _ends([clusters[at] for at in order]):
        yield order[:start], order[start:end]
        start = end


def _ends(clusters: list[str]) -> list[int]:
    """Where the rounds end, so that none tears a cluster apart."""
    least = max(1, len(clusters) // ROUNDS)
    ends: list[int] = []
    for at in range(1, len(clusters) + 1):
        is_whole = at == len(clusters) or clusters[at] != clusters[at - 1]
        if is_whole and at - (ends[-1] if ends else 0) >= least:
            ends.append(at)
    return ends if ends and ends[-1] == len(clusters) else [*ends, len(clusters)]


def _figures(found: Observed, confidence: Floats) -> Figures:
    y, w = found.correct, found.weights
    losses = log_losses(y, confidence)
    return Figures(
        ece(y, confidence, weights=w),
        brier(y, confidence, weights=w),
        float(np.average(losses, weights=w)),
        auroc(y, confidence),
    )


def _mean_interval(values: Floats, found: Observed) -> Interval:
    """The weighed mean, and its interval over resamples of whole clusters."""
    _, cluster = np.unique(np.asarray(found.clusters), return_inverse=True)
    sums = np.bincount(cluster, weights=values * found.weights)
    sizes = np.bincount(cluster, weights=found.weights)
    rng = np.random.default_rng(SEED)
    drawn = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=RESAMPLES)
    means = (drawn @ sums) / (drawn @ sizes)
    return percentile_interval(float(sums.sum() / sizes.sum()), means)
