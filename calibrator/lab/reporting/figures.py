"""Figures as SVG text for a page: no script, no fonts, colours from the page's variables.

Every function returns one `<svg>` as a string. Shapes carry classes (`s0` .. `s5` for series,
`grid`, `axis`, `label`), so that one style sheet serves a light page and a dark one. All text is
escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from calibrator.metrics.intervals import Interval
from calibrator.metrics.metrics import Bin
from calibrator.metrics.numbers import percent

SERIES = 6  # number of colours in the style sheet
MINUS = "\N{MINUS SIGN}"
ROW = 22  # height of a line of a forest plot, in pixels
Points = Sequence[tuple[float, float]]


@dataclass
class Plot:
    """A drawing area of `width` by `height` pixels with two scales, whose SVG shapes are collected.

    `x` and `y` map values to pixels; `left`, `top`, `right` and `bottom` are margins in pixels.
    `x_range` and `y_range` are the (low, high) values at the ends; `is_log` makes x logarithmic.
    The parameter `css` of a method is the class of its shape, such as `curve s0`.
    """

    width: float
    height: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    left: float = 54
    top: float = 12
    right: float = 22
    bottom: float = 40
    is_log: bool = False
    shapes: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Return the horizontal position of a value, in pixels from the left.

        The scale is logarithmic if `is_log`, and then needs a value above 0.
        """
        low, high = self.x_range
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.left + (value - low) / (high - low) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        """Return the vertical position of a value, in pixels from the top."""
        low, high = self.y_range
        return (
            self.height
            - self.bottom
            - (value - low) / (high - low) * (self.height - self.top - self.bottom)
        )

    def line(self, points: Iterable[tuple[float, float]], css: str) -> None:
        """Draw a line through points (x, y), given as values of the two scales."""
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.shapes.append(f'<polyline class="{css}" points="{places}"/>')

    def segment(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """Draw a straight line between two places, in pixels."""
        self.shapes.append(
            f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
        )

    def dot(self, x: float, y: float, css: str, radius: float = 3.5, title: str = "") -> None:
        """Draw a disc at a place, in pixels; `title` is its tooltip, if not empty."""
        inside = f"<title>{escape(title)}</title>" if title else ""
        self.shapes.append(
            f'<circle class="{css}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{inside}</circle>'
        )

    def box(self, x: float, y: float, width: float, height: float, css: str, title: str) -> None:
        """Draw a rectangle from its top left corner, in pixels, with `title` as its tooltip.

        A negative width or height becomes 0.
        """
        self.shapes.append(
            f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
            f'height="{max(height, 0):.1f}"><title>{escape(title)}</title></rect>'
        )

    def text(
        self, x: float, y: float, words: str, css: str = "label", anchor: str = "start"
    ) -> None:
        """Write words at a position, in pixels.

        `anchor` is what is at x: their `start`, `middle` or `end`.
        """
        self.shapes.append(
            f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(words)}</text>"
        )

    def grid_x(self, ticks: Iterable[float], write: Callable[[float], str], name: str) -> None:
        """Draw a vertical line with a label at each tick, and the axis's `name` below.

        Ticks are values of x; `write` makes a label of one, such as `20 %`.
        """
        bottom = self.height - self.bottom
        for tick in ticks:
            self.segment(self.x(tick), self.top, self.x(tick), bottom, "grid")
            self.text(self.x(tick), bottom + 15, write(tick), "tick", "middle")
        middle = (self.left + self.width - self.right) / 2
        self.text(middle, self.height - 6, name, "label", "middle")

    def grid_y(self, ticks: Iterable[float], write: Callable[[float], str], name: str) -> None:
        """Draw a horizontal line with a label at each tick, and the axis's `name` at the left.

        Ticks are values of y; `write` makes a label of one, such as `20 %`. The name is turned
        upright.
        """
        for tick in ticks:
            self.segment(self.left, self.y(tick), self.width - self.right, self.y(tick), "grid")
            self.text(self.left - 6, self.y(tick) + 4, write(tick), "tick", "end")
        x, y = 10.0, (self.top + self.height - self.bottom) / 2
        self.shapes.append(
            f'<text class="label" transform="translate({x},{y:.1f}) rotate(-90)" '
            f'text-anchor="middle">{escape(name)}</text>'
        )

    def svg(self, description: str) -> str:
        """Return all shapes as the text of one `<svg>`; the description is for screen readers."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(description, quote=True)}">{"".join(self.shapes)}</svg>'
        )


def series(number: int) -> str:
    """Return the class of the colour of series `number`, from 0: `s0` to `s5`, then `s5` again."""
    return f"s{min(number, SERIES - 1)}"


def _tenths(low: int, high: int, step: int = 2) -> list[float]:
    """Return the numbers from `low` to `high` tenths in steps of `step` tenths.

    (0, 10) gives 0, 0.2 .. 1.
    """
    return [tick / 10 for tick in range(low, high + 1, step)]


def reliability_diagram(bins: Sequence[Bin], name: str) -> str:
    """Return an SVG of the share of right replies by confidence, above the number of replies (U02).

    Each bin is a dot at its mean confidence, joined to the diagonal. `name` is the method's, for
    the description.
    """
    plot = Plot(460, 430, (0, 1), (0, 1), bottom=130)
    plot.grid_x(_tenths(0, 10), percent, "")
    plot.grid_y(_tenths(0, 10), percent, "right")
    plot.line([(0, 0), (1, 1)], "reference")
    for one in bins:
        words = (
            f"{one.rows:,} replies: {percent(one.confidence)} sure, {percent(one.accuracy)} right"
        )
        x, y = plot.x(one.confidence), plot.y(one.accuracy)
        plot.segment(x, plot.y(one.confidence), x, y, "gap")
        plot.dot(x, y, "mark s0", 5, words)
    plot.line([(one.confidence, one.accuracy) for one in bins], "curve s0")
    most = max((one.rows for one in bins), default=1)
    floor, height = plot.height - 30, 66
    for one in bins:
        tall = one.rows / most * height
        left, right = plot.x(one.low) + 1, plot.x(one.high) - 1
        plot.box(left, floor - tall, right - left, tall, "bar s0", f"{one.rows:,} replies")
    plot.segment(plot.left, floor, plot.width - plot.right, floor, "axis")
    plot.text(plot.left - 6, floor - height + 8, f"{most:,}", "tick", "end")
    plot.text(plot.left - 6, floor, "0", "tick", "end")
    middle = (plot.left + plot.width - plot.right) / 2
    plot.text(middle, plot.height - 8, "confidence, and replies in each bin", "label", "middle")
    return plot.svg(f"Reliability diagram of {name}")


def separation(bins: Sequence[Bin], name: str) -> str:
    """Return an SVG with bars of the numbers of right replies upwards and of wrong ones downwards.

    There is a pair of bars for each bin of confidence. `name` is the method's, for the description.
    """
    counts = [(one, one.rows * one.accuracy, one.rows * (1 - one.accuracy)) for one in bins]
    most = max((max(right, wrong) for _, right, wrong in counts), default=1.0)
    plot = Plot(460, 430, (0, 1), (-most * 1.08, most * 1.08))
    plot.grid_x(_tenths(0, 10), percent, "confidence")
    zero = plot.y(0)
    for one, right, wrong in counts:
        x, width = plot.x(one.low) + 1, plot.x(one.high) - plot.x(one.low) - 2
        plot.box(x, plot.y(right), width, zero - plot.y(right), "bar s0", f"{right:,.0f} right")
        plot.box(x, zero, width, plot.y(-wrong) - zero, "bar s1", f"{wrong:,.0f} wrong")
    plot.segment(plot.left, zero, plot.width - plot.right, zero, "axis")
    for value in (most, -most):
        plot.text(plot.left - 6, plot.y(value) + 4, f"{most:,.0f}", "tick", "end")
    plot.text(plot.left + 8, plot.top + 16, "right replies")
    plot.text(plot.left + 8, plot.height - plot.bottom - 8, "wrong replies")
    return plot.svg(f"Confidence of right and wrong replies, {name}")


def roc_curves(curves: Sequence[tuple[str, Points]]) -> str:
    """Return an SVG of ROC curves, each a name with points (U03).

    A point has the share of wrong and of right replies above a threshold, both from 0 to 1.
    """
    plot = Plot(460, 430, (0, 1), (0, 1))
    plot.grid_x(_tenths(0, 10), percent, "wrong replies above the threshold")
    plot.grid_y(_tenths(0, 10), percent, "right replies above it")
    plot.line([(0, 0), (1, 1)], "reference")
    _series(plot, curves)
    return plot.svg("ROC curves")


def risk_coverage_curves(curves: Sequence[tuple[str, Points]]) -> str:
    """Return an SVG of risk against coverage, for curves that are each a name with points (U04).

    A point has the share of replies kept, surest first, and the share of wrong ones among them.
    Risks above the axis's top are cut off there; dashed lines are at 5 % and 10 %.
    """
    highest = max((y for _, points in curves for x, y in points if x > 0.01), default=0.5)
    top = min(1.0, math.ceil(highest * 10 + 0.5) / 10)
    plot = Plot(460, 430, (0, 1), (0, top))
    plot.grid_x(_tenths(0, 10), percent, "replies kept, surest first")
    plot.grid_y(_tenths(0, round(top * 10), 1), percent, "wrong among them")
    for target in (0.05, 0.10):
        plot.line([(0, target), (1, target)], "reference")
    _series(plot, [(name, [(x, min(y, top)) for x, y in points]) for name, points in curves])
    return plot.svg("Risk against coverage")


def _series(plot: Plot, curves: Sequence[tuple[str, Points]]) -> None:
    """Draw each curve's points in the colour of its number, the first curve last, so on top."""
    for number, (_, points) in reversed(list(enumerate(curves))):  # draws the first series on top
        plot.line(points, f"curve {series(number)}")


