"""Labelled rows from answers, the band of difficulty, and a split without shared questions."""

from __future__ import annotations

from typing import Any

import pytest

import calibrator.lab.data.benchmarks.splits
from calibrator.errors import JudgingError
from calibrator.lab.data.benchmarks.answered import TaskAnswer
from calibrator.lab.data.benchmarks.splits import split_collected
from calibrator.lab.data.benchmarks.tasks import Task
from calibrator.rows.rows import parse_row

Json = dict[str, Any]


def task(number: int, grader: Any = "number", benchmark: str = "sums") -> Task:
    text = f"Exercise {number}: what is {number} times {number + 1}, please?"
    messages = [{"role": "user", "content": text}]
    gold = (str(number * (number + 1)),)
    return Task(f"{benchmark}/{number}", benchmark, "math", messages, text, gold, grader)


def rows_of(count: int, share_right: float, benchmark: str = "sums") -> list[Json]:
    """Return two models' answers to each question, this share of them right."""
    found = []
    for n in range(count):
        for model in ("a", "b"):
            is_right = (2 * n + (model == "b")) % 10 < 10 * share_right
            text = f"It is {n * (n + 1) + (not is_right)}."
            row = TaskAnswer(task(n, benchmark=benchmark), model, {"content": text}).row({})
            assert row is not None
            found.append(row)
    return found


@pytest.mark.parametrize(
    ("message", "why", "correct"),
    [
        ({"content": "Answer: 6"}, "same", 1),
        ({"content": [{"type": "text", "text": "Answer: 6"}]}, "same", 1),
        ({"content": "7", "reasoning_content": "6"}, "other", 0),
        ({"content": None, "refusal": "No."}, "refusal", 0),
        ({"content": None}, "empty", 0),
        ({"content": "", "tool_calls": []}, "empty", 0),
    ],
)
def test_every_answer_becomes_a_row(message: Json, why: str, correct: int) -> None:
    """Every answer becomes a row, refusals and empty replies as incorrect (D03)."""
    row = TaskAnswer(task(2), "m", message).row({})
    assert row is not None
    assert (row["why"], row["correct"], row["graded_by"]) == (why, correct, "number")
    assert row["answer_format"] == "open, a number"
    assert parse_row(row).correct == correct


@pytest.mark.parametrize(
    ("verdicts", "correct"), [({"j": True, "k": False}, 1), ({"j": False}, 0), ({"j": None}, None)]
)
def test_a_judges_verdict_is_the_label(verdicts: dict[str, bool | None], correct: Any) -> None:
    """The first judge's verdict is the label, and without one there is no row (D02)."""
    row = TaskAnswer(task(2, "rubric"), "m", {"content": "six"}).row(verdicts)
    assert (row and row["correct"]) == correct
    if row:
        assert row["graded_by"] == "rubric, by j"
        assert row["verdicts"] == {judge: int(bool(verdict)) for judge, verdict in verdicts.items()}
    refused = TaskAnswer(task(2, "rubric"), "m", {"content": "I'm sorry, no."}).row({})
    assert refused is not None
    assert (refused["correct"], refused["why"]) == (0, "refusal")


def test_a_benchmark_out_of_the_band_is_left_out() -> None:
    """A benchmark that is nearly always or hardly ever solved is left out (C07)."""
    rows = [*rows_of(60, 0.5), *rows_of(60, 0.9, "easy"), *rows_of(60, 0.1, "hard")]
    found = split_collected(rows)
    assert {each.benchmark: each.is_in_band for each in found.counted} == {
        "easy": False,
        "hard": False,
        "sums": True,
    }
    assert {row["benchmark"] for row in [*found.train, *found.test]} == {"sums"}
    assert len(split_collected(rows, band=(0.05, 0.95)).train) > len(found.train)


def test_no_question_is_on_both_sides() -> None:
    """15 % of the questions are test questions, and none is on both sides (D04, D05)."""
    found = split_collected(rows_of(400, 0.5))
    train, test = ({row["question"] for row in side} for side in (found.train, found.test))
    assert not train & test
    assert len(train) + len(test) == 400
    assert len(test) / 400 == pytest.approx(0.15, abs=0.04)
    assert found.proof["shared_questions"] == 0
    assert (found.proof["train_questions"], found.proof["test_questions"]) == (
        len(train),
        len(test),
    )


def test_a_copy_under_another_id_stays_with_its_question() -> None:
    """A copy of a question is on the same side under another id."""
    rows = rows_of(200, 0.5)
    copies = [
        {**row, "question_id": f"copy/{n}", "benchmark": "copy"} for n, row in enumerate(rows)
    ]
    found = split_collected([*rows, *copies])
    assert not {row["question"] for row in found.train} & {row["question"] for row in found.test}


def test_a_split_that_shares_a_question_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split that shares a question is refused."""
    monkeypatch.setattr(calibrator.lab.data.benchmarks.splits, "without_copies", list)
    rows = rows_of(60, 0.5)
    copies = [{**row, "question_id": f"copy/{n}"} for n, row in enumerate(rows)]
    with pytest.raises(JudgingError, match="on both sides"):
        split_collected([*rows, *copies])
