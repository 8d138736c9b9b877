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
    """Write a copy of the checkpoint `start` with some parts replaced or added; return `folder`.

    `parts` are arrays by full name, such as `abilities.odds`. If they hold any array of a part
    (abilities, inspector, knowledge, calls or opinion), all old arrays of this part are dropped;
    other arrays stay. `folder` is created if missing, and gets weights, tokenizer, evidence (if
    `start` has any) and `calibrator.json` with the new `name`. `facts` say how the parts were
    fitted; they are added to `training` there, and so is the version of `start` as `extended_from`.
    Raises TrainingError for a language model, CheckpointError for a folder that cannot be read.
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
    """Return all arrays of a checkpoint's folder by full name, such as `forest.ability`.

    Raises TrainingError for a language model, and CheckpointError if the folder cannot be read or
    its weights have another hash than `calibrator.json` states.
    """
    return read_weights(start / WEIGHTS, _own_config(start).weights_sha256)


def _own_config(start: Path) -> CheckpointConfig:
    """Read a checkpoint's `calibrator.json`.

    Raises TrainingError for a language model, CheckpointError for a folder that cannot be read.
    """
    config = read_config(start)
    if not isinstance(config, CheckpointConfig):
        raise TrainingError(f"{start} is a language model, which has no such parts")
    return config


def _has_prefix(parts: Mapping[str, Array], prefix: str) -> bool:
    """Return whether any array's name begins with the prefix, such as `calls.`."""
    return any(key.startswith(prefix) for key in parts)
