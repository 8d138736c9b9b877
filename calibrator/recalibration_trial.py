"""Whether a new recalibration is better than what counts now, judged on labels it did not see.

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
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from calibrator.errors import JudgingError
from calibrator.intervals import RESAMPLES, SEED, Interval, percentile_interval
from calibrator.metrics import Floats, brier, ece, log_losses
from calibrator.recalibration import By, Kind
from calibrator.recalibration_fit import (
    Observed,
    apply_to_groups,
    cross_fitted_observed,
    fit_observed,
)
from calibrator.sampling import effective_size

ENOUGH: Final = 20.0
ROUNDS: Final = 20  # so often is the curve fitted anew on what came before


@dataclass(frozen=True, slots=True)
class Figures:
    """How good confidences are, each lower is better."""

    ece: float
    brier: float
    log_loss: float


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
    old = np.asarray(before, dtype=np.float64)
    new = cross_fitted_observed(found, kind=kind, by=by)
    saved = log_losses(found.correct, old) - log_losses(found.correct, new)
    return Trial(
        len(found.correct),
        effective_size(found.weights),
        _figures(found, old),
        _figures(found, new),
        _mean_interval(saved, found),
        math.exp(min(_log_evidence(found, old, kind, by), 700.0)),
    )


def _log_evidence(found: Observed, before: Floats, kind: Kind, by: By | None) -> float:
    """The logarithm of what one unit has become."""
    replies = Counter(found.clusters)
    first: dict[str, int] = {}
    for at, cluster in enumerate(found.clusters):
        first.setdefault(cluster, at)
    order = sorted(range(len(before)), key=lambda at: first[found.clusters[at]])
    power = found.weights / (found.weights.max() * np.array([replies[c] for c in found.clusters]))
    evidence, start = 0.0, 0
    for end in _ends([found.clusters[at] for at in order]):
        bet_on = order[start:end]
        try:
            curve = fit_observed(found.taken(order[:start]), kind=kind, by=by)
        except JudgingError:  # too few before them to bet
            start = end
            continue
        its = found.taken(bet_on)
        after = apply_to_groups(curve, its.groups, its.confidence)
        saved = log_losses(its.correct, before[bet_on]) - log_losses(its.correct, after)
        evidence += float(power[bet_on] @ saved)
        start = end
    return evidence


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
