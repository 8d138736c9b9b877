"""The worst errors of the calibrator (paper S01, S02, S04, O02)."""

from __future__ import annotations

from calibrator.lab.paper.sections.scored import ScoredRows
from calibrator.lab.paper.sections.tables import Column, TableContent
from calibrator.lab.studies.failures import Failures, study_failures
from calibrator.rows.groups import printable_name

LISTED = 10  # ids of the worst errors of each kind


def failures_table(scored: ScoredRows) -> TableContent:
    """Return the table for S01, S02, S04: hard errors by benchmark, and of all rows.

    The benchmark with the most comes first. A hard error is a wrong reply with a confidence above
    .9 or a right one below .1. The note lists the ids of the `LISTED` worst of each kind.
    """
    made = TableContent(
        (
            Column("rows", "rows", "count"),
            Column("right", "right"),
            Column("auroc", "AUROC"),
            Column("d", "d"),
            Column("sure_wrong", "wrong above .9", "count"),
            Column("unsure_right", "right below .1", "count"),
            Column("hard", "of the rows", "share"),
            Column("right_below", "of the right below .2", "share"),
            Column("wrong_above", "of the wrong above .8", "share"),
        )
    )
    found = study_failures(scored.rows, scored.confidence(), scored.scorer.name)
    for one in found.entries:
        _add(made, one, printable_name(one.benchmark), "S02")
    _add(made, found.all, "all", "S01")
    worst = [", ".join(each[:LISTED]) or "none" for each in (found.sure_wrong, found.unsure_right)]
    made.note = f"The worst by id. Wrong above .9: {worst[0]}. Right below .1: {worst[1]}."
    return made


def _add(made: TableContent, one: Failures, label: str, row: str) -> None:
    """Add a line with the hard errors of one group; `row` is the checklist's row, such as `S02`."""
    made.add(
        label,
        row,
        rows=one.rows,
        right=one.accuracy,
        auroc=one.auroc,
        d=one.d,
        sure_wrong=one.sure_wrong,
        unsure_right=one.unsure_right,
        hard=(one.sure_wrong + one.unsure_right) / one.rows,
        right_below=one.right_below,
        wrong_above=one.wrong_above,
    )


def denied_table(scored: ScoredRows) -> TableContent:
    """Return the table for O02: replies that state 100 % but get a low confidence.

    It has a line for each limit (.01, .05, .1, .2): how many state it, get less than the limit, and
    are wrong; `share` is None if none gets less. The calibrator reads replies without their
    statement. Raises LacksError if too few rows state a confidence.
    """
    made = TableContent(
        (
            Column("sure", "state 100 %", "count"),
            Column("below", "of them below", "count"),
            Column("wrong", "of those wrong", "count"),
            Column("share", "wrong"),
        )
    )
    stated, p = scored.stated_rows, scored.stated_rows.confidence()
    for limit in (0.01, 0.05, 0.1, 0.2):
        sure = [
            (confidence, row.correct)
            for confidence, row in zip(p, stated.rows, strict=True)
            if (row.verbalized_confidence or 0.0) >= 1.0
        ]
        below = [correct for confidence, correct in sure if confidence < limit]
        wrong = sum(not correct for correct in below)
        made.add(
            f"below {limit}", "O02", sure=len(sure), below=len(below), wrong=wrong,
            share=wrong / len(below) if below else None,
        )  # fmt: skip
    return made
