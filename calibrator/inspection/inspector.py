"""The inspector: how likely a reply is one to this question, unaltered, as log-odds.

Boosted trees on what `relevance`, `working` and `wanted` see in the two texts, and on the traits
that the tower reads. They were fitted on replies as models gave them, right and wrong ones alike,
against right replies that were corrupted (`calibrator.corruptions`); so they say nothing of how
hard a question is or how able a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrator.inspection.relevance import Pieces, relevance
from calibrator.inspection.wanted import wanted
from calibrator.inspection.working import working
from calibrator.traits import traits_of
from calibrator.trees import Trees

Floats = NDArray[np.float32]
Array = NDArray[np.generic]

PREFIX = "inspector."
LIMIT = 1e6  # of a trait; a longer number says no more


def inspect(
    question: str,
    answer: str,
    question_ids: Sequence[int],
    answer_ids: Sequence[int],
    pieces: Pieces,
    traits: Floats | None = None,
) -> Floats:
    """All that is seen in one answered question, (SEEN,); finite for every text.

    `traits` are those of `traits_of`, where they are known already.
    """
    found = [
        *relevance(question, answer, question_ids, answer_ids, pieces),
        *working(question, answer),
        *wanted(question, answer),
        *(traits_of(question, answer) if traits is None else traits),
    ]
    return np.clip(np.nan_to_num(np.array(found, dtype=np.float32)), -LIMIT, LIMIT)


_NOTHING = Pieces(np.zeros((1, 1), np.int8), np.zeros(1, np.float32), np.zeros(1, np.float32))
SEEN = len(inspect("", "", [], [], _NOTHING))


class Inspector:
    """Trees and the pieces that they go by; raises KeyError or ValueError for other arrays."""

    def __init__(self, state: Mapping[str, Array]) -> None:
        self.pieces = Pieces.from_state(state)
        self.trees = Trees(state, SEEN)

    def read(self, seen: Floats) -> NDArray[np.float64]:
        """Log-odds (B,) that replies are unaltered ones to their questions; `seen` is (B, SEEN)."""
        return self.trees.read(seen)

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Inspector | None:
        """What a checkpoint's weights hold; None for a checkpoint without an inspector."""
        own = {k.removeprefix(PREFIX): v for k, v in state.items() if k.startswith(PREFIX)}
        return cls(own) if own else None
