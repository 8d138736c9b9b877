"""The ranking of right replies above wrong ones in three figures, and rank correlation (H14)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrator.metrics.disagreement import disagreement
from calibrator.metrics.metrics import auroc, midranks


@dataclass(frozen=True, slots=True)
class Ranking:
    """The AUROC of some replies: pooled, as the mean over benchmarks, and over questions (L02).

    A benchmark or a question counts where it has right and wrong replies.
    """

    rows: int
    pooled: float
    over_benchmarks: float
    within_questions: float

    @property
    def figures(self) -> tuple[float, float, float]:
        return self.pooled, self.over_benchmarks, self.within_questions


def measure_ranking(
    correct: ArrayLike,
    scores: ArrayLike,
    benchmarks: Sequence[str],
    questions: Sequence[str],
) -> Ranking:
    """Return the AUROC of n replies: pooled, mean over benchmarks, mean over questions.

    `benchmarks` and `questions` (n,) are their names. A mean is nan where none has right and wrong
    replies, the pooled one for labels of one kind.
    """

    def mean(groups: Sequence[str]) -> float:
        """Return the mean AUROC within these groups, or nan."""
        within = disagreement(correct, scores, groups, permutations=0)
        return within.auroc if within else math.nan

    return Ranking(len(questions), auroc(correct, scores), mean(benchmarks), mean(questions))


@dataclass(frozen=True, slots=True)
class Correlation:
    """A rank correlation `rho` from -1 to 1, with its p-value and the number of pairs.

    Both are nan for fewer than three pairs, or where all values of one side are equal.
    """

    rho: float
    p: float
    pairs: int


def spearman(first: ArrayLike, second: ArrayLike) -> Correlation:
    """Return Pearson's correlation of the midranks of two lists (n,), with its two-sided p.

    p is from Student's t with n - 2 degrees of freedom; it needs scipy.
    """
    one, other = (midranks(np.asarray(each, dtype=np.float64)) for each in (first, second))
    pairs = len(one)
    if pairs < 3 or not np.ptp(one) or not np.ptp(other):
        return Correlation(math.nan, math.nan, pairs)
    rho = float(np.corrcoef(one, other)[0, 1])
    if abs(rho) >= 1 - 1e-12:
        return Correlation(math.copysign(1.0, rho), 0.0, pairs)
    from scipy.special import stdtr  # only studies need scipy, from the extra `train`

    t = abs(rho) * math.sqrt((pairs - 2) / (1 - rho**2))
    return Correlation(rho, float(2 * stdtr(pairs - 2, -t)), pairs)
