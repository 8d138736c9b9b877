"""Questions about a table in the prompt: a cell, the largest, a sum, an average, a count."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from calibrator.readers.evidence.computed.basics.answers import RightAnswer, states_number
from calibrator.readers.evidence.computed.basics.numbers import number_text, numbers_in
from calibrator.readers.evidence.computed.basics.verdict import Exchange, Verdict
from calibrator.readers.evidence.computed.basics.word_lists import word_set

MAX_TABLE: Final = 12_000  # characters of a table
MAX_ROWS: Final = 200
_WORD: Final = re.compile(r"[^\W_]+")
_STOP: Final = word_set(
    "the a an of in is was were are did does do has have had what"
    " which who whose how many much for to at on by with from and or that this table according per"
    " each its their it highest lowest largest smallest most least greatest biggest fewest maximum"
    " minimum max min total sum average mean number value"
)
_MAX: Final = (
    r"highest|largest|biggest|greatest|most|maximum|max|best"
    r"|longest|oldest|tallest|heaviest|most expensive|latest"
)
_MIN: Final = (
    r"lowest|smallest|least|fewest|minimum|min|shortest|youngest"
    r"|lightest|cheapest|least expensive|earliest"
)


@dataclass(frozen=True, slots=True)
class PromptTable:
    """A table of the prompt: the names of its columns, and rows of as many cells."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, at: int) -> list[str]:
        """Return the cells of the column with this index, without its name."""
        return [row[at] for row in self.rows]


def read_table(text: str) -> PromptTable | None:
    """Return the only table of a text; None if there is none or several.

    Its rows have equally many cells between pipes, tabs or commas; the first has the names.
    """
    for mark in ("|", "\t", ","):
        rows: list[tuple[str, ...]] = []
        blocks = 0
        is_in = False
        for line in text[:MAX_TABLE].splitlines():
            bare = line.strip()
            if mark == "|" and re.fullmatch(r"[|\s:+-]{3,}", bare):
                continue
            cells = tuple(
                cell.strip().strip("*`").strip()
                for cell in (bare.strip("|") if mark == "|" else line).split(mark)
            )
            is_row = len(cells) >= 2 and (
                mark != ","
                or (len(cells) >= 3 and not re.search(r",\s", bare))
                or (len(cells) == 2 and not re.search(r"\s", bare))
            )
            if is_row and (not is_in or len(cells) == len(rows[-1])):
                blocks += not is_in
                is_in = True
                rows.append(cells)
            elif is_row:
                return None
            elif bare:
                is_in = False
        if len(rows) >= 3 and blocks == 1 and len(rows) <= MAX_ROWS:
            return PromptTable(rows[0], tuple(rows[1:]))
    return None


def verify_tables(exchange: Exchange) -> Verdict | None:
    """Judge a reply to a plain question about a table in the conversation.

    None if it is not clear. An example is `Which city has the highest rent?`.
    """
    source = exchange.source
    if ("|" not in source and "\t" not in source and source.count(",") < 4) or len(
        source
    ) > 2 * MAX_TABLE:
        return None
    question = _question(exchange)
    if question is None or len(question) > 200:
        return None
    table = read_table(source)
    if table is None:
        return None
    return _lookup(table, question, exchange.reply) or _compute(table, question, exchange.reply)


def _question(exchange: Exchange) -> str | None:
    """Return the only question of the request beside its table.

    None if there is none or several.
    """
    lines = [
        line.strip()
        for line in exchange.request.splitlines()
        if line.strip() and line.count("|") < 2 and "\t" not in line
    ]
    questions = [
        part for line in lines for part in re.split(r"(?<=[.:])\s+", line) if part.endswith("?")
    ]
    return questions[0] if len(questions) == 1 else None


def _words(text: str) -> set[str]:
    """Return the words of a text in lower case, without frequent ones and a plural `s`."""
    return {
        word.rstrip("s") for word in re.findall(r"[^\W_]+", text.casefold()) if word not in _STOP
    }


