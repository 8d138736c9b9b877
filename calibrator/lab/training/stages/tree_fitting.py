"""Fit boosted trees with scikit-learn, in the same way for every part of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibrator.checkpoints.extras import check_scikit_learn
from calibrator.features.trees import tree_arrays

Array = NDArray[np.generic]


MOST_BINS = 255  # of a column, between which trees split


class TreeConfig(Protocol):
    """The number and size of fitted trees; configurations of parts have these fields."""

    @property
    def trees(self) -> int: ...

    @property
    def leaves(self) -> int: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def leaf_rows(self) -> int:
        """The smallest number of rows in a leaf."""

    @property
    def ridge(self) -> float: ...

    @property
    def feature_share(self) -> float:
        """The share of the features that is considered for a split."""


def fit_trees(
    rows: Array,
    labels: Array,
    weights: NDArray[np.float64],
    config: TreeConfig,
    seed: int,
    *,
    directions: Sequence[int] | None = None,
    weight: float = 1.0,
) -> dict[str, Array]:
    """Fit P(label 1) of rows (N, D), and return the arrays of `Trees` by name.

    `labels` (N,) are 0 and 1, `weights` (N,) the rows' weights. The same seed gives the same
    arrays. `directions` (D): where it is 1 the log-odds never fall as the number rises, where it is
    -1 they never rise, where it is 0 they may do both; None is 0 for all. The log-odds are
    multiplied by `weight`. Raises MissingExtraError without scikit-learn.
    """
    check_scikit_learn()
    from sklearn.ensemble import HistGradientBoostingClassifier

    bins = [thresholds_of(column, weights) for column in rows.T]
    model = HistGradientBoostingClassifier(
        max_iter=config.trees,
        learning_rate=config.learning_rate,
        max_leaf_nodes=config.leaves,
        min_samples_leaf=config.leaf_rows,
        l2_regularization=config.ridge,
        max_features=config.feature_share,
        monotonic_cst=directions,
        early_stopping=False,
        random_state=seed,
    ).fit(_number_bins(rows, bins), labels, sample_weight=weights)
    return tree_arrays(model, bins, weight)


def thresholds_of(column: Array, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ascending thresholds that divide a column (N,) into `MOST_BINS` bins of equal weight.

    With at most `MOST_BINS` different values they are the middles between neighbours. Rows that are
    nan or have the weight 0 are left out. The thresholds are scikit-learn's own, which sorts the
    column again for each of them; that took longer than the trees.
    """
    used = (weights != 0) & ~np.isnan(column)
    order = np.argsort(column[used])
    values, shares = column[used][order].astype(np.float64), np.cumsum(weights[used][order])
    distinct = np.unique(values)
    if len(distinct) <= MOST_BINS:
        return np.asarray((distinct[1:] + distinct[:-1]) / 2)
    wanted = np.linspace(0, 100, MOST_BINS + 1)[1:-1] / 100 * shares[-1]
    at = np.minimum(np.searchsorted(shares, wanted), len(values) - 1)
    is_above = shares[at] - wanted > np.finfo(np.float64).eps
    after = np.where(is_above, at, np.minimum(at + 1, len(values) - 1))
    return np.unique((values[at] + values[after]) / 2)


def _number_bins(rows: Array, bins: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    """Return rows (N, D) with each value replaced by the number of its bin, from 0; nan stays.

    `bins` has the ascending thresholds of each column; a value equal to one is in the bin below it.
    """
    found = np.empty(rows.shape, np.float32)
    for at, thresholds in enumerate(bins):
        column = rows[:, at].astype(np.float64)
        found[:, at] = np.where(np.isnan(column), np.nan, np.searchsorted(thresholds, column))
    return found
