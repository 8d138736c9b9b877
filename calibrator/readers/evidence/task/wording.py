"""The wording of a request: hashed words and pairs at its ends, and a table of weights.

The table is a logistic model that separates known tasks from others (feature hashing; Weinberger et
al., 2009). A second table has a bit for each word of known questions: other languages and other
trades use words that it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from calibrator.readers.evidence.task.request import TaskRequest

Array = NDArray[np.generic]

BUCKETS: Final = 2**14
VOCABULARY: Final = 2**17  # bits
FIRST_WORDS, LAST_WORDS = 14, 10
WIDTH: Final = 3


@dataclass(frozen=True, slots=True)
class Places:
    """The indexes of a request in the tables: buckets of n-grams, bits of words at both ends."""

    ngrams: list[int]
    head: list[int]
    tail: list[int]


def places_of(request: TaskRequest) -> Places:
    """Return the indexes of a request in the tables; a repeated n-gram counts once."""
    head, tail, last = request.head, request.tail[-LAST_WORDS:], request.last
    first = head[:FIRST_WORDS]
    keys = {f"b {word}" for word in head}
    keys.update(f"f {word}" for word in first[:6])
    keys.update(map("p {} {}".format, first, first[1:]))
    keys.update(f"t {word}" for word in tail)
    keys.update(map("q {} {}".format, tail, tail[1:]))
    keys.update(f"l {word}" for word in last)
    keys.update(map("m {} {}".format, last, last[1:]))
    keys.update(f"{count} {' '.join(first[:count])}" for count in (1, 2, 3))
    return Places(
        [crc32(key.encode("utf-8", "replace")) % BUCKETS for key in keys],
        word_bits(request.head),
        word_bits(request.tail),
    )


def word_bits(words: Sequence[str]) -> list[int]:
    """Return the index of each word in the table of known words; marks and numbers have none."""
    return [_word_bit(word) for word in words if word[0].isalpha()]


@lru_cache(maxsize=4096)  # most words of a request are common, and are at both of its ends
def _word_bit(word: str) -> int:
    return crc32(word.encode("utf-8", "replace")) % VOCABULARY


class TaskWording:
    """Weights (BUCKETS,) of n-grams in log-odds of an unknown task, and bits of known words."""

    def __init__(self, weights: Array, bias: float, known: Array) -> None:
        self.weights = weights.astype(np.float32)
        self.bias = bias
        self.known = np.unpackbits(known.astype(np.uint8))
        if self.weights.shape != (BUCKETS,) or self.known.shape != (VOCABULARY,):
            raise ValueError("tables of wording of another size")

    def read(self, places: Places) -> list[float]:
        """Return the log-odds of an unknown task, and the share of known words at both ends."""
        odds = float(self.weights[places.ngrams].sum()) + self.bias
        return [odds, self._share(places.head), self._share(places.tail)]

    def _share(self, bits: list[int]) -> float:
        return float(self.known[bits].sum()) / len(bits) if bits else 1.0

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> TaskWording:
        """Load the arrays of a wording. Raises KeyError for a missing one."""
        scale, bias = (float(each) for each in state["scales"])
        return cls(state["weights"].astype(np.float32) * scale, bias, state["known"])
