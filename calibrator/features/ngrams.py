"""Hashed n-grams of word pieces and of characters: what a text says, as row numbers of a table.

The pieces are BERT's, so nothing is cut into words by rules of our own; characters tell what
pieces tear apart: numbers, names, languages other than English. The hash is arithmetic on their
ids, so it is the same on every machine and needs numpy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Grams: TypeAlias = tuple[Ids, ...]
"""Bucket numbers of one row's `PARTS`: pieces of its question and answer, the answer's two ends,
characters of its question and answer."""

PARTS: Final = 5
QUESTION_HEAD, QUESTION_TAIL = 320, 60  # word pieces that are looked at
ANSWER_HEAD, ANSWER_TAIL = 256, 256
FIRST_PIECES, LAST_PIECES = 12, 24  # how an answer begins and ends, apart from where words stand
QUESTION_CHARACTERS, ANSWER_CHARACTERS = (300, 200), (200, 250)  # of head and tail
CHARACTERS_TOGETHER = (3, 5)
_SHIFT = np.uint64(33)


def grams_of(
    question: str,
    answer: str,
    question_ids: Sequence[int],
    answer_ids: Sequence[int],
    buckets: int,
) -> Grams:
    """The distinct n-grams of a row, from its texts and their word pieces, as numbers below
    `buckets`."""
    asked = np.array(_ends(question_ids, QUESTION_HEAD, QUESTION_TAIL))
    said = np.array(_ends(answer_ids, ANSWER_HEAD, ANSWER_TAIL))
    first, last = said[:FIRST_PIECES], said[-LAST_PIECES:]
    return (
        hashed(asked, 1, (1, 2), buckets),
        hashed(said, 2, (1, 2), buckets),
        np.concatenate([hashed(last, 3, (1, 2, 3), buckets), hashed(first, 4, (1, 2, 3), buckets)]),
        hashed(_characters(question, *QUESTION_CHARACTERS), 5, CHARACTERS_TOGETHER, buckets),
        hashed(_characters(answer, *ANSWER_CHARACTERS), 6, CHARACTERS_TOGETHER, buckets),
    )


def is_cut(question_ids: Sequence[int], answer_ids: Sequence[int]) -> bool:
    """Whether a text has more word pieces than are looked at."""
    most_asked, most_said = QUESTION_HEAD + QUESTION_TAIL, ANSWER_HEAD + ANSWER_TAIL
    return len(question_ids) > most_asked or len(answer_ids) > most_said


def _ends(pieces: Sequence[int], head: int, tail: int) -> list[int]:
    return [*pieces[:head], *pieces[head:][-tail:]]


def _characters(text: str, head: int, tail: int) -> NDArray[np.uint32]:
    """Code points in lower case of a text, or of its two ends with a zero between them."""
    if len(text) > head + tail:
        text = f"{text[:head]}\0{text[-tail:]}"
    return np.frombuffer(text.lower().encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def hashed(ids: NDArray[np.integer], space: int, lengths: Sequence[int], buckets: int) -> Ids:
    """Distinct buckets of the n-grams of `ids` of some lengths; each `space` hashes differently."""
    pieces = ids.astype(np.uint64) + np.uint64(1)
    running, found = pieces, []
    for n in range(1, min(max(lengths), len(pieces)) + 1):
        if n > 1:
            running = running[:-1] * np.uint64(1_000_003) + pieces[n - 1 :]
        if n in lengths:
            salt = np.uint64((space * 7_919 + n) * 0x9E3779B97F4A7C15 % 2**64)
            found.append(_mixed(running + salt) % np.uint64(buckets))
    return np.unique(np.concatenate(found)).astype(np.int32) if found else np.zeros(0, np.int32)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """MurmurHash3's 64-bit finalizer: every bit of the input moves every bit of the output."""
    x = (x ^ (x >> _SHIFT)) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> _SHIFT)) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> _SHIFT)
