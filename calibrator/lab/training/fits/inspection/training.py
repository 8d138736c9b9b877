"""Fits the inspector on its lessons (`lessons`): right replies against faulty ones.

Within a benchmark, replies with and without the fault weigh the same, so that no check learns
which benchmarks have it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.errors import TrainingError
from calibrator.features.weights import pack_table
from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.lab.training.fits.inspection.lessons import AT_ONCE, Lesson, lessons_of, seen_in
from calibrator.lab.training.stages.tree_fitting import fit_trees
from calibrator.readers.inspection.inspector import CHECKS, PREFIX, RELEVANCE, Check
from calibrator.readers.inspection.relevance import PREFIX as PIECES
from calibrator.readers.inspection.relevance import Pieces
from calibrator.rows.rows import Row
from calibrator.text.word_pieces import Layout, encode

Array = NDArray[np.generic]
Floats = NDArray[np.float32]

ALIKE = 1.0  # subtracted from the log of rarity; a piece in 1/e of all texts weighs nothing
RARE = 1e-5  # added to every share, so that pieces in no text count a little
COMMON_DIRECTIONS = 2  # main directions that are dropped, as they encode a piece's frequency


@dataclass(frozen=True, slots=True)
class TaughtLessons:
    """Lessons, their traits `seen` (N, SEEN), and the arrays of `Pieces` used to read them."""

    lessons: Sequence[Lesson]
    seen: Floats
    pieces: dict[str, Array]

    def where(self, is_kept: Callable[[Lesson], bool]) -> TaughtLessons:
        """Return the lessons for which `is_kept` returns True, in order, with their traits."""
        at = [n for n, lesson in enumerate(self.lessons) if is_kept(lesson)]
        return replace(self, lessons=[self.lessons[n] for n in at], seen=self.seen[at])


def teach(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    vectors: Floats,
    config: InspectorConfig,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
) -> TaughtLessons:
    """Make the lessons of rows and compute their traits, which takes about 2 ms each.

    `vectors` (V, hidden) are those of all word pieces. `say` gets the number of lessons. The same
    rows and seed give the same lessons.
    """
    pieces = fit_pieces(rows, tokenizer, layout, vectors, config, seed)
    lessons = list(lessons_of(rows, config, seed))
    say(f"inspector: {len(lessons)} replies to look at")
    return TaughtLessons(
        lessons, seen_in(lessons, tokenizer, layout, Pieces.from_state(pieces)), pieces
    )


def fit_inspector(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    vectors: Floats,
    config: InspectorConfig,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
    taught: TaughtLessons | None = None,
) -> dict[str, Array]:
    """Return the arrays of an `Inspector`, by names such as `inspector.relevance.value`.

    `vectors` (V, hidden) are those of all word pieces, from `piece_vectors`. `taught` are the
    lessons if they were made already, else they are made from `rows`. `say` gets lines of progress.
    The same rows and seed give the same arrays. Raises TrainingError if no fault could be made in a
    right reply, and MissingExtraError without scikit-learn.
    """
    taught = taught or teach(rows, tokenizer, layout, vectors, config, seed, say)
    if not any(lesson.fault for lesson in taught.lessons):
        raise TrainingError("there is no right reply in which a fault could be made")
    state = taught.pieces | fit_checks(taught.lessons, taught.seen, config, seed, say)
    return {PREFIX + name: array for name, array in state.items()}


def fit_checks(
    lessons: Sequence[Lesson],
    seen: Floats,
    config: InspectorConfig,
    seed: int,
    say: Callable[[str], None] = lambda _: None,
    checks: Sequence[Check] = CHECKS,
) -> dict[str, Array]:
    """Return the arrays of all checks, by names such as `relevance.value`.

    `seen` (N, SEEN) are the lessons' traits. A check that no lesson teaches gets no arrays, and is
    reported to `say`. Raises MissingExtraError without scikit-learn.
    """
    state: dict[str, Array] = {}
    for check in checks:
        weights = weights_of(check, lessons, seen)
        if not weights.any():  # for example, this data has no options
            say(f"inspector: nothing teaches the check {check.name!r}, which is left out")
            continue
        trees = fit_check(lessons, seen, weights, config, seed)
        state |= {f"{check.name}.{name}": array for name, array in trees.items()}
        say(f"inspector: {check.name}")
    return state | _check_counts(state, config)


def _check_counts(state: Mapping[str, Array], config: InspectorConfig) -> dict[str, Array]:
    """Return prior, slope, share and middle, (1,) each, of each check whose trees are in `state`.

    The names are such as `relevance.prior`; the values are those of the configuration.
    """
    found: dict[str, Array] = {}
    by_name = {
        "prior": config.priors,
        "slope": config.slopes,
        "share": config.shares,
        "middle": config.middles,
    }
    for at, check in enumerate(CHECKS):
        if f"{check.name}.value" in state:
            for name, values in by_name.items():
                found[f"{check.name}.{name}"] = np.array([values[at]], np.float32)
    return found


def fit_check(
    lessons: Sequence[Lesson],
    seen: Floats,
    weights: NDArray[np.float64],
    config: InspectorConfig,
    seed: int,
) -> dict[str, Array]:
    """Fit the trees of one check, the probability that a reply is in order; return their arrays.

    `weights` (N,) are those of the lessons, which are left out at 0. Raises MissingExtraError
    without scikit-learn.
    """
    used = np.flatnonzero(weights)
    is_right = np.array([not lesson.fault for lesson in lessons])
    return fit_trees(seen[used], is_right[used], weights[used], config, seed)


def weights_of(check: Check, lessons: Sequence[Lesson], seen: Floats) -> NDArray[np.float64]:
    """Return the weight of each lesson for a check, (N,).

    It is 0 where the check does not apply, for other faults than the check's, and for excerpts
    unless the check is relevance. A faulty lesson has its own weight, and all right ones of a
    benchmark together weigh as much as its faulty ones. All are 0 where nothing teaches the check.
    """
    is_for = np.array([check.name == RELEVANCE or not each.is_of_relevance for each in lessons])
    applies = check.applies_to(seen) & is_for
    faulty = np.array([lesson.fault in check.faults for lesson in lessons]) & applies
    right = np.array([not lesson.fault for lesson in lessons]) & applies
    benchmarks = np.array([lesson.benchmark for lesson in lessons])
    own = np.array([lesson.weight for lesson in lessons])
    weights = np.zeros(len(lessons))
    for benchmark in sorted(set(benchmarks[faulty].tolist())):
        here = benchmarks == benchmark
        if (count := (here & right).sum()) > 0:
            weights[here & faulty] = own[here & faulty]
            weights[here & right] = own[here & faulty].sum() / count
    return weights


def fit_pieces(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    vectors: Floats,
    config: InspectorConfig,
    seed: int,
) -> dict[str, Array]:
    """Return the arrays of `Pieces`: `pieces.table`, `pieces.scale` and `pieces.rarity`.

    The table has the vectors (V, hidden) of word pieces along `config.width` of their main
    directions, each of length 1, without the two first directions. Rarity (V,) is the logarithm of
    1 / the share of texts with the piece, less 1, at least 0; counted in answers and questions of a
    sample of `rows`.
    """
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
    table, scale = pack_table(kept.astype(np.float32))
    arrays: dict[str, Array] = {
        "table": table,
        "scale": scale,
        "rarity": np.maximum(rarity, 0).astype(np.float16),
    }
    return {PIECES + name: array for name, array in arrays.items()}
