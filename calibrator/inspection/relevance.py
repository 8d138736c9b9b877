"""Relevance: what a reply shares with its question, in words, meaning, numbers and names.

Words are word pieces, rare ones weighing more; meaning is a small vector of each piece, so that a
reply about chemists fits a question about physicists. Each trait is computed on the two texts alone
and means the same for a model or a benchmark that training never saw.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Array = NDArray[np.generic]

PREFIX = "pieces."
HEAD, TAIL = 160, 160  # word pieces of a question, and of a reply, that are looked at
STRONGEST = 24  # rarest pieces of each side whose meanings are compared one by one
END = 48  # word pieces at the end of a question, where what is asked usually stands
COPY = 4  # word pieces in a row that count as copied

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WORD = re.compile(r"[^\W\d_]{3,}")
_LOOK = 4_000  # characters of each text's two ends in which numbers and names are looked for


@dataclass(frozen=True, slots=True)
class Pieces:
    """What word pieces mean and how rare they are.

    `table` (V, D) int8 and `scale` (V,): a piece's vector, of length 1 or 0, is table * scale;
    `rarity` (V,): the log of how few texts hold it. Raises ValueError for other shapes.
    """

    table: Array
    scale: Floats
    rarity: Floats

    def __post_init__(self) -> None:
        if self.table.shape[:1] != self.scale.shape or self.rarity.shape != self.scale.shape:
            raise ValueError(f"word pieces of another shape: {self.table.shape}")

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Pieces:
        """From arrays named `pieces.<name>`; raises KeyError where one is missing."""
        table, scale, rarity = (state[PREFIX + name] for name in ("table", "scale", "rarity"))
        return cls(table, scale.astype(np.float32), rarity.astype(np.float32))

    def vectors(self, ids: Ints) -> Floats:
        """Their vectors, (n, D)."""
        return np.asarray(self.table[ids].astype(np.float32) * self.scale[ids, None])


def relevance(
    question: str,
    answer: str,
    question_ids: Sequence[int],
    answer_ids: Sequence[int],
    pieces: Pieces,
) -> list[float]:
    """The traits of one answered question; finite for every text."""
    asked, said = _ends(question_ids), _ends(answer_ids)
    return [
        *_words(asked, said, pieces),
        *_words(asked[-END:], said, pieces)[:3],
        *_words(asked, said[-END:], pieces)[:3],
        *_words(asked, said[:END], pieces)[:3],
        *_meaning(asked, said, pieces),
        _copied(asked, said),
        *_numbers(_two_ends(question), _two_ends(answer)),
        *_scripts(question[:_LOOK], answer[:_LOOK]),
    ]


def _ends(ids: Sequence[int]) -> Ints:
    kept = ids if len(ids) <= HEAD + TAIL else [*ids[:HEAD], *ids[-TAIL:]]
    return np.array(kept, dtype=np.int64)


def _two_ends(text: str) -> str:
    return text if len(text) <= 2 * _LOOK else text[:_LOOK] + text[-_LOOK:]


def _words(asked: Ints, said: Ints, pieces: Pieces) -> list[float]:
    """Shares of the reply's and of the question's rarity that both hold, their cosine, the rarest
    piece in common, the rarest that the reply lacks, and how many the reply has."""
    own, other = np.unique(said), np.unique(asked)
    weights, of_question = pieces.rarity[own], pieces.rarity[other]
    both = pieces.rarity[np.intersect1d(own, other, assume_unique=True)]
    shared, squared = float(both.sum()), float((both**2).sum())
    lengths = float(np.sqrt((weights**2).sum() * (of_question**2).sum()))
    return [
        shared / max(1e-6, float(weights.sum())),
        shared / max(1e-6, float(of_question.sum())),
        squared / max(1e-6, lengths),
        float(both.max(initial=0)),
        float(np.sort(both)[-3:].sum()),
        float(np.log1p(len(both))),
        float(weights.max(initial=0)),
    ]


def _meaning(asked: Ints, said: Ints, pieces: Pieces) -> list[float]:
    """Cosines of the means, two of them with what the question does not say itself, and how near
    the rarest pieces of each side come to the other's: mean and largest of those that the other
    side does not hold, weighed by rarity."""
    if not len(asked) or not len(said):
        return [0.0] * 10
    added = np.setdiff1d(said, asked)
    first, second = _strongest(asked, pieces), _strongest(said, pieces)
    alike = pieces.vectors(first) @ pieces.vectors(second).T  # (n, m)
    is_same = first[:, None] == second[None, :]
    other = np.where(is_same, -1.0, alike)
    of_first, of_second = pieces.rarity[first], pieces.rarity[second]
    return [
        _cosine(asked, said, pieces),
        _cosine(asked[-END:], said, pieces),
        _cosine(asked, said[-END:], pieces),
        _cosine(asked, added, pieces),
        _cosine(asked[-END:], added, pieces),
        float((alike.max(axis=1) * of_first).sum() / max(1e-6, float(of_first.sum()))),
        float((alike.max(axis=0) * of_second).sum() / max(1e-6, float(of_second.sum()))),
        float(other.max()),
        float(np.sort(other.max(axis=0))[-3:].mean()),
        float(np.sort(alike.max(axis=0))[: max(1, len(second) // 2)].mean()),
    ]


def _strongest(ids: Ints, pieces: Pieces) -> Ints:
    own = np.unique(ids)
    return np.asarray(own[np.argsort(-pieces.rarity[own], kind="stable")[:STRONGEST]])


def _cosine(asked: Ints, said: Ints, pieces: Pieces) -> float:
    if not len(asked) or not len(said):
        return 0.0
    means = [
        np.einsum("n,nd->d", pieces.rarity[own], pieces.vectors(own))
        for own in (np.unique(asked), np.unique(said))
    ]
    lengths = float(np.linalg.norm(means[0]) * np.linalg.norm(means[1]))
    return float(means[0] @ means[1]) / max(1e-6, lengths)


def _copied(asked: Ints, said: Ints) -> float:
    """The share of the reply's runs of pieces that the question holds word for word."""
    if len(said) < COPY or len(asked) < COPY:
        return 0.0
    runs = [np.lib.stride_tricks.sliding_window_view(ids, COPY) for ids in (asked, said)]
    powers = np.array([1, 1_000_003, 1_000_003**2 % 2**40, 1_000_003**3 % 2**40], dtype=np.uint64)
    keys = [(run.astype(np.uint64) * powers).sum(axis=1) for run in runs]
    return float(np.isin(keys[1], keys[0]).mean())


def _numbers(question: str, answer: str) -> list[float]:
    """Numbers of the question that the reply uses, and of the reply that the question has."""
    asked, said = set(_NUMBER.findall(question)), set(_NUMBER.findall(answer))
    both = asked & said
    large = {each for each in both if len(each) > 1}
    return [
        len(both) / len(asked) if asked else -1.0,
        len(both) / len(said) if said else -1.0,
        float(np.log1p(len(large))),
        len({each for each in asked if len(each) > 1} - said) / max(1, len(asked)),
    ]


def _scripts(question: str, answer: str) -> list[float]:
    """Shares of letters beyond ASCII in both, and of words that both texts hold."""
    shares = [sum(ord(c) > 127 for c in text) / max(1, len(text)) for text in (question, answer)]
    asked = {word[:6] for word in _WORD.findall(question.lower())}
    said = {word[:6] for word in _WORD.findall(answer.lower())}
    both = asked & said
    return [
        shares[0],
        shares[1],
        abs(shares[0] - shares[1]),
        len(both) / max(1, len(said)),
        len(both) / max(1, len(asked)),
    ]
