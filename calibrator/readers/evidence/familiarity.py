"""The check whether a request is of a kind of task that the calibrator was trained on.

Boosted trees read the form of the request (`task_form`) and a score of its wording. They never see
the reply, a document, or the calibrator's own features, in which a benchmark's question and a
customer's are close together.

The score of the wording is a logistic model on hashed words and pairs at the request's ends
(feature hashing; Weinberger et al., 2009). A table has a bit for each word of known questions:
other languages and other trades use words that it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from calibrator.features.trees import Trees
from calibrator.features.weights import arrays_under
from calibrator.readers.evidence import task_form
from calibrator.readers.evidence.conversation import Conversation
from calibrator.readers.evidence.task_form import TaskRequest, read_request

BUCKETS: Final = 2**14
VOCABULARY: Final = 2**17  # bits
FIRST_WORDS, LAST_WORDS = 14, 10
WORDING_WIDTH: Final = 3
Array = NDArray[np.generic]
Floats = NDArray[np.float32]
PREFIX: Final = "task."
_TREES, _WORDING = "trees.", "wording."
WIDTH: Final = task_form.WIDTH + WORDING_WIDTH


@dataclass(frozen=True, slots=True)
class Places:
    """The indexes of a request in the tables: buckets of n-grams, bits of words at both ends."""

    ngrams: list[int]
    head: list[int]
    tail: list[int]


def places_of(request: TaskRequest) -> Places:
    """Return the indexes of a request in the tables; a repeated n-gram counts once.

    N-grams are words and pairs of words of the request's beginning, end and last paragraph.
    """
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
    """Return the index, below VOCABULARY, of a word in the table of known words."""
    return crc32(word.encode("utf-8", "replace")) % VOCABULARY


class TaskWording:
    """Weights (BUCKETS,) of n-grams in log-odds of an unknown task, and bits of known words.

    `known` has eight words a byte. Raises ValueError for arrays of another size.
    """

    def __init__(self, weights: Array, bias: float, known: Array) -> None:
        """Take the tables; `known` has the bits of eight words in each byte."""
        self.weights = weights.astype(np.float32)
        self.bias = bias
        self.known = np.unpackbits(known.astype(np.uint8))
        if self.weights.shape != (BUCKETS,) or self.known.shape != (VOCABULARY,):
            raise ValueError("tables of wording of another size")

    def read(self, places: Places) -> list[float]:
        """Return three numbers: the log-odds of an unknown task, the shares of known words.

        The shares, 0 to 1, are those of the request's first and last words.
        """
        odds = float(self.weights[places.ngrams].sum()) + self.bias
        return [odds, self._share(places.head), self._share(places.tail)]

    def _share(self, bits: list[int]) -> float:
        """Return the share of the words that are known; 1 without words."""
        return float(self.known[bits].sum()) / len(bits) if bits else 1.0

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> TaskWording:
        """Load the arrays of a wording. Raises KeyError for a missing one.

        `state` has `weights` in whole numbers, `scales` (their scale and the bias) and
        `known`.
        """
        scale, bias = (float(each) for each in state["scales"])
        return cls(state["weights"].astype(np.float32) * scale, bias, state["known"])


class TaskFamiliarity:
    """A classifier of familiar and unfamiliar tasks.

    `state` has the arrays without the prefix `task.`. Raises KeyError or ValueError for arrays
    that are missing or of another size.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """Load the table of wording, the trees and the threshold from `state`."""
        self._state = dict(state)
        self.wording = TaskWording.from_state(arrays_under(state, _WORDING))
        self._trees = Trees(arrays_under(state, _TREES), WIDTH)
        self._threshold = float(state["threshold"][0])

    def strangeness(self, conversation: Conversation, *, has_tools: bool = False) -> float:
        """Return the log-odds that the task is unfamiliar, less the threshold.

        Above 0 the task counts as unfamiliar. `has_tools` says whether tools were offered
        with the request.
        """
        request = read_request(conversation, has_tools=has_tools)
        row = np.array(
            [[*task_form.form_of(request), *self.wording.read(places_of(request))]], np.float32
        )
        return float(self.of_rows(row)[0])

    def of_rows(self, rows: Floats) -> NDArray[np.float64]:
        """Return the strangeness (B,) of rows (B, WIDTH), above 0 for unfamiliar tasks.

        A row has the numbers of the form, then those of the wording.
        """
        return self._trees.read(rows) - self._threshold

    def is_unfamiliar(self, conversation: Conversation, *, has_tools: bool = False) -> bool:
        """Return whether no task like this one was in the training data."""
        return self.strangeness(conversation, has_tools=has_tools) > 0

    def to_state(self) -> dict[str, Array]:
        """Return the arrays for the checkpoint's weights file, named with the prefix."""
        return {PREFIX + name: array for name, array in self._state.items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> TaskFamiliarity | None:
        """Load the arrays of `to_state`; None for weights without them.

        Raises KeyError or ValueError for arrays that are missing or of another size.
        """
        own = arrays_under(state, PREFIX)
        return cls(own) if own else None
