"""The ranking of right against wrong replies to the same question (paper H15, L01-L03).

A calibrator can look good by separating easy questions from hard ones, or good models from bad
ones. Among the replies to one question only the replies differ. This needs only numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrator.metrics.metrics import Floats, Ints, auroc, check_arrays, midranks

PERMUTATIONS = 10_000
SEED = 20_261_121


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The ranking within questions that have both right and wrong replies.

    `auroc` is the mean over questions (L02), `each` the questions' own; `pairs` the share of all
    pairs in the right order, `pooled` the AUROC of all these replies together (L03). The p values
    are of permuting labels within questions; the smallest possible is 1 / (permutations + 1).
    """

    questions: int
    replies: int
    auroc: float
    pairs: float
    pooled: float
    p_auroc: float
    p_pooled: float
    each: Floats


def pair_wins(correct: NDArray[np.bool_], keys: Floats, groups: Ints) -> tuple[Floats, Ints, Ints]:
    """Return for each group its ordered pairs, its correct and its wrong replies, (g,) each.

    `groups` (n,) are numbers 0 .. g-1. Ordered pairs of a correct and a wrong reply are those in
    the right order by `keys` (n,); ties count half.
    """
    count = int(groups.max()) + 1
    right = np.bincount(groups, weights=correct, minlength=count).astype(np.int64)
    size = np.bincount(groups, minlength=count)
    rank = _ranks_within(keys, groups)
    rank_sum = np.bincount(groups, weights=rank * correct, minlength=count)
    return rank_sum - right * (right + 1) / 2, right, size - right


def _ranks_within(keys: Floats, groups: Ints) -> Floats:
    """Return the rank of each key among those of its group, (n,), from 1; equal ones share it."""
    order = np.lexsort((keys, groups))
    k, g = keys[order], groups[order]
    is_new = np.ones(len(k), dtype=bool)
    is_new[1:] = (k[1:] != k[:-1]) | (g[1:] != g[:-1])
    starts = np.flatnonzero(is_new)
    sizes = np.diff(np.append(starts, len(k)))
    middle = np.repeat(starts + (sizes - 1) / 2, sizes)  # the place of each tie among all
    ranks = np.empty(len(k))
    ranks[order] = middle - np.searchsorted(g, g) + 1
    return ranks


def disagreement(
    correct: ArrayLike,
    confidence: ArrayLike,
    questions: ArrayLike,
    permutations: int = PERMUTATIONS,
) -> Disagreement | None:
    """Return the ranking of right above wrong replies within questions, with p values.

    `questions` (n,) holds any comparable values, the same for replies to one question. None where
    no question has both right and wrong replies. Raises ValueError as `check_arrays`.
    """
    y, p = check_arrays(correct, confidence)
    _, group = np.unique(np.asarray(questions), return_inverse=True)
    share = np.bincount(group, weights=y) / np.bincount(group)
    mixed = (share > 0) & (share < 1)
    kept = mixed[group]
    if not kept.any():
        return None
    y, p = y[kept], p[kept]
    _, group = np.unique(group[kept], return_inverse=True)
    wins, right, wrong = pair_wins(y == 1, p, group)
    each = wins / (right * wrong)
    pooled = auroc(y, p)
    p_auroc, p_pooled = _permute(y, p, group, (float(each.mean()), pooled), permutations)
    pairs = float(wins.sum() / (right * wrong).sum())
    return Disagreement(
        len(each), len(y), float(each.mean()), pairs, pooled, p_auroc, p_pooled, each
    )


def _permute(
    y: Ints, p: Floats, group: Ints, found: tuple[float, float], permutations: int
) -> tuple[float, float]:
    """Return one-sided p values of the mean within questions and of the pooled AUROC (L03).

    `found` are these two figures. Permuting the labels of a question draws which of its ranks are
    the correct replies': both figures are sums over those ranks, so a permutation costs one sort.
    """
    order = np.argsort(group, kind="stable")
    y, p, group = y[order], p[order], group[order]
    right, size = np.bincount(group, weights=y), np.bincount(group)
    places = np.arange(len(y)) - np.repeat(np.cumsum(size) - size, size)
    chosen = np.flatnonzero(places < right[group])  # for each question, as many as are correct
    within = _ranks_within(p, group) / (right * (size - right))[group]
    shift = float(np.sum((right + 1) / 2 / (size - right)))
    overall = midranks(p)
    positives = int(y.sum())
    offset, pairs = positives * (positives + 1) / 2, positives * (len(y) - positives)
    rng = np.random.default_rng(SEED)
    as_good = np.zeros(2, dtype=np.int64)
    for _ in range(permutations):
        drawn = np.argsort(group + rng.random(len(y)))[chosen]
        mean = (within[drawn].sum() - shift) / len(size)
        pooled = (overall[drawn].sum() - offset) / pairs
        as_good += (mean >= found[0] - 1e-12, pooled >= found[1] - 1e-12)
    p_auroc, p_pooled = (as_good + 1) / (permutations + 1)
    return float(p_auroc), float(p_pooled)
