"""The shared parts of the researchers' commands: sentences for errors, tables, whole files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from calibrator.errors import (
    CalibratorError,
    JudgingError,
    MissingExtraError,
    OutputError,
    RowError,
    os_error_sentence,
)
from calibrator.rows.files import ROW_FORM, SAMPLE

if TYPE_CHECKING:
    from calibrator.rows.rows import Row

FAILED, UNUSABLE_INPUT, INTERRUPTED = 1, 2, 130
# Packages that only the extra `train` installs.
OF_TRAIN = ("PIL", "accelerate", "peft", "scipy", "sklearn", "torch", "transformers")

Calibrator = Annotated[
    str, typer.Option(help="The calibrator: embedded, a folder, a hub name, or fake:0.73.")
]
Device = Annotated[
    str, typer.Option(help="auto and cpu use the CPU; cuda and others need the extra `torch`.")
]
ROWS_HELP = f"JSON lines, .gz too: {ROW_FORM}, 0 where it is wrong. A sample: {SAMPLE}"
Files = Annotated[list[Path], typer.Argument(help=ROWS_HELP)]
Rescore = Annotated[
    bool,
    typer.Option("--rescore", help="Score every row again, also those scored by an earlier run."),
]
TrainFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--train",
        help="Files or folders with training rows; may be repeated. For DATA/test/* those of "
        "DATA/train are the default.",
    ),
]
RecalibrationFile = Annotated[
    Path | None, typer.Option(help="Correct confidences with this file of `pinocchio recalibrate`.")
]


@contextmanager
def extras() -> Iterator[None]:
    """Raise MissingExtraError for a package of the extra `train` that is not installed.

    It names the extra. Other missing modules raise as they are.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OF_TRAIN:
            raise
        raise MissingExtraError(package, "train") from error


@contextmanager
def sentences() -> Iterator[None]:
    """Print the errors of a user's mistake as one sentence, and exit with a status.

    That is 1 for a missing extra, and 2 for other CalibratorErrors and OSErrors. A closed pipe
    raises.
    """
    try:
        with extras():
            yield
    except BrokenPipeError:
        raise  # the reader closed the pipe; the command ends silently
    except (CalibratorError, OSError) as error:
        status = FAILED if isinstance(error, MissingExtraError) else UNUSABLE_INPUT
        sentence = os_error_sentence(error) if isinstance(error, OSError) else str(error)
        typer.echo(f"pinocchio: {sentence}", err=True)
        raise typer.Exit(status) from error


