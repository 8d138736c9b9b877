"""Statements about synthetic tables: cells, extremes, comparisons, counts, sums, absent facts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from calibrator.lab.data.evidence.edits import articles
from calibrator.lab.data.evidence.grids import (
    Cell,
    SyntheticTable,
    cell_sentence,
    pool_of,
    random_table,
    table_text,
)
from calibrator.lab.data.evidence.words.templates import capital, choose_words, fill
from calibrator.lab.data.evidence.words.values import NUMBERS

Row = dict[str, str]


@dataclass(frozen=True)
class Statement:
    """A statement about the table, with a question that it answers."""

    question: str
    text: str
    short: bool = False


def _ask_cell(table: SyntheticTable, name: str, head: str, rng: random.Random) -> str:
    """Return a question about the cell of row `name` in column `head`."""
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


def cell(table: SyntheticTable, right: bool, rng: random.Random) -> Statement | None:
    """State one cell, rightly or with a wrong value; None if no other value exists.

    A wrong value is of another row, of another column with the unit, or a similar one. 20 %
    state the value alone.
    """
    name, head = rng.choice(table.names), rng.choice(table.columns)
    value = table.cells[name, head]
    if not right:
        others = [other for other in table.values(head) if other != value]
        near = _near_cells(table, head, value, rng)
        pool = others if others and (not near or rng.random() < 0.6) else near
        if not pool:
            return None
        value = rng.choice(pool)
    question = _ask_cell(table, name, head, rng)
    if rng.random() < 0.2:
        short = table.write_cell(head, value, rng)
        text = rng.choice((short, f"It is {short}.", f"{capital(short)}."))
        return Statement(question, text, short=True)
    return Statement(question, cell_sentence(table, name, head, value, rng))


def _near_cells(table: SyntheticTable, head: str, value: Cell, rng: random.Random) -> list[Cell]:
    """Return values that could be confused with `value`: five other words, or similar numbers.

    The numbers are those of other columns with the same unit, one step up or down, and the
    double.
    """
    column = table.column(head)
    if isinstance(value, str):
        words: list[Cell] = [word for word in pool_of(column["words"], rng) if word != value]
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


def extreme(table: SyntheticTable, right: bool, rng: random.Random) -> Statement | None:
    """State which row has the highest or lowest number of a column; if wrong, name another row.

    None without a column of numbers, if several rows share the extreme, or all do.
    """
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


def comparison(table: SyntheticTable, right: bool, rng: random.Random) -> Statement | None:
    """Compare two rows in a number; if wrong, the direction or the stated difference is wrong.

    None without a column of numbers, or if the two are equal.
    """
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
        gap = abs(round(first - second, 2))
        truth = "higher" if first > second else "lower"
        difference = gap if right else round(gap * rng.choice((2, 0.5)) + 1, 0)
        if difference != gap or right:
            by = table.write_cell(head, difference, rng)
            forms.append(f"The {noun} of $e is {by} {truth} than that of $f.")
    question = f"How do {one} and {other} compare in {noun}?"
    return Statement(question, fill(rng.choice(forms), {"e": one, "f": other}))


def count(table: SyntheticTable, right: bool, rng: random.Random) -> Statement | None:
    """State how many rows exceed a number or have a word; if wrong, another count.

    None if the table has neither numbers nor words, or the drawn numbers are all equal.
    """
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
        condition = f"a {noun} {after} {table.write_cell(head, bound, rng)}"
    elif table.word_columns:
        head = rng.choice(table.word_columns)
        noun = table.noun(head)
        word = rng.choice(table.values(head))
        true = table.values(head).count(word)
        condition = f'"{word}" as {noun}'
    else:
        return None
    number = true if right else rng.choice([n for n in range(len(table.names) + 1) if n != true])
    question = f"How many {rows} have {condition}?"
    verb, noun = ("has", table.spec["row"]) if number == 1 else ("have", rows)
    text = rng.choice(
        (
            f"{_write_count(number, rng)} {noun} {verb} {condition}.",
            f"The number of {rows} with {condition} is {number}.",
        )
    )
    return Statement(question, capital(text))


def _write_count(number: int, rng: random.Random) -> str:
    """Return a count in digits, or in 60 % of the cases as a word (`no` for 0)."""
    return ("no", *NUMBERS[1:])[number] if rng.random() < 0.6 else str(number)


def total(table: SyntheticTable, right: bool, rng: random.Random) -> Statement | None:
    """State the sum of a column over two rows or all; if wrong, one cell, the double or a near sum.

    None without a column whose numbers can be added, such as money (years or percents cannot).
    """
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
    amount = true if right else rng.choice([value for value in wrong if value != true])
    by = table.write_cell(head, amount, rng)
    who = "all rows" if names is table.names else f"{names[0]} and {names[1]}"
    text = rng.choice(
        (
            f"The {noun} of {who} adds up to {by}.",
            f"Together, {who} have a {noun} of {by}.",
            f"The total {noun} of {who} is {by}.",
        )
    )
    return Statement(f"What is the total {noun} of {who}?", text)


def membership(table: SyntheticTable, right: bool, rng: random.Random) -> Statement | None:
    """State which rows have a word in a column; if wrong, the last of them is another row.

    None if the table has no column of words, or all rows have the word.
    """
    if not table.word_columns:
        return None
    head = rng.choice(table.word_columns)
    noun = table.noun(head)
    word = rng.choice(table.values(head))
    names = [name for name in table.names if table.cells[name, head] == word]
    others = [name for name in table.names if name not in names]
    if not others:
        return None
    chosen = names if right else [*names[:-1], rng.choice(others)]
    verb = "has" if len(chosen) == 1 else "have"
    listed = " and ".join([", ".join(chosen[:-1]), chosen[-1]] if len(chosen) > 1 else chosen)
    return Statement(f'Who or what has "{word}" as {noun}?', f'{listed} {verb} "{word}" as {noun}.')


MAKERS: dict[Callable[[SyntheticTable, bool, random.Random], Statement | None], int] = {
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


def absent_cell(
    other_columns: SyntheticTable, other_rows: SyntheticTable, rng: random.Random
) -> Statement | None:
    """State a fact of other columns or other rows, which the shown table does not have.

    `other_columns` and `other_rows` are tables with these; None if no statement can be made.
    """
    if rng.random() < 0.4:
        return cell(other_rows, True, rng)
    maker = rng.choices(list(MAKERS), list(MAKERS.values()))[0]
    return maker(other_columns, True, rng) or cell(other_columns, True, rng)


def absent_beside_present(
    table: SyntheticTable, other: SyntheticTable, rng: random.Random
) -> Statement | None:
    """Compare a row of the table with one of `other`, which the table does not have.

    None without a column of numbers, or if the two numbers are equal.
    """
    names = [rng.choice(table.names), rng.choice(other.names)]
    rng.shuffle(names)
    both = replace(table, names=names)
    return comparison(both, True, rng)


def rows(rng: random.Random, group: str) -> Iterator[Row]:
    """Yield the rows about one drawn table: mostly three entailed, three contradicted, two neutral.

    One more is an answer that the table does not say it, right or wrong; 40 % get a third
    neutral one. All share `premise` and `group`. `question` is empty in 30 % of the rows clear
    without it.
    """
    table, other_columns, other_rows = random_table(rng)
    premise = table_text(table, rng)
    drawn: list[tuple[str, Statement | None]] = []
    for label in ("entail", "contradict", "entail", "contradict", "entail", "contradict"):
        maker = rng.choices(list(MAKERS), list(MAKERS.values()))[0]
        statement = maker(table, label == "entail", rng) or cell(table, label == "entail", rng)
        drawn.append((label, statement))
    drawn += [("neutral", absent_cell(other_columns, other_rows, rng)) for _ in range(2)]
    if rng.random() < 0.4:
        drawn.append(("neutral", absent_beside_present(table, other_rows, rng)))
    if rng.random() < 0.5:
        drawn.append(("entail", _answer_unknown(absent_cell(other_columns, other_rows, rng), rng)))
    else:
        drawn.append(("contradict", _answer_unknown(cell(table, True, rng), rng)))
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


def _answer_unknown(statement: Statement | None, rng: random.Random) -> Statement | None:
    """Return the statement's question with an answer that no such data is there; None for None."""
    return Statement(statement.question, rng.choice(UNKNOWN)) if statement else None
