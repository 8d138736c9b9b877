"""A fit for studies that trains the shipped kind of calibrator for every fold.

The fold's rows go into a file, `calibrator.lab.training.train` runs on it as it would on any other,
and the checkpoint scores the judged rows as served. A run's folder is named by its rows, so that an
interrupted study is resumed.

What the folds share is computed once: examples, topics, lessons of the inspector. A study trains
without one maker, then without the next, and would read nine tenths of the same texts each time,
which takes longer than fitting. The shared work uses no label. Compared with a training on a fold's
rows alone, three things are drawn differently: which replies address the reader, the outliers, and
the lessons, of which a fold has those that its own rows can make. Topics and the inspector's table
of word pieces are made from all texts. A fit on all rows is the same bit for bit.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer

from calibrator.lab.training.fits.inspection.lessons import Lesson
from calibrator.lab.training.fits.inspection.training import TaughtLessons, teach
from calibrator.lab.training.rows.examples import Example, tokenize
from calibrator.lab.training.run import (
    Chosen,
    TrainConfig,
    TrainData,
    base_folder,
    prepare,
    read_selection,
    validation_of,
)
from calibrator.lab.training.stages import piece_vectors
from calibrator.lab.training.stages.forest import ForestInputs, describe
from calibrator.lab.training.tower_stage import tower_rows
from calibrator.lab.training.train import train as run
from calibrator.loading import load_scorer
from calibrator.metrics.metrics import Floats, Ints
from calibrator.rows.rows import Row
from calibrator.rows.scores import score_rows
from calibrator.text.word_pieces import load_tokenizer

Key = tuple[str, str, str | None, str | None, int | None]

# These parts are left out, with a message, where a fold has too few rows for them.
PARTS = ("abilities", "inspector", "calls")


def as_shipped() -> TrainConfig:
    """Return the training configuration of the shipped calibrator, without data.

    It has tower, forest, abilities, inspector, knowledge and trees for calls, but no second stage,
    which reads other replies, as rows of a study have none.
    """
    return TrainConfig(
        data=(),
        name="study",
        has_forest=True,
        has_abilities=True,
        has_inspector=True,
        has_knowledge=True,
        has_calls=True,
    )


class EmbeddedFit:
    """A `Fit` of a study; `config` says how to train, with the fold's data.

    `folder` keeps the runs, about 100 MB each. The first `trained` of the rows are all that any
    fold trains on, and the parts that fits share are read from them once; with 0 each fit reads its
    own.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        folder: Path,
        config: TrainConfig,
        say: Callable[[str], None] = print,
        trained: int = 0,
    ) -> None:
        """Keep the arguments; nothing is read or trained yet."""
        self.rows, self.folder, self.config, self.say = rows, folder, config, say
        self.trained = trained

    def __call__(self, train: Ints, judged: Ints) -> Floats:
        """Train on the rows numbered `train`; return P(correct) of those numbered `judged`, (n,).

        They are scored as served. An interrupted or finished training on the same rows in the
        folder is resumed or reused. Parts that too few rows allow are left out.
        """
        data = self._write([self.rows[i] for i in train])
        config = replace(self.config, data=(str(data),))
        place = data.parent / ("shared" if self.trained else "run")
        preparing = self._shared_reading if self.trained else prepare
        checkpoint = run(place, config, self.say, optional=PARTS, preparing=preparing)
        scorer = load_scorer(str(checkpoint))
        return score_rows(scorer, [self.rows[i] for i in judged]).confidence

    @cached_property
    def _shared_reading(self) -> SharedReading:
        """What all fits share, read from the first `trained` rows."""
        config = replace(self.config, data=(str(self._write(self.rows[: self.trained])),))
        return SharedReading(config, load_tokenizer(base_folder()), self.say)

    def _write(self, rows: Sequence[Row]) -> Path:
        """Write the rows to `rows.jsonl` in a folder named by their hash; return the file.

        A file that exists is left unchanged.
        """
        text = "".join(json.dumps(row.raw) + "\n" for row in rows)
        place = self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]
        place.mkdir(parents=True, exist_ok=True)
        path = place / "rows.jsonl"
        if not path.exists():
            path.write_text(text, encoding="utf-8")
        return path