def _column(table: PromptTable, phrase: str) -> int | None:
    """Return the index of the only column that a phrase names, or None."""
    wanted = _words(phrase)
    if not wanted:
        return None
    exact = [at for at, name in enumerate(table.names) if _words(name) == wanted]
    if len(exact) == 1:
        return exact[0]
    inside = [at for at, name in enumerate(table.names) if _words(name) and _words(name) <= wanted]
    if len(inside) == 1 and not wanted - _words(table.names[inside[0]]) - {
        "unit",
        "item",
        "row",
        "product",
    }:
        return inside[0]
    return None


def _numeric(cells: list[str]) -> list[Fraction] | None:
    """Return the numbers of cells in order; None unless each cell is one number."""
    values = []
    for cell in cells:
        found = numbers_in(cell)
        if len(found) != 1 or not re.fullmatch(
            r"[^\w]*[\d.,'\s]+\s*(?:%|[A-Za-z]{1,6}\.?|[€$£])?"
            r"|[€$£]\s?[\d.,']+",
            cell,
        ):
            return None
        values.append(found[0].value)
    return values


_EXTREME: Final = re.compile(
    rf"^(?:which|what|who|whose) (?P<row>[\w ]{{0,40}}?)\s*(?:has|have|had|got|with|is|was|are"
    r"|shows?|sold|scored|costs?|earns?|made|won|sells?|recorded|received)\s+(?:the )?"
    rf"(?P<kind>{_MAX}|{_MIN})\s*(?P<col>[\w /%()$€-]{{0,60}})\?$",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    r"^(?:what|how much) (?:is|was|are) the (?P<kind>total|sum of(?: the| all)?|average|mean"
    rf"|{_MAX}|{_MIN}|median)\s*(?:of )?(?P<col>[\w /%()$€-]{{1,60}}?)(?: (?:in the table|of all"
    r" \w+|across all \w+|of the \w+|for all \w+|overall|per \w+))?\?$",
    re.IGNORECASE,
)
_ROWS: Final = re.compile(
    r"^how many (?P<what>[\w ]{1,40}?) (?:are (?:there|listed|shown|in the table)|does the table "
    r"(?:list|have)|(?:have|had|has|with|cost|scored|sold|are) (?:an? |the )?(?P<col>[\w"
    r" /%]{0,40}?)\s*(?P<cmp>more than|less than|over|under|above|below|at least|at most|greater"
    r" than|fewer than|older than|younger than) (?P<n>[$€£]?[\d.,]+)[^?]{0,20})\s*(?:in the"
    r" table)?\?$",
    re.IGNORECASE,
)
_CELL: Final = re.compile(
    r"^(?:what|how much|how many|when|where|who)(?:'s| is| was| are| were| does| did)?\s*(?:the )?"
    r"(?P<col>[\w /%()-]{1,50}?)\s+(?:of|for|does|did|by|in|from|has|have)\s+(?:the )?"
    r"(?P<row>[^?]{1,60}?)(?: (?:have|cost|score|sell|sold|earn|make))?\?$",
    re.IGNORECASE,
)


def _compute(table: PromptTable, question: str, reply: str) -> Verdict | None:
    """Judge a sum, average, extreme value or count of rows; None if the question is another."""
    found = _VALUE.match(question)
    if found:
        at = _column(table, found["col"])
        values = _numeric(table.column(at)) if at is not None else None
        if values is None or at is None or _has_total(table):
            return None
        kind = found["kind"].casefold()
        if kind.startswith(("total", "sum")):
            value = sum(values, Fraction(0))
        elif kind in ("average", "mean"):
            value = sum(values, Fraction(0)) / len(values)
        elif kind == "median":
            return None
        else:
            value = max(values) if re.fullmatch(_MAX, kind) else min(values)
        reason = f"the {kind} of {table.names[at]} is {number_text(value)}"
        return RightAnswer(reason, "table", value, is_rough=kind in ("average", "mean")).verdict(
            reply
        )
    found = _ROWS.match(question)
    return _count_rows(table, found, reply) if found else None


def _has_total(table: PromptTable) -> bool:
    """Return whether a row's first cell is a word such as `total`."""
    return any(
        re.match(r"^(?:total|sum|average|all)\b", row[0], re.IGNORECASE) for row in table.rows
    )


