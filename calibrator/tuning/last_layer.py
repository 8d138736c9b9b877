"""Fits a layer over the final log-odds on some hundred labelled replies of a deployment (A09, G06).

    log-odds = slope * shipped + intercept + weights . features + bias of the model

Slope and intercept have the priors of `recalibration.fit`; weights and biases are normal around
zero. Cross-validation over questions weighs how firmly these are held, how much words count beside
numbers, and how firmly the slope is held: each way of fitting counts by its likelihood on unseen
labels (pseudo-Bayesian model averaging; Yao et al., 2018). Platt scaling alone is one of the ways,
so fine-tuning begins where a recalibration ends. All of them are linear, so their mean is one
layer.

There are more features than labels, so the fit is in the span of the labelled replies
(`LANDMARKS` of them where there are more): it inverts a matrix of that size, not of all
features. Its value was measured (`proxy/learning/README.md`). numpy only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrator.embedded.tuned_layer import (
    BUCKETS,
    NUMBERS,
    Features,
    TunedLayer,
    model_numbers,
    standardise,
    weighed_grams,
)
from calibrator.errors import JudgingError
from calibrator.metrics.metrics import Floats, Ints
from calibrator.metrics.sampling import effective_size
from calibrator.recalibration.curves import sigmoid
from calibrator.recalibration.fit import FOLDS, SLOPE_BEFORE, TRUST
from calibrator.rows.selection import share_of

MIN_LABELS: Final = 50  # labels to learn from; each of five folds then has ten
MIN_MODEL_LABELS: Final = 10  # labels that a model needs for its own bias
LANDMARKS: Final = 200  # labelled replies that span the weights
MODEL_SCALE: Final = 2.0  # log-odds that a model's bias may move, against 1 for all else
NUMBER_SCALE: Final = np.float32(
    1 / np.sqrt(NUMBERS)
)  # gives all numbers together a length of about 1
GRAM_SCALES: Final = np.array([[0.7], [1.0]], np.float32)  # for the request and for the reply
RECALIBRATION: Final = 1e6  # a ridge that leaves slope and intercept alone
RIDGES: Final = (RECALIBRATION, 10.0, 3.0, 1.0, 0.3)
WAYS: Final = tuple((trust, ridge) for trust in (TRUST[0], 1.0) for ridge in RIDGES)
"""How firmly the slope is held, and how firmly all other weights are held."""

_STEPS, _NEAR = 25, 1e-3  # most steps and the tolerance of Newton's method
_LEAST_CURVATURE = 1e-6
_LEAST_VALUE = 1e-6  # share of the largest eigenvalue; directions below it are noise
_LEAST_SPREAD = 0.01
_DIGITS = 6  # digits that are kept; the last bits depend on the number of threads

At = Sequence[int] | Ints
Floats32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class CheckpointOutput(Features):
    """A checkpoint's output for n replies, with the features that layers read.

    `confidence` (n,) is its own. `odds` (n,) are its log-odds once it knows their text. No layer
    changes replies for which `is_computed` (n,) is true. `white` (n, D) is the input of
    familiarity; without familiarity D is 0.
    """

    confidence: Floats
    odds: Floats
    is_computed: NDArray[np.bool_]
    white: Floats32

    def take(self, at: At) -> CheckpointOutput:
        """Return the replies at these positions."""
        return CheckpointOutput(*(getattr(self, each.name)[at] for each in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[CheckpointOutput]) -> CheckpointOutput:
        """Return all parts joined, one after the other; there must be at least one."""
        arrays = ([getattr(part, each.name) for part in parts] for each in fields(cls))
        return cls(*map(np.concatenate, arrays))


@dataclass(frozen=True, slots=True)
class Readings:
    """n labelled replies. `models` are names in lower case, empty for none.

    Replies to the same of `questions` stay in one fold. A reply counts by its weight.
    """

    read: CheckpointOutput
    models: Sequence[str]
    questions: Sequence[str]
    correct: Ints
    weights: Floats

    def __len__(self) -> int:
        return len(self.correct)

    def take(self, at: At) -> Readings:
        """Return the replies at these positions."""
        return Readings(
            self.read.take(at),
            [self.models[i] for i in at],
            [self.questions[i] for i in at],
            self.correct[at],
            self.weights[at],
        )


@dataclass(frozen=True, slots=True)
class TunedCheckpoint:
    """A layer for a checkpoint, with facts about it.

    `learnt` is the weight, 0 to 1, of the ways of fitting that use more than the shipped log-odds.
    `models` are the biases of models by their names, and `centre` (D,) is the mean of the
    deployment's replies for familiarity.
    """

    layer: TunedLayer
    learnt: float
    models: Mapping[str, float]
    centre: Floats32

    def confidence(self, output: CheckpointOutput) -> Floats:
        """Return the confidences that the tuned checkpoint would give to replies, (n,).

        Those that a computation decided keep theirs.
        """
        odds = self.layer.slope * output.odds + self.layer.offsets(output)
        return np.asarray(np.where(output.is_computed, output.confidence, sigmoid(odds)))


@dataclass(frozen=True, slots=True)
class _Problem:
    """The data of a fit: `line` (n, 2 + models) beside `kernel` (n, landmarks), by `WAYS`.

    `landmarks` are their positions among the n replies.
    """

    line: Floats
    kernel: Floats
    landmarks: Ints
    correct: Ints
    counts: Floats

    def fits(self, at: Ints) -> Iterator[Floats]:
        """Yield the coefficients of each of `WAYS`, fitted on the replies at these positions.

        They are (2 + models + landmarks,); those of landmarks outside `at` are 0.
        """
        own = np.flatnonzero(np.isin(self.landmarks, at))
        values, vectors = np.linalg.eigh(self.kernel[self.landmarks[own]][:, own])
        is_kept = values > _LEAST_VALUE * values[-1]
        basis = vectors[:, is_kept] / np.sqrt(values[is_kept])
        design = np.hstack([self.line[at], self.kernel[at][:, own] @ basis])
        size = self.line.shape[1]
        prior = np.zeros(design.shape[1])
        prior[0] = SLOPE_BEFORE
        found = prior
        for trust, ridge in WAYS:
            firmly = np.array([trust, TRUST[1], *[ridge] * (len(prior) - 2)])
            found = _solve(design, self.correct[at], self.counts[at], prior, firmly, found)
            landmarks = np.zeros(len(self.landmarks))
            landmarks[own] = basis @ found[size:]
            yield np.append(found[:size], landmarks)


def fit_tuned(found: Readings) -> TunedCheckpoint:
    """Fit a layer on all labelled replies but those that a computation decided.

    Raises JudgingError with fewer than `MIN_LABELS` labels, or labels of one kind.
    """
    found = found.take(np.flatnonzero(~found.read.is_computed))
    if len(found) < MIN_LABELS:
        raise JudgingError(f"{len(found)} labels are too few to fine-tune on: {MIN_LABELS}")
    if found.correct.min() == found.correct.max():
        raise JudgingError("fine-tuning needs correct and wrong replies")
    centre = np.average(found.read.white, axis=0, weights=found.weights).astype(np.float32)
    scales = _scales(found.read)
    features = _features(found.read, *scales)
    marks = np.unique(np.linspace(0, len(found) - 1, LANDMARKS).astype(np.int64))
    names = _own_names(found.models)
    problem = _Problem(
        _line_columns(found, names),
        (features @ features[marks].T).astype(np.float64),
        marks,
        found.correct,
        found.weights * (effective_size(found.weights) / found.weights.sum()),
    )
    shares = _shares(problem, found.questions)
    fitted = shares @ np.array([*problem.fits(np.arange(len(found)))])
    size = problem.line.shape[1]
    slope, intercept, *biases = np.round(fitted[:size], _DIGITS).tolist()
    biases = [MODEL_SCALE * each for each in biases]
    weights = np.round(features[marks].T @ fitted[size:], _DIGITS).astype(np.float32)
    numbers, grams = np.split(weights, [NUMBERS])
    grams = grams.reshape(-1, BUCKETS) * GRAM_SCALES
    numbers_of = dict(zip(model_numbers(names).tolist(), biases, strict=True))
    layer = TunedLayer(slope, intercept, *scales, numbers * NUMBER_SCALE, grams, numbers_of)
    is_line = np.array([ridge == RECALIBRATION for _, ridge in WAYS])
    bias_of_model = dict(zip(names, biases, strict=True))
    return TunedCheckpoint(layer, float(1 - shares[is_line].sum()), bias_of_model, centre)


def _shares(problem: _Problem, questions: Sequence[str]) -> Floats:
    """Return the weight of each of `WAYS`, (ways,), which add up to 1.

    It is in proportion to the likelihood of labels under fits on other questions.
    """
    folds = np.array([int(share_of(f"ridge {name}") * FOLDS) for name in questions])
    losses = np.zeros(len(WAYS))
    features = np.hstack([problem.line, problem.kernel])
    for fold in range(FOLDS):
        inside, outside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if len(inside) and len(outside):
            odds = np.array([*problem.fits(outside)]) @ features[inside].T
            of_each = np.logaddexp(0, odds) - problem.correct[inside] * odds
            losses += of_each @ problem.counts[inside]
    shares = np.exp(losses.min() - np.round(losses, _DIGITS))
    return np.asarray(shares / shares.sum())


def _scales(output: CheckpointOutput) -> tuple[Floats32, Floats32, Floats32]:
    """Return mean and spread of the numbers, (NUMBERS,) each, and the rarity of n-grams.

    The rarity is (parts, BUCKETS); a missing number does not count.
    """
    is_there = np.isfinite(output.numbers)
    count = np.maximum(is_there.sum(axis=0), 1)
    mean = np.where(is_there, output.numbers, 0).sum(axis=0) / count
    off = np.where(is_there, output.numbers - mean, 0)
    spread = np.maximum(np.sqrt((off**2).sum(axis=0) / count), _LEAST_SPREAD)
    rarity = np.log((1 + len(output.grams)) / (1 + output.grams.sum(axis=0))) + 1
    return mean.astype(np.float32), spread.astype(np.float32), rarity.astype(np.float32)


def _features(
    output: CheckpointOutput, mean: Floats32, spread: Floats32, rarity: Floats32
) -> Floats32:
    """Return scaled numbers and n-grams as one matrix, (n, NUMBERS + parts * BUCKETS)."""
    numbers = standardise(output.numbers, mean, spread) * NUMBER_SCALE
    grams = weighed_grams(output.grams, rarity) * GRAM_SCALES
    return np.hstack([numbers, grams.reshape(len(grams), -1)])


def _own_names(models: Sequence[str]) -> list[str]:
    """Return the names with `MIN_MODEL_LABELS` labels or more, sorted; "" is no name."""
    counts = Counter(models)
    return sorted(name for name in counts if name and counts[name] >= MIN_MODEL_LABELS)


def _line_columns(found: Readings, names: Sequence[str]) -> Floats:
    """Return the columns beside the features: log-odds, 1, and one for each name, (n, 2 + names).

    A name's column is `MODEL_SCALE` for its own replies, else 0.
    """
    own = [[MODEL_SCALE * (model == name) for name in names] for model in found.models]
    odds = found.read.odds[:, None]
    return np.hstack([odds, np.ones_like(odds), np.array(own).reshape(len(found), len(names))])


def _solve(
    features: Floats, correct: Ints, counts: Floats, prior: Floats, trust: Floats, start: Floats
) -> Floats:
    """Return the most probable coefficients of a logistic regression, by Newton's method.

    `features` are (n, k), `counts` (n,) are weights of the labels `correct`. Coefficients (k,) are
    normal around `prior` with the precisions `trust`; the search begins at `start`.
    """
    at = start

    def cost(here: Floats) -> float:
        """Return the negative log of the posterior, up to a constant."""
        z, off = features @ here, here - prior
        return float(counts @ (np.logaddexp(0, z) - correct * z) + off @ (trust * off) / 2)

    for _ in range(_STEPS):
        p: Floats = sigmoid(features @ at)
        gradient = features.T @ (counts * (p - correct)) + trust * (at - prior)
        curvature = counts * np.maximum(p * (1 - p), _LEAST_CURVATURE)
        hessian = (features * curvature[:, None]).T @ features + np.diag(trust)
        step = np.linalg.solve(hessian, gradient)
        while cost(at - step) > cost(at) and np.abs(step).max() > _NEAR:
            step = step / 2
        at = at - step
        if np.abs(step).max() < _NEAR:
            break
    return at
