"""`pinocchio study`: the effect of leaving data out, and of changing a scorer's input."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from calibrator.checkpoints.extras import check_installed, check_scikit_learn
from calibrator.commands.progress import Progress
from calibrator.commands.terminal import (
    ROWS_HELP,
    Calibrator,
    Rescore,
    TrainFiles,
    check_target,
    exit_with_bad,
    file_option,
    print_table,
    resumable,
    say,
    say_rows,
    sentences,
    training_files,
    write_if_named,
)
from calibrator.errors import JudgingError
from calibrator.lab.commands.studies.others import OthersOptions, study_others
from calibrator.metrics.numbers import bounds, figure
from calibrator.rows.files import check_readable

if TYPE_CHECKING:
    from calibrator.lab.studies.studies import PooledRanking, Study
    from calibrator.rows.rows import Row
    from calibrator.scorer import Scorer

SINGLE_REPLIES = ("failures", "reasons", "fields")
ASKING = (  # studies that use a calibrator and train none
    *("probes", "answer-swap", "opinion", "cascade"),
    *SINGLE_REPLIES,
)

LEAVING_OUT = ("models", "families", "benchmarks", "benchmark-folds", "domains")
TRAINING = (
    *LEAVING_OUT,
    *("growing-sources", "single-sources", "size", "elicitations", "calls", "faults"),
)
STUDIES = (*TRAINING, *ASKING)

Name = Annotated[
    str,
    typer.Argument(
        metavar="STUDY|ROWS",
        help="models, families, benchmarks, benchmark-folds, domains: leave out each model, each "
        "maker's models, each benchmark, five benchmarks at a time, or each domain; "
        "growing-sources, single-sources: train on the replies of more and more models, or of one "
        "alone; size: train on fewer rows; probes: change what the calibrator is shown; "
        "answer-swap: swap the answers of models to a question while the name stays; elicitations: "
        "read a language model in other ways than from its labels; calls: leave sources, faults "
        "and domains out of the trees for calls; faults: leave kinds of faults out of what the "
        "inspector learns from; opinion: read other models' replies to the same "
        "question beside each reply; cascade: let a strong model answer where a cheap one is "
        "unsure; failures: show where the calibrator is most wrong; reasons: take away what the "
        "reasons of low numbers name, and see whether the numbers rise; fields: alter one argument "
        "of right calls, and see whether it is the one that is told. With --out: rows.",
    ),
]
Rows = Annotated[list[Path] | None, typer.Argument(metavar="ROWS", help=ROWS_HELP)]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Make all of the paper's tables and figures that these rows allow, as a page, "
        "Markdown and JSON in this folder; the same command goes on after an interruption.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="With --out: this table alone; without it: leave out this alone, as the study's "
        "lines name it, or several together in one fit (openai+meta); repeat."
    ),
]
Retrain = Annotated[
    bool, typer.Option("--retrain", help="With --out: also the tables that train calibrators.")
]
Quick = Annotated[
    bool, typer.Option("--quick", help="With --out: fewer resamples, probes and swaps, to try it.")
]

LeaveOut = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="For `opinion`: judge each benchmark by a second stage that was fitted without it, "
        "from this folder of `pinocchio train --with opinion`, which keeps what is fitted.",
    ),
]


Cheap = Annotated[str | None, typer.Option(help="For `cascade`: the model that answers first.")]
Strong = Annotated[str | None, typer.Option(help="For `cascade`: the model that is asked then.")]


def study(
    name: Name,
    files: Rows = None,
    out: Out = None,
    train: TrainFiles = None,
    method: Annotated[
        Literal["tfidf", "embedded"],
        typer.Option(
            help="What is trained each time; it takes seconds, or minutes, for each fold."
        ),
    ] = "tfidf",
    rows: Annotated[
        int | None, typer.Option(min=100, help="Probe, swap, or train on, at most this many rows.")
    ] = None,
    calibrator: Calibrator = "embedded",
    runs: Annotated[
        Path | None, typer.Option(help="Keep the trained calibrators in this folder, 100 MB each.")
    ] = None,
    rescore: Rescore = False,
    leave_out: LeaveOut = None,
    cheap: Cheap = None,
    strong: Strong = None,
    output: Annotated[
        Path | None, file_option("-o", "--output", help="Write the study as JSON.")
    ] = None,
    only: Only = None,
    retrain: Retrain = False,
    quick: Quick = False,
) -> None:
    """Run a study of the paper on labelled rows and print its entries; with --out, all of them.

    Scores and fits are kept as they are made: the same command goes on after an interruption.
    """
    if out is not None:
        from calibrator.lab.commands.studies.report import ReportOptions, report

        named = (calibrator, rescore, train, method, only or [], retrain, quick, runs)
        report([Path(name), *(files or [])], ReportOptions(out, *named))
        return
    _run(
        _study_named(name, files, only), files or [], train, method, rows, runs, output, only or [],
        OthersOptions(calibrator, rescore, leave_out, cheap, strong),
    )  # fmt: skip


def _study_named(name: str, files: Sequence[Path] | None, only: Sequence[str] | None) -> str:
    """Return `name` if it is a study that can run with these files and `--only`.

    Raises BadParameter for an unknown name, where files of rows are missing, and for `--only` with
    a study that leaves nothing out.
    """
    if name not in STUDIES:
        hint = "; for a report of these rows add --out FOLDER" if Path(name).exists() else ""
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(STUDIES)}{hint}")
    if not files:
        raise typer.BadParameter("name the files of labelled rows behind the study")
    if only and name not in LEAVING_OUT:
        raise typer.BadParameter(f"--only is for {', '.join(LEAVING_OUT)}, or beside --out")
    return name


def _run(
    name: str,
    files: Sequence[Path],
    train: list[Path] | None,
    method: str,
    rows: int | None,
    runs: Path | None,
    output: Path | None,
    only: Sequence[str],
    others: OthersOptions,
) -> None:
    """Run one study, print its table and, where `output` is given, write it as JSON.

    `rows` bounds the rows, `runs` is the folder for trained calibrators. Exits with status 1 if
    rows could not be used.
    """
    from calibrator.lab.studies.studies import study_json
    from calibrator.rows.selection import load_labelled

    with sentences(), resumable():
        _check(name, method, output, files, train, others)
        test, bad = load_labelled(files)
        say_rows(test, bad)
        if name in ("opinion", "cascade"):
            study_others("opinion" if name == "opinion" else "cascade", test, others, output)
        elif name in SINGLE_REPLIES:
            from calibrator.lab.commands.studies.single_replies import show_single_replies

            scorer = _scorer(others.calibrator, others.is_renewed)
            show_single_replies(name, test, scorer, rows, output)
        else:
            train_files = [] if name in ASKING else training_files(files, train)
            found = _entries(name, test, train_files, method, rows, others, runs, only)
            write_if_named(output, study_json(found))
            _print(found)
    exit_with_bad(bad)


def _entries(
    name: str,
    test: Sequence[Row],
    files: Sequence[Path],
    method: str,
    rows: int | None,
    others: OthersOptions,
    runs: Path | None,
    only: Sequence[str],
) -> Study:
    """Run a study whose result is a list of entries, and return it.

    `files` are the training rows of studies that train, `rows` bounds the rows, `runs` keeps
    trained calibrators (else a temporary folder does), and `only` names the parts to leave out.
    """
    from calibrator.rows.selection import load_labelled

    calibrator, is_renewed = others.calibrator, others.is_renewed
    if name == "probes":
        return _probe(test, rows or 2_000, _scorer(calibrator, is_renewed))
    if name == "answer-swap":
        return _swap(test, rows, _scorer(calibrator, is_renewed))
    training, _ = load_labelled(files)
    if name == "elicitations":
        return _elicitations(training, test, rows, calibrator)
    if name == "calls":
        return _calls(training, test, rows)
    if name == "faults":
        return _faults(training, test, rows, calibrator)
    with tempfile.TemporaryDirectory() as scratch:
        folder = runs or Path(scratch)
        return _leave_out(name, method, training, test, rows, folder, only, is_renewed)


def _check(
    name: str,
    method: str,
    output: Path | None,
    files: Sequence[Path],
    train: list[Path] | None,
    others: OthersOptions,
) -> None:
    """Check the options and files before the work.

    Raises CalibratorError where the study would fail: an option of another study, no training rows,
    a missing package, an unreadable file, or an `output` that is an input.
    """
    others.check(name)
    learns = name not in ASKING
    train_files = training_files(files, train) if train or learns else []
    check_target(output, [*files, *train_files])
    check_readable([*files, *train_files])
    if learns and not train_files:
        raise JudgingError("there are no training rows; give them with --train")
    if learns:
        check_scikit_learn()
    if learns and (method == "embedded" or name == "elicitations"):
        check_installed("torch", "torch", "train")


def _scorer(calibrator: str, is_renewed: bool) -> Scorer:
    """Load a calibrator that keeps its scores on disk; `is_renewed` scores all rows again."""
    from calibrator.loading import load_scorer
    from calibrator.rows.kept_scores import cache_scores

    return cache_scores(load_scorer(calibrator), "auto", is_renewed=is_renewed)


def _probe(rows: Sequence[Row], count: int, scorer: Scorer) -> Study:
    """Return a study of at most `count` rows, scored under each change of what is shown."""
    from calibrator.lab.studies.probes import PROBES, probe, sample

    chosen = sample(rows, count)
    with Progress("probing", len(chosen) * len(PROBES)) as progress:
        return probe(scorer, chosen, progress.advance)


def _swap(rows: Sequence[Row], count: int | None, scorer: Scorer) -> Study:
    """Return a study of answers scored under each other's model names; `count` bounds the pairs."""
    from calibrator.lab.studies.answer_swap import MAX_PAIRS, answer_pairs, answer_swap

    most = count or MAX_PAIRS
    with Progress("swapping answers", len(answer_pairs(rows, most))) as progress:
        return answer_swap(scorer, rows, most, progress.advance)


