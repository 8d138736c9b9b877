"""How much a hundred labels mend, model by model or benchmark by benchmark (paper N01-N05).

Of each group, questions are drawn until there are 100 labelled replies; each kind of curve is
fitted on them and judged on the replies to the other questions; 25 random splits, and their mean.
For a calibrator's own models and benchmarks that is recalibration in distribution; what counts is
groups that its training never saw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from calibrator.evaluation.evaluate import question_numbers
from calibrator.metrics.metrics import Floats, Ints, auroc, brier, ece
from calibrator.recalibration.curves import fit_platt
from calibrator.recalibration.fit import FIT
from calibrator.results.groups import groups_of
from calibrator.results.results import plain
from calibrator.rows.rows import Row, labels_of

LABELS, SPLITS = 100, 25  # of N01
MIN_ROWS = 2 * LABELS
SEED = 20_261_121

StudiedBy = Literal["model", "benchmark", "domain"]


@dataclass(frozen=True, slots=True)
class Mended:
    """Figures of one group on rows that were not fitted on, before and after, means over splits.

    ECE never falls to 0 on a few hundred rows, whatever the confidences: `ece_floor` is that of
    labels drawn with the mended confidences themselves. AUROC is that of the raw confidence, which
    Platt and temperature keep (N04); isotonic curves make ties and have their own.
    """

    group: str
    rows: int
    accuracy: float
    auroc: float
    ece: float
    ece_platt: float  # held to the score by a prior, as `pinocchio recalibrate` fits it
    ece_plain: float  # Platt by maximum likelihood alone, as the paper's
    ece_isotonic: float
    ece_temperature: float
    ece_floor: float  # what exact confidences would show on so few rows
    brier: float
    brier_platt: float
    auroc_isotonic: float

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = plain(asdict(self))
        return values


FIGURES = tuple(name for name in Mended.__dataclass_fields__ if name not in ("group", "rows"))


def study(
    rows: Sequence[Row],
    confidence: Floats,
    by: StudiedBy = "model",
    progress: Callable[[int], None] = lambda _: None,
) -> list[Mended]:
    """N01 for every group of at least `MIN_ROWS` rows with both labels, largest first."""
    groups = [group for group in groups_of(rows) if group.kind == by]
    labels, questions = labels_of(rows), question_numbers(rows)
    found = []
    for group in sorted(groups, key=lambda one: -len(one.at)):
        at = group.at
        if mended := mend(group.name, labels[at], confidence[at], questions[at]):
            found.append(mended)
        progress(1)
    return found


def mend(group: str, y: Ints, p: Floats, questions: Ints, labels: int = LABELS) -> Mended | None:
    """N01 for one group's rows; None with fewer than twice the `labels`, or without both kinds."""
    if len(y) < 2 * labels:
        return None
    rng = np.random.default_rng(SEED)
    splits = [_split(y, p, *_draw(questions, labels, rng), rng) for _ in range(SPLITS)]
    figures = [one for one in splits if one is not None]
    if not figures:
        return None
    means = {name: float(np.mean([one[name] for one in figures])) for name in figures[0]}
    return Mended(group=group, rows=len(y), accuracy=float(y.mean()), **means)


def _draw(questions: Ints, labels: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Rows of random questions until there are so many `labels`, and those of all others."""
    order = rng.permutation(np.unique(questions))
    sizes = np.bincount(questions)[order]
    taken = order[: int(np.searchsorted(np.cumsum(sizes), labels)) + 1]
    fitted = np.isin(questions, taken)
    return np.flatnonzero(fitted), np.flatnonzero(~fitted)


def _split(
    y: Ints, p: Floats, fitted: Ints, judged: Ints, rng: np.random.Generator
) -> dict[str, float] | None:
    """Figures of one split; None where one side lacks a label, so that nothing can be measured."""
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


def mean_of(found: Sequence[Mended]) -> Mended:
    """The unweighted mean over groups; nan where there are none."""
    means = {
        name: float(np.mean([getattr(one, name) for one in found])) if found else math.nan
        for name in FIGURES
    }
    return Mended(group="mean", rows=sum(one.rows for one in found), **means)
