"""A check of certificates: certify on half of the questions, then measure on the other half.

    found = study(rows, max_error=0.1, confidence=0.9)
    found.certified, found.mean_error, found.median_coverage

Splits are by question, so that no question is in both halves. In the other half each question
weighs the same, however many replies it has: errors and coverage are those of a random reply to
a random question.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from policies.certifying.certification import GRID, LabelledScore, certify


@dataclass(frozen=True, slots=True)
class Study:
    """The results of `splits` random splits.

    `certified` is the share of splits with a threshold; errors and coverage are about these.
    `violations` is the share of all splits whose other half had more errors than promised. The
    other half is itself a sample, so noise may lift this share above 1 - confidence.
    """

    splits: int
    questions: int
    certified: float
    mean_error: float | None
    median_coverage: float | None
    violations: float
    best_coverage: float


def study(
    rows: Sequence[LabelledScore],
    max_error: float,
    confidence: float = 0.95,
    *,
    splits: int = 200,
    seed: int = 0,
) -> Study:
    """Return a `Study` of certificates from random halves of the questions on the other halves.

    The halves are drawn `splits` times with the random `seed`. `mean_error` and `median_coverage`
    are None where no split has a threshold. Raises ValueError as `certify` does.
    """
    by_question: dict[str, list[LabelledScore]] = {}
    for row in rows:
        by_question.setdefault(row.question, []).append(row)
    questions = sorted(by_question)
    generator = random.Random(seed)
    errors: list[float] = []
    coverages: list[float] = []
    certified = 0
    for _ in range(splits):
        generator.shuffle(questions)
        half = len(questions) // 2
        labels = [row for question in questions[:half] for row in by_question[question]]
        threshold = certify(labels, max_error, confidence).threshold
        if threshold is None:
            continue
        certified += 1
        others = [by_question[question] for question in questions[half:]]
        coverage, error = _outcome(others, threshold)
        coverages.append(coverage)
        errors.append(error)
    return Study(
        splits,
        len(questions),
        certified / splits,
        math.fsum(errors) / len(errors) if errors else None,
        median_low(coverages) if coverages else None,
        sum(error > max_error for error in errors) / splits,
        _best_coverage(list(by_question.values()), max_error),
    )


def _outcome(questions: Sequence[Sequence[LabelledScore]], threshold: float) -> tuple[float, float]:
    """Return (coverage, error rate) of a threshold; each question weighs the same.

    `questions` holds the replies of each question. Coverage is the share of replies that the
    threshold accepts, and the error rate the share of wrong ones among these, 0 where none is
    accepted.
    """
    accepted = wrong = 0.0
    for replies in questions:
        passing = [row for row in replies if row.confidence >= threshold]
        accepted += len(passing) / len(replies)
        wrong += sum(not row.is_correct for row in passing) / len(replies)
    return accepted / len(questions), wrong / accepted if accepted else 0.0


def _best_coverage(questions: Sequence[Sequence[LabelledScore]], max_error: float) -> float:
    """Return the highest coverage of a threshold whose error rate on all questions is low enough.

    Return 0.0 where no threshold of the grid has such an error rate.
    """
    outcomes = (_outcome(questions, threshold) for threshold in GRID)
    return max((coverage for coverage, error in outcomes if error <= max_error), default=0.0)
