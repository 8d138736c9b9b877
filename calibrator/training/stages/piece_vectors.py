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

from calibrator.checkpoints.checkpoint import EncoderConfig
from calibrator.embedded.torch_encoder import CrossEncoderModel, load_base
from calibrator.text.layout import CLS, SEP

AT_ONCE = 512


@lru_cache(maxsize=1)
def piece_vectors(base: Path) -> NDArray[np.float32]:
    """Return the vectors of all pieces of the vocabulary, (V, hidden), read-only.

    `base` is the folder of the base encoder. This takes half a minute on one core, once in a
    process.
    """
    model = CrossEncoderModel(geometry := EncoderConfig()).eval()
    load_base(model, base)
    found = read_alone(model, range(geometry.vocabulary))
    found.flags.writeable = False
    return found


@torch.inference_mode()
def read_alone(model: CrossEncoderModel, pieces: range) -> NDArray[np.float32]:
    """Return the mean of the states of each piece between its two marks, (len(pieces), hidden)."""
    found = []
    for start in range(pieces.start, pieces.stop, AT_ONCE):
        some = torch.arange(start, min(start + AT_ONCE, pieces.stop))
        ids = torch.full((len(some), 3), CLS)
        ids[:, 1], ids[:, 2] = some, SEP
        states = model.features(ids, torch.ones_like(ids), torch.zeros_like(ids))
        found.append(states[:, states.shape[1] // 2 :])
    return torch.cat(found).float().numpy()
