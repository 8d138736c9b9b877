"""The ranking of right replies above wrong ones, in three figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from calibrator.metrics.disagreement import disagreement
from calibrator.metrics.metrics import auroc


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
    """Measure n replies and return their figures; the means are nan where nothing is mixed."""

    def mean(groups: Sequence[str]) -> float:
        within = disagreement(correct, scores, groups, permutations=0)
        return within.auroc if within else math.nan

    return Ranking(len(questions), auroc(correct, scores), mean(benchmarks), mean(questions))
