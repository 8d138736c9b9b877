"""The forest: boosted trees on traits, topics, the question's difficulty and the model's ability.

The tower reads words; trees read the same answered question as a few hundred numbers that are not
words, and so err on other rows, those of models above all that training never saw. The log-odds of
both are added, and the sum is made smaller, for they know much the same. Serving is numpy alone;
`forest_training` makes the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrator.features.difficulty import Difficulty
from calibrator.features.topics import Topics
from calibrator.features.tower import TowerRow
from calibrator.features.traits import TRAITS
from calibrator.features.trees import Trees
from calibrator.features.weights import under
from calibrator.kernel import Work, result_of, together

Floats = NDArray[np.float32]
Array = NDArray[np.generic]

PREFIX = "forest."
NO_NAME = -2.0  # below every ability


class Forest:
    """Trees and what they read.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        self.topics = Topics.from_state(state)
        self.share = float(state["share"][0])  # that is kept of the sum of tower and forest
        self.ability = state["ability"].astype(np.float32)  # (names,) of each known model; 0: none
        width = TRAITS + self.topics.width + 2
        self.trees = Trees(state, width)
        self.difficulty = Difficulty.from_state(state, self.trees.thresholds(width - 1))
        if "beside" in state:  # without it such a checkpoint would score otherwise under its name
            raise ValueError("a difficulty stands beside the trees, as in version 4: train anew")

    def joined(
        self,
        odds: NDArray[np.float64],
        rows: Sequence[TowerRow],
        names: Sequence[int] | NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """The tower's log-odds (B,) and the forest's as one, (B,)."""
        return self.joined_given(odds, self.given(rows, names))

    def read(
        self, rows: Sequence[TowerRow], names: Sequence[int] | NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Log-odds of correct, (B,); a name is its place in the list of known ones, 0 for none."""
        return self.trees.read(self.given(rows, names))

    def given(self, rows: Sequence[TowerRow], names: Sequence[int] | NDArray[np.int64]) -> Floats:
        """What the trees read of rows, (B, width)."""
        found: Floats = together(self.giving(rows, names))[0]
        return found

    def giving(
        self, rows: Sequence[TowerRow], names: Sequence[int] | NDArray[np.int64]
    ) -> Work[Floats]:
        """As `given`."""
        found = np.empty((len(rows), TRAITS + self.topics.width + 2), np.float32)
        telling = self.difficulty.telling([row.asked for row in rows])
        writing = _writing(rows, self.topics, found)
        yield [*next(telling), *next(writing)]
        result_of(writing)
        found[:, -2] = self.ability[np.asarray(names, dtype=np.intp)]
        found[:, -1] = result_of(telling)
        return found

    def joined_given(self, odds: NDArray[np.float64], given: Floats) -> NDArray[np.float64]:
        """As `joined`, of rows as `given` makes them."""
        return np.asarray(self.share * (odds + self.trees.read(given)))

    def given_by(self, name: int, given: Floats) -> Floats:
        """The same rows as if the model of that name had answered."""
        found = given.copy()
        found[:, -2] = self.ability[name]
        return found

    @cached_property
    def middling(self) -> int:
        """The place of a known name whose ability is in the middle; 0 where none is known."""
        order = np.argsort(self.ability[1:], kind="stable")
        return int(order[len(order) // 2]) + 1 if len(order) else 0

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Forest | None:
        """What a checkpoint's weights hold; None for a checkpoint without a forest."""
        own = under(state, PREFIX)
        return cls(own) if own else None


def features_of(rows: Sequence[TowerRow], topics: Topics, others: Floats) -> Floats:
    """What the trees read, (B, TRAITS + topics + 2); `others` (B, 2): abilities, difficulties."""
    found = np.empty((len(rows), TRAITS + topics.width + others.shape[1]), np.float32)
    together(_writing(rows, topics, found))
    found[:, TRAITS + topics.width :] = others
    return found


def _writing(rows: Sequence[TowerRow], topics: Topics, found: Floats) -> Work[None]:
    """Writes traits and topics of rows into the first columns of `found` (B, ..)."""
    for place, row in enumerate(rows):
        found[place, :TRAITS] = row.traits
    return topics.writing([row.grams for row in rows], found, TRAITS)
