"""Other replies to the questions of labelled rows, drawn from the rows with a seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from calibrator.errors import JudgingError
from calibrator.metrics.metrics import Floats
from calibrator.rows.rows import Row
from calibrator.scorer import Item, OtherReply, Score

SEED = 20_261_123
STRONGER = 0.05  # the difference of ability from which a model counts as stronger


class OthersReader(Protocol):
    """An object that adjusts the scores of items by their other replies."""

    def with_others(self, items: Sequence[Item], scores: Sequence[Score]) -> list[Score]: ...


class ReadsOthers(OthersReader, Protocol):
    """A calibrator with a second stage."""

    @property
    def name(self) -> str: ...

    @property
    def opinion(self) -> str: ...

    def ability(self, model: str | None) -> float: ...


@dataclass(frozen=True, slots=True)
class DrawnReply:
    """A reply with other replies: its index among the rows, and the item with those drawn."""

    at: int
    item: Item


def check_reads_others(calibrator: ReadsOthers) -> None:
    """Raise JudgingError for a calibrator without a second stage, which reads other replies."""
    if not calibrator.opinion:
        raise JudgingError(
            f"{calibrator.name} does not read other replies: "
            "pinocchio train --start CHECKPOINT --with opinion"
        )


def draw_others(
    calibrator: ReadsOthers,
    rows: Sequence[Row],
    count: int = 1,
    *,
    is_stronger: bool = False,
    model: str | None = None,
    seed: int = SEED,
) -> list[DrawnReply]:
    """Return each labelled row that has at least `count` others to its question, with those.

    The others are `count` replies of rows by other models; with `is_stronger` only by models whose
    ability is more than `STRONGER` higher, and with `model` only by this one. Without these
    options, a row with its own `others` keeps them all. They are drawn at random, the same ones for
    a `seed`. The result is in the order of the rows.
    """
    rng = random.Random(seed)
    questions: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        questions[row.question_id].append(row)
    found = []
    for at, row in enumerate(rows):
        if row.correct is None:
            continue
        others = [each for each in questions[row.question_id] if each.model != row.model]
        if is_stronger:
            least = calibrator.ability(row.model) + STRONGER
            others = [each for each in others if calibrator.ability(each.model) > least]
        if model is not None:
            others = [each for each in others if each.model == model]
        if row.others and not is_stronger and model is None:
            found.append(DrawnReply(at, row.item("served")))
        elif len(others) >= count:
            chosen = tuple(
                OtherReply(each.answer, each.model, each.tool_use)
                for each in rng.sample(others, count)
            )
            found.append(DrawnReply(at, replace(row.item("served"), others=chosen)))
    return found


def confidences_of(scores: Sequence[Score]) -> Floats:
    """Return the confidences of scores in their order, (N,)."""
    return np.array([score.confidence for score in scores])
