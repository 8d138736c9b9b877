"""Exact tails of the binomial distribution, without scipy, for the proofs of certificates."""

from __future__ import annotations

import math
from typing import Final

_NEGLIGIBLE: Final = 1e-18


def lower_tail(k: int, n: int, p: float) -> float:
    """Return P(X <= k) for X ~ Binomial(n, p), to a relative 1e-7 for n up to ten million.

    It is 0.0 for k < 0 and 1.0 for k >= n. The smaller side is summed outwards from its largest
    term, so that no small tail is lost in a difference.
    """
    if k < 0:
        return 0.0
    if k >= n or p <= 0.0:
        return 1.0
    if p >= 1.0:
        return 0.0
    if k < n * p:
        return min(1.0, _sum(k, n, p, step=-1))
    return max(0.0, 1.0 - _sum(k + 1, n, p, step=1))


def upper_bound(k: int, n: int, alpha: float) -> float:
    """Return the highest rate p, 0 to 1, for which P(X <= k) is still above `alpha`.

    X is binomial with n trials. This is the upper end of a one-sided Clopper-Pearson interval at
    confidence 1 - alpha for k successes, found by bisection; 1.0 for k = n.
    """
    if k >= n:
        return 1.0
    low, high = k / n, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if lower_tail(k, n, middle) > alpha else (low, middle)
    return high


def interval(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return (low, high), the two-sided Clopper-Pearson interval of a rate of k among n.

    It is (0.0, 1.0) for n = 0.
    """
    if n == 0:
        return 0.0, 1.0
    alpha = (1.0 - confidence) / 2
    return 1.0 - upper_bound(n - k, n, alpha), upper_bound(k, n, alpha)


def _sum(k: int, n: int, p: float, *, step: int) -> float:
    """Return the sum of the binomial probabilities from k down to 0 (`step` -1) or up to n (1).

    It ends at negligible terms, so the terms have to fall in the direction of `step`.
    """
    odds = p / (1.0 - p)
    term = math.exp(
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(p)
        + (n - k) * math.log1p(-p)
    )
    terms = [term]
    while (k < n if step > 0 else k > 0) and term > _NEGLIGIBLE * terms[0]:
        term *= (n - k) * odds / (k + 1) if step > 0 else k / ((n - k + 1) * odds)
        k += step
        terms.append(term)
    return math.fsum(terms)
