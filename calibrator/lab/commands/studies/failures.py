"""The output of `pinocchio study failures`: hard errors by benchmark, and their correlates."""

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

HEAD = (
    *("", "rows", "right", "AUROC", "d", "wrong above .9", "right below .1"),
    *("of the right below .2", "of the wrong above .8"),
)


def show_failures(rows: Sequence[Row], scorer: Scorer, output: Path | None) -> None:
    """Score the rows, print where the calibrator is most wrong, and write the study as JSON."""
    from calibrator.lab.studies.failures import study_failures
    from calibrator.rows.scores import score_items

    with Progress("scoring", len(rows)) as progress:
        scores = score_items(scorer, [row.item("served") for row in rows], progress.advance)
    found = study_failures(rows, np.array([s.confidence for s in scores]), scorer.name)
    write_if_named(output, found.as_json())
    _print(found)


def _print(found: FailureStudy) -> None:
    """Print the hard errors of each benchmark.

    Then their relation to accuracy and to stated confidences follows.
    """
    print_table(HEAD, [_line(each) for each in (*found.entries, found.all)])
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
    """Return the cells of one benchmark's line in the order of `HEAD`."""
    return [
        printable_name(one.benchmark),
        f"{one.rows:,}",
        *(figure(value) for value in (one.accuracy, one.auroc, one.d)),
        f"{one.sure_wrong:,}",
        f"{one.unsure_right:,}",
        *(figure(value) for value in (one.right_below, one.wrong_above)),
    ]
