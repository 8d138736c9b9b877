"""Trainings of a second: few trees and few words for each part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrator.lab.studies.embedded_fit import as_shipped
from calibrator.lab.training import tower_stage, train
from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.lab.training.fits.knowledge.lessons import KnowledgeConfig
from calibrator.lab.training.run import TrainConfig
from calibrator.lab.training.stages import piece_vectors
from calibrator.lab.training.stages.forest import ForestConfig
from calibrator.rows.selection import Selection
from calibrator.text.word_pieces import Layout


def small_training() -> TrainConfig:
    """Return a configuration that trains every part of the shipped calibrator, but small."""
    return replace(
        as_shipped(),
        selection=Selection(validation_share=0.25),
        layout=Layout(max_tokens=32),
        forest=ForestConfig(trees=2, topics=(2, 2, 2, 2, 2), grams=50, leaf_rows=5),
        inspector=InspectorConfig(trees=2, width=8, leaf_rows=5, symbolic_tasks=10),
        knowledge=KnowledgeConfig(layers=1, members=1, width=8, steps=2, own_pairs=30),
    )


def with_made_vectors(patch: pytest.MonkeyPatch) -> None:
    """Use random vectors for word pieces: those of the encoder take a minute."""
    vectors = np.random.default_rng(9).normal(size=(30_522, 16)).astype(np.float32)
    for module in (train, tower_stage, piece_vectors):
        patch.setattr(module, "piece_vectors", lambda _: vectors)
