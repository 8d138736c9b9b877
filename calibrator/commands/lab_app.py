"""The app of all commands for calibrators, the researchers' too, each from its own module."""

from __future__ import annotations

import typer

from calibrator.commands.advise import advise
from calibrator.commands.evaluate import card, evaluate
from calibrator.commands.labelled.labels import cli as labels
from calibrator.commands.labelled.selecting import filter_rows, pairs
from calibrator.commands.labelled.survey import survey
from calibrator.commands.score import score
from calibrator.commands.studies.study import study
from calibrator.commands.train import Train, train
from calibrator.commands.train_llm import train_llm

cli = typer.Typer(no_args_is_help=True)
for command in (advise, card, evaluate, score, study, survey, train_llm):
    cli.command()(command)
cli.command(cls=Train)(train)
cli.command()(pairs)
cli.command("filter")(filter_rows)
cli.add_typer(labels, name="labels")
