"""Scorers whose sensitivity is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calibrator.lab.judging.sensitivity import everyday_questions
from calibrator.rows.rows import Row
from calibrator.scorer import Item, Score


@dataclass(frozen=True)
class FunctionScorer:
    """A scorer whose numbers are a function of the item."""

    confidence: Callable[[Item], float]
    name: str = "made-up@1"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        return [Score(value := self.confidence(item), value) for item in items]


def all_seeing(rows: Sequence[Row]) -> FunctionScorer:
    """Return a scorer that knows the right replies: 0.9 for one of them and 0.2 for others."""
    right = {(row.question, row.answer) for row in rows if row.correct}
    for question in everyday_questions():
        for text in (question.right, question.sentence.format(question.right)):
            right.add((question.question, text))
    return FunctionScorer(lambda item: 0.9 if (item.question, item.answer) in right else 0.2)


def blind() -> FunctionScorer:
    """Return a scorer that looks only at the question and at the model's name."""
    return FunctionScorer(lambda item: 1 / (1 + len(item.question)) + 0.1 * bool(item.source_model))
