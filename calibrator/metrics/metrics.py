"""The figures of a confidence (paper H01, H03, H04, H07-H10), with numpy only, for serving too.

Every figure takes `correct` (n zeros and ones) and `confidence` (n finite numbers, higher = surer).
Where a figure is about finding wrong replies (AUPRC, F1), wrong is the positive class. With
`weights` (n numbers above 0) a reply stands for as many as its weight says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

ECE_BINS = 15
SUREST = 0.999  # confidences are clipped to this and its opposite, a log loss of 6.9 at most

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def check_arrays(correct: ArrayLike, confidence: ArrayLike) -> tuple[Ints, Floats]:
    """Return labels and confidences as arrays (n,), int64 and float64.

    Raises ValueError for other or different shapes, no values, labels but 0 and 1, and nan or inf.
    """
    y, p = np.asarray(correct), np.asarray(confidence, dtype=np.float64)
    if y.shape != p.shape or y.ndim != 1 or not len(y):
        raise ValueError(
            f"need two equally long, non-empty lists, got shapes {y.shape} and {p.shape}"
        )
    if not np.all((y == 0) | (y == 1)):
        raise ValueError("labels must be 0 or 1")
    if not np.isfinite(p).all():
        raise ValueError("confidences must be finite numbers")
    return y.astype(np.int64), p


def midranks(values: ArrayLike) -> Floats:
    """Return the ranks of values (n,), from 1 for the lowest; equal ones share their mean."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)


