"""A study of the gain of other replies on labelled rows, with one other reply or more.

The others are replies of other models to the same question among the rows, drawn with a seed. Each
entry is judged with and without them on the same replies. Second stages that were fitted without a
benchmark show the gain on tasks of a new kind. The run of `pinocchio train --with opinion` keeps
its folds' results on the training rows, so each costs one more fit of the trees.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from calibrator.embedded.parts import Checkpoint
from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.drawn_others import (
    SEED,
    OthersReader,
    ReadsOthers,
    check_reads_others,
    confidences_of,
    draw_others,
)
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
from calibrator.metrics.metrics import Floats
from calibrator.readers.opinion.answers import final_answer
from calibrator.readers.opinion.second_stage import OpinionReader, SecondStage
from calibrator.recalibration.curves import content_hash
from calibrator.rows.groups import groups_of
from calibrator.rows.results import Method, mean_over_benchmarks, result_of
from calibrator.rows.rows import Row, labels_of, question_numbers
from calibrator.rows.selection import Selection
from calibrator.scorer import Item, Score
from calibrator.text.stripping import strip_addresses
from calibrator.text.word_pieces import WordPieces

WITHOUT = "without-{}.npz"  # a second stage, named by the hash of the benchmark left out
FEWEST = 20  # least replies of a benchmark or kind judged separately


@dataclass(frozen=True, slots=True)
class OpinionFigures:
    """The figures of some replies.

    They are AUROC pooled, its mean over benchmarks, and within questions; Brier and ECE; the
    largest share, surest first, of which 90 and 95 % are right (paper H01, H06, H08, H11, L02).
    """

    pooled: float
    mean: float
    within: float
    brier: float
    ece: float
    kept_90: float
    kept_95: float


@dataclass(frozen=True, slots=True)
class OpinionEntry:
    """One way to draw others, judged on the replies that have them."""

    others: str
    of: str  # all, a kind of final answer, or a benchmark
    replies: int
    alone: OpinionFigures
    together: OpinionFigures


@dataclass(frozen=True, slots=True)
class OpinionStudy:
    """All entries, and the name of the method that gave the confidences."""

    method: str
    seed: int
    entries: list[OpinionEntry]

    def as_json(self) -> str:
        """Return the study as indented JSON."""
        return json.dumps(asdict(self), indent=1)


def study_opinions(
    calibrator: ReadsOthers,
    rows: Sequence[Row],
    alone: Sequence[Score],
    seed: int = SEED,
    progress: Callable[[str], None] = lambda _: None,
    left_out: Mapping[str, OthersReader] | None = None,
) -> OpinionStudy:
    """Judge each reply with drawn replies of other models beside it, and without; return the study.

    `alone` are the rows' scores without others, (N,). Others are one at random, one of a stronger
    model, two, and four; ways that no row allows are left out. `left_out` has readers by benchmark
    that replace the calibrator for its replies. `progress` gets the name of each way. Raises
    JudgingError for a calibrator that reads no others, or where no question has replies of two
    models.
    """
    check_reads_others(calibrator)
    entries = []
    for label, count, is_stronger in (
        ("one, at random", 1, False),
        ("one of a stronger model", 1, True),
        ("two", 2, False),
        ("four", 4, False),
    ):
        progress(label)
        drawn = draw_others(calibrator, rows, count, is_stronger=is_stronger, seed=seed)
        if not drawn:
            continue
        own = [alone[each.at] for each in drawn]
        judged = [rows[each.at] for each in drawn]
        together = _score_with_others(
            calibrator, left_out or {}, judged, [each.item for each in drawn], own
        )
        numbers = confidences_of(own), confidences_of(together)
        entries += _entries(label, judged, *numbers, has_parts=label == "one, at random")
    if not entries:
        raise JudgingError("no question has replies of two models")
    method = calibrator.opinion
    if left_out:
        method += f", each of {len(left_out)} benchmarks left out of the second stage's fit"
    return OpinionStudy(method, seed, entries)


def _score_with_others(
    calibrator: OthersReader,
    left_out: Mapping[str, OthersReader],
    rows: Sequence[Row],
    items: Sequence[Item],
    own: Sequence[Score],
) -> list[Score]:
    """Return the scores of the items with their others, in their order.

    `own` are their scores without others. A benchmark in `left_out` is scored by its own reader,
    others by the calibrator.
    """
    if not left_out:
        return calibrator.with_others(items, own)
    benchmarks = [row.benchmark or "" for row in rows]
    found = list(own)
    for benchmark in sorted(set(benchmarks)):
        reader = left_out.get(benchmark, calibrator)
        at = [place for place, each in enumerate(benchmarks) if each == benchmark]
        scores = reader.with_others([items[i] for i in at], [own[i] for i in at])
        for place, score in zip(at, scores, strict=True):
            found[place] = score
    return found


def _entries(
    label: str, rows: Sequence[Row], alone: Floats, together: Floats, *, has_parts: bool
) -> list[OpinionEntry]:
    """Measure all replies and return entries; `has_parts` adds each kind of answer and benchmark.

    `alone` and `together` are the confidences without and with others, (n,). Parts need `FEWEST`
    replies and both labels, so the list may be empty.
    """
    parts = {"all": np.arange(len(rows))}
    if has_parts:
        kinds = [final_answer(r.question, strip_addresses(r.answer), r.tool_use).kind for r in rows]
        for names in (kinds, [row.benchmark or "" for row in rows]):
            for name in sorted(set(names)):
                parts[name] = np.flatnonzero(np.array(names, dtype=object) == name)
    return [
        OpinionEntry(
            label,
            name,
            len(at),
            _figures([rows[i] for i in at.tolist()], alone[at]),
            _figures([rows[i] for i in at.tolist()], together[at]),
        )
        for name, at in parts.items()
        if len(at) >= FEWEST and len({rows[i].correct for i in at.tolist()}) == 2
    ]


def _figures(rows: Sequence[Row], confidence: Floats) -> OpinionFigures:
    """Return the figures of the rows' confidences, (n,).

    They are pooled, over benchmarks, and within questions.
    """
    labels, questions = labels_of(rows), question_numbers(rows)
    method = Method("", confidence)
    *groups, everything = groups_of(rows)
    own = [each for each in groups if each.kind == "benchmark"]
    found = [result_of(each, method, labels, questions) for each in own]
    mean = mean_over_benchmarks(found, method, len(rows))
    pooled = result_of(everything, method, labels, questions)
    return OpinionFigures(
        pooled.auroc,
        mean.auroc,
        pooled.within,
        pooled.brier,
        pooled.ece,
        pooled.coverage_90,
        pooled.coverage_95,
    )


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
