"""Fits a recalibration on labelled replies (paper I02, I03, K15, N01).

Platt scaling keeps the ranking; isotonic regression follows any rising curve but makes ties, and
needs more labels (N04). numpy only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from calibrator.baselines import labels_of
from calibrator.errors import JudgingError
from calibrator.metrics import Floats, Ints
from calibrator.recalibration import (
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
from calibrator.rows import Row
from calibrator.training_data import share_of

MIN_LABELS = 20  # for any curve
MIN_GROUP_LABELS = 50  # for a curve of a group's own; a smaller group has the pooled one
FOLDS = 5  # of questions, to measure a fit on rows that it did not see
SLOPE_BEFORE = 0.8  # before any label: about models it never saw, a calibrator is too sure
TRUST = (25.0, 3.0)  # 1 / variance of slope and intercept around that and 0
LOWEST, HIGHEST = 0.01, 0.99  # no isotonic curve is surer than that (I03)


def fit_trusting_platt(correct: ArrayLike, scores: ArrayLike) -> Platt:
    """Platt scaling that believes the scores until labels say otherwise.

    Slope and intercept are a priori normal around 0.8 and 0 with deviations 0.2 and 0.58, about
    what model families have that training left out (`ablations.md`). Plain maximum likelihood on
    100 labels spoils scores that were right; on thousands the two are the same.
    """
    return fit_platt(correct, scores, trust=TRUST, slope_before=SLOPE_BEFORE)


def fit_temperature(correct: ArrayLike, scores: ArrayLike, steps: int = 60) -> Platt:
    """Maximum likelihood of one factor on the logit (K15), by bisection of its gradient.

    The factor stays between `MIN_SLOPE` and 100.
    """
    x, y = logit(scores), np.asarray(correct, dtype=np.float64)
    low, high = math.log(MIN_SLOPE), math.log(100)
    for _ in range(steps):
        middle = (low + high) / 2
        # the likelihood is concave in the factor: where it still rises the best one is higher
        is_rising = np.sum((y - sigmoid(math.exp(middle) * x)) * x) > 0
        low, high = (middle, high) if is_rising else (low, middle)
    return Platt(math.exp((low + high) / 2), 0.0)


def fit_isotonic(correct: ArrayLike, scores: ArrayLike) -> Isotonic:
    """Least squares among rising curves, by pooling adjacent violators, kept within 0.01 and 0.99.

    As scikit-learn's `IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip")` (I03).
    """
    x, inverse = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True)
    weight = np.bincount(inverse).astype(np.float64)
    mean = np.bincount(inverse, weights=np.asarray(correct, dtype=np.float64)) / weight
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


FIT: Mapping[Kind, Callable[[ArrayLike, ArrayLike], Platt | Isotonic]] = {
    "platt": fit_trusting_platt,
    "isotonic": fit_isotonic,
    "temperature": fit_temperature,
}


def fit_recalibration(
    rows: Sequence[Row],
    confidence: Floats,
    *,
    kind: Kind = "platt",
    by: By | None = None,
    calibrator: str = "",
) -> Recalibration:
    """A pooled curve, and one for each model or domain with enough labels of both kinds.

    Raises JudgingError with fewer than `MIN_LABELS` labels, or labels of one kind only.
    """
    labels = labels_of(rows)
    if len(labels) < MIN_LABELS:
        raise JudgingError(
            f"{len(labels)} labelled rows are too few for a recalibration: {MIN_LABELS} is the "
            "least, 100 or more are better"
        )
    if not _is_mixed(labels):
        which = "correct" if labels[0] else "wrong"
        raise JudgingError(f"all {len(labels)} rows are {which}: a recalibration needs both kinds")
    members: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        members.setdefault(group_key(by, row.model, row.domain), []).append(i)
    own = {
        name: FIT[kind](labels[at], confidence[at])
        for name, at in members.items()
        if name and len(at) >= MIN_GROUP_LABELS and _is_mixed(labels[at])
    }
    return Recalibration(
        kind, FIT[kind](labels, confidence), by, own, labels=len(labels), calibrator=calibrator
    )


def _is_mixed(labels: Ints) -> bool:
    return bool(labels.min() != labels.max())


def apply_to_rows(recalibration: Recalibration, rows: Sequence[Row], confidence: Floats) -> Floats:
    """The rows' confidences, recalibrated."""
    return np.array(
        [
            recalibration.apply_to(float(p), row.model, row.domain)
            for row, p in zip(rows, confidence, strict=True)
        ]
    )


def cross_fitted(
    rows: Sequence[Row], confidence: Floats, *, kind: Kind = "platt", by: By | None = None
) -> Floats:
    """Each row's confidence after a recalibration that did not see its question, (n,).

    Five folds of questions; where the others have too few labels the confidence stays as it is.
    """
    folds = np.array([int(share_of(row.question_id) * FOLDS) for row in rows])
    mended = confidence.copy()
    for fold in range(FOLDS):
        inside = np.flatnonzero(folds == fold).tolist()
        outside = np.flatnonzero(folds != fold).tolist()
        try:
            found = fit_recalibration(
                [rows[i] for i in outside], confidence[outside], kind=kind, by=by
            )
        except JudgingError:
            continue
        mended[inside] = apply_to_rows(found, [rows[i] for i in inside], confidence[inside])
    return mended
