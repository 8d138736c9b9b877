"""What the commands of researchers share: sentences for errors, progress, whole files."""

from __future__ import annotations

import os
import sys
from collections import Counter
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
from calibrator.rows.row_fields import ROW_FORM, SAMPLE

if TYPE_CHECKING:
    from calibrator.rows.rows import Row

FAILED, UNUSABLE_INPUT, INTERRUPTED = 1, 2, 130
NAMED_ROWS = 3  # of those with the same fault
# packages that only `train` brings
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
    """Says which extra brings a package that a research module could not import."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in OF_TRAIN:
            raise
        raise MissingExtraError(package, "train") from error


@contextmanager
def sentences() -> Iterator[None]:
    """Turns the errors of a person's mistake into one sentence and an exit status."""
    try:
        with extras():
            yield
    except BrokenPipeError:
        raise  # whoever read the output has enough; the command ends without a word
    except (CalibratorError, OSError) as error:
        status = FAILED if isinstance(error, MissingExtraError) else UNUSABLE_INPUT
        sentence = os_error_sentence(error) if isinstance(error, OSError) else str(error)
        typer.echo(f"pinocchio: {sentence}", err=True)
        raise typer.Exit(status) from error


@contextmanager
def resumable() -> Iterator[None]:
    """Says, where a person interrupts the work, that what is done of it is not lost."""
    try:
        yield
    except KeyboardInterrupt as error:
        say("\npinocchio: interrupted; what is done is kept, the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from error


def say(sentence: str) -> None:
    """To people; stdout is for results."""
    typer.echo(sentence, err=True)


def refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """End the process if one of these parameters was given on the command line.

    `why` follows the option's name, as in "--since is for ..".
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            (option,) = (each for each in context.command.params if each.name == name)
            say(f"pinocchio: {option.opts[-1]} {why}")
            raise typer.Exit(UNUSABLE_INPUT)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for first, *others in (head, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        typer.echo("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def file_option(*names: str, help: str) -> Any:
    """The option of a command for a file that it writes."""
    return typer.Option(*names, help=help, parser=_file_path, metavar="FILE")


def _file_path(given: str) -> Path:
    """Of `out/` a Path would forget the slash, and a file be written that is called `out`."""
    path = Path(given)
    if given.endswith(("/", os.sep)) and not path.is_dir():
        raise typer.BadParameter(f"{given} names a folder; name a file in it")
    return path


def check_target(path: Path | None, inputs: Iterable[Path | None] = ()) -> None:
    """Before the work: raises OutputError where a file cannot stand, or is read from as well."""
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
    """Whether it is one of these files, by whatever name."""
    return path.exists() and any(
        each is not None and each.exists() and path.samefile(each) for each in inputs
    )


@contextmanager
def writer(path: Path | None) -> Iterator[TextIO]:
    """Writes beside the target and moves it there when it is whole; stdout for None.

    Packed where the name ends in .gz; a pipe, or what else is no file, is written to as it is.
    """
    if path is None:
        yield sys.stdout
        return
    is_file = path.is_file() or not path.exists()
    target = path.with_name(path.name + ".partial") if is_file else path
    try:
        with _opened(target, is_packed=path.suffix == ".gz") as stream:
            yield stream
        if is_file:
            target.replace(path)
    finally:
        if is_file:
            target.unlink(missing_ok=True)


def write_if_named(path: Path | None, text: str) -> None:
    """Write the text and a line end into a file that is named; nothing for None."""
    if path:
        with writer(path) as stream:
            stream.write(text + "\n")


def _opened(path: Path, *, is_packed: bool) -> TextIO:
    if is_packed:
        import gzip

        return gzip.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")


def report_bad(bad: Sequence[RowError], total: int) -> None:
    """Names the rows that could not be used; exit status 1 when there are any.

    Of many rows with the same fault the first few are named, and the others counted.
    """
    counts = Counter(error.message for error in bad)
    named: Counter[str] = Counter()
    files = {error.source: place for place, error in reversed([*enumerate(bad)])}
    for error in sorted(bad, key=lambda each: (files[each.source], each.line)):
        named[error.message] += 1
        if named[error.message] <= NAMED_ROWS:
            say(str(error))
        elif named[error.message] == counts[error.message]:
            others = counts[error.message] - NAMED_ROWS
            rows = "row has" if others == 1 else "rows have"
            say(f"... and {others:,} more {rows} the same fault: {error.message}")
    if bad:
        say(f"pinocchio: {len(bad)} of {total} rows could not be used")
        raise typer.Exit(FAILED)


def say_copies(rows: Sequence[Row]) -> None:
    """Say how many labelled rows repeat or contradict another one; nothing where none does."""
    from calibrator.rows.copies import copies_in

    for sentence in copies_in(rows).sentences():
        say(f"pinocchio: {sentence}")


def training_files(files: Sequence[Path], given: Sequence[Path] | None) -> list[Path]:
    """The files asked for; else, for `$DATA/test/*`, those of `$DATA/train/`, if there are any.

    Files marked __nc are left out, as where a calibrator is trained: baselines learn from the same
    rows. Raises JudgingError when nothing is left of what was asked for.
    """
    from calibrator.rows.selection import NON_COMMERCIAL, is_trainable

    beside = [file.parent.parent / "train" for file in files[:1] if file.parent.name == "test"]
    folders = given or [folder for folder in beside if folder.is_dir()]
    found = [
        f
        for folder in folders
        for f in (sorted(folder.glob("*.jsonl*")) if folder.is_dir() else [folder])
    ]
    if given and not found:
        raise JudgingError(f"no *.jsonl file in {', '.join(map(str, given))}")
    if found and not any(map(is_trainable, found)):
        raise JudgingError(f"every file is marked {NON_COMMERCIAL} and never trained on")
    return [file for file in found if is_trainable(file)]
