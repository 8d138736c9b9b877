"""The estimate of a share of a population from labelled samples of its strata.

Each stratum is sampled in its own way. Labels are weighted by 1 / the probability with which their
replies were drawn (Horvitz and Thompson 1952, as a ratio: Hajek 1971), and strata by their known
totals (post-stratification). Intervals are Wilson's at Kish's effective sample size, so they also
hold where no error was found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrator.metrics.intervals import LEVEL, NORMAL, Interval
from calibrator.metrics.metrics import Floats


@dataclass(frozen=True, slots=True)
class Stratum:
    """The labelled replies of one kind: values (n,) from 0 to 1 and weights (n,) above 0.

    `total` is the number of all replies of this kind.
    """

    values: Floats
    weights: Floats
    total: int


def effective_size(weights: ArrayLike) -> float:
    """Return how many equally weighted replies have the same information (Kish 1965).

    `weights` are (n,); 0 for none.
    """
    w = np.asarray(weights, dtype=np.float64)
    return float(w.sum() ** 2 / np.square(w).sum()) if len(w) else 0.0


def estimated_share(strata: Sequence[Stratum]) -> Interval:
    """Return the mean of the values over all replies of these strata, with its 95 % interval.

    Strata count by their totals; a stratum without replies is ignored. All values are nan where
    another has no label, and without strata.
    """
    counted = [each for each in strata if each.total]
    if not counted or not all(len(each.values) for each in counted):
        return Interval(math.nan, math.nan, math.nan)
    population = sum(each.total for each in counted)
    parts = [each.total / population for each in counted]
    means = [float(np.average(each.values, weights=each.weights)) for each in counted]
    share = math.fsum(part * mean for part, mean in zip(parts, means, strict=True))
    sizes = [effective_size(each.weights) for each in counted]
    variance = math.fsum(
        part**2 * max(mean * (1 - mean), 0.0) / size
        for part, mean, size in zip(parts, means, sizes, strict=True)
    )
    as_many = 1 / math.fsum(part**2 / size for part, size in zip(parts, sizes, strict=True))
    if variance > 0 and 0 < share < 1:
        as_many = share * (1 - share) / variance
    return wilson(share, as_many)


def wilson(share: float, size: float, level: float = LEVEL) -> Interval:
    """Return a share with Wilson's interval (1927), from `size` replies, perhaps not whole.

    `level` is the interval's, 0.95 by default.
    """
    z = NORMAL.inv_cdf((1 + level) / 2)
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    reach = z / (1 + z**2 / size) * math.sqrt(share * (1 - share) / size + (z / (2 * size)) ** 2)
    return Interval(share, max(0.0, middle - reach), min(1.0, middle + reach))
