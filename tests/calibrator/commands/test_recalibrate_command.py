"""`pinocchio recalibrate` as a person runs it, and the use of its file (paper N01, N05)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from calibrator import Item, load_scorer, opinion_of
from calibrator.recalibration.curves import load_named, logit, recalibration_of, sigmoid
from calibrator.recalibration.versions import resolve_recalibrations
from pinocchio.commands import cli
from tests.builders.labelled_rows import signalled_replies, write
from tests.builders.tiny_checkpoint import save_tiny

Json = dict[str, Any]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def overconfident(count: int, seed: int = 1, **names: str) -> tuple[list[Json], list[Json]]:
    """Return labelled rows and their scores, which are too high by 1.5 on the logit."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, count)
    rows = [
        {
            "id": f"{seed}-{n}",
            "question": f"Question {n} of {seed}?",
            "response": "It is so.",
            "correct": int(rng.random() < sigmoid(logit(p[n]) - 1.5)),
            **names,
        }
        for n in range(count)
    ]
    scores = [{"id": row["id"], "confidence": float(p[n])} for n, row in enumerate(rows)]
    return rows, scores


@pytest.mark.parametrize(("is_needed", "ending"), [(True, ""), (False, ": may be no gain")])
def test_a_file_without_a_proven_gain_says_so(is_needed: bool, ending: str, tmp_path: Path) -> None:
    """A curve without a proven gain is written, and the output says so."""
    rows, scores = overconfident(400)
    if not is_needed:
        scores = [{**each, "confidence": 0.5} for each in scores]
        rows = [{**row, "correct": n % 2} for n, row in enumerate(rows)]
    labelled, confidences = write(tmp_path / "l.jsonl", rows), write(tmp_path / "s.jsonl", scores)
    command = "recalibrate", labelled, "--scores", confidences, "-o", tmp_path / "r.json"
    [line] = [line for line in run(*command).stdout.splitlines() if "gain of log loss" in line]
    assert line.endswith(ending)
    assert ("may be no gain" in line) == (not is_needed)
    report = json.loads(run(*command, "--json").stdout)
    assert (report["gain_low"] > 0) == is_needed
    assert report["gain_low"] <= report["gain"] <= report["gain_high"]


@pytest.mark.parametrize("kind", ["platt", "isotonic", "temperature"])
def test_a_hundred_labels_make_a_file(kind: str, tmp_path: Path) -> None:
    """A hundred labels give a file, with the errors on rows that were not fitted on (N01)."""
    rows, scores = overconfident(120)
    labelled, confidences = write(tmp_path / "l.jsonl", rows), write(tmp_path / "s.jsonl", scores)
    output = tmp_path / "r.json"
    result = run(
        "recalibrate", labelled, "--scores", confidences, "--kind", kind, "-o", output, "--json"
    )
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    found = load_named(output, recalibration_of)
    assert report["name"] == found.name
    assert (report["labels"], found.labels) == (120, 120)
    assert report["brier_after"] < report["brier_before"]
    assert kind == "temperature" or report["ece_after"] < report["ece_before"]
    assert found.apply(0.7) < 0.7
    words = run(
        "recalibrate", labelled, "--scores", confidences, "--kind", kind, "-o", output
    ).stdout
    assert words.startswith(f"{found.name}: fitted on 120 labels, for s\n")


