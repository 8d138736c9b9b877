"""Three figures of a ranking: pooled, over benchmarks, within questions (paper L02)."""

from __future__ import annotations

import math

import pytest

from calibrator.metrics.rankings import measure_ranking


def test_each_figure_asks_another_question() -> None:
    """Each of the three figures uses its own pairs.

    Benchmark `b` is higher than `a`, which only the pooled figure sees; its question 4 is in the
    wrong order; `c` has no wrong reply and counts only in the pooled figure.
    """
    correct = [1, 0, 1, 0, 1, 0, 1]
    scores = [0.2, 0.1, 0.9, 0.8, 0.6, 0.7, 0.5]
    found = measure_ranking(correct, scores, list("aabbbbc"), list("1133445"))
    assert found.rows == 7
    assert found.pooled == pytest.approx(6 / 12)
    assert found.over_benchmarks == pytest.approx((1 + 2 / 4) / 2)
    assert found.within_questions == pytest.approx(2 / 3)
    assert found.figures == (found.pooled, found.over_benchmarks, found.within_questions)


def test_what_is_not_mixed_has_no_mean() -> None:
    """Replies without a mixed question have no figure within questions."""
    found = measure_ranking([1, 0], [0.9, 0.1], ["a", "a"], ["1", "2"])
    assert (found.pooled, found.over_benchmarks) == (1.0, 1.0)
    assert math.isnan(found.within_questions)
