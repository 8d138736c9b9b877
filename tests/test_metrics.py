"""AUROC, Brier score and ECE against other implementations and by hand (paper H01, H03, H04)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, roc_auc_score

from calibrator.metrics import ECE_BINS, auroc, brier, ece, midranks

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


@pytest.mark.parametrize("metric", [auroc, brier, ece])
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
