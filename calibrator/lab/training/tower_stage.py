"""Fit the first stage of a training, tower and forest, once, and keep it in the run's folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrator.features.forest import PREFIX as FOREST
from calibrator.features.forest import Forest
from calibrator.features.tower import Tower, TowerRow, Weights
from calibrator.lab.training.rows.examples import Example
from calibrator.lab.training.run import FITTED, MEMBER
from calibrator.lab.training.stages.forest import ForestData, fit_forest
from calibrator.lab.training.stages.npz import load_arrays, save_arrays
from calibrator.lab.training.stages.piece_vectors import piece_vectors
from calibrator.lab.training.stages.tower import (
    MIN_NAME_ROWS,
    TowerConfig,
    TowerData,
    export,
    fit_tower,
)
from calibrator.rows.selection import share_of

if TYPE_CHECKING:
    from calibrator.lab.training.run import TrainConfig, TrainData

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TowerStage:
    """The shipped weights, and log-odds (N, 2) of the validation rows without and with name."""

    validation_logits: Logits
    members: list[Weights]
    forest: Weights  # empty for none


def is_fitted(folder: Path) -> bool:
    """Return whether the run's folder has the finished first stage, `tower.npz`."""
    return (folder / FITTED).exists()


def fit_stage(
    folder: Path,
    data: TrainData,
    config: TrainConfig,
    base: Path,
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> TowerStage:
    """Fit all towers and the forest, or load those that an earlier start of the run fitted.

    If `tower.npz` exists in `folder`, it is loaded and nothing else happens. Otherwise each tower
    is saved as `tower-<number>.npz` when it is fitted (existing ones are loaded), and in the end
    all is written to `tower.npz` and the single files are deleted. Without `config.has_forest` the
    forest is empty. `base` is the folder of the base encoder, which gives a forest the vectors of
    word pieces. `progress` is called with the number of rows that the towers were shown, and the
    total. `say` gets lines of progress. Raises MissingExtraError for a forest without scikit-learn.
    """
    if is_fitted(folder):
        return _read(folder / FITTED, config.tower)
    names = known_names(data)
    examples, rare = tower_data(data, names, config.tower.folds)
    missing = [n for n in range(config.tower.members) if not (folder / MEMBER.format(n)).exists()]
    count = _row_counter(progress, len(missing) * len(examples.rows))
    everything = np.arange(len(examples.rows))
    members: list[Weights] = []
    for number in range(config.tower.members):
        if not (part := folder / MEMBER.format(number)).exists():
            seed = config.seed + 100 + number
            model = fit_tower(examples, everything, len(names) + 1, config.tower, seed, count)
            save_arrays(part, export(model, rare))
        members.append(load_arrays(part))
        say(f"tower {number + 1} of {config.tower.members} is fitted")
    forest: Weights = {}
    if config.has_forest:
        forest = _grow_forest(examples, data, len(names) + 1, config, base, say)
    stage = TowerStage(validation_logits(members, forest, data.validation, names), members, forest)
    _write(folder / FITTED, stage)
    return stage


def _grow_forest(
    examples: TowerData,
    data: TrainData,
    names: int,
    config: TrainConfig,
    base: Path,
    say: Callable[[str], None],
) -> Weights:
    """Fit a forest on all training rows and return its arrays, without the prefix `forest.`.

    `names` is the number of known names plus one for no name. Topics and traits, which need no
    labels, are taken from `data.described` if present; its last columns are overwritten. `say` gets
    a line before.
    """
    say(f"growing {config.forest.trees} trees; on 100,000 rows this takes some minutes")
    rows = forest_data(examples, data, np.arange(len(examples.rows)))
    vectors = piece_vectors(base)
    return fit_forest(rows, names, vectors, config.forest, config.seed, data.described)


def forest_data(examples: TowerData, data: TrainData, at: NDArray[np.intp]) -> ForestData:
    """Return the training examples at the places `at` as a forest's data, in this order.

    `examples` are the towers' rows of the same `data`. Benchmarks and questions become numbers;
    those of the questions are from 0 without gaps.
    """
    benchmarks = np.unique([e.benchmark or "" for e in data.train], return_inverse=True)[1]
    questions = np.unique([e.question_id for e in data.train], return_inverse=True)[1]
    own = np.unique(questions[at], return_inverse=True)[1]
    rows = [examples.rows[i] for i in at.tolist()]
    return ForestData(rows, examples.names[at], benchmarks[at], own, examples.targets[at])


def _row_counter(progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Return a function that adds up numbers of rows, and reports the sum after each call.

    It calls `progress` with the sum so far and `total`.
    """
    done = 0

    def count(rows: int) -> None:
        """Add `rows` to the sum, and report it."""
        nonlocal done
        done += rows
        progress(done, total)

    return count


def tower_data(
    data: TrainData, names: dict[str, int], folds: int
) -> tuple[TowerData, NDArray[np.bool_]]:
    """Return the training examples as a tower's data, and a flag for each name, (1 + names,).

    The flag is True for a name with fewer than `MIN_NAME_ROWS` rows; in the data such a name
    becomes 0, no name. The flag of no name is False. `names` gives each model's number, from 1.
    Each example has a fold from 0 to `folds` - 1, the same for all rows of a question.
    """
    examples = TowerData(
        tower_rows(data.train),
        np.array([names.get(example.source_model or "", 0) for example in data.train]),
        np.array([example.target for example in data.train], dtype=np.float32),
        np.array([fold_of(example, folds) for example in data.train]),
    )
    rare = np.bincount(examples.names, minlength=len(names) + 1) < MIN_NAME_ROWS
    rare[0] = False
    examples.names[rare[examples.names]] = 0
    return examples, rare


def known_names(data: TrainData) -> dict[str, int]:
    """Return {name in lower case: number from 1} of the models of the training rows.

    They are sorted by name, as in `calibrator.json`. Rows without a model are skipped.
    """
    names = sorted({row.model.lower() for row in data.rows if row.model})
    return {name: number + 1 for number, name in enumerate(names)}


def tower_rows(examples: Sequence[Example]) -> list[TowerRow]:
    """Return the tower's input of each example, in order."""
    return [example.tower for example in examples]


def fold_of(example: Example, folds: int) -> int:
    """Return an example's fold, from 0 to `folds` - 1; all rows of a question are in one."""
    return fold_of_question(example.question_id, folds)


def fold_of_question(question_id: str, folds: int) -> int:
    """Return a question's fold, from 0 to `folds` - 1, by a hash of its id."""
    return int(share_of(f"fold {question_id}") * folds)


def validation_logits(
    members: Sequence[Weights], forest: Weights, examples: list[Example], names: dict[str, int]
) -> Logits:
    """Return log-odds (N, 2) that the examples are right, first without names, then with.

    They are the mean of the towers, joined with the forest if `forest` is not empty. `members` has
    one mapping of arrays for each tower. `names` gives each known model's number, from 1; other
    models count as no name.
    """
    rows = tower_rows(examples)
    known = [names.get(example.source_model or "", 0) for example in examples]
    tower, found = Tower(members), []
    for numbers in ([0] * len(rows), known):
        odds = tower.logits(rows, numbers)
        found.append(Forest(forest).join_odds(odds, rows, numbers) if forest else odds)
    return np.stack(found, axis=1).astype(np.float32)


def _write(path: Path, stage: TowerStage) -> None:
    """Write the stage to `path` as one file, then delete the files of single towers beside it.

    The names are `<tower's number>.<name>`, `forest.<name>` and `validation` for the log-odds.
    """
    arrays: dict[str, NDArray[Any]] = {
        f"{number}.{name}": value
        for number, member in enumerate(stage.members)
        for name, value in member.items()
    }
    arrays |= {f"{FOREST}{name}": value for name, value in stage.forest.items()}
    save_arrays(path, arrays | {"validation": stage.validation_logits})
    for part in path.parent.glob(MEMBER.format("*")):
        part.unlink()


def _read(path: Path, config: TowerConfig) -> TowerStage:
    """Load the first stage that `_write` saved; `config.members` is the number of towers.

    The forest is empty if the file has none.
    """
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
        return TowerStage(found["validation"], members, forest)
