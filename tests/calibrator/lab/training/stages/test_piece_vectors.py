"""Vectors of word pieces: the base encoder's states, close for similar words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from calibrator.lab.training.run import base_folder
from calibrator.lab.training.stages.piece_vectors import load_base, read_alone
from calibrator.text.word_pieces import CLS, SEP, load_tokenizer


@pytest.fixture(scope="module")
def base() -> nn.Module:
    return load_base(base_folder())


def test_a_piece_is_read_alone(base: nn.Module) -> None:
    """A piece's vector is the mean state of [CLS] piece [SEP], in any batch."""
    found = read_alone(base, range(2000, 2600))
    with torch.inference_mode():
        states = base(torch.tensor([[CLS, 2599, SEP]])).last_hidden_state
    assert found.shape == (600, 384)
    assert found[-1] == pytest.approx(states[0].mean(0).numpy(), abs=1e-4)


def test_like_words_have_like_vectors(base: nn.Module) -> None:
    """A chemist is nearer to a physicist than to a guitar."""
    tokenizer = load_tokenizer(base_folder())
    vectors = []
    for word in ("chemist", "physicist", "guitar"):
        piece = tokenizer.token_to_id(word)
        assert piece is not None
        vectors.append(read_alone(base, range(piece, piece + 1))[0])
    chemist, physicist, guitar = (each / np.linalg.norm(each) for each in vectors)
    assert chemist @ physicist > chemist @ guitar + 0.2
