"""What replies of others are worth on labelled rows: the number alone, and with one other or more.

The others are replies of other models to the same question among the rows, drawn by a seed. Each
entry is judged with and without them on the same replies.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import numpy as np

from calibrator.errors import JudgingError
from calibrator.evaluation.evaluate import question_numbers
from calibrator.metrics.metrics import Floats
from calibrator.opinion.answers import final_answer
from calibrator.results.groups import groups_of
from calibrator.results.results import Method, mean_over_benchmarks, result_of
from calibrator.rows.rows import Row, labels_of
from calibrator.scorer import Item, OtherReply, Score
from calibrator.text.addressed_text import stripped

SEED = 20_261_123
FEWEST = 20  # replies of a benchmark or kind that are judged apart
STRONGER = 0.05  # of an ability, by which a model is stronger than another


class Reader(Protocol):
    """What reads the others of items beside their scores."""

    def with_others(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]: ...


class ReadsOthers(Reader, Protocol):
    """A calibrator with a second stage."""

    @property
    def name(self) -> str: ...

    @property
    def opinion(self) -> str: ...

    def ability(self, model: str | None) -> float: ...


@dataclass(frozen=True, slots=True)
class Figures:
    """Of some replies: AUROC pooled, its mean over benchmarks, within questions; Brier, ECE; the
    largest share, surest first, of which 90 and 95 % are right (paper H01, H06, H08, H11, L02)."""

    pooled: float
    mean: float
    within: float
    brier: float
    ece: float
    kept_90: float
    kept_95: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to draw others, on the replies that have such ones."""

    others: str
    of: str  # all, a kind of final answer, or a benchmark
    replies: int
    alone: Figures
    together: Figures


@dataclass(frozen=True, slots=True)
class OpinionStudy:
    """All entries, and what gave the numbers."""

    method: str
    seed: int
    entries: list[Entry]

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def study_opinions(
    calibrator: ReadsOthers,
    rows: Sequence[Row],
    alone: Sequence[Score],
    seed: int = SEED,
    progress: Callable[[str], None] = lambda _: None,
    left_out: Mapping[str, Reader] | None = None,
) -> OpinionStudy:
    """Judges the numbers with others beside those `alone`, (N,) as the rows.

    `left_out` readers serve the replies of their benchmarks in the calibrator's place. Raises
    JudgingError for a calibrator that reads no others, or where there are none.
    """
    if not calibrator.opinion:
        raise JudgingError(
            f"{calibrator.name} does not read other replies: "
            "pinocchio train --start CHECKPOINT --opinion"
        )
    entries = []
    for label, count, is_stronger in (
        ("one, at random", 1, False),
        ("one of a stronger model", 1, True),
        ("two", 2, False),
        ("four", 4, False),
    ):
        progress(label)
        drawn = _drawn(calibrator, rows, count, is_stronger, random.Random(seed))
        if not drawn:
            continue
        at = [place for place, _ in drawn]
        own = [alone[place] for place in at]
        judged = [rows[place] for place in at]
        told = _told(calibrator, left_out or {}, judged, [item for _, item in drawn], own)
        numbers = _confidences(own), _confidences(told)
        entries += _entries(label, judged, *numbers, has_parts=label == "one, at random")
    if not entries:
        raise JudgingError("no question has replies of two models")
    method = calibrator.opinion
    if left_out:
        method += f", each of {len(left_out)} benchmarks left out of the second stage's fit"
    return OpinionStudy(method, seed, entries)


def _told(
    calibrator: Reader,
    left_out: Mapping[str, Reader],
    rows: Sequence[Row],
    items: Sequence[Item],
    own: Sequence[Score],
) -> list[Score]:
    """The scores with others, each benchmark's by the reader that is for it."""
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


def _drawn(
    calibrator: ReadsOthers,
    rows: Sequence[Row],
    count: int,
    is_stronger: bool,
    rng: random.Random,
) -> list[tuple[int, Item]]:
    """Replies that have so many others, by their places, as items with those that were drawn."""
    questions: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        questions[row.question_id].append(row)
    found = []
    for at, row in enumerate(rows):
        others = [each for each in questions[row.question_id] if each.model != row.model]
        if is_stronger:
            least = calibrator.ability(row.model) + STRONGER
            others = [each for each in others if calibrator.ability(each.model) > least]
        if row.correct is not None and len(others) >= count:
            given = tuple(
                OtherReply(each.answer, each.model, each.tool_use)
                for each in rng.sample(others, count)
            )
            found.append((at, replace(row.item("served"), others=given)))
    return found


def _confidences(scores: Sequence[Score]) -> Floats:
    return np.array([score.confidence for score in scores])


def _entries(
    label: str, rows: Sequence[Row], alone: Floats, together: Floats, *, has_parts: bool
) -> list[Entry]:
    parts = {"all": np.arange(len(rows))}
    if has_parts:
        kinds = [final_answer(r.question, stripped(r.answer), r.tool_use).kind for r in rows]
        for names in (kinds, [row.benchmark or "" for row in rows]):
            for name in sorted(set(names)):
                parts[name] = np.flatnonzero(np.array(names, dtype=object) == name)
    return [
        Entry(
            label,
            name,
            len(at),
            _figures([rows[i] for i in at.tolist()], alone[at]),
            _figures([rows[i] for i in at.tolist()], together[at]),
        )
        for name, at in parts.items()
        if len(at) >= FEWEST and len({rows[i].correct for i in at.tolist()}) == 2
    ]


def _figures(rows: Sequence[Row], confidence: Floats) -> Figures:
    labels, questions = labels_of(rows), question_numbers(rows)
    method = Method("", confidence)
    *groups, everything = groups_of(rows)
    own = [each for each in groups if each.kind == "benchmark"]
    found = [result_of(each, method, labels, questions) for each in own]
    mean = mean_over_benchmarks(found, method, len(rows))
    pooled = result_of(everything, method, labels, questions)
    return Figures(
        pooled.auroc,
        mean.auroc,
        pooled.within,
        pooled.brier,
        pooled.ece,
        pooled.coverage_90,
        pooled.coverage_95,
    )
