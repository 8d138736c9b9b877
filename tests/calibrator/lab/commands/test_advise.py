"""`pinocchio advise`: its advice on calibrators whose true quality is known (A09)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.lab.commands.advise import _lines, next_command, own_auroc
from calibrator.lab.judging.evaluation.advice import Advice, RankingCheck, advise
from calibrator.metrics.intervals import auroc_interval
from calibrator.metrics.metrics import Floats, auroc, expected_auroc
from calibrator.recalibration.curves import logit, sigmoid
from calibrator.rows.rows import Row, parse_row
from tests.builders.labelled_rows import write
from tests.running.live_proxy import run_cli


def deployment(count: int, seed: int = 1) -> tuple[list[Row], Floats]:
    """Return replies, two for each question, and the true probability that each is correct."""
    rng = np.random.default_rng(seed)
    truth = np.asarray(rng.beta(1.2, 0.8, count))
    right = rng.random(count) < truth
    return [_row(n, bool(right[n])) for n in range(count)], truth


def _row(n: int, is_right: bool) -> Row:
    raw = {"id": str(n), "question_id": f"q{n // 2}", "question": f"{n // 2}?", "response": "yes"}
    return parse_row({**raw, "correct": int(is_right)})


def too_sure(truth: Floats) -> Floats:
    return np.asarray(sigmoid(2.5 * logit(truth) + 0.5))


def test_what_ranks_and_is_calibrated_is_left_alone() -> None:
    """Confidences that are the true probabilities are left alone."""
    rows, truth = deployment(800)
    found = advise(rows, truth, own_auroc=0.75)
    assert found.action == "leave"
    assert found.more_labels == 0
    assert next_command(found, [Path("a.jsonl")], "embedded") is None


def test_what_ranks_but_is_too_sure_is_recalibrated() -> None:
    """Confidences that rank well but are too sure are recalibrated, with the ECE that is left."""
    rows, truth = deployment(800)
    found = advise(rows, too_sure(truth), own_auroc=0.75)
    assert found.action == "recalibrate"
    tried = found.trials["platt"]
    assert tried.after.ece < tried.before.ece / 2
    expected = {each.labels: each.platt for each in found.expected}
    assert set(expected) == {50, 100, 200}
    assert expected[200] < expected[50] < found.ece
    command = next_command(found, [Path("a.jsonl")], "embedded")
    assert command is not None
    assert command.startswith("pinocchio recalibrate a.jsonl")
    assert command.endswith("-o recalibration.json")


@pytest.mark.parametrize("own", [0.8, math.nan])
def test_what_no_longer_ranks_is_fine_tuned(own: float) -> None:
    """Confidences unrelated to the replies are fine-tuned, whatever the checkpoint's card says."""
    rows, _ = deployment(800)
    noise = np.random.default_rng(9).random(800)
    found = advise(rows, noise, own_auroc=own)
    assert found.action == "fine_tune"
    command = next_command(found, [Path("a.jsonl"), Path("b.jsonl")], "embedded")
    assert command is not None
    assert command == "pinocchio tune a.jsonl b.jsonl --calibrator embedded -o tuned"


@pytest.mark.parametrize(("count", "action"), [(80, "collect"), (800, "fine_tune")])
def test_what_cannot_rank_is_not_to_be_gated_on(count: int, action: str) -> None:
    """Confidences that cannot rank get a warning against thresholds, even if a curve helps."""
    rows, _ = deployment(count)
    found = advise(rows, 0.9 + np.random.default_rng(9).random(count) / 10, own_auroc=0.8)
    assert found.trials["platt"].is_better
    assert found.auroc.low < 0.5 < found.auroc.high
    assert (found.action, found.is_chance) == (action, True)
    assert "cannot rank" in found.why
    text = "\n".join(_lines(found, "embedded@1", None))
    assert text.startswith("embedded@1: do not let a threshold on it decide")
    assert "e+0" not in text, "evidence is a number that people read"


def test_what_ranks_surely_worse_than_it_promises_is_fine_tuned() -> None:
    """A ranking below its card's and below what its confidences promise is fine-tuned."""
    rows, truth = deployment(2_000)
    noise = np.random.default_rng(4).normal(0, 2.5, 2_000)
    found = advise(rows, np.asarray(sigmoid(logit(truth) + noise)), own_auroc=0.8)
    assert found.auroc.low > 0.5
    assert found.action == "fine_tune"
    assert f"these confidences promise {found.expected_auroc:.3f}" in found.why


