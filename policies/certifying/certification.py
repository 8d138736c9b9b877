"""Certified thresholds: which confidence to ask for so that at most a stated share is wrong.

    result = certify(rows, max_error=0.05, confidence=0.95)
    result.threshold                      # 0.83, or None where the labels prove nothing
    result.needed                         # then: how many labels more

The method is Learn then Test with an exact binomial tail and a fixed sequence (arXiv 2110.01052):
thresholds of a grid fixed beforehand are tested downwards, from the first that accepts enough of
the labelled replies to pass at all, until one fails; the last that passed is certified. A
threshold t passes where, were its error rate above `max_error`, so few errors among the accepted
would have had a probability of at most delta = 1 - confidence. As each test is made only after all
before it passed, none of them costs any of delta. The first one tested is chosen by how many
replies are accepted, never by their labels.

What is stated holds for replies drawn as the labelled ones were, one of each question: several
replies to a question are no independent evidence, so a hash chooses one. It is exact where the
error rate does not fall as confidence falls; elsewhere the choice of the first threshold can cost
a little, too little for the simulations in tests/policies/certifying/test_policy_certification.py
to see.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import NormalDist
from typing import Final

from policies.binomial import lower_tail
from policies.conditions.certificate import BINS, Grant, Scope
from policies.conditions.ranking import bin_of

GRID: Final = (0.999, 0.998, 0.995, *(percent / 100 for percent in range(99, -1, -1)))
"""The thresholds that can be certified, highest first; fixed, whatever the labels are."""

_MOST_LABELS: Final = 1_000_000
"""Where more would be needed, no number is a help."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A scored reply and its label; `id` tells the replies to one question apart.

    Later replies of a conversation, those that are not `is_first`, prove thresholds like any other.
    Live scores are not compared with theirs: of a conversation the first reply alone is watched.
    """

    question: str
    confidence: float
    is_correct: bool
    id: str = ""
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class Needed:
    """How many labels, of questions of the same kind, are missing.

    `at_least` are enough if none of them is wrong, those seen so far counted. `expected` is an
    estimate from the errors seen so far, None where no threshold has come near the error rate asked
    for: then either `is_hopeless`, as the errors seen exclude that rate at every threshold that the
    search can come to, or there are too few labels to tell. `surest` and `wrong` tell where the
    search ended: at the first threshold, of so many replies.
    """

    at_least: int
    expected: int | None
    surest: int = 0
    wrong: int = 0
    is_hopeless: bool = False


@dataclass(frozen=True, slots=True)
class Certification:
    """What the labels prove. `labels` counts questions; `accepted` of them are at or above the
    threshold and `wrong` of those are errors. Without a threshold, all are 0 but `labels`."""

    max_error: float
    confidence: float
    labels: int
    threshold: float | None = None
    accepted: int = 0
    wrong: int = 0
    needed: Needed | None = None
    scores: tuple[int, ...] = ()

    @property
    def coverage(self) -> float:
        """The share of the labelled replies at or above the threshold."""
        return self.accepted / self.labels if self.labels else 0.0

    def grant(self, calibrator: str, scope: Scope) -> Grant:
        """What goes into a certificate; raises ValueError where nothing was certified."""
        if self.threshold is None:
            raise ValueError("there is no certified threshold")
        counts = self.labels, self.accepted, self.wrong
        stated = self.max_error, self.confidence
        return Grant(self.threshold, *stated, *counts, calibrator, scope, self.scores)


def certify(rows: Iterable[Labelled], max_error: float, confidence: float = 0.95) -> Certification:
    """Return the lowest threshold whose error rate is proved to be at most `max_error`.

    Raises ValueError where `max_error` or `confidence` is not between 0 and 1, or a row's
    confidence is no probability.
    """
    for name, value in (("max_error", max_error), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be more than 0 and less than 1, not {value}")
    counts = _Counts(one_per_question(rows))
    delta = 1.0 - confidence
    passed: float | None = None
    fewest = least_labels(max_error, confidence)
    for threshold in GRID:
        accepted, wrong = counts.at_or_above(threshold)
        if passed is None and accepted < fewest:
            continue
        if lower_tail(wrong, accepted, max_error) > delta:
            break
        passed = threshold
    if passed is None:
        tried = (counts.at_or_above(threshold) for threshold in GRID)
        surest, wrong = next((each for each in tried if each[0] >= fewest), (0, 0))
        needed = replace(_needed(counts, max_error, confidence), surest=surest, wrong=wrong)
        return Certification(max_error, confidence, counts.labels, needed=needed)
    accepted, wrong = counts.at_or_above(passed)
    return Certification(
        max_error, confidence, counts.labels, passed, accepted, wrong, scores=counts.histogram()
    )


def least_labels(max_error: float, confidence: float) -> int:
    """Return how many faultless replies certify an error rate: 59 for 5 % with 95 % confidence.

    The least n with (1 - max_error)^n <= 1 - confidence.
    """
    n = math.ceil(math.log1p(-confidence) / math.log1p(-max_error))
    # the two logarithms may miss by one where n comes out whole
    return next(each for each in (n - 1, n, n + 1) if (1 - max_error) ** each <= 1 - confidence)


def one_per_question(rows: Iterable[Labelled]) -> list[Labelled]:
    """Keep one reply of each question, chosen by a hash that knows nothing of score or label."""
    by_question: dict[str, list[Labelled]] = {}
    for row in rows:
        by_question.setdefault(row.question, []).append(row)
    return [
        replies[0] if len(replies) == 1 else min(replies, key=_place)
        for replies in by_question.values()
    ]


def _place(row: Labelled) -> bytes:
    return hashlib.sha256(f"{row.question}\0{row.id}".encode()).digest()


class _Counts:
    """Labelled replies in the order of their confidence."""

    def __init__(self, rows: Sequence[Labelled]) -> None:
        pairs = sorted((row.confidence, row.is_correct) for row in rows)
        self._first = [row.confidence for row in rows if row.is_first]
        if pairs and not 0 <= pairs[0][0] <= pairs[-1][0] <= 1:
            raise ValueError("a confidence is no probability")
        self.labels = len(pairs)
        self._confidences = [confidence for confidence, _ in pairs]
        self._wrong_below = [0, *accumulate(not is_correct for _, is_correct in pairs)]

    def at_or_above(self, threshold: float) -> tuple[int, int]:
        """How many replies are accepted, and how many of them are wrong."""
        below = bisect_left(self._confidences, threshold)
        return self.labels - below, self._wrong_below[-1] - self._wrong_below[below]

    def histogram(self) -> tuple[int, ...]:
        """Of the confidences that live ones are compared with."""
        counts = [0] * BINS
        for confidence in self._first:
            counts[bin_of(confidence, BINS)] += 1
        return tuple(counts)


def _needed(counts: _Counts, max_error: float, confidence: float) -> Needed:
    """What is missing at the threshold that needs the fewest labels, going by its errors so far."""
    at_least = max(least_labels(max_error, confidence) - counts.labels, 1)
    z = NormalDist().inv_cdf(confidence)
    fewest, best = float(_MOST_LABELS), (0, 0.0)
    for threshold in GRID:
        accepted, wrong = counts.at_or_above(threshold)
        # half an error more than was seen: few among few are no promise of few among many
        rate = (wrong + 0.5) / accepted if wrong else 0.0
        if accepted and rate < max_error:
            about = z * z * max_error * (1 - max_error) / (max_error - rate) ** 2
            labels = about / accepted * counts.labels
            if labels < fewest:
                fewest, best = labels, (accepted, rate)
    accepted, rate = best
    fewest_more = _fewest_more(counts, max_error, confidence)
    if not accepted or fewest_more is None:
        return Needed(fewest_more or at_least, None, is_hopeless=fewest_more is None)
    labels = -(-_enough(rate, max_error, 1.0 - confidence) * counts.labels // accepted)
    return Needed(fewest_more, max(labels - counts.labels, fewest_more))


def _fewest_more(counts: _Counts, max_error: float, confidence: float) -> int | None:
    """The labels that are enough if none of them is wrong; None where no number is a help.

    Looked at are the thresholds whose errors so far do not exclude the rate asked for, which is
    then within their Clopper-Pearson interval. Of the labels to come, the same share will be
    accepted there; and a threshold has to pass before a higher one has labels enough to be the
    first that is tested.
    """
    fewest_accepted = least_labels(max_error, confidence)
    if not counts.labels:
        return fewest_accepted
    delta, fewest, before_higher = 1.0 - confidence, None, math.inf
    for threshold in GRID:
        accepted, wrong = counts.at_or_above(threshold)
        if not accepted:
            continue
        # at the rate asked for, so many errors or more would have had this probability
        if lower_tail(accepted - wrong, accepted, 1.0 - max_error) >= delta / 2:
            passing = _enough(0.0, max_error, delta, wrong)
            more = max(_more(passing, accepted, counts.labels), 1)
            if more < min(before_higher, _MOST_LABELS):
                fewest = more if fewest is None else min(fewest, more)
        before_higher = min(before_higher, _more(fewest_accepted, accepted, counts.labels))
    return fewest


def _more(wanted: int, accepted: int, labels: int) -> int:
    """How many more labels bring those accepted to a number."""
    return -(-(wanted - accepted) * labels // accepted)


def _enough(rate: float, max_error: float, delta: float, wrong: int = 0) -> int:
    """The least number of accepted replies that passes, of which a share `rate` is wrong, and
    `wrong` besides."""

    def is_enough(n: int) -> bool:
        return lower_tail(wrong + math.ceil(rate * n), n, max_error) <= delta

    low, high = 0, 1
    while not is_enough(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
