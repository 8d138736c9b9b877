"""The two halves of post-hoc baselines: fitted on one, judged on the other (paper D09, I17).

Halves are stratified by label, and by question: all replies to a question are on one side (D04).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from calibrator.metrics.metrics import Ints

SEED = 20_261_125


def halves(correct: ArrayLike, questions: ArrayLike, seed: int = SEED) -> tuple[Ints, Ints]:
    """Places of the half to fit on and of the half to judge, ascending; the same for a seed.

    Questions are dealt out in the order of their size and their share of right replies, those that
    are equal by chance, so that both halves have nearly as many rows and as many right ones.
    """
    y = np.asarray(correct, dtype=np.float64)
    _, group = np.unique(np.asarray(questions), return_inverse=True)
    size = np.bincount(group)
    share = np.bincount(group, weights=y) / size
    chance = np.random.default_rng(seed).random(len(size))
    order = np.lexsort((chance, share, size))
    is_fitted = np.empty(len(size), dtype=bool)
    # a, b, b, a: so neither half has the larger one of each pair
    is_fitted[order] = np.isin(np.arange(len(size)) % 4, (0, 3))
    return np.flatnonzero(is_fitted[group]), np.flatnonzero(~is_fitted[group])