@contextmanager
def resumable() -> Iterator[None]:
    """Exit with status 130 after Ctrl-C, with a sentence that finished work is kept."""
    try:
        yield
    except KeyboardInterrupt as error:
        say("\npinocchio: interrupted; what is done is kept, the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from error


def say(sentence: str) -> None:
    """Print a sentence to stderr; stdout is for results."""
    typer.echo(sentence, err=True)


def refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Exit with status 2 if one of these parameters was given on the command line.

    `names` are names of parameters in Python. `why` follows the option's name, as in "--since is
    for ..".
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            (option,) = (each for each in context.command.params if each.name == name)
            say(f"pinocchio: {option.opts[-1]} {why}")
            raise typer.Exit(UNUSABLE_INPUT)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as needed, the first aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for first, *others in (head, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        typer.echo("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def file_option(*names: str, help: str) -> Any:
    """Return a command's option for a file that it writes; a name that ends in / is refused."""
    return typer.Option(*names, help=help, parser=_file_path, metavar="FILE")


def _file_path(name: str) -> Path:
    """Return the path of a file. Raises BadParameter for a name that ends in a slash.

    A Path would drop the slash of `out/`, and a file called `out` would be written.
    """
    path = Path(name)
    if name.endswith(("/", os.sep)) and not path.is_dir():
        raise typer.BadParameter(f"{name} names a folder; name a file in it")
    return path


def check_target(path: Path | None, inputs: Iterable[Path | None] = ()) -> None:
    """Raise OutputError, before the work, where no file can be made at a path or it is an input.

    Checks the folder's rights only: a file that is there but read-only passes. Does nothing for
    None, which stands for stdout.
    """
    if path is None:
        return
    if path.is_dir():
        raise OutputError(f"cannot write to {path}: Is a directory; name a file in it")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write to {path}: there is no folder {path.parent}; make it")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"cannot write to {path}: the folder {path.parent} cannot be written to")
    if is_among(path, inputs):
        raise OutputError(f"cannot write to {path}: it is an input as well; name another file")


def is_among(path: Path, inputs: Iterable[Path | None]) -> bool:
    """Return whether the path is one of these existing files, also by another name or link."""
    return path.exists() and any(
        each is not None and each.exists() and path.samefile(each) for each in inputs
    )


@contextmanager
def writer(path: Path | None) -> Iterator[TextIO]:
    """Yield a text file that is moved to `path` when it is complete; stdout for None.

    It is packed where the name ends in .gz, and left out where the work fails. A pipe, or another
    target that is no file, is written to directly.
    """
    if path is None:
        yield sys.stdout
        return
    is_file = path.is_file() or not path.exists()
    target = path.with_name(path.name + ".partial") if is_file else path
    try:
        with _open_text(target, is_packed=path.suffix == ".gz") as stream:
            yield stream
        if is_file:
            target.replace(path)
    finally:
        if is_file:
            target.unlink(missing_ok=True)


def write_if_named(path: Path | None, text: str) -> None:
    """Write the text and a line end into the file; do nothing for None."""
    if path:
        with writer(path) as stream:
            stream.write(text + "\n")


def _open_text(path: Path, *, is_packed: bool) -> TextIO:
    """Open a file to write UTF-8 text into it, packed with gzip if `is_packed`."""
    if is_packed:
        import gzip

        return gzip.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")


def report_bad(bad: Sequence[RowError], total: int) -> None:
    """Print the rows that could not be used, and exit with status 1 if there are any."""
    say_bad(bad, total)
    exit_with_bad(bad)


def exit_with_bad(bad: Sequence[RowError]) -> None:
    """Exit with status 1 if there are rows that could not be used; return otherwise."""
    if bad:
        raise typer.Exit(FAILED)


def say_bad(bad: Sequence[RowError], total: int) -> None:
    """Print the rows that could not be used, the first of them with their errors.

    `total` is the number of all rows.
    """
    from calibrator.rows.selection import bad_row_sentences

    for sentence in bad_row_sentences(bad, total):
        say(sentence)


def say_rows(rows: Sequence[Row], bad: Sequence[RowError]) -> None:
    """Print what is wrong with labelled rows, before any figures.

    These are the rows that could not be used, and those that repeat or contradict another one.
    """
    from calibrator.rows.selection import copies_in

    say_bad(bad, len(rows) + len(bad))
    for sentence in copies_in(rows).sentences():
        say(f"pinocchio: {sentence}")


def training_files(files: Sequence[Path], chosen: Sequence[Path] | None) -> list[Path]:
    """Return the files to train baselines on: those given, or those in `train/` beside `test/`.

    `files` are the judged ones: for `$DATA/test/x.jsonl` the files of `$DATA/train/` are found, if
    there are any. Folders stand for their `*.jsonl*`. Files marked __nc are left out. Raises
    JudgingError where no given file is left.
    """
    from calibrator.rows.selection import NON_COMMERCIAL, is_trainable

    candidates = [file.parent.parent / "train" for file in files[:1] if file.parent.name == "test"]
    folders = chosen or [folder for folder in candidates if folder.is_dir()]
    found = [
        f
        for folder in folders
        for f in (sorted(folder.glob("*.jsonl*")) if folder.is_dir() else [folder])
    ]
    if chosen and not found:
        raise JudgingError(f"no *.jsonl file in {', '.join(map(str, chosen))}")
    if found and not any(map(is_trainable, found)):
        raise JudgingError(f"every file is marked {NON_COMMERCIAL} and never trained on")
    return [file for file in found if is_trainable(file)]
