"""Relevance: how much a reply shares with its question in words, meaning, numbers and names.

Words are word pieces, and rare ones weigh more. Meaning is a small vector of each piece, so a reply
about chemists fits a question about physicists. Each trait depends only on the two texts and means
the same for a model or a benchmark that training never saw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from calibrator.kernel import load_kernel
from calibrator.text.looking_for import PreparedText, beyond_ascii, reading_of

Floats = NDArray[np.float32]
Whole = NDArray[np.signedinteger]
Array = NDArray[np.generic]

PREFIX = "pieces."
HEAD, TAIL = 160, 160  # word pieces read from the beginning and the end of each text
STRONGEST = 24  # rarest pieces of each side whose meanings are compared one by one
END = 48  # word pieces at the end of a question, where the request usually is
MOST_PIECES = 2**16  # largest vocabulary that the kernel reads
COSINES = slice(16, 26)  # columns of the cosines among the traits
OF_MEANS = 5  # the first cosines, which compare means; the others compare single pieces
ROUNDING = 3e-6  # allowed difference between cosines of kernel and numpy, twice the observed one
COPY = 4  # consecutive word pieces that count as copied

_LOOK = 4_000  # characters of each text's two ends that are searched for numbers and names


@dataclass(frozen=True, slots=True)
class Pieces:
    """The meaning and the rarity of word pieces.

    `table` (V, D) int8 and `scale` (V,): a piece's vector, of length 1 or 0, is table * scale.
    `rarity` (V,) grows with the log of the inverse share of texts that have the piece. Raises
    ValueError for other shapes.
    """

    table: Array
    scale: Floats
    rarity: Floats
    thresholds: Sequence[Sequence[float]] = ()  # the trees' thresholds for each of the cosines
    kernel: ModuleType | None = field(init=False, repr=False, compare=False)
    held: object = field(init=False, repr=False, compare=False)  # the same tables for the kernel

    def __post_init__(self) -> None:
        """Check the shapes and give the tables to the kernel.

        `kernel` and `held` are None if there is no kernel or the tables do not fit it.
        Raises ValueError for shapes that do not belong together.
        """
        if self.table.shape[:1] != self.scale.shape or self.rarity.shape != self.scale.shape:
            raise ValueError(f"word pieces of another shape: {self.table.shape}")
        fits = self.table.dtype == np.int8 and len(self.rarity) <= MOST_PIECES
        kernel = load_kernel() if fits else None
        most = max(map(len, self.thresholds), default=0)
        thresholds = np.full((COSINES.stop - COSINES.start, most + 1), np.inf)
        for row, own in zip(thresholds, self.thresholds, strict=False):
            row[: len(own)] = own
        arrays = self.table, self.scale, self.rarity, thresholds
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "held", kernel.piece_tables(*arrays, ROUNDING) if kernel else None)

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> Pieces:
        """Build the pieces from arrays named `pieces.<name>`. Raises KeyError for a missing one."""
        table, scale, rarity = (state[PREFIX + name] for name in ("table", "scale", "rarity"))
        return cls(table, scale.astype(np.float32), rarity.astype(np.float32))

    def vectors(self, ids: Whole) -> Floats:
        """Return the vectors of pieces, (n, D), for their ids (n,)."""
        found = self.table.take(ids, axis=0).astype(np.float32)
        found *= self.scale.take(ids)[:, None]
        return found


def relevance(
    question: str,
    answer: str,
    question_ids: Sequence[int],
    answer_ids: Sequence[int],
    pieces: Pieces,
) -> list[float]:
    """Return the 36 traits of one answered question; finite for every text.

    `question_ids` and `answer_ids` are word pieces in the order of the text. 27 traits are of
    pieces in common, four of numbers, five of scripts and words.
    """
    return [
        *_pieces_in_common(question_ids, answer_ids, pieces),
        *_numbers(_two_ends(question), _two_ends(answer)),
        *_scripts(question[:_LOOK], answer[:_LOOK]),
    ]


def _pieces_in_common(
    question_ids: Sequence[int], answer_ids: Sequence[int], pieces: Pieces
) -> list[float]:
    """Return the traits from pieces and meanings that both sides share, 27 numbers.

    The kernel and numpy give the same numbers. Long texts are read at their two ends.
    """
    if pieces.kernel is not None:
        found: list[float]
        found, near = pieces.kernel.relevance(pieces.held, question_ids, answer_ids)
        # BLAS, which numpy uses, adds in another order, so cosines near a threshold are redone.
        if near >> OF_MEANS:
            of_pieces = slice(COSINES.start + OF_MEANS, COSINES.stop)
            found[of_pieces] = _compared_by_kernel(question_ids, answer_ids, pieces)
        if not near % (1 << OF_MEANS):
            return found
    question, answer = _TextSide(question_ids, pieces), _TextSide(answer_ids, pieces)
    end_of_question, end_of_answer = (
        question.part(question.kept[-END:]),
        answer.part(answer.kept[-END:]),
    )
    start_of_answer = answer.part(answer.kept[:END])
    is_shared = question.has.take(answer.ids)
    at_end = _mark(question.kept[-END:], pieces).take(answer.ids)
    both = answer.rarity[is_shared]
    return [
        *_shares(both, question.all, answer.all),
        *_strongest_shared(both, answer.rarity),
        *_shares(answer.rarity[at_end], end_of_question, answer.all),
        *_shares(answer.rarity[is_shared & end_of_answer.places], question.all, end_of_answer),
        *_shares(answer.rarity[is_shared & start_of_answer.places], question.all, start_of_answer),
        *_meaning_traits(
            question,
            answer,
            (question.all.places, end_of_question.places),
            is_shared,
            end_of_answer.places,
        ),
        _copied_share(question.kept, answer.kept),
    ]


@dataclass(frozen=True, slots=True)
class _PiecePart:
    """A part of a text's distinct pieces, with the sum and the sum of squares of their rarities."""

    places: NDArray[np.bool_]
    total: np.float32
    squared: np.float32


