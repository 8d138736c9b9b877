"""Train the embedded calibrator: one run, top to bottom, resumable.

    rows -> split by question -> disguise -> tokens -> tower [-> forest]
    [-> abilities, inspector, knowledge, calls] -> recalibrate, save [-> opinion, save]

The tower (n-grams, traits, names) is fitted in minutes, and so is an optional forest beside it
(trees on topics and traits). The inspector learns from replies that were made faulty, the trees for
calls from conversations; with these trees, rows that call tools are used for nothing else.

A run lives in one folder: `train.json` (its configuration), `tower.npz` (tower and forest; until
then `tower-0.npz` and so on, one for each tower), `abilities.npz`, `inspector.npz`,
`knowledge.npz`, `calls.npz`, `log.jsonl` (losses) and in the end `checkpoint/`. The same command
resumes an interrupted run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint
from calibrator.checkpoints.extras import check_scikit_learn
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.embedded.parts import read_checkpoint
from calibrator.errors import TrainingError
from calibrator.lab.training.fits.calls import fit_calls
from calibrator.lab.training.fits.inspection.training import TaughtLessons, fit_inspector
from calibrator.lab.training.fits.opinion import chosen_rows, fit_second_stage
from calibrator.lab.training.opinion_folds import (
    abilities_of,
    are_fitted,
    fit_folds,
    read_unseen,
)
from calibrator.lab.training.run import (
    Chosen,
    Preparation,
    TrainConfig,
    TrainData,
    TrainingRun,
    base_folder,
    prepare,
    read_selection,
    with_calls_apart,
)
from calibrator.lab.training.stages.abilities import fit_abilities
from calibrator.lab.training.stages.knowledge import fit_knowledge
from calibrator.lab.training.stages.npz import Arrays, load_arrays, save_arrays
from calibrator.lab.training.stages.piece_vectors import piece_vectors
from calibrator.lab.training.tower_stage import fit_stage, known_names
from calibrator.lab.training.write_checkpoint import finish, write_extended
from calibrator.rows.files import check_readable
from calibrator.rows.rows import Row

if TYPE_CHECKING:
    from calibrator.lab.training.run import TrainingRun
    from calibrator.rows.rows import Row

MIN_LABELS = 20  # right rows, and as many wrong ones, that an optional part needs

# parts that can be added to a checkpoint later
PARTS = ("abilities", "inspector", "knowledge", "calls", "opinion")
CHECKPOINT = "checkpoint"
ALONE = "checkpoint-without-opinion"  # kept until its second stage is fitted


def train(
    folder: Path,
    config: TrainConfig,
    say: Callable[[str], None] = print,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    optional: Collection[str] = (),
    preparing: Preparation = prepare,
) -> Path:
    """Run or resume the training in `folder`, and return the checkpoint's folder inside it.

    If `config.start` names a checkpoint, only parts are fitted and added to a copy of it.
    `progress` is called with the number of rows that towers were shown, and the total; `say` gets
    lines of text. `optional` names parts, such as `calls`, that are left out and reported where too
    few rows can teach them. `preparing` makes the examples of the chosen rows, by default from
    their texts. Raises TrainingError if there is nothing to train on or the folder belongs to
    another run, InputError for a file that cannot be read, MissingExtraError without an extra that
    a part needs.
    """
    _check(config)
    run = TrainingRun(folder, config, say)
    if config.start:
        return _extend(run, progress)
    run.config, chosen = choose_parts(config, optional, say)
    config = run.config
    data = preparing(config, run.tokenizer, chosen=chosen)
    say(f"{len(data.train)} rows, base rate {data.base_rate:.3f}")
    tower = fit_stage(run.folder, data, config, base_folder(), say, progress)
    names = list(known_names(data))
    parts = fit_parts(run, data.rows, data.calls, base_folder(), names, data.taught)
    if not config.has_opinion:
        return finish(run, data, tower, parts, run.folder / CHECKPOINT)
    start = finish(run, data, tower, parts, run.folder / ALONE)
    return _second_stage(run, data, start, progress, is_optional="opinion" in optional)


def _check(config: TrainConfig) -> None:
    """Raise an error for faults of the configuration that would end the training after hours.

    These are TrainingError for a second stage without a forest or a checkpoint to start from,
    MissingExtraError for a forest or a part without scikit-learn, and InputError for a data file
    that cannot be opened.
    """
    if config.has_opinion and not (config.start or config.has_forest):
        raise TrainingError(
            "a second stage goes by the numbers of tower and forest; leave out --without forest, "
            "or add --without opinion"
        )
    parts = (getattr(config, f"has_{part}") for part in PARTS)
    if any((config.has_forest, *parts)):
        check_scikit_learn()
    check_readable(map(Path, config.data))


def _extend(run: TrainingRun, progress: Callable[[int, int], None]) -> Path:
    """Write a copy of the checkpoint `config.start` with newly fitted parts; return its folder.

    The parts are those that the configuration has; `progress` is that of a second stage. Raises
    TrainingError for a language model, or if the configuration has no part; CheckpointError for a
    checkpoint that cannot be read.
    """
    config = run.config
    start, target = resolve_checkpoint(config.start), run.folder / CHECKPOINT
    known = read_config(start, config.start)
    if isinstance(known, LlmConfig):
        raise TrainingError(f"{config.start} is a language model, which has no such parts")
    rows, _, calls = read_selection(config)
    parts = fit_parts(run, rows, calls, base_folder(), known.source_models)
    if config.has_opinion:
        parts |= fit_opinion(run, rows, start, progress)
    if not parts:
        raise TrainingError(
            "to a checkpoint --start adds parts: name abilities, inspector, knowledge, calls or "
            "opinion with --with"
        )
    names = [name for name in PARTS if getattr(config, f"has_{name}")]
    settings = config.as_dict()
    facts = {f"has_{name}": True for name in names} | {name: settings[name] for name in names}
    return write_extended(start, target, config.name, parts, facts)


def _second_stage(
    run: TrainingRun,
    data: TrainData,
    start: Path,
    progress: Callable[[int, int], None],
    *,
    is_optional: bool,
) -> Path:
    """Write the checkpoint `start` with a second stage as `checkpoint`; return this new folder.

    The folder `start` is deleted. If the second stage cannot be fitted and `is_optional`, the new
    checkpoint has none, and `run.say` gets the reason; otherwise TrainingError is raised.
    """
    arrays: dict[str, NDArray[Any]] = {}
    try:
        arrays = fit_opinion(run, data.rows, start, progress, data)
    except TrainingError as error:
        if not is_optional:
            raise
        run.say(f"no second stage: {error}")
    facts = {"has_opinion": bool(arrays)}
    target = write_extended(start, run.folder / CHECKPOINT, run.config.name, arrays, facts)
    shutil.rmtree(start)
    return target


def fit_opinion(
    run: TrainingRun,
    rows: Sequence[Row],
    start: Path,
    progress: Callable[[int, int], None],
    data: TrainData | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a second stage for the checkpoint `start`, named `opinion.<name>`.

    Towers and forests of the folds are fitted first, on all the run's rows, unless the run's folder
    has them; `data` are these rows' examples, or None to make them. A selection of `rows` is then
    read by them, reported to `progress` as rows and total. Raises TrainingError for a checkpoint
    without a forest, and if too few replies can be compared.
    """
    config, checkpoint = run.config, read_checkpoint(start)
    if checkpoint.parts.tower is None or checkpoint.parts.forest is None:
        raise TrainingError(f"{config.start!r} has no forest, by which a second stage goes")
    if not are_fitted(run.folder, config.opinion.folds):
        data = data or prepare(config, run.tokenizer)
        fit_folds(run.folder, data, config, base_folder(), run.say)
    chosen = chosen_rows(rows, config.opinion, config.seed)
    run.say(f"opinion: {len(chosen)} replies to read")
    unseen = read_unseen(run.folder, chosen, checkpoint, config.opinion.folds, progress)
    abilities = abilities_of(checkpoint)
    return fit_second_stage(unseen, abilities, config.opinion, config.seed, run.say)


