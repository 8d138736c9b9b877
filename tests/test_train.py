"""A real, tiny training run: resumable, never on the questions it is validated on (paper B10, D04).

The base weights are the real ones, so the runs here are as small as a run can be.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from calibrator import Item, TrainingError, load_scorer
from calibrator.checkpoint import read_config, sha256_of
from calibrator.layout import Layout
from calibrator.train import BASE_SHA256, Run, TrainConfig, learning_rate, loss_of, prepare, train
from calibrator.training_data import Batch, Selection, share_of

SHARE = 0.25


def write_rows(path: Path, questions: int = 40) -> Path:
    """Two answers to each question, one right and one wrong; the right ones are longer."""
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
        token_budget=400,
        device="cpu",
        layout=Layout(max_tokens=32),
    )


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    return config_of(write_rows(tmp_path_factory.mktemp("data") / "rows.jsonl"))


@pytest.fixture(scope="module")
def finished(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that nothing interrupted."""
    return train(tmp_path_factory.mktemp("whole") / "run", config, lambda _: None)


def test_a_run_that_was_interrupted_ends_with_the_same_weights(
    config: TrainConfig, finished: Path, tmp_path: Path
) -> None:
    """Going on from saved state is as if nothing had happened, dropout included."""
    run = Run(tmp_path, config, lambda _: None)
    planned = run.epochs(prepare(config, run.tokenizer).train)
    run.model.train()
    for batch in planned[: len(planned) // 2]:
        run.update(batch, len(planned))
    run.save_state()

    said: list[str] = []
    resumed = train(tmp_path, config, said.append)
    assert said[0] == f"going on after step {len(planned) // 2}"
    weights, expected = (load_file(f / "model.safetensors") for f in (resumed, finished))
    assert [name for name in expected if not torch.equal(weights[name], expected[name])] == []
    assert read_config(resumed) == read_config(finished)


def test_a_finished_run_has_nothing_left_to_do(config: TrainConfig, finished: Path) -> None:
    """The same command on a finished folder takes no further step and leaves the weights."""
    before = sha256_of(finished / "model.safetensors")
    said: list[str] = []
    assert train(finished.parent, config, said.append) == finished
    assert said[0].startswith("going on after step")
    assert sha256_of(finished / "model.safetensors") == before


def test_the_checkpoint_says_how_it_came_about(config: TrainConfig, finished: Path) -> None:
    """Base, data choice, tags, curve and quality are in calibrator.json; a path to data is not."""
    found = read_config(finished)
    assert found.training["base_sha256"] == BASE_SHA256
    assert found.training["selection"]["rows"] == 80
    assert found.source_models == ("one", "two")
    assert found.benchmarks == ("bench-0", "bench-1")
    assert found.layout == config.layout
    assert found.base_rate == 0.5
    assert found.recalibration is not None
    assert found.quality["validation_plain"]["rows"] == found.quality["validation_tagged"]["rows"]
    assert "data" not in found.training
    assert str(Path(config.data[0]).parent) not in (finished / "calibrator.json").read_text()


def test_the_checkpoint_scores(finished: Path) -> None:
    """What training writes, serving loads; the trained model tells the two answers apart."""
    scorer = load_scorer(str(finished), "cpu")
    right, wrong = scorer.score_batch(
        [Item("What is 7 + 7?", a) for a in ("It is 14, surely.", "7")]
    )
    assert scorer.name.startswith("tiny-run@")
    assert 0 < right.confidence < 1
    assert right.score != wrong.score


def test_no_validation_question_is_trained_on(config: TrainConfig, finished: Path) -> None:
    """D04: what a run measures itself on, it has not seen; and no row is trained on twice."""
    run = Run(finished.parent, config, lambda _: None)
    data = prepare(config, run.tokenizer)
    asked = {row.question_id for row in data.rows}
    held = {f"q{n}" for n in range(40)} - asked
    assert all(share_of(question) >= SHARE for question in asked)
    assert held
    assert all(share_of(question) < SHARE for question in held)
    assert len(data.validation) == 2 * len(held)
    texts = {tuple(example.question) for example in data.train if example.benchmark}
    assert not texts & {tuple(example.question) for example in data.validation}
    assert len({id(row) for row in data.rows}) == len(data.rows) == 2 * len(asked)


def test_outliers_carry_the_base_rate(config: TrainConfig, finished: Path) -> None:
    """Text of no benchmark's kind has a soft label and no tags."""
    run = Run(finished.parent, config, lambda _: None)
    data = prepare(config, run.tokenizer)
    outliers = [example for example in data.train if example.benchmark is None]
    assert len(outliers) == round(len(data.rows) * config.outlier_share) > 0
    assert {example.target for example in outliers} == {data.base_rate} == {0.5}


def test_a_folder_of_another_configuration_is_refused(config: TrainConfig, finished: Path) -> None:
    """Two runs never mix: another seed in the same folder is a sentence, and nothing changes."""
    before = (finished.parent / "train.json").read_text()
    with pytest.raises(TrainingError, match="a run with another configuration; choose another"):
        train(finished.parent, replace(config, tag_dropout=0.1), lambda _: None)
    assert (finished.parent / "train.json").read_text() == before


def test_a_run_that_never_began_does_not_take_its_folder(
    config: TrainConfig, tmp_path: Path
) -> None:
    """After a mistake that stopped a run before its first step, the folder is free again."""
    few = config_of(write_rows(tmp_path / "few.jsonl", questions=3))
    none_held = replace(few, selection=Selection(validation_share=0.0))
    with pytest.raises(TrainingError, match="too few questions: none is left for validation"):
        train(tmp_path / "run", none_held, lambda _: None)
    run = Run(tmp_path / "run", config, lambda _: None)
    assert run.step == 0


def test_the_learning_rate_warms_up_and_ends_at_zero(config: TrainConfig) -> None:
    """E09: linear up over the first steps, linear down to nothing."""
    steps = 100
    rates = [learning_rate(step, steps, config) for step in range(steps)]
    assert max(rates) == pytest.approx(config.learning_rate)
    assert rates.index(max(rates)) == 5
    assert rates[:6] == sorted(rates[:6])
    assert rates[6:] == sorted(rates[6:], reverse=True)
    assert 0 < rates[-1] < 0.02 * config.learning_rate


def test_the_loss_is_the_cross_entropy_of_the_label(config: TrainConfig, finished: Path) -> None:
    """B10: -log P(i) or -log P(ii), and a soft label is the mixture of both."""
    scorer = load_scorer(str(finished), "cpu")
    rows = scorer.token_rows([Item("What is 7 + 7?", "7")])  # type: ignore[attr-defined]
    p = scorer.score_batch([Item("What is 7 + 7?", "7")])[0].score
    right, wrong, soft = (
        loss_of(scorer.model, Batch(rows, [target]), torch.device("cpu")).item()  # type: ignore[attr-defined]
        for target in (1.0, 0.0, 0.5)
    )
    expected = -torch.log(torch.tensor([p, 1 - p]))
    assert [right, wrong] == pytest.approx(expected.tolist(), abs=0.05)  # bf16
    assert soft == pytest.approx((right + wrong) / 2, abs=1e-5)
