"""The figures of a sensitivity: how far each kind of corruption moves the confidence, and where."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from calibrator.lab.judging.sensitivity.everyday import EverydayFigures
from calibrator.metrics.metrics import Floats, auroc
from calibrator.rows.results import MEAN, plain_json

MIN_PAIRS = 20  # pairs that a benchmark needs to count in a mean


@dataclass(frozen=True, slots=True)
class KindFigures:
    """The effect of one kind of corruption on the confidence, on one benchmark or as a mean.

    `auroc` is of the right replies against the corrupted ones, `in_order` the share of pairs in
    which the right one has the higher confidence (a tie counts half), `right` and `corrupted` are
    mean confidences and `fall` their difference. nan where a figure does not exist.
    """

    kind: str
    benchmark: str  # or `MEAN`
    is_call: bool
    benchmarks: int
    pairs: int
    auroc: float
    in_order: float
    right: float
    corrupted: float
    fall: float


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """All figures of one scorer; `figures` has each kind on each benchmark, then its mean."""

    calibrator: str
    figures: list[KindFigures] = field(default_factory=list)
    everyday: list[EverydayFigures] = field(default_factory=list)

    @property
    def means(self) -> list[KindFigures]:
        """Each kind's mean over benchmarks, kinds for text first."""
        return [one for one in self.figures if one.benchmark == MEAN]

    @property
    def benchmarks(self) -> list[str]:
        """The sorted names of benchmarks where at least one kind has `MIN_PAIRS` pairs."""
        names = {one.benchmark for one in self.figures if one.pairs >= MIN_PAIRS}
        return sorted(names - {MEAN})

    def find(self, kind: str, benchmark: str = MEAN) -> KindFigures | None:
        """Return the figures of a kind of corruption on a benchmark, by default its mean over them.

        It is None where there are none.
        """
        named = (one for one in self.figures if (one.kind, one.benchmark) == (kind, benchmark))
        return next(named, None)

    def score(self, benchmark: str = MEAN, *, is_call: bool | None = None) -> float:
        """Return one number for a benchmark, or for all: the mean AUROC over kinds.

        Kinds with fewer than `MIN_PAIRS` pairs are left out; nan where none is left. `is_call`
        restricts it to the kinds for calls, or to those for text.
        """
        values = [
            one.auroc
            for one in self.figures
            if one.benchmark == benchmark
            and one.pairs >= MIN_PAIRS
            and is_call in (None, one.is_call)
            and math.isfinite(one.auroc)
        ]
        return sum(values) / len(values) if values else math.nan

    def lines(self) -> list[dict[str, Any]]:
        """Return every figure as a dict for a JSON line, corruptions first, with None for nan.

        A line's `kind` is `sensitivity` or `everyday`, its `method` the calibrator's name; the kind
        of corruption is in `corruption` and the benchmark in `group`.
        """
        corruptions = [
            {**asdict(one), "kind": "sensitivity", "corruption": one.kind, "group": one.benchmark}
            for one in self.figures
        ]
        everyday = [
            {**asdict(one), "kind": "everyday", "group": f"everyday, {one.form}"}
            for one in self.everyday
        ]
        method = {"method": self.calibrator}
        return [plain_json({**method, **one}) for one in [*corruptions, *everyday]]


def read_sensitivity(values: Mapping[str, Any]) -> Sensitivity:
    """Build a Sensitivity from the dict that `asdict` made of one, as it is read from JSON.

    Raises TypeError or KeyError for other values.
    """
    return Sensitivity(
        calibrator=str(values["calibrator"]),
        figures=[KindFigures(**one) for one in values["figures"]],
        everyday=[EverydayFigures(**one) for one in values["everyday"]],
    )


def in_order(right: Floats, wrong: Floats) -> float:
    """Return the share of pairs, (n,) each, in which the right confidence is higher.

    A tie counts half.
    """
    return float(np.mean((right > wrong) + 0.5 * (right == wrong)))


def pair_auroc(right: Floats, wrong: Floats) -> float:
    """Return the AUROC of all right confidences (n,) against all wrong ones (m,).

    It is the share of all n x m pairs in which the right one is higher; a tie counts half.
    """
    labels = np.repeat([1, 0], [len(right), len(wrong)])
    return auroc(labels, np.concatenate([right, wrong]))


def figures_of_kind(
    kind: str, benchmark: str, right: Floats, corrupted: Floats, *, is_call: bool
) -> KindFigures:
    """Return the figures of the pairs of one kind of corruption on one benchmark.

    `right` and `corrupted` are the confidences of the same n pairs, (n,) each. The names and
    `is_call` are only stored.
    """
    return KindFigures(
        kind=kind,
        benchmark=benchmark,
        is_call=is_call,
        benchmarks=1,
        pairs=len(right),
        auroc=pair_auroc(right, corrupted),
        in_order=in_order(right, corrupted),
        right=float(right.mean()),
        corrupted=float(corrupted.mean()),
        fall=float((right - corrupted).mean()),
    )


def mean_of_kind(each: Sequence[KindFigures]) -> KindFigures:
    """Return the unweighted mean of one kind over benchmarks with at least `MIN_PAIRS` pairs.

    `each` has the kind's figures on each benchmark. `benchmarks` and `pairs` count those in the
    mean; without any they are 0 and the figures nan. Raises IndexError for an empty `each`.
    """
    enough = [one for one in each if one.pairs >= MIN_PAIRS]

    def mean(values: Iterable[float]) -> float:
        """Return the mean of the values, or nan for none."""
        found = list(values)
        return sum(found) / len(found) if found else math.nan

    return KindFigures(
        kind=each[0].kind,
        benchmark=MEAN,
        is_call=each[0].is_call,
        benchmarks=len(enough),
        pairs=sum(one.pairs for one in enough),
        auroc=mean(one.auroc for one in enough),
        in_order=mean(one.in_order for one in enough),
        right=mean(one.right for one in enough),
        corrupted=mean(one.corrupted for one in enough),
        fall=mean(one.fall for one in enough),
    )
