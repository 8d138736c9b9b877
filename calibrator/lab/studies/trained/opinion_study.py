"""A study of the gain of other replies on labelled rows, with one other reply or more.

The others are replies of other models to the same question among the rows, drawn with a seed. Each
entry is judged with and without them on the same replies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.drawn_others import (
    SEED,
    OthersReader,
    ReadsOthers,
    check_reads_others,
    confidences_of,
    draw_others,
)
from calibrator.metrics.metrics import Floats
from calibrator.readers.opinion.answers import final_answer
from calibrator.rows.groups import groups_of
from calibrator.rows.results import Method, mean_over_benchmarks, result_of
from calibrator.rows.rows import Row, labels_of, question_numbers
from calibrator.scorer import Item, Score
from calibrator.text.stripping import strip_addresses

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
        told = _score_with_others(
            calibrator, left_out or {}, judged, [each.item for each in drawn], own
        )
        numbers = confidences_of(own), confidences_of(told)
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
        told = reader.with_others([items[i] for i in at], [own[i] for i in at])
        for place, score in zip(at, told, strict=True):
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
