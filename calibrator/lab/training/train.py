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
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint
from calibrator.checkpoints.extras import check_scikit_learn
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.embedded.parts import read_checkpoint
from calibrator.errors import TrainingError
from calibrator.lab.training.extending import write_extended
from calibrator.lab.training.fits.opinion import chosen_rows, fit_second_stage
from calibrator.lab.training.opinion_folds import (
    abilities_of,
    are_fitted,
    fit_folds,
    read_unseen,
)
from calibrator.lab.training.parts_of_rows import choose_parts
from calibrator.lab.training.parts_stage import fit_parts
from calibrator.lab.training.run import (
    Preparation,
    TrainConfig,
    TrainData,
    TrainingRun,
    base_folder,
    prepare,
    read_selection,
)
from calibrator.lab.training.tower_stage import fit_stage, known_names
from calibrator.lab.training.write_checkpoint import finish
from calibrator.rows.files import check_readable
from calibrator.rows.rows import Row

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
    told = config.as_dict()
    facts = {f"has_{name}": True for name in names} | {name: told[name] for name in names}
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
