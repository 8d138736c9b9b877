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

# Coarse confidences, so that ties are common
replies = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 20).map(lambda k: k / 20)), min_size=2, max_size=60
)


@given(replies)
def test_auroc_is_sklearns(given_replies: list[tuple[int, float]]) -> None:
    """AUROC is scikit-learn's, with ties (H01)."""
    y, p = zip(*given_replies, strict=True)
    if len(set(y)) == 2:
        assert auroc(y, p) == pytest.approx(roc_auc_score(y, p), abs=1e-12)


@given(replies)
def test_brier_is_sklearns(given_replies: list[tuple[int, float]]) -> None:
    """The Brier score is scikit-learn's (H03)."""
    y, p = zip(*given_replies, strict=True)
    expected = brier_score_loss(y, p, labels=[0, 1])
    assert brier(y, p) == pytest.approx(expected, abs=1e-12)


@given(replies)
def test_ece_is_the_weighted_gap_of_its_bins(given_replies: list[tuple[int, float]]) -> None:
    """ECE equals a loop over the bins, by Guo et al.'s definition (H04)."""
    y, p = (np.array(values, dtype=float) for values in zip(*given_replies, strict=True))
    total = 0.0
    for k in range(ECE_BINS):
        low, high = k / ECE_BINS, (k + 1) / ECE_BINS
        inside = (p > low) & (p <= high) | ((p == 0) & (k == 0))
        if inside.any():
            total += inside.mean() * abs(y[inside].mean() - p[inside].mean())
    assert ece(y, p) == pytest.approx(total, abs=1e-9)


def test_auroc_by_hand() -> None:
    """With three of four pairs in order and one tie, AUROC is 3.5 / 4 (H01)."""
    assert auroc([0, 1, 0, 1], [0.1, 0.4, 0.4, 0.8]) == 0.875
    assert auroc([1, 0], [0.9, 0.1]) == 1.0
    assert auroc([0, 1], [0.9, 0.1]) == 0.0
    assert auroc([0, 1, 1], [0.5, 0.5, 0.5]) == 0.5


def test_brier_by_hand() -> None:
    """The Brier score by hand is (0.1² + 0.4² + 0.5²) / 3 (H03)."""
    assert brier([1, 0, 1], [0.9, 0.4, 0.5]) == pytest.approx(0.14)
    assert brier([1, 0], [1.0, 0.0]) == 0.0
    assert brier([1, 0], [0.0, 1.0]) == 1.0


def test_ece_by_hand() -> None:
    """ECE by hand is 0.09: |2 - 2.25| and |0 - 0.2| of five replies (H04).

    With 5 bins, 0.7, 0.75 and 0.8 are in (0.6, 0.8], with two of three correct; 0.1 twice is in (0,
    0.2], with none correct.
    """
    assert ece([1, 1, 0, 0, 0], [0.7, 0.75, 0.8, 0.1, 0.1], bins=5) == pytest.approx(0.09)


def test_ece_bins_are_open_below_and_closed_above() -> None:
    """An edge belongs to the lower bin, 0 to the first and 1 to the last (H04)."""
    assert ece([1, 0], [0.5, 0.6], bins=2) == pytest.approx((0.5 + 0.6) / 2)
    assert ece([1, 0], [0.5, 0.4], bins=2) == pytest.approx(abs(1 - 0.9) / 2)
    assert ece([0, 0], [0.0, 0.0]) == 0.0
    assert ece([1, 1], [1.0, 1.0]) == 0.0
    for k in range(ECE_BINS + 1):
        assert ece([1], [k / ECE_BINS]) == pytest.approx(1 - k / ECE_BINS)


def test_figures_of_fixed_data() -> None:
    """The figures of a fixed data set never change (H01, H03, H04)."""
    k = np.arange(1_000)
    p = k * 0.618034 % 1
    y = (k * 0.414214 % 1 < p**1.5).astype(int)
    assert ECE_BINS == 15
    assert auroc(y, p) == pytest.approx(0.865061, abs=1e-6)
    assert brier(y, p) == pytest.approx(0.158857, abs=1e-6)
    assert ece(y, p) == pytest.approx(0.104983, abs=1e-6)


@pytest.mark.parametrize("label", [0, 1])
def test_without_both_labels_there_is_no_auroc(label: int) -> None:
    """With labels of one kind AUROC is NaN, without a warning."""
    assert math.isnan(auroc([label] * 3, [0.1, 0.5, 0.9]))
    assert brier([label] * 2, [float(label)] * 2) == ece([label] * 2, [float(label)] * 2) == 0.0


EVERY = [auroc, brier, ece, cohens_d, auprc_incorrect, best_f1_incorrect, aurc]


@pytest.mark.parametrize("metric", EVERY)
@pytest.mark.parametrize(("y", "p"), [([], []), ([1], [0.1, 0.2]), ([[1]], [[0.5]]), (1, 0.5)])
def test_lists_that_do_not_match_are_refused(metric: object, y: object, p: object) -> None:
    """Empty lists and lists of different lengths are refused."""
    assert callable(metric)
    with pytest.raises(ValueError, match="two equally long, non-empty lists"):
        metric(y, p)


