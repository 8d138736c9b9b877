"""Figures against other implementations and by hand (paper H01, H03, H04, H07-H10)."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    f1_score,
    roc_auc_score,
    roc_curve,
)

from calibrator.metrics.metrics import (
    ECE_BINS,
    auprc_incorrect,
    aurc,
    auroc,
    best_f1_incorrect,
    brier,
    cohens_d,
    coverage_at,
    ece,
    midranks,
    reliability,
    risk_coverage,
    roc,
)

# Coarse confidences, so that ties are common.
replies = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 20).map(lambda k: k / 20)), min_size=2, max_size=60
)


@given(replies)
def test_auroc_is_sklearns(given_replies: list[tuple[int, float]]) -> None:
    """H01: the same number as scikit-learn's on any labels and confidences, ties included."""
    y, p = zip(*given_replies, strict=True)
    if len(set(y)) == 2:
        assert auroc(y, p) == pytest.approx(roc_auc_score(y, p), abs=1e-12)


@given(replies)
def test_brier_is_sklearns(given_replies: list[tuple[int, float]]) -> None:
    """H03: the mean squared difference, as scikit-learn computes it."""
    y, p = zip(*given_replies, strict=True)
    expected = brier_score_loss(y, p, labels=[0, 1])
    assert brier(y, p) == pytest.approx(expected, abs=1e-12)


@given(replies)
def test_ece_is_the_weighted_gap_of_its_bins(given_replies: list[tuple[int, float]]) -> None:
    """H04: the same number as the definition of Guo et al., written as a loop over the bins."""
    y, p = (np.array(values, dtype=float) for values in zip(*given_replies, strict=True))
    total = 0.0
    for k in range(ECE_BINS):
        low, high = k / ECE_BINS, (k + 1) / ECE_BINS
        inside = (p > low) & (p <= high) | ((p == 0) & (k == 0))
        if inside.any():
            total += inside.mean() * abs(y[inside].mean() - p[inside].mean())
    assert ece(y, p) == pytest.approx(total, abs=1e-9)


def test_auroc_by_hand() -> None:
    """H01: of the four pairs three are in order and one is a tie: 3.5 / 4."""
    assert auroc([0, 1, 0, 1], [0.1, 0.4, 0.4, 0.8]) == 0.875
    assert auroc([1, 0], [0.9, 0.1]) == 1.0
    assert auroc([0, 1], [0.9, 0.1]) == 0.0
    assert auroc([0, 1, 1], [0.5, 0.5, 0.5]) == 0.5


def test_brier_by_hand() -> None:
    """H03: (0.1² + 0.4² + 0.5²) / 3."""
    assert brier([1, 0, 1], [0.9, 0.4, 0.5]) == pytest.approx(0.14)
    assert brier([1, 0], [1.0, 0.0]) == 0.0
    assert brier([1, 0], [0.0, 1.0]) == 1.0


def test_ece_by_hand() -> None:
    """H04: two bins of five; |2 - 2.25| and |0 - 0.2| of five replies, so 0.09.

    With 5 bins, 0.7, 0.75 and 0.8 are in (0.6, 0.8], with two of three correct; 0.1 twice is in
    (0, 0.2], with none correct.
    """
    assert ece([1, 1, 0, 0, 0], [0.7, 0.75, 0.8, 0.1, 0.1], bins=5) == pytest.approx(0.09)


def test_ece_bins_are_open_below_and_closed_above() -> None:
    """H04: an edge belongs to the lower bin, 0 to the first and 1 to the last."""
    assert ece([1, 0], [0.5, 0.6], bins=2) == pytest.approx((0.5 + 0.6) / 2)
    assert ece([1, 0], [0.5, 0.4], bins=2) == pytest.approx(abs(1 - 0.9) / 2)
    assert ece([0, 0], [0.0, 0.0]) == 0.0
    assert ece([1, 1], [1.0, 1.0]) == 0.0
    for k in range(ECE_BINS + 1):
        assert ece([1], [k / ECE_BINS]) == pytest.approx(1 - k / ECE_BINS)


def test_figures_of_fixed_data() -> None:
    """H01, H03, H04: the figures of a fixed data set, with 15 bins, stay what they are."""
    k = np.arange(1_000)
    p = k * 0.618034 % 1
    y = (k * 0.414214 % 1 < p**1.5).astype(int)
    assert ECE_BINS == 15
    assert auroc(y, p) == pytest.approx(0.865061, abs=1e-6)
    assert brier(y, p) == pytest.approx(0.158857, abs=1e-6)
    assert ece(y, p) == pytest.approx(0.104983, abs=1e-6)


@pytest.mark.parametrize("label", [0, 1])
def test_without_both_labels_there_is_no_auroc(label: int) -> None:
    """Nothing is ranked where all replies are alike: nan, and neither a warning nor a number."""
    assert math.isnan(auroc([label] * 3, [0.1, 0.5, 0.9]))
    assert brier([label] * 2, [float(label)] * 2) == ece([label] * 2, [float(label)] * 2) == 0.0


EVERY = [auroc, brier, ece, cohens_d, auprc_incorrect, best_f1_incorrect, aurc]


@pytest.mark.parametrize("metric", EVERY)
@pytest.mark.parametrize(("y", "p"), [([], []), ([1], [0.1, 0.2]), ([[1]], [[0.5]]), (1, 0.5)])
def test_lists_that_do_not_match_are_refused(metric: object, y: object, p: object) -> None:
    """A figure of nothing, or of half the data, is an error."""
    assert callable(metric)
    with pytest.raises(ValueError, match="two equally long, non-empty lists"):
        metric(y, p)


def test_midranks() -> None:
    """Equal values share the mean of their ranks."""
    assert midranks([10, 20, 20, 30]).tolist() == [1.0, 2.5, 2.5, 4.0]
    assert midranks([5, 5, 5]).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("metric", EVERY)
