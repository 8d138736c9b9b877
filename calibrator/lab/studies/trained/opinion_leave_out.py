"""Second stages without a benchmark, for the gain of other replies on tasks of a new kind.

The run of `pinocchio train --with opinion` keeps its folds' results on the training rows, so that
each benchmark costs one more fit of the trees, and nothing else is fitted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from calibrator.embedded.parts import Checkpoint
from calibrator.errors import JudgingError
from calibrator.lab.training.fits.opinion import (
    OpinionConfig,
    OpinionLessons,
    chosen_rows,
    draw_lessons,
    fit_lessons,
)
from calibrator.lab.training.opinion_folds import UNSEEN, abilities_of, read_unseen
from calibrator.lab.training.run import TrainConfig, read_selection
from calibrator.lab.training.stages.npz import load_arrays, save_arrays
from calibrator.readers.opinion.second_stage import OpinionReader, SecondStage
from calibrator.recalibration.curves import content_hash
from calibrator.rows.selection import Selection
from calibrator.text.word_pieces import WordPieces

WITHOUT = "without-{}.npz"  # a second stage, named by the hash of the benchmark left out


def readers_without(
    benchmarks: Iterable[str],
    run: Path,
    checkpoint: Checkpoint,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> dict[str, OpinionReader]:
    """Return a reader by benchmark whose second stage was fitted without that benchmark's rows.

    Benchmarks that the run was not trained on are left out. `run` is the folder of `pinocchio train
    --with opinion`, where fitted stages are kept and found again, and `checkpoint` the one that the
    run was for. `progress` is called with the number of fitted stages and the total. Raises
    JudgingError for a folder of another kind, TrainingError where its rows have changed or too few
    are left.
    """
    if not (run / UNSEEN).exists() or checkpoint.parts.forest is None:
        raise JudgingError(
            f"{run} is no folder of `pinocchio train --start CHECKPOINT --with opinion`"
        )
    config = _config_of(run)
    chosen = chosen_rows(read_selection(config)[0], config.opinion, config.seed)
    unseen = read_unseen(run, chosen, checkpoint, config.opinion.folds)
    numbers = {name: at + 1 for at, name in enumerate(checkpoint.config.source_models)}
    word_pieces = WordPieces(checkpoint.tokenizer)
    known = checkpoint.parts.forest, word_pieces, checkpoint.config.layout, numbers
    found: dict[str, OpinionReader] = {}
    left_out = sorted(set(benchmarks) & {row.benchmark or "" for row in chosen})
    lessons: OpinionLessons | None = None
    for done, benchmark in enumerate(left_out):
        progress(done, len(left_out))
        path = run / WITHOUT.format(content_hash(benchmark))
        if not path.exists():
            if lessons is None:
                abilities = abilities_of(checkpoint)
                lessons = draw_lessons(unseen, abilities, config.opinion, config.seed)
            fitted = fit_lessons(lessons.without_benchmark(benchmark), config.opinion, config.seed)
            save_arrays(path, fitted)
        stage = SecondStage.from_state(load_arrays(path))
        assert stage is not None
        found[benchmark] = OpinionReader(stage, *known)
    return found


def _config_of(run: Path) -> TrainConfig:
    """Return the run's configuration, from `train.json`, as its second stage depends on it."""
    saved = json.loads((run / "train.json").read_text())
    opinion = saved["opinion"] | {"counts": tuple(saved["opinion"]["counts"])}
    return TrainConfig(
        data=tuple(saved["data"]),
        selection=Selection(**saved["selection"]),
        opinion=OpinionConfig(**opinion),
        has_calls=saved["has_calls"],
    )
