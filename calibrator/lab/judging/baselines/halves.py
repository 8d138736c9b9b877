"""The two halves of the rows for post-hoc baselines: one to fit on, one to judge.

Halves are stratified by label. All replies to a question are in one half (D04). The paper's rows
are D09 and I17.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibrator.metrics.metrics import Ints

SEED = 20_261_125


def halves(correct: ArrayLike, questions: ArrayLike, seed: int = SEED) -> tuple[Ints, Ints]:
    """Return the positions of the rows to fit on and of those to judge, each ascending.

    `correct` (n,) are labels 0 or 1, `questions` (n,) comparable values; rows of one question are
    in one half. The result depends only on the arguments. Questions are dealt out in the order of
    their size and their share of right replies, with ties broken at random, so that both halves
    have nearly the same number of rows and of right rows.
    """
    y = np.asarray(correct, dtype=np.float64)
    _, group = np.unique(np.asarray(questions), return_inverse=True)
    size = np.bincount(group)
    share = np.bincount(group, weights=y) / size
    chance = np.random.default_rng(seed).random(len(size))
    order = np.lexsort((chance, share, size))
    is_fitted = np.empty(len(size), dtype=bool)
    # The pattern a, b, b, a keeps one half from getting the larger question of each pair.
    is_fitted[order] = np.isin(np.arange(len(size)) % 4, (0, 3))
    return np.flatnonzero(is_fitted[group]), np.flatnonzero(~is_fitted[group])
