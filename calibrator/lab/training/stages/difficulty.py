"""Fit the difficulty of questions (`features.difficulty`).

The difficulty of each training question is computed from the other questions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibrator.features.difficulty import PREFIX, Difficulty, meanings
from calibrator.features.ngrams import Ids
from calibrator.features.weights import pack_table

Array = NDArray[np.generic]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

WIDTH = 48  # numbers in a piece's vector, 8 bits each
COMMON = 0.1  # a piece in this share of the questions weighs half as much as a piece in none
RARE = 1e-5  # added to every share, so that pieces in no question count a little


def fit_difficulty(
    asked: Sequence[Ids], questions: Ints, targets: Floats, vectors: Floats
) -> tuple[dict[str, Array], Floats]:
    """Return the arrays of a `Difficulty`, and log-odds (N,) of the rows it is fitted on.

    The arrays have full names such as `difficulty.table`. Each row's log-odds come from other
    questions than its own. `asked` are the distinct word pieces of each row's question, `questions`
    (N,) the questions' numbers, `targets` (N,) the labels, and `vectors` (V, hidden) those of all
    pieces.
    """
    _, first, question = np.unique(questions, return_index=True, return_inverse=True)
    pieces = [asked[i] for i in first]
    table, scale = pack_table(_weigh_pieces(vectors, pieces))
    found = meanings(pieces, table, scale)
    counts = np.bincount(question)
    arrays: dict[str, Array] = {
        "table": table,
        "scale": scale,
        "questions": np.round(found * 127).astype(np.int8),
        "share": (np.bincount(question, weights=targets) / counts).astype(np.float16),
        "weight": np.sqrt(counts).astype(np.float16),
        "base": np.array([targets.mean()], dtype=np.float32),
    }
    state = {PREFIX + name: array for name, array in arrays.items()}
    told = Difficulty.from_state(state).odds_near(found, left_out=np.arange(len(first)))
    return state, told[question].astype(np.float32)


def _weigh_pieces(vectors: Floats, pieces: Sequence[Ids]) -> Floats:
    """Return the pieces' vectors along their main directions, (V, WIDTH), longer for rare pieces.

    `vectors` (V, hidden) are those of all pieces, and `pieces` has the distinct pieces of each
    question, from which their frequency is counted. The last columns are zeros if there are fewer
    than WIDTH directions.
    """
    share = np.bincount(np.concatenate(pieces), minlength=len(vectors)) / len(pieces)
    centred = vectors - np.average(vectors, axis=0, weights=share + RARE)
    _, directions = np.linalg.eigh((centred * (share + RARE)[:, None]).T @ centred)
    kept = centred @ directions[:, ::-1][:, :WIDTH] * (COMMON / (COMMON + share))[:, None]
    found = np.zeros((len(vectors), WIDTH), dtype=np.float32)
    found[:, : kept.shape[1]] = kept
    return found
