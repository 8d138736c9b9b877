"""Fine-tuning: from a checkpoint and labelled replies to a deployment's checkpoint (A09, G06).

    start = TunableCheckpoint("embedded")
    read = start.read(items)                    # in batches; then Readings of all of them
    start.write(folder, fit_tuned(readings), facts, quality)

The result is an ordinary checkpoint with one more layer in its evidence: it loads, scores
and can be tuned again like any other.

`try_tuning` compares it on a deployment's labels: it has to beat today's numbers as a recalibration
has to (`recalibration.trial`). The recalibration in it would often be enough for that. Since a new
checkpoint needs new certificates and recalibrations, it must also beat a recalibration that learnt
from the same labels (paper A09: evaluate, then recalibrate, then fine-tune).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    sha256_of,
    write_config,
)
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.embedded.evidence import Evidence, read_reply
from calibrator.embedded.tuned_layer import lines_of
from calibrator.errors import TrainingError
from calibrator.features.weights import read_weights
from calibrator.loading import FAKE
from calibrator.metrics.metrics import Floats
from calibrator.recalibration.curves import log_odds
from calibrator.recalibration.fit import FOLDS, LabelledConfidences
from calibrator.recalibration.trial import (
    ROUNDS,
    Trial,
    compare_fits,
    fixed_confidences,
    predict_unseen,
    recalibrate_unseen,
)
from calibrator.rows.rows import Row, labels_of
from calibrator.scorer import COMPUTED, Item
from calibrator.tuning.last_layer import CheckpointOutput, Readings, TunedCheckpoint, fit_tuned

BATCH = 64

TUNING_STEPS = FOLDS + ROUNDS + 1  # approximate number of calls of `progress`


class TunableCheckpoint:
    """The checkpoint that tuning starts from.

    Raises TrainingError unless it has evidence; CheckpointError where it cannot be used.
    """

    def __init__(self, name: str) -> None:
        """Load the checkpoint of this name; see the class for what is raised."""
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
        """Return whether fine-tuning uses an item: not if the trees for tool calls judge it."""
        return not self._calibrator.reads_as_call(item)

    def read(self, items: Sequence[Item]) -> CheckpointOutput:
        """Return the checkpoint's output for items that it learns from, with their features.

        A few dozen items at a time bound the memory.
        """
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
        """Return the output for labelled rows that it learns from, all with the same weight.

        `progress` is called with the number of rows of each batch. A missing label counts as wrong.
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
        """Write the tuned checkpoint into `folder` and return its configuration.

        `facts` describe the labels and `quality` what was measured, for `calibrator.json`. Raises
        TrainingError as `check_output`, and OSError.
        """
        check_output(folder)
        state = dict(read_weights(self.folder / WEIGHTS, self.config.weights_sha256))
        if known := self._calibrator.parts.familiarity:
            state |= known.with_centre(tuned.centre).state()
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
    """Raise TrainingError unless a folder is empty or does not exist."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise TrainingError(f"{folder} is not an empty folder: name another one")


def _check_kind(name: str, folder: Path) -> None:
    """Raise TrainingError if the folder's calibrator is a language model."""
    if isinstance(config := read_config(folder, name), LlmConfig):
        raise TrainingError(
            f"checkpoint {name!r} is a language model ({config.architecture}); verdicts fine-tune "
            "the embedded calibrator here. For this one: `pinocchio export --labelled -o "
            f"FILE.jsonl` and `pinocchio train FILE.jsonl --start {name} -o FOLDER`"
        )


@dataclass(frozen=True, slots=True)
class TuningTrial:
    """The result of fine-tuning on all labels, and trials of the same on unseen labels."""

    tuned: TunedCheckpoint
    now: Trial  # fine-tuned against today's numbers
    recalibration: Trial  # a recalibration alone against today's numbers
    beside: Trial  # fine-tuned against that recalibration

    @property
    def is_better(self) -> bool:
        """Whether the fine-tuned checkpoint may replace today's: it beats both alternatives."""
        return self.now.is_better and self.beside.is_better

    def as_dict(self) -> dict[str, Any]:
        """Return the three trials and what was learnt as plain values for JSON, by name."""
        trials = {"now": self.now, "recalibration": self.recalibration, "beside": self.beside}
        values = {name: each.as_dict() for name, each in trials.items()}
        learnt = {"learnt": self.tuned.learnt, "models": dict(self.tuned.models)}
        return {"is_better": self.is_better, **learnt, **values}


def try_tuning(
    found: Readings, now: Floats, progress: Callable[[], None] = lambda: None
) -> TuningTrial:
    """Fine-tune on replies in the order of time, and compare the result on unseen labels.

    `now` (n,) are their confidences with today's recalibration; `progress` is called after each of
    about `TUNING_STEPS` fits. Raises JudgingError for too few labels, or labels of one kind.
    """

    def learn(known: Sequence[int], judged: Sequence[int]) -> Floats:
        """Return the confidences in `judged` after a fit on `known`, both positions."""
        return fit_tuned(found.take(known)).confidence(found.read.take(judged))

    tuned = fit_tuned(found)  # first, as it reports missing labels
    progress()
    nobody = [""] * len(found)
    own = found.read.confidence
    observed = LabelledConfidences(found.correct, own, nobody, found.questions, found.weights)
    before, less = fixed_confidences(now), recalibrate_unseen(observed)
    more = predict_unseen(observed, learn, progress)
    return TuningTrial(
        tuned,
        compare_fits(observed, before, more),
        compare_fits(observed, before, less),
        compare_fits(observed, less, more),
    )