def size_curve(points: Sequence[tuple[float, Interval]], name: str) -> str:
    """Return an SVG of AUROC by training rows, on a logarithmic scale, with intervals (U07).

    A point is a number of rows with an AUROC; `name` is the method's. Raises ValueError without
    points.
    """
    sizes = [size for size, _ in points]
    values = [end for _, one in points for end in (one.low, one.high, one.value)]
    low, high = _pad_range([value for value in values if math.isfinite(value)])
    plot = Plot(460, 320, (min(sizes) * 0.8, max(sizes) * 1.25), (low, high), is_log=True)
    plot.grid_x(sizes[::2] if len(sizes) > 6 else sizes, _thousands, "training rows")
    plot.grid_y(_ticks(low, high), lambda tick: f"{tick:.2f}", "AUROC")
    for size, one in points:
        plot.segment(plot.x(size), plot.y(one.low), plot.x(size), plot.y(one.high), "whisker s0")
        words = f"{size:,.0f} rows: {one.value:.3f}"
        plot.dot(plot.x(size), plot.y(one.value), "mark s0", 4, words)
    plot.line([(size, one.value) for size, one in points], "curve s0")
    return plot.svg(f"AUROC of {name} by training rows")


def _thousands(value: float) -> str:
    """Return a number as a label, in thousands from 1,000 on: `500`, `1k`, `2.5k`."""
    return f"{value / 1_000:.3g}k" if value >= 1_000 else f"{value:g}"


