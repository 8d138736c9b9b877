"""The training of the trees beside the reader, on graded replies that the reader did not see."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibrator.features.trees import Trees
from calibrator.features.weights import Array
from calibrator.lab.training.fits.evidence.examples import Row, by_question, read_rows
from calibrator.lab.training.stages.tree_fitting import fit_trees
from calibrator.readers.evidence.context.comparison import FEATURES
from calibrator.readers.evidence.context.support import (
    TREES,
    WEIGHTS,
    ContextReader,
    SupportReading,
    entailment,
    reading_of,
)
from calibrator.readers.evidence.conversation import read_conversation
from calibrator.recalibration.curves import fit_platt, sigmoid

# Monotonic columns: 1 is evidence for the reply, -1 against it.
DIRECTIONS: Final[Mapping[str, int]] = {
    "covered": 1,
    "covered_rare": 1,
    "covered_worst": 1,
    "covered_unit": 1,
    "covered_unit_worst": 1,
    "pairs": 1,
    "run": 1,
    "numbers_missing": -1,
    "numbers_far": -1,
    "names_missing": -1,
    "opposites": -1,
    "new_words": -1,
}

# Lengths, and columns that separate the sources more than right from wrong.
LEFT_OUT: Final = (
    *("words", "sentences", "context_words", "result_words", "request_covered", "answered"),
    *("repeats_request", "yes", "no", "negations", "numbers", "names"),
)


@dataclass(frozen=True, slots=True)
class SupportConfig:
    """The settings of the fit of the trees (`features.tree_fitting.TreeConfig`)."""

    trees: int = 60
    leaves: int = 4
    learning_rate: float = 0.06
    leaf_rows: int = 60
    ridge: float = 5.0
    feature_share: float = 0.5
    reader_weight: float = 0.5  # weight of the reader's log-odds beside the trees'
    rows: int = 1_300  # most rows of one source
    seed: int = 1


@dataclass(slots=True)
class JudgedReplies:
    """Features of graded replies (N, D), the reader's log-odds (N,), labels and sources."""

    columns: NDArray[np.float32]
    read: NDArray[np.float64]
    labels: NDArray[np.int64]
    sources: list[str]


def columns_of(
    folder: Path,
    names: Sequence[str],
    reader: ContextReader,
    config: SupportConfig,
    say: Callable[[str], None],
) -> JudgedReplies:
    """Read graded replies of the files `names` and return their features, labels and sources.

    At most about `config.rows` rows of a file, in whole questions, are used. Replies without
    context or without a sentence are left out. `reader` judges the passages. `say` gets a line for
    each file with its number of rows. Raises RowError or OSError for a file that cannot be read.
    """
    rng = random.Random(config.seed)
    readings: list[SupportReading] = []
    labels: list[int] = []
    sources: list[str] = []
    for name in names:
        rows = by_question(read_rows(folder, name), config.rows, rng)
        for row in rows:
            reading = reading_of(read_conversation(row["messages"]), response_of(row))
            if reading is not None:
                readings.append(reading)
                labels.append(int(row["correct"]))
                sources.append(name)
        say(f"{name}: {len(rows)} rows")
    for start in range(0, len(readings), 16):
        several = readings[start : start + 16]
        found = reader.read([each for one in several for each in one.passages]).tolist()
        at = 0
        for one in several:
            one.found = found[at : at + len(one.passages)]
            at += len(one.passages)
    columns = np.array([each.comparison.values for each in readings], np.float32)
    read = np.array([entailment(each) for each in readings])
    return JudgedReplies(columns, read, np.array(labels), sources)


def response_of(row: Row) -> str:
    """Return the row's graded reply as text: itself, or its `content` if it is a message."""
    response: Any = row["response"]
    if isinstance(response, str):
        return response
    return str(response.get("content") or "")


def fit_support(judged: JudgedReplies, config: SupportConfig) -> dict[str, Array]:
    """Fit the trees and the final curve; return `context.trees.<name>` and `context.weights`.

    The latter (3,) are the reader's weight, and the slope and the constant of the sum's log-odds.
    They are fitted on trees that saw no row of the same source; the returned trees are fitted on
    all. All sources weigh the same, and so do right and wrong. Raises MissingExtraError without
    scikit-learn.
    """
    odds = np.zeros(len(judged.labels))
    sources = np.array(judged.sources)
    for name in sorted(set(judged.sources)):
        here = sources == name
        trees = Trees(_trees(judged, ~here, config), len(FEATURES))
        odds[here] = trees.read(judged.columns[here])
    odds += config.reader_weight * judged.read
    counts = weights_of(sources, judged.labels)
    curve = fit_platt(judged.labels, sigmoid(odds), weights=counts)
    weights = np.array([config.reader_weight, curve.slope, curve.intercept], np.float32)
    everything = np.ones(len(judged.labels), bool)
    trees_state = {TREES + k: v for k, v in _trees(judged, everything, config).items()}
    return {**trees_state, WEIGHTS: weights}


def _trees(
    judged: JudgedReplies, used: NDArray[np.bool_], config: SupportConfig
) -> dict[str, Array]:
    """Fit trees on the replies that `used` (N,) marks, and return their arrays by name.

    Columns named in `LEFT_OUT` are read as 0, and those in `DIRECTIONS` act in one direction.
    """
    sources, labels = np.array(judged.sources)[used], judged.labels[used]
    columns = judged.columns[used].copy()
    columns[:, [FEATURES.index(name) for name in LEFT_OUT]] = 0
    directions = [DIRECTIONS.get(name, 0) for name in FEATURES]
    weights = weights_of(sources, labels)
    return fit_trees(columns, labels, weights, config, config.seed, directions=directions)


def weights_of(sources: NDArray[np.str_], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return weights (N,) by which all sources count the same, and right as much as wrong.

    Their mean is 1.
    """
    found = np.zeros(len(labels))
    for name in sorted(set(sources.tolist())):
        for label in (0, 1):
            here = (sources == name) & (labels == label)
            found[here] = 1 / max(here.sum(), 1)
    return np.asarray(found * len(found) / found.sum())
