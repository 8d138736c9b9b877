"""Trees fitted on bins equal scikit-learn's on the values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper

from calibrator.features.trees import Trees
from calibrator.features.weights import Floats
from calibrator.lab.training.stages.forest import ForestConfig
from calibrator.lab.training.stages.tree_fitting import MOST_BINS, fit_trees, thresholds_of

Weights = NDArray[np.float64]

CONFIG = ForestConfig(trees=25, leaves=9, leaf_rows=5, feature_share=0.7)
SEED = 4


@pytest.fixture(scope="module")
def rows() -> Floats:
    """Return columns with many values, few, ties, one value, and missing ones."""
    rng = np.random.default_rng(3)
    found = np.stack(
        [
            rng.normal(size=1_500),
            rng.integers(0, 40, 1_500),
            rng.integers(0, 600, 1_500),
            np.ones(1_500),
            np.where(rng.random(1_500) < 0.2, np.nan, rng.normal(size=1_500)),
        ],
        axis=1,
    )
    return found.astype(np.float32)


@pytest.fixture(scope="module")
def weights() -> Weights:
    return np.random.default_rng(5).choice([0.3, 1.0, 2.5], 1_500)


def test_thresholds_are_scikit_learns(rows: Floats, weights: Weights) -> None:
    """Thresholds are scikit-learn's to the last bit, without values of weight 0."""
    for own in (weights, np.where(weights < 1, 0.0, weights)):
        mapper = _BinMapper(n_bins=MOST_BINS + 1, n_threads=1).fit(
            rows.astype(np.float64), sample_weight=own
        )
        for column, expected in zip(rows.T, mapper.bin_thresholds_, strict=True):
            assert thresholds_of(column, own).tolist() == expected.tolist()


def test_trees_are_scikit_learns(rows: Floats, weights: Weights) -> None:
    """Trees give scikit-learn's log-odds, also for other rows and missing values."""
    odds = rows[:, 0] + (rows[:, 1] > 20) - (rows[:, 2] > 300) + np.nan_to_num(rows[:, 4])
    labels = (odds + np.random.default_rng(6).normal(size=len(rows)) > 0).astype(int)
    theirs = HistGradientBoostingClassifier(
        max_iter=25, learning_rate=CONFIG.learning_rate, max_leaf_nodes=9, min_samples_leaf=5,
        l2_regularization=CONFIG.ridge, max_features=0.7, early_stopping=False, random_state=SEED,
        monotonic_cst=[1, 0, 0, 0, 0],
    ).fit(rows, labels, sample_weight=weights)  # fmt: skip
    state = fit_trees(rows, labels, weights, CONFIG, SEED, directions=[1, 0, 0, 0, 0])
    ours = Trees(state, rows.shape[1])
    others = np.random.default_rng(7).normal(size=(300, 5)).astype(np.float32) * 2
    for some in (rows[~np.isnan(rows).any(axis=1)], others):
        expected = theirs.decision_function(some)
        assert expected.std() > 0.5
        assert ours.read(some) == pytest.approx(expected, abs=1e-5)
