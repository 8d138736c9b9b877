"""The rule of promotion: better beyond noise on labels that were not fitted on, or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from calibrator.metrics import Floats, brier, ece, log_losses
from calibrator.recalibration import logit, sigmoid
from calibrator.recalibration_fit import Observed, cross_fitted_observed
from calibrator.recalibration_trial import trial


def observed(labels: int, slope: float, seed: int, clusters: int = 0) -> Observed:
    """Confidences whose log-odds are too large by 1 / slope; right ones with a slope of 1."""
    rng = np.random.default_rng(seed)
    truth: Floats = rng.beta(3, 1.5, labels)
    y = (rng.random(labels) < truth).astype(np.int64)
    names = [str(n % clusters if clusters else n) for n in range(labels)]
    p = sigmoid(logit(truth) / slope)
    return Observed(y, p, [""] * labels, names, np.ones(labels))


def test_an_overconfident_calibrator_is_mended() -> None:
    """With 200 labels a recalibration that halves the log-odds is found to be better."""
    found = observed(200, 0.4, seed=1)
    tried = trial(found, found.confidence, cross_fitted_observed(found))
    assert tried.is_better
    assert tried.after.ece < tried.before.ece
    assert tried.after.log_loss < tried.before.log_loss


def test_nothing_is_promoted_for_noise() -> None:
    """Where confidences are right already, at most 2 of 40 sets of labels promote a change."""
    promoted = 0
    for seed in range(40):
        found = observed(150, 1.0, seed)
        promoted += trial(found, found.confidence, cross_fitted_observed(found)).is_better
    assert promoted <= 2


def test_labels_of_one_question_are_no_independent_evidence() -> None:
    """A thousand labels of three questions leave the gain uncertain; the mean is the same."""
    apart, together = observed(1_000, 0.7, 2), observed(1_000, 0.7, 2, clusters=3)
    mended = sigmoid(logit(apart.confidence) * 0.7)
    free, tied = trial(apart, apart.confidence, mended), trial(together, apart.confidence, mended)
    assert free.gain.value == pytest.approx(tied.gain.value)
    assert free.gain.high > free.gain.low


def test_weights_count_in_every_figure() -> None:
    """A reply of weight 2 is judged as two; a log loss is at most 6.9."""
    y, p = np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.6, 0.1])
    counts = np.array([1, 2, 3, 1])
    often = np.repeat(y, counts), np.repeat(p, counts)
    assert ece(y, p, weights=counts) == pytest.approx(ece(*often))
    assert brier(y, p, weights=counts) == pytest.approx(brier(*often))
    assert log_losses([0, 1], [1.0, 0.0]) == pytest.approx(6.9078, abs=1e-3)
