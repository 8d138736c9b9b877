"""`pinocchio study DATA --out report/`: all of the paper's tables on one page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calibrator.checkpoints.extras import check_installed, check_scikit_learn
from calibrator.commands.progress import Progress
from calibrator.commands.terminal import (
    exit_with_bad,
    resumable,
    say,
    say_rows,
    sentences,
    training_files,
)
from calibrator.errors import InputError
from calibrator.rows.files import check_readable

if TYPE_CHECKING:
    from calibrator.errors import RowError
    from calibrator.lab.paper.sections.scored import Extent, ScoredRows
    from calibrator.lab.paper.sections.tables import ReportTable
    from calibrator.rows.rows import Row

QUICK_ROWS = 500  # rows to probe, and pairs to swap, with --quick


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """The command line's options of a report."""

    out: Path
    calibrator: str
    is_renewed: bool
    train: list[Path] | None
    method: str
    only: list[str]
    is_retrained: bool
    is_quick: bool
    runs: Path | None


def report(paths: Sequence[Path], options: ReportOptions) -> None:
    """Make the missing parts of the report of these files or folders, and print where it is.

    Exits with status 1 if rows could not be used, and with a sentence for bad files, an unknown
    table or a missing package.
    """
    from calibrator.lab.paper.run import ReportRequest, make_report

    with sentences(), resumable():
        files = list(files_in(paths))
        check_readable(files)
        check_scikit_learn()
        if options.is_retrained and options.method == "embedded":
            check_installed("torch", "torch", "train")
        request = ReportRequest(_command(paths, options), options.only, options.is_retrained)
        _ = request.entries  # an unknown table's name is refused before rows are read
        scored, bad = _score_rows(paths, files, options)
        tables = make_report(scored, options.out, request, say)
        _print_tables(tables, options.out)
    exit_with_bad(bad)


def files_in(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of rows: the given ones, and `*.jsonl*` of the given folders.

    A folder's `test/` is read in its place if there is one. Raises InputError for a folder without
    any such file.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = sorted((_rows_folder(path)).glob("*.jsonl*"))
        if not found:
            raise InputError(f"no *.jsonl file in {path}, nor in {path / 'test'}")
        yield from found


def _rows_folder(folder: Path) -> Path:
    """Return the folder `test` in a folder of data, or the folder itself without one."""
    return folder / "test" if (folder / "test").is_dir() else folder


def _command(paths: Sequence[Path], options: ReportOptions) -> str:
    """Return the command line that makes this report, such as `pinocchio study a.jsonl --out b`.

    More than two files of one folder become the folder. --quick is left out: it is for a trial, and
    a command that is copied from the report should make numbers to publish.
    """
    folders = {path.parent for path in paths}
    is_whole = len(paths) > 2 and len(folders) == 1
    named = [folders.pop()] if is_whole else list(paths)
    words = ["pinocchio", "study", *map(str, named), "--out", str(options.out)]
    if options.calibrator != "embedded":
        words += ["--calibrator", options.calibrator]
    return shlex.join(words)


def _score_rows(
    paths: Sequence[Path], files: Sequence[Path], options: ReportOptions
) -> tuple[ScoredRows, list[RowError]]:
    """Load the report's rows and calibrator; return them with the errors of unreadable rows.

    Nothing is scored yet. Training rows are loaded only if tables may train.
    """
    from calibrator.lab.paper.sections.scored import Extent, ScoredRows
    from calibrator.loading import checkpoint_card, load_scorer
    from calibrator.rows.kept_scores import cache_scores
    from calibrator.rows.scores import image_use
    from calibrator.rows.selection import load_labelled

    scorer = load_scorer(options.calibrator)
    rows, bad = load_labelled(files, image_use(scorer))
    say_rows(rows, bad)
    train: list[Row] = []
    if options.is_retrained:
        train_files = _training_files(paths, files, options.train)
        train = load_labelled(train_files)[0] if train_files else []
    card = checkpoint_card(options.calibrator)
    extent: Extent = _quick_extent(Extent) if options.is_quick else Extent()
    found = ScoredRows(
        rows,
        cache_scores(scorer, "auto", is_renewed=options.is_renewed),
        _watch,
        lambda: train,
        extent,
        frozenset(card["source_models"] if card else ()),
        options.method,
        "auto",
        options.runs or options.out / "runs",
    )
    return found, bad


def _quick_extent(extent: type[Extent]) -> Extent:
    """Return the amount of work of `--quick`: few resamples, permutations, probes and swaps."""
    return extent(200, 200, QUICK_ROWS, QUICK_ROWS)


def _training_files(
    paths: Sequence[Path], files: Sequence[Path], train: list[Path] | None
) -> list[Path]:
    """Return the files of `train`, or else those of the folders `train` in the given folders.

    Without either they are looked for beside `files`, as `training_files` does.
    """
    folders = [folder / "train" for folder in paths if (folder / "train").is_dir()]
    return training_files(files, train or folders or None)


@contextmanager
def _watch(title: str, total: int) -> Iterator[Progress]:
    """Show progress as a bar or as lines while the context is open."""
    with Progress(title, total) as progress:
        yield progress


def _print_tables(tables: Sequence[ReportTable], folder: Path) -> None:
    """Print the page's path, the number of tables, and those not made.

    Tables that lack something have their reason; those that train are listed in one line.
    """
    made = sum(one.state == "made" for one in tables)
    typer.echo(f"{folder / 'index.html'}: {made} of {len(tables)} tables; report.md, report.json")
    for one in tables:
        if one.state == "lacking" and "not asked for" not in one.note:
            typer.echo(f"  not made: {one.title}: {one.note}")
    if trained := [one.title for one in tables if one.state == "training"]:
        typer.echo(f"  with --retrain also: {', '.join(trained)}")
