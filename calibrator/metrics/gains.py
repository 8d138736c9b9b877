"""What a second number of the same replies is worth beyond the first: weighed, with intervals.

A label stands for as many replies as its weight says. Intervals are of a bootstrap over labels,
which draws the same ones for both numbers. numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrator.metrics.intervals import SEED, Interval, percentile_interval
from calibrator.metrics.metrics import Floats, Ints, checked

ACCURACY = 0.95  # of what is kept
RESAMPLES = 500
LEAST_RESAMPLES = 100
_CELLS = 4_000_000  # of all resamples: what a page can wait for


@dataclass(frozen=True, slots=True)
class Gain:
    """A figure of the first number and of the second, and their difference with its interval."""

    before: float
    after: float
    gain: Interval


@dataclass(frozen=True, slots=True)
class Gains:
    """How well each number ranks (`auroc`), and the largest share of replies, surest first, of
    which `ACCURACY` are right (`kept`)."""

    auroc: Gain
    kept: Gain


def gains(
    correct: ArrayLike, before: ArrayLike, after: ArrayLike, weights: ArrayLike | None = None
) -> Gains | None:
    """Both figures of two numbers (n,) of the same replies; None for labels of one kind.

    Raises ValueError for what is no label or no probability, or of different lengths.
    """
    y, first = checked(correct, before)
    _, second = checked(correct, after)
    if y.min() == y.max():
        return None
    own = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    rng = np.random.default_rng(SEED)
    resamples = max(LEAST_RESAMPLES, min(RESAMPLES, _CELLS // len(y)))
    drawn = rng.multinomial(len(y), np.full(len(y), 1 / len(y)), size=resamples) * own
    counts = np.vstack([own, drawn])  # of the labels as they are, and of each draw
    of_first, of_second = _figures(y, first, counts), _figures(y, second, counts)
    auroc, kept = (_gain(a, b) for a, b in zip(of_first, of_second, strict=True))
    return Gains(auroc, kept)


def _gain(before: Floats, after: Floats) -> Gain:
    difference = after - before
    interval = percentile_interval(float(difference[0]), difference[1:])
    return Gain(float(before[0]), float(after[0]), interval)


def _figures(y: Ints, p: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """AUROC and the share that is kept, (r,) each, of replies that count `counts` (r, n) times."""
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
