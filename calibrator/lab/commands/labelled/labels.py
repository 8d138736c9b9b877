"""`pinocchio labels`: checks of labels, with a sample to look at and a comparison of two judges."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from calibrator.commands.terminal import (
    check_target,
    file_option,
    print_table,
    say,
    sentences,
    writer,
)
from calibrator.errors import JudgingError, RowError
from calibrator.metrics.numbers import bounds, figure
from calibrator.rows.files import check_readable, json_line

cli = typer.Typer(
    no_args_is_help=True,
    help="Look at labels: draw a sample, say how many are wrong, compare two judges.",
)

Rows = Annotated[Path, typer.Argument(help="Rows of `pinocchio collect`, or other labelled rows.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


@cli.command()
def sample(
    rows: Rows,
    output: Annotated[Path, file_option("-o", "--output", help="The file to look at.")],
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="How many rows.")] = 100,
    seed: Annotated[int, typer.Option(help="Another seed draws another sample.")] = 20_261_124,
) -> None:
    """Draw rows at random to look at: set `label_is_right` of each to true or false."""
    from calibrator.lab.data.benchmarks.label_audit import draw_rows

    with sentences():
        check_target(output, [rows])
        chosen = draw_rows(_read(rows), count, seed)
        with writer(output) as stream:
            for row in chosen:
                stream.write(json_line(row))
    say(f"{len(chosen)} rows written to {output}")


@cli.command()
def audit(rows: Rows, as_json: AsJson = False) -> None:
    """Say how many labels of a sample are wrong, with the interval of 95 %."""
    from calibrator.lab.data.benchmarks.label_audit import audit as audited

    with sentences():
        found = audited(_read(rows))
    if as_json:
        typer.echo(json_line(asdict(found)), nl=False)
        return
    typer.echo(
        f"{found.wrong} of {found.looked_at} labels are wrong: {found.rate.value:.2%}, 95 % "
        f"between {found.rate.low:.2%} and {found.rate.high:.2%}"
    )
    for name, wrong in found.wrong_by.items():
        typer.echo(f"  {wrong} graded by {name or 'nobody knows whom'}")
    if found.left:
        say(f"{found.left} rows do not say label_is_right yet")


@cli.command("self-preference")
def self_preference(rows: Rows, as_json: AsJson = False) -> None:
    """Say whether either of two judges prefers replies of its own model; 0 is fair."""
    from calibrator.lab.data.benchmarks.self_preference import self_preference as compared

    with sentences():
        found = compared(_read(rows))
    if as_json:
        for one in found:
            told = {key: None if _is_nan(value) else value for key, value in asdict(one).items()}
            typer.echo(json_line(told), nl=False)
        return
    table = [
        [
            f"{one.judge} beside {one.other}",
            f"{one.replies:,}",
            f"{one.own:,}",
            figure(one.agreement),
            figure(one.preference),
            bounds(one.low, one.high),
        ]
        for one in found
    ]
    print_table(["", "replies", "its own", "agree", "prefers its own by", "95 %"], table)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the rows as JSON objects. Raises RowError for an invalid line.

    Raises JudgingError for a file without rows.
    """
    from calibrator.rows.rows import read_lines

    check_readable([path])
    found = []
    for number, line in read_lines(path):
        if isinstance(line, RowError):
            raise line
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RowError(str(path), number, f"not JSON: {error}") from error
        if not isinstance(row, dict):
            raise RowError(str(path), number, "a row must be a JSON object")
        found.append(row)
    if not found:
        raise JudgingError(f"there is no row in {path}")
    return found
