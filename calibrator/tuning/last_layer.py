"""Fine-tunes a tower's last layer on some hundred labelled replies of one deployment (A09, G06).

    log-odds = slope * shipped + intercept + weights . traits + bias of the model

Slope and intercept are a priori what `recalibration_fit` takes them for, weights and biases are
normal around the shipped ones; how firmly (`ridge`) is chosen by cross-validation over questions.
With an endless ridge this is Platt scaling, so fine-tuning starts where a recalibration ends. The
n-grams and hidden layers stay: refitting those too was worse with 200 labels and hardly better
with 2,000. What it is worth was measured (`proxy/learning/README.md`). numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calibrator.embedded.familiarity import modest, shifted
from calibrator.errors import JudgingError
from calibrator.metrics.metrics import Floats, Ints
from calibrator.metrics.sampling import effective_size
from calibrator.recalibration.curves import Platt, log_odds, sigmoid
from calibrator.recalibration.fit import FOLDS, SLOPE_BEFORE, TRUST, fit_trusting_platt
from calibrator.rows.selection import share_of

MIN_LABELS: Final = 50  # to learn from; a fold of five has then ten
MIN_MODEL_LABELS: Final = 10  # for a bias of a model's own
RIDGES: Final = (10_000.0, 1_000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
TRAIT_SCALE: Final = 0.5  # what a trait's standard deviation may move, beside 2 of a model's bias
MODEL_SCALE: Final = 2.0
_STEPS, _NEAR = 25, 1e-4  # of Newton's method
_LEAST_CURVATURE = 1e-6
_DIGITS = 9  # that are kept: the last bits depend on how many threads added


@dataclass(frozen=True, slots=True)
class Readings:
    """What a tower makes of n labelled replies, and what is known of them.

    `odds` (n,) are its log-odds, `traits` (n, TRAITS) as its last layer sees them, `white` (n, D)
    what familiarity measures and `distances` (n,) what it found; without familiarity D is 0.
    `in_order` (n,) is multiplied onto what is learnt here, and `shifts` (n,) are added to its
    log-odds. Evidence from the conversation multiplies the log-odds of all that by `slopes` (n,)
    and adds `offsets` (n,). `models` are names in lower case, empty for none.
    """

    odds: Floats
    traits: Floats
    white: Floats
    distances: Floats
    in_order: Floats
    shifts: Floats
    slopes: Floats
    offsets: Floats
    models: Sequence[str]
    questions: Sequence[str]
    correct: Ints
    weights: Floats

    def __len__(self) -> int:
        return len(self.odds)

    def taken(self, at: Sequence[int]) -> Readings:
        """Those at these positions."""
        return Readings(
            self.odds[at],
            self.traits[at],
            self.white[at],
            self.distances[at],
            self.in_order[at],
            self.shifts[at],
            self.slopes[at],
            self.offsets[at],
            [self.models[i] for i in at],
            [self.questions[i] for i in at],
            self.correct[at],
            self.weights[at],
        )


@dataclass(frozen=True, slots=True)
class Tuned:
    """A last layer beside the shipped one, and the curve on top of it.

    `traits` (TRAITS,) and `models` are added to the weights and biases once these are multiplied
    by `slope`; `centre` (D,) is where the deployment's replies lie for familiarity.
    """

    ridge: float
    slope: float
    intercept: float
    traits: Floats
    models: Mapping[str, float]
    centre: Floats
    platt: Platt

    def odds(self, found: Readings) -> Floats:
        """New log-odds (n,)."""
        own = np.array([self.models.get(name, 0.0) for name in found.models])
        return np.asarray(
            self.slope * found.odds + self.intercept + found.traits @ self.traits + own
        )

    def confidence(self, found: Readings, base_rate: float, threshold: float) -> Floats:
        """As the checkpoint would say it, (n,); `threshold` is familiarity's."""
        near = ((found.white - self.centre) ** 2).sum(axis=1) / threshold
        distances = np.minimum(found.distances, near)
        told = self.platt.apply_all(sigmoid(self.odds(found)))
        each = zip(told.tolist(), distances.tolist(), found.shifts.tolist(), strict=True)
        right = [shifted(modest(x, distance, base_rate), shift) for x, distance, shift in each]
        likeness = (np.array(right) * found.in_order).tolist()
        return np.asarray(sigmoid(found.slopes * list(map(log_odds, likeness)) + found.offsets))


