"""Fit the first stage of a training, tower and forest, once, and keep it in the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrator.features.forest import PREFIX as FOREST
from calibrator.features.forest import Forest
from calibrator.features.tower import Tower, TowerRow, Weights
from calibrator.rows.selection import share_of
from calibrator.training.examples import Example
from calibrator.training.run import FITTED, MEMBER
from calibrator.training.stages.forest import ForestData, fit_forest
from calibrator.training.stages.npz import load_arrays, save_arrays
from calibrator.training.stages.piece_vectors import piece_vectors
from calibrator.training.stages.tower import (
    MIN_NAME_ROWS,
    TowerConfig,
    TowerData,
    export,
    fit_tower,
    out_of_fold,
)

if TYPE_CHECKING:
    from calibrator.training.run import TrainConfig, TrainData

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TowerStage:
    """Log-odds (N, 2) of examples without and with name, and the shipped weights.

    Those of the training rows are out of fold, and zeros if there is no encoder to need them. The
    validation rows are new to tower and forest. No forest is fitted beside an encoder: it would
    have to be fitted once more for every fold.
    """

    train_logits: Logits
    validation_logits: Logits
    members: list[Weights]
    forest: Weights  # empty for none

    def logits(self, rows: Sequence[TowerRow], names: Sequence[int]) -> NDArray[np.float64]:
        """Return the log-odds of the shipped weights, (B,)."""
        found = Tower(self.members).logits(rows, names)
        return Forest(self.forest).joined(found, rows, names) if self.forest else found


def is_fitted(folder: Path) -> bool:
    return (folder / FITTED).exists()


def wants_tower_rows(folder: Path, config: TrainConfig) -> bool:
    """Return whether examples must hold the tower's input.

    They must to fit one, and if there is no encoder.
    """
    return config.has_tower and not (config.has_encoder and is_fitted(folder))


def fit_stage(
    folder: Path,
    data: TrainData,
    config: TrainConfig,
    base: Path,
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> TowerStage:
    """Fit towers and forest, or read those that an earlier start of the run fitted.

    `base` is the folder of the base encoder, which gives a forest the vectors of word pieces.
    `progress` is called with the number of rows that the towers were shown, and the total. Fitted
    towers are saved one by one, and the whole stage at the end.
    """
    if not config.has_tower:
        return TowerStage(_nothing(data.train), _nothing(data.validation), [], {})
    if is_fitted(folder):
        return _read(folder / FITTED, config.tower)
    names = known_names(data)
    given, rare = tower_data(data, names, config.tower.folds)
    logits = _nothing(data.train)
    missing = [n for n in range(config.tower.members) if not (folder / MEMBER.format(n)).exists()]
    folds = config.tower.folds - 1 if config.has_encoder else 0  # one fold leaves each row out
    count = _counting(progress, (len(missing) + folds) * len(given.rows))
    if config.has_encoder:
        logits = out_of_fold(given, len(names) + 1, config.tower, config.seed, say, count)
    everything = np.arange(len(given.rows))
    members: list[Weights] = []
    for number in range(config.tower.members):
        if not (part := folder / MEMBER.format(number)).exists():
            seed = config.seed + 100 + number
            model = fit_tower(given, everything, len(names) + 1, config.tower, seed, count)
            save_arrays(part, export(model, rare))
        members.append(load_arrays(part))
        say(f"tower {number + 1} of {config.tower.members} is fitted")
    forest: Weights = {}
    if config.has_forest and not config.has_encoder:
        forest = _grown(given, data, len(names) + 1, config, base, say)
    stage = TowerStage(logits, _nothing(data.validation), members, forest)
    stage = replace(stage, validation_logits=validation_logits(stage, data.validation, names))
    _write(folder / FITTED, stage)
    return stage


def _grown(
    given: TowerData,
    data: TrainData,
    names: int,
    config: TrainConfig,
    base: Path,
    say: Callable[[str], None],
) -> Weights:
    """Fit a forest on the same rows."""
    say(f"growing {config.forest.trees} trees; on 100,000 rows this takes some minutes")
    rows = forest_data(given, data, np.arange(len(given.rows)))
    vectors = piece_vectors(base)
    return fit_forest(rows, names, vectors, config.forest, config.seed, data.described)


def forest_data(given: TowerData, data: TrainData, at: NDArray[np.intp]) -> ForestData:
    """Return the training rows at these places as a forest's data."""
    benchmarks = np.unique([e.benchmark or "" for e in data.train], return_inverse=True)[1]
    questions = np.unique([e.question_id for e in data.train], return_inverse=True)[1]
    own = np.unique(questions[at], return_inverse=True)[1]
    rows = [given.rows[i] for i in at.tolist()]
    return ForestData(rows, given.names[at], benchmarks[at], own, given.targets[at])


