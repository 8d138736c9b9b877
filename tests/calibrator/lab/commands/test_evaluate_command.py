"""`pinocchio evaluate` as a person runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from calibrator import load_scorer, opinion_of
from calibrator.errors import install_command
from calibrator.lab.judging.evaluation.evaluate import STATED_ROWS, read_evaluation
from calibrator.lab.reporting.model_card import BEGIN, BEGIN_OF, END
from pinocchio.commands import cli
from tests.builders.labelled_rows import raw_rows, write
from tests.builders.tiny_checkpoint import save_tiny

Json = dict[str, Any]
NAMES = {"names only: model", "names only: model and benchmark"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def evaluated(result: Result) -> dict[tuple[str, str], Json]:
    lines = [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]
    return {(found["group"], found["method"]): found for found in lines}


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    return write(tmp_path / "test.jsonl", raw_rows(120, seed=2))


@pytest.fixture
def train_file(tmp_path: Path) -> Path:
    return write(tmp_path / "train.jsonl", raw_rows(150, seed=1))


def test_evaluate_prints_figures_beside_baselines(test_file: Path, train_file: Path) -> None:
    """JSON has a line for each group and method, with the baselines (H01, I01-I05)."""
    result = run("evaluate", test_file, "--train", train_file, "--calibrator", "fake:0.5", "--json")
    assert result.exit_code == 0, result.stderr
    assert "baselines are fitted on 150 training rows" in result.stderr
    found = evaluated(result)
    everywhere = {method for group, method in found if group == "pooled"}
    assert everywhere == {"fake:0.5", "TF-IDF", "length"} | NAMES
    assert {one["kind"] for one in found.values()} == {
        "benchmark", "model", "domain", "tier", "task", "mean", "pooled",
    }  # fmt: skip
    assert found["pooled", "fake:0.5"]["auroc"] == 0.5
    assert found["pooled", "length"]["auroc"] > 0.6
    assert found["pooled", "length"]["rows"] == 120


def test_numbers_that_know_others_are_judged_under_their_own_name(tmp_path: Path) -> None:
    """Numbers that know others are judged under their own name, beside those of replies alone."""
    rows = [row | {"id": str(at)} for at, row in enumerate(raw_rows(60, seed=2))]
    both = [row | ({"others": [row["response"]]} if at % 2 else {}) for at, row in enumerate(rows)]
    bare, mixed = write(tmp_path / "bare.jsonl", rows), write(tmp_path / "mixed.jsonl", both)
    embedded = load_scorer("embedded")
    knowing = f"{opinion_of(embedded)}, on 30 of 60 rows"
    without = evaluated(run("evaluate", bare, "--json"))
    found = evaluated(run("evaluate", mixed, "--json"))
    names = {method for group, method in found if group == "pooled"}
    assert names == {embedded.name, knowing}
    for name in ("auroc", "brier", "ece"):
        figures = [each["pooled", embedded.name][name] for each in (without, found)]
        assert figures[0] == pytest.approx(figures[1], rel=1e-6)
    assert found["pooled", knowing]["brier"] != found["pooled", embedded.name]["brier"]
    scores = tmp_path / "scores.jsonl"
    assert run("score", mixed, "--brief", "-o", scores).exit_code == 0
    read = evaluated(run("evaluate", mixed, "--scores", scores, "--json"))
    assert {method for group, method in read if group == "pooled"} == names
    assert read["pooled", knowing]["brier"] == pytest.approx(found["pooled", knowing]["brier"])


def test_stated_confidence_is_judged_on_its_rows(test_file: Path, train_file: Path) -> None:
    """Stated confidence is judged on the rows that state one, beside the calibrator (I01-I05)."""
    result = run("evaluate", test_file, "--train", train_file, "--calibrator", "fake:0.5", "--json")
    found = evaluated(result)
    methods = {method for group, method in found if group == STATED_ROWS}
    assert methods == {
        "fake:0.5",
        "stated confidence, raw",
        "stated confidence, Platt",
        "stated confidence, isotonic",
        "stated confidence and length",
    }
    assert {found[STATED_ROWS, method]["rows"] for method in methods} == {60}
    assert found[STATED_ROWS, "stated confidence, raw"]["auroc"] > 0.7


def test_evaluate_prints_tables(test_file: Path, train_file: Path) -> None:
    """The tables show the judged method by group, then every method on all rows."""
    result = run("evaluate", test_file, "--train", train_file, "--calibrator", "fake:0.5")
    assert result.exit_code == 0
    first, second, third, fourth = (part.splitlines() for part in result.stdout.split("\n\n"))
    assert first[0] == "fake:0.5"
    assert [line.split("  ")[0] for line in first[2:]] == [
        "BFCL-simple",
        "arithmetic",
        "history",
        "text",
        "mean over benchmarks",
        "pooled",
    ]
    assert first[-1].split()[3] == "0.500"
    assert [line.split("  ")[0] for line in second[2:4]] == ["fake:0.5", "TF-IDF"]
    assert third[0] == STATED_ROWS
    assert len(third) == 2 + 5
    assert re.match(r"within \d+ questions, \d+ replies", fourth[0])
    assert "nan" not in result.stdout


WITHOUT_SKLEARN = """
import sys
sys.modules["sklearn"] = None
from pinocchio.__main__ import main
sys.argv = ["pinocchio", *sys.argv[1:]]
main()
"""


def test_without_scikit_learn_the_other_baselines_stand(
    tmp_path: Path, test_file: Path, train_file: Path
) -> None:
    """Without scikit-learn the other baselines are judged, and the output says so."""
    arguments = [test_file, "--train", train_file, "--calibrator", "fake:0.5", "--json"]
    page = tmp_path / "page.html"
    command = [sys.executable, "-c", WITHOUT_SKLEARN, "evaluate", *arguments, "--report", page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    sentence = "without TF-IDF and length: scikit-learn is not installed; it comes with: "
    assert sentence + install_command("train") in done.stderr.splitlines()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["method"] for one in lines if one["group"] == "pooled"} == {"fake:0.5"} | NAMES
    stated = {one["method"] for one in lines if one["group"] == STATED_ROWS}
    assert stated == {"fake:0.5", "stated confidence, raw"}
    assert page.exists()


def test_no_baselines_are_fitted_where_none_are_wanted(tmp_path: Path) -> None:
    """With --no-baselines none is fitted, even beside training rows; --train excludes it."""
    for name, seed in (("train", 1), ("test", 2)):
        write(tmp_path / name / "rows.jsonl", raw_rows(60, seed))
    arguments = ("evaluate", tmp_path / "test" / "rows.jsonl", "--calibrator", "fake:0.5", "--json")
    result = run(*arguments, "--no-baselines")
    assert (result.exit_code, result.stderr) == (0, "")
    assert {method for _, method in evaluated(result)} == {"fake:0.5"}
    both = run(*arguments, "--no-baselines", "--train", tmp_path / "train")
    assert both.exit_code == 2
    assert "--train has the rows of baselines; leave out --no-baselines" in both.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train", "{tmp}/test.jsonl"], "questions are both trained on and judged"),
        (["--train", "{tmp}/ones.jsonl"], "there are only correct rows"),
        (["--tags", "some"], "--tags are served, all, none"),
        (["--train", "{tmp}/nowhere.jsonl"], "nowhere.jsonl cannot be read: No such file"),
    ],
)
def test_mistakes_are_reported_before_scoring(
    tmp_path: Path,
    test_file: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mistake that would end the work is reported before any row is scored."""
    monkeypatch.setenv("PINOCCHIO_CACHE", str(tmp_path / "kept"))
    write(tmp_path / "ones.jsonl", [{**row, "correct": 1} for row in raw_rows(50, seed=1)])
    words = [argument.format(tmp=tmp_path) for argument in arguments]
    checkpoint = save_tiny(tmp_path / "tiny")
    result = run("evaluate", test_file, "--calibrator", checkpoint, *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "kept").exists()


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    """A missing file gives the same sentence in each command."""
    for command in ("evaluate", "score", "labels", "advise"):
        result = run(command, tmp_path / "nope.jsonl")
        assert result.exit_code == 2
        sentence = f"pinocchio: {tmp_path}/nope.jsonl cannot be read: No such file or directory\n"
        assert result.stderr == sentence


