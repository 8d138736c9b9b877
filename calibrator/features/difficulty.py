"""Estimate a question's difficulty: how often models were right about questions of similar meaning.

A question is the mean of its word pieces' vectors (`piece_vectors`), with more weight for rare
pieces (Arora et al., 2017). The training questions around it give its difficulty by their shares
of right replies, near ones counting more (kernel regression; Nadaraya and Watson, 1964). Far from
all of them it is the base rate. Pieces that no training question contains have a vector too, so
trivia are recognized by other trivia, in other words.

Sums use `einsum`: BLAS would start threads, and beside a busy neighbour wait 9 ms for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibrator.features.ngrams import Ids
from calibrator.features.trees import is_near
from calibrator.features.weights import Array, Floats
from calibrator.kernel import Work, load_kernel, run_together
from calibrator.recalibration.curves import logit, sigmoid

PREFIX = "difficulty."
NEARNESS = 0.05  # the distance in cosine over which a question's weight falls by a factor e
PRIOR = 0.01  # the base rate's weight; an identical question weighs 1 or more
BOUNDS = (0.03, 0.97)
AT_ONCE = 256  # questions that numpy compares with all others at a time
MOST_REMEMBERED, LONGEST_REMEMBERED = 1_024, 4_096  # remembered questions, and bytes of one: 4 MB
ROUNDING = 5e-6  # log-odds; ten times the largest observed difference of kernel and numpy
TILE = 32  # questions that the kernel compares at a time
TOGETHER = 4096  # training questions at a time, so that the sums stay in a core's first cache


class Difficulty:
    """The training questions, and the vectors of word pieces.

    `table` (V, D) int8 and `scale` (V,): a piece's vector is table * scale. `questions` (Q, D) int8
    are vectors of any length, with their `share` of right replies and `weight`, each (Q,). `base`
    (1,) is the base rate.

    `thresholds`, ascending, are the only numbers that the result will be compared with: log-odds
    may be rough as long as they stay on the same side of each. Raises ValueError for other shapes.
    """

    def __init__(
        self,
        table: Array,
        scale: Array,
        questions: Array,
        share: Array,
        weight: Array,
        base: Array,
        thresholds: Sequence[float] | None = None,
    ) -> None:
        """Keep the arrays, and lay the questions out for the kernel if there is one."""
        shapes = table.shape[:1], questions.shape[:1], table.shape[1:], share.shape
        if shapes != (scale.shape, weight.shape, questions.shape[1:], weight.shape):
            raise ValueError(f"a difficulty of another shape: {table.shape}, {questions.shape}")
        self.table, self.scale = table, scale.astype(np.float32)
        self._questions = questions
        self._thresholds = thresholds or ()
        self._beside: Floats | None = None  # the thresholds as probabilities
        if thresholds is not None:
            self._beside = sigmoid(np.array(thresholds)).astype(np.float32)
        self.share, self.weight = share.astype(np.float32), weight.astype(np.float32)
        self.base = float(base[0])
        self._kernel = load_kernel() if table.dtype == questions.dtype == np.int8 else None
        if self._kernel is not None:
            tiles, lengths = _tile_questions(questions.astype(np.int8))
            factors, count = np.zeros((3, len(lengths)), np.float32), len(questions)
            own = 1 / lengths[:count], self.weight, self.weight * self.share
            factors[:, :count] = np.stack(own)
            self._held = self._kernel.difficulty_tables(
                np.ascontiguousarray(table), self.scale, tiles, lengths, self.share, self.weight,
                factors, NEARNESS, PRIOR, self.base,
            )  # fmt: skip
        # the last questions, which choices and retries repeat
        self._remembered: dict[bytes, float] = {}

    def odds_of(self, pieces: Sequence[Ids]) -> NDArray[np.float64]:
        """Return the log-odds that models are right about questions, (B,).

        A question is given as its distinct word pieces. The last questions are remembered.
        """
        found: NDArray[np.float64] = run_together(self.odds_work(pieces))[0]
        return found

    def odds_work(self, pieces: Sequence[Ids]) -> Work[NDArray[np.float64]]:
        """Compute the result of `odds_of` as work for `run_together`, beside other work.

        The results of new questions are remembered, up to `MOST_REMEMBERED`; then all are dropped.
        """
        keys = [ids.tobytes() for ids in pieces]
        odds_of_key = {
            key: known for key in keys if (known := self._remembered.get(key)) is not None
        }
        new = {key: ids for key, ids in zip(keys, pieces, strict=True) if key not in odds_of_key}
        if new:
            odds = yield from self._compute_odds([*new.values()])
            odds_of_key.update(zip(new, odds.tolist(), strict=True))
            for key in new:
                if len(self._remembered) >= MOST_REMEMBERED:
                    self._remembered = {}
                if len(key) <= LONGEST_REMEMBERED:
                    self._remembered[key] = odds_of_key[key]
        else:
            yield []
        return np.array([odds_of_key[key] for key in keys])

    def _compute_odds(self, pieces: Sequence[Ids]) -> Work[NDArray[np.float64]]:
        """Compute log-odds (B,) for questions, given as word pieces, from the training questions.

        The kernel's values that rounding may move across a threshold are computed again with numpy.
        """
        if self._kernel is None:
            yield []
            # one at a time, because `einsum` adds several in another order
            return np.concatenate([self.odds_near(self.meanings([ids])) for ids in pieces])
        share = np.empty(len(pieces), np.float32)
        yield [("difficulty", (self._held, list(pieces), self._beside, share))]
        found = np.asarray(logit(np.clip(share.astype(np.float64), *BOUNDS)))
        for at, ids in enumerate(pieces):
            if is_near(self._thresholds, float(found[at]), ROUNDING):
                found[at] = self.odds_near(self.meanings([ids]))[0]
        return found

    @cached_property
    def questions(self) -> Floats:
        """The training questions, each a column of length 1, (D, Q); computed once."""
        return np.ascontiguousarray(_unit_rows(self._questions.astype(np.float32)).T)

    def meanings(self, pieces: Sequence[Ids]) -> Floats:
        """Return the vectors of questions, given as distinct word pieces, (B, D).

        They have length 1, or 0 for a question without pieces.
        """
        return meanings(pieces, self.table, self.scale)

    def odds_near(
        self, vectors: Floats, left_out: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Return log-odds (B,) that replies to questions with these vectors (B, D) are right.

        They are kernel-weighted shares of right replies to the training questions. For row i the
        training question at `left_out[i]` is ignored.
        """
        shares = []
        for start in range(0, len(vectors), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            near = self._cosines(vectors[some])  # (b, Q)
            near -= 1  # in place, because allocating such arrays costs more than the sums
            near /= np.float32(NEARNESS)
            np.exp(near, out=near)
            near *= self.weight
            if left_out is not None:
                near[np.arange(len(near)), left_out[some]] = 0
            right = np.einsum("bq,q->b", near, self.share)
            shares.append((right + PRIOR * self.base) / (near.sum(axis=1) + PRIOR))
        share = np.concatenate(shares).astype(np.float64)
        return np.asarray(logit(np.clip(share, *BOUNDS)))

    def _cosines(self, vectors: Floats) -> Floats:
        """Return the cosines of vectors (b, D) with all training questions, (b, Q)."""
        count = self.questions.shape[1]
        found = np.empty((len(vectors), count), np.float32)
        for start in range(0, count, TOGETHER):
            some = slice(start, start + TOGETHER)
            np.einsum("bd,dq->bq", vectors, self.questions[:, some], out=found[:, some])
        return found

    @classmethod
    def from_state(
        cls, state: Mapping[str, Array], thresholds: Sequence[float] | None = None
    ) -> Difficulty:
        """Read arrays named `difficulty.<name>`.

        `thresholds` are as in the class. Raises KeyError if one is missing, ValueError for other
        shapes.
        """
        names = ("table", "scale", "questions", "share", "weight", "base")
        table, scale, questions, share, weight, base = (state[PREFIX + name] for name in names)
        return cls(table, scale, questions, share, weight, base, thresholds)


def meanings(pieces: Sequence[Ids], table: Array, scale: Array) -> Floats:
    """Return the vectors of questions, given as distinct word pieces, (B, D).

    A piece's vector is its row of `table` (V, D) times its `scale` (V,). Results have length 1, or
    0 for a question without pieces.
    """
    sums = [
        np.einsum("n,nd->d", scale[ids].astype(np.float32), table[ids].astype(np.float32))
        for ids in pieces
    ]
    return _unit_rows(np.stack(sums))


def _tile_questions(questions: NDArray[np.int8]) -> tuple[NDArray[np.int8], Floats]:
    """Arrange questions (Q, D) for the kernel; return tiles and lengths (tiles * TILE,).

    The tiles are (tiles, D / 2, TILE * 2), two numbers of each question side by side; D is rounded
    up. The lengths of the padding are 1.
    """
    tiles, pairs = -(-len(questions) // TILE), -(-questions.shape[1] // 2)
    padded = np.zeros((tiles * TILE, pairs * 2), np.int8)
    padded[: len(questions), : questions.shape[1]] = questions
    lengths = np.ones(len(padded), np.float32)
    lengths[: len(questions)] = _lengths(questions.astype(np.float32))[:, 0]
    laid_out = padded.reshape(tiles, TILE, pairs, 2).swapaxes(1, 2)
    return np.ascontiguousarray(laid_out).reshape(tiles, pairs, -1), lengths


def _lengths(vectors: Floats) -> Floats:
    """Return the lengths of rows, at least 1e-6, (N, 1)."""
    return np.asarray(np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6))


def _unit_rows(vectors: Floats) -> Floats:
    """Return rows (N, D) scaled to length 1; rows of zeros stay zero."""
    return np.asarray(vectors / _lengths(vectors), dtype=np.float32)
