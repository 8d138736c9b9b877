"""Certified thresholds: the lowest confidence above which at most a stated share is wrong.

    result = certify(rows, max_error=0.05, confidence=0.95)
    result.threshold                      # 0.83, or None where the labels prove nothing
    result.needed                         # in that case, the labels that are missing

The method is Learn then Test (Angelopoulos et al., arXiv 2110.01052) with an exact binomial tail
and several starting points. Every threshold t of a fixed grid has the hypothesis "more than
`max_error` of the replies at or above t are wrong". Its p-value is the probability of as few errors
among the accepted labels if exactly `max_error` of the replies were wrong.

delta = 1 - `confidence` is divided among the thresholds beforehand, by `starting_shares`: most of
it belongs to two starting points near 1 - `max_error`, where the confidences of a calibrated
scorer begin to keep the error rate, some of it to 0, where all replies are accepted, and the rest
to thirteen that cover other scales. The grid is tested from the top. A threshold passes where its
p-value is at most its own share plus what the threshold above it passed on; one that passes hands
everything on to the next, and one that fails hands on nothing. This is the fallback procedure
(Wiens 2003; Wiens and Dmitrienko, Journal of Biopharmaceutical Statistics 15, 2005). The lowest
threshold that passed is certified.

Why at most delta of all certificates are wrong, for any relation of confidence and errors: take
the thresholds whose hypothesis is true, from the top. As long as none of them has passed, what
such a threshold may use is at most the shares between the one before it and itself. The
probability that it passes is at most that much, because given the number of accepted labels their
errors are binomial. These parts do not overlap, so their sum is at most delta.

The statement is about replies drawn as the labelled ones were, one of each question: several
replies to a question are not independent evidence, so a hash chooses one.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from policies.binomial import lower_tail
from policies.certifying.missing_labels import NeededLabels, needed_labels
from policies.conditions.certificate import BINS, Grant, Scope
from policies.conditions.ranking import bin_of

GRID: Final = (0.999, 0.998, 0.995, *(percent / 100 for percent in range(99, -1, -1)))
"""The thresholds that can be certified, highest first. They do not depend on the labels."""

_SPREAD: Final = (0.999, 0.99, 0.98, 0.95, *(percent / 100 for percent in range(90, 0, -10)))
"""The starting points of every search, for confidences on any scale; each has one share."""

_ALL_SHARES: Final = 5
"""The shares of the starting point 0, which accepts all replies and so needs no ranking."""

_MAIN_SHARES: Final = 10
"""The shares of each of the two starting points that depend on `max_error`."""


@dataclass(frozen=True, slots=True)
class LabelledScore:
    """A scored reply and its label; `id` distinguishes the replies to one question.

    Later replies of a conversation (`is_first` is False) count for thresholds like any other. Live
    scores are not compared with theirs, as only the first reply of a live conversation is watched.
    """

    question: str
    confidence: float
    is_correct: bool
    id: str = ""
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class Certification:
    """The result of `certify`.

    `labels` counts questions, `accepted` those at or above the threshold, and `wrong` the errors
    among these. Without a threshold, `accepted` and `wrong` are 0 and `needed` is set. `scores`
    counts the confidences of first replies in `BINS` equal bins.
    """

    max_error: float
    confidence: float
    labels: int
    threshold: float | None = None
    accepted: int = 0
    wrong: int = 0
    needed: NeededLabels | None = None
    scores: tuple[int, ...] = ()

    @property
    def coverage(self) -> float:
        """The share of the labelled replies at or above the threshold."""
        return self.accepted / self.labels if self.labels else 0.0

    def grant(self, calibrator: str, scope: Scope) -> Grant:
        """Return the `Grant` of this threshold and its counts, to put into a certificate.

        `calibrator` is the version that gave the confidences. Raises ValueError where no threshold
        was certified.
        """
        if self.threshold is None:
            raise ValueError("there is no certified threshold")
        counts = self.labels, self.accepted, self.wrong
        stated = self.max_error, self.confidence
        return Grant(self.threshold, *stated, *counts, calibrator, scope, self.scores)


def certify(
    rows: Iterable[LabelledScore], max_error: float, confidence: float = 0.95
) -> Certification:
    """Return a `Certification` with the lowest threshold whose error rate is at most `max_error`.

    This holds with the probability `confidence`, such as 0.95. Only one reply of each question
    counts. Where no threshold is proved, `threshold` is None and `needed` holds the labels that are
    missing and an error rate that is provable. Raises ValueError where `max_error` or `confidence`
    is not between 0 and 1, or a row's confidence is no probability.
    """
    for name, value in (("max_error", max_error), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be more than 0 and less than 1, not {value}")
    counts = _Counts(one_per_question(rows))
    threshold = _lowest_proved(counts, max_error, confidence)
    if threshold is None:
        needed = needed_labels(counts, starting_shares(max_error), max_error, confidence)
        proved = _least_provable(counts, max_error, confidence)
        if proved is not None:
            rate, lowest = proved
            coverage = counts.at_or_above(lowest)[0] / counts.labels
            needed = replace(needed, provable_error=rate, provable_coverage=coverage)
        return Certification(max_error, confidence, counts.labels, needed=needed)
    accepted, wrong = counts.at_or_above(threshold)
    scores = counts.histogram()
    return Certification(
        max_error, confidence, counts.labels, threshold, accepted, wrong, scores=scores
    )


def starting_shares(max_error: float) -> Mapping[float, float]:
    """Return each starting point of the search with its part of delta; the parts add up to 1.

    They depend on `max_error` alone, never on the labelled rows: ten shares each for
    the grid's thresholds just below 1 - `max_error` / 2 and 1 - `max_error`, five for 0, and one
    for each of thirteen between 0.999 and 0.1.
    """
    shares = {**dict.fromkeys(_SPREAD, 1), 0.0: _ALL_SHARES}
    for wanted in (1 - max_error / 2, 1 - max_error):
        start = next(each for each in GRID if each <= wanted + 1e-9)
        shares[start] = shares.get(start, 0) + _MAIN_SHARES
    total = sum(shares.values())
    return {start: share / total for start, share in shares.items()}


def _lowest_proved(counts: _Counts, max_error: float, confidence: float) -> float | None:
    """Return the lowest threshold that passes the fallback procedure, None where none does.

    `max_error` is the error rate to prove, and 1 - `confidence` the probability of a wrong proof.
    The grid is tested from the top; a threshold that passes hands its share on to the next.
    """
    shares, delta = starting_shares(max_error), 1.0 - confidence
    lowest: float | None = None
    usable = 0.0
    for threshold in GRID:
        usable = min(usable + delta * shares.get(threshold, 0.0), delta)
        accepted, wrong = counts.at_or_above(threshold)
        if accepted and lower_tail(wrong, accepted, max_error) <= usable:
            lowest = threshold
        else:
            usable = 0.0
    return lowest


def _least_provable(
    counts: _Counts, max_error: float, confidence: float
) -> tuple[float, float] | None:
    """Return (an error rate in whole hundredths that these labels prove, its threshold), or None.

    It is found by bisection between `max_error` and 0.99, so it is nearly always the least such
    rate. None means that 0.99 is not proved either, or `max_error` is 0.99 or more.
    """
    low, high = math.floor(max_error * 100), 99
    proved = _lowest_proved(counts, high / 100, confidence)
    if proved is None or low >= high:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        threshold = _lowest_proved(counts, middle / 100, confidence) if middle else None
        if threshold is None:
            low = middle
        else:
            high, proved = middle, threshold
    return high / 100, proved


def one_per_question(rows: Iterable[LabelledScore]) -> list[LabelledScore]:
    """Return one reply of each question, in the order of the questions' first replies.

    It is chosen by a hash of question and id, which ignores score and label.
    """
    by_question: dict[str, list[LabelledScore]] = {}
    for row in rows:
        by_question.setdefault(row.question, []).append(row)
    return [
        replies[0] if len(replies) == 1 else min(replies, key=_place)
        for replies in by_question.values()
    ]


def _place(row: LabelledScore) -> bytes:
    """Return the SHA-256 of question and id; the reply with the least one is chosen."""
    return hashlib.sha256(f"{row.question}\0{row.id}".encode()).digest()


class _Counts:
    """Labelled replies, sorted by confidence."""

    def __init__(self, rows: Sequence[LabelledScore]) -> None:
        """Sort the rows by confidence. Raises ValueError for a confidence outside 0 to 1."""
        pairs = sorted((row.confidence, row.is_correct) for row in rows)
        self._first = [row.confidence for row in rows if row.is_first]
        if pairs and not 0 <= pairs[0][0] <= pairs[-1][0] <= 1:
            raise ValueError("a confidence is no probability")
        self.labels = len(pairs)
        self._confidences = [confidence for confidence, _ in pairs]
        self._wrong_below = [0, *accumulate(not is_correct for _, is_correct in pairs)]

    def at_or_above(self, threshold: float) -> tuple[int, int]:
        """Return (replies whose confidence is at or above the threshold, wrong ones among them)."""
        below = bisect_left(self._confidences, threshold)
        return self.labels - below, self._wrong_below[-1] - self._wrong_below[below]

    def histogram(self) -> tuple[int, ...]:
        """Return how many first replies have a confidence in each of `BINS` equal bins."""
        counts = [0] * BINS
        for confidence in self._first:
            counts[bin_of(confidence, BINS)] += 1
        return tuple(counts)
