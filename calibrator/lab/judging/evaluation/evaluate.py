"""The evaluation of methods on labelled rows: figures for each group, and comparisons.

    rows, methods -> results, comparisons, ranking within questions, curves -> JSON, report, card

The first method is the one that is judged; all are measured on the same rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.comparisons import (
    AurocDraws,
    MethodComparison,
    compare,
    draw,
)
from calibrator.lab.judging.evaluation.traffic import Traffic, read_traffic_figures
from calibrator.lab.judging.sensitivity import Sensitivity, read_sensitivity
from calibrator.metrics.disagreement import PERMUTATIONS, Disagreement
from calibrator.metrics.intervals import (
    RESAMPLES,
    Interval,
    PairedTest,
    mean_interval,
    percentile_interval,
)
from calibrator.metrics.metrics import Bin, Floats, Ints, reliability, risk_coverage, roc
from calibrator.rows.groups import POOLED, groups_of
from calibrator.rows.results import (
    Method,
    Result,
    mean_over_benchmarks,
    numbers,
    plain_json,
    result_of,
)
from calibrator.rows.rows import Row, labels_of, question_numbers

FORMAT = 1
CURVE_POINTS = 200
STEPS = 2  # for each method: its figures, then its resamples
PERMUTATIONS_OF_BASELINES = 1_000
STATED_ROWS = "rows with a stated confidence"

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class WithinQuestions:
    """The quality of a method's ranking of replies to one question; see `Disagreement`."""

    method: str
    questions: int
    replies: int
    auroc: Interval
    pairs: float
    pooled: float
    p_auroc: float
    p_pooled: float


@dataclass(frozen=True, slots=True)
class Curves:
    """The data of a method's figures; curves have at most `CURVE_POINTS` points."""

    method: str
    bins: list[Bin]
    roc: Points  # false positive rate, true positive rate
    risk_coverage: Points  # share kept, share of errors among those


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All figures of one run; `judged` is the first method's name.

    `sensitivity` and `traffic` belong to the calibrator that scored, and are None where they were
    not asked for. Where only traffic was measured, there are no rows and no results.
    """

    judged: str
    rows: int
    questions: int
    accuracy: float
    methods: list[str]
    baselines: list[str]
    results: list[Result]
    comparisons: list[MethodComparison] = field(default_factory=list)
    within: list[WithinQuestions] = field(default_factory=list)
    curves: list[Curves] = field(default_factory=list)
    sensitivity: Sensitivity | None = None
    traffic: Traffic | None = None

    def find(self, group: str, method: str | None = None) -> Result | None:
        """Return the result of a method, by default the judged one, on a group, such as `gsm8k`.

        It is None where there is none.
        """
        named = [
            r for r in self.results if r.group == group and r.method == (method or self.judged)
        ]
        return named[0] if named else None

    def of_kind(self, kind: str, method: str | None = None) -> list[Result]:
        """Return a method's results on the groups of a kind, such as `benchmark`.

        They are in the order of `results`; [] if the method has none. By default it is the judged
        one.
        """
        name = method or self.judged
        return [r for r in self.results if r.kind == kind and r.method == name]

    def sensitivity_on(self, one: Result) -> float:
        """Return the calibrator's sensitivity (mean AUROC against corruptions) on a result's group.

        The group is a benchmark, text or calls, or all rows and the mean, which have the mean over
        benchmarks. It is nan for other kinds, such as models, and where none was measured.
        """
        if self.sensitivity is None or one.kind not in ("benchmark", "task", "mean", "pooled"):
            return math.nan
        if one.kind == "benchmark":
            return self.sensitivity.score(one.group)
        is_call = one.group == "tool calls" if one.kind == "task" else None
        return self.sensitivity.score(is_call=is_call)

    def join(self, other: Evaluation) -> Evaluation:
        """Return a copy with another evaluation's pooled results and comparisons appended.

        The rest of the other one is dropped.
        """
        return replace(
            self,
            results=[*self.results, *(one for one in other.results if one.kind == "pooled")],
            comparisons=[*self.comparisons, *other.comparisons],
        )


def judge(
    rows: Sequence[Row],
    methods: Sequence[Method],
    *,
    name: str = POOLED,
    resamples: int = RESAMPLES,
    permutations: int = PERMUTATIONS,
    progress: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Return the evaluation of all methods on labelled rows; the first method is the judged one.

    `name` is the name of these rows. `progress` is called with 1 for each of the `STEPS` of a
    method. A benchmark with one label has no AUROC and is left out of the mean. With fewer than
    four rows, or fewer than two of either label, there are no comparisons and no curves. Raises
    JudgingError without rows or methods.
    """
    if not rows or not methods:
        raise JudgingError("there is nothing to judge")
    labels, questions = labels_of(rows), question_numbers(rows)
    evaluation = Evaluation(
        judged=methods[0].name,
        rows=len(rows),
        questions=int(questions.max()) + 1,
        accuracy=float(labels.mean()),
        methods=[method.name for method in methods],
        baselines=[method.name for method in methods if method.is_baseline],
        results=_results(rows, methods, name, labels, questions, resamples, progress),
    )
    if len(rows) < 4 or min(labels.sum(), len(labels) - labels.sum()) < 2:
        return evaluation
    benchmarks = [group for group in groups_of(rows) if group.kind == "benchmark"]
    drawn = []
    for method in methods:
        most = min(permutations, PERMUTATIONS_OF_BASELINES) if method.is_baseline else permutations
        drawn.append(draw(method, labels, questions, benchmarks, resamples, most))
        progress(1)
    return replace(
        evaluation,
        results=[_with_mean_interval(r, methods, drawn) for r in evaluation.results],
        comparisons=compare(name, methods, drawn, labels),
        within=[
            _rank_within(method.name, one.within, resamples)
            for method, one in zip(methods, drawn, strict=True)
            if one.within
        ],
        curves=[_curves(method, labels) for method in methods],
    )