def auroc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """Return P(a correct reply has the higher confidence than a wrong one), 0 to 1 (H01).

    Ties count half. It is nan when all replies are correct or all are wrong, as there is nothing to
    rank. Raises ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    positives = int(y.sum())
    negatives = len(y) - positives
    if not positives or not negatives:
        return float("nan")
    rank_sum = float(midranks(p)[y == 1].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def brier(correct: ArrayLike, confidence: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return the mean squared difference of confidence and outcome, 0 to 1 (H03).

    With `weights` (n,) the mean is weighted. Raises ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    counts = None if weights is None else np.asarray(weights, dtype=np.float64)
    return float(np.average((p - y) ** 2, weights=counts))


def log_losses(correct: ArrayLike, confidence: ArrayLike) -> Floats:
    """Return -log of the probability given to each outcome, (n,), at most 6.9 each.

    Raises ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    kept = np.clip(p, 1 - SUREST, SUREST)
    return np.asarray(-np.log(np.where(y == 1, kept, 1 - kept)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Bin:
    """The replies with a confidence in (low, high]: their number, mean confidence and accuracy."""

    low: float
    high: float
    rows: int
    confidence: float
    accuracy: float
    weight: float = 0.0  # sum over its replies


def reliability(
    correct: ArrayLike,
    confidence: ArrayLike,
    bins: int = ECE_BINS,
    weights: ArrayLike | None = None,
) -> list[Bin]:
    """Return the non-empty bins of a reliability diagram, of equal width, ascending (U02).

    A confidence of 0 is in the first bin. With `weights` (n,) mean confidence and accuracy are
    weighted. Raises ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    w = np.ones(len(p)) if weights is None else np.asarray(weights, dtype=np.float64)
    which = np.clip(np.ceil(p * bins).astype(int) - 1, 0, bins - 1)
    rows = np.bincount(which, minlength=bins)
    weight, sure, right = (np.bincount(which, w * of, bins) for of in (1, p, y))
    return [
        Bin(
            k / bins,
            (k + 1) / bins,
            int(rows[k]),
            float(sure[k] / weight[k]),
            float(right[k] / weight[k]),
            float(weight[k]),
        )
        for k in np.flatnonzero(rows).tolist()
    ]


def ece(
    correct: ArrayLike,
    confidence: ArrayLike,
    bins: int = ECE_BINS,
    weights: ArrayLike | None = None,
) -> float:
    """Return the expected calibration error, 0 to 1, over bins (lo, hi] (H04, Guo 2017).

    The `bins` have equal width; a confidence of 0 is in the first. Raises ValueError as
    `check_arrays`.
    """
    found = reliability(correct, confidence, bins, weights)
    gaps = sum(one.weight * abs(one.confidence - one.accuracy) for one in found)
    return float(gaps / sum(one.weight for one in found))


def cohens_d(correct: ArrayLike, confidence: ArrayLike) -> float:
    """Return right replies' mean confidence less wrong ones', in pooled deviations (H07).

    It is nan where a class has fewer than two replies or nothing varies. Raises ValueError as
    `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    right, wrong = p[y == 1], p[y == 0]
    if len(right) < 2 or len(wrong) < 2:
        return float("nan")
    spread = (len(right) - 1) * right.var(ddof=1) + (len(wrong) - 1) * wrong.var(ddof=1)
    deviation = float(np.sqrt(spread / (len(y) - 2)))
    if deviation < 1e-12:  # equal numbers, up to rounding
        return float("nan")
    return float(right.mean() - wrong.mean()) / deviation


def expected_auroc(confidence: ArrayLike) -> float:
    """Return the AUROC that confidences (n,) have on average if they are the true probabilities.

    This is the model-based concordance of van Klaveren, Goenen, Steyerberg and Vergouwe (Statistics
    in Medicine 35, 2016): how often a right reply is higher than a wrong one, both drawn with these
    probabilities, where ties count half. It changes with the mix of replies as AUROC does, so a
    difference between the two is not due to the mix. It is nan where all are 0, all are 1, or n <
    2.
    """
    p = np.sort(np.asarray(confidence, dtype=np.float64))
    starts = np.flatnonzero(np.diff(p, prepend=-np.inf))
    if not len(starts):
        return math.nan
    right, wrong = np.add.reduceat(p, starts), np.add.reduceat(1 - p, starts)
    with_itself = float(np.sum(p * (1 - p)))
    pairs = float(right.sum() * wrong.sum()) - with_itself
    ties = float(np.sum(right * wrong)) - with_itself
    wins = float(np.sum(right * (np.cumsum(wrong) - wrong)))
    return (wins + ties / 2) / pairs if pairs > 0 else math.nan


def _cumulative_hits(keys: Floats, hits: Ints) -> tuple[Ints, Ints]:
    """Return for each distinct key, ascending, the replies up to it and the hits among them.

    `hits` (n,) are 0 or 1; both results are (distinct keys,).
    """
    order = np.argsort(keys, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(keys[order])), len(keys) - 1)
    return ends + 1, np.cumsum(hits[order])[ends]


def auprc_incorrect(correct: ArrayLike, confidence: ArrayLike) -> float:
    """Return the average precision of low confidence as an alarm for wrong replies (H08).

    It is nan without wrong replies. Raises ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    taken, wrong = _cumulative_hits(p, 1 - y)
    if not wrong[-1]:
        return float("nan")
    recall_steps = np.diff(wrong, prepend=0) / wrong[-1]
    return float(np.sum(recall_steps * wrong / taken))


def best_f1_incorrect(correct: ArrayLike, confidence: ArrayLike) -> float:
    """Return the best F1 of `confidence <= t` as an alarm for wrong replies, over all t (H09).

    It is nan without wrong replies. Raises ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    taken, wrong = _cumulative_hits(p, 1 - y)
    return float(np.max(2 * wrong / (taken + wrong[-1]))) if wrong[-1] else float("nan")


def risk_coverage(correct: ArrayLike, confidence: ArrayLike) -> tuple[Floats, Floats]:
    """Return for each threshold the share of replies kept and the share of errors among them.

    Both are (thresholds,). The surest are kept first, so shares kept ascend. Raises ValueError as
    `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    taken, wrong = _cumulative_hits(-p, 1 - y)
    return taken / len(y), wrong / taken


def aurc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """Return the mean error rate of the k surest replies over k = 1 .. n; lower is better.

    Replies of equal confidence have no order, so their errors are spread evenly over them. Raises
    ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    taken, wrong = _cumulative_hits(-p, 1 - y)
    k = np.arange(1, len(y) + 1)
    errors = np.interp(k, np.append(0, taken), np.append(0, wrong))
    return float(np.mean(errors / k))


def coverage_at(correct: ArrayLike, confidence: ArrayLike, accuracy: float) -> float:
    """Return the largest share of replies that a threshold keeps at this `accuracy` (H10).

    It is 0 where no threshold reaches it. It is found on the judged replies themselves, so there is
    no guarantee for others.
    """
    coverage, risk = risk_coverage(correct, confidence)
    reached = coverage[risk <= 1 - accuracy + 1e-12]
    return float(reached.max()) if len(reached) else 0.0


def roc(correct: ArrayLike, confidence: ArrayLike) -> tuple[Floats, Floats]:
    """Return false and true positive rates, (thresholds + 1,) each, from 0 to 1 (U03).

    Raises ValueError for labels of one kind.
    """
    y, p = check_arrays(correct, confidence)
    taken, right = _cumulative_hits(-p, y)
    wrong = taken - right
    if not right[-1] or not wrong[-1]:
        raise ValueError("a ROC curve needs correct and wrong replies")
    return np.append(0, wrong / wrong[-1]), np.append(0, right / right[-1])
