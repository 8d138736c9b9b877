"""Trees that are read by crossing out leaves give the values of trees that are walked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.features.trees import MOST_LEAVES, Trees

WIDTH = 3


def grown(leaves: int, trees: int, seed: int) -> dict[str, Any]:
    """Return the state of trees with that many leaves, each grown by random splits."""
    rng = np.random.default_rng(seed)
    nodes = 2 * leaves - 1
    left = np.tile(np.arange(nodes, dtype=np.int16), (trees, 1))
    right, depths = left.copy(), np.zeros((trees, nodes), np.int16)
    for tree in range(trees):
        for first in range(1, nodes, 2):
            at = rng.choice(np.flatnonzero(left[tree, :first] == np.arange(first)))
            left[tree, at], right[tree, at] = first, first + 1
            depths[tree, first : first + 2] = depths[tree, at] + 1
    return {
        "feature": rng.integers(0, WIDTH, (trees, nodes)).astype(np.int16),
        "threshold": rng.integers(-3, 3, (trees, nodes)).astype(np.float32),
        "left": left,
        "right": right,
        "value": rng.normal(size=(trees, nodes)).astype(np.float32),
        "base": np.array([0.5], np.float32),
        "depth": np.array([depths.max()], np.int16),
    }


@given(st.sampled_from([1, 2, 15, 32, 33, MOST_LEAVES, MOST_LEAVES + 1]), st.integers(0, 9))
def test_crossing_out_leaves_ends_where_walking_ends(leaves: int, seed: int) -> None:
    """Crossing out leaves gives the same values as walking, on a threshold and for NaN too."""
    trees = Trees(grown(leaves, 4, seed), WIDTH)
    rows = np.random.default_rng(seed).integers(-4, 4, (9, WIDTH)).astype(np.float32)
    rows[0, 0] = np.nan
    walked = trees.base + trees.walk(rows).sum(axis=1, dtype=np.float64)
    assert trees.read(rows).tolist() == walked.tolist()
    assert trees.read(rows[:0]).tolist() == []


@pytest.mark.parametrize(("branch", "message"), [(0, "deeper"), (9, "nowhere"), (-1, "nowhere")])
def test_what_is_no_tree_is_refused(branch: int, message: str) -> None:
    """Branches that lead back to the root or out of the tree are refused."""
    state = grown(3, 2, seed=1)
    inner = int(state["left"][0, 0])
    state["left"][0, inner], state["right"][0, inner] = branch, inner + 1
    with pytest.raises(ValueError, match=message):
        Trees(state, WIDTH)
