"""The gain of a second number over a first for the same replies: weighted, with intervals.

A label stands for as many replies as its weight says. Intervals come from a bootstrap over labels,
which draws the same ones for both numbers. This needs only numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrator.metrics.intervals import SEED, Interval, percentile_interval
from calibrator.metrics.metrics import Floats, Ints, check_arrays

ACCURACY = 0.95  # accuracy of the kept replies
RESAMPLES = 500
LEAST_RESAMPLES = 100
_CELLS = 4_000_000  # cells of all resamples, few enough for a page to wait


@dataclass(frozen=True, slots=True)
class Gain:
    """A figure of the first number and of the second, and their difference with its interval."""

    before: float
    after: float
    gain: Interval


@dataclass(frozen=True, slots=True)
class Gains:
    """The ranking of each number (`auroc`), and its share of kept replies (`kept`).

    Kept is the largest share, surest first, of which `ACCURACY` are right.
    """

    auroc: Gain
    kept: Gain


def gains(
    correct: ArrayLike, before: ArrayLike, after: ArrayLike, weights: ArrayLike | None = None
) -> Gains | None:
    """Return how AUROC and the kept share change from one number to another, or None.

    `before` and `after` (n,) are two confidences of the same replies. None for labels of one kind.
    Raises ValueError for invalid labels or probabilities, or for different lengths.
    """
    y, first = check_arrays(correct, before)
    _, second = check_arrays(correct, after)
    if y.min() == y.max():
        return None
    own = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    rng = np.random.default_rng(SEED)
    resamples = max(LEAST_RESAMPLES, min(RESAMPLES, _CELLS // len(y)))
    drawn = rng.multinomial(len(y), np.full(len(y), 1 / len(y)), size=resamples) * own
    counts = np.vstack([own, drawn])  # the labels themselves, then each draw
    of_first, of_second = _figures(y, first, counts), _figures(y, second, counts)
    auroc, kept = (_gain(a, b) for a, b in zip(of_first, of_second, strict=True))
    return Gains(auroc, kept)


def _gain(before: Floats, after: Floats) -> Gain:
    """Return a figure before and after, from arrays (1 + resamples,) whose first is the value."""
    difference = after - before
    interval = percentile_interval(float(difference[0]), difference[1:])
    return Gain(float(before[0]), float(after[0]), interval)


def _figures(y: Ints, p: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return AUROC and the kept share, (r,) each, of replies that count `counts` (r, n) times.

    `p` (n,) are their confidences; AUROC is nan for a row without both labels.
    """
    order = np.argsort(-p, kind="stable")
    ends = np.flatnonzero(np.diff(p[order], append=-1.0))  # equal numbers are one step
    right = np.cumsum(counts[:, order] * y[order], axis=1)[:, ends]
    wrong = np.cumsum(counts[:, order] * (1 - y[order]), axis=1)[:, ends]
    rights, wrongs = right[:, -1], wrong[:, -1]
    steps_right = np.diff(right, axis=1, prepend=0.0)
    steps_wrong = np.diff(wrong, axis=1, prepend=0.0)
    wins = np.einsum("rn,rn->r", steps_right, wrongs[:, None] - wrong + steps_wrong / 2)
    pairs = rights * wrongs
    auroc = np.full(len(counts), np.nan)
    np.divide(wins, pairs, out=auroc, where=pairs > 0)
    taken = right + wrong
    is_enough = right >= ACCURACY * taken - 1e-9 * taken
    kept = np.max(np.where(is_enough, taken, 0.0), axis=1) / (rights + wrongs)
    return auroc, kept
