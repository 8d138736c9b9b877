"""Turn files of labelled rows into token rows: choose, split by question, tokenize once."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.features.tower import TowerRow, tower_row
from calibrator.rows.rows import Row
from calibrator.text.addressed_text import stripped
from calibrator.text.layout import Layout, TokenRow, assemble, encode, tag_text
from calibrator.training.addressing import addressed

ENCODE_CHUNK = 2_000
MAX_WEIGHT = 3.0  # bounds the weight of a small benchmark's rows, so that none is memorized
GROUP = 2_048  # rows that are sorted by length together
REBUILT = re.compile(r"\AAnswer: [^\n]*\nConfidence: \d+%\Z")  # replaces an unpublished reply


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled row as token ids; `target` is P(correct), 0 or 1 except for outliers."""

    question: NDArray[np.uint16]
    answer: NDArray[np.uint16]
    tower: TowerRow | None  # None if the tower is fitted already
    source_model: str | None
    benchmark: str | None
    question_id: str
    target: float


def benchmark_weights(benchmarks: Sequence[str | None], power: float) -> NDArray[np.float64]:
    """Return a weight for each row, mean 1 before `MAX_WEIGHT` bounds it.

    A benchmark's rows together weigh (their number) ** power. Three sources hold half of the rows;
    a power below 1 keeps them from drowning the others.
    """
    counts = Counter(benchmarks)
    weights = np.array([counts[name] ** (power - 1) for name in benchmarks])
    return np.asarray(np.minimum(weights / weights.mean(), MAX_WEIGHT))


def disguised(rows: Sequence[Row], share: float, rng: random.Random) -> list[Row]:
    """Change some answers, so that text that says nothing about them is not learned from.

    A `share` of them gets sentences that address the reader (`addressing`), labels unchanged. Half
    of the rebuilt replies (a letter and a stated confidence, see `REBUILT`) lose the confidence,
    so that the calibrator does not rely on it alone.
    """
    changed = []
    for row in rows:
        answer = row.answer
        if REBUILT.match(answer) and rng.random() < 0.5:
            answer = answer.partition("\n")[0]
        if rng.random() < share:
            answer = addressed(answer, rng)
        changed.append(row if answer is row.answer else replace(row, answer=answer))
    return changed


def tokenize(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    layout: Layout,
    *,
    for_tower: bool = False,
    target: float | None = None,
) -> list[Example]:
    """Return an example for every row; long texts lose their middle.

    `for_tower` adds n-grams and traits. `target` replaces the rows' own labels.
    """
    examples: list[Example] = []
    for start in range(0, len(rows), ENCODE_CHUNK):
        chunk = [
            replace(row, answer=stripped(row.answer)) for row in rows[start : start + ENCODE_CHUNK]
        ]
        questions = encode(tokenizer, [row.question for row in chunk], layout)
        answers = encode(tokenizer, [row.answer for row in chunk], layout)
        for row, question, answer in zip(chunk, questions, answers, strict=True):
            examples.append(
                Example(
                    np.array(question, dtype=np.uint16),
                    np.array(answer, dtype=np.uint16),
                    tower_row(row.question, row.answer, question, answer) if for_tower else None,
                    row.model.lower() if row.model else None,
                    row.benchmark,
                    row.question_id,
                    float(row.correct or 0) if target is None else target,
                )
            )
    return examples


class TagEncoder:
    """The tokens of the tag lines, cached: a few thousand combinations at most."""

    def __init__(self, tokenizer: Tokenizer, layout: Layout) -> None:
        self._tokenizer, self._layout = tokenizer, layout
        self._cache: dict[tuple[str | None, str | None], list[int]] = {}

    def __call__(self, benchmark: str | None, source_model: str | None) -> list[int]:
        """Return the token ids of the tag lines."""
        key = (benchmark, source_model)
        if key not in self._cache:
            self._cache[key] = encode(self._tokenizer, [tag_text(*key)], self._layout)[0]
        return self._cache[key]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for one step, with the tower's log-odds as `offsets`."""

    rows: list[TokenRow]
    targets: list[float]
    offsets: list[float]


@dataclass(frozen=True, slots=True)
class Visits:
    """The way rows are shown in an epoch: each tag is hidden independently, with its own chance."""

    tags: TagEncoder
    layout: Layout
    token_budget: int
    model_dropout: float = 0.0
    benchmark_dropout: float = 0.0

    def order(self, weights: NDArray[np.float64], rng: random.Random) -> list[int]:
        """Return row numbers in random order, each as often as its weight says.

        A row of weight 1.3 occurs once, and in 3 of 10 cases twice.
        """
        order = [
            i
            for i, weight in enumerate(weights)
            for _ in range(int(weight) + (rng.random() < weight % 1))
        ]
        rng.shuffle(order)
        return order

    def batches(
        self,
        examples: Sequence[Example],
        offsets: NDArray[np.float32],
        order: Sequence[int],
        rng: random.Random,
    ) -> Iterator[Batch]:
        """Yield batches of at most `token_budget` tokens; rows of similar length share one.

        `offsets` (N, 2) holds each row's log-odds without and with its model's name.
        """
        for start in range(0, len(order), GROUP):
            made = [self._shown(examples[i], offsets[i], rng) for i in order[start : start + GROUP]]
            cut = list(_cut(sorted(made, key=lambda shown: len(shown[0].ids)), self.token_budget))
            rng.shuffle(cut)
            yield from cut

    def _shown(
        self, example: Example, offsets: NDArray[np.float32], rng: random.Random
    ) -> tuple[TokenRow, float, float]:
        """Return a row with some tags hidden, its target and the matching offset."""
        benchmark = None if rng.random() < self.benchmark_dropout else example.benchmark
        model = None if rng.random() < self.model_dropout else example.source_model
        tags = self.tags(benchmark, model)
        row = assemble(tags, example.question.tolist(), example.answer.tolist(), self.layout)
        return row, example.target, float(offsets[int(model is not None)])


def _cut(group: Sequence[tuple[TokenRow, float, float]], token_budget: int) -> Iterator[Batch]:
    """Cut rows, sorted by length, where one more would exceed the budget after padding."""
    batch = Batch([], [], [])
    for row, target, offset in group:
        if batch.rows and len(row.ids) * (len(batch.rows) + 1) > token_budget:
            yield batch
            batch = Batch([], [], [])
        batch.rows.append(row)
        batch.targets.append(target)
        batch.offsets.append(offset)
    if batch.rows:
        yield batch
