"""The group `pinocchio lab`: the researchers' commands, each from its own module."""

from __future__ import annotations

import typer

from calibrator.lab.commands.advise import advise
from calibrator.lab.commands.collect import collect
from calibrator.lab.commands.elicit import elicit
from calibrator.lab.commands.evaluate import evaluate
from calibrator.lab.commands.export_weights import export_weights
from calibrator.lab.commands.labels import labels
from calibrator.lab.commands.selecting import filter_rows, pairs
from calibrator.lab.commands.studies.study import study
from calibrator.lab.commands.train import train

cli = typer.Typer(no_args_is_help=True)
for command in (evaluate, advise, train, study, collect, elicit, labels):
    cli.command()(command)
cli.command("filter")(filter_rows)
cli.command()(pairs)
cli.command()(export_weights)
