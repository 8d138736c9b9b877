"""Spearman's rank correlation, with the two-sided p of no correlation showing as much (H14)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrator.metrics.metrics import midranks


@dataclass(frozen=True, slots=True)
class Correlation:
    """`rho` from -1 to 1 with its p; nan for fewer than three pairs, or where one side is equal."""

    rho: float
    p: float
    pairs: int


def spearman(first: ArrayLike, second: ArrayLike) -> Correlation:
    """Pearson's correlation of midranks; p by Student's t with two degrees less than pairs."""
    one, other = (midranks(np.asarray(each, dtype=np.float64)) for each in (first, second))
    pairs = len(one)
    if pairs < 3 or not np.ptp(one) or not np.ptp(other):
        return Correlation(math.nan, math.nan, pairs)
    rho = float(np.corrcoef(one, other)[0, 1])
    if abs(rho) >= 1 - 1e-12:
        return Correlation(math.copysign(1.0, rho), 0.0, pairs)
    from scipy.special import stdtr  # of the extra `train`; studies alone need it

    t = abs(rho) * math.sqrt((pairs - 2) / (1 - rho**2))
    return Correlation(rho, float(2 * stdtr(pairs - 2, -t)), pairs)
