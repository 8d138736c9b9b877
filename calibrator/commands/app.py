"""The commands that score rows; those for researchers are in the lab's own app."""

from __future__ import annotations

import typer

from calibrator.commands.score import score

cli = typer.Typer()
cli.command()(score)
