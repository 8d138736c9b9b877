"""Platt scaling: from a raw score to a confidence (paper N01, N04)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from calibrator import CheckpointError
from calibrator.metrics.metrics import auroc, ece
from calibrator.recalibration.curves import MIN_SLOPE, Platt, fit_platt, logit, sigmoid

platts = st.builds(Platt, st.floats(0.05, 5), st.floats(-5, 5))
scores = st.floats(0, 1)


def simulated(slope: float, intercept: float, rows: int, seed: int = 3) -> tuple[Any, Any]:
    """Return labels and scores with P(correct) = sigmoid(slope * logit(score) + intercept)."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.02, 0.98, rows)
    return (rng.random(rows) < sigmoid(slope * logit(p) + intercept)).astype(int), p


@given(platts, st.lists(scores, min_size=2, max_size=30))
def test_ranking_is_kept(platt: Platt, given_scores: list[float]) -> None:
    """Platt scaling is monotone (N04)."""
    confidences = [platt.apply(score) for score in sorted(given_scores)]
    assert all(a <= b for a, b in itertools.pairwise(confidences))
    assert all(0 <= confidence <= 1 for confidence in confidences)


def test_auroc_is_kept_exactly() -> None:
    """Raw score and confidence have the same AUROC (N04)."""
    y, p = simulated(0.6, -0.4, 500)
    platt = fit_platt(y, p)
    assert auroc(y, [platt.apply(score) for score in p]) == auroc(y, p)


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.5, 0.7), (2.0, -1.0)])
def test_known_parameters_are_recovered(slope: float, intercept: float) -> None:
    """The fit finds the curve that the data was drawn from."""
    platt = fit_platt(*simulated(slope, intercept, 40_000))
    assert platt.slope == pytest.approx(slope, rel=0.05)
    assert platt.intercept == pytest.approx(intercept, abs=0.05)


@pytest.mark.parametrize("rows", [200, 5_000])
def test_the_fit_is_logistic_regression(rows: int) -> None:
    """The curve is scikit-learn's logistic regression on the logit, without penalty."""
    y, p = simulated(0.7, -0.3, rows)
    other = LogisticRegression(C=np.inf, tol=1e-8).fit(logit(p)[:, None], y)
    platt = fit_platt(y, p)
    assert platt.slope == pytest.approx(other.coef_[0, 0], abs=1e-3)
    assert platt.intercept == pytest.approx(other.intercept_[0], abs=1e-3)


def test_a_hundred_labels_mend_an_overconfident_score() -> None:
    """A curve fitted on 100 labels lowers the calibration error on other rows (N01)."""
    y, p = simulated(0.4, -0.5, 3_000)
    platt = fit_platt(y[:100], p[:100])
    assert ece(y[100:], [platt.apply(score) for score in p[100:]]) < 0.6 * ece(y[100:], p[100:])


@pytest.mark.parametrize(
    ("y", "p"),
    [
        ([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9]),
        ([0, 1], [0.0, 1.0]),
        ([1, 1, 1], [0.5, 0.6, 0.7]),
        ([0, 0, 0], [0.5, 0.6, 0.7]),
        ([1], [0.5]),
        ([0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5]),
        ([1] * 50 + [0] * 50, [1.0] * 50 + [0.0] * 50),
    ],
    ids=["separable", "extremes", "all right", "all wrong", "one row", "constant", "perfect"],
)
def test_degenerate_data_gives_a_usable_curve(y: list[int], p: list[float]) -> None:
    """Separable, one-sided and constant data give finite numbers and a positive slope."""
    platt = fit_platt(y, p)
    assert math.isfinite(platt.slope)
    assert platt.slope > 0
    assert math.isfinite(platt.intercept)
    assert all(0 <= platt.apply(score) <= 1 for score in (0.0, 0.5, 1.0))


def test_scores_that_say_the_opposite_give_the_base_rate() -> None:
    """Scores that say the opposite give the base rate, since a curve never falls (N04)."""
    y, p = simulated(-2.0, 0.5, 5_000)
    platt = fit_platt(y, p)
    assert platt.slope == MIN_SLOPE
    for score in (0.01, 0.5, 0.99):
        assert platt.apply(score) == pytest.approx(np.mean(y), abs=0.01)


def test_no_recalibration_is_the_identity() -> None:
    """The default curve changes no score, except near 0 and 1."""
    for score in (0.001, 0.25, 0.5, 0.999):
        assert Platt().apply(score) == pytest.approx(score)
    assert 0 < Platt().apply(0.0) < 1e-5
    assert 1 - 1e-5 < Platt().apply(1.0) < 1


@given(st.floats(-2_000, 2_000))
def test_sigmoid_never_overflows(x: float) -> None:
    """The sigmoid of large arguments is 0 or 1 without a warning."""
    expected = 1 / (1 + math.exp(-x)) if x > -700 else 0.0
    assert float(sigmoid(x)) == pytest.approx(expected, abs=1e-12)


@given(platts)
def test_a_curve_survives_its_dict(platt: Platt) -> None:
    """A curve survives its dict, and its name depends on its numbers."""
    assert Platt.from_dict(platt.as_dict()) == platt
    assert Platt.from_dict(platt.as_dict()).name == platt.name
    assert Platt(platt.slope + 0.1, platt.intercept).name != platt.name


@pytest.mark.parametrize(
    "values",
    [
        None,
        [],
        "platt",
        5,
        {},
        {"kind": "platt"},
        {"kind": "platt", "slope": "x", "intercept": 0},
        {"kind": "platt", "slope": None, "intercept": 0},
        {"kind": "platt", "slope": 0, "intercept": 0},
        {"kind": "platt", "slope": -1, "intercept": 0},
        {"kind": "platt", "slope": float("nan"), "intercept": 0},
        {"kind": "platt", "slope": 1, "intercept": float("inf")},
        {"kind": "isotonic", "slope": 1, "intercept": 0},
    ],
)
def test_a_damaged_curve_is_refused(values: Any) -> None:
    """A damaged curve is refused with a CheckpointError."""
    with pytest.raises(CheckpointError, match="recalibration"):
        Platt.from_dict(values)
