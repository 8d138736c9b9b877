"""A layer over the final log-odds of text replies, fitted on the labels of one deployment.

    log-odds = slope * shipped + intercept + numbers . n + grams . g + bias of the model

`n` are numbers that were read from the reply already: its traits, likeness, act, support and
comparison with the context. `g` are hashed word pieces and pairs of them, of the request and of the
reply. They are weighted by their rarity among the labelled replies, and the vector of each text has
the length 1. `calibrator.tuning` fits the weights.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibrator.embedded.evidence import CheckedReply
from calibrator.features.tower import TowerRow
from calibrator.features.traits import TRAITS
from calibrator.features.weights import Array, Floats, arrays_under
from calibrator.readers.evidence.context.comparison import FEATURES
from calibrator.recalibration.curves import log_odds
from calibrator.scorer import ACTS

PREFIX: Final = "tuned."
BUCKETS: Final = 2**12  # for the n-grams of each text
PARTS: Final = (0, 1)  # parts of `Grams`: word pieces of the request, and of the reply
NUMBERS: Final = TRAITS + 3 + len(FEATURES) + len(ACTS)
LIMIT: Final = 4.0  # standard deviations at which numbers are clipped
_OF_GRAMS: Final = (len(PARTS), BUCKETS)
_SHAPES: Final = {
    "mean": (NUMBERS,),
    "spread": (NUMBERS,),
    "rarity": _OF_GRAMS,
    "numbers": (NUMBERS,),
    "grams": _OF_GRAMS,
}
_NOT_COMPARED: Final = [math.nan] * len(FEATURES)

Lines = list[tuple[float, float]]
"""The slope and the offset that change the log-odds of each reply."""


@dataclass(frozen=True, slots=True)
class Features:
    """The input of layers for n replies.

    `numbers` is (n, NUMBERS), nan for a missing number. `grams` (n, parts, BUCKETS) marks the
    n-grams of each text. `models` (n,) are the answering models, as `model_numbers` returns them.
    """

    numbers: Floats
    grams: NDArray[np.bool_]
    models: NDArray[np.int32]


def features_of(
    checked: Sequence[CheckedReply], rows: Sequence[TowerRow], traits: Floats, likeness: Array
) -> Features:
    """Return the layers' input for n replies: `checked`, and the tower's `rows` and `traits`.

    `traits` are (n, TRAITS). `likeness` (n,) are their log-odds before they were checked.
    """
    numbers = np.zeros((len(rows), NUMBERS), np.float32)
    grams = np.zeros((len(rows), len(PARTS), BUCKETS), np.bool_)
    numbers[:, :TRAITS] = traits
    for at, (each, row) in enumerate(zip(checked, rows, strict=True)):
        judged, support, compared = each.judgement, math.nan, _NOT_COMPARED
        if judged is not None:
            # values of JSON have no comparison: they are looked up in the context
            support, compared = log_odds(judged.support), [*judged.features] or _NOT_COMPARED
        read = [likeness[at], float(judged is not None), support, *compared]
        numbers[at, TRAITS : -len(ACTS)] = read
        numbers[at, ACTS.index(each.reply.act.kind) - len(ACTS)] = 1
        for place, part in enumerate(PARTS):
            grams[at, place, row.grams[part] & (BUCKETS - 1)] = True
    models = [each.reply.item.source_model or "" for each in checked]
    return Features(numbers, grams, model_numbers(models))


def model_numbers(names: Sequence[str]) -> NDArray[np.int32]:
    """Return a 32-bit number for each model's name, (n,), by which layers know it.

    It is a checksum of the name in lower case.
    """
    found = [zlib.crc32(name.lower().encode()) - 2**31 for name in names]
    return np.array(found, np.int32)


@dataclass(frozen=True, slots=True)
class TunedLayer:
    """The weights of a layer.

    `numbers` (NUMBERS,) are for numbers in standard deviations (`spread`) from their means
    (`mean`). `grams` (parts, BUCKETS) are for n-grams, whose inverse document frequencies are
    `rarity` (parts, BUCKETS). `models` maps the numbers of models to their biases.
    """

    slope: float
    intercept: float
    mean: Floats
    spread: Floats
    rarity: Floats
    numbers: Floats
    grams: Floats
    models: Mapping[int, float]

    def offsets(self, features: Features) -> NDArray[np.float64]:
        """Return what is added to each reply's log-odds after the slope, (n,).

        This is the sum of intercept, the model's bias (0 if unknown), numbers and n-grams.
        """
        biases = [self.models.get(each, 0.0) for each in features.models.tolist()]
        numbers = standardise(features.numbers, self.mean, self.spread) @ self.numbers
        grams = (weighed_grams(features.grams, self.rarity) * self.grams).sum((1, 2))
        return np.asarray(self.intercept + np.array(biases) + numbers + grams, np.float64)

    def state(self, at: int) -> dict[str, Array]:
        """Return the arrays for a checkpoint's file, named `tuned.<at>.<name>`.

        `at` is the number of the layer among those of the file, from 0.
        """
        arrays = {name: np.asarray(getattr(self, name), np.float32) for name in _SHAPES}
        arrays["line"] = np.array([self.slope, self.intercept], np.float32)
        arrays["biases"] = np.array([*self.models.values()], np.float32)
        models = np.array([*self.models], np.int32)
        return {f"{PREFIX}{at}.{name}": each for name, each in {**arrays, "models": models}.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> TunedLayer:
        """Load a layer from its arrays, by their names without a prefix.

        Raises KeyError or ValueError for arrays that do not fit.
        """
        arrays = {name: state[name].astype(np.float32) for name in _SHAPES}
        if {name: array.shape for name, array in arrays.items()} != _SHAPES:
            raise ValueError("it was tuned by another version: tune the shipped calibrator again")
        slope, intercept = state["line"].tolist()
        models = zip(state["models"].tolist(), state["biases"].tolist(), strict=True)
        return cls(slope, intercept, models=dict(models), **arrays)


def standardise(numbers: Floats, mean: Floats, spread: Floats) -> Floats:
    """Return numbers (n, NUMBERS) in standard deviations from their means; 0 for nan.

    They are clipped to `LIMIT` deviations; `mean` and `spread` are (NUMBERS,).
    """
    return np.asarray(np.nan_to_num(np.clip((numbers - mean) / spread, -LIMIT, LIMIT), copy=False))


def weighed_grams(grams: NDArray[np.bool_], rarity: Floats) -> Floats:
    """Return n-grams (n, parts, BUCKETS) as floats weighted by rarity (parts, BUCKETS).

    The vector of each text gets the length 1, or stays 0 without n-grams.
    """
    found = grams * rarity
    length = np.sqrt(np.einsum("npb,npb->np", found, found))[:, :, None]
    return np.asarray(found / np.maximum(length, 1e-6))


def layers_of(state: Mapping[str, Array]) -> list[TunedLayer]:
    """Return the tuned layers among a checkpoint's arrays, in the order in which they apply.

    Empty if it has none. Raises KeyError or ValueError for arrays that do not fit.
    """
    own = arrays_under(state, PREFIX)
    count = len({name.partition(".")[0] for name in own})
    return [TunedLayer.from_state(arrays_under(own, f"{at}.")) for at in range(count)]


def lines_of(layers: Sequence[TunedLayer], features: Features) -> Lines:
    """Return for each reply the slope and offset of all layers together, for its log-odds.

    The result is slope * log-odds + offset.
    """
    slope, offsets = 1.0, np.zeros(len(features.models))
    for layer in layers:
        slope *= layer.slope
        offsets = layer.slope * offsets + layer.offsets(features)
    return [(slope, offset) for offset in offsets.tolist()]
