"""Add or replace parts of a checkpoint: abilities, inspector, knowledge, calls or a second stage.

Tower, forest and curve stay the same, number for number. Familiarity stays too, except for the
distance at which it begins, which can be measured again. Where a row has no other replies, a second
stage changes nothing either.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from calibrator.calls import PREFIX as CALLS
from calibrator.checkpoints.checkpoint import (
    WEIGHTS,
    CheckpointConfig,
    copy_evidence,
    read_config,
    write_config,
)
from calibrator.checkpoints.digests import sha256_of
from calibrator.embedded.calibrator import load_embedded
from calibrator.embedded.familiarity import KNOWN_SHARE
from calibrator.embedded.familiarity import PREFIX as FAMILIARITY
from calibrator.errors import TrainingError
from calibrator.features.abilities import PREFIX as ABILITIES
from calibrator.features.weights import Array, read_weights
from calibrator.inspection import PREFIX as INSPECTOR
from calibrator.knowledge import PREFIX as KNOWLEDGE
from calibrator.opinion import PREFIX as OPINION
from calibrator.rows.rows import Row

AT_ONCE = 32


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
        for prefix in (ABILITIES, INSPECTOR, KNOWLEDGE, CALLS, OPINION)
        if _holds(parts, prefix)
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


def measured_anew(start: Path, held: Sequence[Row], count: int, seed: int) -> dict[str, Array]:
    """Measure again the distance at which a checkpoint begins to draw texts to the base rate.

    With the returned threshold, `KNOWN_SHARE` of at most `count` held rows stay unchanged; every
    other row is read with its names. Return nothing for a checkpoint without familiarity, and
    without rows of text.
    """
    scorer = load_embedded(start)
    texts = [row for row in held if row.tool_use is None]
    if scorer.parts.familiarity is None or not texts:
        return {}
    chosen = random.Random(seed).sample(texts, min(count, len(texts)))
    items = [row.item("none" if at % 2 else "served") for at, row in enumerate(chosen)]
    distances = np.concatenate(
        [
            scorer.read_texts(items[at : at + AT_ONCE]).distances
            for at in range(0, len(items), AT_ONCE)
        ]
    )
    threshold = scorer.parts.familiarity.threshold * np.quantile(distances, KNOWN_SHARE)
    return {FAMILIARITY + "threshold": np.asarray(threshold, dtype=np.float32)}


def weights_in(start: Path) -> dict[str, Array]:
    """Return all arrays of a checkpoint; raises TrainingError for a language model."""
    return read_weights(start / WEIGHTS, _own_config(start).weights_sha256)


def _own_config(start: Path) -> CheckpointConfig:
    config = read_config(start)
    if not isinstance(config, CheckpointConfig):
        raise TrainingError(f"{start} is a language model, which has no such parts")
    return config


def _holds(parts: Mapping[str, Array], prefix: str) -> bool:
    return any(key.startswith(prefix) for key in parts)