def empty_evaluation(name: str) -> Evaluation:
    """Return an evaluation without rows, for a calibrator `name` measured on traffic alone."""
    return Evaluation(name, 0, 0, math.nan, methods=[], baselines=[], results=[])


def _results(
    rows: Sequence[Row],
    methods: Sequence[Method],
    name: str,
    labels: Ints,
    questions: Ints,
    resamples: int,
    progress: Callable[[int], None],
) -> list[Result]:
    """Return the results of every method on every group: its groups, their mean, then all rows.

    Intervals are computed for all groups of the judged method, and only for all rows of the others:
    hundreds of models, each resampled for each baseline, would take an hour. `name` is the name of
    all rows; `progress` is called with 1 for each method.
    """
    *groups, pooled = groups_of(rows)
    pooled = replace(pooled, name=name)
    results: list[Result] = []
    for method in methods:
        bounds = resamples if method is methods[0] else 0
        each = [result_of(group, method, labels, questions, bounds) for group in groups]
        mean = mean_over_benchmarks(each, method, len(rows))
        results += [*each, mean, result_of(pooled, method, labels, questions, resamples)]
        progress(1)
    return results


def _with_mean_interval(
    result: Result, methods: Sequence[Method], drawn: Sequence[AurocDraws]
) -> Result:
    """Return a mean over benchmarks with its interval over questions; other results unchanged.

    `drawn` has the AUROCs on resamples of each of the `methods`.
    """
    if result.kind != "mean":
        return result
    of_method = drawn[[method.name for method in methods].index(result.method)]
    interval = percentile_interval(of_method.mean_value, of_method.mean)
    return replace(result, question_low=interval.low, question_high=interval.high)


def _rank_within(method: str, found: Disagreement, resamples: int) -> WithinQuestions:
    """Return a method's ranking within questions, with an interval of its mean AUROC.

    The interval is a bootstrap over questions with this number of `resamples`; the p values are
    taken over.
    """
    return WithinQuestions(
        method,
        found.questions,
        found.replies,
        mean_interval(found.each, resamples),
        found.pairs,
        found.pooled,
        found.p_auroc,
        found.p_pooled,
    )


def _curves(method: Method, labels: Ints) -> Curves:
    """Return the reliability, ROC and risk-coverage curves of a method.

    `labels` (n,) are 0 or 1. The last two have at most `CURVE_POINTS` points.
    """
    p = method.confidence
    return Curves(
        method.name,
        reliability(labels, p),
        _thin_points(*roc(labels, p)),
        _thin_points(*risk_coverage(labels, p)),
    )


def _thin_points(x: Floats, y: Floats) -> Points:
    """Return at most `CURVE_POINTS` points (x, y) of a curve, evenly chosen with both ends.

    `x` and `y` are both (n,); values are rounded to five digits.
    """
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), CURVE_POINTS)).round().astype(int))
    return [(round(float(a), 5), round(float(b), 5)) for a, b in zip(x[kept], y[kept], strict=True)]


def to_json(evaluation: Evaluation) -> str:
    """Encode an evaluation as JSON text, with null for nan and infinity.

    `sensitivity` and `traffic` are left out where they were not measured.
    """
    values = {"format": FORMAT, **plain_json(asdict(evaluation))}
    for name in ("sensitivity", "traffic"):
        if getattr(evaluation, name) is None:  # absent for readers of older versions
            del values[name]
    return json.dumps(values, indent=1, allow_nan=False)


def read_evaluation(path: Path) -> Evaluation:
    """Read the evaluation in a file that holds the output of `to_json`, with nan for null.

    Raises JudgingError for other contents, OSError without the file.
    """
    try:
        values = numbers(json.loads(path.read_text(encoding="utf-8")))
        if values.pop("format") != FORMAT:
            raise ValueError(f"this version reads format {FORMAT}")
        values["results"] = [Result(**one) for one in values["results"]]
        values["comparisons"] = [_comparison(one) for one in values["comparisons"]]
        values["within"] = [
            WithinQuestions(**{**one, "auroc": Interval(**one["auroc"])})
            for one in values["within"]
        ]
        values["curves"] = [
            Curves(**{**one, "bins": [Bin(**each) for each in one["bins"]]})
            for one in values["curves"]
        ]
        if "sensitivity" in values:
            values["sensitivity"] = read_sensitivity(values["sensitivity"])
        if "traffic" in values:
            values["traffic"] = read_traffic_figures(values["traffic"])
        return Evaluation(**values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise JudgingError(f"{path} is no evaluation that this version wrote: {error}") from error


def _comparison(values: dict[str, Any]) -> MethodComparison:
    """Build a comparison from the dict that `to_json` wrote.

    Raises KeyError or TypeError for other values.
    """
    pooled = values["pooled"]
    fields: dict[str, Any] = {
        **values,
        **{name: Interval(**values[name]) for name in ("clustered", "mean", "within")},
        "pooled": PairedTest(**{**pooled, "difference": Interval(**pooled["difference"])}),
    }
    return MethodComparison(**fields)