def fit_tuned(found: Readings) -> Tuned:
    """Fits on all; raises JudgingError with fewer than `MIN_LABELS` labels, or of one kind."""
    if len(found) < MIN_LABELS:
        raise JudgingError(f"{len(found)} labels are too few to fine-tune on: {MIN_LABELS}")
    if found.correct.min() == found.correct.max():
        raise JudgingError("fine-tuning needs correct and wrong replies")
    middle = found.traits.mean(axis=0)
    found = replace(found, traits=found.traits - middle)  # so that the intercept stays by itself
    names = _own_names(found.models)
    ridge, unseen = _chosen(found, names)
    solution = _solve(found, names, ridge)
    over = max(1.0, float(solution[0]))  # weights only shrink, so that they fit where they stand
    slope, intercept = solution[:2] / over
    traits, biases = np.split(solution[2:] / over, [found.traits.shape[1]])
    traits = traits * TRAIT_SCALE
    return Tuned(
        ridge,
        float(slope),
        float(intercept - middle @ traits),
        traits,
        dict(zip(names, (biases * MODEL_SCALE).tolist(), strict=True)),
        np.average(found.white, axis=0, weights=found.weights),
        fit_trusting_platt(found.correct, sigmoid(unseen / over), _counts(found)),
    )


def _own_names(models: Sequence[str]) -> list[str]:
    found, counts = np.unique(np.asarray(models, dtype=object).astype(str), return_counts=True)
    pairs = zip(found.tolist(), counts, strict=True)
    return [name for name, count in pairs if name and count >= MIN_MODEL_LABELS]


def _chosen(found: Readings, names: Sequence[str]) -> tuple[float, Floats]:
    """The ridge with the lowest log loss on questions that were not fitted on, and its log-odds
    there (n,)."""
    folds = np.array([int(share_of(f"ridge {name}") * FOLDS) for name in found.questions])
    unseen = np.tile(found.odds, (len(RIDGES), 1))
    for fold in range(FOLDS):
        inside, outside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if not len(inside) or not len(outside):
            continue
        known, judged = found.taken(outside.tolist()), _features(found, names, inside)
        start = None
        for at, ridge in enumerate(RIDGES):
            start = _solve(known, names, ridge, start)
            unseen[at, inside] = np.round(judged @ start, _DIGITS)
    losses = np.logaddexp(0, unseen) - found.correct * unseen
    best = int((losses @ found.weights).argmin())
    return RIDGES[best], unseen[best]


def _features(found: Readings, names: Sequence[str], at: Ints) -> Floats:
    """(len(at), 2 + TRAITS + names): shipped log-odds, 1, traits, one column for each name."""
    models = np.asarray(found.models, dtype=object)[at]
    own = models[:, None] == np.asarray(names, dtype=object)[None, :]
    odds = found.odds[at, None]
    traits = found.traits[at] * TRAIT_SCALE
    return np.hstack([odds, np.ones_like(odds), traits, own.astype(np.float64) * MODEL_SCALE])


def _solve(
    found: Readings, names: Sequence[str], ridge: float, start: Floats | None = None
) -> Floats:
    """The most probable coefficients of `_features`, by Newton's method."""
    features = _features(found, names, np.arange(len(found)))
    counts, y = _counts(found), found.correct
    prior = np.zeros(features.shape[1])
    prior[0] = SLOPE_BEFORE
    trust = np.full(len(prior), ridge)
    trust[:2] = TRUST
    at = prior.copy() if start is None else start

    def cost(here: Floats) -> float:
        z, off = features @ here, here - prior
        return float(counts @ (np.logaddexp(0, z) - y * z) + off @ (trust * off) / 2)

    for _ in range(_STEPS):
        p: Floats = sigmoid(features @ at)
        gradient = features.T @ (counts * (p - y)) + trust * (at - prior)
        curvature = counts * np.maximum(p * (1 - p), _LEAST_CURVATURE)
        hessian = (features * curvature[:, None]).T @ features + np.diag(trust)
        step = np.linalg.solve(hessian, gradient)
        while cost(at - step) > cost(at) and np.abs(step).max() > _NEAR:
            step = step / 2
        at = at - step
        if np.abs(step).max() < _NEAR:
            break
    return np.round(at, _DIGITS)


def _counts(found: Readings) -> Floats:
    """Weights that count as much as the labels they are worth (Kish)."""
    return np.asarray(found.weights * (effective_size(found.weights) / found.weights.sum()))