@pytest.mark.parametrize(
    ("y", "p", "sentence"),
    [
        ([0, 1], [0.5, math.nan], "finite"),
        ([0, 1], [0.5, math.inf], "finite"),
        ([0, 2], [0.5, 0.5], "0 or 1"),
        ([0, math.nan], [0.5, 0.5], "0 or 1"),
        ([0, 0.5], [0.5, 0.5], "0 or 1"),
    ],
)
def test_nan_and_other_labels_are_refused(
    metric: object, y: object, p: object, sentence: str
) -> None:
    """What is no probability and no label gives an error, never a figure that looks like one."""
    assert callable(metric)
    with pytest.raises(ValueError, match=sentence):
        metric(y, p)


both_labels = replies.filter(lambda rows: len({y for y, _ in rows}) == 2)


@given(both_labels)
def test_auprc_is_sklearns(rows: list[tuple[int, float]]) -> None:
    """H08: average precision of low confidence as an alarm for wrong replies."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    assert auprc_incorrect(y, p) == pytest.approx(average_precision_score(1 - y, -p), abs=1e-12)


@given(both_labels)
def test_best_f1_is_the_best_of_all_thresholds(rows: list[tuple[int, float]]) -> None:
    """H09: the best F1 of scikit-learn's over every threshold that makes a difference."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    best = max(f1_score(1 - y, p <= t) for t in np.unique(p))
    assert best_f1_incorrect(y, p) == pytest.approx(best, abs=1e-12)


@given(both_labels)
def test_the_roc_curve_is_sklearns(rows: list[tuple[int, float]]) -> None:
    """U03: the same points, and the area under them is the AUROC (H01)."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    x, height = roc(y, p)
    other_x, other_height, _ = roc_curve(y, p, drop_intermediate=False)
    assert x == pytest.approx(other_x)
    assert height == pytest.approx(other_height)
    assert np.trapezoid(height, x) == pytest.approx(auroc(y, p))


def test_a_roc_curve_needs_both_labels() -> None:
    """Without a wrong reply there is no false positive rate."""
    with pytest.raises(ValueError, match="correct and wrong"):
        roc([1, 1], [0.1, 0.2])


def test_cohens_d_by_hand() -> None:
    """H07: means 0.8 and 0.4, both variances 0.02, so 0.4 / sqrt(0.02); nan where none exists."""
    assert cohens_d([1, 1, 0, 0], [0.7, 0.9, 0.3, 0.5]) == pytest.approx(0.4 / math.sqrt(0.02))
    assert math.isnan(cohens_d([1, 0, 0], [0.7, 0.3, 0.5]))
    assert math.isnan(cohens_d([1, 1, 0, 0], [0.7] * 4))


@given(both_labels)
def test_risk_and_coverage_are_counts(rows: list[tuple[int, float]]) -> None:
    """U04: at every threshold the share kept and the errors among those, counted."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    coverage, risk = risk_coverage(y, p)
    thresholds = np.unique(p)[::-1]
    assert coverage == pytest.approx([(p >= t).mean() for t in thresholds])
    assert risk == pytest.approx([1 - y[p >= t].mean() for t in thresholds])


@given(both_labels, st.floats(0, 1))
def test_coverage_at_is_the_best_threshold(rows: list[tuple[int, float]], wanted: float) -> None:
    """H10: no threshold that reaches the accuracy keeps more; 0 where none does."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    reached = [(p >= t).mean() for t in np.unique(p) if y[p >= t].mean() >= wanted - 1e-12]
    assert coverage_at(y, p, wanted) == pytest.approx(max(reached, default=0.0))


def test_aurc_by_hand() -> None:
    """Surest first right, wrong, right: errors 0/1, 1/2, 1/3; in a tie they are spread evenly."""
    assert aurc([1, 0, 1], [0.9, 0.8, 0.7]) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)
    assert aurc([1, 0], [0.5, 0.5]) == pytest.approx(0.5)
    assert aurc([1, 1], [0.5, 0.6]) == 0.0


@given(both_labels)
def test_aurc_of_ties_is_the_mean_over_orders(rows: list[tuple[int, float]]) -> None:
    """What a tie gives is what all its orders give on average."""
    some = rows[:5]
    found = []
    for order in permutations(some):
        wrong = np.array([1 - y for y, _ in sorted(order, key=lambda row: -row[1])])  # ties stay
        found.append(np.mean(np.cumsum(wrong) / np.arange(1, len(some) + 1)))
    y, p = zip(*some, strict=True)
    assert aurc(y, p) == pytest.approx(np.mean(found))


@given(replies)
def test_reliability_bins_hold_every_reply_once(rows: list[tuple[int, float]]) -> None:
    """U02: the bins' rows, confidences and accuracies add up to those of all replies."""
    y, p = zip(*rows, strict=True)
    bins = reliability(y, p)
    assert sum(one.rows for one in bins) == len(rows)
    assert sum(one.rows * one.accuracy for one in bins) == pytest.approx(sum(y))
    assert sum(one.rows * one.confidence for one in bins) == pytest.approx(sum(p))
    for one in bins:
        assert one.low - 1e-9 <= one.confidence <= one.high + 1e-9


def test_figures_without_a_wrong_reply() -> None:
    """Nothing wrong can be found where nothing is wrong: nan, and no risk at all."""
    assert math.isnan(auprc_incorrect([1, 1], [0.4, 0.6]))
    assert math.isnan(best_f1_incorrect([1, 1], [0.4, 0.6]))
    assert coverage_at([1, 1], [0.4, 0.6], 0.95) == 1.0
    assert coverage_at([0, 0], [0.4, 0.6], 0.95) == 0.0
