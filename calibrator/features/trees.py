"""Evaluate boosted trees that are stored as flat arrays.

Every node of every tree is tested at once. A node whose test fails rules out the leaves on its
left, and the first leaf that remains is the row's (QuickScorer; Lucchese et al., 2015). So numpy
runs a few long operations, not several short ones for each level. Serving needs numpy alone;
`tree_arrays` makes the arrays of a fitted scikit-learn model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.features.weights import Array, Floats
from calibrator.kernel import load_kernel

Places = NDArray[np.intp]

_NODE = np.dtype([("number", "f4"), ("feature", "i2"), ("left", "u1"), ("right", "u1")])
MOST_LEAVES = 64  # of a tree whose leaves fit into the bits of one number


class Trees:
    """Trees (T) of nodes (N); both branches of a leaf are the leaf itself.

    Raises KeyError or ValueError for arrays that do not fit rows of `width` numbers.
    """

    def __init__(self, state: Mapping[str, Array], width: int) -> None:
        """Read the arrays of trees for rows of `width` numbers."""
        self.feature = state["feature"].astype(np.intp)  # (T, N) the column that a node tests
        self.threshold = state["threshold"].astype(np.float32)  # (T, N) up to it: to the left
        self.branches = np.stack([state["right"], state["left"]]).astype(np.intp)  # (2, T, N)
        self.value = state["value"].astype(np.float32)  # (T, N) log-odds of the leaves
        self.base = float(state["base"][0])
        self.depth = int(state["depth"][0])
        shapes = {self.feature.shape, self.threshold.shape, self.value.shape}
        if shapes != {self.branches.shape[1:]} or self.feature.max() >= width:
            raise ValueError("trees of another shape")
        self._crossing = _BitTrees.from_trees(self)
        self._kernel = load_kernel()
        self._held = self._nodes_held(width)

    def _nodes_held(self, width: int) -> object | None:
        """Return the nodes in the kernel's form, or None.

        None without a kernel, for trees of more than 256 nodes, for rows of more than 32,768
        numbers, and where a branch leads backwards.
        """
        if self._kernel is None or self.feature.shape[1] > 256 or width > 2**15:
            return None
        own, (right, left) = np.arange(self.feature.shape[1]), self.branches
        is_leaf = (left == own) & (right == own)
        nodes = np.zeros(self.feature.shape, _NODE)
        nodes["number"] = np.where(is_leaf, self.value, self.threshold)
        nodes["feature"] = np.where(is_leaf, -1, self.feature)
        nodes["left"], nodes["right"] = left, right
        if not (is_leaf | ((self.feature >= 0) & (left > own) & (right > own))).all():
            return None
        found: object = self._kernel.tree_tables(
            nodes.view(np.uint8).reshape(*nodes.shape, -1), width
        )
        return found

    def thresholds(self, column: int) -> list[float]:
        """Return the distinct numbers that a column of the rows is compared with, ascending."""
        asks = (self.feature == column) & (self.branches[0] != np.arange(self.feature.shape[1]))
        return [float(each) for each in np.unique(self.threshold[asks])]

    def read(self, rows: Floats) -> NDArray[np.float64]:
        """Return the log-odds (B,) of rows (B, width): the base plus the leaves reached."""
        if self._kernel is not None and self._held is not None:
            sums = np.empty(len(rows), np.float64)
            self._kernel.trees(self._held, np.ascontiguousarray(rows, np.float32), sums)
            return self.base + sums
        found = self._crossing.values(rows) if self._crossing else self.walk(rows)
        return np.asarray(self.base + found.sum(axis=1, dtype=np.float64))

    def walk(self, rows: Floats) -> Floats:
        """Return the value of the leaf where each row ends in each tree, (B, T).

        This walks level by level and works for trees of any size.
        """
        tree, row = np.arange(len(self.feature)), np.arange(len(rows))[:, None]
        at = np.zeros((len(rows), len(tree)), dtype=np.intp)
        for _ in range(self.depth):
            is_left = rows[row, self.feature[tree, at]] <= self.threshold[tree, at]
            at = self.branches[is_left.astype(np.intp), tree, at]
        return np.asarray(self.value[tree, at])


def is_near(thresholds: Sequence[float], number: float, reach: float) -> bool:
    """Return whether one of ascending thresholds is within `reach` of a number, on either side."""
    at = bisect_left(thresholds, number - reach)
    return at < len(thresholds) and thresholds[at] <= number + reach


@dataclass(frozen=True, slots=True)
class _BitTrees:
    """Trees whose leaves are bits of a number, the leftmost leaf the lowest bit.

    The first nodes of all trees are stored side by side, then the second ones, and so on, so that
    one operation evaluates them for all trees. Nodes that a tree lacks rule out no leaf.
    """

    feature: NDArray[np.intp]  # (places * T,) the column that a node tests
    threshold: Floats  # (places * T,) up to it the test succeeds
    crossed: NDArray[np.unsignedinteger]  # (places * T,) the leaves that a failed test rules out
    value: Floats  # (T * bits,) of the leaves, from the left
    first: NDArray[np.intp]  # (T,) the position of a tree's first value

    def values(self, rows: Floats) -> Floats:
        """Return the value of the leaf where each row ends in each tree, (B, T)."""
        found = np.empty((len(rows), len(self.first)), np.float32)
        for place, row in enumerate(rows):
            found[place] = self._evaluate_row(row)
        return found

    def _evaluate_row(self, row: Floats) -> Floats:
        """Return the value of the leaf where one row (width,) ends in each tree, (T,)."""
        is_no = ~(row.take(self.feature) <= self.threshold)  # true for nan too
        crossed = np.multiply(is_no, self.crossed)  # faster than np.where
        bits = np.bitwise_or.reduce(crossed.reshape(-1, len(self.first)), axis=0)
        lowest = ~bits & (bits + self.crossed.dtype.type(1))
        leaf = np.frexp(lowest.astype(np.float64))[1] - 1
        return np.asarray(self.value.take(self.first + leaf))

    @classmethod
    def from_trees(cls, trees: Trees) -> _BitTrees | None:
        """Convert trees; None if one has more than `MOST_LEAVES` leaves.

        Raises ValueError if the branches do not form trees of the stated depth.
        """
        on_right, on_left = trees.branches
        count, first = _count_leaves(on_left, on_right, trees.depth)
        number, most = len(count), int(count[:, 0].max())
        if most > MOST_LEAVES:
            return None
        kind: type[np.unsignedinteger] = np.uint32 if most <= 32 else np.uint64
        is_leaf = on_left == np.arange(count.shape[1])
        places = max(1, int((~is_leaf).sum(axis=1).max()))
        order = np.argsort(is_leaf, axis=1, kind="stable")[:, :places]  # inner nodes come first
        nodes = np.take_along_axis
        below = nodes(nodes(count, on_left, 1), order, 1).astype(np.uint64)
        before = nodes(first, order, 1).astype(np.uint64)
        crossed = ((np.uint64(1) << below) - np.uint64(1)) << before
        asks = ~nodes(is_leaf, order, 1)
        tree, leaf = np.nonzero(is_leaf & (first >= 0))
        value = np.zeros((number, most), np.float32)
        value[tree, first[tree, leaf]] = trees.value[tree, leaf]
        return cls(
            feature=np.where(asks, nodes(trees.feature, order, 1), 0).T.ravel(),
            threshold=nodes(trees.threshold, order, 1).T.ravel(),
            crossed=np.where(asks, crossed, np.uint64(0)).T.ravel().astype(kind),
            value=value.ravel(),
            first=np.arange(number) * most,
        )


def _count_leaves(
    on_left: NDArray[np.intp], on_right: NDArray[np.intp], depth: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return for each node the leaves below it, and its tree's leaves to its left, (T, N) each.

    The second is -1 for nodes that belong to no tree. Raises ValueError if the branches do not form
    trees of the stated depth.
    """
    nodes = on_left.shape[1]
    is_leaf = on_left == np.arange(nodes)
    if min(on_left.min(), on_right.min()) < 0 or max(on_left.max(), on_right.max()) >= nodes:
        raise ValueError("trees whose branches lead nowhere")
    before = count = np.ones_like(on_left)
    for _ in range(depth + 1):
        before = count
        below = np.take_along_axis(count, on_left, 1) + np.take_along_axis(count, on_right, 1)
        count = np.where(is_leaf, 1, np.minimum(below, nodes + 1))
    if count.max() > nodes or (count != before).any():
        raise ValueError("trees that are deeper than they say")
    first = np.full_like(on_left, -1)
    first[:, 0] = 0
    for _ in range(depth):
        tree, node = np.nonzero(~is_leaf & (first >= 0))
        left, right = on_left[tree, node], on_right[tree, node]
        first[tree, left] = first[tree, node]
        first[tree, right] = first[tree, node] + count[tree, left]
    return count, first


def tree_arrays(
    model: Any, bins: Sequence[NDArray[np.float64]], weight: float = 1.0
) -> dict[str, Array]:
    """Return the arrays of `Trees`, by name, for a HistGradientBoostingClassifier of two classes.

    It was fitted on numbers of bins; `bins` are the thresholds between those of each column. The
    log-odds are multiplied by `weight`.
    """
    trees = [each.nodes for (each,) in model._predictors]  # there is no public access
    shape = (len(trees), max(map(len, trees)))
    own = np.broadcast_to(np.arange(shape[1]), shape)
    feature, left, right = np.zeros(shape, np.int16), own.astype(np.int16), own.astype(np.int16)
    threshold, value = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for number, nodes in enumerate(trees):
        inner = np.flatnonzero(nodes["is_leaf"] == 0)
        feature[number, inner] = nodes["feature_idx"][inner]
        threshold[number, inner] = [
            bins[column][int(at)] if np.isfinite(at) else at
            for column, at in zip(
                nodes["feature_idx"][inner], nodes["num_threshold"][inner], strict=True
            )
        ]
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
