"""Fit the abilities of the models of labelled rows, and the worth of numbers in unknown names.

`calibrator.embedded.parts` applies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.checkpoints.extras import check_scikit_learn
from calibrator.embedded.parts import ABILITIES_PREFIX, STATED, stated_in
from calibrator.rows.rows import Row


@dataclass(frozen=True, slots=True)
class AbilityConfig:
    """The strength of the fit, and the share of abilities that is added."""

    share: float = 0.3  # of an ability, added to the log-odds
    ridge: float = 20.0  # draws abilities to 0, most for models of few rows
    stated_share: float = 1.0  # of the ability estimated from an unknown name
    stated_ridge: float = 10.0  # draws the worth of numbers in names to 0
    stated_rows: tuple[int, int] = (30, 400)  # fewest of a model used; the most that count


def fit_abilities(
    rows: Sequence[Row], names: Sequence[str], config: AbilityConfig
) -> dict[str, NDArray[Any]]:
    """Return the arrays `abilities.odds` (1 + names,) and `abilities.stated` (STATED + 1,).

    The first has, for each of `names` (in lower case, in this order), the log-odds to add for
    replies of that model; its entry 0, for no name, is 0. P(right) of a reply is the sigmoid of its
    model's ability minus its benchmark's difficulty, by maximum likelihood with a ridge on the
    abilities. Abilities are relative to that of the average row, so names without rows get 0, and
    are multiplied by `config.share`. The second array has what each number that an unknown name
    states (`stated_in`, such as its size) adds, and a constant, by a ridge regression on the
    abilities. A row without a label counts as wrong. Raises MissingExtraError without scikit-learn.
    """
    check_scikit_learn()
    from scipy.sparse import csr_matrix, hstack
    from sklearn.linear_model import LogisticRegression

    models, model = np.unique([(row.model or "").lower() for row in rows], return_inverse=True)
    benchmarks, benchmark = np.unique([row.benchmark or "" for row in rows], return_inverse=True)
    cells, cell, count = np.unique(
        model * len(benchmarks) + benchmark, return_inverse=True, return_counts=True
    )
    right = np.bincount(cell, weights=[float(row.correct or 0) for row in rows])
    at = np.arange(len(cells))
    ones = np.ones(len(cells))
    of_model = csr_matrix((ones / config.ridge**0.5, (at, cells // len(benchmarks))))
    of_benchmark = csr_matrix((ones, (at, cells % len(benchmarks))))
    features = hstack([of_model, of_benchmark]).tocsr()
    labels, weights = np.repeat([1, 0], len(cells)), np.concatenate([right, count - right])
    fitted = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-8, max_iter=10_000)
    fitted.fit(features[np.concatenate([at, at])], labels, weights)
    ability = fitted.coef_[0, : len(models)] / config.ridge**0.5
    middle = float(np.average(ability, weights=np.bincount(model)))
    found = dict(zip(models.tolist(), config.share * (ability - middle), strict=True))
    odds = np.array([0.0, *(found.get(name, 0.0) for name in names)])
    stated = _fit_stated(models.tolist(), ability, np.bincount(model), config)
    return {
        ABILITIES_PREFIX + "odds": odds.astype(np.float16),
        ABILITIES_PREFIX + "stated": stated.astype(np.float32),
    }


def _fit_stated(
    names: Sequence[str],
    ability: NDArray[np.float64],
    counts: NDArray[np.int64],
    config: AbilityConfig,
) -> NDArray[np.float64]:
    """Return what each number of `stated_in` adds to log-odds, and last a constant, (STATED + 1,).

    `ability` (M,) and `counts` (M,) are the abilities and numbers of rows of the models `names`.
    Those with fewer rows than `config.stated_rows[0]` are ignored. The weighted mean of the used
    names gets 0. All are 0 if no used name states anything.
    """
    fewest, most = config.stated_rows
    found = [
        (stated, own, min(count, most) ** 0.5)
        for name, own, count in zip(names, ability.tolist(), counts.tolist(), strict=True)
        if count >= fewest and (stated := stated_in(name)) is not None
    ]
    if not found:
        return np.zeros(STATED + 1)
    stated, own, weights = (np.array(each) for each in zip(*found, strict=True))
    weights = weights / weights.mean()
    middle = np.average(stated, axis=0, weights=weights)
    stated, own = stated - middle, own - np.average(own, weights=weights)
    weighted = stated.T * weights
    slopes = np.linalg.solve(
        weighted @ stated + config.stated_ridge * np.eye(STATED), weighted @ own
    )
    return config.stated_share * np.append(slopes, -middle @ slopes)
