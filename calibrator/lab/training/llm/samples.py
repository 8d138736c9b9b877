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

    def shown_as(self, item: Item) -> Sample:
        return replace(self, item=item)


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples for training and for validation; they share no question (D04)."""

    train: list[Sample]
    validation: list[Sample]

    @property
    def source_models(self) -> tuple[str, ...]:
        return _distinct_names([sample.item.source_model for sample in self.train])

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return _distinct_names([sample.item.benchmark for sample in self.train])

    @property
    def questions(self) -> int:
        return len({sample.question_id for sample in self.train})


def _distinct_names(found: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in found if name}))


def read_samples(config: LlmTrainConfig) -> Samples:
    """Read and split the rows of a run's files; raises TrainingError without validation rows."""
    rows, held = select_rows([Path(path) for path in config.data], config.selection, "read")
    if not held:
        raise TrainingError("too few questions: none is left for validation")
    held = random.Random(config.seed).sample(held, min(config.validation_rows, len(held)))
    return Samples([sample_of(row) for row in rows], [sample_of(row) for row in held])


def sample_of(row: Row) -> Sample:
    """Make a sample of a row; an empty answer is incorrect, whatever its label (D03)."""
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
    return math.ceil(rows / batch_rows)


def step_numbers(rows: int, step: int, config: LlmTrainConfig) -> list[int]:
    """Return the numbers of an optimizer step's rows; every epoch has its own order of all rows."""
    epoch, within = divmod(step, steps_of_epoch(rows, config.batch_rows))
    order = list(range(rows))
    random.Random(f"{config.seed} epoch {epoch}").shuffle(order)
    return order[within * config.batch_rows : (within + 1) * config.batch_rows]


def hidden_names(item: Item, config: LlmTrainConfig, rng: random.Random) -> Item:
    """Return the item with each of its names hidden with its own chance."""
    keeps_model = rng.random() >= config.model_dropout
    keeps_benchmark = rng.random() >= config.benchmark_dropout
    return replace(
        item,
        source_model=item.source_model if keeps_model else None,
        benchmark=item.benchmark if keeps_benchmark else None,
    )
