"""Hash the n-grams of word pieces and of characters of a text to row numbers of a table.

The pieces are BERT's, so no rules of our own cut words. Characters catch what pieces tear apart:
numbers, names, languages other than English. The hash is arithmetic on ids, so it is the same on
every machine and needs numpy alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibrator.kernel import load_kernel

Ids = NDArray[np.int32]
Grams: TypeAlias = tuple[Ids, ...]
"""The bucket numbers of one row's `PARTS`.

The parts are pieces of the question, pieces of the answer, pieces of the answer's two ends,
characters of the question, and characters of the answer.
"""

PARTS: Final = 5
QUESTION_HEAD, QUESTION_TAIL = 320, 60  # word pieces that are read
ANSWER_HEAD, ANSWER_TAIL = 256, 256
FIRST_PIECES, LAST_PIECES = 12, 24  # of an answer, which are counted as its ends too
QUESTION_CHARACTERS, ANSWER_CHARACTERS = (300, 200), (200, 250)  # of head and tail
_WORDS, _ENDS, _LETTERS = (1, 2), (1, 2, 3), (3, 5)  # lengths of n-grams
_SPACES = (_WORDS, _WORDS, _ENDS, _ENDS, _LETTERS, _LETTERS)  # each hashes differently
_LONGEST = 5
_PART_OF_SPACE = (0, 1, 2, 4, 5, 6)  # the first space of each part; the third part has two
_MULTIPLIER = np.uint64(1_000_003)
_SHIFT = np.uint64(33)


def grams_of(
    question: str,
    answer: str,
    question_ids: Sequence[int],
    answer_ids: Sequence[int],
    buckets: int,
) -> Grams:
    """Return a row's distinct n-grams as bucket numbers, ascending within each of `PARTS` arrays.

    `question_ids` and `answer_ids` are the word pieces of the texts. The numbers are below
    `buckets`, a power of two. Of long texts only the two ends are read.
    """
    question_text, answer_text = (
        _two_ends(question, *QUESTION_CHARACTERS),
        _two_ends(answer, *ANSWER_CHARACTERS),
    )
    if (kernel := load_kernel()) is not None:
        sizes = (
            (QUESTION_HEAD, QUESTION_TAIL, ANSWER_HEAD, ANSWER_TAIL),
            (FIRST_PIECES, LAST_PIECES),
        )
        found, begins = kernel.grams(
            question_text, answer_text, question_ids, answer_ids, buckets, *sizes
        )
        numbers = np.frombuffer(found, np.int32)
        return tuple(numbers[start:end] for start, end in itertools.pairwise(begins))
    answer_ends = _both_ends(answer_ids, ANSWER_HEAD, ANSWER_TAIL)
    sequences = (
        np.array(_both_ends(question_ids, QUESTION_HEAD, QUESTION_TAIL), dtype=np.uint64),
        np.array(answer_ends, dtype=np.uint64),
        np.array(answer_ends[-LAST_PIECES:], dtype=np.uint64),
        np.array(answer_ends[:FIRST_PIECES], dtype=np.uint64),
        _characters(question_text),
        _characters(answer_text),
    )
    keys = _distinct(sequences, buckets)
    ends = np.searchsorted(keys, [space * buckets for space in _PART_OF_SPACE])
    ids = (keys & np.int32(buckets - 1)).astype(np.int32)
    return tuple(ids[start:end] for start, end in itertools.pairwise(ends))


def distinct(ids: Sequence[int]) -> Ids:
    """Return the distinct word pieces, ascending, as 32-bit integers."""
    if (kernel := load_kernel()) is not None:
        return np.frombuffer(kernel.distinct(ids), np.int32)
    return np.array(sorted(set(ids)), dtype=np.int32)


def is_cut(question_ids: Sequence[int], answer_ids: Sequence[int]) -> bool:
    """Return whether question or answer have more word pieces than `grams_of` reads."""
    most_of_question, most_of_answer = QUESTION_HEAD + QUESTION_TAIL, ANSWER_HEAD + ANSWER_TAIL
    return len(question_ids) > most_of_question or len(answer_ids) > most_of_answer


def _both_ends(pieces: Sequence[int], head: int, tail: int) -> list[int]:
    """Return the first `head` and the last `tail` pieces, without overlap."""
    return [*pieces[:head], *pieces[head:][-tail:]]


def _two_ends(text: str, head: int, tail: int) -> str:
    """Return a text in lower case, or the two ends of a long one with a NUL between them.

    The ends have `head` and `tail` characters.
    """
    return (text if len(text) <= head + tail else f"{text[:head]}\0{text[-tail:]}").lower()


def _characters(text: str) -> NDArray[np.uint64]:
    """Return the code points of a text, half surrogate pairs included."""
    points = text.encode("utf-32-le", "surrogatepass")
    return np.frombuffer(points, dtype=np.uint32).astype(np.uint64)


def _distinct(sequences: Sequence[NDArray[np.uint64]], buckets: int) -> Ids:
    """Return distinct n-grams of sequences, one for each of `_SPACES`, ascending.

    A number is space * buckets + bucket. All sequences are hashed in one pass; n-grams that cross
    from one sequence into the next are left out. Empty for sequences without n-grams.
    """
    running = pieces = np.concatenate(sequences) + np.uint64(1)
    starts = list(itertools.accumulate(map(len, sequences), initial=0))
    found, salts, lengths, spaces = [], [], [], []
    for n in range(1, _LONGEST + 1):
        if n > 1:
            running = running[:-1] * _MULTIPLIER + pieces[n - 1 :]
        for space, (start, end) in enumerate(itertools.pairwise(starts)):
            if n in _SPACES[space] and end - start >= n:
                found.append(running[start : end - n + 1])
                salts.append(_SALTS[space, n])
                lengths.append(end - start - n + 1)
                spaces.append(space * buckets)
    if not found:
        return np.zeros(0, np.int32)
    mixed = _mix_bits(np.concatenate(found) + np.repeat(np.array(salts, np.uint64), lengths))
    keys = (mixed & np.uint64(buckets - 1)).astype(np.int32)
    keys += np.repeat(np.array(spaces, np.int32), lengths)
    keys.sort()
    is_first = np.empty(len(keys), np.bool_)
    is_first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    return keys[is_first]


_SALTS = {
    (space, n): ((space + 1) * 7_919 + n) * 0x9E3779B97F4A7C15 % 2**64
    for space, lengths in enumerate(_SPACES)
    for n in lengths
}


def _mix_bits(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes of numbers by MurmurHash3's 64-bit finalizer.

    Every input bit changes every output bit.
    """
    x = (x ^ (x >> _SHIFT)) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> _SHIFT)) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> _SHIFT)
