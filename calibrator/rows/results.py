"""The figures of one method on one group of rows, and their mean over benchmarks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from calibrator.metrics.disagreement import disagreement
from calibrator.metrics.intervals import auroc_interval
from calibrator.metrics.metrics import (
    Floats,
    Ints,
    auprc_incorrect,
    aurc,
    auroc,
    best_f1_incorrect,
    brier,
    cohens_d,
    coverage_at,
    ece,
)
from calibrator.rows.groups import Group
from calibrator.rows.rows import Tags

MEAN = "mean over benchmarks"
MIN_ROWS_FOR_INTERVAL = 30


@dataclass(frozen=True, slots=True)
class Method:
    """P(correct) of every row. `tags` are the names that it used; None where that means nothing."""

    name: str
    confidence: Floats
    tags: Tags | None = None
    is_baseline: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one method on one group of rows; nan where a figure does not exist.

    `low` and `high` are the BCa interval of the AUROC over replies (H02), `question_low` and
    `question_high` the same over whole questions.
    """

    kind: str
    group: str
    method: str
    rows: int
    accuracy: float  # the share of correct replies
    auroc: float
    brier: float
    ece: float
    auprc: float  # for wrong replies, as is `f1`
    f1: float
    d: float
    aurc: float
    coverage_90: float
    coverage_95: float
    coverage_99: float
    within: float  # mean AUROC within questions that have right and wrong replies
    within_questions: int
    low: float = math.nan
    high: float = math.nan
    question_low: float = math.nan
    question_high: float = math.nan

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name as plain values, with None for nan, which JSON lacks."""
        values: dict[str, Any] = plain_json(asdict(self))
        return values


AVERAGED = [f.name for f in fields(Result)][4:16]


def result_of(
    group: Group, method: Method, labels: Ints, questions: Ints, resamples: int = 0
) -> Result:
    """Return all figures of a method on a group, with intervals of the AUROC if `resamples`.

    `labels` and `questions` (numbers of questions) are those of all rows, (n,). Groups of fewer
    than `MIN_ROWS_FOR_INTERVAL` rows get no intervals: these are nan.
    """
    y, p, q = labels[group.at], method.confidence[group.at], questions[group.at]
    mixed = disagreement(y, p, q, permutations=0)
    result = Result(
        kind=group.kind,
        group=group.name,
        method=method.name,
        rows=len(y),
        accuracy=float(y.mean()),
        auroc=auroc(y, p),
        brier=brier(y, p),
        ece=ece(y, p),
        auprc=auprc_incorrect(y, p),
        f1=best_f1_incorrect(y, p),
        d=cohens_d(y, p),
        aurc=aurc(y, p),
        coverage_90=coverage_at(y, p, 0.90),
        coverage_95=coverage_at(y, p, 0.95),
        coverage_99=coverage_at(y, p, 0.99),
        within=mixed.auroc if mixed else math.nan,
        within_questions=mixed.questions if mixed else 0,
    )
    if not resamples or len(y) < MIN_ROWS_FOR_INTERVAL:
        return result
    over_replies = auroc_interval(y, p, resamples=resamples)
    over_questions = auroc_interval(y, p, q, resamples)
    return replace(
        result,
        low=over_replies.low,
        high=over_replies.high,
        question_low=over_questions.low,
        question_high=over_questions.high,
    )


def mean_over_benchmarks(results: Sequence[Result], method: Method, rows: int) -> Result:
    """Return the unweighted mean of each figure of a method over benchmarks (H16).

    A benchmark without a figure, nan, is left out of its mean; nan without any. `rows` is the
    number of rows that the result states.
    """
    each = [asdict(one) for one in results if one.kind == "benchmark" and one.method == method.name]

    def mean(name: str) -> float:
        """Return the mean of a figure over the benchmarks that have it, or nan."""
        values = np.array([one[name] for one in each])
        values = values[~np.isnan(values)]
        return float(values.mean()) if len(values) else math.nan

    return Result(
        kind="mean",
        group=MEAN,
        method=method.name,
        rows=rows,
        within_questions=sum(one["within_questions"] for one in each),
        **{name: mean(name) for name in AVERAGED},
    )


def plain_json(value: Any) -> Any:
    """Return a value with None for nan and infinity, and lists for tuples, at any depth."""
    if isinstance(value, dict):
        return {key: plain_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def numbers(value: Any) -> Any:
    """Return a value read from JSON with nan for None, at any depth."""
    if isinstance(value, dict):
        return {key: numbers(one) for key, one in value.items()}
    if isinstance(value, list):
        return [numbers(one) for one in value]
    return math.nan if value is None else value