def _elicitations(
    train: Sequence[Row], test: Sequence[Row], most: int | None, calibrator: str
) -> Study:
    """Return a study of ways to read a language model's certainty, and print its progress.

    `most` is the number of training rows to sample; all are used without it. `calibrator` is the
    checkpoint of a language model.
    """
    from calibrator.lab.studies.elicitations import compare_elicitations
    from calibrator.lab.studies.probes import sample

    return compare_elicitations(calibrator, sample(train, most or len(train)), test, "auto", say)


def _calls(train: Sequence[Row], test: Sequence[Row], most: int | None) -> Study:
    """Return a study that leaves sources, faults and domains out of the trees for calls, in turn.

    `most` bounds the right rows that are made wrong (default 300).
    """
    from calibrator.lab.studies.trained.calls_study import calls_study

    return calls_study(train, test, most=most or 300, say=say)


def _faults(train: Sequence[Row], test: Sequence[Row], most: int | None, calibrator: str) -> Study:
    """Return a study that leaves kinds of faults out of what the inspector learns from, in turn.

    `most` bounds the training rows.
    """
    from calibrator.lab.studies.probes import sample
    from calibrator.lab.studies.trained.faults_study import faults_study

    return faults_study(sample(train, most or len(train)), test, calibrator, say=say)