class _TextSide:
    """The word pieces that are read of a question or a reply.

    `kept` are they in the order of the text, `ids` (n,) the distinct ones ascending, `has` (V,)
    marks them; `rarity` (n,) and `vectors` (n, D) belong to `ids`.
    """

    def __init__(self, ids: Sequence[int], pieces: Pieces) -> None:
        """Choose the pieces of a long text at its two ends, and look up their tables."""
        self.kept = _pieces_read(ids)
        self.pieces = pieces
        self.has = _mark(self.kept, pieces)
        self.ids = np.flatnonzero(self.has)
        self.rarity = pieces.rarity.take(self.ids)
        self.all = self._part(np.ones(len(self.ids), np.bool_), self.rarity)
        self.vectors = pieces.vectors(self.ids)

    def part(self, ids: Sequence[int]) -> _PiecePart:
        """Return the part of the text's distinct pieces that are among `ids`."""
        places = _mark(ids, self.pieces).take(self.ids)
        return self._part(places, self.rarity[places])

    def _part(self, places: NDArray[np.bool_], rarity: Floats) -> _PiecePart:
        """Return a part from its places among the distinct pieces and its rarities."""
        return _PiecePart(places, _sum(rarity), _sum(rarity * rarity))

    def means(self, *parts: NDArray[np.bool_]) -> list[tuple[Floats, np.float32, bool]]:
        """Return (mean vector weighted by rarity, its length, whether it has pieces) of each part.

        A part is a mask of the distinct pieces, (n,).
        """
        # Pieces outside a part weigh nothing, since adding zeros is cheaper than choosing rows.
        weights = np.where(np.stack(parts), self.rarity, np.float32(0))
        found = np.einsum("kn,nd->kd", weights, self.vectors)
        return [
            (mean, np.sqrt(mean.dot(mean)), bool(part.any()))
            for mean, part in zip(found, parts, strict=True)
        ]


