"""Prepare labelled rows for a language-model calibrator: split by question, with names hidden."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrator.errors import TrainingError
from calibrator.lab.training.llm.config import LlmTrainConfig
from calibrator.rows.rows import Row
from calibrator.rows.selection import select_rows
from calibrator.scorer import Item


@dataclass(frozen=True, slots=True)
class Sample:
    """One labelled answer; `target` is 1 if it is correct."""

    item: Item
    target: int
    question_id: str

    def with_item(self, item: Item) -> Sample:
        """Return the sample with another item, for example without names."""
        return replace(self, item=item)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples for training and for validation; they share no question (D04)."""

    train: list[Sample]
    validation: list[Sample]

    @property
    def source_models(self) -> tuple[str, ...]:
        """The names of the models that gave the training replies, sorted, each once."""
        return _distinct_names([sample.item.source_model for sample in self.train])

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The names of the benchmarks of the training replies, sorted, each once."""
        return _distinct_names([sample.item.benchmark for sample in self.train])

    @property
    def questions(self) -> int:
        """The number of different questions in training."""
        return len({sample.question_id for sample in self.train})


def _distinct_names(found: Sequence[str | None]) -> tuple[str, ...]:
    """Return the names that are neither None nor empty, sorted, each once."""
    return tuple(sorted({name for name in found if name}))


def read_samples(config: LlmTrainConfig) -> Samples:
    """Read the rows of `config.data`, split by question, as samples for training and validation.

    At most `config.validation_rows` validation rows are drawn at random. Raises TrainingError
    without validation rows or without training rows.
    """
    rows, held = select_rows([Path(path) for path in config.data], config.selection, "read")
    if not held:
        raise TrainingError("too few questions: none is left for validation")
    held = random.Random(config.seed).sample(held, min(config.validation_rows, len(held)))
    return Samples([sample_of(row) for row in rows], [sample_of(row) for row in held])


def sample_of(row: Row) -> Sample:
    """Return a labelled row as a sample.

    The target is 1 if the row is labelled correct and its answer is not empty; an empty answer is
    incorrect, whatever its label (D03).
    """
    is_correct = bool(row.correct) and bool(row.answer.strip())
    return Sample(row.item("all"), int(is_correct), row.question_id)


def check_questions_apart(samples: Samples) -> None:
    """Raise TrainingError if a question is in both training and validation (D04)."""
    both = {s.question_id for s in samples.train} & {s.question_id for s in samples.validation}
    if both:
        raise TrainingError(
            f"{len(both)} questions are trained on and validated on, the first is {min(both)!r}"
        )


def steps_of_epoch(rows: int, batch_rows: int) -> int:
    """Return the number of steps in which all rows are shown once; the last may have fewer."""
    return math.ceil(rows / batch_rows)


def step_numbers(rows: int, step: int, config: LlmTrainConfig) -> list[int]:
    """Return the indexes of the rows shown in an optimizer step, counted from 0 over all epochs.

    There are `config.batch_rows`, or fewer in an epoch's last step. Every epoch has its own random
    order of all `rows` rows; the same seed gives the same indexes.
    """
    epoch, within = divmod(step, steps_of_epoch(rows, config.batch_rows))
    order = list(range(rows))
    random.Random(f"{config.seed} epoch {epoch}").shuffle(order)
    return order[within * config.batch_rows : (within + 1) * config.batch_rows]


def hidden_names(item: Item, config: LlmTrainConfig, rng: random.Random) -> Item:
    """Return the item with its model's and its benchmark's name each set to None at random.

    The chances are `config.model_dropout` and `config.benchmark_dropout`.
    """
    keeps_model = rng.random() >= config.model_dropout
    keeps_benchmark = rng.random() >= config.benchmark_dropout
    return replace(
        item,
        source_model=item.source_model if keeps_model else None,
        benchmark=item.benchmark if keeps_benchmark else None,
    )