def test_midranks() -> None:
    """Equal values get the mean of their ranks."""
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
    """NaN and labels other than 0 and 1 are refused."""
    assert callable(metric)
    with pytest.raises(ValueError, match=sentence):
        metric(y, p)


both_labels = replies.filter(lambda rows: len({y for y, _ in rows}) == 2)


@given(both_labels)
def test_auprc_is_sklearns(rows: list[tuple[int, float]]) -> None:
    """AUPRC is scikit-learn's average precision of low confidence as an alarm (H08)."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    assert auprc_incorrect(y, p) == pytest.approx(average_precision_score(1 - y, -p), abs=1e-12)


@given(both_labels)
def test_best_f1_is_the_best_of_all_thresholds(rows: list[tuple[int, float]]) -> None:
    """The best F1 is scikit-learn's best over all thresholds (H09)."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    best = max(f1_score(1 - y, p <= t) for t in np.unique(p))
    assert best_f1_incorrect(y, p) == pytest.approx(best, abs=1e-12)


@given(both_labels)
def test_the_roc_curve_is_sklearns(rows: list[tuple[int, float]]) -> None:
    """The ROC curve is scikit-learn's, and its area is the AUROC (U03, H01)."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    x, height = roc(y, p)
    other_x, other_height, _ = roc_curve(y, p, drop_intermediate=False)
    assert x == pytest.approx(other_x)
    assert height == pytest.approx(other_height)
    assert np.trapezoid(height, x) == pytest.approx(auroc(y, p))


def test_a_roc_curve_needs_both_labels() -> None:
    """A ROC curve needs correct and wrong replies."""
    with pytest.raises(ValueError, match="correct and wrong"):
        roc([1, 1], [0.1, 0.2])


def test_cohens_d_by_hand() -> None:
    """Cohen's d by hand: means 0.8 and 0.4, variances 0.02; NaN if there is none (H07)."""
    assert cohens_d([1, 1, 0, 0], [0.7, 0.9, 0.3, 0.5]) == pytest.approx(0.4 / math.sqrt(0.02))
    assert math.isnan(cohens_d([1, 0, 0], [0.7, 0.3, 0.5]))
    assert math.isnan(cohens_d([1, 1, 0, 0], [0.7] * 4))


@given(both_labels)
def test_risk_and_coverage_are_counts(rows: list[tuple[int, float]]) -> None:
    """Risk and coverage are the counted ones at every threshold (U04)."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    coverage, risk = risk_coverage(y, p)
    thresholds = np.unique(p)[::-1]
    assert coverage == pytest.approx([(p >= t).mean() for t in thresholds])
    assert risk == pytest.approx([1 - y[p >= t].mean() for t in thresholds])


@given(both_labels, st.floats(0, 1))
def test_coverage_at_is_the_best_threshold(rows: list[tuple[int, float]], wanted: float) -> None:
    """Coverage at an accuracy is the largest of all thresholds that reach it, or 0 (H10)."""
    y, p = (np.array(values) for values in zip(*rows, strict=True))
    reached = [(p >= t).mean() for t in np.unique(p) if y[p >= t].mean() >= wanted - 1e-12]
    assert coverage_at(y, p, wanted) == pytest.approx(max(reached, default=0.0))


def test_aurc_by_hand() -> None:
    """AURC by hand: errors 0/1, 1/2, 1/3; errors within a tie are spread evenly."""
    assert aurc([1, 0, 1], [0.9, 0.8, 0.7]) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)
    assert aurc([1, 0], [0.5, 0.5]) == pytest.approx(0.5)
    assert aurc([1, 1], [0.5, 0.6]) == 0.0


@given(both_labels)
def test_aurc_of_ties_is_the_mean_over_orders(rows: list[tuple[int, float]]) -> None:
    """AURC of a tie is the mean over all its orders."""
    some = rows[:5]
    found = []
    for order in permutations(some):
        # A stable sort keeps the order of ties.
        wrong = np.array([1 - y for y, _ in sorted(order, key=lambda row: -row[1])])
        found.append(np.mean(np.cumsum(wrong) / np.arange(1, len(some) + 1)))
    y, p = zip(*some, strict=True)
    assert aurc(y, p) == pytest.approx(np.mean(found))


@given(replies)
def test_reliability_bins_hold_every_reply_once(rows: list[tuple[int, float]]) -> None:
    """The bins' rows, confidences and accuracies add up to all replies' (U02)."""
    y, p = zip(*rows, strict=True)
    bins = reliability(y, p)
    assert sum(one.rows for one in bins) == len(rows)
    assert sum(one.rows * one.accuracy for one in bins) == pytest.approx(sum(y))
    assert sum(one.rows * one.confidence for one in bins) == pytest.approx(sum(p))
    for one in bins:
        assert one.low - 1e-9 <= one.confidence <= one.high + 1e-9


def test_figures_without_a_wrong_reply() -> None:
    """Without a wrong reply AUPRC and F1 are NaN, and coverage is 1."""
    assert math.isnan(auprc_incorrect([1, 1], [0.4, 0.6]))
    assert math.isnan(best_f1_incorrect([1, 1], [0.4, 0.6]))
    assert coverage_at([1, 1], [0.4, 0.6], 0.95) == 1.0
    assert coverage_at([0, 0], [0.4, 0.6], 0.95) == 0.0
