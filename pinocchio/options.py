"""The options of the command `pinocchio` itself, before the name of a subcommand."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperOption

from pinocchio import __version__


def _print_version(is_requested: bool) -> None:
    """Print the name and version of the distribution, and exit, where `--version` was given."""
    if is_requested:
        typer.echo(f"pinocchio-proxy {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """A proxy that says what was checked about each reply of a language model, and acts on it."""  # noqa: D401 - printed by --help


def hide_type_of_flags() -> None:
    """Remove `<bool>` behind flags from all help pages, as flags take no value.

    Typer has no option for this, so its class of options is changed.
    """
    option: Any = TyperOption
    display = getattr(option, "display_type_rich", None)
    if display is not None:
        option.display_type_rich = lambda self, ctx: None if self.is_flag else display(self, ctx)
