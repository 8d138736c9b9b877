"""Fits boosted trees with scikit-learn, the same way for every part of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibrator.extras import check_scikit_learn
from calibrator.features.trees import tree_arrays

Array = NDArray[np.generic]


class TreeConfig(Protocol):
    """How many trees are fitted, and how finely; configurations of parts have these fields."""

    @property
    def trees(self) -> int: ...

    @property
    def leaves(self) -> int: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def leaf_rows(self) -> int:
        """The fewest rows in a leaf."""

    @property
    def ridge(self) -> float: ...

    @property
    def feature_share(self) -> float:
        """The share of the features that is looked at for a split."""


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
    """The arrays of `Trees` that tell P(label) of rows (N, D); the same seed, the same arrays.

    `directions` (D): where it is 1 the log-odds never fall as the number rises, where it is -1 they
    never rise. The log-odds come multiplied by `weight`. Raises MissingExtraError without
    scikit-learn.
    """
    check_scikit_learn()
    from sklearn.ensemble import HistGradientBoostingClassifier

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
    ).fit(rows, labels, sample_weight=weights)
    return tree_arrays(model, weight)
