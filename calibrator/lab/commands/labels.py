"""`pinocchio labels`: the composition of labelled rows, and how far their labels can be trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrator.commands.terminal import (
    FAILED,
    Files,
    check_target,
    exit_with_bad,
    file_option,
    print_table,
    refuse,
    say,
    say_rows,
    sentences,
    writer,
)
from calibrator.errors import JudgingError, RowError
from calibrator.metrics.numbers import bounds, figure
from calibrator.rows.files import check_readable, json_line

if TYPE_CHECKING:
    from calibrator.lab.data.benchmarks.survey import BenchmarkSurvey

SEED = 20_261_124
OF_SURVEY = ("calibrator", "train", "strict")

Sample = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Draw this many rows at random into the file of -o, to set `label_is_right` of each "
        "to true or false.",
    ),
]
Audit = Annotated[
    bool,
    typer.Option(
        "--audit", help="Say how many labels of such a sample are wrong, with the interval of 95 %."
    ),
]
SelfPreference = Annotated[
    bool,
    typer.Option(
        "--self-preference",
        help="Say whether either of two judges prefers replies of its own model; 0 is fair.",
    ),
]


def labels(
    context: typer.Context,
    files: Files,
    calibrator: Annotated[
        str, typer.Option(help="Say which of the models this calibrator was trained on.")
    ] = "",
    train: Annotated[
        list[Path] | None,
        typer.Option("--train", help="Say how many questions these files share with the others."),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with status 1 if training has seen any of the rows."),
    ] = False,
    sample: Sample = None,
    output: Annotated[
        Path | None, file_option("-o", "--output", help="With --sample: the file to look at.")
    ] = None,
    audit: Audit = False,
    self_preference: SelfPreference = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Survey labelled rows: benchmarks, accuracy, and overlap with training data.

    Or look at their labels: draw a sample, say how many are wrong, compare two judges.
    """
    wishes = (sample is not None, audit, self_preference)
    with sentences():
        if sum(wishes) > 1:
            raise JudgingError("--sample, --audit and --self-preference: one at a time")
        if (sample is None) != (output is None):
            raise JudgingError("--sample N and -o FILE go together")
        if any(wishes):
            refuse(context, OF_SURVEY, "is for the survey; leave it out")
    if sample is not None and output is not None:
        refuse(context, ["as_json"], "is for figures; leave it out with --sample")
        _draw(files, output, sample)
    elif audit:
        _print_audit(files, as_json)
    elif self_preference:
        _print_self_preference(files, as_json)
    else:
        _survey(files, calibrator, train, strict=strict, as_json=as_json)


def _survey(
    files: Sequence[Path],
    calibrator: str,
    train: Sequence[Path] | None,
    *,
    strict: bool,
    as_json: bool,
) -> None:
    """Print the composition of the rows, and what training has seen of them.

    Exits with status 1 where a row could not be used or, with `strict`, where training has seen
    one of the models of `calibrator` or a question of `train`.
    """
    from calibrator.lab.data.benchmarks.survey import shared_questions, trained_models
    from calibrator.lab.data.benchmarks.survey import survey as surveyed
    from calibrator.loading import checkpoint_card
    from calibrator.rows.groups import printable_name
    from calibrator.rows.selection import load_labelled

    with sentences():
        check_readable([*files, *(train or [])])
        rows, bad = load_labelled(files, "ignore")
        say_rows(rows, bad)
        card = checkpoint_card(calibrator) if calibrator else None
        models = trained_models(rows, card["source_models"] if card else ())
        both = shared_questions(rows, load_labelled(train, "ignore")[0]) if train else 0
    _print_survey(surveyed(rows), as_json)
    if models:
        named = ", ".join(
            f"{printable_name(name)} ({count} rows)" for name, count in models.items()
        )
        say(f"{calibrator} was trained on {len(models)} of these models: {named}")
    if both:
        which = "question is" if both == 1 else "questions are"
        say(f"{both} {which} in the training files too")
    if strict and (models or both):
        raise typer.Exit(FAILED)
    exit_with_bad(bad)


def _print_survey(found: Sequence[BenchmarkSurvey], as_json: bool) -> None:
    """Print the composition of each benchmark's rows, as a table or as JSON lines.

    The table has a column for forms of answers where any row says its own.
    """
    from calibrator.rows.groups import printable_name

    if as_json:
        for one in found:
            typer.echo(json_line({**asdict(one), "is_in_band": one.is_in_band}), nl=False)
        return
    has_formats = any(one.answer_formats for one in found)
    rows = [
        [
            printable_name(one.benchmark),
            f"{one.rows:,}",
            f"{one.questions:,}",
            str(one.models),
            f"{one.image_rows:,}",
            figure(one.accuracy),
            ""
            if one.is_in_band
            else "outside: too easy"
            if one.accuracy > 0.5
            else "outside: too hard",
            ", ".join(map(printable_name, one.domains[:3])),
            *([", ".join(map(printable_name, one.answer_formats[:3]))] if has_formats else []),
        ]
        for one in found
    ]
    head = ["", "rows", "questions", "models", "with images", "right", "20-80 %", "domains"]
    print_table([*head, "answers"] if has_formats else head, rows)


def _draw(files: Sequence[Path], output: Path, count: int) -> None:
    """Write at most `count` rows, drawn at random, into a file, to look at."""
    from calibrator.lab.data.benchmarks.label_checks import draw_rows

    with sentences():
        check_target(output, files)
        chosen = draw_rows(_read(files), count, SEED)
        with writer(output) as stream:
            for row in chosen:
                stream.write(json_line(row))
    say(f"{len(chosen)} rows written to {output}")


def _print_audit(files: Sequence[Path], as_json: bool) -> None:
    """Print the share of wrong labels, of the rows that say `label_is_right`."""
    from calibrator.lab.data.benchmarks.label_checks import audit as audited

    with sentences():
        found = audited(_read(files))
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


def _print_self_preference(files: Sequence[Path], as_json: bool) -> None:
    """Print, for each of two judges, how much it prefers replies of its own model."""
    from calibrator.lab.data.benchmarks.label_checks import self_preference as compared

    with sentences():
        found = compared(_read(files))
    if as_json:
        for one in found:
            fields = {key: None if _is_nan(value) else value for key, value in asdict(one).items()}
            typer.echo(json_line(fields), nl=False)
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
    """Return whether a value is the float nan."""
    return isinstance(value, float) and math.isnan(value)


def _read(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the rows of all files as JSON objects, whatever members they have.

    Raises RowError for an invalid line, JudgingError where there is no row.
    """
    from calibrator.rows.rows import read_lines

    check_readable(files)
    found = []
    for path, number, line in ((file, *each) for file in files for each in read_lines(file)):
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
        raise JudgingError(f"there is no row in {', '.join(map(str, files))}")
    return found
