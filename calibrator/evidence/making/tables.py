"""Tables with invented rows, and statements on cells, extremes, comparisons, counts and sums."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from calibrator.evidence.making.edits import articles
from calibrator.evidence.making.templates import capital, choose_words, data, fill
from calibrator.evidence.making.values import MONTHS, WEEKDAYS, Style, Value, digits, write

Row = dict[str, str]
Cell = float | str


@dataclass(frozen=True)
class Table:
    """A made table: its kind (an entry of words/tables.yaml), the names of its rows and its cells."""

    spec: dict[str, Any]
    names: list[str]
    columns: list[str]
    cells: dict[tuple[str, str], Cell]
    style: Style

    def column(self, head: str) -> dict[str, Any]:
        """Return the column's entry in words/tables.yaml."""
        found: dict[str, Any] = self.spec["columns"][head]
        return found

    def noun(self, head: str) -> str:
        """Return the name of a column as a sentence says it ("founding year" for "founded")."""
        return str(self.column(head).get("noun", head))

    def values(self, head: str) -> list[Cell]:
        """Return the cells of a column."""
        return [self.cells[name, head] for name in self.names]

    @property
    def number_columns(self) -> list[str]:
        """The columns that hold amounts one can compare."""
        return [
            head
            for head in self.columns
            if "unit" in self.column(head) and not self.column(head).get("plain")
        ]

    @property
    def word_columns(self) -> list[str]:
        """The columns that hold words."""
        return [head for head in self.columns if "words" in self.column(head)]

    def written(self, head: str, cell: Cell, rng: random.Random) -> str:
        """Return a cell as a sentence writes it, with its unit."""
        unit = self.column(head).get("unit")
        if unit is None or isinstance(cell, str):
            return str(cell)
        if unit in ("money", "percent", "time", "days", "minutes", "months", "years"):
            return write(Value(unit, float(cell)), self.style, rng)
        if unit == "year":
            return digits(cell)
        return number(cell, rng) + ("" if unit == "count" else f" {unit}")


def number(amount: float, rng: random.Random) -> str:
    """Return an amount with or without a comma for thousands."""
    if amount != int(amount):
        return f"{amount:.1f}"
    return f"{amount:,.0f}" if amount >= 1000 and rng.random() < 0.5 else str(int(amount))


def random_person(rng: random.Random) -> str:
    """Draw a name of a person."""
    return f"{rng.choice(data('names')['given'])} {rng.choice(data('names')['family'])}"


def _pool(source: str | list[str], rng: random.Random) -> list[str]:
    if isinstance(source, list):
        return list(source)
    if source == "person":
        return [random_person(rng) for _ in range(40)]
    if source == "date":
        return [f"{rng.randint(1, 28)} {rng.choice(MONTHS)}" for _ in range(40)]
    if source == "weekday":
        return list(WEEKDAYS)
    return list(data("names")[source])


def random_table(rng: random.Random) -> tuple[Table, Table, Table]:
    """Draw a table, and two that it does not show: other columns, and more rows of its columns."""
    spec = rng.choice(list(data("tables").values()))
    names = list(dict.fromkeys(rng.sample(_pool(spec["names"], rng), 10)))
    count = rng.randint(3, 8)
    heads = list(spec["columns"])
    rng.shuffle(heads)
    shown = heads[: rng.randint(2, len(heads) - 1)]
    cells: dict[tuple[str, str], Cell] = {}
    for head in heads:
        column = spec["columns"][head]
        pool = _pool(column["words"], rng) if "words" in column else []
        pool = rng.sample(pool, min(len(pool), rng.randint(3, 6))) if pool else []
        for name in names:
            cells[name, head] = rng.choice(pool) if pool else _amount(column["range"], rng)
    style = Style.drawn(rng)
    table = Table(spec, names[:count], shown, cells, style)
    other_columns = Table(spec, names[:count], heads[len(shown) :], cells, style)
    other_rows = Table(spec, names[count:], shown, cells, style)
    return table, other_columns, other_rows


def _amount(span: list[float], rng: random.Random) -> float:
    low, high, step = span
    return round(low + step * rng.randint(0, int((high - low) / step)), 2)


# --- writing the table ----------------------------------------------------------------------------