class SharedReading:
    """A replacement for `prepare` that serves the rows of every fold.

    The `data` of `config` holds all rows that any fold trains on.
    """

    def __init__(
        self, config: TrainConfig, tokenizer: Tokenizer, say: Callable[[str], None] = print
    ) -> None:
        """Read all rows, make their examples and draw the outliers; `say` gets lines of progress.

        Raises TrainingError without rows to train on or to validate on.
        """
        self._config, self._tokenizer, self._say = config, tokenizer, say
        self._rows, self._held, calls = read_selection(config)
        say("reading what all fits share")
        chosen = self._rows, self._held, calls
        training = prepare(config, tokenizer, chosen=chosen).train
        # a row held out here may be trained on in a fold that leaves out copies of its question
        self._examples = [*training, *self._tokenize(self._held)]
        self._strange = range(len(self._rows), len(training))
        own = range(len(self._rows)), range(len(training), len(self._examples))
        places = [place for part in own for place in part]
        self._places = dict(zip(_number_rows([*self._rows, *self._held]), places, strict=True))

    def __call__(
        self,
        config: TrainConfig,
        tokenizer: Tokenizer,
        *,
        chosen: Chosen | None = None,
    ) -> TrainData:
        """Return the data of a fold, from examples that were made for all rows; see `prepare`.

        `chosen` are the fold's rows (training, validation, rows that call tools), read by `config`
        if None. The outliers are the first of the shared ones. Topics and lessons are added if the
        configuration has a forest or an inspector. `tokenizer` is ignored. Raises KeyError for a
        training row that is not among all rows, TrainingError without validation rows.
        """
        rows, held, calls = chosen or read_selection(config)
        strange = self._strange[: round(len(rows) * config.outlier_share)]
        at = [*(self._places[key] for key in _number_rows(rows)), *strange]
        base_rate = sum(row.correct or 0 for row in rows) / len(rows)
        return TrainData(
            list(self._examples_of(rows, at, base_rate)),
            self._tokenize(validation_of(held, config, Random(config.seed))),
            rows,
            calls,
            base_rate,
            self._description.rows_at(np.array(at)) if config.has_forest else None,
            self._lessons.where(_follows_from(rows, self._rows)) if config.has_inspector else None,
        )

    def _tokenize(self, rows: Sequence[Row]) -> list[Example]:
        """Return an example for each row, in order."""
        return tokenize(rows, self._tokenizer, self._config.layout)

    def _examples_of(
        self, rows: Sequence[Row], at: Sequence[int], base_rate: float
    ) -> Iterator[Example]:
        """Yield a fold's examples: of its rows, then of its outliers.

        `at` are their places among the shared examples, first one for each of `rows`. A row's
        example gets the row's own question id, which differs between folds; an outlier's target
        becomes `base_rate`.
        """
        for row, place in zip(rows, at[: len(rows)], strict=True):
            yield replace(self._examples[place], question_id=row.question_id)
        for place in at[len(rows) :]:
            yield replace(self._examples[place], target=base_rate)

    @cached_property
    def _description(self) -> ForestInputs:
        """The forest's input for all shared examples; made when first used.

        Topics are found in the examples of training rows and outliers alone.
        """
        trained = len(self._rows) + len(self._strange)
        return describe(tower_rows(self._examples), self._config.forest, self._config.seed, trained)

    @cached_property
    def _lessons(self) -> TaughtLessons:
        """The inspector's lessons of all training rows; made when first used, which takes long."""
        config, vectors = self._config, piece_vectors.piece_vectors(base_folder())
        shared = self._rows, self._tokenizer, config.layout, vectors, config.inspector
        return teach(*shared, config.seed, self._say)


def _key(row: Row) -> Key:
    """Return (question, answer, model, benchmark, label) of a row: all an example depends on."""
    return row.question, row.answer, row.model, row.benchmark, row.correct


def _number_rows(rows: Sequence[Row]) -> Iterator[tuple[Key, int]]:
    """Yield ((question, answer, model, benchmark, label), number) for each row, in order.

    The number counts the equal rows before it, 0 for the first. So each pair occurs once.
    """
    seen: Counter[Key] = Counter()
    for row in rows:
        yield (key := _key(row)), seen[key]
        seen[key] += 1


def _follows_from(rows: Sequence[Row], every: Sequence[Row]) -> Callable[[Lesson], bool]:
    """Return a function that says whether a lesson made from `every` row also follows from `rows`.

    It returns False if the lesson's own row is missing in `rows`, or if the lesson holds another
    row's reply and no row of its benchmark in `rows` has this reply.
    """
    gone = {_key(row) for row in every} - {_key(row) for row in rows}
    replies = [{(row.benchmark or "", row.answer) for row in part} for part in (every, rows)]
    missing = replies[0] - replies[1]

    def follows(lesson: Lesson) -> bool:
        """Return whether `rows` have the lesson's row and its other reply, each if it has one."""
        is_gone = lesson.row is not None and _key(lesson.row) in gone
        return not is_gone and (lesson.benchmark, lesson.reply) not in missing

    return follows
