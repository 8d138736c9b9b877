"""`pinocchio labels`: the make-up of rows before training or judging (C07-C11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from calibrator.lab.data.benchmarks.survey import survey, trained_models
from calibrator.rows.rows import parse_row
from pinocchio.commands import cli
from tests.builders.labelled_rows import write
from tests.builders.tiny_checkpoint import save_tiny


def rows_of(benchmark: str, right: int, wrong: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "question": f"{benchmark} {n}?",
            "response": "a",
            "benchmark": benchmark,
            "correct": int(n < right),
            **more,
        }
        for n in range(right + wrong)
    ]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["labels", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [
        *rows_of("easy", 9, 1, model="GPT-mini", domain="facts"),
        *rows_of("even", 4, 6, model="kimi", domain="math", images=["data:image/png;base64,AA=="]),
        *rows_of("hard", 1, 9),
    ]
    return write(tmp_path / "rows.jsonl", rows)


def test_benchmarks_out_of_the_band_are_named(file: Path) -> None:
    """Benchmarks outside 20 to 80 % right are named (C07), with domains and images (C08, C09)."""
    result = run(file)
    assert result.exit_code == 0, result.stderr
    lines = {line.split()[0]: line for line in result.stdout.splitlines()[1:]}
    assert list(lines) == ["easy", "even", "hard", "all"]
    assert "too easy" in lines["easy"]
    assert "too hard" in lines["hard"]
    assert "too" not in lines["even"]
    counts = [json.loads(line) for line in run(file, "--json").stdout.splitlines()]
    assert [one["is_in_band"] for one in counts] == [False, True, False, True]
    assert [one["image_rows"] for one in counts] == [0, 10, 0, 10]
    assert [one["domains"] for one in counts[:3]] == [["facts"], ["math"], []]
    assert counts[-1]["rows"] == counts[-1]["questions"] == 30
    assert counts[-1]["models"] == 2


@pytest.mark.parametrize(("accuracy", "is_in"), [(0.19, False), (0.2, True), (0.8, True)])
def test_the_band_has_its_ends(accuracy: float, is_in: bool) -> None:
    """Both ends belong to the band (C07)."""
    rows = [parse_row(row) for row in rows_of("b", round(100 * accuracy), 100)[:100]]
    assert survey(rows)[0].is_in_band == is_in


def test_models_of_the_training_are_found(file: Path, tmp_path: Path) -> None:
    """Models and questions of the training are found, in any case of letters (C11, D04)."""
    seen = save_tiny(tmp_path / "seen", source_models=("gpt-mini", "other"))
    result = run(file, "--calibrator", seen, "--strict")
    assert result.exit_code == 1
    assert "trained on 1 of these models: GPT-mini (10 rows)" in result.stderr
    unseen = save_tiny(tmp_path / "unseen", source_models=("other",))
    assert run(file, "--calibrator", unseen, "--strict").exit_code == 0
    train = write(tmp_path / "train.jsonl", rows_of("hard", 1, 2))
    shared = run(file, "--train", train, "--strict")
    assert shared.exit_code == 1
    assert "3 questions are in the training files too" in shared.stderr
    assert run(file, "--train", train).exit_code == 0


def test_copies_of_questions_in_the_training_are_found(tmp_path: Path) -> None:
    """A question of the training is found under other ids and another spelling (D04)."""
    question = "Which of these planets has the most moons, and since when?"
    file = write(tmp_path / "rows.jsonl", rows_of("a", 1, 1, question=question, question_id="a1"))
    copied = rows_of("b", 1, 0, question=question.upper(), question_id="b7")
    train = write(tmp_path / "train.jsonl", copied)
    assert "1 question is in the training" in run(file, "--train", train, "--strict").stderr


def test_rows_without_a_model_are_of_none() -> None:
    """A row without a model counts for none (C11)."""
    assert trained_models([parse_row(row) for row in rows_of("b", 1, 1)], ["", "x"]) == {}


def test_a_trained_model_is_found_under_whoevers_name() -> None:
    """A trained model is found after a slash and in any case of letters (C11)."""
    rows = [
        {**row, "model": name} for name in ("Own/Big-7B", "big-8b") for row in rows_of("b", 1, 1)
    ]
    found = trained_models([parse_row(row) for row in rows], ["Big-7b"])
    assert list(found) == ["Own/Big-7B"]


@pytest.mark.parametrize(
    "command",
    [
        ["labels"],
        ["evaluate", "--calibrator", "fake:0.5"],
        ["advise", "--calibrator", "fake:0.5"],
    ],
    ids=lambda words: str(words[0]),
)
def test_the_reason_comes_before_the_table(command: list[str], tmp_path: Path) -> None:
    """Bad rows are named before the table."""
    rows = rows_of("even", 40, 60)
    rows[3]["correct"], rows[7]["correct"] = "1", 0.3
    path = write(tmp_path / "rows.jsonl", rows)
    done = CliRunner().invoke(cli, [command[0], str(path), *command[1:]])
    lines = done.output.splitlines()
    assert done.exit_code == 1, done.output
    assert lines[0].startswith(f"{path}:4: 'correct' must be 0 or 1")
    assert lines[1].startswith(f"{path}:8: 'correct' must be 0 or 1")
    assert lines[2] == "pinocchio: 2 of 100 rows could not be used"
    assert len(lines) > 4
    assert [line for line in lines[3:] if str(path) in line and "must be" in line] == []