def table_text(table: Table, rng: random.Random) -> str:
    """Return the table as markdown, CSV, records, JSON or sentences."""
    heads = [_header(table, head) for head in table.columns]
    lines = [
        [name, *(_plain(table, head, table.cells[name, head]) for head in table.columns)]
        for name in table.names
    ]
    title = [capital(table.spec["row"]), *map(capital, heads)]
    form = rng.choice((_markdown, _markdown, _csv, _records, _json, _tabs))
    text = form([title, *lines]) if rng.random() < 0.88 else _sentences(table, rng)
    intro = rng.choice(
        ("", "", f"Table: {table.spec['rows']}", f"Overview of the {table.spec['rows']}:", "Data:")
    )
    return f"{intro}\n{text}".strip()


def _header(table: Table, head: str) -> str:
    unit = table.column(head).get("unit", "")
    if unit == "money":
        return f"{head} ({table.style.currency})"
    if unit == "percent":
        return f"{head} (%)"
    return f"{head} ({unit})" if unit and unit not in ("count", "year", "time", "points") else head


def _plain(table: Table, head: str, cell: Cell) -> str:
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
    rows = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([rows[0], "|" + " --- |" * len(lines[0]), *rows[1:]])


def _csv(lines: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().strip()


def _tabs(lines: list[list[str]]) -> str:
    return "\n".join(" ; ".join(line) for line in lines)


def _records(lines: list[list[str]]) -> str:
    heads = lines[0]
    return "\n\n".join(
        "\n".join(f"{head}: {cell}" for head, cell in zip(heads, line, strict=True))
        for line in lines[1:]
    )


def _json(lines: list[list[str]]) -> str:
    heads = [head.lower() for head in lines[0]]
    return json.dumps(
        [dict(zip(heads, line, strict=True)) for line in lines[1:]], ensure_ascii=False, indent=1
    )


def _sentences(table: Table, rng: random.Random) -> str:
    return "\n".join(
        " ".join(
            cell_sentence(table, name, head, table.cells[name, head], rng) for head in table.columns
        )
        for name in table.names
    )


# --- statements -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """A statement about the table, with a question that it answers."""

    question: str
    text: str
    short: bool = False


def cell_sentence(table: Table, name: str, head: str, cell: Cell, rng: random.Random) -> str:
    """Return a sentence that says what a cell holds."""
    forms = list(table.column(head).get("say", []))
    forms += ["The $head of $e is $v."] if not forms or rng.random() < 0.2 else []
    texts = {"e": name, "v": table.written(head, cell, rng), "head": table.noun(head)}
    return fill(rng.choice(forms), texts)


def _asked(table: Table, name: str, head: str, rng: random.Random) -> str:
    return fill(
        choose_words(
            rng.choice(
                (
                    "What is the $head of $e?",
                    "<Tell me|Give me> the $head of $e.",
                    "$e: which $head?",
                )
            ),
            rng,
        ),
        {"e": name, "head": table.noun(head)},
    )


def cell(table: Table, right: bool, rng: random.Random) -> Statement | None:
    """State a cell; wrongly with the value of another row, another column or near it."""
    name, head = rng.choice(table.names), rng.choice(table.columns)
    value = table.cells[name, head]
    if not right:
        others = [other for other in table.values(head) if other != value]
        near = _near(table, head, value, rng)
        pool = others if others and (not near or rng.random() < 0.6) else near
        if not pool:
            return None
        value = rng.choice(pool)
    question = _asked(table, name, head, rng)
    if rng.random() < 0.2:
        short = table.written(head, value, rng)
        text = rng.choice((short, f"It is {short}.", f"{capital(short)}."))
        return Statement(question, text, short=True)
    return Statement(question, cell_sentence(table, name, head, value, rng))


def _near(table: Table, head: str, value: Cell, rng: random.Random) -> list[Cell]:
    column = table.column(head)
    if isinstance(value, str):
        words: list[Cell] = [word for word in _pool(column["words"], rng) if word != value]
        return words[:5]
    unit = column["unit"]
    across = [
        table.cells[name, other]
        for other in table.number_columns
        for name in table.names
        if other != head and table.column(other)["unit"] == unit
    ]
    step = column["range"][2]
    moved: list[Cell] = [
        round(value + step, 2),
        *([round(value - step, 2)] if value > step else []),
        value * 2,
    ]
    return [each for each in (*across, *moved) if each != value]


def extreme(table: Table, right: bool, rng: random.Random) -> Statement | None:
    """State which row has the highest or lowest value of a column."""
    if not table.number_columns:
        return None
    head = rng.choice(table.number_columns)
    noun = table.noun(head)
    most = rng.random() < 0.5
    values = {name: float(table.cells[name, head]) for name in table.names}
    best = (max if most else min)(values.values())
    winners = [name for name in table.names if values[name] == best]
    others = [name for name in table.names if values[name] != best]
    if len(winners) != 1 or not others:
        return None
    name = winners[0] if right else rng.choice(others)
    word = table.column(head).get("most" if most else "least")
    row = table.spec["row"]
    unit = table.column(head)["unit"]
    degree = (
        ("latest" if most else "earliest")
        if unit in ("year", "time")
        else ("highest" if most else "lowest")
    )
    forms = [
        f"$e has the {degree} {noun}.",
        f"Of all {table.spec['rows']}, $e has the {degree} {noun}.",
        f"No other {row} has a {noun} as {'high' if most else 'low'} as $e."
        if unit not in ("year", "time")
        else f"The {degree} {noun} is that of $e.",
    ]
    asks = [f"Which {row} has the {degree} {noun}?"]
    if word:
        forms += [f"$e is the {word} {row}.", f"The {word} {row} is $e."]
        asks.append(f"Which is the {word} {row}?")
    return Statement(rng.choice(asks), fill(rng.choice(forms), {"e": name}))


def comparison(table: Table, right: bool, rng: random.Random) -> Statement | None:
    """Compare two rows, sometimes with the difference."""
    if not table.number_columns:
        return None
    head = rng.choice(table.number_columns)
    noun = table.noun(head)
    one, other = rng.sample(table.names, 2)
    first, second = float(table.cells[one, head]), float(table.cells[other, head])
    if first == second:
        return None
    unit = table.column(head)["unit"]
    higher, lower = ("later", "earlier") if unit in ("year", "time") else ("higher", "lower")
    word = higher if (first > second) == right else lower
    forms = [
        f"The {noun} of $e is {word} than that of $f.",
        f"$e has a {word} {noun} than $f.".replace("a earlier", "an earlier"),
    ]
    if unit not in ("year", "time"):
        bigger, smaller = ("more", "less") if unit != "count" else ("more", "less")
        gap = abs(round(first - second, 2))
        truth = bigger if first > second else smaller
        shown = gap if right else round(gap * rng.choice((2, 0.5)) + 1, 0)
        if shown != gap or right:
            by = table.written(head, shown, rng)
            forms.append(
                f"The {noun} of $e is {by} {'higher' if truth == 'more' else 'lower'} than that of $f."
            )
    question = f"How do {one} and {other} compare in {noun}?"
    return Statement(question, fill(rng.choice(forms), {"e": one, "f": other}))


def count(table: Table, right: bool, rng: random.Random) -> Statement | None:
    """State how many rows meet a condition."""
    rows = table.spec["rows"]
    if table.number_columns and rng.random() < 0.6:
        head = rng.choice(table.number_columns)
        noun = table.noun(head)
        values = sorted({float(value) for value in table.values(head)})
        if len(values) < 2:
            return None
        bound = rng.choice(values[:-1])
        true = sum(float(value) > bound for value in table.values(head))
        after = "after" if table.column(head)["unit"] in ("year", "time") else "of more than"
        condition = f"a {noun} {after} {table.written(head, bound, rng)}"
    elif table.word_columns:
        head = rng.choice(table.word_columns)
        noun = table.noun(head)
        word = rng.choice(table.values(head))
        true = table.values(head).count(word)
        condition = f'"{word}" as {noun}'
    else:
        return None
    shown = true if right else rng.choice([n for n in range(len(table.names) + 1) if n != true])
    question = f"How many {rows} have {condition}?"
    verb, noun = ("has", table.spec["row"]) if shown == 1 else ("have", rows)
    text = rng.choice(
        (
            f"{_counted(shown, rng)} {noun} {verb} {condition}.",
            f"The number of {rows} with {condition} is {shown}.",
        )
    )
    return Statement(question, capital(text))


def _counted(number: int, rng: random.Random) -> str:
    words = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    return words[number] if rng.random() < 0.6 else str(number)


def total(table: Table, right: bool, rng: random.Random) -> Statement | None:
    """State the sum over two rows or over the whole column."""
    heads = [
        h
        for h in table.number_columns
        if table.column(h)["unit"] not in ("year", "time", "percent", "°C", "points")
    ]
    if not heads:
        return None
    head = rng.choice(heads)
    noun = table.noun(head)
    names = table.names if rng.random() < 0.3 else rng.sample(table.names, 2)
    true = round(sum(float(table.cells[name, head]) for name in names), 2)
    wrong = [
        float(table.cells[names[0], head]),
        true * 2,
        true + table.column(head)["range"][2] * rng.randint(1, 9),
    ]
    shown = true if right else rng.choice([value for value in wrong if value != true])
    by = table.written(head, shown, rng)
    who = "all rows" if names is table.names else f"{names[0]} and {names[1]}"
    text = rng.choice(
        (
            f"The {noun} of {who} adds up to {by}.",
            f"Together, {who} have a {noun} of {by}.",
            f"The total {noun} of {who} is {by}.",
        )
    )
    return Statement(f"What is the total {noun} of {who}?", text)


def membership(table: Table, right: bool, rng: random.Random) -> Statement | None:
    """State that a row is in the table, or that a value occurs there; wrongly that it does not."""
    if not table.word_columns:
        return None
    head = rng.choice(table.word_columns)
    noun = table.noun(head)
    word = rng.choice(table.values(head))
    names = [name for name in table.names if table.cells[name, head] == word]
    others = [name for name in table.names if name not in names]
    if not others:
        return None
    shown = names if right else (names[:-1] + [rng.choice(others)])
    verb = "has" if len(shown) == 1 else "have"
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    return Statement(f'Who or what has "{word}" as {noun}?', f'{listed} {verb} "{word}" as {noun}.')


MAKERS: dict[Callable[[Table, bool, random.Random], Statement | None], int] = {
    cell: 8,
    extreme: 3,
    comparison: 3,
    count: 2,
    total: 1,
    membership: 2,
}


UNKNOWN = (
    "The table does not say that.",
    "I can't find that in the table.",
    "There is no such information in the data.",
    "The data doesn't tell.",
    "I'm sorry, this isn't listed.",
    "I don't have that information.",
    "That is not part of the data I have, so I can't say.",
)


def absent(other_columns: Table, other_rows: Table, rng: random.Random) -> Statement | None:
    """State something of the columns or of the rows that the table does not have."""
    if rng.random() < 0.4:
        return cell(other_rows, True, rng)
    maker = rng.choices(list(MAKERS), list(MAKERS.values()))[0]
    return maker(other_columns, True, rng) or cell(other_columns, True, rng)


def absent_beside_present(table: Table, other: Table, rng: random.Random) -> Statement | None:
    """Compare a row of the table with one that it does not have."""
    names = [rng.choice(table.names), rng.choice(other.names)]
    rng.shuffle(names)
    both = replace(table, names=names)
    return comparison(both, True, rng)


def rows(rng: random.Random, group: str) -> Iterator[Row]:
    """Make one table and the rows about it."""
    table, other_columns, other_rows = random_table(rng)
    premise = table_text(table, rng)
    drawn: list[tuple[str, Statement | None]] = []
    for label in ("entail", "contradict", "entail", "contradict", "entail", "contradict"):
        maker = rng.choices(list(MAKERS), list(MAKERS.values()))[0]
        statement = maker(table, label == "entail", rng) or cell(table, label == "entail", rng)
        drawn.append((label, statement))
    drawn += [("neutral", absent(other_columns, other_rows, rng)) for _ in range(2)]
    if rng.random() < 0.4:
        drawn.append(("neutral", absent_beside_present(table, other_rows, rng)))
    if rng.random() < 0.5:
        drawn.append(("entail", _unknown(absent(other_columns, other_rows, rng), rng)))
    else:
        drawn.append(("contradict", _unknown(cell(table, True, rng), rng)))
    for label, statement in drawn:
        if statement is None:
            continue
        needed = statement.short or statement.text in UNKNOWN
        question = statement.question if needed or rng.random() < 0.7 else ""
        yield {
            "kind": "tables",
            "group": group,
            "premise": premise,
            "question": question,
            "hypothesis": articles(statement.text),
            "label": label,
        }


def _unknown(asked: Statement | None, rng: random.Random) -> Statement | None:
    """Answer the statement's question with "the table does not tell"."""
    return Statement(asked.question, rng.choice(UNKNOWN)) if asked else None
