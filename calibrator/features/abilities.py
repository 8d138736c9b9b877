"""What a model's name says whatever it is asked, beside tower and forest.

Tower and forest learn how each model fares on each kind of text. On a kind that training never saw
the name says too little there, or something that was true of another kind. So a share of the
model's ability is added to the log-odds of right: that of a Rasch model of the training rows, in
which a reply is right by the model's ability less the benchmark's difficulty (Rasch, 1960).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

PREFIX = "abilities."


class Abilities:
    """`odds` (1 + names,): what is added for each known name; 0 for none."""

    def __init__(self, odds: Array) -> None:
        self.odds = odds.astype(np.float64)

    def of(self, names: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        """What is added to the log-odds of replies by these names, (B,); a name is its place in the
        list of known ones, 0 for none."""
        return np.asarray(self.odds[np.asarray(names, dtype=np.intp)])

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Abilities | None:
        """What a checkpoint's weights hold; None for a checkpoint without abilities."""
        found = state.get(PREFIX + "odds")
        return None if found is None else cls(found)
