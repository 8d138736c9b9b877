"""Finish a training after its last step: recalibrate, measure, write the checkpoint.

Or add or replace parts of a checkpoint: abilities, inspector, knowledge, calls or a second stage.
Tower, forest, curve and familiarity then stay the same, number for number. Where a row has no other
replies, a second stage changes nothing either.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from calibrator.checkpoints.checkpoint import (
    WEIGHTS,
    CheckpointConfig,
    copy_evidence,
    read_config,
    sha256_of,
    write_config,
)
from calibrator.embedded.parts import ABILITIES_PREFIX, Familiarity, fit_familiarity
from calibrator.errors import TrainingError
from calibrator.features.forest import PREFIX as FOREST
from calibrator.features.tower import PREFIX as TOWER
from calibrator.features.tower import Tower
from calibrator.features.weights import Array, read_weights
from calibrator.lab.training.rows.examples import Example
from calibrator.lab.training.run import BASE_SHA256
from calibrator.lab.training.tower_stage import TowerStage, known_names, tower_rows
from calibrator.metrics.metrics import auroc, brier, ece
from calibrator.metrics.numbers import validation_text
from calibrator.readers.calls import PREFIX as CALLS
from calibrator.readers.inspection import PREFIX as INSPECTOR
from calibrator.readers.knowledge import PREFIX as KNOWLEDGE
from calibrator.readers.opinion import PREFIX as OPINION
from calibrator.recalibration.curves import Platt, fit_platt, sigmoid

if TYPE_CHECKING:
    from calibrator.lab.training.run import TrainData, TrainingRun

Floats = NDArray[np.float64]


def measure_validation(
    data: TrainData, tower: TowerStage, *, is_named: bool
) -> tuple[Floats, Floats]:
    """Return (targets, P(correct)) of the validation rows, each (N,), before recalibration.

    The probabilities are by towers and forest, read with the models' names if `is_named`, otherwise
    without.
    """
    targets = np.array([example.target for example in data.validation])
    return targets, sigmoid(tower.validation_logits[:, int(is_named)].astype(np.float64))


def measure_familiarity(run: TrainingRun, data: TrainData, tower: TowerStage) -> Familiarity | None:
    """Fit the distances by which text counts as familiar; None if no benchmark has enough rows.

    The features are the first tower's hidden layer, for up to `config.familiarity_rows` random
    training rows, and at most half as many validation rows for the threshold. Every other row is
    read with its model's name.
    """
    rng = random.Random(run.config.seed + 2)
    known = data.train[: len(data.rows)]  # the outliers follow
    count = run.config.familiarity_rows
    chosen = rng.sample(known, min(count, len(known)))
    held = rng.sample(data.validation, min(count // 2, len(data.validation)))
    groups = [example.benchmark for example in chosen]
    names = known_names(data)

    def features_of(examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the first tower's hidden layer (N, D); every other row is read with its name."""
        name_numbers = [
            names.get(e.source_model or "", 0) * (i % 2) for i, e in enumerate(examples)
        ]
        return Tower(tower.members).read(tower_rows(examples), name_numbers)[1]

    return fit_familiarity(features_of(chosen), groups, features_of(held))


def finish(
    run: TrainingRun,
    data: TrainData,
    tower: TowerStage,
    parts: Mapping[str, Array],
    target: Path,
) -> Path:
    """Recalibrate on the validation rows, measure, and write the checkpoint; return `target`.

    The curve is fitted on all rows twice, without and with names. Quality is measured before
    recalibration and printed by `run.say`. `parts` are arrays of other parts by full name, which
    are written unchanged. Only towers and forest are measured and recalibrated: their number is the
    probability that a reply in order is right.
    """
    plain, named = (
        measure_validation(data, tower, is_named=is_named) for is_named in (False, True)
    )
    labels, scores = (np.concatenate(pair) for pair in zip(plain, named, strict=True))
    platt = fit_platt(labels, scores)
    quality = {"validation_plain": _quality(*plain), "validation_named": _quality(*named)}
    plain_quality, named_quality = quality.values()
    moment = "before inspector and trees for calls"
    run.say(validation_text(plain_quality, named_quality, moment))
    familiarity = measure_familiarity(run, data, tower)
    weights = weights_of(tower) | dict(parts)
    weights |= familiarity.state() if familiarity else {}
    return write_checkpoint(run, data, platt, weights, quality, target)


def _quality(labels: Floats, scores: Floats) -> dict[str, float]:
    """Return `auroc`, `brier` and `ece` of scores (N,) for labels (N,), and `rows`, their number.

    The first three are rounded to four decimals.
    """
    return {
        "auroc": round(auroc(labels, scores), 4),
        "brier": round(brier(labels, scores), 4),
        "ece": round(ece(labels, scores), 4),
        "rows": len(labels),
    }


def weights_of(tower: TowerStage) -> dict[str, Array]:
    """Return the arrays of towers and forest by full name: `tower.0.table`, `forest.share`."""
    weights: dict[str, Array] = {}
    for number, member in enumerate(tower.members):
        weights |= {f"{TOWER}{number}.{name}": array for name, array in member.items()}
    return weights | {f"{FOREST}{name}": array for name, array in tower.forest.items()}


def write_checkpoint(
    run: TrainingRun,
    data: TrainData,
    platt: Platt,
    weights: Mapping[str, Array],
    quality: dict[str, Any],
    target: Path,
) -> Path:
    """Write a checkpoint into the folder `target`, created if missing, and return it.

    It gets `weights` (arrays by full name) as `model.safetensors`, `tokenizer.json`, and
    `calibrator.json` with the curve `platt`, `quality`, the names of models and benchmarks, and the
    configuration without paths. Existing files are replaced. Raises OSError.
    """
    target.mkdir(exist_ok=True)
    arrays = {name: np.asarray(each, order="C") for name, each in weights.items()}
    save_file(arrays, target / WEIGHTS)
    (target / "tokenizer.json").write_text(run.tokenizer.to_str())
    unsaid = ("data", "layout")  # paths of this machine, or stored elsewhere
    training = {k: v for k, v in run.config.as_dict().items() if k not in unsaid}
    if run.config.has_forest or run.config.has_inspector:
        # the base model gave word pieces their vectors
        training |= {"base": "all-MiniLM-L6-v2", "base_sha256": BASE_SHA256}
    config = CheckpointConfig(
        name=run.config.name,
        weights_sha256=sha256_of(target / WEIGHTS),
        base_rate=round(data.base_rate, 4),
        layout=run.config.layout,
        recalibration=platt,
        source_models=tuple(known_names(data)),
        benchmarks=tuple(sorted({row.benchmark for row in data.rows if row.benchmark})),
        training={**training, "questions": len({row.question_id for row in data.rows})},
        quality=quality,
    )
    write_config(target, config)
    return target


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
