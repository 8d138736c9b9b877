"""The uncertainty of figures: bootstrap intervals and DeLong's test (paper H02, H05, H06).

Replies to one question are not independent. So beside the paper's BCa interval over replies there
is one whose resamples draw whole questions. This needs only numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrator.metrics.disagreement import pair_wins
from calibrator.metrics.metrics import Floats, Ints, check_arrays, midranks

RESAMPLES = 2_000
LEVEL = 0.95
CHANCE = 0.5
SEED = 20_261_121
_CELLS = 30_000  # cells of one block of resamples, to fit into a processor's cache

NORMAL = NormalDist()

# `gains` compares two numbers for the same replies. A label stands for as many replies as its
# weight says, and a bootstrap over labels draws the same ones for both numbers.
ACCURACY = 0.95  # accuracy of the kept replies
GAIN_RESAMPLES = 500
LEAST_RESAMPLES = 100
_GAIN_CELLS = 4_000_000  # cells of all resamples, few enough for a page to wait


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the ends of its interval, at the level `LEVEL` unless stated otherwise."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two methods on the same replies: AUROC of each, their difference with interval, and p."""

    first: float
    second: float
    difference: Interval
    p: float


class RankedReplies:
    """Replies sorted once, so that a resample's AUROC is one pass over counts.

    `clusters` (n,) holds comparable values, equal for replies that are drawn together; without it
    each reply is drawn alone. Raises ValueError for labels of one kind.
    """

    def __init__(
        self, correct: ArrayLike, confidence: ArrayLike, clusters: ArrayLike | None = None
    ) -> None:
        """Sort the replies; raises ValueError as `check_arrays` and for labels of one kind."""
        y, p = check_arrays(correct, confidence)
        if y.min() == y.max():
            raise ValueError("AUROC needs correct and wrong replies")
        order = np.argsort(p, kind="stable")
        self.correct = y[order].astype(bool)
        ties = np.flatnonzero(np.diff(p[order], prepend=-np.inf))
        self._ties: Ints | None = ties if len(ties) < len(p) else None
        which = np.arange(len(p)) if clusters is None else np.asarray(clusters)
        _, inverse = np.unique(which, return_inverse=True)
        self.cluster = inverse[order]
        self.clusters = int(inverse.max()) + 1

    def auroc(self, weights: Floats) -> Floats:
        """Return the AUROC, (r,), of replies that count `weights` (r, n) times each.

        Weights are in the order of confidence. It is nan for a row without both labels.
        """
        right, wrong = weights * self.correct, weights * ~self.correct
        if self._ties is not None:  # equal confidences are one step
            right = np.add.reduceat(right, self._ties, axis=1)
            wrong = np.add.reduceat(wrong, self._ties, axis=1)
        below = np.cumsum(wrong, axis=1)
        pairs = right.sum(axis=1) * below[:, -1]
        wins: Floats = np.einsum("rn,rn->r", right, below - wrong / 2)
        return _quotient(wins, pairs)

    def resample(self, resamples: int, seed: int = SEED) -> Floats:
        """Return the AUROC of `resamples` draws of all clusters with replacement, (resamples,).

        The same seed gives the same draws; a draw without both labels gives nan.
        """
        rng = np.random.default_rng(seed)
        block = max(1, _CELLS // len(self.correct))
        found = []
        for start in range(0, resamples, block):
            size = min(block, resamples - start)
            drawn = rng.integers(self.clusters, size=(size, self.clusters))
            drawn += np.arange(size)[:, None] * self.clusters
            counts = np.bincount(drawn.ravel(), minlength=size * self.clusters)
            weights = counts.reshape(size, self.clusters)[:, self.cluster]
            found.append(self.auroc(weights.astype(np.float64)))
        return np.concatenate(found)

    def jackknife(self) -> Floats:
        """Return the AUROC without each cluster in turn, (clusters,).

        It is computed from all pairs less those of the cluster, and nan where a label is missing
        then.
        """
        y, rank = self.correct, self._midranks()
        positives, negatives = int(y.sum()), int((~y).sum())
        among = np.empty(len(y))  # rank among the replies of the same label
        among[y], among[~y] = midranks(rank[y]), midranks(rank[~y])
        won = np.where(y, rank - among, positives - (rank - among))  # pairs in the right order
        inside, right, wrong = pair_wins(y, rank, self.cluster)
        lost = np.bincount(self.cluster, weights=won, minlength=self.clusters) - inside
        pairs = (positives - right) * (negatives - wrong)
        return _quotient(won[y].sum() - lost, pairs)

    def _midranks(self) -> Floats:
        """Return the ranks of the sorted confidences, (n,), from 1; equal ones share their mean."""
        if self._ties is None:
            return np.arange(1, len(self.correct) + 1, dtype=np.float64)
        sizes = np.diff(np.append(self._ties, len(self.correct)))
        return np.repeat(self._ties + (sizes + 1) / 2, sizes)


def _quotient(wins: Floats, pairs: NDArray[Any]) -> Floats:
    """Return wins / pairs, nan where there are no pairs."""
    share = np.full(len(pairs), np.nan)
    np.divide(wins, pairs, out=share, where=pairs > 0)
    return share


def bca(value: float, resampled: Floats, jackknife: Floats, level: float = LEVEL) -> Interval:
    """Return a figure with its bias-corrected and accelerated interval (H02; Efron 1987).

    `resampled` (r,) and `jackknife` (n,) are the figure in resamples and without each case; nan in
    them is left out. If all resamples agree the interval is that one value; without any it is nan.
    """
    drawn = np.sort(resampled[np.isfinite(resampled)])
    if not len(drawn):
        return Interval(value, math.nan, math.nan)
    below = (np.sum(drawn < value) + np.sum(drawn <= value)) / 2 / len(drawn)
    bias = NORMAL.inv_cdf(min(max(below, 0.5 / len(drawn)), 1 - 0.5 / len(drawn)))
    left_out = jackknife[np.isfinite(jackknife)]  # empty where each has one class only
    pull = left_out.mean() - left_out if len(left_out) else left_out
    spread = float(np.sum(pull**2) ** 1.5)
    acceleration = float(np.sum(pull**3)) / (6 * spread) if spread else 0.0
    ends = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        z = bias + NORMAL.inv_cdf(tail)
        ends.append(NORMAL.cdf(bias + z / (1 - acceleration * z)))
    low, high = np.quantile(drawn, ends)
    return Interval(value, float(low), float(high))


def holds_chance(auroc: Interval) -> bool:
    """Return whether an interval of AUROC holds 0.5, the value of a calibrator that cannot rank."""
    return auroc.low <= CHANCE <= auroc.high


def auroc_interval(
    correct: ArrayLike,
    confidence: ArrayLike,
    clusters: ArrayLike | None = None,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return AUROC with its 95 % BCa interval (H02).

    With `clusters` (n,), such as questions, resamples draw whole clusters. All values are nan for
    labels of one kind. Raises ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    if y.min() == y.max():
        return Interval(math.nan, math.nan, math.nan)
    replies = RankedReplies(y, p, clusters)
    value = float(replies.auroc(np.ones((1, len(y))))[0])
    return bca(value, replies.resample(resamples), replies.jackknife())


def mean_interval(values: ArrayLike, resamples: int = RESAMPLES) -> Interval:
    """Return the mean of independent values (n,) with its 95 % BCa interval; nan for none."""
    found = np.asarray(values, dtype=np.float64)
    if not len(found):
        return Interval(math.nan, math.nan, math.nan)
    rng = np.random.default_rng(SEED)
    block = max(1, _CELLS // len(found))
    drawn = [
        found[rng.integers(len(found), size=(min(block, resamples - at), len(found)))].mean(axis=1)
        for at in range(0, resamples, block)
    ]
    without = (found.sum() - found) / max(1, len(found) - 1)
    return bca(float(found.mean()), np.concatenate(drawn), without)


def delong(correct: ArrayLike, first: ArrayLike, second: ArrayLike) -> PairedTest:
    """Return DeLong's test of two AUROCs on the same replies (H05), in n log n by mid-ranks.

    DeLong et al. 1988; Sun and Xu 2014. It is two-sided; p is 1 where both rank alike. Raises
    ValueError without two replies of each label.
    """
    y, a = check_arrays(correct, first)
    _, b = check_arrays(correct, second)
    right = y == 1
    positives, negatives = int(right.sum()), int((~right).sum())
    if positives < 2 or negatives < 2:
        raise ValueError("DeLong's test needs two correct and two wrong replies at least")
    wins, losses, areas = [], [], []
    for scores in (a, b):
        rank = midranks(scores)
        wins.append((rank[right] - midranks(scores[right])) / negatives)
        losses.append(1 - (rank[~right] - midranks(scores[~right])) / positives)
        areas.append(float(wins[-1].mean()))
    contrast = np.array([1.0, -1.0])
    covariance = np.cov(wins) / positives + np.cov(losses) / negatives
    deviation = math.sqrt(max(0.0, float(contrast @ covariance @ contrast)))
    difference = areas[0] - areas[1]
    reach = NORMAL.inv_cdf((1 + LEVEL) / 2) * deviation
    z = abs(difference) / deviation if deviation else (math.inf if difference else 0.0)
    interval = Interval(difference, difference - reach, difference + reach)
    return PairedTest(areas[0], areas[1], interval, math.erfc(z / math.sqrt(2)))


def percentile_interval(value: float, drawn: Floats) -> Interval:
    """Return `value` with the middle 95 % of the resamples' figures (H06); nan without any."""
    kept = drawn[np.isfinite(drawn)]
    if not len(kept):
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(kept, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))


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
    resamples = max(LEAST_RESAMPLES, min(GAIN_RESAMPLES, _GAIN_CELLS // len(y)))
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
