"""Fits the difficulty of questions (`difficulty`), and tells that of training questions by the
others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibrator.features.difficulty import PREFIX, Difficulty, meanings
from calibrator.features.ngrams import Ids
from calibrator.features.weights import packed

Array = NDArray[np.generic]
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

WIDTH = 48  # of a piece's vector, in 8 bits each
COMMON = 0.1  # a piece that this share of the questions hold weighs half of one that none holds
RARE = 1e-5  # added to every share, so that pieces which no question holds count a little


def fit_difficulty(
    asked: Sequence[Ids], questions: Ints, targets: Floats, vectors: Floats
) -> tuple[dict[str, Array], Floats]:
    """The arrays of a `Difficulty`, and log-odds (N,) for the rows fitted on, each told by other
    questions than its own.

    `asked`: the distinct word pieces of each row's question; the numbers of their questions and
    their targets, each (N,); `vectors` (V, hidden): what every piece means.
    """
    _, first, question = np.unique(questions, return_index=True, return_inverse=True)
    pieces = [asked[i] for i in first]
    table, scale = packed(_weighed(vectors, pieces))
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
    told = Difficulty.from_state(state).near(found, left_out=np.arange(len(first)))
    return state, told[question].astype(np.float32)


def _weighed(vectors: Floats, pieces: Sequence[Ids]) -> Floats:
    """The main directions of the pieces that questions hold, the rarer the longer, (V, WIDTH);
    zeros where there are fewer."""
    share = np.bincount(np.concatenate(pieces), minlength=len(vectors)) / len(pieces)
    centred = vectors - np.average(vectors, axis=0, weights=share + RARE)
    _, directions = np.linalg.eigh((centred * (share + RARE)[:, None]).T @ centred)
    kept = centred @ directions[:, ::-1][:, :WIDTH] * (COMMON / (COMMON + share))[:, None]
    found = np.zeros((len(vectors), WIDTH), dtype=np.float32)
    found[:, : kept.shape[1]] = kept
    return found
