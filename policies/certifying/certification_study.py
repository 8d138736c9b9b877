"""Whether certificates keep their word: certify on half of the questions, look at the other half.

    found = study(rows, max_error=0.1, confidence=0.9)
    found.certified, found.mean_error, found.median_coverage

Splits are by question, so that no question stands on both sides. Errors and coverage of the other
half are those of a reply drawn from a question drawn from it: each question weighs the same,
however many replies it has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from policies.certifying.certification import GRID, Labelled, certify


@dataclass(frozen=True, slots=True)
class Study:
    """What came of `splits` random splits; errors and coverage are those of the certified ones.

    `violations` is the share of all splits whose other half had more errors than promised. The
    other half is itself a sample, so this may exceed 1 - confidence by its noise.
    """

    splits: int
    questions: int
    certified: float
    mean_error: float | None
    median_coverage: float | None
    violations: float
    best_coverage: float


def study(
    rows: Sequence[Labelled],
    max_error: float,
    confidence: float = 0.95,
    *,
    splits: int = 200,
    seed: int = 0,
) -> Study:
    """Certify and look again, `splits` times; raises ValueError as `certify` does."""
    by_question: dict[str, list[Labelled]] = {}
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


def _outcome(questions: Sequence[Sequence[Labelled]], threshold: float) -> tuple[float, float]:
    """Coverage and error rate at a threshold; the error rate of nothing is 0."""
    accepted = wrong = 0.0
    for replies in questions:
        passing = [row for row in replies if row.confidence >= threshold]
        accepted += len(passing) / len(replies)
        wrong += sum(not row.is_correct for row in passing) / len(replies)
    return accepted / len(questions), wrong / accepted if accepted else 0.0


def _best_coverage(questions: Sequence[Sequence[Labelled]], max_error: float) -> float:
    """The most coverage of any threshold whose error on all questions is small enough."""
    outcomes = (_outcome(questions, threshold) for threshold in GRID)
    return max((coverage for coverage, error in outcomes if error <= max_error), default=0.0)