def _pieces_read(ids: Sequence[int]) -> list[int]:
    """Return the first and last 160 pieces of a longer text, in the order of the text."""
    return list(ids) if len(ids) <= HEAD + TAIL else [*ids[:HEAD], *ids[-TAIL:]]


def _sum(values: Floats) -> np.float32:
    """Return the sum of values in single precision; 0 without values."""
    found: np.float32 = np.add.reduce(values)
    return found


def _mark(ids: Sequence[int], pieces: Pieces) -> NDArray[np.bool_]:
    """Return for each piece of the vocabulary whether it is among `ids`, (V,)."""
    found = np.zeros(len(pieces.rarity), np.bool_)
    found[ids] = True
    return found


def _two_ends(text: str) -> str:
    """Return the first and the last 4,000 characters of a longer text, joined."""
    return text if len(text) <= 2 * _LOOK else text[:_LOOK] + text[-_LOOK:]


def _shares(both: Floats, question: _PiecePart, answer: _PiecePart) -> list[float]:
    """Return the shares of the reply's and of the question's rarity in common, and their cosine.

    `both` are the rarities of the shared pieces.
    """
    shared = float(_sum(both))
    return [
        shared / max(1e-6, float(answer.total)),
        shared / max(1e-6, float(question.total)),
        float(_sum(both * both)) / max(1e-6, float(np.sqrt(answer.squared * question.squared))),
    ]


def _strongest_shared(both: Floats, answer: Floats) -> list[float]:
    """Return four rarities in common, from those of the shared and the reply's pieces.

    These are the rarest shared piece, the sum of the three rarest, the log of one plus the
    number of shared pieces, and the reply's rarest piece.
    """
    ordered = np.sort(both)
    return [
        float(ordered[-1]) if len(both) else 0.0,
        float(_sum(ordered[-3:])),
        math.log1p(len(both)),
        float(answer.max(initial=0)),
    ]


def _meaning_traits(
    question: _TextSide,
    answer: _TextSide,
    of_question: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    is_shared: NDArray[np.bool_],
    end_of_answer: NDArray[np.bool_],
) -> list[float]:
    """Return five cosines of means and five comparisons of single pieces.

    `of_question` are masks of the question's pieces and of its end's, `end_of_answer` is that of
    the reply's end. Two of the cosines are with the pieces of the reply that the question does
    not have. Zeros if a side has no pieces.
    """
    if not len(question.ids) or not len(answer.ids):
        return [0.0] * 10
    asks, asks_at_end = question.means(*of_question)
    says, says_at_end, adds = answer.means(answer.all.places, end_of_answer, ~is_shared)
    return [
        _cosine(asks, says),
        _cosine(asks_at_end, says),
        _cosine(asks, says_at_end),
        _cosine(asks, adds),
        _cosine(asks_at_end, adds),
        *_compare_rarest(question.ids, answer.ids, question.pieces),
    ]


