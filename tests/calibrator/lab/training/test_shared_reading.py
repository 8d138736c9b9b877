"""A shared reading gives each fold of a study what it would read alone (K04, K05)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from calibrator.errors import TrainingError
from calibrator.lab.studies.embedded_fit import EmbeddedFit, SharedReading
from calibrator.lab.training.fits.inspection.lessons import ELSEWHERE
from calibrator.lab.training.run import TrainConfig, base_folder, prepare, read_selection
from calibrator.rows.rows import Row, parse_row
from calibrator.text.word_pieces import load_tokenizer
from tests.builders.labelled_rows import raw_rows, write
from tests.calibrator.lab.training.tiny_runs import small_training, with_made_vectors

LEFT_OUT = "gpt-small"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Limit libraries to one thread: several would add numbers in another order each time."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    with_made_vectors(monkeypatch)
    return [parse_row(raw) for raw in raw_rows(144, seed=1)]


@pytest.fixture
def config(rows: list[Row], tmp_path: Path) -> TrainConfig:
    """Return the configuration of a training on all rows."""
    data = write(tmp_path / "all.jsonl", [row.raw for row in rows])
    return replace(small_training(), data=(str(data),), has_calls=False)


def without(config: TrainConfig, rows: list[Row], path: Path) -> TrainConfig:
    """Return the configuration of the same training without one model."""
    data = write(path / "fold.jsonl", [row.raw for row in rows if row.model != LEFT_OUT])
    return replace(config, data=(str(data),))


def test_a_fit_on_all_rows_is_the_same_bit_for_bit(rows: list[Row], tmp_path: Path) -> None:
    """A fit on all rows is the same with a shared reading, bit for bit."""
    every = np.arange(len(rows))
    found = [
        EmbeddedFit(rows, tmp_path / str(trained), small_training(), trained=trained)(every, every)
        for trained in (0, len(rows))
    ]
    assert (found[0] == found[1]).all()
    assert len(set(found[0].tolist())) > len(rows) / 2


def test_a_fold_without_random_texts_and_topics_is_the_same_bit_for_bit(
    rows: list[Row], tmp_path: Path
) -> None:
    """A fold without random texts and topics is the same with a shared reading, bit for bit."""
    plain = replace(
        small_training(),
        addressed_share=0.0,
        outlier_share=0.0,
        has_forest=False,
        has_inspector=False,
    )
    is_left_out = np.array([row.model == LEFT_OUT for row in rows])
    fold = np.flatnonzero(~is_left_out), np.flatnonzero(is_left_out)
    found = [
        EmbeddedFit(rows, tmp_path / str(trained), plain, trained=trained)(*fold)
        for trained in (0, len(rows))
    ]
    assert (found[0] == found[1]).all()


def test_a_fold_learns_of_nothing_that_is_left_out(
    rows: list[Row], config: TrainConfig, tmp_path: Path
) -> None:
    """A fold's examples, base rate, validation and lessons are of its own rows."""
    tokenizer = load_tokenizer(base_folder())
    fold = without(config, rows, tmp_path)
    shared = SharedReading(config, tokenizer)(fold, tokenizer, chosen=read_selection(fold))
    alone = prepare(fold, tokenizer)
    readings = [
        [(e.source_model, e.question_id, e.benchmark, e.target) for e in each.train]
        for each in (shared, alone)
    ]
    assert readings[0] == readings[1]
    assert LEFT_OUT not in {model for model, *_ in readings[0]}
    assert shared.base_rate == alone.base_rate
    assert [e.answer.tolist() for e in shared.validation] == [
        e.answer.tolist() for e in alone.validation
    ]
    assert shared.described is not None
    assert len(shared.described.features) == len(shared.train)

    assert shared.taught is not None
    own = {(row.question, row.model, row.answer) for row in alone.rows}
    replies = {row.answer for row in alone.rows}
    lessons = [each for each in shared.taught.lessons if each.row and each.row in rows]
    assert {each.fault for each in lessons} >= {"", *ELSEWHERE}
    assert {
        (each.row.question, each.row.model, each.row.answer) for each in lessons if each.row
    } <= own
    assert {each.reply for each in lessons} - {""} <= replies
    every = SharedReading(config, tokenizer)(
        config, tokenizer, chosen=read_selection(config)
    ).taught
    assert every is not None
    assert len(lessons) < len(shared.taught.lessons) < len(every.lessons)


def test_no_row_for_validation_is_refused(rows: list[Row], config: TrainConfig) -> None:
    """A fold without rows for validation is refused."""
    tokenizer = load_tokenizer(base_folder())
    kept, _, calls = read_selection(config)
    with pytest.raises(TrainingError, match="none is left for validation"):
        SharedReading(config, tokenizer)(config, tokenizer, chosen=(kept, [], calls))
