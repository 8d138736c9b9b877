"""Tables with invented rows, and the formats in which they are written."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import dataclass
from typing import Any

from calibrator.lab.data.evidence.words.templates import capital, data, fill
from calibrator.lab.data.evidence.words.values import (
    MONTHS,
    WEEKDAYS,
    FactValue,
    Style,
    digits,
    write,
)

Cell = float | str


@dataclass(frozen=True)
class SyntheticTable:
    """A synthetic table: its kind (words/tables.yaml), the names of its rows and its cells."""

    spec: dict[str, Any]
    names: list[str]
    columns: list[str]
    cells: dict[tuple[str, str], Cell]
    style: Style

    def column(self, head: str) -> dict[str, Any]:
        """Return a column's entry in `words/tables.yaml`, with its unit or words and range."""
        found: dict[str, Any] = self.spec["columns"][head]
        return found

    def noun(self, head: str) -> str:
        """Return a column's name in a sentence: `founding year` for `founded`, else as it is."""
        return str(self.column(head).get("noun", head))

    def values(self, head: str) -> list[Cell]:
        """Return the cells of a column in the order of the rows."""
        return [self.cells[name, head] for name in self.names]

    @property
    def number_columns(self) -> list[str]:
        """The columns with amounts that can be compared."""
        return [
            head
            for head in self.columns
            if "unit" in self.column(head) and not self.column(head).get("plain")
        ]

    @property
    def word_columns(self) -> list[str]:
        """The columns with words."""
        return [head for head in self.columns if "words" in self.column(head)]

    def write_cell(self, head: str, cell: Cell, rng: random.Random) -> str:
        """Write a cell with its column's unit, as in a sentence: `€12`, `5 p.m.`, `300 metres`."""
        unit = self.column(head).get("unit")
        if unit is None or isinstance(cell, str):
            return str(cell)
        if unit in ("money", "percent", "time", "days", "minutes", "months", "years"):
            return write(FactValue(unit, float(cell)), self.style, rng)
        if unit == "year":
            return digits(cell)
        return number(cell, rng) + ("" if unit == "count" else f" {unit}")


def number(amount: float, rng: random.Random) -> str:
    """Return an amount such as `1200` or `1,200`, a fraction with one decimal."""
    if amount != int(amount):
        return f"{amount:.1f}"
    return f"{amount:,.0f}" if amount >= 1000 and rng.random() < 0.5 else str(int(amount))


def random_person(rng: random.Random) -> str:
    """Draw a name of a person."""
    return f"{rng.choice(data('names')['given'])} {rng.choice(data('names')['family'])}"


def pool_of(source: str | list[str], rng: random.Random) -> list[str]:
    """Return the words for a column or for row names: the list itself, or drawn for a named source.

    `person` and `date` give 40 drawn ones, `weekday` all days, other names a list of
    `words/names.yaml`.
    """
    if isinstance(source, list):
        return list(source)
    if source == "person":
        return [random_person(rng) for _ in range(40)]
    if source == "date":
        return [f"{rng.randint(1, 28)} {rng.choice(MONTHS)}" for _ in range(40)]
    if source == "weekday":
        return list(WEEKDAYS)
    return list(data("names")[source])


def random_table(rng: random.Random) -> tuple[SyntheticTable, SyntheticTable, SyntheticTable]:
    """Draw a table of three to eight rows and return it with two others for absent facts.

    The second has the same rows and the other columns, the third other rows and the same
    columns. They share `cells`, which hold all rows and columns.
    """
    spec = rng.choice(list(data("tables").values()))
    names = list(dict.fromkeys(rng.sample(pool_of(spec["names"], rng), 10)))
    count = rng.randint(3, 8)
    heads = list(spec["columns"])
    rng.shuffle(heads)
    columns = heads[: rng.randint(2, len(heads) - 1)]
    cells: dict[tuple[str, str], Cell] = {}
    for head in heads:
        column = spec["columns"][head]
        pool = pool_of(column["words"], rng) if "words" in column else []
        pool = rng.sample(pool, min(len(pool), rng.randint(3, 6))) if pool else []
        for name in names:
            cells[name, head] = rng.choice(pool) if pool else draw_amount(column["range"], rng)
    style = Style.draw(rng)
    table = SyntheticTable(spec, names[:count], columns, cells, style)
    other_columns = SyntheticTable(spec, names[:count], heads[len(columns) :], cells, style)
    other_rows = SyntheticTable(spec, names[count:], columns, cells, style)
    return table, other_columns, other_rows


