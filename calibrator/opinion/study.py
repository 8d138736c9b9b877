"""What replies of others are worth on labelled rows: the number alone, and with one other or more.

The others are replies of other models to the same question among the rows, drawn by a seed. Each
entry is judged with and without them on the same replies.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from calibrator.baselines import labels_of
from calibrator.disagreement import disagreement
from calibrator.errors import JudgingError
from calibrator.evaluate import question_numbers
from calibrator.metrics import Floats, auroc, brier, coverage_at, ece
from calibrator.opinion.answers import final_answer
from calibrator.rows import Row
from calibrator.scorer import Item, OtherReply, Score
from calibrator.stripping import stripped

SEED = 20_261_123
FEWEST = 20  # replies of a benchmark or kind that are judged apart
STRONGER = 0.05  # of an ability, by which a model is stronger than another


class ReadsOthers(Protocol):
    """A calibrator with a second stage."""

    @property
    def name(self) -> str: ...

    @property
    def opinion(self) -> str: ...

    def ability(self, model: str | None) -> float: ...

    def with_others(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]: ...


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
) -> OpinionStudy:
    """Raises JudgingError for a calibrator that reads no others, or where there are none."""
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
        told = calibrator.with_others([item for _, item in drawn], own)
        judged = [rows[place] for place in at]
        numbers = _confidences(own), _confidences(told)
        entries += _entries(label, judged, *numbers, has_parts=label == "one, at random")
    if not entries:
        raise JudgingError("no question has replies of two models")
    return OpinionStudy(f"{calibrator.name}+{calibrator.opinion}", seed, entries)


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
    y = labels_of(rows)
    mixed = disagreement(y, confidence, question_numbers(rows), permutations=0)
    return Figures(
        auroc(y, confidence),
        _mean_over_benchmarks(rows, y, confidence),
        mixed.auroc if mixed else math.nan,
        brier(y, confidence),
        ece(y, confidence),
        coverage_at(y, confidence, 0.90),
        coverage_at(y, confidence, 0.95),
    )


def _mean_over_benchmarks(rows: Sequence[Row], y: NDArray[np.int64], confidence: Floats) -> float:
    names = np.array([row.benchmark or "" for row in rows], dtype=object)
    found = [
        auroc(y[names == name], confidence[names == name])
        for name in sorted(set(names.tolist()))
        if len(set(y[names == name].tolist())) == 2
    ]
    return sum(found) / len(found) if found else math.nan
