"""Add or replace parts of a checkpoint: abilities, inspector, knowledge, calls or a second stage.

Tower, forest, curve and familiarity stay the same, number for number. Where a row has no other
replies, a second stage changes nothing either.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from calibrator.checkpoints.checkpoint import (
    WEIGHTS,
    CheckpointConfig,
    copy_evidence,
    read_config,
    sha256_of,
    write_config,
)
from calibrator.embedded.parts import ABILITIES_PREFIX
from calibrator.errors import TrainingError
from calibrator.features.weights import Array, read_weights
from calibrator.readers.calls import PREFIX as CALLS
from calibrator.readers.inspection import PREFIX as INSPECTOR
from calibrator.readers.knowledge import PREFIX as KNOWLEDGE
from calibrator.readers.opinion import PREFIX as OPINION


def write_extended(
    start: Path, folder: Path, name: str, parts: Mapping[str, Array], facts: Mapping[str, Any]
) -> Path:
    """Write the checkpoint `start` with these parts in place of its own; return the new folder.

    `parts` are arrays under their prefixes, `facts` say how they were fitted. Raises TrainingError
    for a language model, CheckpointError for a folder that cannot be read.
    """
    config, state = _own_config(start), weights_in(start)
    replaced = tuple(
        prefix
        for prefix in (ABILITIES_PREFIX, INSPECTOR, KNOWLEDGE, CALLS, OPINION)
        if _has_prefix(parts, prefix)
    )
    state = {key: array for key, array in state.items() if not key.startswith(replaced)}
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {key: np.ascontiguousarray(array) for key, array in {**state, **parts}.items()}
    save_file(arrays, folder / WEIGHTS)
    shutil.copyfile(start / "tokenizer.json", folder / "tokenizer.json")
    copy_evidence(start, folder)
    training = {**config.training, **facts, "extended_from": config.version}
    weights_sha256 = sha256_of(folder / WEIGHTS)
    write_config(
        folder, replace(config, name=name, weights_sha256=weights_sha256, training=training)
    )
    return folder


def weights_in(start: Path) -> dict[str, Array]:
    """Return all arrays of a checkpoint; raises TrainingError for a language model."""
    return read_weights(start / WEIGHTS, _own_config(start).weights_sha256)


def _own_config(start: Path) -> CheckpointConfig:
    config = read_config(start)
    if not isinstance(config, CheckpointConfig):
        raise TrainingError(f"{start} is a language model, which has no such parts")
    return config


def _has_prefix(parts: Mapping[str, Array], prefix: str) -> bool:
    return any(key.startswith(prefix) for key in parts)
