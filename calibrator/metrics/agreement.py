"""The agreement of reviewers on correctness: raw, Cohen's kappa, Krippendorff's alpha.

Labels are nominal, and not every reviewer labels every reply. Kappa compares two reviewers on the
replies that both have labelled; alpha takes all reviewers and all pairs of labels of a reply. 1 is
agreement, 0 is chance, below 0 is disagreement.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True)
class Label:
    """A reviewer's label of a reply."""

    reply: str
    reviewer: str
    is_correct: bool


@dataclass(frozen=True, slots=True)
class ReviewerPair:
    """The agreement of two reviewers on the replies that both have labelled.

    `kappa` is nan where both gave one and the same label only.
    """

    first: str
    second: str
    replies: int
    agreed: int
    kappa: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement on replies with two labels or more.

    `raw` is the share of pairs of labels that agree, nan without such a reply. `alpha` is also nan
    where all labels are the same.
    """

    replies: int
    raw: float
    alpha: float
    pairs: Sequence[ReviewerPair]


def agreement_of(labels: Iterable[Label]) -> Agreement:
    """Return how far reviewers agree on replies; a reviewer's last label of a reply counts."""
    of_reply: dict[str, dict[str, bool]] = defaultdict(dict)
    for each in labels:
        of_reply[each.reply][each.reviewer] = each.is_correct
    shared = [by_reviewer for by_reviewer in of_reply.values() if len(by_reviewer) > 1]
    return Agreement(len(shared), _raw_agreement(shared), _alpha(shared), _pairs(shared))


def _raw_agreement(shared: Sequence[dict[str, bool]]) -> float:
    """Return the share of pairs of labels of one reply that agree; nan without pairs.

    `shared` has each reply's labels by reviewer.
    """
    pairs = [
        one == other
        for by_reviewer in shared
        for one, other in combinations(by_reviewer.values(), 2)
    ]
    return sum(pairs) / len(pairs) if pairs else math.nan


def _alpha(shared: Sequence[dict[str, bool]]) -> float:
    """Return 1 - observed / expected disagreement (Krippendorff 2011, nominal, missing labels).

    It is nan where no disagreement is expected: without labels, or with labels of one kind.
    """
    counts: Counter[bool] = Counter()
    observed = 0.0
    for by_reviewer in shared:
        right = sum(by_reviewer.values())
        wrong = len(by_reviewer) - right
        counts.update({True: right, False: wrong})
        observed += 2 * right * wrong / (len(by_reviewer) - 1)
    labels = counts.total()
    expected = 2 * counts[True] * counts[False] / (labels - 1) if labels > 1 else 0.0
    return 1 - observed / expected if expected else math.nan


def _pairs(shared: Sequence[dict[str, bool]]) -> list[ReviewerPair]:
    """Return the agreement of each two reviewers who share a reply, in the order of names."""
    both: dict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for by_reviewer in shared:
        for one, other in combinations(sorted(by_reviewer), 2):
            both[one, other].append((by_reviewer[one], by_reviewer[other]))
    return [_pair(*names, labels) for names, labels in sorted(both.items())]


def _pair(first: str, second: str, labels: Sequence[tuple[bool, bool]]) -> ReviewerPair:
    """Return the agreement of two reviewers from their pairs of labels, with Cohen's kappa."""
    n = len(labels)
    agreed = sum(one == other for one, other in labels)
    yes, also = sum(one for one, _ in labels) / n, sum(other for _, other in labels) / n
    by_chance = yes * also + (1 - yes) * (1 - also)
    kappa = (agreed / n - by_chance) / (1 - by_chance) if by_chance < 1 else math.nan
    return ReviewerPair(first, second, n, agreed, kappa)