def _counting(progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Return a function that adds up rows and calls `progress` with the sum and the total."""
    done = 0

    def count(rows: int) -> None:
        nonlocal done
        done += rows
        progress(done, total)

    return count


def tower_data(
    data: TrainData, names: dict[str, int], folds: int
) -> tuple[TowerData, NDArray[np.bool_]]:
    """Return the training rows as a tower's data, and which names are rare, (1 + names,).

    Rare names have too few rows to learn from, and are replaced by no name.
    """
    given = TowerData(
        tower_rows(data.train),
        np.array([names.get(example.source_model or "", 0) for example in data.train]),
        np.array([example.target for example in data.train], dtype=np.float32),
        np.array([fold_of(example, folds) for example in data.train]),
    )
    rare = np.bincount(given.names, minlength=len(names) + 1) < MIN_NAME_ROWS
    rare[0] = False
    given.names[rare[given.names]] = 0
    return given, rare


def known_names(data: TrainData) -> dict[str, int]:
    """Number the models of the training rows from 1, sorted as in `calibrator.json`."""
    names = sorted({row.model.lower() for row in data.rows if row.model})
    return {name: number + 1 for number, name in enumerate(names)}


def tower_rows(examples: Sequence[Example]) -> list[TowerRow]:
    """Return the tower's input of examples that carry it."""
    return [example.tower for example in examples if example.tower is not None]


def fold_of(example: Example, folds: int) -> int:
    """Return an example's fold; all rows of a question are in one."""
    return fold_of_question(example.question_id, folds)


def fold_of_question(question_id: str, folds: int) -> int:
    """Return a question's fold, from 0, by a hash of its id."""
    return int(share_of(f"fold {question_id}") * folds)


def validation_logits(stage: TowerStage, examples: list[Example], names: dict[str, int]) -> Logits:
    """Return the log-odds of the shipped weights, (N, 2), without and with name."""
    rows = tower_rows(examples)
    known = [names.get(example.source_model or "", 0) for example in examples]
    found = [stage.logits(rows, [0] * len(rows)), stage.logits(rows, known)]
    return np.stack(found, axis=1).astype(np.float32)


def _nothing(examples: list[Example]) -> Logits:
    return np.zeros((len(examples), 2), dtype=np.float32)


def _write(path: Path, stage: TowerStage) -> None:
    """Write the stage into one file, and delete the files of single towers."""
    arrays: dict[str, NDArray[Any]] = {
        f"{number}.{name}": value
        for number, member in enumerate(stage.members)
        for name, value in member.items()
    }
    arrays |= {f"{FOREST}{name}": value for name, value in stage.forest.items()}
    save_arrays(path, arrays | {"train": stage.train_logits, "validation": stage.validation_logits})
    for part in path.parent.glob(MEMBER.format("*")):
        part.unlink()


def _read(path: Path, config: TowerConfig) -> TowerStage:
    with np.load(path) as found:
        members: list[Weights] = [
            {
                name.partition(".")[2]: found[name]
                for name in found.files
                if name.startswith(f"{number}.")
            }
            for number in range(config.members)
        ]
        own = [name for name in found.files if name.startswith(FOREST)]
        forest = {name.removeprefix(FOREST): found[name] for name in own}
        return TowerStage(found["train"], found["validation"], members, forest)
