"""Fit a recalibration on labelled replies (paper I02, I03, K15, N01), with numpy only.

Platt scaling keeps the ranking. Isotonic regression follows any rising curve, but makes ties and
needs more labels (N04).
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
MIN_GROUP_LABELS = 50  # for a group's own curve; a smaller group has the pooled one
FOLDS = 5  # of questions, to measure a fit on rows that it did not see
SLOPE_BEFORE = 0.8  # below 1 because a calibrator is too sure about models it never saw
TRUST = (25.0, 3.0)  # 1 / variance of the slope around `SLOPE_BEFORE`, the intercept around 0
LOWEST, HIGHEST = 0.01, 0.99  # the bounds of isotonic curves (I03)


def fit_trusting_platt(
    correct: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None
) -> Platt:
    """Fit Platt scaling that trusts the scores until labels contradict them.

    Slope and intercept are a priori normal around 0.8 and 0 with deviations 0.2 and 0.58, about
    what model families have that training left out (`ablations.md`). Plain maximum likelihood on
    100 labels spoils scores that were right; on thousands the two are the same.
    """
    return fit_platt(correct, scores, trust=TRUST, slope_before=SLOPE_BEFORE, weights=weights)


def fit_temperature(
    correct: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None, steps: int = 60
) -> Platt:
    """Fit one factor on the logits of scores by maximum likelihood (K15), as a Platt curve.

    Its intercept is 0. Labels, scores and weights are (n,). The factor stays between `MIN_SLOPE`
    and 100.
    """
    x, y = logit(scores), np.asarray(correct, dtype=np.float64)
    counts = np.ones_like(x) if weights is None else np.asarray(weights, dtype=np.float64)
    low, high = math.log(MIN_SLOPE), math.log(100)
    for _ in range(steps):
        middle = (low + high) / 2
        # the likelihood is concave in the factor: if it still rises here, the best factor is higher
        is_rising = np.sum(counts * (y - sigmoid(math.exp(middle) * x)) * x) > 0
        low, high = (middle, high) if is_rising else (low, middle)
    return Platt(math.exp((low + high) / 2), 0.0)


def fit_isotonic(
    correct: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None
) -> Isotonic:
    """Fit a rising curve by least squares (pool adjacent violators), between 0.01 and 0.99.

    Labels, scores and weights are (n,). It is scikit-learn's `IsotonicRegression(y_min=0.01,
    y_max=0.99, out_of_bounds="clip")` (I03).
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
    # the two ends of each flat stretch are enough
    kept = np.ones(len(x), dtype=bool)
    kept[1:-1] = (np.diff(heights)[:-1] != 0) | (np.diff(heights)[1:] != 0)
    return Isotonic(tuple(map(float, x[kept])), tuple(map(float, heights[kept])))


FIT: Mapping[Kind, Callable[..., Platt | Isotonic]] = {
    "platt": fit_trusting_platt,
    "isotonic": fit_isotonic,
    "temperature": fit_temperature,
}


@dataclass(frozen=True, slots=True)
class LabelledConfidences:
    """Labelled confidences of n replies.

    `groups` are the keys of the curves that replies may have of their own, empty for none. Replies
    with the same entry in `clusters`, such as those to one question, are never separated. `weights`
    say how many replies each one counts as.
    """

    correct: Ints
    confidence: Floats
    groups: Sequence[str]
    clusters: Sequence[str]
    weights: Floats

    def take(self, at: Sequence[int]) -> LabelledConfidences:
        """Return the replies at these positions."""
        return LabelledConfidences(
            self.correct[at],
            self.confidence[at],
            [self.groups[i] for i in at],
            [self.clusters[i] for i in at],
            self.weights[at],
        )

    def curve(self, kind: Kind) -> Platt | Isotonic:
        """Fit a curve of this kind (`platt`, `isotonic` or `temperature`) on all replies.

        Their weights are scaled so that they sum to their effective number (Kish).
        """
        counts = self.weights * (effective_size(self.weights) / self.weights.sum())
        return FIT[kind](self.correct, self.confidence, counts)

    @property
    def is_mixed(self) -> bool:
        """Whether there are labels of both kinds."""
        return bool(self.correct.min() != self.correct.max())


def observed_rows(
    rows: Sequence[Row], confidence: Floats, by: By | None = None
) -> LabelledConfidences:
    """Make labelled confidences of rows, all of weight 1; rows of one question form a cluster.

    The keys of their groups are the model, domain or team, as `by` says.
    """
    keys = [group_key(by, row.model, row.domain, row.raw.get("team")) for row in rows]
    ones = np.ones(len(rows))
    return LabelledConfidences(
        labels_of(rows), confidence, keys, [row.question_id for row in rows], ones
    )


def fit_recalibration(
    rows: Sequence[Row],
    confidence: Floats,
    *,
    kind: Kind = "platt",
    by: By | None = None,
    calibrator: str = "",
) -> Recalibration:
    """Fit a recalibration on labelled rows and their confidences (n,).

    Raises JudgingError as `fit_observed` does.
    """
    return fit_observed(
        observed_rows(rows, confidence, by), kind=kind, by=by, calibrator=calibrator
    )


def fit_observed(
    found: LabelledConfidences, *, kind: Kind = "platt", by: By | None = None, calibrator: str = ""
) -> Recalibration:
    """Fit a pooled curve, and one for each group with enough labels of both kinds.

    `by` and `calibrator` are only noted in the result: what the groups are, and whose numbers these
    were. Raises JudgingError for fewer than `MIN_LABELS` labels, and for labels of one kind only.
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
        name: group.curve(kind)
        for name, at in members.items()
        if name and len(at) >= MIN_GROUP_LABELS and (group := found.take(at)).is_mixed
    }
    return Recalibration(kind, found.curve(kind), by, own, labels=labels, calibrator=calibrator)


def apply_to_groups(
    recalibration: Recalibration, groups: Sequence[str], confidence: Floats
) -> Floats:
    """Return recalibrated confidences (n,) of replies whose groups have these keys.

    `groups` has a key for each confidence; raises ValueError if their numbers differ. A key without
    a curve of its own gets the pooled one.
    """
    pairs = zip(confidence, groups, strict=True)
    return np.array([recalibration.apply(float(p), key) for p, key in pairs])


def cross_fitted(
    rows: Sequence[Row], confidence: Floats, *, kind: Kind = "platt", by: By | None = None
) -> Floats:
    """Return the confidences (n,) of labelled rows, each by a curve that did not see its question.

    See `cross_fitted_observed`.
    """
    return cross_fitted_observed(observed_rows(rows, confidence, by), kind=kind, by=by)


def cross_fitted_observed(
    found: LabelledConfidences, *, kind: Kind = "platt", by: By | None = None
) -> Floats:
    """Return the confidences (n,), each by a curve that did not see the reply's cluster.

    There are five folds of clusters. Where the other folds cannot be fitted, a confidence is
    unchanged.
    """
    folds = np.array([int(share_of(cluster) * FOLDS) for cluster in found.clusters])
    mended = found.confidence.copy()
    for fold in range(FOLDS):
        inside = np.flatnonzero(folds == fold).tolist()
        outside = np.flatnonzero(folds != fold).tolist()
        try:
            fitted = fit_observed(found.take(outside), kind=kind, by=by)
        except JudgingError:
            continue
        judged = found.take(inside)
        mended[inside] = apply_to_groups(fitted, judged.groups, judged.confidence)
    return mended
