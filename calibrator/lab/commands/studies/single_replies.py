"""The output of the studies `failures`, `reasons` and `fields`, which look at single replies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import print_table, write_if_named
from calibrator.metrics.numbers import figure
from calibrator.rows.groups import printable_name

if TYPE_CHECKING:
    from calibrator.lab.studies.failures import Failures, FailureStudy
    from calibrator.rows.rows import Row
    from calibrator.scorer import Scorer

FAILURES = (
    *("", "rows", "right", "AUROC", "d", "wrong above .9", "right below .1"),
    *("of the right below .2", "of the wrong above .8"),
)
REASONS = ("the reason", "told", "taken away", "the number rises", "by", "right")
FIELDS = (
    "altered",
    "replies",
    "any flagged",
    "ranked first",
    "over all",
    "random",
    "flagged in right",
)


def show_single_replies(
    name: str, rows: Sequence[Row], scorer: Scorer, count: int | None, output: Path | None
) -> None:
    """Run the study `failures`, `reasons` or `fields` and print it; write JSON to a given `output`.

    `count` bounds the rows of the last two; None takes their own bounds.
    """
    if name == "failures":
        _show_failures(rows, scorer, output)
    elif name == "reasons":
        _show_reasons(rows, scorer, count, output)
    else:
        _show_fields(rows, scorer, count, output)


def _show_failures(rows: Sequence[Row], scorer: Scorer, output: Path | None) -> None:
    """Score the rows, print where the calibrator is most wrong; write JSON to a given `output`."""
    from calibrator.lab.studies.failures import study_failures
    from calibrator.rows.scores import score_items

    with Progress("scoring", len(rows)) as progress:
        scores = score_items(scorer, [row.item("served") for row in rows], progress.advance)
    found = study_failures(rows, np.array([s.confidence for s in scores]), scorer.name)
    write_if_named(output, found.as_json())
    _print_failures(found)


def _print_failures(found: FailureStudy) -> None:
    """Print a table of the hard errors of each benchmark, and their share of all replies.

    Where they exist, the correlation of accuracy with AUROC and the replies that state 100 %
    follow.
    """
    print_table(FAILURES, [_line(each) for each in (*found.entries, found.all)])
    errors, rows = found.all.sure_wrong + found.all.unsure_right, found.all.rows
    typer.echo(f"{errors:,} hard errors, {errors / rows:.1%} of {rows:,} replies")
    ranked = found.accuracy_and_auroc
    if math.isfinite(ranked.rho):
        typer.echo(
            f"accuracy and AUROC of {ranked.pairs} benchmarks: Spearman's rho {ranked.rho:.3f}, "
            f"p {ranked.p:.3g}"
        )
    if found.stated_sure:
        typer.echo(
            f"{found.stated_sure:,} replies state 100 % and get less than .01; "
            f"{found.stated_sure_wrong:,} of them are wrong"
        )


def _line(one: Failures) -> list[str]:
    """Return the cells of one benchmark's line, in the order of `FAILURES`."""
    return [
        printable_name(one.benchmark),
        f"{one.rows:,}",
        *(figure(value) for value in (one.accuracy, one.auroc, one.d)),
        f"{one.sure_wrong:,}",
        f"{one.unsure_right:,}",
        *(figure(value) for value in (one.right_below, one.wrong_above)),
    ]


def _show_reasons(
    rows: Sequence[Row], scorer: Scorer, count: int | None, output: Path | None
) -> None:
    """Remove the causes that reasons name from replies, and print how the confidence moves.

    The study is written as JSON to `output` if given; `count` bounds the rows.
    """
    from calibrator.lab.judging.sensitivity.reasons import MAX_ROWS, study_reasons

    with Progress("scoring", len(rows)) as progress:
        found = study_reasons(scorer, rows, count or MAX_ROWS, progress.advance)
    write_if_named(output, found.as_json())
    lines = [
        [
            one.reason,
            f"{one.told:,}",
            f"{one.edited:,}",
            figure(one.share),
            figure(one.rise),
            figure(one.right),
        ]
        for one in [*found.entries, found.all]
    ]
    print_table(REASONS, lines)


def _show_fields(
    rows: Sequence[Row], scorer: Scorer, count: int | None, output: Path | None
) -> None:
    """Change one argument of right calls, and print whether the calibrator reports that argument.

    The study is written as JSON to `output` if given; `count` bounds the calls.
    """
    from calibrator.lab.judging.sensitivity.fields import MOST, study_fields

    with Progress("scoring", 2 * (count or MOST)) as progress:
        found = study_fields(scorer, rows, count or MOST, progress.advance)
    write_if_named(output, found.as_json())
    lines = [
        [
            one.kind,
            f"{one.replies:,}",
            *map(figure, (one.told, one.first, one.found, one.chance, one.alarms)),
        ]
        for one in found.entries
    ]
    print_table(FIELDS, lines)
