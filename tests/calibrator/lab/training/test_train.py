"""A real, tiny training: resumable, never on its validation questions (paper D04)."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrator import Item, load_scorer
from calibrator.checkpoints.checkpoint import read_config, sha256_of
from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.errors import TrainingError
from calibrator.features.tower import tower_row
from calibrator.lab.commands.train import report
from calibrator.lab.studies.trained.beside_shipped import AT_ONCE, beside_shipped
from calibrator.lab.training import tower_stage
from calibrator.lab.training.run import TrainConfig, TrainingRun, prepare, read_selection
from calibrator.lab.training.stages.forest import ForestConfig
from calibrator.lab.training.stages.tower import TowerConfig
from calibrator.lab.training.train import train
from calibrator.recalibration.curves import logit
from calibrator.rows.selection import Selection, share_of
from calibrator.text.word_pieces import Layout

SHARE = 0.25


def write_rows(path: Path, questions: int = 40) -> Path:
    """Write two answers to each question, one right and one wrong; the right ones are longer."""
    with path.open("w") as stream:
        for n in range(questions):
            for model in ("One", "two"):
                correct = (n + (model == "One")) % 2
                row = {
                    "question_id": f"q{n}",
                    "benchmark": f"bench-{n % 2}",
                    "question": f"What is {n} + {n}?",
                    "response": f"It is {2 * n}, surely." if correct else str(n),
                    "model": model,
                    "correct": correct,
                }
                stream.write(json.dumps(row) + "\n")
    return path


def config_of(path: Path) -> TrainConfig:
    return TrainConfig(
        data=(str(path),),
        name="tiny-run",
        selection=Selection(rows=80, validation_share=SHARE),
        tower=TowerConfig(members=1, folds=2, batch=32),
        layout=Layout(max_tokens=32),
    )


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    return config_of(write_rows(tmp_path_factory.mktemp("data") / "rows.jsonl"))


@pytest.fixture(scope="module")
def finished(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a run that nothing interrupted."""
    return train(tmp_path_factory.mktemp("whole") / "run", config, lambda _: None)


