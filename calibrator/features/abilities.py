"""Rate models by their names, whatever the question, beside tower and forest.

Tower and forest learn how each model fares on each kind of text. On a kind that training never saw,
the name says too little there, or something that was true of another kind. So a share of the
model's ability is added to the log-odds of right. Abilities come from a Rasch model of the training
rows, in which the odds of a right reply are the model's ability minus the benchmark's difficulty
(Rasch, 1960).

The ability of a model that training never saw is unknown, but many names state the number of
parameters and the version. The worth of these is learnt from the abilities of the known models.
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
STATED = 4  # numbers that `stated_in` returns
LIMIT = 1.5  # the largest change by an unknown name, in log-odds

# 8b, 1.5b, 500m, 8x7b, e4b (effective parameters); not the active ones of a3b, no 4bit, fp8, 128k
_PARAMETERS = re.compile(
    r"(?<![a-z0-9.])(?:(\d{1,3})x|e)?(\d{1,4}(?:\.\d{1,3})?)([bmt])(?![a-z0-9])"
)
# gpt-4, gpt-4.1, o3, llama-3, qwen2.5, v2; no date, and no digit of a size
_VERSION = re.compile(
    r"(?:^|[-_a-z])(?<!fp)(?<!int)(?<![-_:]q)(\d(?:\.\d)?)(?![\d.]*[bmtk]|\d|x\d)"
)
_BILLIONS = {"m": 0.001, "b": 1.0, "t": 1_000.0}


def stated_in(name: str) -> Floats | None:
    """Return what a model's name states about it as numbers (STATED,), or None.

    These are whether the number of parameters is missing, the logarithm of that number (0 for 11
    billion), the version divided by 4, and whether the version is missing. None for a name that
    states neither, such as an operator's own. The part before the last slash, the owner, is
    ignored.
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
    """Log-odds that are added for the names of models.

    `odds` (1 + names,) is added for each known name; its first entry, for no name, is 0. `stated`
    (STATED + 1,) has what each number of `stated_in` adds for an unknown name, and a constant;
    without it nothing is added for such a name.
    """

    def __init__(self, odds: Array, stated: Array | None = None) -> None:
        """Keep the arrays; raises ValueError for `stated` of another shape."""
        self.odds = odds.astype(np.float64)
        self.stated = None if stated is None else stated.astype(np.float64)
        if self.stated is not None and self.stated.shape != (STATED + 1,):
            raise ValueError("abilities of another shape")

    def odds_of(self, numbers: Sequence[int] | NDArray[np.int64]) -> Floats:
        """Return the log-odds that are added for these names, (B,).

        `numbers` (B,) are the places of names among the known ones, 0 for others.
        """
        return np.asarray(self.odds[np.asarray(numbers, dtype=np.intp)])

    def of_unknown(self, name: str) -> float:
        """Return the log-odds that are added for a name that training never saw.

        They follow from what it states, within `LIMIT`; 0 if it states no size and no version, or
        nothing was learnt.
        """
        told = None if self.stated is None else stated_in(name)
        if told is None or self.stated is None:
            return 0.0
        return float(np.clip(told @ self.stated[:-1] + self.stated[-1], -LIMIT, LIMIT))

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Abilities | None:
        """Read arrays named `abilities.<name>`; None for a checkpoint without them.

        Raises ValueError for arrays of another shape.
        """
        found = state.get(PREFIX + "odds")
        return None if found is None else cls(found, state.get(PREFIX + "stated"))
