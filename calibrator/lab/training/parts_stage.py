"""Fit the second stage of a training: abilities, inspector, knowledge and trees for calls.

Each is fitted once and kept in the run's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calibrator.lab.training.fits.calls import fit_calls
from calibrator.lab.training.fits.inspection.training import TaughtLessons, fit_inspector
from calibrator.lab.training.stages.abilities import fit_abilities
from calibrator.lab.training.stages.knowledge import fit_knowledge
from calibrator.lab.training.stages.npz import Arrays, load_arrays, save_arrays
from calibrator.lab.training.stages.piece_vectors import piece_vectors

if TYPE_CHECKING:
    from calibrator.lab.training.run import TrainingRun
    from calibrator.rows.rows import Row


def fit_parts(
    run: TrainingRun,
    rows: Sequence[Row],
    calls: Sequence[Row],
    base: Path,
    names: Sequence[str],
    taught: TaughtLessons | None = None,
) -> Arrays:
    """Return the arrays of all parts that the configuration wants, by full name (`calls.strange`).

    These are abilities, inspector, knowledge and calls; the dictionary is empty if none is wanted.
    Each part is saved as `<part>.npz` in the run's folder, and loaded from there if it exists.
    `calls` are rows that call tools, `rows` all others. `base` is the folder of the base encoder.
    `names` are the models that the checkpoint knows, in its order. `taught` are the inspector's
    lessons if they were made already. Raises TrainingError where the rows cannot teach a part,
    MissingExtraError without scikit-learn.
    """
    config = run.config
    found: Arrays = {}
    if config.has_abilities:
        found |= _load_or_fit(
            run.folder / "abilities.npz", lambda: fit_abilities(rows, names, config.abilities)
        )
    if config.has_inspector:

        def fit() -> Arrays:
            """Fit the inspector, with the base encoder's vectors of word pieces."""
            vectors = piece_vectors(base)
            given = (rows, run.tokenizer, config.layout, vectors, config.inspector)
            return fit_inspector(*given, config.seed, run.say, taught)

        found |= _load_or_fit(run.folder / "inspector.npz", fit)
    if config.has_knowledge:

        def teach() -> Arrays:
            """Fit the knowledge network on pairs of our own and of rows."""
            given = (rows, run.tokenizer, base, config.knowledge, config.seed)
            return fit_knowledge(*given, run.say)

        found |= _load_or_fit(run.folder / "knowledge.npz", teach)
    if config.has_calls:
        run.say(f"calls: {len(calls)} rows")
        every = [*rows, *calls]
        found |= _load_or_fit(
            run.folder / "calls.npz", lambda: fit_calls(every, config.seed, config.calls)
        )
    return found


def _load_or_fit(path: Path, fit: Callable[[], Arrays]) -> Arrays:
    """Return the arrays in the file `path`; if it is missing, save those of `fit()` there first."""
    if not path.exists():
        save_arrays(path, fit())
    return load_arrays(path)