def _compare_rarest(question_ids: Whole, answer_ids: Whole, pieces: Pieces) -> list[float]:
    """Return five numbers: how near the rarest pieces of each side are to the other's.

    These are the means over both sides' nearest cosines, weighted by rarity, the largest cosine
    of different pieces and the mean of the three largest, and the mean of the reply's lower
    half.
    """
    first, second = _rarest_pieces(question_ids, pieces), _rarest_pieces(answer_ids, pieces)
    alike = pieces.vectors(first) @ pieces.vectors(second).T  # (n, m)
    other = np.where(first[:, None] == second, np.float32(-1), alike)
    of_first, of_second = pieces.rarity.take(first), pieces.rarity.take(second)
    by_second = alike.max(axis=0)
    return [
        float(_sum(alike.max(axis=1) * of_first)) / max(1e-6, float(_sum(of_first))),
        float(_sum(by_second * of_second)) / max(1e-6, float(_sum(of_second))),
        float(other.max()),
        float(np.sort(other.max(axis=0))[-3:].mean()),
        float(np.sort(by_second)[: max(1, len(second) // 2)].mean()),
    ]


def _compared_by_kernel(
    question_ids: Sequence[int], answer_ids: Sequence[int], pieces: Pieces
) -> list[float]:
    """Return the same bits as `_compare_rarest`; the kernel does all but the products."""
    kernel, held = pieces.kernel, pieces.held
    assert kernel is not None
    sides = [kernel.rarest(held, ids) for ids in (question_ids, answer_ids)]
    question, answer = (np.frombuffer(ids, np.int32) for ids, _ in sides)
    first, second = (
        np.frombuffer(each, np.float32).reshape(-1, pieces.table.shape[1]) for _, each in sides
    )
    found: list[float] = kernel.compared(held, question, answer, first @ second.T)
    return found


def _rarest_pieces(ids: Whole, pieces: Pieces) -> Whole:
    """Return the 24 rarest of distinct pieces, the rarest first."""
    return ids[np.argsort(-pieces.rarity.take(ids), kind="stable")[:STRONGEST]]


def _cosine(
    question: tuple[Floats, np.float32, bool], answer: tuple[Floats, np.float32, bool]
) -> float:
    """Return the cosine of two results of `_TextSide.means`; 0.0 if a part has no pieces."""
    if not question[2] or not answer[2]:
        return 0.0
    return float(question[0] @ answer[0]) / max(1e-6, float(question[1] * answer[1]))


def _copied_share(question: Sequence[int], answer: Sequence[int]) -> float:
    """Return the share of the reply's runs of four pieces that the question has too.

    0.0 if a text has fewer than four pieces.
    """
    if len(answer) < COPY or len(question) < COPY:
        return 0.0
    question_runs = set(_runs(question))
    return sum(map(question_runs.__contains__, _runs(answer))) / (len(answer) - COPY + 1)


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return an iterator over all runs of four consecutive pieces."""
    return zip(*(ids[place:] for place in range(COPY)), strict=False)


def _numbers(question: str, answer: str) -> list[float]:
    """Return four traits of the numbers in both texts.

    These are the share of the question's numbers that the reply uses (-1 for none), the share
    of the reply's that the question has, the log of one plus the shared long ones (two digits
    or more), and the share of the question's long ones that are missing.
    """
    question_numbers, answer_numbers = _numbers_in(question), _numbers_in(answer)
    both = question_numbers & answer_numbers
    large = {each for each in both if len(each) > 1}
    return [
        len(both) / len(question_numbers) if question_numbers else -1.0,
        len(both) / len(answer_numbers) if answer_numbers else -1.0,
        math.log1p(len(large)),
        len({each for each in question_numbers if len(each) > 1} - answer_numbers)
        / max(1, len(question_numbers)),
    ]


def _numbers_in(text: str) -> set[str]:
    """Return the numbers of a text, as written but without a minus sign."""
    return {each.removeprefix("-") for each in reading_of(text).numbers}


def _scripts(question: str, answer: str) -> list[float]:
    """Return five traits of the letters and words in both texts.

    These are the shares of letters beyond ASCII in question and reply, their difference, and
    the shares of the reply's and of the question's beginnings of words that both have.
    """
    shares = [beyond_ascii(text) / max(1, len(text)) for text in (question, answer)]
    in_question, in_answer, both = _beginnings(reading_of(question), reading_of(answer))
    return [
        shares[0],
        shares[1],
        abs(shares[0] - shares[1]),
        both / max(1, in_answer),
        both / max(1, in_question),
    ]


def _beginnings(question: PreparedText, answer: PreparedText) -> tuple[int, int, int]:
    """Return the numbers of distinct beginnings of words: (question's, reply's, both's)."""
    if question.kernel is not None and (kernel := answer.kernel) is not None:
        found: tuple[int, int, int] = kernel.beginnings(question.lower, answer.lower)
        return found
    of_question, of_answer = question.beginnings, answer.beginnings
    return len(of_question), len(of_answer), len(of_question & of_answer)
