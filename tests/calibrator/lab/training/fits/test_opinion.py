"""A second stage beside a checkpoint: trained in folds, saved, used with other replies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from calibrator import Item, load_scorer
from calibrator.checkpoints.checkpoint import read_config
from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.embedded.parts import read_checkpoint
from calibrator.errors import JudgingError, TrainingError
from calibrator.lab.studies.trained.opinion_study import readers_without, study_opinions
from calibrator.lab.training import opinion_folds as folds
from calibrator.lab.training import tower_stage
from calibrator.lab.training.fits.opinion import OpinionConfig
from calibrator.lab.training.run import TrainConfig
from calibrator.lab.training.stages.forest import ForestConfig
from calibrator.lab.training.stages.tower import TowerConfig
from calibrator.lab.training.train import train
from calibrator.rows.rows import parse_row
from calibrator.rows.selection import Selection
from calibrator.scorer import OtherReply
from pinocchio.commands import cli
from tests.builders.shelf_rows import shelf_rows

NO_OTHERS = "Shelf 7 has 31 drums and gets 12 more. How many?"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in shelf_rows(150, 1)))
    return TrainConfig(
        data=(str(path),),
        selection=Selection(validation_share=0.2),
        tower=TowerConfig(members=1, folds=2, batch=64),
        has_forest=True,
        forest=ForestConfig(trees=5, leaf_rows=20, topics=(4, 4, 4, 4, 4), grams=200),
        opinion=OpinionConfig(trees=30, leaves=8, leaf_rows=20, folds=2),
    )


@pytest.fixture(scope="module")
def made(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Train a checkpoint alone, and the same with a second stage; return both folders."""
    vectors = np.random.default_rng(9).normal(size=(30_522, 16)).astype(np.float32)
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1):
        for module in (tower_stage, folds):
            patch.setattr(module, "piece_vectors", lambda _: vectors)
        start = train(folder / "start", config, lambda _: None)
        tuned = replace(config, start=str(start), has_opinion=True, has_forest=False)
        return start, train(folder / "with", tuned, lambda _: None)


@pytest.fixture(scope="module")
def scorers(made: tuple[Path, Path]) -> list[EmbeddedCalibrator]:
    found = [load_scorer(str(path), "cpu") for path in made]
    return [each for each in found if isinstance(each, EmbeddedCalibrator)]


def test_without_others_the_numbers_stay(scorers: list[EmbeddedCalibrator]) -> None:
    """Without other replies the numbers stay the same to the last bit."""
    before, after = scorers
    items = [parse_row(row).item("served") for row in shelf_rows(20, 3)]
    assert before.score_batch(items) == after.score_batch(items)
    assert before.opinion == ""
    assert after.opinion.startswith(f"{after.name}+opinion@")


def test_others_move_the_number(scorers: list[EmbeddedCalibrator]) -> None:
    """Agreement raises the number and difference lowers it, beside the number alone."""
    before, after = scorers
    own = Item(NO_OTHERS, "The answer is 43.", "ann")
    alone = before.score_batch([own])[0].confidence
    agree, differ = (
        replace(own, others=(OtherReply(text, "bob"),))
        for text in ("The answer is 43.", "The answer is 34.")
    )
    higher, lower, same = after.score_batch([agree, differ, own])
    assert lower.confidence < alone < higher.confidence
    numbers = [lower.alone, higher.alone, same.confidence]
    assert numbers == pytest.approx([alone] * 3, abs=1e-6)
    assert (higher.compared, lower.compared, same.compared) == (("agree",), ("differ",), ())
    assert before.score_batch([agree])[0].confidence == alone  # it reads no other replies


