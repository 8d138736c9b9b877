"""The shared parts of commands: how they end with a sentence and a status, and how they print."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from proxy.errors import ExitStatus, StartupError, StoreError

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8_000

NAME_SHOWN = 80  # characters of a name that a client chose

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="The configuration; ./proxy.yaml if there is one.")
]
AsOption = Annotated[
    str | None, typer.Option("--as", help="The reviewer's name (default: your user name).")
]


def stop(status: ExitStatus, message: str) -> typer.Exit:
    """Print a message and the status on stderr, and return the exception to raise."""
    typer.echo(message, err=True)
    if status is not ExitStatus.OK:
        typer.echo(f"pinocchio: {status.name.lower()} (exit status {status.value})", err=True)
    return typer.Exit(status)


@contextmanager
def exit_on_errors() -> Iterator[None]:
    """End the process with the sentence and status of a StartupError or StoreError."""
    try:
        yield
    except StartupError as error:
        raise stop(error.status, str(error)) from error
    except StoreError as error:
        raise stop(ExitStatus.STORE_UNAVAILABLE, error.message) from error


@contextmanager
def exit_on_calibrator_errors() -> Iterator[None]:
    """End the process with the sentence of a CalibratorError or OSError, and status 2."""
    from calibrator import CalibratorError

    try:
        yield
    except (CalibratorError, OSError) as error:
        raise stop(ExitStatus.UNUSABLE_INPUT, str(error)) from error


def existing_store(url: str) -> str:
    """Return the URL; end the process (status 8) where it names an SQLite file that is missing.

    Opening it would make an empty one, and in the wrong folder nothing would seem to be recorded.
    """
    from proxy.store.database.tables import path_of

    if (path := path_of(url)) and not path.is_file():
        message = (
            f"there is no record: {path} does not exist; go to the folder in which the proxy runs, "
            "or name its configuration with --config"
        )
        raise stop(ExitStatus.STORE_UNAVAILABLE, message)
    return url


def user() -> str:
    """Return the system's name of this user, or `terminal` where there is none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in a container
        return "terminal"


def plain(text: str) -> str:
    """Return foreign text with control characters escaped; they could move a terminal's cursor."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def plain_json(text: str) -> str:
    """Return JSON with the same values and escaped control characters, for a terminal."""
    return "".join(each if each.isprintable() or each == "\n" else _escape(each) for each in text)


def _escape(character: str) -> str:
    """Return a control character as an escape of JSON text, `u001b` behind a backslash."""
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]