def draw_amount(span: list[float], rng: random.Random) -> float:
    """Draw an amount from `span`, which is lowest, highest and step, rounded to two decimals."""
    low, high, step = span
    return round(low + step * rng.randint(0, int((high - low) / step)), 2)


# --- writing the table ----------------------------------------------------------------------------


def table_text(table: SyntheticTable, rng: random.Random) -> str:
    """Return the table as text, in some cases under a title such as `Data:`.

    The form is drawn: markdown, CSV, records of `head: cell`, JSON, cells between ` ; `, or (12
    %) sentences.
    """
    heads = [_header(table, head) for head in table.columns]
    lines = [
        [name, *(_plain_cell(table, head, table.cells[name, head]) for head in table.columns)]
        for name in table.names
    ]
    title = [capital(table.spec["row"]), *map(capital, heads)]
    form = rng.choice((_markdown, _markdown, _csv, _records, _json, _tabs))
    text = form([title, *lines]) if rng.random() < 0.88 else _sentences(table, rng)
    intro = rng.choice(
        ("", "", f"Table: {table.spec['rows']}", f"Overview of the {table.spec['rows']}:", "Data:")
    )
    return f"{intro}\n{text}".strip()


def _header(table: SyntheticTable, head: str) -> str:
    """Return a column's heading, with a unit in brackets that cells lack, such as `price (€)`."""
    unit = table.column(head).get("unit", "")
    if unit == "money":
        return f"{head} ({table.style.currency})"
    if unit == "percent":
        return f"{head} (%)"
    return f"{head} ({unit})" if unit and unit not in ("count", "year", "time", "points") else head


def _plain_cell(table: SyntheticTable, head: str, cell: Cell) -> str:
    """Write a cell without its unit: words, `09:30` for times, or digits without a last zero."""
    if table.column(head).get("unit") == "time" and not isinstance(cell, str):
        return f"{int(cell):02d}:{round(cell % 1 * 60):02d}"
    return (
        cell
        if isinstance(cell, str)
        else digits(cell).removesuffix("0")
        if cell != int(cell)
        else digits(cell)
    )


def _markdown(lines: list[list[str]]) -> str:
    """Write the lines as a markdown table; the first is its head."""
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([rows[0], "|" + " --- |" * len(lines[0]), *rows[1:]])


def _csv(lines: list[list[str]]) -> str:
    """Write the lines as CSV, quoted where needed."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().strip()


def _tabs(lines: list[list[str]]) -> str:
    return "\n".join(" ; ".join(line) for line in lines)


def _records(lines: list[list[str]]) -> str:
    """Write each line after the first as `head: cell` lines, separated by empty lines."""
    heads = lines[0]
    return "\n\n".join(
        "\n".join(f"{head}: {cell}" for head, cell in zip(heads, line, strict=True))
        for line in lines[1:]
    )


def _json(lines: list[list[str]]) -> str:
    """Write the lines after the first as a JSON list of objects by the heads in small letters."""
    heads = [head.lower() for head in lines[0]]
    return json.dumps(
        [dict(zip(heads, line, strict=True)) for line in lines[1:]], ensure_ascii=False, indent=1
    )


def _sentences(table: SyntheticTable, rng: random.Random) -> str:
    """Write a line for each row, with one sentence for each of its cells."""
    return "\n".join(
        " ".join(
            cell_sentence(table, name, head, table.cells[name, head], rng) for head in table.columns
        )
        for name in table.names
    )


def cell_sentence(
    table: SyntheticTable, name: str, head: str, cell: Cell, rng: random.Random
) -> str:
    """Return a sentence that states `cell` as row `name`'s value in column `head`."""
    forms = list(table.column(head).get("say", []))
    forms += ["The $head of $e is $v."] if not forms or rng.random() < 0.2 else []
    texts = {"e": name, "v": table.write_cell(head, cell, rng), "head": table.noun(head)}
    return fill(rng.choice(forms), texts)