def test_training_rows_are_found_beside_the_test_rows(tmp_path: Path) -> None:
    """For DATA/test/x.jsonl the baselines are fitted on DATA/train/*."""
    for name, seed in (("train", 1), ("test", 2)):
        write(tmp_path / name / "rows.jsonl", raw_rows(60, seed))
    write(tmp_path / "train" / "more__nc.jsonl", raw_rows(60, seed=3))
    result = run("evaluate", tmp_path / "test" / "rows.jsonl", "--calibrator", "fake:0.5", "--json")
    assert ("pooled", "TF-IDF") in evaluated(result)
    assert "baselines are fitted on 60 training rows" in result.stderr


def test_without_training_rows_the_calibrator_is_judged_alone(test_file: Path) -> None:
    """Without training rows the calibrator is judged alone, and the output says so."""
    result = run("evaluate", test_file, "--calibrator", "fake:0.5", "--json")
    assert result.exit_code == 0
    assert "no training rows beside the test rows, so no baselines" in result.stderr
    assert {method for _, method in evaluated(result)} == {"fake:0.5"}


def test_given_scores_are_judged_without_scoring(tmp_path: Path, test_file: Path) -> None:
    """Scores of a file are judged like new ones, and several files are compared."""
    scores, checkpoint = tmp_path / "scores.jsonl", save_tiny(tmp_path / "tiny")
    options = ("--calibrator", checkpoint)
    run("score", test_file, "-o", scores, "--brief", *options)
    live = evaluated(run("evaluate", test_file, *options, "--json"))
    read = evaluated(run("evaluate", test_file, "--scores", scores, "--json"))
    assert set(live) == set(read)
    for key, one in live.items():
        assert read[key] == pytest.approx(one, abs=2e-3, nan_ok=True)
    output = tmp_path / "evaluation.json"
    two = ("--scores", f"one={scores}", "--scores", f"two={scores}", "-o", output)
    assert run("evaluate", test_file, *two).exit_code == 0
    (comparison,) = read_evaluation(output).comparisons
    assert (comparison.method, comparison.baseline, comparison.pooled.p) == ("one", "two", 1.0)


