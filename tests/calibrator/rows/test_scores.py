"""Scores of many rows: computed in batches, or read from a file and matched by id."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator import Item, OtherReply, RowError, Score, provenance
from calibrator.errors import JudgingError
from calibrator.rows.rows import Row, Tags
from calibrator.rows.scores import (
    BATCH,
    BATCH_CHARACTERS,
    Scores,
    read_kinds,
    read_scores,
    score_items,
    score_kinds,
    score_rows,
    scored_line,
    write_scores,
)
from tests.builders.labelled_rows import labelled, write
from tests.running.live_proxy import HearingScorer

# --- scoring many items -------------------------------------------------------------------------


@dataclass
class Recorder:
    """A scorer that scores by length and records its batches."""

    batches: list[list[Item]] = field(default_factory=list)
    name: str = "recorder"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        self.batches.append(list(items))
        return [Score(len(item.answer), len(item.answer)) for item in items]


@given(st.lists(st.integers(0, 30_000), max_size=80))
def test_scores_come_back_in_order(sizes: list[int]) -> None:
    """Each item gets its own score, in order, from bounded batches."""
    scorer = Recorder()
    done: list[int] = []
    items = [Item("", "x" * size) for size in sizes]
    scores = score_items(scorer, items, done.append)
    assert [score.confidence for score in scores] == sizes
    assert sum(done) == len(sizes)
    for batch in scorer.batches:
        longest = max(len(item.answer) for item in batch)
        assert len(batch) <= BATCH
        assert len(batch) == 1 or longest * len(batch) <= BATCH_CHARACTERS


@pytest.mark.parametrize(
    ("tags", "names"),
    [
        ("served", ("gpt-small", None)),
        ("all", ("gpt-small", "arithmetic")),
        ("none", (None, None)),
    ],
)
def test_a_scorer_hears_the_names_it_may_know(
    tags: Tags, names: tuple[str | None, str | None]
) -> None:
    """A scorer gets the names that the tags allow: as served the model alone (K10)."""
    scorer, rows = Recorder(), labelled(1, seed=1)
    score_rows(scorer, rows, tags)
    ((item,),) = scorer.batches
    assert (item.source_model, item.benchmark) == names
    assert item.question == rows[0].question


# --- files of scores ----------------------------------------------------------------------------


def test_scores_are_found_by_id(tmp_path: Path) -> None:
    """Scores are found by id in any order, and `confidence` counts before `score`."""
    rows = labelled(3, seed=1)
    lines: list[dict[str, Any]] = [
        {"id": "someone else's", "confidence": 0.5},
        {"id": "1-2", "score": 0.3},
        {"id": "1-0", "score": 0.9, "confidence": 0.1, "calibrator": "tiny@1", "tags": "none"},
        {"id": "1-1", "confidence": 1, "calibrator": "tiny@1", "tags": "none"},
    ]
    found = read_scores(write(tmp_path / "s.jsonl", lines), rows)
    assert found.confidence.tolist() == [0.1, 1.0, 0.3]
    assert (found.name, found.tags) == ("tiny@1", "none")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Scores survive their file to six digits, with name and tags."""
    rows = labelled(20, seed=1)
    scores = Scores("mine", "all", np.linspace(0, 1, 20))
    write_scores(tmp_path / "s.jsonl", rows, scores)
    found = read_scores(tmp_path / "s.jsonl", rows)
    assert found.confidence == pytest.approx(scores.confidence, abs=1e-6)
    assert (found.name, found.tags) == ("mine", "all")
    assert read_scores(tmp_path / "s.jsonl", rows, "yours").name == "yours"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "Expecting property name"),
        ("5", "a score needs the 'id' of its row"),
        ('{"confidence": 0.5}', "a score needs the 'id' of its row"),
        ('{"id": "1-1"}', "'score' must be a number from 0 to 1, not None"),
        ('{"id": "1-1", "confidence": NaN}', "'confidence' must be a number from 0 to 1, not nan"),
        ('{"id": "1-1", "confidence": 1.5}', "not 1.5"),
        ('{"id": "1-1", "confidence": "0.5"}', "not '0.5'"),
        ('{"id": "1-1", "confidence": true}', "not True"),
        ('{"id": "1-0", "confidence": 0.7}', "a second score for id '1-0'"),
        ("[" * 100_000, "nested too deeply"),
        ("\xff", "utf-8"),
    ],
)
def test_a_line_that_is_no_score_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    """A line that is no score is refused with its file and line."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"id": "1-0", "confidence": 0.5}\n\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(RowError, match=r"s\.jsonl:3: ") as caught:
        read_scores(path, labelled(2, seed=1))
    assert sentence in str(caught.value)


def test_a_row_without_a_score_is_reported(tmp_path: Path) -> None:
    """A row without a score is reported by its id."""
    path = write(tmp_path / "s.jsonl", [{"id": "1-0", "confidence": 0.5}])
    with pytest.raises(JudgingError, match="2 of 3 rows have no score, the first is id '1-1'"):
        read_scores(path, labelled(3, seed=1))


def test_rows_without_an_id_have_a_digest(tmp_path: Path) -> None:
    """Rows without an id are matched by a digest."""
    rows = labelled(3, seed=1)
    for row in rows:
        del row.raw["id"]
    scores = Scores("words", "served", np.array([0.1, 0.2, 0.3]), "words")
    write_scores(tmp_path / "w.jsonl", rows, scores)
    found = read_scores(tmp_path / "w.jsonl", rows[::-1])
    assert found.confidence.tolist() == [0.3, 0.2, 0.1]
    assert len({row.id for row in rows}) == 3
    other = replace(rows[0], raw={**rows[0].raw, "model": "another"})
    with pytest.raises(JudgingError, match="1 of 1 rows have no score, the first is id 'sha256:"):
        read_scores(tmp_path / "w.jsonl", [other])


def test_ids_may_be_numbers(tmp_path: Path) -> None:
    """An id may be a number."""
    rows = labelled(1, seed=1)
    rows[0].raw["id"] = 17
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps({"id": 17, "confidence": 0.25}))
    assert read_scores(path, rows).confidence.tolist() == [0.25]


def hearing(count: int) -> tuple[HearingScorer, list[Row]]:
    """Return a scorer that reads other replies, and rows; every second one has an agreeing one."""
    rows = [replace(row, answer="Paris p=0.5") for row in labelled(count, seed=1)]
    agreeing = (OtherReply("Paris"),)
    return HearingScorer(), [
        replace(row, others=agreeing if at % 2 else ()) for at, row in enumerate(rows)
    ]


def test_numbers_that_know_others_have_a_name_of_their_own() -> None:
    """Numbers that know others have their own name and rows.

    Numbers of replies alone ignore the others of a row.
    """
    scorer, rows = hearing(4)
    alone, knowing = score_kinds(scorer, rows)
    assert (alone.name, alone.confidence.tolist()) == ("words@1", [0.5] * 4)
    assert (knowing.calibrator, knowing.name) == (
        "words@1+opinion@1",
        "words@1+opinion@1, on 2 of 4 rows",
    )
    assert knowing.confidence.tolist() == [0.5, 0.7, 0.5, 0.7]
    assert score_rows(scorer, rows).confidence.tolist() == [0.5] * 4
    assert [each.name for each in score_kinds(scorer, rows[::2])] == ["words@1"]
    assert score_kinds(scorer, rows[1::2])[1].name == "words@1+opinion@1"


def test_a_file_of_both_kinds_is_taken_apart(tmp_path: Path) -> None:
    """A file with both kinds of numbers is separated."""
    scorer, rows = hearing(4)
    path = tmp_path / "s.jsonl"
    lines = [
        scored_line(row, score, provenance(scorer, score), "served", is_brief=True)
        for row, score in zip(rows, score_items(scorer, [r.item() for r in rows]), strict=True)
    ]
    path.write_text("".join(lines))
    alone, knowing = read_kinds(path, rows)
    assert (alone.name, alone.confidence.tolist()) == ("words@1", [0.5] * 4)
    assert knowing.name == "words@1+opinion@1, on 2 of 4 rows"
    assert knowing.confidence.tolist() == [0.5, 0.7, 0.5, 0.7]
    assert [each.name for each in read_kinds(path, rows, "mine")] == [
        "mine",
        "mine, knowing others, on 2 of 4 rows",
    ]
    path.write_text("".join(line.replace('"alone"', '"other"') for line in lines))
    with pytest.raises(JudgingError, match="lacks `alone`"):
        read_kinds(path, rows)
