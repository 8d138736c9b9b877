"""`pinocchio evaluate --sensitivity`, its files, the page and the model card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.evaluate import Evaluation, read_evaluation
from calibrator.lab.judging.sensitivity.tables import TITLE
from calibrator.lab.reporting.model_card import BEGIN, END, figures_of
from calibrator.lab.reporting.report import render
from pinocchio.commands import cli
from tests.builders.labelled_rows import write
from tests.calibrator.lab.judging.sensitivity.test_pairs import long_row


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    rows = [
        {**long_row(n, name).raw, "id": f"{name}{n}", "correct": int(n < 24)}
        for name in ("riddles", "trivia")
        for n in range(32)
    ]
    return write(tmp_path / "test.jsonl", rows)


@pytest.fixture
def written(tmp_path: Path, test_file: Path) -> Path:
    """Return the file that `-o` writes."""
    output = tmp_path / "all.json"
    options = ("--calibrator", "fake:0.7", "--sensitivity", "-o", output)
    assert run("evaluate", test_file, *options).exit_code == 0
    return output


def test_the_figures_are_printed_first(test_file: Path) -> None:
    """Sensitivity is printed first, and in a column of the table below."""
    result = run("evaluate", test_file, "--calibrator", "fake:0.7", "--sensitivity")
    assert result.exit_code == 0, result.stderr
    parts = [part.splitlines() for part in result.stdout.split("\n\n")]
    assert parts[0][0] == "fake:0.7, right replies made wrong"
    first = {line.split("  ")[0]: line.split()[-6:] for line in parts[0][2:]}
    assert first["another question"] == ["48", "0.500", "0.500", "0.700", "0.700", "0.000"]
    assert "final option" not in first  # no reply has one
    assert [line.split()[0] for line in parts[1][1:]] == [
        form for form in ("short", "sentence", "both") for _ in range(2)
    ]
    assert [line.split()[0] for line in parts[2]] == ["AUROC", "riddles", "trivia"]
    head, riddles = parts[3][1:3]
    assert head.endswith("AUROC  95 % over questions  sensitivity  within  Brier    ECE")
    assert riddles.split()[-4] == "0.500"
    assert "nan" not in result.stdout


def test_json_lines_have_every_figure(test_file: Path) -> None:
    """JSON has each kind on each benchmark, their mean, and the everyday answers."""
    options = ("--calibrator", "fake:0.7", "--sensitivity", "--json")
    result = run("evaluate", test_file, *options)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]
    seen = [line for line in lines if line["kind"] == "sensitivity"]
    assert {line["group"] for line in seen} == {"riddles", "trivia", "mean over benchmarks"}
    one = next(line for line in seen if line["corruption"] == "echo" and line["group"] == "trivia")
    assert (one["method"], one["pairs"], one["auroc"], one["fall"]) == ("fake:0.7", 24, 0.5, 0)
    assert sum(line["kind"] == "everyday" for line in lines) == 12


def test_without_the_option_nothing_is_made(test_file: Path, tmp_path: Path) -> None:
    """Without the option the output has no sensitivity."""
    output = tmp_path / "plain.json"
    result = run("evaluate", test_file, "--calibrator", "fake:0.7", "-o", output)
    assert "sensitivity" not in result.stdout
    assert "sensitivity" not in json.loads(output.read_text(encoding="utf-8"))
    assert read_evaluation(output).sensitivity is None


def test_what_is_written_is_read_again(written: Path) -> None:
    """All figures of the file are read again, also missing ones."""
    evaluation = read_evaluation(written)
    found = evaluation.sensitivity
    assert found is not None
    assert found.calibrator == "fake:0.7"
    assert found.find("last number", "riddles") is not None
    assert found.benchmarks == ["riddles", "trivia"]
    assert len(found.everyday) == 12
    assert [evaluation.sensitivity_on(one) for one in evaluation.of_kind("benchmark")] == [0.5, 0.5]


@pytest.mark.parametrize("broken", ["[]", "null", '{"calibrator": "x"}', '{"figures": [1]}'])
def test_a_broken_sensitivity_is_refused(written: Path, broken: str) -> None:
    """A broken sensitivity is refused like a file of another version."""
    values = json.loads(written.read_text(encoding="utf-8"))
    values["sensitivity"] = json.loads(broken)
    written.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(JudgingError, match="no evaluation that this version wrote"):
        read_evaluation(written)


def test_scores_of_a_file_are_refused(test_file: Path, tmp_path: Path) -> None:
    """Sensitivity needs a calibrator; scores of a file are refused."""
    scores = tmp_path / "scores.jsonl"
    run("score", test_file, "-o", scores, "--brief", "--calibrator", "fake:0.7")
    result = run("evaluate", test_file, "--scores", scores, "--sensitivity")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--sensitivity needs a calibrator, which scores changed replies" in result.stderr


def test_too_few_right_replies_are_reported(tmp_path: Path) -> None:
    """With too few right replies only the everyday answers are measured, and the output says so."""
    test = write(tmp_path / "few.jsonl", [long_row(n).raw for n in range(5)])
    result = run("evaluate", test, "--calibrator", "fake:0.7", "--sensitivity")
    assert result.exit_code == 0
    assert "20 of a benchmark are needed" in result.stderr
    assert "everyday answers" in result.stdout
    assert "made wrong by" not in result.stdout


def test_the_page_shows_it_as_its_first_table(written: Path) -> None:
    """The page shows sensitivity first, each kind explained."""
    evaluation = read_evaluation(written)
    text = render(evaluation)
    assert text.index(TITLE) < text.index("<table>") < text.index("the last number changed")
    assert text.count("<table>", 0, text.index("the last number changed")) == 1
    assert "AUROC, right against made wrong" in text
    assert "Sensitivity: the mean over kinds" in text
    plain = render(without(evaluation))
    assert TITLE not in plain
    assert "made wrong" not in plain


def test_the_card_has_it_as_its_first_table(written: Path, tmp_path: Path) -> None:
    """The card shows sensitivity first, and each table below has a column."""
    card = tmp_path / "README.md"
    card.write_text(f"# A card\n{BEGIN}\n{END}\n", encoding="utf-8")
    assert run("evaluate", written, "--card", card).exit_code == 0
    tables = [part for part in card.read_text(encoding="utf-8").split("\n\n") if part[0] == "|"]
    assert tables[0].startswith("| right replies against | benchmarks | pairs | AUROC |")
    assert (
        "| the last number changed | 2 | 48 | 0.500 | 0.500 | 0.700 | 0.700 | 0.000 |" in tables[0]
    )
    assert tables[1].startswith("| everyday answers |")
    assert "| AUROC pooled | mean over benchmarks | sensitivity |" in tables[2]
    assert "| AUROC | sensitivity |" in tables[3]
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1
    plain = figures_of(without(read_evaluation(written)))
    assert "sensitivity" not in plain


def without(evaluation: Evaluation) -> Evaluation:
    return replace(evaluation, sensitivity=None)
