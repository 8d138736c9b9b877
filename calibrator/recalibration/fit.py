"""Fits a recalibration on labelled replies (paper I02, I03, K15, N01).

Platt scaling keeps the ranking; isotonic regression follows any rising curve but makes ties, and
needs more labels (N04). numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrator.errors import JudgingError
from calibrator.metrics.metrics import Floats, Ints
from calibrator.metrics.sampling import effective_size
from calibrator.recalibration.curves import (
    MIN_SLOPE,
    By,
    Isotonic,
    Kind,
    Platt,
    Recalibration,
    fit_platt,
    group_key,
    logit,
    sigmoid,
)
from calibrator.rows.rows import Row, labels_of
from calibrator.rows.selection import share_of

MIN_LABELS = 20  # for any curve
MIN_GROUP_LABELS = 50  # for a curve of a group's own; a smaller group has the pooled one
FOLDS = 5  # of questions, to measure a fit on rows that it did not see
SLOPE_BEFORE = 0.8  # before any label: about models it never saw, a calibrator is too sure
TRUST = (25.0, 3.0)  # 1 / variance of slope and intercept around that and 0
LOWEST, HIGHEST = 0.01, 0.99  # no isotonic curve is surer than that (I03)


def fit_trusting_platt(
    correct: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None
) -> Platt:
    """Platt scaling that believes the scores until labels say otherwise.

    Slope and intercept are a priori normal around 0.8 and 0 with deviations 0.2 and 0.58, about
    what model families have that training left out (`ablations.md`). Plain maximum likelihood on
    100 labels spoils scores that were right; on thousands the two are the same.
    """
    return fit_platt(correct, scores, trust=TRUST, slope_before=SLOPE_BEFORE, weights=weights)


def fit_temperature(
    correct: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None, steps: int = 60
) -> Platt:
    """Maximum likelihood of one factor on the logit (K15), by bisection of its gradient.

    The factor stays between `MIN_SLOPE` and 100.
    """
    x, y = logit(scores), np.asarray(correct, dtype=np.float64)
    counts = np.ones_like(x) if weights is None else np.asarray(weights, dtype=np.float64)
    low, high = math.log(MIN_SLOPE), math.log(100)
    for _ in range(steps):
        middle = (low + high) / 2
        # the likelihood is concave in the factor: where it still rises the best one is higher
        is_rising = np.sum(counts * (y - sigmoid(math.exp(middle) * x)) * x) > 0
        low, high = (middle, high) if is_rising else (low, middle)
    return Platt(math.exp((low + high) / 2), 0.0)


def fit_isotonic(
    correct: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None
) -> Isotonic:
    """Least squares among rising curves, by pooling adjacent violators, kept within 0.01 and 0.99.

    As scikit-learn's `IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip")` (I03).
    """
    x, inverse = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)
    y = np.asarray(correct, dtype=np.float64)
    counts = np.ones_like(y) if weights is None else np.asarray(weights, dtype=np.float64)
    weight = np.bincount(inverse, weights=counts)
    mean = np.bincount(inverse, weights=counts * y) / weight
    blocks: list[list[float]] = []  # mean, weight, distinct scores
    for value, count in zip(mean, weight, strict=True):
        blocks.append([value, count, 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (a, m, i), (b, n, j) = blocks[-2:]
            blocks[-2:] = [[(a * m + b * n) / (m + n), m + n, i + j]]
    heights = np.repeat([block[0] for block in blocks], [int(block[2]) for block in blocks])
    heights = np.clip(heights, LOWEST, HIGHEST)
    # of each flat stretch the two ends are enough
    kept = np.ones(len(x), dtype=bool)
    kept[1:-1] = (np.diff(heights)[:-1] != 0) | (np.diff(heights)[1:] != 0)
    return Isotonic(tuple(map(float, x[kept])), tuple(map(float, heights[kept])))


FIT: Mapping[Kind, Callable[..., Platt | Isotonic]] = {
    "platt": fit_trusting_platt,
    "isotonic": fit_isotonic,
    "temperature": fit_temperature,
}


@dataclass(frozen=True, slots=True)
class Observed:
    """Labelled confidences, n of each.

    `groups` are the keys of the curves that replies may have of their own, empty for none; replies
    with the same `clusters` entry, such as those to one question, are never torn apart. A reply
    stands for as many others as its weight says.
    """

    correct: Ints
    confidence: Floats
    groups: Sequence[str]
    clusters: Sequence[str]
    weights: Floats

    def taken(self, at: Sequence[int]) -> Observed:
        """Those at these positions."""
        return Observed(
            self.correct[at],
            self.confidence[at],
            [self.groups[i] for i in at],
            [self.clusters[i] for i in at],
            self.weights[at],
        )

    def curve(self, kind: Kind) -> Platt | Isotonic:
        """Fitted on all; weights count as much as the labels they are worth (Kish)."""
        counts = self.weights * (effective_size(self.weights) / self.weights.sum())
        return FIT[kind](self.correct, self.confidence, counts)

    @property
    def is_mixed(self) -> bool:
        """Whether there are labels of both kinds."""
        return bool(self.correct.min() != self.correct.max())


def observed_rows(rows: Sequence[Row], confidence: Floats, by: By | None = None) -> Observed:
    """Rows that all count alike; those to one question belong together."""
    keys = [group_key(by, row.model, row.domain, row.raw.get("team")) for row in rows]
    ones = np.ones(len(rows))
    return Observed(labels_of(rows), confidence, keys, [row.question_id for row in rows], ones)


def fit_recalibration(
    rows: Sequence[Row],
    confidence: Floats,
    *,
    kind: Kind = "platt",
    by: By | None = None,
    calibrator: str = "",
) -> Recalibration:
    """As `fit_observed`, on labelled rows."""
    return fit_observed(
        observed_rows(rows, confidence, by), kind=kind, by=by, calibrator=calibrator
    )


def fit_observed(
    found: Observed, *, kind: Kind = "platt", by: By | None = None, calibrator: str = ""
) -> Recalibration:
    """A pooled curve, and one for each group with enough labels of both kinds.

    Raises JudgingError with fewer than `MIN_LABELS` labels, or labels of one kind only.
    """
    labels = len(found.correct)
    if labels < MIN_LABELS:
        raise JudgingError(
            f"{labels} labelled rows are too few for a recalibration: {MIN_LABELS} is the "
            "least, 100 or more are better"
        )
    if not found.is_mixed:
        which = "correct" if found.correct[0] else "wrong"
        raise JudgingError(f"all {labels} rows are {which}: a recalibration needs both kinds")
    members: dict[str, list[int]] = {}
    for i, key in enumerate(found.groups):
        members.setdefault(key, []).append(i)
    own = {
        name: its.curve(kind)
        for name, at in members.items()
        if name and len(at) >= MIN_GROUP_LABELS and (its := found.taken(at)).is_mixed
    }
    return Recalibration(kind, found.curve(kind), by, own, labels=labels, calibrator=calibrator)


def apply_to_groups(
    recalibration: Recalibration, groups: Sequence[str], confidence: Floats
) -> Floats:
    """Confidences (n,) of replies with these keys of curves, recalibrated."""
    pairs = zip(confidence, groups, strict=True)
    return np.array([recalibration.apply(float(p), key) for p, key in pairs])


def cross_fitted(
    rows: Sequence[Row], confidence: Floats, *, kind: Kind = "platt", by: By | None = None
) -> Floats:
    """As `cross_fitted_observed`, on labelled rows."""
    return cross_fitted_observed(observed_rows(rows, confidence, by), kind=kind, by=by)


def cross_fitted_observed(found: Observed, *, kind: Kind = "platt", by: By | None = None) -> Floats:
    """Each confidence after a recalibration that did not see its cluster, (n,).

    Five folds of clusters; where the others have too few labels the confidence stays as it is.
    """
    folds = np.array([int(share_of(cluster) * FOLDS) for cluster in found.clusters])
    mended = found.confidence.copy()
    for fold in range(FOLDS):
        inside = np.flatnonzero(folds == fold).tolist()
        outside = np.flatnonzero(folds != fold).tolist()
        try:
            fitted = fit_observed(found.taken(outside), kind=kind, by=by)
        except JudgingError:
            continue
        its = found.taken(inside)
        mended[inside] = apply_to_groups(fitted, its.groups, its.confidence)
    return mended
