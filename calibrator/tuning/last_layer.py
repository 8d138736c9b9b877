"""Fits a layer over the final log-odds on some hundred labelled replies of a deployment (A09, G06).

    log-odds = slope * shipped + intercept + weights . features + bias of the model

Slope and intercept are a priori what `recalibration.fit` takes them for; weights and biases are
normal around zero. How firmly, how much words count beside numbers, and how firmly the slope is
held, is weighed by cross-validation over questions: each way of fitting counts by its likelihood on
labels that it did not see (pseudo-Bayesian model averaging; Yao et al., 2018). Platt scaling alone
is among them, so fine-tuning begins where a recalibration ends. All of them are linear, so that
their mean is one layer.

There are more features than labels, so the fit is in the span of the labelled replies
(`LANDMARKS` of them where there are more): an inverse of a matrix of that size, not of all
features. What it is worth was measured (`proxy/learning/README.md`). numpy only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrator.embedded.tuned_layer import (
    NUMBERS,
    Features,
    TunedLayer,
    model_numbers,
    standardised,
    weighed_grams,
)
from calibrator.errors import JudgingError
from calibrator.metrics.metrics import Floats, Ints
from calibrator.metrics.sampling import effective_size
from calibrator.recalibration.curves import sigmoid
from calibrator.recalibration.fit import FOLDS, SLOPE_BEFORE, TRUST
from calibrator.rows.selection import share_of

MIN_LABELS: Final = 50  # to learn from; a fold of five has then ten
MIN_MODEL_LABELS: Final = 10  # for a bias of a model's own
LANDMARKS: Final = 300  # labelled replies in whose span weights are
MODEL_SCALE: Final = 2.0  # log-odds that a model's bias may move, beside 1 of all else
_RIDGES: Final = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
_LOOSE: Final = 1.0  # trust in the slope where the shipped log-odds may say the opposite
_STEPS, _NEAR = 25, 1e-4  # of Newton's method
_LEAST_CURVATURE = 1e-6
_LEAST_VALUE = 1e-6  # of the largest eigenvalue; directions below it are noise
_LEAST_SPREAD = 0.01
_DIGITS = 6  # that are kept: the last bits depend on how many threads added

At = Sequence[int] | Ints


@dataclass(frozen=True, slots=True)
class Read(Features):
    """What a checkpoint makes of n replies, beside what layers read of them.

    `confidence` (n,) is what it says of them itself. `odds` (n,) are its log-odds once their text
    is known to it. No layer changes those of which `is_computed` (n,) is true. `white` (n, D) is
    what familiarity measures; without familiarity D is 0.
    """

    confidence: Floats
    odds: Floats
    is_computed: NDArray[np.bool_]
    white: NDArray[np.float32]

    def taken(self, at: At) -> Read:
        """Return those at these positions."""
        return Read(*(getattr(self, each.name)[at] for each in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Read]) -> Read:
        """Return all of them one after the other; there must be one at least."""
        arrays = ([getattr(part, each.name) for part in parts] for each in fields(cls))
        return cls(*map(np.concatenate, arrays))


@dataclass(frozen=True, slots=True)
class Readings:
    """n labelled replies. `models` are names in lower case, empty for none.

    Replies to the same of `questions` are never torn apart. A reply counts by its weight.
    """

    read: Read
    models: Sequence[str]
    questions: Sequence[str]
    correct: Ints
    weights: Floats

    def __len__(self) -> int:
        return len(self.correct)

    def taken(self, at: At) -> Readings:
        """Return those at these positions."""
        return Readings(
            self.read.taken(at),
            [self.models[i] for i in at],
            [self.questions[i] for i in at],
            self.correct[at],
            self.weights[at],
        )


@dataclass(frozen=True, slots=True)
class Tuned:
    """A layer for a checkpoint, and what is told of it.

    `learnt` is the share of all ways of fitting that use more than the shipped log-odds, 0 to 1,
    `models` are the biases of models by their names, and `centre` (D,) is where the deployment's
    replies are for familiarity.
    """

    layer: TunedLayer
    learnt: float
    models: Mapping[str, float]
    centre: Floats

    def confidence(self, read: Read) -> Floats:
        """Return what the tuned checkpoint says of replies, (n,)."""
        odds = self.layer.slope * read.odds + self.layer.offsets(read)
        return np.asarray(np.where(read.is_computed, read.confidence, sigmoid(odds)))


@dataclass(frozen=True, slots=True)
class _Way:
    """A way of fitting: what numbers, request and reply count, how firmly the slope is held, and
    how firmly all weights, one fit each."""

    blocks: tuple[float, float, float]
    trust: float
    ridges: tuple[float, ...] = _RIDGES


_RECALIBRATION: Final = _Way((0, 0, 0), TRUST[0], (1e6,))
_WAYS: Final = (
    _RECALIBRATION,
    *(
        _Way(blocks, trust)
        for blocks in ((1, 0, 0), (0, 0.5, 1), (1, 0.5, 1))
        for trust in (TRUST[0], _LOOSE)
    ),
)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Coefficients: slope, intercept and biases of models, and the weight of each landmark."""

    line: Floats
    landmarks: Floats


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is fitted: `line` (n, 2 + models) beside `kernels` (blocks, n, landmarks).

    `landmarks` are their positions among the n replies.
    """

    line: Floats
    kernels: Floats
    landmarks: Ints
    correct: Ints
    counts: Floats

    def odds(self, fit: _Fit, way: _Way, at: At) -> Floats:
        """Return the log-odds of replies by a fit."""
        kernel = np.tensordot(way.blocks, self.kernels[:, at], 1)
        return np.asarray(self.line[at] @ fit.line + kernel @ fit.landmarks)

    def fits(self, way: _Way, at: At) -> Iterator[_Fit]:
        """Yield a fit on these replies for each ridge of a way."""
        own = np.flatnonzero(np.isin(self.landmarks, at))
        kernel = np.tensordot(way.blocks, self.kernels[:, :, own], 1)
        values, vectors = np.linalg.eigh(kernel[self.landmarks[own]])
        is_kept = values > max(_LEAST_VALUE * values[-1], _LEAST_CURVATURE)
        basis = vectors[:, is_kept] / np.sqrt(values[is_kept])
        design = np.hstack([self.line[at], kernel[at] @ basis])
        size = self.line.shape[1]
        prior = np.zeros(design.shape[1])
        prior[0] = SLOPE_BEFORE
        found = prior
        for ridge in way.ridges:
            trust = np.full(len(prior), ridge)
            trust[:2] = way.trust, TRUST[1]
            found = _solve(design, self.correct[at], self.counts[at], prior, trust, found)
            landmarks = np.zeros(len(self.landmarks))
            landmarks[own] = basis @ found[size:]
            yield _Fit(found[:size], landmarks)


def fit_tuned(found: Readings) -> Tuned:
    """Fit on all; raises JudgingError with fewer than `MIN_LABELS` labels, or of one kind."""
    centre = np.average(found.read.white, axis=0, weights=found.weights)
    found = found.taken(np.flatnonzero(~found.read.is_computed))
    if len(found) < MIN_LABELS:
        raise JudgingError(f"{len(found)} labels are too few to fine-tune on: {MIN_LABELS}")
    if found.correct.min() == found.correct.max():
        raise JudgingError("fine-tuning needs correct and wrong replies")
    mean, spread, rarity = _scales(found.read)
    blocks = _blocks(found.read, mean, spread, rarity)
    marks = np.unique(np.linspace(0, len(found) - 1, LANDMARKS).astype(np.int64))
    names = _own_names(found.models)
    problem = _Problem(
        _line(found, names),
        np.stack([each @ each[marks].T for each in blocks]).astype(np.float64),
        marks,
        found.correct,
        found.weights * (effective_size(found.weights) / found.weights.sum()),
    )
    shares = _shares(problem, found.questions)
    line, numbers = np.zeros(2 + len(names)), np.zeros((3, len(marks)))
    everything = np.arange(len(found))
    for way, of_ridges in zip(_WAYS, shares, strict=True):
        for share, fit in zip(of_ridges, problem.fits(way, everything), strict=True):
            line += share * fit.line
            numbers += share * np.outer(way.blocks, fit.landmarks)
    weights = [each[marks].T @ own for each, own in zip(blocks, numbers, strict=True)]
    biases = np.round(line[2:] * MODEL_SCALE, _DIGITS).tolist()
    layer = TunedLayer(
        float(np.round(line[0], _DIGITS)),
        float(np.round(line[1], _DIGITS)),
        mean,
        spread,
        np.round(weights[0] / np.sqrt(NUMBERS), _DIGITS),
        rarity,
        np.round(np.stack(weights[1:]), _DIGITS),
        dict(zip(model_numbers(names).tolist(), biases, strict=True)),
    )
    return Tuned(layer, 1 - float(shares[0][0]), dict(zip(names, biases, strict=True)), centre)


def _shares(problem: _Problem, questions: Sequence[str]) -> list[Floats]:
    """Return what each fit of each of `_WAYS` counts: by its likelihood on the labels of questions
    that it did not see. All together are 1."""
    folds = np.array([int(share_of(f"ridge {name}") * FOLDS) for name in questions])
    losses = [np.zeros(len(way.ridges)) for way in _WAYS]
    for fold in range(FOLDS):
        inside, outside = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if not len(inside) or not len(outside):
            continue
        y, counts = problem.correct[inside], problem.counts[inside]
        for way, its in zip(_WAYS, losses, strict=True):
            for at, fit in enumerate(problem.fits(way, outside)):
                odds = np.round(problem.odds(fit, way, inside), _DIGITS)
                its[at] += counts @ (np.logaddexp(0, odds) - y * odds)
    least = min(each.min() for each in losses)
    shares = [np.exp(least - each) for each in losses]
    total = sum(each.sum() for each in shares)
    return [each / total for each in shares]


def _scales(read: Read) -> tuple[Floats, Floats, Floats]:
    """Return mean and spread of numbers, (NUMBERS,) each, and the rarity of n-grams."""
    is_there = np.isfinite(read.numbers)
    count = np.maximum(is_there.sum(axis=0), 1)
    mean = np.where(is_there, read.numbers, 0).sum(axis=0) / count
    off = np.where(is_there, read.numbers - mean, 0)
    spread = np.maximum(np.sqrt((off**2).sum(axis=0) / count), _LEAST_SPREAD)
    rarity = np.log((1 + len(read.grams)) / (1 + read.grams.sum(axis=0))) + 1
    return mean.astype(np.float32), spread.astype(np.float32), rarity.astype(np.float32)


def _blocks(read: Read, mean: Floats, spread: Floats, rarity: Floats) -> list[Floats]:
    """Return features of about length 1: numbers (n, NUMBERS), and n-grams of each text."""
    numbers = standardised(read.numbers, mean, spread) / np.sqrt(NUMBERS)
    grams = weighed_grams(read.grams, rarity)
    return [numbers, *(grams[:, part] for part in range(grams.shape[1]))]


def _own_names(models: Sequence[str]) -> list[str]:
    """Return the models with labels enough for a bias of their own."""
    counts = Counter(models)
    return sorted(name for name in counts if name and counts[name] >= MIN_MODEL_LABELS)


def _line(found: Readings, names: Sequence[str]) -> Floats:
    """Return shipped log-odds, 1, and one column for each name, (n, 2 + names)."""
    own = [[MODEL_SCALE * (model == name) for name in names] for model in found.models]
    odds = found.read.odds[:, None]
    return np.hstack([odds, np.ones_like(odds), np.array(own).reshape(len(found), len(names))])


def _solve(
    features: Floats, correct: Ints, counts: Floats, prior: Floats, trust: Floats, start: Floats
) -> Floats:
    """Return the most probable coefficients, by Newton's method."""
    at = start

    def cost(here: Floats) -> float:
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
