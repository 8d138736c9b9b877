"""The reader's training: it learns, continues where it ended, and rounds as the reader does."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel

from calibrator.features.small_encoder import GROUP, LAYER_BITS, packed_planes, unpacked_planes
from calibrator.lab.training.fits.evidence.examples import ENTAIL, NEUTRAL, ReaderExample
from calibrator.lab.training.fits.evidence.reader_fit import (
    ReaderConfig,
    fit_reader,
    round_tensor,
    tensors,
)

CONFIG = ReaderConfig(pieces=200, warm_up=2, save_every=5, learning_rate=2e-3)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Save a tiny BERT with random weights."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=200,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
    )
    config.save_pretrained(tmp_path)
    state = BertModel(config, add_pooling_layer=False).state_dict()
    save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "model.safetensors")
    return tmp_path


def examples() -> list[ReaderExample]:
    """Return rows whose pieces reveal the label."""
    draw = random.Random(1)
    return [
        ReaderExample(
            [101, *draw.choices(range(100 + 20 * label, 120 + 20 * label), k=9)], 5, label, ""
        )
        for label in (ENTAIL, NEUTRAL) * 200
    ]


def test_it_learns_and_goes_on(base: Path) -> None:
    """Pieces that reveal the label are learnt, and a finished run does not begin again."""
    learnt = examples()
    sentences: list[str] = []
    net = fit_reader(learnt, base, base, CONFIG, sentences.append)
    ids, mask, types, labels = tensors(learnt[:100])
    assert (net(ids, mask, types).argmax(1) == labels).float().mean() > 0.9
    steps = len(sentences)
    again = fit_reader(learnt, base, base, CONFIG, sentences.append)
    assert len(sentences) == steps
    assert torch.equal(again.head.weight, net.head.weight)


def test_weights_are_rounded_as_they_are_served() -> None:
    """Rounding in training gives the packed weights, except for the scales' last bits."""
    torch.manual_seed(0)
    weight = torch.randn(32, 128, requires_grad=True)
    near = round_tensor(weight)
    served = unpacked_planes(*packed_planes(weight.detach().numpy(), LAYER_BITS, GROUP))
    assert np.abs(near.detach().numpy() - served).mean() < 0.01
    near.sum().backward()  # type: ignore[no-untyped-call]  # torch has no types for it
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.ones_like(weight))
