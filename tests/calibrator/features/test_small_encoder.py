"""The small encoder: the error of packing, and agreement with BERT."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from calibrator.features.small_encoder import (
    LAYER_BITS,
    SmallEncoder,
    packed_planes,
    small_state,
    unpacked_planes,
)
from calibrator.text.word_pieces import CLS, SEP

HIDDEN, LAYERS, VOCABULARY = 192, 2, 120
NAMES = [*(f"[unused{at}]" for at in range(100)), "[UNK]", "[CLS]", "[SEP]"]
PIECES = {name: at for at, name in enumerate([*NAMES, *(f"w{at}" for at in range(16)), "ж"])}


def test_few_bits_lose_little() -> None:
    """Packing with four bits changes a table by less than 13 %, with eight by less than 1 %."""
    table = np.random.default_rng(1).normal(size=(40, 128)).astype(np.float32)
    lost = {
        bits: np.linalg.norm(unpacked_planes(*packed_planes(table, bits, 64)) - table)
        / np.linalg.norm(table)
        for bits in (3, 4, 8)
    }
    assert lost[8] < 0.01 < lost[4] < 0.13 < lost[3] < 0.3


def test_rows_of_planes_are_rows_of_the_table() -> None:
    """Some rows can be unpacked alone, with the same values."""
    table = np.random.default_rng(2).normal(size=(30, 64)).astype(np.float32)
    planes, scale = packed_planes(table, 3, 64)
    some = np.array([7, 7, 0])
    every = unpacked_planes(planes, scale)
    assert (unpacked_planes(planes[:, some], scale[some]) == every[some]).all()


@pytest.fixture(scope="module")
def bert() -> BertModel:
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=12,
        intermediate_size=384,
        max_position_embeddings=32,
    )
    return BertModel(config, add_pooling_layer=False).eval()


def test_it_computes_what_bert_does(bert: BertModel) -> None:
    """The encoder gives the states of BERT with the packed weights, for any length."""
    base = {name: value.numpy() for name, value in bert.state_dict().items()}
    state = small_state(base, PIECES, LAYERS, 24)
    encoder = SmallEncoder(state)
    texts = [[103, 104, 105], [110], [103] * 20]
    with torch.inference_mode():
        for name, weight in bert.state_dict().items():
            if "encoder.layer" in name and name.endswith("weight") and weight.dim() == 2:
                packed = packed_planes(weight.numpy(), LAYER_BITS, 64)
                weight.copy_(torch.from_numpy(unpacked_planes(*packed)))
        words = bert.embeddings.word_embeddings.weight
        words.copy_(torch.from_numpy(unpacked_planes(*packed_planes(words.numpy(), 3, HIDDEN))))
        expected = [
            bert(torch.tensor([[CLS, *ids, SEP]])).last_hidden_state[0].numpy() for ids in texts
        ]
    for own, wanted in zip(encoder(texts), expected, strict=True):
        assert np.abs(own - wanted).max() < 0.02


def test_other_scripts_share_the_unknown_piece(bert: BertModel) -> None:
    """Pieces beyond ASCII and unused ones share the unknown piece's vector."""
    base = {name: value.numpy() for name, value in bert.state_dict().items()}
    rows = small_state(base, PIECES, LAYERS, 24)["rows"]
    assert rows[PIECES["ж"]] == rows[PIECES["[unused7]"]] == rows[PIECES["[UNK]"]]
    assert rows[PIECES["w1"]] != rows[PIECES["w2"]]


def test_an_encoder_of_another_shape_is_refused(bert: BertModel) -> None:
    """A missing layer or rows out of range are refused."""
    base = {name: value.numpy() for name, value in bert.state_dict().items()}
    state = small_state(base, PIECES, LAYERS, 24)
    with pytest.raises(ValueError, match="another shape"):
        SmallEncoder(state | {"rows": state["rows"] + np.int16(500)})
    with pytest.raises(ValueError, match="another shape"):
        SmallEncoder({k: a for k, a in state.items() if not k.startswith(("0.", "1."))})
