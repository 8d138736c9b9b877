"""A study of a cascade of two models on labelled rows: calls, accuracy, and kept replies.

A cheap model answers first. Where its confidence is below a threshold a strong one answers too, and
the surer reply is delivered. This is compared with "always the strong one", on the same replies.
The confidence of a delivered reply may be that of its text alone, or the one that knows both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.drawn_others import (
    ReadsOthers,
    check_reads_others,
    confidences_of,
)
from calibrator.metrics.metrics import Floats, Ints, coverage_at
from calibrator.rows.rows import Row
from calibrator.scorer import Item, OtherReply, Score

THRESHOLDS: Final = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
LEAST_QUESTIONS: Final = 30
LEAST_GAP: Final = 0.1  # least difference in accuracy of two models that were not named


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of asking the strong model where the cheap one's confidence is below `threshold`.

    `calls` are those of the strong model for each reply. `accuracy` is the share of right replies
    among the delivered ones, chosen by text alone or `knowing` both; `kept_95` is the largest
    share, surest first, of which 95 % are right, by each confidence.
    """

    threshold: float
    calls: float
    accuracy: float
    accuracy_knowing: float
    kept_95: float
    kept_95_knowing: float


@dataclass(frozen=True, slots=True)
class Cascade:
    """All thresholds for two models, and each model alone."""

    cheap: str
    strong: str
    method: str
    questions: int
    cheap_accuracy: float
    cheap_kept_95: float
    strong_accuracy: float
    strong_kept_95: float
    steps: list[Step]

    def as_json(self) -> str:
        """Return the cascade as indented JSON."""
        return json.dumps(asdict(self), indent=1)


def study_cascade(
    calibrator: ReadsOthers,
    rows: Sequence[Row],
    alone: Sequence[Score],
    cheap: str | None = None,
    strong: str | None = None,
) -> Cascade:
    """Judge a cascade of a cheap and a strong model on the questions that both answered.

    `alone` are the rows' scores without others, (N,). Without both names the models are the two
    with the most questions in common of which one is right clearly more often. The last step asks
    the strong model always. Raises JudgingError for a calibrator that reads no others, if no two
    models qualify, or for too few questions.
    """
    check_reads_others(calibrator)
    answered = _answers(rows)
    if cheap is None or strong is None:
        cheap, strong = _pair(rows, answered, cheap, strong)
    pairs = [
        (each[cheap], each[strong]) for each in answered.values() if {cheap, strong} <= each.keys()
    ]
    if len(pairs) < LEAST_QUESTIONS:
        raise JudgingError(
            f"{cheap} and {strong} have {len(pairs)} labelled questions in common: "
            f"{LEAST_QUESTIONS} are the least"
        )
    first = _side(calibrator, rows, alone, pairs)
    second = _side(calibrator, rows, alone, [(b, a) for a, b in pairs])
    return Cascade(
        cheap,
        strong,
        calibrator.opinion,
        len(pairs),
        float(first.labels.mean()),
        coverage_at(first.labels, first.alone, 0.95),
        float(second.labels.mean()),
        coverage_at(second.labels, second.alone, 0.95),
        [_step(first, second, threshold) for threshold in (*THRESHOLDS, 1.01)],
    )


@dataclass(frozen=True, slots=True)
class _ModelSide:
    """One model's replies, (N,): labels, confidences alone, and confidences knowing the other."""

    labels: Ints
    alone: Floats
    knowing: Floats


def _side(
    calibrator: ReadsOthers,
    rows: Sequence[Row],
    alone: Sequence[Score],
    pairs: Sequence[tuple[int, int]],
) -> _ModelSide:
    """Return one model's replies, (N,), scored alone and with the other model's reply beside each.

    `pairs` has the row numbers of this model's reply and of the other's, for each question.
    """
    items = [_item_beside(rows[at], rows[other]) for at, other in pairs]
    own = [alone[at] for at, _ in pairs]
    knowing = calibrator.with_others(items, own)
    labels = np.array([rows[at].correct or 0 for at, _ in pairs])
    return _ModelSide(labels, confidences_of(own), confidences_of(knowing))


def _item_beside(row: Row, other: Row) -> Item:
    """Return the row's item as served, with the reply of `other` as the only other reply."""
    return replace(
        row.item("served"), others=(OtherReply(other.answer, other.model, other.tool_use),)
    )


def _step(first: _ModelSide, second: _ModelSide, threshold: float) -> Step:
    """Return the effect of asking the second model below a threshold and keeping the surer reply.

    A threshold above 1 asks always.
    """
    is_asked = first.alone < threshold
    is_replaced = is_asked & (second.alone > first.alone)
    is_replaced_knowing = is_asked & (second.knowing > first.knowing)
    labels = np.where(is_replaced, second.labels, first.labels)
    plain = np.where(is_replaced, second.alone, first.alone)
    of_kept = np.where(is_replaced_knowing, second.knowing, first.knowing)
    knowing = np.where(is_asked, of_kept, first.alone)
    labels_knowing = np.where(is_replaced_knowing, second.labels, first.labels)
    return Step(
        min(threshold, 1.0),
        float(is_asked.mean()),
        float(labels.mean()),
        float(labels_knowing.mean()),
        coverage_at(labels, plain, 0.95),
        coverage_at(labels_knowing, knowing, 0.95),
    )


def _answers(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Return the row number of each model's first labelled reply: by question, then by model."""
    found: dict[str, dict[str, int]] = {}
    for at, row in enumerate(rows):
        if row.correct is not None and row.model:
            found.setdefault(row.question_id, {}).setdefault(row.model, at)
    return found


def _pair(
    rows: Sequence[Row],
    answered: Mapping[str, Mapping[str, int]],
    cheap: str | None,
    strong: str | None,
) -> tuple[str, str]:
    """Return (cheap, strong): the two models that answered the most common questions.

    A name that is not None is kept. The strong one must be right more often by `LEAST_GAP` on those
    questions. Raises JudgingError if there are no two such models.
    """
    common: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    for models in answered.values():
        for one in models:
            for other in models:
                if one != other and cheap in (None, one) and strong in (None, other):
                    common[one, other] += 1
                    right[one, other] += (rows[models[other]].correct or 0) - (
                        rows[models[one]].correct or 0
                    )
    clear = {pair: n for pair, n in common.items() if right[pair] / n >= LEAST_GAP}
    if not clear:
        raise JudgingError("no two models have questions in common of which one is clearly better")
    return max(clear, key=lambda pair: (clear[pair], pair))
