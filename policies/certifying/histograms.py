"""Distances between two histograms of confidences: Kolmogorov-Smirnov and population stability.

Both take counts in the same bins. The usual readings of PSI: below 0.1 stable, up to 0.25 moderate,
above that large. With few rows PSI is large by chance alone, so no reading is given below 100.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

PSI_MODERATE: Final = 0.1
PSI_LARGE: Final = 0.25
PSI_BINS: Final = 10
LEAST_ROWS: Final = 100

Reading = Literal["stable", "moderate", "large", "too few"]


@dataclass(frozen=True, slots=True)
class Distance:
    """Two histograms compared; `before` and `now` are their rows.

    `ks_p` is the probability of a `ks` as large without a change.
    """

    before: int
    now: int
    ks: float
    ks_p: float
    psi: float

    @property
    def reading(self) -> Reading:
        if min(self.before, self.now) < LEAST_ROWS:
            return "too few"
        if self.psi >= PSI_LARGE:
            return "large"
        return "moderate" if self.psi >= PSI_MODERATE else "stable"


def distance(before: Sequence[int], now: Sequence[int]) -> Distance | None:
    """Return the distance between two histograms, or None where one of them is empty.

    Raises ValueError where the numbers of bins differ.
    """
    if len(before) != len(now):
        raise ValueError(f"histograms of {len(before)} and {len(now)} bins cannot be compared")
    rows, later = sum(before), sum(now)
    if not rows or not later:
        return None
    ks = max(
        abs(one / rows - other / later)
        for one, other in zip(accumulate(before), accumulate(now), strict=True)
    )
    return Distance(rows, later, ks, _ks_p(ks, rows, later), _psi(before, now))


def _ks_p(ks: float, rows: int, later: int) -> float:
    """Return the asymptotic p-value of the two-sample test (Stephens 1970).

    With binned values it is a little too high.
    """
    size = math.sqrt(rows * later / (rows + later))
    x = (size + 0.12 + 0.11 / size) * ks
    if x < 0.2:
        return 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 101))
    return min(1.0, max(0.0, math.fsum(terms)))


def _psi(before: Sequence[int], now: Sequence[int]) -> float:
    """Return the PSI over groups of bins that each hold a tenth of the rows before.

    An empty group counts as half a row.
    """
    cuts = _tenths(before)
    pairs = [(sum(before[i:j]) or 0.5, sum(now[i:j]) or 0.5) for i, j in cuts]
    all_before, all_now = (math.fsum(column) for column in zip(*pairs, strict=True))
    shares = ((one / all_before, other / all_now) for one, other in pairs)
    return math.fsum((later - first) * math.log(later / first) for first, later in shares)


def _tenths(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Return ranges of neighbouring bins that each hold at least a tenth of the rows.

    Each range is as short as possible; the rest at the end joins the last one.
    """
    least = sum(counts) / PSI_BINS
    cuts, start, held = [], 0, 0
    for position, count in enumerate(counts):
        held += count
        if held >= least and position + 1 < len(counts):
            cuts.append((start, position + 1))
            start, held = position + 1, 0
    if held or not cuts:
        cuts.append((start, len(counts)))
    elif start < len(counts):
        cuts[-1] = (cuts[-1][0], len(counts))
    return cuts