def test_a_run_ends_beside_the_shipped_calibrator(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report has AUROC and ECE of both calibrators on the held-out rows, and the folder."""
    config = config_of(write_rows(tmp_path / "rows.jsonl", questions=160))
    report(finished, config)
    output = capsys.readouterr().out
    found = re.fullmatch(
        r"the checkpoint is in [^\n]*\n"
        r"on (\d+) held-out rows, as served "
        r"\(the shipped one may have been trained on some of them\):\n"
        r"  this one         AUROC (0\.\d{3}|1\.000), ECE 0\.\d{3}\n"
        r"  the shipped one  AUROC 0\.\d{3}, ECE 0\.\d{3}\n"
        r"judge it on rows .*: pinocchio evaluate TEST.jsonl --calibrator (\S+)\n"
        r"to serve it, say in proxy.yaml: calibrator: {checkpoint: (\S+)}\n",
        output,
    )
    assert found is not None, output
    held = [row for row in read_selection(config)[1] if share_of(row.question_id) < SHARE]
    assert int(found[1]) == len(held) >= 30
    assert found[3] == found[4] == str(finished)


def test_the_comparison_is_bounded_in_time(finished: Path, tmp_path: Path) -> None:
    """Without time the comparison stops after a few rows and says that they are too few."""
    config = config_of(write_rows(tmp_path / "rows.jsonl", questions=160))
    seen: list[int] = []
    (line,) = beside_shipped(finished, config, seen.append, most_s=0)
    assert (sum(seen), "too few held-out rows" in line) == (2 * AT_ONCE, True)


def test_another_seed_gives_other_scores(config: TrainConfig, tmp_path: Path) -> None:
    """Another seed gives other scores."""
    items = [Item(f"What is {n} + {n}?", f"It is {2 * n}, surely.", "one") for n in range(20)]
    other = replace(config, selection=replace(config.selection, seed=1))
    first, differing = (
        [score.score for score in load_scorer(str(folder), "cpu").score_batch(items)]
        for folder in (
            train(tmp_path / str(n), each, lambda _: None) for n, each in enumerate((config, other))
        )
    )
    assert differing != pytest.approx(first, abs=1e-3)


@pytest.mark.parametrize("has_forest", [False, True])
def test_a_forest_is_optional(
    config: TrainConfig, tmp_path: Path, has_forest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tower alone, or with a forest, is a calibrator."""
    vectors = np.random.default_rng(9).normal(size=(30_522, 8)).astype(np.float32)
    monkeypatch.setattr(tower_stage, "piece_vectors", lambda _: vectors)
    bush = ForestConfig(trees=5, leaf_rows=5, topics=(2, 2, 2, 2, 2), grams=100)
    alone = replace(config, has_forest=has_forest, forest=bush)
    made = train(tmp_path, alone, lambda _: None)
    scorer = load_scorer(str(made), "cpu")
    assert isinstance(scorer, EmbeddedCalibrator)
    assert scorer.parts.familiarity is not None
    right, wrong = scorer.score_batch(
        [Item("What is 7 + 7?", a, "one") for a in ("It is 14, surely.", "7")]
    )
    assert right.score > wrong.score
    assert scorer.parts.tower is not None
    assert (scorer.parts.forest is not None) == has_forest
    items, names = [Item("What is 7 + 7?", "7", "one")], [1]
    (pieces,) = scorer._pieces(items)
    rows = [tower_row(items[0].question, items[0].answer, *pieces)]
    odds = scorer.parts.tower.logits(rows, names)
    if scorer.parts.forest is not None:
        odds = scorer.parts.forest.join_odds(odds, rows, names)
    assert logit(wrong.score) == pytest.approx(odds[0], abs=1e-6)
    again = train(tmp_path, alone, lambda _: None)  # from the fitted tower
    assert sha256_of(again / "model.safetensors") == read_config(made).weights_sha256


def test_a_tower_is_fitted_once_though_the_next_one_is_interrupted(
    config: TrainConfig, tmp_path: Path
) -> None:
    """Each tower is saved once it is fitted, and an interrupted run ends with the same weights.

    Another configuration may not use them.
    """
    pair = replace(config, tower=replace(config.tower, members=2))

    def stop(text: str) -> None:
        if text.startswith("tower 1"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", pair, stop)
    first = (tmp_path / "run" / "tower-0.npz").stat().st_mtime_ns
    with pytest.raises(TrainingError, match="another configuration"):
        train(tmp_path / "run", replace(pair, outlier_share=0.1), lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", pair, stop)
    assert (tmp_path / "run" / "tower-0.npz").stat().st_mtime_ns == first
    resumed, whole = (train(tmp_path / name, pair, lambda _: None) for name in ("run", "whole"))
    assert read_config(resumed).weights_sha256 == read_config(whole).weights_sha256
    assert not list((tmp_path / "run").glob("tower-*.npz"))


def test_two_towers_of_one_seed_are_one(config: TrainConfig, tmp_path: Path) -> None:
    """The same configuration gives the same weights on the same machine."""
    one, other = (train(tmp_path / name, config, lambda _: None) for name in "ab")
    assert read_config(one).weights_sha256 == read_config(other).weights_sha256


def test_the_checkpoint_says_how_it_came_about(config: TrainConfig, finished: Path) -> None:
    """calibrator.json has selection, tags, curve and quality, and no path to the data."""
    found = read_config(finished)
    assert found.training["selection"]["rows"] == 80
    assert found.source_models == ("one", "two")
    assert found.benchmarks == ("bench-0", "bench-1")
    assert found.layout == config.layout
    assert found.base_rate == 0.5
    assert found.recalibration is not None
    assert found.quality["validation_plain"]["rows"] == found.quality["validation_named"]["rows"]
    assert "data" not in found.training
    assert str(Path(config.data[0]).parent) not in (finished / "calibrator.json").read_text()


def test_the_checkpoint_scores(finished: Path) -> None:
    """A trained checkpoint is loaded and scores right and wrong answers differently."""
    scorer = load_scorer(str(finished), "cpu")
    right, wrong = scorer.score_batch(
        [Item("What is 7 + 7?", a) for a in ("It is 14, surely.", "7")]
    )
    assert scorer.name.startswith("tiny-run@")
    assert 0 < right.confidence < 1
    assert right.score != wrong.score


def test_no_validation_question_is_trained_on(config: TrainConfig, finished: Path) -> None:
    """No validation question is trained on, and no row twice (D04)."""
    run = TrainingRun(finished.parent, config, lambda _: None)
    data = prepare(config, run.tokenizer)
    questions = {row.question_id for row in data.rows}
    held = {f"q{n}" for n in range(40)} - questions
    assert all(share_of(question) >= SHARE for question in questions)
    assert held
    assert all(share_of(question) < SHARE for question in held)
    assert len(data.validation) == 2 * len(held)
    texts = {example.question.tobytes() for example in data.train if example.benchmark}
    assert not texts & {example.question.tobytes() for example in data.validation}
    assert len({id(row) for row in data.rows}) == len(data.rows) == 2 * len(questions)


def test_outliers_carry_the_base_rate(config: TrainConfig, finished: Path) -> None:
    """Outliers have the base rate as their target, and no tags."""
    run = TrainingRun(finished.parent, config, lambda _: None)
    data = prepare(config, run.tokenizer)
    outliers = [example for example in data.train if example.benchmark is None]
    assert len(outliers) == round(len(data.rows) * config.outlier_share) > 0
    assert {example.target for example in outliers} == {data.base_rate} == {0.5}


def test_a_file_is_no_folder_of_a_run(config: TrainConfig, tmp_path: Path) -> None:
    """A file in place of a run's folder is refused and unchanged."""
    file = tmp_path / "run"
    file.write_text("mine")
    with pytest.raises(TrainingError, match="run is a file; a run needs a folder of its own"):
        train(file, config, lambda _: None)
    assert file.read_text() == "mine"


def test_a_folder_of_another_configuration_is_refused(config: TrainConfig, finished: Path) -> None:
    """A folder with a run of another configuration is refused and unchanged."""
    before = (finished.parent / "train.json").read_text()
    with pytest.raises(TrainingError, match="a run with another configuration; choose another"):
        train(finished.parent, replace(config, outlier_share=0.1), lambda _: None)
    assert (finished.parent / "train.json").read_text() == before


def test_a_run_that_never_began_does_not_take_its_folder(
    config: TrainConfig, tmp_path: Path
) -> None:
    """A run that failed before its first step leaves its folder free."""
    few = config_of(write_rows(tmp_path / "few.jsonl", questions=3))
    none_held = replace(few, selection=Selection(validation_share=0.0))
    with pytest.raises(TrainingError, match="too few questions: none is left for validation"):
        train(tmp_path / "run", none_held, lambda _: None)
    TrainingRun(tmp_path / "run", config, lambda _: None)
    assert json.loads((tmp_path / "run" / "train.json").read_text())["name"] == "tiny-run"