def _pad_range(values: Sequence[float]) -> tuple[float, float]:
    """Return (low, high) around all values, in whole steps of 0.05 with some room at both ends.

    Without values it is around 0.5.
    """
    return (
        math.floor(min(values, default=0.5) * 20 - 0.2) / 20,
        math.ceil(max(values, default=0.5) * 20 + 0.2) / 20,
    )


def _ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Return the multiples of a round step, such as 0.05, in the range `low` to `high`, ascending.

    The step is the smallest one that fits at most `most` times into the range. Raises StopIteration
    where even 1.0 is too small.
    """
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if (high - low) / s <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One line of a forest plot: a label, an interval, a mark to compare it with, and a note.

    `mark` is a value on the same axis, nan for none; `note` is written after the interval's value.
    """

    label: str
    interval: Interval
    mark: float = math.nan
    note: str = ""


def forest(rows: Sequence[ForestRow], axis: str, zero: float) -> str:
    """Return an SVG of values with intervals, one for each line, and an upright line (U06).

    `axis` is the axis's name. The upright line is at `zero`, the value that means no effect, such
    as 0.5 for AUROC.
    """
    return _forest([(axis, rows)], zero, width=760, note_width=118)


def forest_panels(panels: Sequence[tuple[str, Sequence[ForestRow]]], zero: float) -> str:
    """Return an SVG of several forest plots side by side.

    A panel is an axis's name with its lines; all panels have the same labels in the same order. An
    upright line in each is at `zero`, the value that means no effect.
    """
    return _forest(panels, zero, width=1_000, note_width=54)


