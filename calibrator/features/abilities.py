"""What a model's name says whatever it is asked, beside tower and forest.

Tower and forest learn how each model fares on each kind of text. On a kind that training never saw
the name says too little there, or something that was true of another kind. So a share of the
model's ability is added to the log-odds of right: that of a Rasch model of the training rows, in
which a reply is right by the model's ability less the benchmark's difficulty (Rasch, 1960).

Of a model that training never saw the ability is not known, but many names state how many
parameters the model has, and which version it is. What these are worth is learnt from the abilities
of the models that are known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Floats = NDArray[np.float64]

PREFIX = "abilities."
STATED = 4  # numbers of `stated_in`
LIMIT = 1.5  # log-odds that a name which is not known adds or takes at most

# 8b, 1.5b, 500m, 8x7b, e4b (effective parameters); not the active ones of a3b, nor 4bit, fp8, 128k
_PARAMETERS = re.compile(
    r"(?<![a-z0-9.])(?:(\d{1,3})x|e)?(\d{1,4}(?:\.\d{1,3})?)([bmt])(?![a-z0-9])"
)
# gpt-4, gpt-4.1, o3, llama-3, qwen2.5, v2; no date, and no digit of a size
_VERSION = re.compile(
    r"(?:^|[-_a-z])(?<!fp)(?<!int)(?<![-_:]q)(\d(?:\.\d)?)(?![\d.]*[bmtk]|\d|x\d)"
)
_BILLIONS = {"m": 0.001, "b": 1.0, "t": 1_000.0}


def stated_in(name: str) -> Floats | None:
    """What a model's name states of it, (STATED,): whether no number of parameters, the logarithm
    of that number (0 for 11 billion), the version in quarters, whether none.

    None for a name that states neither, as one of an operator's own does. What stands before the
    last slash is whose the model is.
    """
    name = name.lower().rpartition("/")[2]
    size, version = _PARAMETERS.search(name), _VERSION.search(name)
    if size is None and version is None:
        return None
    octaves = 0.0
    if size is not None:
        experts, number, unit = size.groups()
        billions = float(number) * int(experts or 1) * _BILLIONS[unit]
        octaves = math.log2(min(max(billions, 0.1), 2_000.0)) - 3.5
    quarters = float(version[1]) / 4 if version is not None else 0.0
    return np.array([size is None, octaves, quarters, version is None], dtype=np.float64)


class Abilities:
    """`odds` (1 + names,): what is added for each known name; 0 for none.

    `stated` (STATED + 1,): what each number of `stated_in` adds for a name that is not known, and a
    constant; without it nothing is added for such a name.
    """

    def __init__(self, odds: Array, stated: Array | None = None) -> None:
        self.odds = odds.astype(np.float64)
        self.stated = None if stated is None else stated.astype(np.float64)
        if self.stated is not None and self.stated.shape != (STATED + 1,):
            raise ValueError("abilities of another shape")

    def of(self, numbers: Sequence[int] | NDArray[np.int64]) -> Floats:
        """What is added to the log-odds of replies by these names, (B,); a name is its place in the
        list of known ones, 0 for none."""
        return np.asarray(self.odds[np.asarray(numbers, dtype=np.intp)])

    def of_unknown(self, name: str) -> float:
        """What is added to the log-odds of replies by a name that is not known."""
        told = None if self.stated is None else stated_in(name)
        if told is None or self.stated is None:
            return 0.0
        return float(np.clip(told @ self.stated[:-1] + self.stated[-1], -LIMIT, LIMIT))

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Abilities | None:
        """What a checkpoint's weights hold; None for a checkpoint without abilities.

        Raises ValueError for arrays of another shape.
        """
        found = state.get(PREFIX + "odds")
        return None if found is None else cls(found, state.get(PREFIX + "stated"))