def test_kept_scores_can_be_judged_again(tmp_path: Path, test_file: Path, train_file: Path) -> None:
    """Kept scores are judged again with the same figures."""
    kept = tmp_path / "kept"
    options = ("--train", train_file, "--keep-scores", kept, "--calibrator", "fake:0.5", "--json")
    first = evaluated(run("evaluate", test_file, *options))
    assert {path.name for path in kept.iterdir()} == {
        "fake_0.5.jsonl",
        "TF-IDF.jsonl",
        "length.jsonl",
        "names_only_model.jsonl",
        "names_only_model_and_benchmark.jsonl",
    }
    again = evaluated(run("evaluate", test_file, "--scores", kept / "TF-IDF.jsonl", "--json"))
    expected = first["pooled", "TF-IDF"]["auroc"]
    assert again["pooled", "TF-IDF"]["auroc"] == pytest.approx(expected, abs=1e-4)


def test_names_are_given_only_with_tags(tmp_path: Path) -> None:
    """The model's name changes the number only with tags for it, a benchmark's never (K10)."""
    tagged = [{**row, "model": "known-model", "benchmark": "gpqa"} for row in raw_rows(40, seed=2)]
    test, checkpoint = write(tmp_path / "test.jsonl", tagged), save_tiny(tmp_path / "tiny")
    arguments = ("evaluate", test, "--calibrator", checkpoint, "--json")
    found = evaluated(run(*arguments, "--tags", "served,all,none"))
    figures = [one["brier"] for (group, _), one in found.items() if group == "pooled"]
    served_as, named, unnamed = figures
    assert served_as == named != unnamed
    methods = [method.partition(",")[2] for group, method in found if group == "pooled"]
    assert methods == ["", " names told", " no names"]
    served = evaluated(run(*arguments))
    assert [one["brier"] for (g, _), one in served.items() if g == "pooled"] == figures[:1]


