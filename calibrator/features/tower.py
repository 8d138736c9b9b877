"""The tower: n-grams of question and answer, traits of the text, the model's name.

    z = linear(n-grams, traits, name) + MLP(embedded n-grams, products, traits, name)
        + name . question

The products are those of the embedded question with the answer's and with its ends': what an
answer says in view of what was asked.

Bags of words and characters, a few table look-ups each, tell more than an encoder of 22 million
weights does (`ablations.md`); where a checkpoint has one, its logit is added to the tower's.
Serving is numpy alone; `tower_training` makes the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrator.features.ngrams import PARTS, Grams, Ids, grams_of
from calibrator.features.traits import TRAITS, traits_of

Floats = NDArray[np.float32]
Weights = Mapping[str, NDArray[np.generic]]

BUCKETS = 2**18
WIDTH = 32  # of an n-gram's embedding
NAME_WIDTH = 24  # of a model name's embedding
HIDDEN = (256, 64)
TRAIT_LIMIT = 4.0  # standard deviations; what lies further out says no more
LAYER_NORM_EPSILON = 1e-5
PREFIX = "tower."


@dataclass(frozen=True, slots=True)
class TowerRow:
    """One answered question as the tower reads it; `traits` is (TRAITS,).

    `asked`, the distinct word pieces of the question, is for the forest alone.
    """

    grams: Grams
    traits: Floats
    asked: Ids


def tower_row(
    question: str, answer: str, question_ids: Sequence[int], answer_ids: Sequence[int]
) -> TowerRow:
    """From the texts and their word pieces."""
    grams = grams_of(question, answer, question_ids, answer_ids, BUCKETS)
    asked = np.unique(np.array(question_ids, dtype=np.int32))
    return TowerRow(grams, traits_of(question, answer), asked)


class Tower:
    """The mean logit of a few towers that differ in their seed alone.

    `weights` are those of `tower_training.export`, one mapping for each tower.
    """

    def __init__(self, weights: Sequence[Weights]) -> None:
        self._towers = [_Member(each) for each in weights]

    def read(
        self, rows: Sequence[TowerRow], names: Sequence[int]
    ) -> tuple[NDArray[np.float64], Floats]:
        """log-odds of correct, (B,), and the first tower's hidden layer, (B, HIDDEN[0]).

        A name is its place in the list of known ones, 0 for none.
        """
        found = [tower.read(rows, np.array(names)) for tower in self._towers]
        logits = np.mean([each for each, _ in found], axis=0, dtype=np.float64)
        return np.asarray(logits), found[0][1]

    def logits(self, rows: Sequence[TowerRow], names: Sequence[int]) -> NDArray[np.float64]:
        """What `read` gives first."""
        return self.read(rows, names)[0]

    def traits(self, rows: Sequence[TowerRow]) -> Floats:
        """Traits as the last layer sees them, the mean over the towers, (B, TRAITS)."""
        return np.asarray(np.mean([tower.traits(rows) for tower in self._towers], axis=0))

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[np.generic]]) -> Tower | None:
        """What a checkpoint's weights hold; None for a checkpoint without a tower."""
        members: dict[str, dict[str, NDArray[np.generic]]] = {}
        for key, value in state.items():
            if key.startswith(PREFIX):
                number, name = key.removeprefix(PREFIX).split(".", 1)
                members.setdefault(number, {})[name] = value
        return cls([members[number] for number in sorted(members)]) if members else None


class _Member:
    """One tower; raises KeyError or ValueError for weights that do not fit."""

    def __init__(self, weights: Weights) -> None:
        self.table = weights["table"]  # (BUCKETS, 1 + WIDTH) int8, the linear weight first
        self.scale = weights["scale"]  # (BUCKETS,) fp16: a row is table * scale
        small = {k: v.astype(np.float32) for k, v in weights.items() if k not in ("table", "scale")}
        self.names, self.center, self.spread = small["names"], small["center"], small["spread"]
        self.linear = small["linear"]
        self.norm, self.first, self.second, self.last, self.asked = (
            (small[f"{name}.weight"], small[f"{name}.bias"])
            for name in ("norm", "first", "second", "last", "asked")
        )
        shapes = (self.table.shape, self.norm[0].shape, self.center.shape)
        if shapes != ((BUCKETS, 1 + WIDTH), (PARTS * WIDTH,), (TRAITS,)):
            raise ValueError(f"a tower of another shape: {shapes}")

    def read(self, rows: Sequence[TowerRow], names: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Logits (B,) and the first hidden layer (B, HIDDEN[0])."""
        bags = np.stack([self._bags(row.grams) for row in rows])  # (B, PARTS, 1 + WIDTH)
        traits = self.traits(rows)
        bias, name = self.names[names, 0], self.names[names, 1:]
        embedded = _layer_norm(bags[:, :, 1:].reshape(len(rows), -1), *self.norm)
        question, answer, ends = (embedded[:, at : at + WIDTH] for at in (0, WIDTH, 2 * WIDTH))
        products = question * answer, question * ends
        hidden = _gelu(_linear(np.hstack([embedded, *products, name, traits]), *self.first))
        deep = _linear(_gelu(_linear(hidden, *self.second)), *self.last)[:, 0]
        asked = (name * _linear(question, *self.asked)).sum(1)
        logits = bags[:, :, 0].sum(1) + traits @ self.linear + bias + deep + asked
        return np.asarray(logits, dtype=np.float32), hidden

    def traits(self, rows: Sequence[TowerRow]) -> Floats:
        """In standard deviations from their mean, bounded, (B, TRAITS)."""
        found = (np.stack([row.traits for row in rows]) - self.center) / self.spread
        return np.asarray(np.clip(found, -TRAIT_LIMIT, TRAIT_LIMIT))

    def _bags(self, grams: Grams) -> Floats:
        """Sums of the rows of n-grams over the root of their number, (PARTS, 1 + WIDTH)."""
        sums = [
            (self.table[ids].astype(np.float32) * self.scale[ids, None].astype(np.float32)).sum(0)
            / max(1, len(ids)) ** 0.5
            for ids in grams
        ]
        return np.stack(sums)


def _linear(x: Floats, weight: Floats, bias: Floats) -> Floats:
    return np.asarray(x @ weight.T + bias)


def _layer_norm(x: Floats, weight: Floats, bias: Floats) -> Floats:
    centered = x - x.mean(1, keepdims=True)
    variance = (centered**2).mean(1, keepdims=True)
    return np.asarray(centered / np.sqrt(variance + LAYER_NORM_EPSILON) * weight + bias)


def _gelu(x: Floats) -> Floats:
    """GELU in its tanh form, which numpy has all parts of."""
    return np.asarray(x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))) / 2)
