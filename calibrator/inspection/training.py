"""Fits the inspector: right replies against the same replies with one kind of fault.

Wrong replies are not shown to it. Faults are made in right ones; were wrong ones among those that
have none, a check would learn that what looks right is faulty. Within a benchmark those with and
without the fault weigh alike, so that no check learns which benchmarks have it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.corruptions import corrupted
from calibrator.errors import MissingExtraError, TrainingError
from calibrator.inspection.inspector import CHECKS, PREFIX, SEEN, Check, inspect
from calibrator.inspection.relevance import PREFIX as PIECES
from calibrator.inspection.relevance import Pieces
from calibrator.layout import Layout, encode
from calibrator.rows import Row
from calibrator.stripping import stripped
from calibrator.trees import tree_arrays
from calibrator.weights import packed

Array = NDArray[np.generic]
Floats = NDArray[np.float32]

AT_ONCE = 2_000
ALIKE = 1.0  # taken off the log of rarity: what e-th of all texts hold weighs nothing
RARE = 1e-5  # added to every share, so that pieces which no text holds count a little
COMMON_DIRECTIONS = 2  # of the vectors, left out: they tell how frequent a piece is


@dataclass(frozen=True, slots=True)
class InspectorConfig:
    """How the inspector is fitted; numbers of rows are those of one benchmark.

    The priors are log-odds, one for each check in the order of `CHECKS`: the surer, the more it
    takes to doubt a reply, and the less is lost of ranking right above wrong.
    """

    right_rows: int = 1_500
    rows_of_a_fault: int = 900
    pool_rows: int = 12_000  # from which faulty replies are made
    rarity_rows: int = 30_000
    width: int = 192  # of a piece's vector
    trees: int = 300
    leaves: int = 24
    learning_rate: float = 0.07
    leaf_rows: int = 40
    ridge: float = 10.0
    feature_share: float = 0.3
    priors: tuple[float, ...] = (1.75, 3.5, 2.75, 6.0)
    left_out: tuple[str, ...] = ()  # kinds of faults, to see whether the rest generalises


@dataclass(frozen=True, slots=True)
class Lesson:
    """A reply to a question of a benchmark; `fault` is empty for a right one as it was given."""

    question: str
    answer: str
    benchmark: str
    fault: str


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
    where there is no right reply in which a fault could be made, and MissingExtraError without
    scikit-learn.
    """
    state = fit_pieces(rows, tokenizer, layout, vectors, config, seed)
    lessons = list(lessons_of(rows, config, seed))
    if not any(lesson.fault for lesson in lessons):
        raise TrainingError("there is no right reply in which a fault could be made")
    say(f"inspector: {len(lessons)} replies to look at")
    seen = seen_in(lessons, tokenizer, layout, Pieces.from_state(state))
    for check, prior in zip(CHECKS, config.priors, strict=True):
        weights = weights_of(check, lessons, seen)
        if not weights.any():  # there are no options, say, in this data
            say(f"inspector: nothing teaches the check {check.name!r}, which is left out")
            continue
        trees = fit_check(lessons, seen, weights, config, seed)
        state |= {f"{check.name}.{name}": array for name, array in trees.items()}
        state[f"{check.name}.prior"] = np.array([prior], np.float32)
        say(f"inspector: {check.name}")
    return {PREFIX + name: array for name, array in state.items()}


def fit_check(
    lessons: Sequence[Lesson],
    seen: Floats,
    weights: NDArray[np.float64],
    config: InspectorConfig,
    seed: int,
) -> dict[str, Array]:
    """The arrays of one check's `Trees`; raises MissingExtraError without scikit-learn."""
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "train") from error
    used = np.flatnonzero(weights)
    is_right = np.array([not lesson.fault for lesson in lessons])
    model = HistGradientBoostingClassifier(
        max_iter=config.trees,
        learning_rate=config.learning_rate,
        max_leaf_nodes=config.leaves,
        min_samples_leaf=config.leaf_rows,
        l2_regularization=config.ridge,
        max_features=config.feature_share,
        early_stopping=False,
        random_state=seed,
    ).fit(seen[used], is_right[used], sample_weight=weights[used])
    return tree_arrays(model)


def weights_of(check: Check, lessons: Sequence[Lesson], seen: Floats) -> NDArray[np.float64]:
    """What each lesson weighs for a check, (N,): 0 where it does not apply, else 1 for a faulty
    one and as much for all right ones of a benchmark as for its faulty ones; 0 for all where
    nothing teaches the check."""
    applies = check.applies_to(seen)
    faulty = np.array([lesson.fault in check.faults for lesson in lessons]) & applies
    right = np.array([not lesson.fault for lesson in lessons]) & applies
    benchmarks = np.array([lesson.benchmark for lesson in lessons])
    weights = np.zeros(len(lessons))
    for benchmark in sorted(set(benchmarks[faulty].tolist())):
        here = benchmarks == benchmark
        if (own := (here & right).sum()) > 0:
            weights[here & faulty] = 1.0
            weights[here & right] = (here & faulty).sum() / own
    return weights


def lessons_of(rows: Sequence[Row], config: InspectorConfig, seed: int) -> Iterator[Lesson]:
    """Right replies of each benchmark, and the faulty ones that were made of right ones."""
    rng = random.Random(seed)
    benchmarks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        benchmarks[row.benchmark or ""].append(row)
    for benchmark, own in sorted(benchmarks.items()):
        pool = rng.sample(own, min(len(own), config.pool_rows))
        for row in [row for row in pool if row.correct][: config.right_rows]:
            yield Lesson(row.question, stripped(row.answer), benchmark, "")
        for fault in (each for check in CHECKS for each in check.faults):
            if fault in config.left_out:
                continue
            made = corrupted(pool, fault, seed)
            for each in rng.sample(made, min(len(made), config.rows_of_a_fault)):
                yield Lesson(each.row.question, stripped(each.answer), benchmark, fault)


def seen_in(
    lessons: Sequence[Lesson], tokenizer: Tokenizer, layout: Layout, pieces: Pieces
) -> Floats:
    """What is seen in questions and replies, (N, SEEN)."""
    found = np.zeros((len(lessons), SEEN), dtype=np.float32)
    for start in range(0, len(lessons), AT_ONCE):
        some = lessons[start : start + AT_ONCE]
        texts = [text for each in some for text in (each.question, each.answer)]
        ids = encode(tokenizer, texts, layout)
        for at, each in enumerate(some):
            both = ids[2 * at], ids[2 * at + 1]
            found[start + at] = inspect(each.question, each.answer, *both, pieces)
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
    kept = centred @ directions[:, ::-1][:, COMMON_DIRECTIONS:][:, : config.width]
    kept /= np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-6)
    table, scale = packed(kept.astype(np.float32))
    arrays: dict[str, Array] = {
        "table": table,
        "scale": scale,
        "rarity": np.maximum(rarity, 0).astype(np.float16),
    }
    return {PIECES + name: array for name, array in arrays.items()}
