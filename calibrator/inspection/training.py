"""Fits the inspector: replies as models gave them against right replies that were corrupted.

Labels of right and wrong are looked at only to choose what is corrupted; every kind of corruption
counts alike, and all of them together as much as the replies that nobody touched.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.corruptions import KINDS, corrupted
from calibrator.errors import MissingExtraError, TrainingError
from calibrator.inspection.inspector import PREFIX, SEEN, inspect
from calibrator.inspection.relevance import PREFIX as PIECES
from calibrator.inspection.relevance import Pieces
from calibrator.layout import Layout, encode
from calibrator.rows import Row
from calibrator.stripping import stripped
from calibrator.trees import tree_arrays
from calibrator.weights import packed

Array = NDArray[np.generic]
Floats = NDArray[np.float32]
Texts = list[tuple[str, str]]  # questions and replies

AT_ONCE = 2_000
ALIKE = 1.0  # taken off the log of rarity: what e-th of all texts hold weighs nothing
RARE = 1e-5  # added to every share, so that pieces which no text holds count a little


@dataclass(frozen=True, slots=True)
class InspectorConfig:
    """How the inspector is fitted; numbers of rows are those of one benchmark."""

    real_rows: int = 900
    rows_of_a_kind: int = 350
    pool_rows: int = 6_000  # from which corruptions are made
    rarity_rows: int = 30_000
    width: int = 96  # of a piece's vector
    trees: int = 300
    leaves: int = 31
    learning_rate: float = 0.08
    leaf_rows: int = 60
    ridge: float = 10.0
    feature_share: float = 0.3
    left_out: tuple[str, ...] = ()  # kinds of corruption, to see whether the rest generalises


def fit_inspector(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    vectors: Floats,
    config: InspectorConfig,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Array]:
    """The arrays of an `Inspector`, under its prefix; the same rows and seed, the same arrays.

    `vectors` (V, hidden) of all word pieces, as `piece_vectors` gives them. Raises TrainingError
    where there is no right reply to corrupt, and MissingExtraError without scikit-learn.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "train") from error
    state = fit_pieces(rows, tokenizer, layout, vectors, config, seed)
    texts, is_real = examples(rows, config, seed)
    if is_real.all() or not is_real.any():
        raise TrainingError("there is no right reply that could be corrupted")
    say(f"inspector: {len(texts)} replies, {int(is_real.sum())} of them as models gave them")
    seen = seen_in(texts, tokenizer, layout, Pieces.from_state(state))
    weights = np.where(is_real, (~is_real).sum() / is_real.sum(), 1.0)
    model = HistGradientBoostingClassifier(
        max_iter=config.trees,
        learning_rate=config.learning_rate,
        max_leaf_nodes=config.leaves,
        min_samples_leaf=config.leaf_rows,
        l2_regularization=config.ridge,
        max_features=config.feature_share,
        early_stopping=False,
        random_state=seed,
    ).fit(seen, is_real, sample_weight=weights)
    return {PREFIX + name: array for name, array in (state | tree_arrays(model)).items()}


def examples(
    rows: Sequence[Row], config: InspectorConfig, seed: int
) -> tuple[Texts, NDArray[np.bool_]]:
    """Questions and replies, and which replies are as a model gave them, (N,)."""
    rng = random.Random(seed)
    benchmarks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        benchmarks[row.benchmark or ""].append(row)
    texts: Texts = []
    is_real: list[bool] = []
    for _, own in sorted(benchmarks.items()):
        pool = rng.sample(own, min(len(own), config.pool_rows))
        real = [(row.question, row.answer) for row in pool[: config.real_rows]]
        texts += real
        is_real += [True] * len(real)
        for kind in KINDS:
            if kind in config.left_out:
                continue
            made = corrupted(pool, kind, seed)
            chosen = rng.sample(made, min(len(made), config.rows_of_a_kind))
            texts += [(each.row.question, each.answer) for each in chosen]
            is_real += [False] * len(chosen)
    return [(question, stripped(answer)) for question, answer in texts], np.array(is_real)


def seen_in(texts: Texts, tokenizer: Tokenizer, layout: Layout, pieces: Pieces) -> Floats:
    """What is seen in questions and replies, (N, SEEN)."""
    found = np.zeros((len(texts), SEEN), dtype=np.float32)
    for start in range(0, len(texts), AT_ONCE):
        some = texts[start : start + AT_ONCE]
        ids = encode(tokenizer, [text for pair in some for text in pair], layout)
        for at, (question, answer) in enumerate(some):
            both = ids[2 * at], ids[2 * at + 1]
            found[start + at] = inspect(question, answer, *both, pieces)
    return found


def fit_pieces(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    vectors: Floats,
    config: InspectorConfig,
    seed: int,
) -> dict[str, Array]:
    """The arrays of `Pieces`: main directions of the vectors, and how rare pieces are in texts."""
    some = random.Random(seed).sample(rows, min(len(rows), config.rarity_rows))
    texts = [row.answer for row in some] + list(dict.fromkeys(row.question for row in some))
    count = np.zeros(len(vectors))
    for start in range(0, len(texts), AT_ONCE):
        for ids in encode(tokenizer, texts[start : start + AT_ONCE], layout):
            count[np.unique(np.array(ids, dtype=np.int64))] += 1
    share = count / max(1, len(texts)) + RARE
    rarity = np.log((len(texts) + 1) / (count + 1)) - ALIKE
    centred = vectors - np.average(vectors, axis=0, weights=share)
    _, directions = np.linalg.eigh((centred * share[:, None]).T @ centred)
    kept = centred @ directions[:, ::-1][:, : config.width]
    kept /= np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-6)
    table, scale = packed(kept.astype(np.float32))
    arrays: dict[str, Array] = {
        "table": table,
        "scale": scale,
        "rarity": np.maximum(rarity, 0).astype(np.float16),
    }
    return {PIECES + name: array for name, array in arrays.items()}
