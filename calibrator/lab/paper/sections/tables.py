"""A table of the report: columns, our lines and the paper's, and figures, in memory and as JSON.

A line names the row of the checklist that it answers, so that each number can be traced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from calibrator.metrics.numbers import NO_FIGURE, figure, percent
from calibrator.rows.results import numbers, plain_json

Form = Literal["number", "count", "share", "text", "p"]
State = Literal["made", "lacking", "training"]
Value = float | int | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `key` is the name of its values in lines."""

    key: str
    title: str
    form: Form = "number"

    def text(self, value: Value) -> str:
        """Return the value as text for people; a dash for None and nan.

        Strings are returned unchanged. `form` decides on numbers: "p" gives 4 digits or `< 0.0001`,
        "count" `1,234`, "share" a percentage, "number" a figure.
        """
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return NO_FIGURE
        if isinstance(value, str):
            return value
        if self.form == "p":
            return "< 0.0001" if value < 1e-4 else f"{value:.4f}"
        if self.form == "count":
            return f"{value:,.0f}"
        return percent(value) if self.form == "share" else figure(value)


@dataclass(frozen=True, slots=True)
class TableLine:
    """One line; `row` is the checklist's, and `doubt` is why a number of the paper is suspect."""

    label: str
    values: Mapping[str, Value]
    row: str = ""
    is_paper: bool = False
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG figure with its row of the checklist and its caption.

    `names` are those of its series, in the order of their colours, where it has several.
    """

    row: str
    svg: str
    caption: str
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ReportTable:
    """One table with its title, note and figures; `command` makes it alone."""

    id: str
    title: str
    rows: Sequence[str]
    command: str
    columns: Sequence[Column] = ()
    lines: Sequence[TableLine] = ()
    drawings: Sequence[Drawing] = ()
    note: str = ""
    state: State = "made"

    def as_json(self) -> str:
        """Return the table as indented JSON that `table_of` reads; it ends with a newline."""
        return json.dumps(plain_json(asdict(self)), indent=1, ensure_ascii=False) + "\n"


@dataclass(slots=True)
class TableContent:
    """The content of a table, made by a function of the catalogue."""

    columns: Sequence[Column]
    lines: list[TableLine] = field(default_factory=list)
    drawings: list[Drawing] = field(default_factory=list)
    note: str = ""

    def add(self, label: str, row: str, **values: Value) -> None:
        """Append one of our lines: its label, its row of the checklist, and its values.

        The keys of `values` are those of the columns.
        """
        self.lines.append(TableLine(label, values, row))


def columns_of(lines: Sequence[TableLine]) -> list[Column]:
    """Return a column for each value of the paper's lines, for a table without lines of ours.

    They are in the order in which the values' keys first appear. A column whose values are all
    whole numbers above 1 is shown as counts. Raises KeyError for an unknown key.
    """
    found: dict[str, list[Value]] = {}
    for line in lines:
        for key, value in line.values.items():
            found.setdefault(key, []).append(value)
    return [
        replace(_PAPER_COLUMNS[key], form="count")
        if all(isinstance(value, int) and value > 1 for value in values)
        else _PAPER_COLUMNS[key]
        for key, values in found.items()
    ]


_PAPER_COLUMNS: Final = {
    column.key: column
    for column in (
        *(
            Column(key, key, "count")
            for key in ("rows", "questions", "benchmarks", "trained", "errors")
        ),
        Column("auroc", "AUROC"),
        Column("low", "from"),
        Column("high", "to"),
        Column("brier", "Brier"),
        Column("ece", "ECE"),
        Column("auprc", "AUPRC wrong"),
        Column("f1", "F1 wrong"),
        Column("difference", "AUROC higher by"),
        Column("length", "length AUROC"),
        Column("p", "p", "p"),
        Column("p_auroc", "p within questions", "p"),
        Column("p_pooled", "p pooled", "p"),
        *(Column(key, key) for key in ("right", "d", "rho", "change", "shift", "pooled", "factor")),
        *(Column(key, key) for key in ("inside", "gap", "error", "nnr")),
        Column("ece_plain", "ECE, Platt"),
        Column("ece_isotonic", "ECE, isotonic"),
        Column("ece_mended", "ECE, recalibrated"),
        Column("auroc_isotonic", "AUROC, isotonic"),
        Column("gate_10", "passes at 10 % wrong", "share"),
        Column("gate_5", "at 5 % wrong", "share"),
        Column("delivered", "reviews for 95 % of the rest", "share"),
        Column("saved_delivered", "less work", "share"),
        Column("green", "green", "share"),
        Column("green_right", "of it right"),
        Column("green_errors", "errors in green", "share"),
        Column("red_errors", "errors in red", "share"),
        Column("beside", "compared with"),
        Column("coverage", "coverage", "share"),
        Column("catch", "errors caught", "share"),
        Column("caught", "caught", "count"),
        Column("slipped", "missed", "count"),
        Column("cost", "cost", "count"),
        Column("manual", "cost by hand", "count"),
        Column("volume", "of the replies", "share"),
        Column("sure_wrong", "wrong above .9", "count"),
        Column("unsure_right", "right below .1", "count"),
        Column("hard", "of the rows", "share"),
        Column("share", "share", "share"),
    )
}


def table_of(values: Mapping[str, Any]) -> ReportTable:
    """Return the table whose JSON, parsed to `values`, `ReportTable.as_json` wrote.

    Raises TypeError or KeyError for other values.
    """
    found: dict[str, Any] = numbers(dict(values))
    found["columns"] = [Column(**each) for each in found["columns"]]
    found["lines"] = [TableLine(**each) for each in found["lines"]]
    found["drawings"] = [Drawing(**each) for each in found["drawings"]]
    return ReportTable(**found)