def _forest(
    panels: Sequence[tuple[str, Sequence[ForestRow]]], zero: float, width: float, note_width: float
) -> str:
    """Return an SVG of panels of intervals side by side; the first panel's labels are on the left.

    Each panel has its own scale and a line at `zero`. `width` is the whole width and `note_width`
    the room for numbers right of each panel, in pixels.
    """
    labels = [row.label for row in panels[0][1]]
    label_width = min(330, 24 + 6.9 * max(map(len, labels), default=0))
    height = ROW * len(labels) + 56
    each = (width - label_width) / len(panels)
    shapes = []
    for number, (axis, rows) in enumerate(panels):
        ends = [v for row in rows for v in (row.interval.low, row.interval.high, row.mark)]
        values = [*ends, *(row.interval.value for row in rows), zero]
        low, high = _pad_range([value for value in values if math.isfinite(value)])
        left = label_width + number * each
        right = width - left - each + note_width
        plot = Plot(width, height, (low, high), (0, 1), left=left, right=right, top=8)
        plot.grid_x(_ticks(low, high, int(each / 60)), _tick_label, axis)
        plot.segment(plot.x(zero), plot.top, plot.x(zero), height - plot.bottom, "zero")
        for line, row in enumerate(rows):
            _forest_row(plot, row, plot.top + ROW * (line + 0.5) + 2)
        shapes += plot.shapes
    frame = Plot(width, height, (0, 1), (0, 1), shapes=shapes)
    for line, label in enumerate(labels):
        frame.text(label_width - 10, 8 + ROW * (line + 0.5) + 6, label, "label", "end")
    return frame.svg(", ".join(axis for axis, _ in panels))


def _tick_label(tick: float) -> str:
    """Return a tick with two digits and a true minus sign, such as `0.50`."""
    return f"{tick:.2f}".replace("-", MINUS)


def _forest_row(plot: Plot, row: ForestRow, y: float) -> None:
    """Draw one line at the height `y`, in pixels: interval, mark, dot, and value with note.

    Ends or marks that are not finite are left out; without a finite value the line is `no figure`.
    """
    found, beside = row.interval, plot.width - plot.right + 8
    if not math.isfinite(found.value):
        plot.text(beside, y + 4, "no figure", "tick")
        return
    if math.isfinite(found.low) and math.isfinite(found.high):
        plot.segment(plot.x(found.low), y, plot.x(found.high), y, "whisker s0")
    if math.isfinite(row.mark):
        plot.segment(plot.x(row.mark), y - 7, plot.x(row.mark), y + 7, "tickmark s1")
    plot.dot(plot.x(found.value), y, "mark s0", 4, f"{row.label}: {found.value:.3f}")
    plot.text(beside, y + 4, f"{found.value:.3f} {row.note}".replace("-", MINUS).strip(), "tick")
