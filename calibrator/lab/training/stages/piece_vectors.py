"""Compute a vector of each word piece: the base encoder's output when it reads the piece alone.

An encoder so distilled into a table (Tulkens and van Dongen, Model2Vec, 2024) needs no pass to
serve, and still knows that `chemist` is like `physicist`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertModel

from calibrator.text.word_pieces import CLS, SEP

VOCABULARY = 30_522  # of BERT's uncased vocabulary
AT_ONCE = 512


@lru_cache(maxsize=1)
def piece_vectors(base: Path) -> NDArray[np.float32]:
    """Return the vectors of all word pieces of the vocabulary, (V, hidden), read-only.

    `base` is the folder of the base encoder. This takes half a minute on one core; the last result
    is remembered.
    """
    found = read_alone(load_base(base), range(VOCABULARY))
    found.flags.writeable = False
    return found


def load_base(folder: Path) -> nn.Module:
    """Load the base encoder, all-MiniLM-L6-v2, from its folder, in evaluation mode.

    Raises RuntimeError if a weight is missing.
    """
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1_536,
        max_position_embeddings=512,
    )
    model: nn.Module = BertModel(config, add_pooling_layer=False)
    state = load_file(folder / "model.safetensors")
    wanted = model.state_dict().keys()
    model.load_state_dict({name: state[name] for name in wanted if name in state}, strict=True)
    return model.eval()


@torch.inference_mode()
def read_alone(model: nn.Module, pieces: range) -> NDArray[np.float32]:
    """Return a vector for each word piece, read alone by `model`, (len(pieces), hidden).

    It is the mean of three states: those of [CLS], the piece and [SEP].
    """
    found = []
    for start in range(pieces.start, pieces.stop, AT_ONCE):
        some = torch.arange(start, min(start + AT_ONCE, pieces.stop))
        ids = torch.full((len(some), 3), CLS)
        ids[:, 1], ids[:, 2] = some, SEP
        found.append(model(ids).last_hidden_state.sum(1) / 3)
    return torch.cat(found).float().numpy()
