"""Figures of the uses of a confidence, as SVG: errors found, gates, reviews; and the pipeline.

Each takes lists of a name, labels (n,) and confidences (n,); colours as in `figures.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrator.lab.reporting.figures import Plot, series
from calibrator.metrics.metrics import Floats, Ints, risk_coverage
from calibrator.metrics.numbers import percent

POINTS = 120  # most points of a curve
WIDTH, HEIGHT = 460, 380
Labelled = Sequence[tuple[str, Ints, Floats]]
_TICKS = [tick / 5 for tick in range(6)]


def _thin_curve(x: Floats, y: Floats) -> list[tuple[float, float]]:
    """Return at most `POINTS` points (x, y) of a curve, evenly chosen with both ends.

    `x` and `y` are both (n,).
    """
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
    return [(float(x[i]), float(y[i])) for i in kept]


def _plot(across: str, up: str) -> Plot:
    """Return a plot without curves, both axes from 0 to 100 %.

    `across` and `up` are the names of the horizontal and the vertical axis.
    """
    plot = Plot(WIDTH, HEIGHT, (0, 1), (0, 1))
    plot.grid_x(_TICKS, percent, across)
    plot.grid_y(_TICKS, percent, up)
    return plot


def _errors_found(y: Ints, p: Floats) -> tuple[Floats, Floats]:
    """Return the share looked at and the share of errors found, least sure first, both (m,).

    They have one entry for each distinct confidence, ascending. `y` are labels, 1 for right, and
    `p` confidences, (n,). All found shares are 0 without any error.
    """
    order = np.argsort(p, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(p[order])), len(p) - 1)
    wrong = np.cumsum(1 - y[order])
    return (ends + 1) / len(p), wrong[ends] / max(1, wrong[-1])


def precision_recall_curves(curves: Labelled) -> str:
    """Return an SVG of the share of alarms that are errors, by the share of errors found (U04 a).

    An alarm is a reply below a threshold. A straight line for each series is its share of errors.
    """
    plot = _plot("errors found", "of the alarms errors")
    for number, (_, y, p) in reversed(list(enumerate(curves))):
        looked_at, recall = _errors_found(y, p)
        precision = recall * (1 - y).sum() / (looked_at * len(y))
        plot.line(_thin_curve(recall, precision), f"curve {series(number)}")
        base = float((1 - y).mean())
        plot.line([(0, base), (1, base)], "reference")
    return plot.svg("Precision and recall of errors")


def coverage_accuracy_curves(curves: Labelled) -> str:
    """Return an SVG of the share of right replies among those that pass, by the share that passes.

    The surest pass first; dashed lines are at 90 and 95 % (U04 b).
    """
    plot = _plot("replies that pass, surest first", "right among them")
    for target in (0.90, 0.95):
        plot.line([(0, target), (1, target)], "reference")
    for number, (_, y, p) in reversed(list(enumerate(curves))):
        coverage, risk = risk_coverage(y, p)
        plot.line(_thin_curve(coverage, 1 - risk), f"curve {series(number)}")
    return plot.svg("Accuracy against coverage")


def review_curves(curves: Labelled) -> str:
    """Return an SVG of the share of errors that reviews find, by the share of replies reviewed.

    The least sure are reviewed first; the diagonal is a random order (U04 c).
    """
    plot = _plot("replies reviewed, least sure first", "errors found")
    plot.line([(0, 0), (1, 1)], "reference")
    for number, (_, y, p) in reversed(list(enumerate(curves))):
        looked_at, found = _errors_found(y, p)
        points = _thin_curve(np.append(0.0, looked_at), np.append(0.0, found))
        plot.line(points, f"curve {series(number)}")
    return plot.svg("Errors found by reviews")


def pipeline(steps: Sequence[tuple[str, str]]) -> str:
    """Return an SVG of boxes in a row, joined by arrows, each a title and a line of text (U01)."""
    each, gap = 150.0, 26.0
    width = len(steps) * each + (len(steps) - 1) * gap + 20
    plot = Plot(width, 96, (0, 1), (0, 1))
    for number, (title, words) in enumerate(steps):
        left = 10 + number * (each + gap)
        plot.box(left, 14, each, 68, "bar s0", title)
        plot.text(left + each / 2, 44, title, "label", "middle")
        plot.text(left + each / 2, 64, words, "tick", "middle")
        if number:
            plot.segment(left - gap + 3, 48, left - 3, 48, "axis")
            plot.segment(left - 9, 43, left - 3, 48, "axis")
            plot.segment(left - 9, 53, left - 3, 48, "axis")
    return plot.svg(", then ".join(title for title, _ in steps))
