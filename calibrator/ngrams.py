"""Hashed n-grams of word pieces: what a text says, as row numbers of a table.

The pieces are those that the cross-encoder reads, so nothing is cut into words twice; the hash is
arithmetic on their ids, so it is the same on every machine and needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

QUESTION_HEAD, QUESTION_TAIL = 320, 60  # word pieces that are looked at
ANSWER_HEAD, ANSWER_TAIL = 256, 256
FIRST_PIECES, LAST_PIECES = 12, 24  # how an answer begins and ends, apart from where words stand
_SHIFT = np.uint64(33)


@dataclass(frozen=True, slots=True)
class Grams:
    """Bucket numbers of one row: of its question, its answer, and its answer's two ends."""

    question: Ids
    answer: Ids
    ends: Ids

    @property
    def parts(self) -> tuple[Ids, Ids, Ids]:
        return self.question, self.answer, self.ends


def grams_of(question: Sequence[int], answer: Sequence[int], buckets: int) -> Grams:
    """The distinct n-grams of a row's word pieces, each as a number below `buckets`."""
    asked = np.array([*question[:QUESTION_HEAD], *question[QUESTION_HEAD:][-QUESTION_TAIL:]])
    said = np.array([*answer[:ANSWER_HEAD], *answer[ANSWER_HEAD:][-ANSWER_TAIL:]])
    ends = [hashed(said[-LAST_PIECES:], 3, 3, buckets), hashed(said[:FIRST_PIECES], 4, 3, buckets)]
    return Grams(hashed(asked, 1, 2, buckets), hashed(said, 2, 2, buckets), np.concatenate(ends))


def hashed(ids: NDArray[np.int64], space: int, longest: int, buckets: int) -> Ids:
    """Distinct buckets of all 1- to `longest`-grams of `ids`; each `space` hashes differently."""
    pieces = ids.astype(np.uint64) + np.uint64(1)
    running, found = pieces, []
    for n in range(1, min(longest, len(pieces)) + 1):
        if n > 1:
            running = running[:-1] * np.uint64(1_000_003) + pieces[n - 1 :]
        salt = np.uint64((space * 7_919 + n) * 0x9E3779B97F4A7C15 % 2**64)
        found.append(_mixed(running + salt) % np.uint64(buckets))
    return np.unique(np.concatenate(found)).astype(np.int32) if found else np.zeros(0, np.int32)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """MurmurHash3's 64-bit finalizer: every bit of the input moves every bit of the output."""
    x = (x ^ (x >> _SHIFT)) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> _SHIFT)) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> _SHIFT)
