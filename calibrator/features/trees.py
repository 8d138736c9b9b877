"""Boosted trees as rectangular arrays: what a row of numbers adds up to over all trees.

Serving is numpy alone; `tree_arrays` writes the arrays of a fitted scikit-learn model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Array = NDArray[np.generic]


class Trees:
    """Trees (T) of nodes (N); a leaf's branches are itself.

    Raises KeyError or ValueError for arrays that do not fit rows of `width` numbers.
    """

    def __init__(self, state: Mapping[str, Array], width: int) -> None:
        self.feature = state["feature"].astype(np.intp)  # (T, N) the column that a node asks for
        self.threshold = state["threshold"].astype(np.float32)  # (T, N) at most that: to the left
        self.branches = np.stack([state["right"], state["left"]]).astype(np.intp)  # (2, T, N)
        self.value = state["value"].astype(np.float32)  # (T, N) log-odds of the leaves
        self.base = float(state["base"][0])
        self.depth = int(state["depth"][0])
        shapes = {self.feature.shape, self.threshold.shape, self.value.shape}
        if shapes != {self.branches.shape[1:]} or self.feature.max() >= width:
            raise ValueError("trees of another shape")

    def read(self, rows: Floats) -> NDArray[np.float64]:
        """Log-odds (B,) of rows (B, width)."""
        tree, row = np.arange(len(self.feature)), np.arange(len(rows))[:, None]
        at = np.zeros((len(rows), len(tree)), dtype=np.intp)
        for _ in range(self.depth):
            is_left = rows[row, self.feature[tree, at]] <= self.threshold[tree, at]
            at = self.branches[is_left.astype(np.intp), tree, at]
        return np.asarray(self.base + self.value[tree, at].sum(axis=1, dtype=np.float64))


def tree_arrays(model: Any, weight: float = 1.0) -> dict[str, Array]:
    """The arrays of `Trees` from a fitted HistGradientBoostingClassifier of two classes.

    Its log-odds come multiplied by `weight`.
    """
    trees = [each.nodes for (each,) in model._predictors]  # nothing public tells them
    shape = (len(trees), max(map(len, trees)))
    own = np.broadcast_to(np.arange(shape[1]), shape)
    feature, left, right = np.zeros(shape, np.int16), own.astype(np.int16), own.astype(np.int16)
    threshold, value = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for number, nodes in enumerate(trees):
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        feature[number, inner] = nodes["feature_idx"][inner]
        threshold[number, inner] = nodes["num_threshold"][inner]
        left[number, inner], right[number, inner] = nodes["left"][inner], nodes["right"][inner]
        value[number, : len(nodes)] = nodes["value"] * weight
    base = float(np.ravel(model._baseline_prediction)[0]) * weight
    depth = max(int(nodes["depth"].max()) for nodes in trees)
    return {
        "feature": feature,
        "threshold": threshold,
        "left": left,
        "right": right,
        "value": value,
        "base": np.array([base], np.float32),
        "depth": np.array([depth], np.int16),
    }
