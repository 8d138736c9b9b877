"""The labels that are missing where no threshold is proved, or an error rate that is provable.

The search of `policies.certifying.certification` can only begin at its starting points, each with
its own part of delta. So the missing labels are those that the nearest starting point lacks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Protocol

from policies.binomial import lower_tail

_MOST_LABELS: Final = 1_000_000
"""The limit above which a number of missing labels is not reported, as it helps nobody."""


class LabelCounts(Protocol):
    """Labelled replies that can be counted above a threshold."""

    @property
    def labels(self) -> int:
        """The number of all labelled replies."""

    def at_or_above(self, threshold: float) -> tuple[int, int]:
        """Return the number of replies at or above a threshold, and how many of them are wrong."""


@dataclass(frozen=True, slots=True)
class NeededLabels:
    """The number of labels, of questions of the same kind, that are missing.

    `at_least` are enough if none of the new ones is wrong. `expected` is an estimate from the
    errors seen so far. It is None where no starting point is near the error rate asked for: either
    `is_hopeless`, as the errors seen exclude that rate at every starting point, or there are too
    few labels to tell. `start` is the nearest starting point, where `wrong` of `accepted` labels
    are errors; it is None without labels. `provable_error` is about the least error rate, in
    hundredths, that the same labels would have proved, and `provable_coverage` the share of them
    that its threshold accepts.
    """

    at_least: int
    expected: int | None
    start: float | None = None
    accepted: int = 0
    wrong: int = 0
    is_hopeless: bool = False
    provable_error: float | None = None
    provable_coverage: float = 0.0


def least_labels(max_error: float, delta: float) -> int:
    """Return how many faultless replies prove an error rate: 59 for 5 % and a delta of 0.05.

    This is the least n with (1 - max_error)^n <= delta.
    """
    n = math.ceil(math.log(delta) / math.log1p(-max_error))
    # Rounding in the two logarithms may shift n by one where the quotient is a whole number.
    return next(each for each in (n - 1, n, n + 1) if (1 - max_error) ** each <= delta)


def needed_labels(
    counts: LabelCounts, shares: Mapping[float, float], max_error: float, confidence: float
) -> NeededLabels:
    """Return the missing labels of the starting point that needs the fewest, as `NeededLabels`.

    `counts` are the labels so far, and `shares` maps each starting point (a threshold) to its part
    of delta = 1 - `confidence`. The share of new labels that is accepted is assumed to stay the
    same. Without labels, `expected` and `start` are None; `is_hopeless` where no starting point is
    in reach.
    """
    delta = 1.0 - confidence
    if not counts.labels:
        return NeededLabels(least_labels(max_error, delta * max(shares.values())), None)
    open_starts = _least_additional(counts, shares, max_error, delta)
    if not open_starts:
        start = _most_accepted(counts, shares, max_error, delta)
        least = max(least_labels(max_error, delta * max(shares.values())) - counts.labels, 1)
        return NeededLabels(least, None, start, *counts.at_or_above(start), is_hopeless=True)
    at_least, start = min(open_starts)
    expected = _expected_labels(counts, shares, max_error, confidence)
    if expected is not None:
        more, start = max(expected[0] - counts.labels, at_least), expected[1]
        return NeededLabels(at_least, more, start, *counts.at_or_above(start))
    return NeededLabels(at_least, None, start, *counts.at_or_above(start))


def _least_additional(
    counts: LabelCounts, shares: Mapping[float, float], max_error: float, delta: float
) -> list[tuple[int, float]]:
    """Return (labels that are enough if none is wrong, starting point) for each one in reach.

    Out of reach are starting points whose errors so far exclude the rate asked for (it is below
    their Clopper-Pearson interval), that accept nothing, or that need `_MOST_LABELS` or more.
    """
    found = []
    for start, share in shares.items():
        accepted, wrong = counts.at_or_above(start)
        # The tail is the probability of at least this many errors at the rate asked for.
        if not accepted or lower_tail(accepted - wrong, accepted, 1.0 - max_error) < delta / 2:
            continue
        passing = _least_count(0.0, max_error, delta * share, wrong)
        more = max(-(-(passing - accepted) * counts.labels // accepted), 1)
        if more < _MOST_LABELS:
            found.append((more, start))
    return found


def _expected_labels(
    counts: LabelCounts, shares: Mapping[float, float], max_error: float, confidence: float
) -> tuple[int, float] | None:
    """Return (labels in all that prove the rate if the share of errors stays, starting point).

    Return None where no starting point has a low enough share of errors, or each needs a million.
    """
    fewest, best = float(_MOST_LABELS), None
    for start, share in shares.items():
        accepted, wrong = counts.at_or_above(start)
        # Half an error is added, because few errors among few labels are no proof of a low rate.
        rate = (wrong + 0.5) / accepted if wrong else 0.0
        if accepted and rate < max_error:
            z = NormalDist().inv_cdf(1.0 - (1.0 - confidence) * share)
            about = z * z * max_error * (1 - max_error) / (max_error - rate) ** 2
            labels = about / accepted * counts.labels
            if labels < fewest:
                fewest, best = labels, (start, accepted, rate, share)
    if best is None:
        return None
    start, accepted, rate, share = best
    enough = _least_count(rate, max_error, (1.0 - confidence) * share)
    return -(-enough * counts.labels // accepted), start


def _most_accepted(
    counts: LabelCounts, shares: Mapping[float, float], max_error: float, delta: float
) -> float:
    """Return the highest starting point with enough labels to pass, or else the lowest one.

    Enough means that the labels at or above it would prove `max_error` if none of them were wrong.
    """
    for start in sorted(shares, reverse=True):
        if counts.at_or_above(start)[0] >= least_labels(max_error, delta * shares[start]):
            return start
    return min(shares)


def _least_count(rate: float, max_error: float, delta: float, wrong: int = 0) -> int:
    """Return the least number of accepted replies that proves an error rate of `max_error`.

    `wrong` of these replies and a share `rate` of them are assumed to be wrong. The proof is that
    as few errors have a probability of at most `delta`.
    """

    def is_enough(n: int) -> bool:
        return lower_tail(wrong + math.ceil(rate * n), n, max_error) <= delta

    low, high = 0, 1
    while not is_enough(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
