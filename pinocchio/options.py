"""The options of the command `pinocchio` itself, before the name of a subcommand."""

from __future__ import annotations

from typing import Annotated

import typer

from pinocchio import __version__


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"pinocchio-proxy {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A proxy that says what was checked about each reply of a language model, and acts on it."""  # noqa: D401 - printed by --help
