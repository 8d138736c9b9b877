"""Fits the difficulty of questions, and tells that of training questions out of fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.difficulty import PARTS, PREFIX
from calibrator.ngrams import Grams
from calibrator.recalibration import logit
from calibrator.tower import BUCKETS

Array = NDArray[np.generic]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FOLDS = 5
MIN_QUESTIONS = 3  # that hold an n-gram which counts
INVERSE_PENALTY = 3.0


def fit_difficulty(
    grams: Sequence[Grams], questions: Ints, targets: NDArray[np.float32], seed: int
) -> tuple[dict[str, Array], NDArray[np.float32]]:
    """The arrays of a `Difficulty`, and log-odds (N,) for the rows fitted on, out of fold.

    `grams` of the rows, the numbers of their questions and their targets, each (N,). Fitted on the
    rows that it is told for, the difficulty of a question would be known by heart.
    """
    _, first, question = np.unique(questions, return_index=True, return_inverse=True)
    counts = np.bincount(question).astype(np.float64)
    right = np.bincount(question, weights=targets) / counts
    bags, kept, rarity = _bags([grams[i] for i in first])
    folds = np.random.default_rng(seed).permutation(len(first)) % FOLDS
    told = np.zeros(len(first))
    for fold in range(min(FOLDS, len(first))):
        inside = folds == fold
        weight, base = _fit(bags[~inside], right[~inside], counts[~inside])
        told[inside] = bags[inside] @ weight + base
    weight, base = _fit(bags, right, counts)
    state: dict[str, Array] = {
        f"{PREFIX}weight": _spread(weight * rarity, kept),
        f"{PREFIX}rarity": _spread(rarity, kept),
        f"{PREFIX}base": np.array([base], dtype=np.float32),
    }
    return state, told[question].astype(np.float32)


def _spread(values: Floats, kept: Ints) -> NDArray[np.float16]:
    """Values of the columns `kept` among all, (2, BUCKETS)."""
    found = np.zeros(len(PARTS) * BUCKETS, dtype=np.float16)
    found[kept] = values
    return found.reshape(len(PARTS), BUCKETS)


def _bags(grams: Sequence[Grams]) -> tuple[Any, Ints, Floats]:
    """The questions' n-grams by their rarity, rows of length 1, sparse (questions, K); which of
    the 2 * BUCKETS columns these are, (K,), and their rarities.

    What fewer than `MIN_QUESTIONS` questions hold is left out.
    """
    from scipy.sparse import csr_matrix, diags_array

    lists = [[each[part] for each in grams] for part in PARTS]
    row = np.concatenate([np.repeat(np.arange(len(grams)), [len(x) for x in p]) for p in lists])
    column = np.concatenate([np.concatenate(p) + n * BUCKETS for n, p in enumerate(lists)])
    found = np.bincount(column, minlength=len(PARTS) * BUCKETS)
    kept = np.flatnonzero(found >= MIN_QUESTIONS)
    rarity = (np.log(len(grams) / found[kept]) + 1).astype(np.float16).astype(np.float64)
    place = np.full(len(found), -1)
    place[kept] = np.arange(len(kept))
    row, column = row[place[column] >= 0], place[column][place[column] >= 0]
    bags = csr_matrix((rarity[column], (row, column)), shape=(len(grams), len(kept)))
    lengths = np.sqrt(np.asarray(bags.multiply(bags).sum(axis=1)).ravel())
    return (diags_array(1 / np.maximum(lengths, 1e-6)) @ bags).tocsr(), kept, rarity


def _fit(bags: Any, right: Floats, counts: Floats) -> tuple[Floats, float]:
    """Logistic regression on the share of right replies, a question weighing the root of its rows:
    weights (K,) and intercept."""
    from scipy.sparse import vstack
    from sklearn.linear_model import LogisticRegression

    weights = np.concatenate([right, 1 - right]) * np.tile(np.sqrt(counts), 2)
    labels = np.repeat([1, 0], len(right))
    at = np.flatnonzero(weights > 0)
    if len(set(labels[at])) < 2 or not bags.shape[1]:  # all right, all wrong, or no word
        return np.zeros(bags.shape[1]), float(logit(np.average(right, weights=counts)))
    model = LogisticRegression(C=INVERSE_PENALTY, solver="liblinear")
    model.fit(vstack([bags, bags]).tocsr()[at], labels[at], sample_weight=weights[at])
    return np.asarray(model.coef_[0]), float(model.intercept_[0])
