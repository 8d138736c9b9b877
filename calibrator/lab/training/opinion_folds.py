"""Compute log-odds of replies to questions the calibrator has not seen, for the second stage.

A tower and a forest, fitted on the other folds of questions, read each fold. Fits and log-odds are
kept in the run's folder: `fold-0.npz` and so on, `unseen.npz`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrator.embedded.parts import Checkpoint
from calibrator.errors import TrainingError
from calibrator.features.forest import PREFIX as FOREST
from calibrator.features.forest import Forest
from calibrator.features.tower import Tower, TowerRow, tower_row
from calibrator.features.weights import arrays_under
from calibrator.lab.training.fits.opinion import UnseenReplies
from calibrator.lab.training.stages.forest import fit_forest
from calibrator.lab.training.stages.npz import load_arrays, save_arrays
from calibrator.lab.training.stages.piece_vectors import piece_vectors
from calibrator.lab.training.stages.tower import export, fit_tower
from calibrator.lab.training.tower_stage import (
    fold_of_question,
    forest_data,
    known_names,
    tower_data,
)
from calibrator.readers.inspection import inspect
from calibrator.recalibration.curves import logit, sigmoid
from calibrator.rows.rows import Row
from calibrator.text.stripping import strip_addresses
from calibrator.text.word_pieces import encode

if TYPE_CHECKING:
    from calibrator.lab.training.run import TrainConfig, TrainData

FOLD = "fold-{}.npz"
UNSEEN = "unseen.npz"
BATCH = 64
_TOWER = "tower."


def are_fitted(folder: Path, folds: int) -> bool:
    """Return whether the folder has `fold-<number>.npz` for each number from 0 to `folds` - 1."""
    return all((folder / FOLD.format(fold)).exists() for fold in range(folds))


def fit_folds(
    folder: Path, data: TrainData, config: TrainConfig, base: Path, say: Callable[[str], None]
) -> None:
    """Fit a tower and a forest for each fold, on the questions of all other folds, and save them.

    Each pair is written to `fold-<number>.npz` in `folder`, under `tower.0.` and `forest.`. A fold
    whose file exists is skipped. `base` is the folder of the base encoder, which gives the forest
    the vectors of word pieces. `say` gets a line after each fold. Raises MissingExtraError without
    scikit-learn.
    """
    names, folds = known_names(data), config.opinion.folds
    examples, rare = tower_data(data, names, folds)
    for fold in range(folds):
        path = folder / FOLD.format(fold)
        if path.exists():
            continue
        at, seed = np.flatnonzero(examples.folds != fold), config.seed + fold
        tower = export(fit_tower(examples, at, len(names) + 1, config.tower, seed), rare)
        known = forest_data(examples, data, at)
        forest = fit_forest(known, len(names) + 1, piece_vectors(base), config.forest, seed)
        arrays = {f"{_TOWER}0.{name}": array for name, array in tower.items()}
        save_arrays(path, arrays | {f"{FOREST}{name}": array for name, array in forest.items()})
        say(f"opinion: fold {fold + 1} of {folds}")


def read_unseen(
    folder: Path,
    rows: Sequence[Row],
    checkpoint: Checkpoint,
    folds: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> UnseenReplies:
    """Return `rows` with log-odds of being right by models that were not fitted on their questions.

    Each row is read by tower and forest of its question's fold (from `fit_folds`), then by the
    curve and the inspector of `checkpoint`, if it has them. `odds` of the result (2, N) are without
    and with the model's name, `meanings` (N, D) are the questions' vectors; both in the order of
    `rows`. `progress` is called with the number of rows read and the total. The result is saved as
    `unseen.npz` in `folder`; if this file exists, it is loaded and nothing is read. The checkpoint
    has to know the same names as the folds. Raises TrainingError if the saved file has another
    number of rows.
    """
    path = folder / UNSEEN
    if not path.exists():
        numbers = {name: at + 1 for at, name in enumerate(checkpoint.config.source_models)}
        fold_numbers = np.array([fold_of_question(row.question_id, folds) for row in rows])
        odds, meanings = np.zeros((2, len(rows))), np.zeros((len(rows), 0), np.float32)
        done = 0
        for fold in range(folds):
            members = _members(load_arrays(folder / FOLD.format(fold)))
            own = np.flatnonzero(fold_numbers == fold)
            own = own[np.argsort([len(rows[at].answer) for at in own.tolist()], kind="stable")]
            for start in range(0, len(own), BATCH):
                some = own[start : start + BATCH]
                batch = [rows[at] for at in some.tolist()]
                names = [numbers.get((row.model or "").lower(), 0) for row in batch]
                found, means = _read(batch, names, members, checkpoint)
                if not meanings.shape[1]:
                    meanings = np.zeros((len(rows), means.shape[1]), np.float32)
                odds[:, some], meanings[some] = found, means
                done += len(some)
                progress(done, len(rows))
        save_arrays(path, {"odds": odds, "meanings": meanings})
    kept = load_arrays(path)
    if kept["odds"].shape[1] != len(rows):
        raise TrainingError(f"{path} is of other rows")
    return UnseenReplies(rows, kept["odds"], kept["meanings"])


def abilities_of(checkpoint: Checkpoint) -> dict[str, float]:
    """Return the forest's ability of each model that the checkpoint knows, by name in lower case.

    The dictionary is empty if the checkpoint has no forest.
    """
    if (forest := checkpoint.parts.forest) is None:
        return {}
    names = enumerate(checkpoint.config.source_models, start=1)
    return {name: float(forest.ability[at]) for at, name in names}


def _members(arrays: Mapping[str, Any]) -> tuple[Tower, Forest]:
    """Return the tower and the forest of one fold, from the arrays of its file.

    Their names begin with `tower.0.` or `forest.`.
    """
    own = {k.removeprefix(f"{_TOWER}0."): v for k, v in arrays.items() if k.startswith(_TOWER)}
    forest = arrays_under(arrays, FOREST)
    return Tower([own]), Forest(forest)


def _read(
    rows: Sequence[Row],
    names: Sequence[int],
    members: tuple[Tower, Forest],
    checkpoint: Checkpoint,
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Return log-odds of being right (2, B), without and with names, and question vectors (B, D).

    `names` (B,) are the models' numbers in the checkpoint, 0 for an unknown one. `members` are the
    tower and forest of one fold. Their probability passes through the checkpoint's curve, and is
    multiplied by its inspector's probability that the reply is in order; each only if present. The
    vectors are those of the checkpoint's forest, or of the fold's if it has none.
    """
    tower, forest = members
    texts = [text for row in rows for text in (row.question, strip_addresses(row.answer))]
    ids = encode(checkpoint.tokenizer, texts, checkpoint.config.layout)
    seen_by_tower: list[TowerRow] = [
        tower_row(texts[2 * at], texts[2 * at + 1], ids[2 * at], ids[2 * at + 1])
        for at in range(len(rows))
    ]
    in_order = np.ones(len(rows))
    if (inspector := checkpoint.parts.inspector) is not None:
        seen = [
            inspect(texts[at], texts[at + 1], ids[at], ids[at + 1], inspector.pieces, each.traits)
            for at, each in zip(range(0, len(texts), 2), seen_by_tower, strict=True)
        ]
        in_order = inspector.read(np.stack(seen)).in_order
    curve, found = checkpoint.config.recalibration, []
    for numbers in ([0] * len(rows), names):
        odds, _ = tower.read(seen_by_tower, numbers)
        right = sigmoid(forest.join_odds(odds, seen_by_tower, numbers))
        right = curve.apply_all(right) if curve else right
        found.append(logit(right * in_order))
    own = checkpoint.parts.forest or forest  # serving will use the checkpoint's vectors
    return np.stack(found), own.difficulty.meanings([each.question for each in seen_by_tower])
