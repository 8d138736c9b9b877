"""The tables of real traffic, as rows of text for a terminal, a page and a model card."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calibrator.lab.judging.evaluation.traffic.figures import (
    ALL,
    APPS,
    EVEN,
    HAND_MADE,
    LABELS,
    MEANS,
    SETS,
    SURE,
    Traffic,
    TrafficFigures,
)
from calibrator.metrics.numbers import figure

Table = tuple[list[str], list[list[str]]]  # head and rows, with the same number of cells

TITLE = "How good is it on real traffic?"
NOTE = (
    "Replies to whole conversations: 400 of our own for five kinds of app, hand-made pairs, and "
    "sets with a context. In order: of a right and a wrong reply to one question, how often the "
    "right one is surer. Words and TF-IDF are baselines that only compare the reply with the text "
    "before it: the share of its words that occur there, and the cosine. With labels: the ECE of "
    "the other replies after a recalibration on so many of the set."
)
CHANGES_NOTE = (
    "Edits that leave a reply as right as it was. Another context should change the confidence; "
    "openings and apologies, put before right replies, and attacks, on wrong ones, should not. "
    "High: the 95th percentile of the changes. Changed: the share that moved by more than 0.001."
)
_PLACES: dict[str, str] = {APPS: "our app replies", SETS: "sets"}


def overview_table(traffic: Traffic) -> Table:
    """Return the head and the lines of the table of kinds of traffic.

    It has a line for each kind of app, for all hand-made pairs, and for the means over sets. The
    last line is a scorer that always gives the same confidence, on the rows of the first mean, or
    else of the line before it.
    """
    chosen = [
        *traffic.of_group(APPS),
        *(one for one in traffic.of_group(HAND_MADE) if one.kind == ALL),
        *traffic.of_group(MEANS),
    ]
    rows = [_row(_title(one), one) for one in chosen]
    means = traffic.of_group(MEANS)[:1] or chosen[-1:]
    rows += [_constant(one) for one in means]
    return _head("kind of traffic"), rows


def sets_table(traffic: Traffic) -> Table:
    """Return the head and one line for each set, with why training did not see it in brackets."""
    sets = traffic.of_group(SETS)
    return _head("set of replies"), [_row(_title(one), one) for one in sets]


def hand_made_table(traffic: Traffic) -> Table:
    """Return the head and one line for each kind of hand-made pairs, and for all of them."""
    pairs = traffic.of_group(HAND_MADE)
    return _head("hand-made pairs"), [_row(one.kind, one) for one in pairs]


def basis_table(traffic: Traffic) -> Table:
    """Return the head and lines with the numbers of replies by what their confidence is based on.

    There is a line for each kind of app, for all hand-made pairs, and for each set.
    """
    head = ["based on", "rows", "context", "computed", "likeness alone", "with support"]
    chosen = [
        *traffic.of_group(APPS),
        *(one for one in traffic.of_group(HAND_MADE) if one.kind == ALL),
        *traffic.of_group(SETS),
    ]
    counts = ("rows", "context", "computed", "likeness", "supported")
    return head, [[_title(one), *(f"{getattr(one, name):,}" for name in counts)] for one in chosen]


def changes_table(traffic: Traffic) -> Table:
    """Return the head and one line for each edit and group: the effect on the confidence.

    Its figures are the number of replies, and the mean, size, 95th percentile and share of changes.
    """
    head = ["edit", "of", "replies", "mean", "size", "high", "changed"]
    return head, [
        [
            one.edit,
            _PLACES.get(one.of, one.of),
            f"{one.replies:,}",
            *(figure(value) for value in (one.mean, one.absolute, one.high, one.changed)),
        ]
        for one in traffic.changes
    ]


TABLES = (overview_table, changes_table, sets_table, hand_made_table, basis_table)
"""All tables, the most important first."""


def _head(first: str) -> list[str]:
    """Return the titles of the columns that `_row` fills, in the same order.

    `first` is the title of the first one.
    """
    sure = [
        f"right \N{GREATER-THAN OR EQUAL TO} {EVEN:g}",
        f"wrong \N{GREATER-THAN OR EQUAL TO} {SURE:g}",
    ]
    means = ["mean right", "mean wrong"]
    return [
        *(first, "rows", "right", "AUROC", "in order", "ECE", f"with {LABELS} labels"),
        *(*means, *sure, "support", "words", "TF-IDF"),
    ]


def _row(title: str, one: TrafficFigures) -> list[str]:
    """Return one line's cells: its title, the number of rows, and its figures with two digits."""
    names = ("accuracy", "auroc", "in_order", "ece", "labelled_ece", "right", "wrong")
    shares = ("right_even", "wrong_sure", "support_auroc", "words", "tfidf")
    return [title, f"{one.rows:,}", *_cells([getattr(one, n) for n in (*names, *shares)])]


def _constant(one: TrafficFigures) -> list[str]:
    """Return the cells of a line for a scorer that always says `EVEN`, on the rows of `one`."""
    values = [
        one.accuracy,
        0.5,
        0.5,
        one.constant_ece,
        math.nan,
        EVEN,
        EVEN,
        1.0,
        0.0,
        *[math.nan] * 3,
    ]
    return [f"always saying {EVEN:g}", f"{one.rows:,}", *_cells(values)]


def _cells(values: Sequence[float]) -> list[str]:
    """Return values as text with two digits; a dash for nan."""
    return [figure(value, 2) for value in values]


def _title(one: TrafficFigures) -> str:
    """Return the name of a line, such as `app: rag`, `squad (nc, left out)` or `MEAN (12)`.

    In brackets are the marks of a set, or the number of sets of a mean.
    """
    if one.group == MEANS:
        return f"{one.kind} ({one.sets})"
    if one.group == APPS:
        return "app replies, all" if one.kind == ALL else f"app: {one.kind}"
    if one.group == HAND_MADE:
        return "hand-made pairs, all" if one.kind == ALL else one.kind
    marks = [one.licence] if one.licence else []
    marks += ["left out"] if one.is_left_out else []
    return f"{one.kind} ({', '.join(marks)})" if marks else one.kind