def test_what_it_is_worth_on_other_rows(scorers: list[EmbeddedCalibrator]) -> None:
    """With another reply right replies rank better on other rows, the same for a seed."""
    rows = [parse_row(row) for row in shelf_rows(80, 4)]
    alone = scorers[1].score_batch([row.item("served") for row in rows])
    study = study_opinions(scorers[1], rows, alone)
    first = study.entries[0]
    assert (first.others, first.of, first.replies) == ("one, at random", "all", 240)
    assert first.together.pooled > first.alone.pooled + 0.1
    each = [entry for entry in study.entries if entry.of in ("shelves", "racks")]
    assert sum(entry.replies for entry in each) == first.replies
    assert first.alone.mean == pytest.approx(np.mean([entry.alone.pooled for entry in each]))
    assert first.together.mean == pytest.approx(np.mean([entry.together.pooled for entry in each]))
    assert study_opinions(scorers[1], rows, alone).as_json() == study.as_json()


def test_a_benchmark_can_be_left_out(made: tuple[Path, Path], tmp_path: Path) -> None:
    """A benchmark is judged by a stage fitted on the others' questions, from the kept run."""
    run, checkpoint = made[1].parent, made[1]
    whole = read_checkpoint(checkpoint)
    readers = readers_without(["shelves", "racks", "new"], run, whole)
    assert sorted(readers) == ["racks", "shelves"]
    assert whole.parts.opinion is not None
    racks, shelves = (len(readers[name].stage.trust.questions) for name in sorted(readers))
    assert racks + shelves == len(whole.parts.opinion.trust.questions)
    assert shelves < racks, "of three questions one is of racks"
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in shelf_rows(60, 4)))
    command = ["study", "opinion", str(rows), "--calibrator", str(checkpoint)]
    entries = []
    for number, more in enumerate(([], ["--leave-out", str(run)])):
        out = tmp_path / f"{number}.json"
        found = CliRunner().invoke(cli, [*command, *more, "--output", str(out)])
        assert found.exit_code == 0, found.output
        study = json.loads(out.read_text())
        assert ("each of 2 benchmarks left out" in study["method"]) == bool(more)
        entries.append(study["entries"][0])
    known, new = entries
    assert new["alone"] == known["alone"]
    assert new["together"] != known["together"]
    assert new["together"]["pooled"] > new["alone"]["pooled"] + 0.1


def test_only_a_run_of_a_second_stage_has_what_is_left_out(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    """Only a run of a second stage can leave out benchmarks; others are refused."""
    with pytest.raises(JudgingError, match="--start CHECKPOINT --with opinion"):
        readers_without(["shelves"], made[0].parent, read_checkpoint(made[1]))
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in shelf_rows(4, 4)))
    found = CliRunner().invoke(cli, ["study", "probes", str(rows), "--leave-out", str(tmp_path)])
    assert (found.exit_code, "--leave-out goes with" in found.output) == (2, True)


def test_a_second_stage_needs_a_forest(config: TrainConfig, tmp_path: Path) -> None:
    """A second stage needs a forest, and the error says so."""
    wrong = replace(config, has_opinion=True, has_forest=False)
    with pytest.raises(TrainingError, match="leave out --without forest, or add --without opinion"):
        train(tmp_path / "run", wrong, lambda _: None)


@pytest.mark.slow  # another whole training
def test_one_run_ends_where_two_do(
    made: tuple[Path, Path], config: TrainConfig, tmp_path: Path
) -> None:
    """One training of all parts gives the arrays of two, to the last bit."""
    vectors = np.random.default_rng(9).normal(size=(30_522, 16)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1):
        for module in (tower_stage, folds):
            patch.setattr(module, "piece_vectors", lambda _: vectors)
        whole = train(tmp_path / "run", replace(config, has_opinion=True), lambda _: None)
    assert [path.name for path in (tmp_path / "run").glob("checkpoint*")] == ["checkpoint"]
    one, two = load_file(whole / "model.safetensors"), load_file(made[1] / "model.safetensors")
    assert one.keys() == two.keys()
    assert [name for name in two if not np.array_equal(one[name], two[name])] == []
    assert read_config(whole).training["has_opinion"] is True
