"""Answers under other models' names: the score should follow the answer (paper L04)."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibrator.errors import JudgingError
from calibrator.lab.studies.answer_swap import ALL, OWN, SWAPPED, answer_pairs, answer_swap
from calibrator.lab.studies.studies import read_study
from calibrator.rows.rows import Row, parse_row
from calibrator.scorer import Item
from pinocchio.commands import cli
from tests.builders.labelled_rows import raw_rows, write
from tests.calibrator.lab.judging.sensitivity.scorers import FunctionScorer

MODELS = ("strong", "weak")


def rows(questions: int = 20) -> list[Row]:
    """Return a right reply of the strong and a wrong one of the weak model to each question."""
    return [
        parse_row(
            {
                "question_id": f"q{n}",
                "question": f"Question {n}?",
                "response": f"{'right' if model == 'strong' else 'wrong'} {n}",
                "model": model,
                "correct": int(model == "strong"),
            }
        )
        for n in range(questions)
        for model in MODELS
    ]


def auroc(scorer: FunctionScorer) -> dict[str, float]:
    return {one.label: one.auroc for one in answer_swap(scorer, rows()).entries}


def test_a_scorer_that_reads_the_answer_follows_it() -> None:
    """A scorer that reads the answer ranks right answers first under any name."""
    reading = FunctionScorer(lambda item: 0.9 if item.answer.startswith("right") else 0.1)
    assert auroc(reading) == {OWN: 1, SWAPPED: 1, ALL: 1}


def test_a_scorer_that_reads_the_name_is_found_out() -> None:
    """A scorer that reads the name is perfect on own answers and reversed on swapped ones."""
    naming = FunctionScorer(lambda item: 0.9 if item.source_model == "strong" else 0.1)
    assert auroc(naming) == {OWN: 1, SWAPPED: 0, ALL: 0.5}


def test_pairs_are_every_answer_in_every_slot() -> None:
    """Pairs are all answers under all names, of whole mixed questions, always the same."""
    mixed = rows(10)
    unmixed = [parse_row({**row.raw, "question_id": "x", "correct": 1}) for row in mixed[:2]]
    unnamed = [parse_row({**row.raw, "question_id": "y", "model": None}) for row in mixed[:2]]
    pairs = answer_pairs([*mixed, *unmixed, *unnamed])
    assert len(pairs) == 10 * 2 * 2
    assert all(answer.question_id == slot.question_id for answer, slot in pairs)
    bounded = answer_pairs(mixed, max_pairs=14)
    assert len(bounded) == 12
    assert bounded == answer_pairs(mixed, max_pairs=14)


def test_several_answers_of_one_model_share_its_slot() -> None:
    """Several answers of one model share its name."""
    again = [parse_row({**row.raw, "response": row.answer + " again"}) for row in rows()]
    assert len(answer_pairs([*rows(1), *again[:2]])) == 2 * 4
    study = answer_swap(FunctionScorer(lambda item: len(item.answer) / 99), [*rows(), *again])
    assert [entry.rows for entry in study.entries] == [80, 80, 160]


def test_the_scorer_gets_the_other_models_name() -> None:
    """The scorer gets question and answer together, with the other model's name."""
    seen: list[Item] = []

    def confidence(item: Item) -> float:
        seen.append(item)
        return 0.5

    answer_swap(FunctionScorer(confidence), rows())
    assert {(item.question, item.answer, item.source_model) for item in seen} == {
        (f"Question {n}?", f"{label} {n}", model)
        for n in range(20)
        for label in ("right", "wrong")
        for model in MODELS
    }


def test_nothing_to_swap_is_refused() -> None:
    """Without a question with a right and a wrong reply the study is refused."""
    with pytest.raises(JudgingError, match="no question has a right and a wrong reply"):
        answer_swap(FunctionScorer(lambda _: 0.5), [row for row in rows() if row.correct])


def test_the_study_runs_from_the_command_line(tmp_path: Path) -> None:
    """`pinocchio study answer-swap` prints and writes its three entries."""
    test = write(tmp_path / "test.jsonl", raw_rows(120, seed=2))
    output = tmp_path / "study.json"
    arguments = ["study", "answer-swap", str(test), "--calibrator", "fake:0.5", "-o", str(output)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.stderr
    study = read_study(output)
    assert [(one.label, one.auroc) for one in study.entries] == [
        (OWN, 0.5),
        (SWAPPED, 0.5),
        (ALL, 0.5),
    ]
    assert ALL in result.stdout