def test_the_file_corrects_scores_and_evaluations(tmp_path: Path) -> None:
    """`score --recalibration` and `evaluate` use the curve, and their output names it."""
    rows, _ = overconfident(60)
    labelled, output = write(tmp_path / "l.jsonl", rows), tmp_path / "r.json"
    checkpoint = save_tiny(tmp_path / "tiny")
    chosen = ("--calibrator", checkpoint)
    assert run("recalibrate", labelled, *chosen, "-o", output).exit_code == 0
    found = load_named(output, recalibration_of)
    plain = load_scorer(str(checkpoint), "cpu")
    mended = load_scorer(str(checkpoint), "cpu", recalibration=output)
    item = Item(rows[0]["question"], rows[0]["response"])
    (before,), (after,) = plain.score_batch([item]), mended.score_batch([item])
    assert after.score == before.score
    assert after.confidence == pytest.approx(found.apply(before.confidence))
    assert mended.name == f"{plain.name}+{found.name}"
    first, *_ = run("score", labelled, *chosen, "--recalibration", output).stdout.splitlines()
    assert json.loads(first)["calibrator"] == mended.name
    assert json.loads(first)["confidence"] == pytest.approx(after.confidence, abs=1e-5)
    judged = run("evaluate", labelled, *chosen, "--recalibration", output, "--json").stdout
    assert json.loads(judged.splitlines()[-1])["method"] == mended.name


def test_models_have_curves_of_their_own(tmp_path: Path) -> None:
    """With --by model each model with 50 labels gets its own curve."""
    parts = [overconfident(80, 1, model="big"), overconfident(30, 2, model="rare")]
    rows, scores = ([one for part in parts for one in part[at]] for at in (0, 1))
    labelled, confidences = write(tmp_path / "l.jsonl", rows), write(tmp_path / "s.jsonl", scores)
    output = tmp_path / "r.json"
    result = run("recalibrate", labelled, "--scores", confidences, "--by", "model", "-o", output)
    assert result.exit_code == 0
    assert "1 with curves of their own" in result.stdout
    assert list(load_named(output, recalibration_of).groups) == ["big"]


