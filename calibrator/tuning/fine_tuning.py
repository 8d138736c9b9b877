"""Fine-tuning: from a checkpoint and labelled replies to a deployment's checkpoint (A09, G06).

    start = TunableCheckpoint("embedded")
    read = start.read(items)                    # in batches; then Readings of all of them
    start.write(folder, fit_tuned(readings), facts, quality)

The result is an ordinary checkpoint with one more layer in its evidence: it loads, scores
and can be tuned again like any other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from calibrator.checkpoints.checkpoint import (
    EVIDENCE,
    WEIGHTS,
    CheckpointConfig,
    read_config,
    resolve_checkpoint,
    write_config,
)
from calibrator.checkpoints.digests import sha256_of
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.embedded.evidence import Evidence, read_reply
from calibrator.embedded.familiarity import PREFIX as FAMILIARITY
from calibrator.embedded.tuned_layer import lines_of
from calibrator.errors import TrainingError
from calibrator.features.weights import read_weights
from calibrator.loading import FAKE
from calibrator.recalibration.curves import log_odds
from calibrator.rows.rows import Row, labels_of
from calibrator.scorer import COMPUTED, Item
from calibrator.tuning.last_layer import CheckpointOutput, Readings, TunedCheckpoint

BATCH = 64


class TunableCheckpoint:
    """The checkpoint that tuning starts from.

    Raises TrainingError unless it has evidence; CheckpointError where it cannot be used.
    """

    def __init__(self, name: str) -> None:
        if name.startswith(FAKE):
            raise TrainingError(f"{name!r} is no calibrator that could be trained")
        self.folder = resolve_checkpoint(name)
        _check_kind(name, self.folder)
        calibrator = load_embedded(self.folder)
        if calibrator.evidence is None:
            raise TrainingError(
                f"checkpoint {name!r} has no {EVIDENCE}; verdicts fine-tune a calibrator that "
                "checks replies, as the shipped one does: copy that file of the shipped checkpoint "
                f"into {self.folder} and its `evidence_sha256` into calibrator.json"
            )
        self._calibrator: EmbeddedCalibrator = calibrator
        self._evidence: Evidence = calibrator.evidence

    @property
    def config(self) -> CheckpointConfig:
        """The configuration of the checkpoint."""
        return self._calibrator.config

    @property
    def version(self) -> str:
        """The checkpoint and its recalibration, e.g. `embedded@3f2a91c0`."""
        return self._calibrator.name

    def learns_from(self, item: Item) -> bool:
        """Return whether fine-tuning uses an item; calls that have their own trees are not used."""
        return not self._calibrator.reads_as_call(item)

    def read(self, items: Sequence[Item]) -> CheckpointOutput:
        """Read items that it learns from; a few dozen at a time bound the memory."""
        calibrator, known = self._calibrator, self._calibrator.parts.familiarity
        replies = [read_reply(item) for item in items]
        read = calibrator.read_texts([each.bare_item for each in replies])
        checked = self._evidence.check(replies)
        features = calibrator.features(checked, read)
        lines = lines_of(calibrator.layers, features)
        # The checkpoint that learns from these replies will know their text.
        as_known = replace(read, distances=np.minimum(read.distances, 1))
        scores, later = (
            self._evidence.weigh(checked, calibrator.likeness(each), lines)
            for each in (read, as_known)
        )
        return CheckpointOutput(
            features.numbers,
            features.grams,
            features.models,
            np.array([each.confidence for each in scores]),
            np.array([log_odds(each.confidence) for each in later]),
            np.array([COMPUTED in each.basis for each in scores], np.bool_),
            known.whiten(read.features) if known else np.zeros((len(items), 0), np.float32),
        )

    def read_rows(
        self, rows: Sequence[Row], progress: Callable[[int], None] = lambda _: None
    ) -> Readings:
        """Read labelled rows that it learns from, all with the same weight.

        `progress` is called with the number of rows of each batch.
        """
        parts = []
        for at in range(0, len(rows), BATCH):
            parts.append(self.read([row.item("served") for row in rows[at : at + BATCH]]))
            progress(len(parts[-1].odds))
        return Readings(
            CheckpointOutput.join(parts),
            [(row.model or "").lower() for row in rows],
            [row.question_id for row in rows],
            labels_of(rows),
            np.ones(len(rows)),
        )

    def write(
        self,
        folder: Path,
        tuned: TunedCheckpoint,
        facts: Mapping[str, Any],
        quality: Mapping[str, Any],
    ) -> CheckpointConfig:
        """Write the tuned checkpoint and return its configuration; `facts` describe the labels.

        Raises TrainingError as `check_output`.
        """
        check_output(folder)
        state = dict(read_weights(self.folder / WEIGHTS, self.config.weights_sha256))
        if known := self._calibrator.parts.familiarity:
            its = known.with_centre(tuned.centre).state()
            state |= {key: array for key, array in its.items() if key.startswith(FAMILIARITY)}
        checks = dict(read_weights(self.folder / EVIDENCE, self.config.evidence_sha256))
        checks |= tuned.layer.state(len(self._calibrator.layers))
        folder.mkdir(parents=True, exist_ok=True)
        for name, arrays in ((WEIGHTS, state), (EVIDENCE, checks)):
            save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, folder / name)
        shutil.copyfile(self.folder / "tokenizer.json", folder / "tokenizer.json")
        config = replace(
            self.config,
            weights_sha256=sha256_of(folder / WEIGHTS),
            evidence_sha256=sha256_of(folder / EVIDENCE),
            training={**self.config.training, "tuned": {"from": self.version, **facts}},
            quality=dict(quality),
        )
        write_config(folder, config)  # last, since a folder without it is no checkpoint
        return config


def check_output(folder: Path) -> None:
    """Raise TrainingError unless the folder is empty or missing."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise TrainingError(f"{folder} is not an empty folder: name another one")


def _check_kind(name: str, folder: Path) -> None:
    """Raise TrainingError for a calibrator that is a language model."""
    if isinstance(config := read_config(folder, name), LlmConfig):
        raise TrainingError(
            f"checkpoint {name!r} is a language model ({config.architecture}); verdicts fine-tune "
            "the embedded calibrator here. For this one: `pinocchio export --labelled -o "
            f"FILE.jsonl` and `pinocchio train FILE.jsonl --start {name} -o FOLDER`"
        )
