"""Labelled rows as a language-model calibrator is shown them: split by question, names hidden."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrator.errors import TrainingError
from calibrator.llm.training.config import LlmTrainConfig
from calibrator.rows.rows import Row
from calibrator.rows.selection import select_rows
from calibrator.scorer import Item


@dataclass(frozen=True, slots=True)
class Sample:
    """One labelled answer; `target` is 1 where it is correct."""

    item: Item
    target: int
    question_id: str

    def shown_as(self, item: Item) -> Sample:
        return replace(self, item=item)


@dataclass(frozen=True, slots=True)
class Samples:
    """What a run is trained on and what it is validated on; they share no question (D04)."""

    train: list[Sample]
    validation: list[Sample]

    @property
    def source_models(self) -> tuple[str, ...]:
        return _named([sample.item.source_model for sample in self.train])

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return _named([sample.item.benchmark for sample in self.train])

    @property
    def questions(self) -> int:
        return len({sample.question_id for sample in self.train})


def _named(found: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(sorted({name for name in found if name}))


def read_samples(config: LlmTrainConfig) -> Samples:
    """The rows of a run's files, split; raises TrainingError where one side would be empty."""
    rows, held = select_rows([Path(path) for path in config.data], config.selection, "read")
    if not held:
        raise TrainingError("too few questions: none is left for validation")
    held = random.Random(config.seed).sample(held, min(config.validation_rows, len(held)))
    return Samples([sample_of(row) for row in rows], [sample_of(row) for row in held])


def sample_of(row: Row) -> Sample:
    """An answer that says nothing is incorrect, whatever its label (D03)."""
    is_correct = bool(row.correct) and bool(row.answer.strip())
    return Sample(row.item("all"), int(is_correct), row.question_id)


def check_questions_apart(samples: Samples) -> None:
    """That no question is on both sides (D04); raises TrainingError."""
    both = {s.question_id for s in samples.train} & {s.question_id for s in samples.validation}
    if both:
        raise TrainingError(
            f"{len(both)} questions are trained on and validated on, the first is {min(both)!r}"
        )


def steps_of_epoch(rows: int, batch_rows: int) -> int:
    return math.ceil(rows / batch_rows)


def step_numbers(rows: int, step: int, config: LlmTrainConfig) -> list[int]:
    """Which rows an optimizer step sees; every epoch has its own order of all of them."""
    epoch, within = divmod(step, steps_of_epoch(rows, config.batch_rows))
    order = list(range(rows))
    random.Random(f"{config.seed} epoch {epoch}").shuffle(order)
    return order[within * config.batch_rows : (within + 1) * config.batch_rows]


def hidden_names(item: Item, config: LlmTrainConfig, rng: random.Random) -> Item:
    """The item as it is shown this time, each of its names hidden with its chance."""
    keeps_model = rng.random() >= config.model_dropout
    keeps_benchmark = rng.random() >= config.benchmark_dropout
    return replace(
        item,
        source_model=item.source_model if keeps_model else None,
        benchmark=item.benchmark if keeps_benchmark else None,
    )
