"""Fits the trees above the reader, on graded replies that the reader did not learn from."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibrator.evidence.context.comparison import FEATURES
from calibrator.evidence.context.reader import Reader
from calibrator.evidence.context.support import READ, Reading, reading_of, row_of
from calibrator.evidence.conversation import read_conversation
from calibrator.evidence.training.examples import Row, by_question, read_rows
from calibrator.features.tree_fitting import fit_trees
from calibrator.features.weights import Array

# Directions in which a column can only speak: for the reply where it is 1, against it where -1.
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
    "entail_least": 1,
    "entail_mean": 1,
    "contradict_most": -1,
}


@dataclass(frozen=True, slots=True)
class SupportConfig:
    """How the trees are fitted (`features.tree_fitting.TreeConfig`)."""

    trees: int = 120
    leaves: int = 6
    learning_rate: float = 0.06
    leaf_rows: int = 60
    ridge: float = 5.0
    feature_share: float = 0.5
    rows: int = 1_500  # of one source at most
    seed: int = 1


@dataclass(slots=True)
class Judged:
    """Columns of graded replies (N, D), their labels, questions and sources."""

    columns: NDArray[np.float32]
    labels: NDArray[np.int64]
    questions: list[str]
    sources: list[str]


def columns_of(
    folder: Path,
    names: Sequence[str],
    reader: Reader,
    config: SupportConfig,
    say: Callable[[str], None],
) -> Judged:
    """Read graded replies of files and compute their columns; rows without context are left out."""
    rng = random.Random(config.seed)
    readings: list[Reading] = []
    labels: list[int] = []
    questions: list[str] = []
    sources: list[str] = []
    for name in names:
        rows = by_question(read_rows(folder, name), config.rows, rng)
        for row in rows:
            reading = reading_of(read_conversation(row["messages"]), response_of(row))
            if reading is not None:
                readings.append(reading)
                labels.append(int(row["correct"]))
                questions.append(f"{name} {row['question_id']}")
                sources.append(name)
        say(f"{name}: {len(rows)} rows")
    for start in range(0, len(readings), 16):
        several = readings[start : start + 16]
        found = reader.read([each for one in several for each in one.passages]).tolist()
        at = 0
        for one in several:
            one.found = found[at : at + len(one.passages)]
            at += len(one.passages)
    columns = np.array([row_of(each) for each in readings], np.float32)
    return Judged(columns, np.array(labels), questions, sources)


def response_of(row: Row) -> str:
    """Return the text of a graded reply; of a message its content."""
    response: Any = row["response"]
    if isinstance(response, str):
        return response
    return str(response.get("content") or "")


def fit_support(judged: Judged, config: SupportConfig) -> dict[str, Array]:
    """Fit the trees; each source counts the same, and within it right as much as wrong."""
    weights = np.zeros(len(judged.labels))
    sources = np.array(judged.sources)
    for name in sorted(set(judged.sources)):
        for label in (0, 1):
            here = (sources == name) & (judged.labels == label)
            weights[here] = 1 / max(here.sum(), 1)
    weights *= len(weights) / weights.sum()
    directions = [DIRECTIONS.get(name, 0) for name in (*FEATURES, *READ)]
    return fit_trees(
        judged.columns, judged.labels, weights, config, config.seed, directions=directions
    )