def choose_parts(
    config: TrainConfig, optional: Collection[str], say: Callable[[str], None]
) -> tuple[TrainConfig, Chosen]:
    """Read the rows of a training, and leave out optional parts that too few rows can teach.

    `optional` are names of parts such as `calls`; only these are ever left out. Each is reported to
    `say` with the reason. Returns (the configuration with `has_<part>` False for those, the rows).
    The rows are (training, validation, rows that call tools); the last list is empty, and such rows
    are in the first, if no trees for calls are fitted. Raises TrainingError for unusable rows.
    """
    rows, held, _ = every = read_selection(replace(config, has_calls=False))
    texts, _, calls = apart = with_calls_apart(rows, held)
    missing = {
        "abilities": "" if len({row.model for row in texts if row.model}) > 1 else (
            "it needs replies of two models, with their names"
        ),
        "calls": "" if texts and _teach(calls) else f"{_too_few_note()} that call tools",
        "inspector": "" if sum(row.correct or 0 for row in texts) >= MIN_LABELS else (
            f"it needs {MIN_LABELS} right replies"
        ),
    }  # fmt: skip
    if config.has_opinion:
        compared = chosen_rows(texts, config.opinion, config.seed)
        missing["opinion"] = (
            "" if _teach(compared) else f"{_too_few_note()} that other models answered too"
        )
    for part, reason in missing.items():
        if part in optional and reason and getattr(config, f"has_{part}"):
            say(f"without the part {part!r}: {reason}")
            left_out: dict[str, Any] = {f"has_{part}": False}
            config = replace(config, **left_out)
    return config, apart if config.has_calls else every


def _teach(rows: Sequence[Row]) -> bool:
    """Return whether there are at least `MIN_LABELS` right rows and as many that are not right."""
    right = sum(row.correct or 0 for row in rows)
    return min(right, len(rows) - right) >= MIN_LABELS


def _too_few_note() -> str:
    return f"it needs {MIN_LABELS} right and {MIN_LABELS} wrong replies"


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
            arguments = (rows, run.tokenizer, config.layout, vectors, config.inspector)
            return fit_inspector(*arguments, config.seed, run.say, taught)

        found |= _load_or_fit(run.folder / "inspector.npz", fit)
    if config.has_knowledge:

        def teach() -> Arrays:
            """Fit the knowledge network on pairs of our own and of rows."""
            arguments = (rows, run.tokenizer, base, config.knowledge, config.seed)
            return fit_knowledge(*arguments, run.say)

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