def _count_rows(table: PromptTable, found: re.Match[str], reply: str) -> Verdict | None:
    """Judge the number of all rows, or of those beyond a limit as in `over 50`.

    None if not clear.
    """
    if _has_total(table):
        return None
    if not found["cmp"]:
        if not (_words(found["what"]) & _words(table.names[0]) or "row" in found["what"]):
            return None
        if len(set(table.column(0))) != len(table.rows):
            return None
        count = len(table.rows)
        return RightAnswer(f"the table has {count} rows", "table", Fraction(count)).verdict(reply)
    at = _column(table, found["col"]) if found["col"].strip() else None
    if at is None:
        return None
    values, bound = _numeric(table.column(at)), numbers_in(found["n"])
    if values is None or len(bound) != 1:
        return None
    limit, word = bound[0].value, found["cmp"].casefold()
    if word == "at least":
        count = sum(value >= limit for value in values)
    elif word == "at most":
        count = sum(value <= limit for value in values)
    elif word.startswith(("more", "over", "above", "greater", "older")):
        count = sum(value > limit for value in values)
    else:
        count = sum(value < limit for value in values)
    return RightAnswer(f"{count} rows match", "table", Fraction(count), (limit,)).verdict(reply)


def _lookup(table: PromptTable, question: str, reply: str) -> Verdict | None:
    """Judge a cell (`What is the price of tea?`) or a row with an extreme value.

    None if not clear.
    """
    found = _EXTREME.match(question)
    if found:
        return _extreme(table, found, reply)
    found = _CELL.match(question)
    if not found or re.search(
        rf"\b(?:{_MAX}|{_MIN}|total|average|sum|difference|combined"
        r"|first|last|other)\b",
        question,
        re.IGNORECASE,
    ):
        return None
    at = _column(table, found["col"])
    key = " ".join(found["row"].casefold().split())
    rows = [
        row
        for row in table.rows
        if any(cell.casefold() == key for place, cell in enumerate(row) if place != at)
    ]
    if at is None or len(rows) != 1 or not rows[0][at]:
        return None
    cell = rows[0][at]
    reason = f"{table.names[at]} of {found['row'].strip()} is {cell}"
    return _states_cell(reply, cell, set(table.column(at)), reason)


def _states_cell(reply: str, cell: str, others: set[str], reason: str) -> Verdict | None:
    """Judge whether a reply states a cell and no other of its column; None if it is not clear.

    `others` are the cells of the column, and `reason` goes into the verdict.
    """
    numbers = numbers_in(cell)
    if len(numbers) == 1 and _numeric([cell]):
        is_right = states_number(reply, numbers[0].value)
        return None if is_right is None else Verdict(is_right, reason, "table")
    plain_reply = _space_words(reply)
    plain = {other: _space_words(other) for other in others | {cell}}
    if not plain[cell].strip():
        return None
    wrong = [
        other
        for other in others
        if other != cell
        and plain[other].strip()
        and plain[other] in plain_reply
        and plain[other] not in plain[cell]
    ]
    if plain[cell] in plain_reply:
        return None if wrong else Verdict(True, reason, "table")
    return Verdict(False, reason, "table") if wrong else None


def _space_words(text: str) -> str:
    """Return the words of a text in lower case, each between single spaces."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def _extreme(table: PromptTable, found: re.Match[str], reply: str) -> Verdict | None:
    """Judge the name of the row with the largest or smallest value.

    None for a tie or if not clear.
    """
    row_at = _column(table, found["row"]) if found["row"].strip() else 0
    if row_at is None:
        row_at = 0 if not _words(found["row"]) & set().union(*map(_words, table.names)) else None
    at = _column(table, found["col"]) if found["col"].strip() else None
    if at is None or row_at is None or at == row_at or _has_total(table):
        return None
    values = _numeric(table.column(at))
    if values is None:
        return None
    is_max = re.fullmatch(_MAX, found["kind"], re.IGNORECASE) is not None
    best = max(values) if is_max else min(values)
    if values.count(best) != 1:
        return None
    cell = table.rows[values.index(best)][row_at]
    reason = f"{cell} has the {found['kind'].casefold()} {table.names[at]}"
    return _states_cell(reply, cell, set(table.column(row_at)), reason)
