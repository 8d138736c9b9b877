"""The encoder's part of a training: where it begins, what it minimises, when it ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from calibrator import Item, load_scorer
from calibrator.checkpoints.checkpoint import EncoderConfig
from calibrator.checkpoints.digests import sha256_of
from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.embedded.parts import read_checkpoint
from calibrator.embedded.torch_encoder import CrossEncoderModel, load_weights
from calibrator.recalibration.curves import sigmoid
from calibrator.text.layout import CLS, SEP, TokenRow
from calibrator.training.examples import Batch
from calibrator.training.run import BASE_SHA256, Run, TrainConfig, base_folder
from calibrator.training.stages import encoder
from calibrator.training.stages.encoder import EncoderRun, learning_rate, loss_of
from calibrator.training.train import train
from tests.builders.tiny_checkpoint import BASE
from tests.calibrator.training.test_train import config_of, write_rows
from tests.calibrator.training.tiny_runs import tiny_base


@pytest.fixture(scope="module", autouse=True)
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with tiny_base(tmp_path_factory.mktemp("base")):
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    return replace(config_of(write_rows(tmp_path_factory.mktemp("data") / "rows.jsonl")), epochs=1)


@pytest.fixture(scope="module")
def finished(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("whole") / "run", config, lambda _: None)


def begun(folder: Path, config: TrainConfig) -> EncoderRun:
    """An encoder before its first step."""
    return EncoderRun(Run(folder, config, lambda _: None), base_folder())


def test_a_run_begins_with_the_real_base(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All six layers are those of all-MiniLM-L6-v2, and a step moves the last of them."""
    monkeypatch.setattr(encoder, "EncoderConfig", EncoderConfig)
    run = EncoderRun(Run(tmp_path, config, lambda _: None), BASE)
    base = load_file(BASE / "model.safetensors")
    assert sha256_of(BASE / "model.safetensors") == BASE_SHA256
    made = {name: weight.clone() for name, weight in run.model.encoder.state_dict().items()}
    words, last = "embeddings.word_embeddings.weight", "encoder.layer.5.output.dense.weight"
    assert [n for n in made if n != words and not torch.equal(made[n], base[n].bfloat16())] == []
    assert torch.allclose(made[words].float(), base[words], atol=0.02)  # packed, as they ship
    trained = [name for name, each in run.model.named_parameters() if each.requires_grad]
    at = trained.index(f"encoder.{last}")
    before = run.optimizer.copies[at].clone()  # in fp32: a first step vanishes in bf16
    rows = [TokenRow([CLS, 2000 + n, SEP], 2, False) for n in range(2)]
    for _ in range(2):  # the head begins at zero, and lets nothing through before its first step
        run.update(Batch(rows, [0.0, 1.0], [0.0, 0.0]), 2)
    assert torch.equal(before, made[last].float())
    assert not torch.equal(run.optimizer.copies[at], before)


def test_a_run_can_begin_from_a_checkpoint(
    config: TrainConfig, finished: Path, tmp_path: Path
) -> None:
    """With `start` the encoder begins with that checkpoint's weights instead of the base's."""
    made = begun(tmp_path / "begun", replace(config, start=str(finished))).model.state_dict()
    expected = read_checkpoint(finished).weights
    base = begun(tmp_path / "base", config).model.state_dict()
    name = "encoder.encoder.layer.0.output.dense.weight"
    assert torch.equal(made[name].float(), torch.tensor(expected[name]))
    assert not torch.equal(made[name], base[name])


def test_the_learning_rate_warms_up_stays_and_falls(config: TrainConfig) -> None:
    """E09: linear up over the first rows, constant, linear down to nothing over the last fifth."""
    config = replace(config, warmup_rows=50)
    rates = [learning_rate(seen, config, 1_000) for seen in range(1_000)]
    assert rates[:50] == sorted(rates[:50])
    assert set(rates[50:800]) == {config.learning_rate}
    assert rates[801:] == sorted(rates[801:], reverse=True)
    assert 0 < rates[-1] < 0.01 * config.learning_rate


def test_the_loss_is_the_cross_entropy_of_the_label(config: TrainConfig, finished: Path) -> None:
    """B10: -log P(i) or -log P(ii), the tower's log-odds added; a soft label mixes both."""
    scorer = load_scorer(str(finished), "cpu")
    assert isinstance(scorer, EmbeddedCalibrator)
    item = Item("What is 7 + 7?", "7")
    assert scorer.parts.tower is not None
    rows = scorer.token_rows([item])
    offset, _ = scorer.parts.tower.read(scorer.read_texts([item]).rows, [0])
    p = scorer.score_batch([item])[0].score
    found = read_checkpoint(finished)
    assert found.config.encoder is not None
    model = load_weights(CrossEncoderModel(found.config.encoder), found.weights).eval()

    def loss(target: float, **changes: float) -> float:
        batch, changed = Batch(rows, [target], offset.tolist()), replace(config, **changes)  # type: ignore[arg-type]
        return loss_of(model, batch, torch.device("cpu"), changed).item()

    assert loss(1.0) == pytest.approx(-math.log(p), abs=1e-4)
    assert loss(0.0) == pytest.approx(-math.log(1 - p), abs=1e-4)
    assert loss(0.5) == pytest.approx((loss(0.0) + loss(1.0)) / 2, abs=1e-5)
    assert loss(1.0, label_smoothing=0.1) == pytest.approx(0.9 * loss(1.0) + 0.1 * loss(0.0))
    assert loss(1.0, focal_gamma=2.0) == pytest.approx((1 - p) ** 2 * loss(1.0), abs=1e-5)
    tower = float(sigmoid(offset[0]))
    half = 0.5 + 0.5 * tower
    mixed = half * loss(1.0) + (1 - half) * loss(0.0)
    assert loss(1.0, soft_labels=0.5) == pytest.approx(mixed, abs=1e-5)


def test_a_run_ends_early_when_its_loss_does_not_fall(config: TrainConfig, tmp_path: Path) -> None:
    """After `patience` measurements without a better one, no further step is taken."""
    run = begun(tmp_path, replace(config, patience=2))
    for losses, is_over in (([], False), ([0.6, 0.5, 0.51], False), ([0.6, 0.5, 0.51, 0.5], True)):
        run.watched = losses
        assert run.is_over is is_over