@pytest.mark.parametrize("lowest", [0.0, 0.4, 0.6, 0.8])
def test_delivered_replies_of_a_healthy_calibrator_are_no_reason_to_fine_tune(
    lowest: float,
) -> None:
    """Delivered replies of a healthy calibrator have a low AUROC and are left alone."""
    rows, truth = deployment(4_000)
    kept = [n for n in range(4_000) if truth[n] >= lowest]
    found = advise([rows[n] for n in kept], truth[kept], own_auroc=0.88)
    assert found.auroc.high < 0.88
    assert found.action == "leave"


def test_confidences_too_close_together_are_not_called_degraded() -> None:
    """Right confidences between 0.84 and 0.86 are called too close together, not degraded."""
    rng = np.random.default_rng(7)
    truth = rng.uniform(0.84, 0.86, 1_500)
    rows = [_row(n, bool(rng.random() < truth[n])) for n in range(1_500)]
    found = advise(rows, truth, own_auroc=0.85)
    assert found.action == "leave"
    assert "too close together" in found.why
    assert found.is_chance


def test_healthy_deployments_raise_few_false_alarms() -> None:
    """Of 200 healthy deployments at most 5 % get the advice to fine-tune."""
    alarms = 0
    rng = np.random.default_rng(8)
    for n in range(200):
        a, b = ((1.2, 0.8), (3.0, 1.6), (0.7, 0.6), (6.0, 1.5))[n % 4]
        truth = np.repeat(rng.beta(a, b, 300), 2)
        right = np.repeat(rng.random(300), 2) < truth  # both replies are right, or both wrong
        kept = truth >= (0.0, 0.5)[n // 4 % 2]
        questions = np.repeat(np.arange(300), 2)[kept]
        interval = auroc_interval(right[kept].astype(int), truth[kept], questions, resamples=300)
        alarms += RankingCheck(interval, expected_auroc(truth[kept]), own=0.9).is_degraded
    assert alarms <= 10


def test_replies_that_were_all_delivered_are_named(tmp_path: Path) -> None:
    """Rows of `export` that were all delivered are reported."""
    rows, truth = deployment(200)
    delivered = [parse_row({**row.raw, "kind": "audit"}) for row in rows]
    held = [parse_row({**row.raw, "kind": "hold"}) for row in rows[:5]]
    assert not advise(rows, truth).is_delivered_only
    assert not advise([*held, *delivered[5:]], truth).is_delivered_only
    found = advise(delivered, truth)
    assert found.is_delivered_only
    assert "held replies, whose confidences" in "\n".join(_lines(found, "embedded@1", None))


def test_the_expected_auroc_is_the_mean_of_simulated_ones() -> None:
    """The expected AUROC is the mean of those with labels drawn by the confidences."""
    rng = np.random.default_rng(2)
    confidence = np.round(rng.beta(2, 1, 150), 1)
    drawn = [rng.random(150) < confidence for _ in range(600)]
    found = [auroc(right.astype(int), confidence) for right in drawn]
    assert expected_auroc(confidence) == pytest.approx(np.mean(found), abs=0.005)
    assert math.isnan(expected_auroc([]))
    assert math.isnan(expected_auroc([1.0, 1.0]))


def test_the_interval_decides_and_not_the_figure() -> None:
    """The interval decides: few labels give no advice, and many of the same do."""

    def found(count: int) -> Advice:
        rows, truth = deployment(count, seed=5)
        noise = np.random.default_rng(3).normal(0, 0.6, count)
        return advise(rows, np.asarray(sigmoid(0.35 * logit(truth) + noise)), own_auroc=0.75)

    few = found(60)
    assert few.action == "collect"
    assert few.auroc.low < 0.6 < few.auroc.high
    assert few.more_labels > 0
    assert found(2_000).action != "collect"


@pytest.mark.parametrize(("count", "more"), [(19, 31), (20, 30), (49, 1)])
def test_too_few_rows_say_how_many_are_missing(count: int, more: int) -> None:
    """Fewer than 50 rows state how many are missing; from 20 on the AUROC is shown."""
    rows, truth = deployment(count)
    found = advise(rows, truth)
    assert (found.action, found.more_labels) == ("collect", more)
    assert (
        found.why == f"{count} labelled rows are too few to judge a calibrator by: 50 are the least"
    )
    assert math.isfinite(found.auroc.value) is (count >= 20)


def test_rows_of_one_label_give_no_advice() -> None:
    """Rows of one label give no advice, however many they are."""
    found = advise([_row(n, True) for n in range(300)], np.linspace(0.1, 0.9, 300))
    assert found.action == "collect"
    assert "all 300 rows are correct" in found.why


def test_few_labels_of_a_degraded_ranking_recalibrate_meanwhile() -> None:
    """Few labels of a degraded ranking are used to recalibrate, and the advice is to add more."""
    rows, truth = deployment(90, seed=2)
    backwards = sigmoid(-3 * logit(truth) + 4)
    found = advise(rows, np.asarray(backwards), own_auroc=0.8)
    assert found.action == "recalibrate"
    assert found.more_labels == 10
    assert "it ranks these replies worse than it should" in found.why


def test_figures_have_no_nan_in_json() -> None:
    """Unknown figures are null in JSON."""
    rows, truth = deployment(20)
    text = json.dumps(advise(rows, truth).as_dict(), allow_nan=False)
    assert json.loads(text)["own_auroc"] is None


def test_a_checkpoints_own_quality_is_on_its_card() -> None:
    """A checkpoint's own quality is the lowest figure of its card; a fake has none."""
    assert 0.7 < own_auroc("embedded") < 0.9
    assert math.isnan(own_auroc("fake:0.5"))


def test_a_language_model_is_trained_on_from_its_adapter(tmp_path: Path) -> None:
    """For a language model the advice is to train from its adapter."""
    (tmp_path / "calibrator.json").write_text(json.dumps({"preset": "paper", "base": "x/y"}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    advice = Advice("fine_tune", "", 200, 100)
    command = next_command(advice, [Path("a.jsonl")], str(tmp_path))
    assert command == f"pinocchio train a.jsonl --start {tmp_path} -o tuned"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write labelled rows, and scores of them that are too sure."""
    folder = tmp_path_factory.mktemp("advise")
    rows, truth = deployment(400)
    confidences = too_sure(truth)
    scores = [{"id": str(n), "confidence": float(confidences[n])} for n in range(400)]
    file = write(folder / "rows.jsonl", [row.raw for row in rows])
    return file, write(folder / "scores.jsonl", scores)


def test_the_command_says_what_to_run_and_that_runs(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    """The printed command runs and does what the advice says, with exit status 3 before."""
    rows, scores = files
    done = run_cli("advise", str(rows), "--scores", str(scores), "--json")
    assert done.returncode == 3, done.stderr
    advice: dict[str, Any] = json.loads(done.stdout)
    assert advice["action"] == "recalibrate"
    words = advice["command"].split()[1:]
    words[-1] = str(tmp_path / words[-1])
    ran = run_cli(*words, "--scores", str(scores))
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "recalibration.json").exists()


def test_numbers_that_know_others_do_not_count(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Numbers that know others do not change the advice."""
    rows, scores = files
    advice = [json.loads(run_cli("advise", str(rows), "--scores", str(scores), "--json").stdout)]
    lines = [json.loads(line) for line in scores.read_text().splitlines()]
    for at, line in enumerate(lines):
        knowing = {
            "confidence": 0.5,
            "alone": line["confidence"],
            "calibrator": "words@1+opinion@1",
        }
        lines[at] = line | (knowing if at % 2 else {"calibrator": "words@1"})
    mixed = write(tmp_path / "mixed.jsonl", lines)
    advice += [json.loads(run_cli("advise", str(rows), "--scores", str(mixed), "--json").stdout)]
    assert advice[1]["calibrator"] == "words@1"
    assert advice[0] | {"calibrator": ""} == advice[1] | {"calibrator": ""}


def test_hostile_rows_are_named_and_the_rest_is_judged(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    """Bad lines are counted, the rest is judged, and the exit status is 1."""
    bad = ["{", "[]", '{"question": "q", "response": "r"}', '{"correct": 2, "response": 1}', "\x00"]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join([*bad, files[0].read_text()]))
    done = run_cli("advise", str(file), "--scores", str(files[1]))
    assert done.returncode == 1
    assert "recalibrate" in done.stdout
    assert f"{len(bad)} of {400 + len(bad)} rows could not be used" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_to_read_is_one_sentence(tmp_path: Path) -> None:
    """A missing or empty file gives one sentence and exit status 2."""
    (tmp_path / "empty.jsonl").write_text("")
    for name, sentence in (("missing.jsonl", "missing.jsonl"), ("empty.jsonl", "no labelled row")):
        done = run_cli("advise", str(tmp_path / name))
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
