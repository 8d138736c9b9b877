"""`pinocchio survey`: the composition of labelled rows, and what a calibrator has seen of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrator.commands.terminal import (
    FAILED,
    Files,
    exit_with_bad,
    print_table,
    say,
    say_rows,
    sentences,
)
from calibrator.metrics.numbers import figure
from calibrator.rows.files import check_readable, json_line

if TYPE_CHECKING:
    from calibrator.lab.data.benchmarks.survey import BenchmarkSurvey


def survey(
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Survey labelled rows: benchmarks, accuracy, and overlap with training data."""
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
    _print(surveyed(rows), as_json)
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


def _print(found: Sequence[BenchmarkSurvey], as_json: bool) -> None:
    """Print the composition of each benchmark's rows, as a table or as JSON lines."""
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