def _leave_out(
    name: Any,
    method: str,
    train: Sequence[Row],
    test: Sequence[Row],
    most: int | None,
    folder: Path,
    only: Sequence[str],
    is_renewed: bool,
) -> Study:
    """Run one study that leaves parts of the training data out, with progress shown; return it.

    `name` is one of LEAVING_OUT, `growing-sources`, `single-sources` or `size`. `most` bounds the
    training rows, `folder` keeps what is trained, `only` names the parts to leave out, and
    `is_renewed` ignores earlier results.
    """
    from calibrator.lab.studies.probes import sample
    from calibrator.lab.studies.sources import run_sources
    from calibrator.lab.studies.studies import SHOWN, fit_of, run, shared_rows

    chosen = sample(train, most or len(train))
    shared = shared_rows(name, chosen)
    rows = [*chosen, *test]
    fit = fit_of(method, rows, folder, "auto", say, is_renewed=is_renewed, trained=shared)
    with Progress("fitting", 0) as bar:
        if name in ("growing-sources", "single-sources"):
            return run_sources(name, SHOWN[method], fit, chosen, test, bar.update)
        return run(name, SHOWN[method], fit, chosen, test, bar.say, bar.update, only)


def _print(study: Study) -> None:
    """Print a study's entries as a table with a last line of means.

    A second table has all judged rows together, if the study has that.
    """
    averaged = ("auroc", "", "within", "ece", "ece_mended", "reference", "inside", "shift")
    rows = [
        [
            one.label,
            f"{one.trained:,}",
            f"{one.rows:,}",
            figure(one.accuracy),
            figure(one.auroc),
            bounds(one.low, one.high),
            *(figure(getattr(one, name)) for name in averaged[2:]),
        ]
        for one in study.entries
    ]
    means = [figure(study.mean(name)) if name else "" for name in averaged]
    head = ["", "trained", "rows", "right", "AUROC", "95 % over questions", "within", "ECE"]
    print_table(
        [*head, "after 100 labels", "reference", "inside", "shift"],
        [*rows, ["mean", "", "", "", *means]],
    )
    if study.together is not None:
        _print_together(study.together)


def _print_together(together: PooledRanking) -> None:
    """Print the ranking of all judged rows, by the fits that did not see them and by one on all."""
    both = ("left out", together.left_out), ("reference", together.reference)
    print_table(
        ["all of it together", "rows", "AUROC", "mean over benchmarks", "within questions"],
        [[name, f"{one.rows:,}", *map(figure, one.figures)] for name, one in both],
    )
