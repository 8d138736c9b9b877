"""The gain of a recalibration on a hundred labels, by model or by benchmark (paper N01-N05).

In each group, questions are drawn until there are 100 labelled replies. Each kind of curve is
fitted on them and judged on the replies to the other questions. The figures are means of 25 random
splits. For a calibrator's own models and benchmarks that is recalibration in distribution; the
important groups are those that its training never saw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from calibrator.metrics.metrics import Floats, Ints, auroc, brier, ece
from calibrator.recalibration.curves import fit_platt
from calibrator.recalibration.fit import FIT
from calibrator.rows.groups import groups_of
from calibrator.rows.results import plain_json
from calibrator.rows.rows import Row, labels_of, question_numbers

LABELS, SPLITS = 100, 25  # of N01
MIN_ROWS = 2 * LABELS
SEED = 20_261_121

StudiedBy = Literal["model", "benchmark", "domain"]


@dataclass(frozen=True, slots=True)
class MendedFigures:
    """The mean figures of one group over splits, on rows not fitted on, before and after.

    ECE never falls to 0 on a few hundred rows, whatever the confidences: `ece_floor` is that of
    labels drawn with the recalibrated confidences themselves. AUROC is that of the raw confidence,
    which Platt and temperature keep (N04); isotonic curves make ties and have their own.
    """

    group: str
    rows: int
    accuracy: float
    auroc: float
    ece: float
    ece_platt: float  # with a prior towards the score, as in `pinocchio recalibrate`
    ece_plain: float  # Platt by maximum likelihood alone, as in the paper
    ece_isotonic: float
    ece_temperature: float
    ece_floor: float  # the ECE of exact confidences on so few rows
    brier: float
    brier_platt: float
    auroc_isotonic: float

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = plain_json(asdict(self))
        return values


FIGURES = tuple(
    name for name in MendedFigures.__dataclass_fields__ if name not in ("group", "rows")
)


def study(
    rows: Sequence[Row],
    confidence: Floats,
    by: StudiedBy = "model",
    progress: Callable[[int], None] = lambda _: None,
) -> list[MendedFigures]:
    """Return what labels gain in each group of rows (N01), largest group first.

    Groups are models, or what `by` says; those with too few rows or one label only are left out.
    `progress(1)` is called after each.
    """
    groups = [group for group in groups_of(rows) if group.kind == by]
    labels, questions = labels_of(rows), question_numbers(rows)
    found = []
    for group in sorted(groups, key=lambda one: -len(one.at)):
        at = group.at
        if mended := mend(group.name, labels[at], confidence[at], questions[at]):
            found.append(mended)
        progress(1)
    return found


def mend(
    group: str, y: Ints, p: Floats, questions: Ints, labels: int = LABELS
) -> MendedFigures | None:
    """Return the mean figures of recalibrations on `labels` rows of one group (N01).

    `y` are labels, `p` confidences, `questions` numbers of questions, all (n,). None for fewer rows
    than twice the `labels`, or where no split has both labels on both sides.
    """
    if len(y) < 2 * labels:
        return None
    rng = np.random.default_rng(SEED)
    splits = [_split(y, p, *_draw(questions, labels, rng), rng) for _ in range(SPLITS)]
    figures = [one for one in splits if one is not None]
    if not figures:
        return None
    means = {name: float(np.mean([one[name] for one in figures])) for name in figures[0]}
    return MendedFigures(group=group, rows=len(y), accuracy=float(y.mean()), **means)


def _draw(questions: Ints, labels: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw random questions until they have `labels` rows; return their rows and all others.

    Both are arrays of positions.
    """
    order = rng.permutation(np.unique(questions))
    sizes = np.bincount(questions)[order]
    taken = order[: int(np.searchsorted(np.cumsum(sizes), labels)) + 1]
    fitted = np.isin(questions, taken)
    return np.flatnonzero(fitted), np.flatnonzero(~fitted)


def _split(
    y: Ints, p: Floats, fitted: Ints, judged: Ints, rng: np.random.Generator
) -> dict[str, float] | None:
    """Return the figures of one split by name, or None where a side lacks right or wrong replies.

    `y` are labels and `p` confidences, (n,); `fitted` and `judged` are positions in them. The
    curves are fitted on the former, and the figures are those of the latter.
    """
    if len(set(y[fitted])) < 2 or not len(judged) or len(set(y[judged])) < 2:
        return None
    right, raw = y[judged], p[judged]
    after = {kind: FIT[kind](y[fitted], p[fitted]).apply_all(raw) for kind in FIT}
    plain = fit_platt(y[fitted], p[fitted]).apply_all(raw)
    return {
        "auroc": auroc(right, raw),
        "ece": ece(right, raw),
        **{f"ece_{kind}": ece(right, after[kind]) for kind in after},
        "ece_plain": ece(right, plain),
        "ece_floor": ece(rng.random(len(raw)) < after["platt"], after["platt"]),
        "brier": brier(right, raw),
        "brier_platt": brier(right, after["platt"]),
        "auroc_isotonic": auroc(right, after["isotonic"]),
    }


def mean_of(found: Sequence[MendedFigures]) -> MendedFigures:
    """Return the unweighted mean over groups, named `mean`, with the sum of their rows.

    Without groups all means are nan.
    """
    means = {
        name: float(np.mean([getattr(one, name) for one in found])) if found else math.nan
        for name in FIGURES
    }
    return MendedFigures(group="mean", rows=sum(one.rows for one in found), **means)
