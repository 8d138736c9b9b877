"""A linear model of the hashed words of a reply that calls tools, and their familiarity.

The names of tools and the words of requests are evidence only in the domains of the training data.
So the model counts as much as the words are known.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrator.readers.calls.reading.conversation import View

Ints = NDArray[np.int64]
Array = NDArray[np.generic]

BUCKETS = 2**16
STRANGE, FAMILIAR = 0.68, 0.82  # shares of known words at which familiarity is 0 and 1
MAX_WORDS = 400  # words of one part

_WORD = re.compile(r"[^\W_]+")


def word_ids(view: View, name: str | None) -> Ints:
    """Return the sorted buckets of a reply's words and word pairs and of the model's `name`."""
    call = " ".join(f"{c.name} {c.key}" for c in view.calls)[:3_000].lower()
    request = view.request[-1_500:].lower()
    result = (view.results[-1] if view.results else "")[-600:].lower()
    found: set[int] = set()
    for part, text in (
        ("q", request),
        ("c", call),
        ("r", result),
        ("t", view.thought[-400:].lower()),
    ):
        words = _WORD.findall(text)[:MAX_WORDS]
        found.update(_bucket(part + word) for word in words)
        if part in "qc":
            found.update(_bucket(f"{part}{a} {b}") for a, b in itertools.pairwise(words))
    if name:
        found.add(_bucket("n" + name.lower()))
    return np.array(sorted(found), dtype=np.int64)


def _bucket(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "replace")) % BUCKETS


class CallWording:
    """The weights (BUCKETS,) of words, and which words are known."""

    def __init__(self, state: Mapping[str, Array]) -> None:
        self.weights = state["weights"].astype(np.float32)
        self.known = np.unpackbits(state["known"].astype(np.uint8))[:BUCKETS].astype(bool)
        self.bias = float(state["bias"][0])
        if self.weights.shape != (BUCKETS,) or self.known.shape != (BUCKETS,):
            raise ValueError("words of another shape")

    def read(self, rows: Sequence[Ints]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the log-odds and the familiarity from 0 to 1, each (B,), of rows of buckets."""
        odds = [
            self.bias + float(self.weights[ids].sum()) / max(1, len(ids)) ** 0.5 for ids in rows
        ]
        shares = np.array([self.known[ids].mean() if len(ids) else 0.0 for ids in rows])
        return np.array(odds), np.clip((shares - STRANGE) / (FAMILIAR - STRANGE), 0.0, 1.0)
