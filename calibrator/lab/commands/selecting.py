"""`pinocchio filter` and `pinocchio pairs`: selections of scored rows for training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calibrator.commands.terminal import check_target, file_option, sentences, writer
from calibrator.errors import JudgingError
from calibrator.metrics.numbers import figure
from calibrator.rows.files import check_readable, json_line

Scored = Annotated[
    list[Path], typer.Argument(help="Rows with a confidence, as `pinocchio score` writes them.")
]


def filter_rows(
    rows: Scored,
    output: Annotated[Path, file_option("-o", "--output", help="Write the kept rows here.")],
    keep: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Keep this share, the surest rows.")
    ] = None,
    at_least: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Keep rows of this confidence or more.")
    ] = None,
) -> None:
    """Keep the surest rows, to train on; where rows have labels, say how many are right.

    Files are read twice and never held in memory; `pinocchio score --engine ray` scores large ones.
    """
    from calibrator.lab.data.selecting import Filter, of_share

    with sentences():
        check_readable(rows, times=1 if keep is None else 2)
        check_target(output, rows)
        if (keep is None) == (at_least is None):
            raise JudgingError("say either --keep, a share, or --at-least, a confidence")
        found = Filter(at_least) if at_least is not None else of_share(rows, keep or 0.0)
        with writer(output) as stream:
            for row in found.keep(rows):
                stream.write(json_line(row.raw))
    share = found.kept.rows / found.seen.rows if found.seen.rows else 0.0
    typer.echo(
        f"{found.kept.rows:,} of {found.seen.rows:,} rows kept, {share:.1%}, of confidence "
        f"{found.threshold:.4g} or more"
    )
    if found.seen.labelled:
        typer.echo(
            f"right: {figure(found.kept.accuracy)} of {found.kept.labelled:,} kept with a label, "
            f"{figure(found.seen.accuracy)} of all {found.seen.labelled:,}"
        )


def pairs(
    rows: Scored,
    output: Annotated[Path, file_option("-o", "--output", help="Write the pairs here.")],
    gap: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Least difference of the two confidences.")
    ] = 0.5,
) -> None:
    """Pair the surest and the least sure reply to each question, for preference training.

    Where rows have labels, say how many pairs have a right and a wrong reply, in the right order.
    """
    from calibrator.lab.data.selecting import PairSelection

    with sentences():
        check_readable(rows, times=2)
        check_target(output, rows)
        found = PairSelection(gap)
        with writer(output) as stream:
            for pair in found.make_pairs(rows):
                stream.write(json_line(pair))
    typer.echo(f"{found.pairs:,} pairs of {found.questions:,} questions, {gap:g} or more apart")
    if found.labelled:
        of_informative = found.good / found.informative if found.informative else float("nan")
        share, chance = found.informative / found.labelled, found.by_chance / found.labelled
        typer.echo(
            f"one right and one wrong: {share:.3f} of {found.labelled:,} pairs with labels (at "
            f"random {chance:.3f}), the right one chosen in {figure(of_informative)} of these"
        )
