"""What all fits of a study share, made once: examples, topics, lessons of the inspector.

A study trains without one maker, then without the next, and would read nine tenths of the same
texts each time, which takes longer than fitting. No label is looked at in what is shared. Beside a
training on a fold's rows alone three things are drawn otherwise: which replies address the reader,
the strange texts, and the lessons, of which a fold has those that its own rows tell. Topics and the
inspector's table of word pieces are made of all texts. A fit on all rows is the same bit for bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random

import numpy as np
from tokenizers import Tokenizer

from calibrator.inspection.lessons import Lesson
from calibrator.inspection.training import Taught, teach
from calibrator.rows.rows import Row
from calibrator.training.examples import Example, benchmark_weights, tokenize
from calibrator.training.run import (
    Chosen,
    TrainConfig,
    TrainData,
    base_folder,
    prepare,
    selected,
    validation_of,
)
from calibrator.training.stages import piece_vectors
from calibrator.training.stages.forest import Described, describe
from calibrator.training.stages.tower_stage import tower_rows

Key = tuple[str, str, str | None, str | None, int | None]


class SharedReading:
    """Prepares the rows of every fold, in the place of `prepare`.

    The `data` of `config` holds all rows that any fold trains on.
    """

    def __init__(
        self, config: TrainConfig, tokenizer: Tokenizer, say: Callable[[str], None] = print
    ) -> None:
        self._config, self._tokenizer, self._say = config, tokenizer, say
        self._rows, self._held, calls = selected(config)
        say("reading what all fits share")
        chosen = self._rows, self._held, calls
        shown = prepare(config, tokenizer, for_tower=True, chosen=chosen).train
        # a row may be held out here and be trained on where copies of its question are left out
        self._examples = [*shown, *self._converted(self._held)]
        self._strange = range(len(self._rows), len(shown))
        own = range(len(self._rows)), range(len(shown), len(self._examples))
        places = [place for part in own for place in part]
        self._places = dict(zip(_numbered([*self._rows, *self._held]), places, strict=True))

    def __call__(
        self,
        config: TrainConfig,
        tokenizer: Tokenizer,
        *,
        for_tower: bool = False,
        chosen: Chosen | None = None,
    ) -> TrainData:
        """Examples of a fold's `chosen` rows, validation rows as `prepare` takes them."""
        rows, held, calls = chosen or selected(config)
        strange = self._strange[: round(len(rows) * config.outlier_share)]
        at = [*(self._places[key] for key in _numbered(rows)), *strange]
        base_rate = sum(row.correct or 0 for row in rows) / len(rows)
        known = benchmark_weights([row.benchmark for row in rows], config.selection.balance_power)
        return TrainData(
            list(self._examples_of(rows, at, base_rate)),
            self._converted(validation_of(held, config, Random(config.seed))),
            rows,
            calls,
            np.concatenate([known, np.ones(len(strange))]),
            base_rate,
            self._described.of(np.array(at)) if config.has_forest else None,
            self._taught.where(_told_by(rows, self._rows)) if config.has_inspector else None,
        )

    def _converted(self, rows: Sequence[Row]) -> list[Example]:
        return tokenize(rows, self._tokenizer, self._config.layout, for_tower=True)

    def _examples_of(
        self, rows: Sequence[Row], at: Sequence[int], base_rate: float
    ) -> Iterator[Example]:
        """Those in these places, under the fold's own ids of questions and its own base rate."""
        for row, place in zip(rows, at[: len(rows)], strict=True):
            yield replace(self._examples[place], question_id=row.question_id)
        for place in at[len(rows) :]:
            yield replace(self._examples[place], target=base_rate)

    @cached_property
    def _described(self) -> Described:
        shown = len(self._rows) + len(self._strange)
        return describe(tower_rows(self._examples), self._config.forest, self._config.seed, shown)

    @cached_property
    def _taught(self) -> Taught:
        config, vectors = self._config, piece_vectors.piece_vectors(base_folder())
        given = self._rows, self._tokenizer, config.layout, vectors, config.inspector, config.seed
        return teach(*given, self._say)


def _key(row: Row) -> Key:
    """What an example and a lesson are made of."""
    return row.question, row.answer, row.model, row.benchmark, row.correct


def _numbered(rows: Sequence[Row]) -> Iterator[tuple[Key, int]]:
    """The key of each row, and how many equal ones stood before it."""
    seen: Counter[Key] = Counter()
    for row in rows:
        yield (key := _key(row)), seen[key]
        seen[key] += 1


def _told_by(rows: Sequence[Row], every: Sequence[Row]) -> Callable[[Lesson], bool]:
    """Whether a lesson, made of `every` row, can be made of these: its row is among them, and so is
    one that has the other reply in it."""
    gone = {_key(row) for row in every} - {_key(row) for row in rows}
    replies = [{(row.benchmark or "", row.answer) for row in part} for part in (every, rows)]
    unheard = replies[0] - replies[1]

    def is_told(lesson: Lesson) -> bool:
        is_gone = lesson.row is not None and _key(lesson.row) in gone
        return not is_gone and (lesson.benchmark, lesson.reply) not in unheard

    return is_told