def test_a_report_and_a_card_come_from_one_command_each(
    tmp_path: Path, test_file: Path, train_file: Path
) -> None:
    """--report writes the page, -o all figures, and --card updates the model card."""
    page, output, card = (tmp_path / name for name in ("page.html", "all.json", "README.md"))
    study = tmp_path / "study.json"
    assert run("study", "probes", test_file, "--calibrator", "fake:0.5", "-o", study).exit_code == 0
    options = ("--train", train_file, "--calibrator", "fake:0.5", "--study", study)
    result = run("evaluate", test_file, *options, "--report", page, "-o", output)
    assert result.exit_code == 0, result.stderr
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count('role="img"') == 8
    card.write_text(f"# A card\n{BEGIN}\n{END}\n")
    assert run("evaluate", output, "--card", card, "--study", study).exit_code == 0
    pooled = read_evaluation(output).find("pooled", "TF-IDF")
    assert pooled is not None
    line = f"| TF-IDF | {pooled.auroc:.3f} "
    assert line in card.read_text(encoding="utf-8")
    card.write_text(f"# Cards\n{BEGIN_OF.format('calls')}\n{END}\n")
    again = run("evaluate", output, "--card", f"{card}#calls", "--report", page)
    assert again.exit_code == 0, again.stderr
    assert line in card.read_text(encoding="utf-8")
    assert again.stdout == result.stdout
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_figures_that_were_written_are_not_scored_again(tmp_path: Path, test_file: Path) -> None:
    """An option for rows is refused with written figures, and a card without marks too."""
    output, card = tmp_path / "all.json", tmp_path / "README.md"
    assert run("evaluate", test_file, "--calibrator", "fake:0.5", "-o", output).exit_code == 0
    for option in (("--calibrator", "fake:0.5"), ("--tags", "all"), ("-o", card)):
        refused = run("evaluate", output, *option)
        assert refused.exit_code == 2
        assert f"is for rows, and {output} has figures" in refused.stderr
    card.write_text("# A card\n")
    unmarked = run("evaluate", output, "--card", card)
    assert unmarked.exit_code == 2
    assert f"{card} needs these two lines" in unmarked.stderr


@pytest.mark.parametrize("correct", [0, 1])
def test_rows_of_one_label_are_reported(tmp_path: Path, correct: int) -> None:
    """If all rows have one label, the output says that a ranking needs both."""
    rows = [{**raw, "correct": correct, "confidence": 0.5} for raw in raw_rows(30, seed=4)]
    file = write(tmp_path / "rows.jsonl", rows)
    result = run("evaluate", file, "--scores", file)
    assert result.exit_code == 0, result.stderr
    warning = f"every row (30) is {('wrong', 'correct')[correct]}: a ranking needs"
    assert warning in result.stderr
    assert result.output.count("AUROC is missing") == 1


