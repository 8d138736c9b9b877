"""Judges a scorer on labelled rows: AUROC, Brier and ECE, pooled and for each benchmark."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrator.metrics import auroc, brier, ece
from calibrator.rows import Row
from calibrator.scorer import Item, Score, Scorer

Floats = NDArray[np.float64]
POOLED = "pooled"
MEAN = "mean over benchmarks"
BATCH = 32
BATCH_CHARACTERS = 48_000


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the table: a method on one group of rows; `accuracy` is their base rate."""

    group: str
    method: str
    rows: int
    accuracy: float
    auroc: float
    brier: float
    ece: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values; None where there is no number, as JSON has no nan."""
        return {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in asdict(self).items()
        }


def score_items(
    scorer: Scorer, items: Sequence[Item], progress: Callable[[int], None] = lambda _: None
) -> list[Score]:
    """Scores many items, those of similar length together; `progress` hears how many are done."""
    order = sorted(range(len(items)), key=lambda i: _size(items[i]))
    scores: dict[int, Score] = {}
    for batch in _batches(order, items):
        found = scorer.score_batch([items[i] for i in batch])
        scores.update(zip(batch, found, strict=True))
        progress(len(batch))
    return [scores[i] for i in range(len(items))]


def _size(item: Item) -> int:
    return len(item.question) + len(item.answer)


def _batches(order: Sequence[int], items: Sequence[Item]) -> Iterator[list[int]]:
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) == BATCH or _size(items[i]) * (len(batch) + 1) > BATCH_CHARACTERS):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def judge(rows: Sequence[Row], methods: dict[str, Floats]) -> list[Result]:
    """Every method on each benchmark, on their unweighted mean and on all rows pooled.

    `methods` maps a name to P(correct) of every row. A benchmark whose rows are all correct or all
    wrong has no AUROC (nan) and is left out of the mean.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[row.benchmark or "(none)"].append(i)
    labels = np.array([row.correct or 0 for row in rows])
    results = []
    for method, confidence in methods.items():
        each = [
            _result(name, method, labels[at], confidence[at]) for name, at in sorted(groups.items())
        ]
        pooled = _result(POOLED, method, labels, confidence)
        results += [*each, _mean(each, method, len(rows)), pooled]
    return results


def _result(group: str, method: str, labels: NDArray[np.int64], confidence: Floats) -> Result:
    return Result(
        group,
        method,
        len(labels),
        float(labels.mean()),
        auroc(labels, confidence),
        brier(labels, confidence),
        ece(labels, confidence),
    )


def _mean(each: Sequence[Result], method: str, rows: int) -> Result:
    def mean(name: str) -> float:
        values = [getattr(result, name) for result in each]
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")

    return Result(MEAN, method, rows, mean("accuracy"), mean("auroc"), mean("brier"), mean("ece"))
