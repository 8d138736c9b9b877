"""Difficulty: how often models are right about a question, by its n-grams alone.

It learns from one number for each question, the share of right replies over all models, which is
far surer than a reply's label and means the same for a model that training never saw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from calibrator.ngrams import Grams

Array = NDArray[np.generic]

PREFIX = "difficulty."
PARTS = (0, 3)  # of `ngrams.Grams`: pieces and characters of the question


class Difficulty:
    """`weight` and `rarity` (2, BUCKETS), `base` (1,); raises ValueError for other shapes."""

    def __init__(self, weight: Array, rarity: Array, base: Array) -> None:
        if weight.shape != rarity.shape or len(weight) != len(PARTS):
            raise ValueError(f"a difficulty of another shape: {weight.shape}, {rarity.shape}")
        self.weight, self.rarity, self.base = weight, rarity, float(base[0])

    def of(self, grams: Grams) -> float:
        """Log-odds of a right reply."""
        said = squares = 0.0
        for number, part in enumerate(PARTS):
            ids = grams[part]
            said += float(self.weight[number, ids].astype(np.float64).sum())
            squares += float((self.rarity[number, ids].astype(np.float64) ** 2).sum())
        return self.base + said / max(math.sqrt(squares), 1e-6)

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Difficulty:
        """From arrays named `difficulty.<name>`; raises KeyError where one is missing."""
        return cls(*(state[PREFIX + name] for name in ("weight", "rarity", "base")))