def test_the_study_reports_every_model(tmp_path: Path) -> None:
    """The study has a line for each model with 200 rows, and their mean (N01, N02)."""
    parts = [overconfident(400, 1, model="one"), overconfident(300, 2, model="two")]
    rows, scores = ([one for part in parts for one in part[at]] for at in (0, 1))
    labelled, confidences = write(tmp_path / "l.jsonl", rows), write(tmp_path / "s.jsonl", scores)
    result = run("recalibrate", labelled, "--scores", confidences, "--study", "model", "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one["group"] for one in found] == ["one", "two", "mean"]
    for one in found:
        assert one["ece_platt"] < 0.5 * one["ece"]
    table = run(
        "recalibrate", labelled, "--scores", confidences, "--study", "model"
    ).stdout.splitlines()
    assert "100 labels, judged on the other questions, mean of 25 splits" in table[0]
    assert table[-1].split()[:2] == ["mean", "700"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{rows}"], "say where to write with -o, or ask for a report with --study"),
        (["{rows}", "-o", "r.json", "--study", "model"], "say where to write with -o"),
        (["{few}", "-o", "{out}"], "5 labelled rows are too few for a recalibration"),
        (["{right}", "-o", "{out}"], "all 30 rows are correct: a recalibration needs both kinds"),
        (["{bare}", "-o", "{out}"], "no labelled row in"),
        (["{rows}", "-o", "{rows}"], "it is an input as well"),
        (["{rows}", "--scores", "{few}", "-o", "{few}"], "it is an input as well"),
        (["{rows}", "-o", "/nowhere/r.json"], "there is no folder /nowhere"),
        (["{rows}", "--study", "model"], "no model has 200 rows of both labels"),
        (["{rows}", "--scores", "{few}", "-o", "{out}"], "few.jsonl:1: 'score' must be a number"),
        (["nowhere.jsonl", "-o", "{out}"], "No such file or directory"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    """A recalibration that cannot be fitted is refused in one sentence, without a file."""
    rows, _ = overconfident(30)
    places = {
        "rows": write(tmp_path / "rows.jsonl", rows),
        "few": write(tmp_path / "few.jsonl", rows[:5]),
        "right": write(tmp_path / "right.jsonl", [{**row, "correct": 1} for row in rows]),
        "bare": write(tmp_path / "bare.jsonl", [{**row, "correct": None} for row in rows]),
        "out": tmp_path / "r.json",
    }
    words = [argument.format(**places) for argument in arguments]
    result = run("recalibrate", *words, "--calibrator", "fake:0.5")
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not places["out"].exists()


def with_others(count: int) -> tuple[list[Json], list[Json]]:
    """Return labelled rows and scores; half have another reply and a far too low confidence."""
    rows, scores = overconfident(count)
    for row, score in list(zip(rows, scores, strict=True))[::2]:
        row["others"] = ["It is so."]
        alone = score["confidence"]
        score |= {"alone": alone, "calibrator": "words@1+opinion@1"}
        score["confidence"] = float(sigmoid(logit(alone) - 4))
    for score in scores[1::2]:
        score["calibrator"] = "words@1"
    return rows, scores


@pytest.mark.parametrize("knows_others", [False, True])
def test_rows_with_others_have_two_numbers_and_a_file_is_for_one(
    knows_others: bool, tmp_path: Path
) -> None:
    """A recalibration is for numbers of replies alone, or for those with others."""
    rows, scores = with_others(400)
    labelled, confidences = write(tmp_path / "l.jsonl", rows), write(tmp_path / "s.jsonl", scores)
    output = tmp_path / "r.json"
    more = ["--second-opinion"] if knows_others else []
    result = run("recalibrate", labelled, "--scores", confidences, "-o", output, *more)
    assert result.exit_code == 0, result.stderr
    found = load_named(output, recalibration_of)
    assert found.calibrator == ("words@1+opinion@1" if knows_others else "words@1")
    assert found.labels == (200 if knows_others else 400)
    shift = logit(found.apply(0.5))  # the scores were too high by 1.5 or too low by 2.5
    assert shift == pytest.approx(2.0 if knows_others else -1.2, abs=0.6)


def test_the_calibrator_that_ships_is_recalibrated_for_both(tmp_path: Path) -> None:
    """The shipped calibrator is recalibrated for replies alone and for those with others."""
    rows, _ = with_others(60)
    labelled, output = write(tmp_path / "l.jsonl", rows), tmp_path / "r.json"
    embedded = load_scorer("embedded")
    for more, name, labels in (
        ([], embedded.name, 60),
        (["--second-opinion"], opinion_of(embedded), 30),
    ):
        result = run("recalibrate", labelled, "-o", output, *more)
        assert result.exit_code == 0, result.stderr
        found = load_named(output, recalibration_of)
        assert (found.calibrator, found.labels) == (name, labels)


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        ({"others": []}, ["--second-opinion"], "no row has 'others'"),
        ({}, ["--second-opinion", "--calibrator", "fake:0.5"], "does not read what others replied"),
    ],
)
def test_numbers_that_know_others_have_to_be_there(
    change: Json, arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    """Without numbers that know others, --second-opinion is refused."""
    rows = [row | change for row in with_others(60)[0]]
    labelled = write(tmp_path / "l.jsonl", rows)
    result = run("recalibrate", labelled, "-o", tmp_path / "r.json", *arguments)
    assert result.exit_code != 0
    assert sentence in result.stderr


def test_scores_of_several_calibrators_make_no_file(tmp_path: Path) -> None:
    """Scores of several calibrators are refused."""
    rows, scores = overconfident(60)
    scores = [score | {"calibrator": f"words@{at % 2}"} for at, score in enumerate(scores)]
    labelled, confidences = write(tmp_path / "l.jsonl", rows), write(tmp_path / "s.jsonl", scores)
    result = run("recalibrate", labelled, "--scores", confidences, "-o", tmp_path / "r.json")
    assert result.exit_code != 0
    assert "is for one calibrator, not words@0, words@1" in result.stderr
    assert not (tmp_path / "r.json").exists()


def with_signals(count: int) -> tuple[list[Json], list[Json]]:
    """Return labelled rows and scores; three of four have a signal."""
    found = signalled_replies(count, 1)
    rows, scores = [], []
    for at, each in enumerate(found):
        signals = each.signals
        judged = {"judged": signals.judged, "judge": signals.judge} if signals.judge else {}
        logprobs = {"logprobs": list(signals.logprobs)} if signals.logprobs else {}
        row = {"id": str(at), "question": f"Question {at}?", "response": "It is so."}
        rows.append(row | {"correct": int(each.is_correct)} | judged | logprobs)
        score = {"id": str(at), "confidence": each.confidence, "calibrator": "words@1"}
        scores.append(score)
    return rows, scores


def test_rows_with_signals_make_weights(tmp_path: Path) -> None:
    """Rows with signals give weights, with the gain on rows that were not fitted on."""
    rows, scores = with_signals(800)
    labelled, confidences = write(tmp_path / "l.jsonl", rows), write(tmp_path / "s.jsonl", scores)
    output = tmp_path / "w.json"
    arguments = ["recalibrate", labelled, "--signals", "--scores", confidences, "-o", output]
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    found = resolve_recalibrations(output).signals
    assert found is not None
    assert (report["name"], report["numbers"]) == (found.name, sorted(found.names()))
    assert report["labels"] == sum("judged" in row or "logprobs" in row for row in rows)
    assert report["brier_after"] < report["brier_before"] - 0.03
    assert run(*arguments).stdout.startswith(
        f"{found.name}: fitted on {report['labels']} labels, for"
    )


def test_weights_of_the_calibrator_that_ships(tmp_path: Path) -> None:
    """Weights for the shipped calibrator are used by `score` and judged by `evaluate`."""
    rows, _ = with_signals(400)
    labelled, output = write(tmp_path / "l.jsonl", rows), tmp_path / "w.json"
    result = run("recalibrate", labelled, "--signals", "-o", output)
    assert result.exit_code == 0, result.stderr
    found, embedded = resolve_recalibrations(output).signals, load_scorer("embedded")
    assert found is not None
    assert found.calibrator == embedded.name
    scored = run("score", labelled, "--recalibration", output).stdout.splitlines()
    for row, line in zip(rows, map(json.loads, scored), strict=True):
        is_moved = "unaided" in line
        assert is_moved == ("judged" in row or "logprobs" in row)
        assert line["calibrator"] in (list(found.names()) if is_moved else [embedded.name])
    judged = run("evaluate", labelled, "--recalibration", output, "--json").stdout.splitlines()
    pooled = [one for one in map(json.loads, judged) if one["group"] == "pooled"]
    assert pooled[0]["method"] == embedded.name
    assert "knowing signals, on" in pooled[1]["method"]
    assert pooled[1]["brier"] < pooled[0]["brier"] - 0.03


@pytest.mark.parametrize(
    ("change", "arguments", "sentence"),
    [
        ({"judged": None, "judge": None, "logprobs": None}, [], "no row has 'judged'"),
        ({"judged": 1.5}, [], "'judged' must be a number from 0 to 1"),
        ({"judged": 0.5, "judge": None}, [], "give both"),
        ({"logprobs": [0.5, -1]}, [], "'logprobs' must be the mean and the lowest"),
        ({}, ["--kind", "isotonic"], "is not for --signals"),
        ({}, ["--second-opinion"], "is not for --signals"),
    ],
)
def test_signals_that_cannot_be_used_are_one_sentence(
    change: Json, arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    """Unusable signals are refused in one sentence, without a file."""
    rows = [row | change for row in with_signals(60)[0]]
    labelled, output = write(tmp_path / "l.jsonl", rows), tmp_path / "w.json"
    options = ["--calibrator", "fake:0.5", *arguments]
    result = run("recalibrate", labelled, "--signals", "-o", output, *options)
    assert result.exit_code != 0
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert not output.exists()
