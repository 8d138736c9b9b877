"""How good a confidence is (paper H01, H03, H04). numpy only, so that serving can report it too."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

ECE_BINS = 15


def _arrays(
    correct: ArrayLike, confidence: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    y, p = np.asarray(correct, dtype=np.int64), np.asarray(confidence, dtype=np.float64)
    if y.shape != p.shape or y.ndim != 1 or not len(y):
        raise ValueError(
            f"need two equally long, non-empty lists, got shapes {y.shape} and {p.shape}"
        )
    return y, p


def midranks(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)


def auroc(correct: ArrayLike, confidence: ArrayLike) -> float:
    """P(a correct reply has the higher confidence), ties count half (H01).

    nan when all replies are correct or all are wrong: there is then nothing to rank.
    """
    y, p = _arrays(correct, confidence)
    positives = int(y.sum())
    negatives = len(y) - positives
    if not positives or not negatives:
        return float("nan")
    rank_sum = float(midranks(p)[y == 1].sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def brier(correct: ArrayLike, confidence: ArrayLike) -> float:
    """Mean squared difference of confidence and outcome (H03)."""
    y, p = _arrays(correct, confidence)
    return float(np.mean((p - y) ** 2))


def ece(correct: ArrayLike, confidence: ArrayLike, bins: int = ECE_BINS) -> float:
    """Expected calibration error over equal-width bins (lo, hi], 0 in the first (H04, Guo 2017)."""
    y, p = _arrays(correct, confidence)
    which = np.clip(np.ceil(p * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.abs(np.bincount(which, weights=p - y, minlength=bins))
    return float(gaps.sum() / len(y))
