"""The rule of promotion: better than noise on labels that were not fitted on."""

from __future__ import annotations

import numpy as np
import pytest

from calibrator.metrics.metrics import Floats, brier, ece, log_losses
from calibrator.recalibration.curves import logit, sigmoid
from calibrator.recalibration.fit import LabelledConfidences
from calibrator.recalibration.trial import trial


def observed(labels: int, slope: float, seed: int, clusters: int = 0) -> LabelledConfidences:
    """Return confidences whose log-odds are too large by 1 / slope."""
    rng = np.random.default_rng(seed)
    truth: Floats = rng.beta(3, 1.5, labels)
    y = (rng.random(labels) < truth).astype(np.int64)
    names = [str(n % clusters if clusters else n) for n in range(labels)]
    p = sigmoid(logit(truth) / slope)
    return LabelledConfidences(y, p, [""] * labels, names, np.ones(labels))


def test_an_overconfident_calibrator_is_mended() -> None:
    """With 200 labels a recalibration that halves the log-odds is found to be better."""
    found = observed(200, 0.4, seed=1)
    tried = trial(found, found.confidence)
    assert tried.is_better
    assert tried.after.ece < tried.before.ece
    assert tried.after.log_loss < tried.before.log_loss
    assert tried.gain.low < tried.gain.value < tried.gain.high


@pytest.mark.parametrize(
    ("spread", "sets"),
    [(30.0, 30), *(pytest.param(s, 100, marks=pytest.mark.slow) for s in (1.0, 30.0))],
)
def test_nothing_is_promoted_for_noise(spread: float, sets: int) -> None:
    """On calibrated confidences at most 5 of 100 trials promote a change.

    One weight may be 30 times the other.
    """
    promoted = 0
    for seed in range(sets):
        found = observed(100, 1.0, seed)
        weights = np.where(np.arange(100) % 2, spread, 1.0)
        found = LabelledConfidences(
            found.correct, found.confidence, found.groups, found.clusters, weights
        )
        promoted += trial(found, found.confidence).is_better
    assert promoted <= sets / 20


def test_labels_of_one_question_are_no_independent_evidence() -> None:
    """Labels of three questions count as three, so nothing is promoted."""
    apart, together = observed(300, 0.5, 2), observed(300, 0.5, 2, clusters=3)
    free, tied = trial(apart, apart.confidence), trial(together, together.confidence)
    assert free.is_better
    assert not tied.is_better
    assert tied.evidence < free.evidence / 10


def test_weights_count_in_every_figure() -> None:
    """A reply of weight 2 counts as two in each figure, and a log loss is at most 6.9."""
    y, p = np.array([1, 0, 1, 0]), np.array([0.9, 0.8, 0.6, 0.1])
    counts = np.array([1, 2, 3, 1])
    often = np.repeat(y, counts), np.repeat(p, counts)
    assert ece(y, p, weights=counts) == pytest.approx(ece(*often))
    assert brier(y, p, weights=counts) == pytest.approx(brier(*often))
    assert log_losses([0, 1], [1.0, 0.0]) == pytest.approx(6.9078, abs=1e-3)
