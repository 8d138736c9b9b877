"""The app of all commands for calibrators, the researchers' too, each from its own module."""

from __future__ import annotations

import typer

from calibrator.commands.score import score
from calibrator.lab.commands.advise import advise
from calibrator.lab.commands.collect import collect
from calibrator.lab.commands.elicit import elicit
from calibrator.lab.commands.evaluate import card, evaluate
from calibrator.lab.commands.labelled.labels import cli as labels
from calibrator.lab.commands.labelled.selecting import filter_rows, pairs
from calibrator.lab.commands.labelled.survey import survey
from calibrator.lab.commands.studies.study import study
from calibrator.lab.commands.train import TrainCommand, train
from calibrator.lab.commands.train_llm import train_llm

cli = typer.Typer(no_args_is_help=True)
for command in (advise, card, collect, elicit, evaluate, score, study, survey, train_llm):
    cli.command()(command)
cli.command(cls=TrainCommand)(train)
cli.command()(pairs)
cli.command("filter")(filter_rows)
cli.add_typer(labels, name="labels")
