"""The shared parts of the commands for policies: options, and how they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibrator import ROWS_HELP

if TYPE_CHECKING:
    from policies import Policy
    from proxy.commands.policies.labelled_rows import ScoredRow


DIFFERS, UNUSABLE_INPUT, NOT_CERTIFIED = 1, 2, 3
SCORED_ROWS_HELP = f"{ROWS_HELP}. Rows with a `confidence` are not scored again."
Rows = Annotated[list[Path], typer.Argument(help=SCORED_ROWS_HELP)]
Calibrator = Annotated[
    str, typer.Option(help="The calibrator that scores rows without a `confidence`.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@contextmanager
def sentences() -> Iterator[None]:
    """End the process with one sentence and exit status 2 for a person's mistake.

    These are CalibratorError, PolicyError, OSError and ValueError; a closed pipe raises.
    """
    from calibrator import CalibratorError
    from policies import PolicyError

    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the output has enough; the command ends silently
    except (CalibratorError, PolicyError, OSError, ValueError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(UNUSABLE_INPUT) from error


def policy_named(name: str) -> Policy:
    """Load a pack by its name, or a policy file; raises PolicyError."""
    from policies import load_policy

    return load_policy(name)


def scored_rows(paths: Sequence[Path], calibrator: str) -> list[ScoredRow]:
    """Return the labelled rows of files, scored where they have no confidence.

    Bad rows and copies are printed to stderr. Raises ValueError where no row is left.
    """
    from calibrator import bad_row_sentences, copies_in
    from proxy.commands.policies.labelled_rows import load_scored

    rows, bad = load_scored(paths, calibrator)
    for sentence in bad_row_sentences(bad, len(rows) + len(bad)):
        typer.echo(sentence, err=True)
    for sentence in copies_in([each.row for each in rows]).sentences():
        typer.echo(f"pinocchio: {sentence}", err=True)
    if not rows:
        raise ValueError(f"no labelled row in {', '.join(map(str, paths))}")
    return rows
