"""Comparisons of a method with each baseline, on the same rows and resamples (H05, H06)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrator.metrics.disagreement import Disagreement, disagreement
from calibrator.metrics.intervals import (
    SEED,
    Interval,
    PairedTest,
    RankedReplies,
    delong,
    mean_interval,
    percentile_interval,
)
from calibrator.metrics.metrics import Floats, Ints, auroc
from calibrator.rows.groups import Group
from calibrator.rows.results import Method


@dataclass(frozen=True, slots=True)
class MethodComparison:
    """The difference of a method's AUROC from a baseline's, above 0 where the method's is higher.

    `rows` is the name of the rows, such as `pooled`. `pooled` is DeLong's test; `clustered` is the
    same difference with an interval over questions; `mean` and `within` are differences of the mean
    over benchmarks and of the mean within questions, with intervals over questions.
    """

    rows: str
    method: str
    baseline: str
    pooled: PairedTest
    clustered: Interval
    mean: Interval
    within: Interval


@dataclass(frozen=True, slots=True)
class AurocDraws:
    """The AUROCs of one method on resamples of questions, which are the same for every method."""

    value: float
    pooled: Floats  # (resamples,)
    mean_value: float
    mean: Floats  # (resamples,), over benchmarks
    within: Disagreement | None


def draw(
    method: Method,
    labels: Ints,
    questions: Ints,
    benchmarks: Sequence[Group],
    resamples: int,
    permutations: int,
) -> AurocDraws:
    """Resample questions, pooled and within each benchmark, and return a method's AUROCs.

    `labels` and `questions` (numbers) are of all rows, (n,); labels have to hold both kinds.
    `benchmarks` are groups of rows; those with one label are left out. The same arguments give the
    same resamples for every method. `permutations` are for the p values within questions.
    """
    p = method.confidence
    drawn, values = [], []
    for number, group in enumerate(benchmarks):
        y = labels[group.at]
        if y.min() < y.max():
            replies = RankedReplies(y, p[group.at], questions[group.at])
            drawn.append(replies.resample(resamples, SEED + number))
            values.append(auroc(y, p[group.at]))
    return AurocDraws(
        value=auroc(labels, p),
        pooled=RankedReplies(labels, p, questions).resample(resamples),
        mean_value=float(np.mean(values)) if values else np.nan,
        mean=_mean_of(drawn, resamples),
        within=disagreement(labels, p, questions, permutations),
    )


def _mean_of(drawn: Sequence[Floats], resamples: int) -> Floats:
    """Return the mean over benchmarks of each resample, (resamples,).

    `drawn` has an array (resamples,) for each benchmark, nan where the resample lacks a label;
    these are left out. It is nan where all are, and without benchmarks.
    """
    if not drawn:
        return np.full(resamples, np.nan)
    table = np.stack(drawn)
    counted = np.isfinite(table)
    counts = counted.sum(axis=0)
    means = np.where(counted, table, 0).sum(axis=0) / np.where(counts > 0, counts, np.nan)
    return np.asarray(means)


def compare(
    rows: str, methods: Sequence[Method], drawn: Sequence[AurocDraws], labels: Ints
) -> list[MethodComparison]:
    """Compare each judged method with the baselines that were given the same names.

    The first method is also compared with the other judged ones of the same names. Baselines that
    use no names (`tags` None) are compared with all. `rows` is the name of these rows; `drawn` has
    the AUROCs of each method in the same order. The result is in the order of methods, then of
    baselines.
    """
    pairs = [
        (i, j)
        for i, first in enumerate(methods)
        for j, second in enumerate(methods)
        if not first.is_baseline
        and i != j
        and (second.is_baseline or i == 0)
        and second.tags in (None, first.tags)
    ]
    return [_compare(rows, methods[i], methods[j], drawn[i], drawn[j], labels) for i, j in pairs]


def _compare(
    rows: str, first: Method, second: Method, a: AurocDraws, b: AurocDraws, labels: Ints
) -> MethodComparison:
    """Compare two methods on the same labels and resamples; differences are first - second.

    `a` and `b` are the AUROCs of `first` and `second`, `rows` the name of the rows.
    """
    # The questions with both labels are the same for both methods, and in the same order.
    within = a.within.each - b.within.each if a.within and b.within else np.array([])
    return MethodComparison(
        rows=rows,
        method=first.name,
        baseline=second.name,
        pooled=delong(labels, first.confidence, second.confidence),
        clustered=percentile_interval(a.value - b.value, a.pooled - b.pooled),
        mean=percentile_interval(a.mean_value - b.mean_value, a.mean - b.mean),
        within=mean_interval(within, len(a.pooled)),
    )
