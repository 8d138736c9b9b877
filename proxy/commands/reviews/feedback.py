"""`pinocchio feedback FILE`: puts labels of recorded replies into the store, many at once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from policies import plural
from proxy.commands.opening.exits import ConfigOption, calibrator_errors_told, stop, user
from proxy.commands.opening.opened_record import opened_record
from proxy.errors import BadRequestError, ExitStatus

cli = typer.Typer()

AT_ONCE = 1_000
MOST_TOLD = 20  # printed lines about labels that were not kept


@cli.command()
def feedback(
    file: Annotated[
        Path,
        typer.Argument(
            help='JSON lines: {"request_id": "req_..", "correct": true, "note": ".."}; or gzip.'
        ),
    ],
    config: ConfigOption = None,
    by: Annotated[
        str | None, typer.Option("--as", help="Who gave the labels (default: your user name).")
    ] = None,
) -> None:
    """Store user feedback, such as thumbs up and down in an app.

    They are kept apart from reviewers' verdicts: no estimate, certificate or recalibration counts
    them. Exit status 1 where a line was not kept.
    """
    from proxy.learning.feedback import read_label
    from proxy.store.verdicts.feedback import FeedbackStore

    counts: Counter[str] = Counter()
    told: list[str] = []
    with opened_record(config) as findings, calibrator_errors_told():
        store = FeedbackStore(lambda: findings.engine)
        lines = _lines(file)
        while some := list(islice(lines, AT_ONCE)):
            numbers, labels = [], []
            for number, line in some:
                try:
                    labels.append(read_label(json.loads(line)))
                    numbers.append(number)
                except (BadRequestError, ValueError) as error:
                    counts["unreadable"] += 1
                    said = error.message if isinstance(error, BadRequestError) else "no JSON"
                    told.append(f"{file}:{number}: {said}")
            for number, label, status in zip(
                numbers, labels, store.keep(labels, by or user()), strict=True
            ):
                counts[status] += 1
                if status == "not_found":
                    told.append(f"{file}:{number}: there is no record of {label.id}")
    for text in told[:MOST_TOLD]:
        typer.echo(text, err=True)
    if len(told) > MOST_TOLD:
        typer.echo(f"and {len(told) - MOST_TOLD} more", err=True)
    labels_kept = plural(counts["kept"], "label")
    typer.echo(f"{labels_kept} kept, {len(told)} not")
    if told:
        lines_told = plural(len(told), "line")
        raise stop(ExitStatus.FAILED, f"not kept: {lines_told} of {file}")


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers from 1."""
    from calibrator import open_lines

    with open_lines(file) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line