def test_one_label_gives_null_and_no_nan(tmp_path: Path) -> None:
    """Rows of one label have null for AUROC in JSON, and the page is written."""
    rows = [{**row, "correct": 1} for row in raw_rows(20, seed=2)]
    test, page = write(tmp_path / "test.jsonl", rows), tmp_path / "page.html"
    result = run("evaluate", test, "--calibrator", "fake:0.5", "--json", "--report", page)
    assert result.exit_code == 0
    assert {found["auroc"] for found in evaluated(result).values()} == {None}
    assert "nan" not in re.sub(r"<style>.*</style>", "", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_rows_of_one_label_say_why_there_is_no_auroc(
    label: int, options: list[str], tmp_path: Path
) -> None:
    """Rows of one label and few rows are explained; enough rows of both labels are not."""
    rows = raw_rows(20, seed=2)
    one = write(tmp_path / "one.jsonl", [{**row, "correct": label} for row in rows])
    calibrated = "--calibrator", "fake:0.5", *options
    word = "correct" if label else "wrong"
    assert f"every row (20) is {word}: a ranking needs" in run("evaluate", one, *calibrated).stderr
    mixed = [{**row, "correct": n % 2} for n, row in enumerate(rows)]
    few = write(tmp_path / "few.jsonl", mixed)
    assert "20 rows are few" in run("evaluate", few, *calibrated).stderr
    many = [{**row, "correct": n % 2} for n, row in enumerate(raw_rows(60, seed=3))]
    enough = run("evaluate", write(tmp_path / "many.jsonl", many), *calibrated).stderr
    assert "are few" not in enough
    assert "a ranking needs" not in enough


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("nowhere.jsonl", "nowhere.jsonl cannot be read: No such file or directory"),
        ("{tmp}/empty", "no *.jsonl file in {tmp}/empty"),
        ("{tmp}/ones.jsonl", "needs correct and wrong training rows, there are only correct rows"),
        ("{tmp}/marked__nc.jsonl", "every file is marked __nc and never trained on"),
        ("{tmp}/test.jsonl", "questions are both trained on and judged, one is '2/0'"),
    ],
)
def test_useless_training_rows_are_reported(
    tmp_path: Path, test_file: Path, train: str, message: str
) -> None:
    """Training rows that are of no use are reported, and the command ends."""
    (tmp_path / "empty").mkdir()
    write(tmp_path / "ones.jsonl", [{**row, "correct": 1} for row in raw_rows(50, seed=1)])
    write(tmp_path / "marked__nc.jsonl", raw_rows(50, seed=1))
    path = train.format(tmp=tmp_path)
    result = run("evaluate", test_file, "--train", path, "--calibrator", "fake:0.5")
    assert result.exit_code == 2
    assert message.format(tmp=tmp_path) in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tags", "some"], "--tags are served, all, none, not 'some'"),
        (["--scores", "{tmp}/nowhere"], "No such file or directory"),
        (["--scores", "{tmp}/empty.jsonl"], "120 of 120 rows have no score, the first is id '2-0'"),
        (["--scores", "{tmp}/test.jsonl"], "test.jsonl:1: 'score' must be a number from 0 to 1"),
        (["--study", "{tmp}/empty.jsonl"], "empty.jsonl is no study that this version wrote"),
        (["--recalibration", "{tmp}/empty.jsonl"], "is no recalibration of this version"),
        (["-o", "{tmp}/no/where.json"], "where.json: there is no folder"),
        (["--report", "."], "cannot write to .: Is a directory"),
        (["--report", "/"], "cannot write to /: Is a directory"),
        (["-o", "{tmp}/test.jsonl"], "test.jsonl: it is an input as well"),
        (["--scores", "a={tmp}/empty.jsonl", "--report", "{tmp}/empty.jsonl"], "is an input as"),
        (["--train", "{tmp}", "-o", "{tmp}/empty.jsonl"], "empty.jsonl: it is an input as well"),
        (["-o", "{tmp}/a", "--report", "{tmp}/a"], "-o and --report both say"),
        (["--keep-scores", "{tmp}/empty.jsonl"], "empty.jsonl is a file"),
    ],
)
def test_mistakes_are_one_sentence(
    tmp_path: Path, test_file: Path, arguments: list[str], message: str
) -> None:
    """A mistake gives one sentence and exit status 2."""
    (tmp_path / "empty.jsonl").touch()
    before = test_file.read_bytes()
    words = [argument.format(tmp=tmp_path) for argument in arguments]
    result = run("evaluate", test_file, "--calibrator", "fake:0.5", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "partial" not in result.stderr
    assert test_file.read_bytes() == before


def test_an_unwritable_output_is_reported_first(test_file: Path) -> None:
    """An output that cannot be written is reported before the calibrator is loaded."""
    result = run("evaluate", test_file, "--calibrator", "./nowhere", "-o", "/nowhere/x.json")
    sentence = "cannot write to /nowhere/x.json: there is no folder /nowhere; make it"
    assert (result.exit_code, result.stderr) == (2, f"pinocchio: {sentence}\n")


def test_evaluate_needs_labels(tmp_path: Path) -> None:
    """Without labels the command is refused; with some, the rows without one are named."""
    unlabelled = {"question": "q", "response": "a"}
    none = write(tmp_path / "none.jsonl", [unlabelled])
    result = run("evaluate", none, "--calibrator", "fake:0.5")
    assert (result.exit_code, result.stderr) == (
        2,
        f"pinocchio: no labelled row in {none}: {none}:1: 'correct' is missing; a row is "
        '{"question": "..", "response": "..", "correct": 1}, a sample '
        "examples/labelled/rows.jsonl\n",
    )
    some = write(tmp_path / "some.jsonl", [unlabelled, *raw_rows(20, seed=2)])
    result = run("evaluate", some, "--calibrator", "fake:0.5", "--json")
    assert result.exit_code == 1
    assert f"{some}:1: 'correct' is missing" in result.stderr
    assert evaluated(result)["pooled", "fake:0.5"]["rows"] == 20


NASTY: list[Json] = [
    {"response": ""},
    {"response": "word " * 200_000},
    {"response": "\x00\x1b[31m\x07\u202e\ufeff", "benchmark": "\x1b]0;x\x07", "model": "\x00"},
    {"response": "答案是四", "question": "二加二等于几", "benchmark": "数学"},
    {"response": "الجواب أربعة 🙂", "domain": "<b>"},
    {"response": "\ud83d half a pair", "model": "\udc00", "benchmark": "\ud83d"},
    {"response": "```python\nprint(4)\n```" * 50, "benchmark": "x" * 5_000},
    {"response": {"role": "assistant", "content": None, "refusal": "I cannot."}},
    {"response": "4", "correct": True},
    {"response": "5", "correct": 0.0},
]
UNUSABLE: list[tuple[Json, str]] = [
    ({"correct": "1"}, "'correct' must be 0 or 1, without quotes, not '1'"),
    ({"correct": float("nan")}, "'correct' must be 0 or 1, not nan"),
    ({"correct": 0.5}, "'correct' must be 0 or 1, not 0.5"),
    ({"correct": [1]}, "'correct' must be 0 or 1, not [1]"),
    ({"correct": None}, "'correct' is missing"),
    ({"verbalized_confidence": float("nan")}, "'verbalized_confidence' must be a number"),
    ({"verbalized_confidence": 80}, "'verbalized_confidence' must be a number from 0 to 1"),
    ({"benchmark": 5}, "'benchmark' must be a string, not int"),
]


def test_bad_input_is_judged_or_named(tmp_path: Path, train_file: Path) -> None:
    """Every usable row is judged, every other one named with file and line.

    Among them are empty and huge replies, other scripts, control characters, labels of other types.
    """
    good = raw_rows(40, seed=2)
    nasty = [{**good[n], **row} for n, row in enumerate(NASTY)]
    bad = [{**good[20 + n], **row} for n, (row, _) in enumerate(UNUSABLE)]
    test = write(tmp_path / "test.jsonl", [*nasty, *bad, *good[10:20]])
    checkpoint, page = save_tiny(tmp_path / "tiny"), tmp_path / "page.html"
    options = ("--calibrator", checkpoint, "--train", train_file)
    result = run(
        "evaluate", test, *options, "--json", "--report", page, "-o", tmp_path / "all.json"
    )
    assert result.exit_code == 1
    assert evaluated(result)["pooled", "TF-IDF"]["rows"] == len(nasty) + 10
    for number, (_, sentence) in enumerate(UNUSABLE, start=len(nasty) + 1):
        assert f"{test}:{number}: {sentence}" in result.stderr
    table = run("evaluate", test, *options)
    assert table.exit_code == 1
    for text in (result.stdout, table.stdout, page.read_text(encoding="utf-8")):
        assert not set(text) & {"\x00", "\x07", "\x1b"}
    os.fsencode(page.read_text(encoding="utf-8"))
