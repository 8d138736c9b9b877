"""`pinocchio study`: what is left when something is left out, and what a scorer looks at."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from calibrator.commands.others import OthersOptions, study_others
from calibrator.commands.progress import Progress
from calibrator.commands.terminal import (
    Calibrator,
    Device,
    Files,
    Rescore,
    TrainFiles,
    check_target,
    file_option,
    print_table,
    report_bad,
    resumable,
    say,
    sentences,
    training_files,
    writer,
)
from calibrator.errors import JudgingError
from calibrator.extras import check_installed, check_scikit_learn
from calibrator.metrics.numbers import bounds, figure
from calibrator.rows.files import check_readable

if TYPE_CHECKING:
    from calibrator.rows.rows import Row
    from calibrator.scorer import Scorer
    from calibrator.studies.studies import Fit, Study

ASKING = (
    "probes",
    "answer-swap",
    "opinion",
    "cascade",
    "failures",
)  # they ask a calibrator and train none

Name = Annotated[
    Literal[
        "models",
        "families",
        "benchmarks",
        "benchmark-folds",
        "size",
        "probes",
        "answer-swap",
        "elicitations",
        "calls",
        "opinion",
        "cascade",
        "failures",
    ],
    typer.Argument(
        help="Leave out each model, each maker's models, each benchmark, or five benchmarks at "
        "a time; train on fewer rows; change what the calibrator is shown; swap the answers of "
        "models to a question while the name stays; read a language model in other ways than "
        "from its labels; leave sources, faults and domains out of the trees for calls; "
        "read other models' replies to the same question beside each reply; let a strong model "
        "answer where a cheap one is unsure; or show where the calibrator is most wrong."
    ),
]

LeaveOut = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="For `opinion`: judge each benchmark by a second stage that was fitted without it, "
        "from this folder of `pinocchio train --opinion`, which keeps what is fitted.",
    ),
]


Cheap = Annotated[str | None, typer.Option(help="For `cascade`: the model that answers first.")]
Strong = Annotated[str | None, typer.Option(help="For `cascade`: the model that is asked then.")]


def study(
    name: Name,
    files: Files,
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
    device: Device = "auto",
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
) -> None:
    """Run a study of the paper on labelled rows and print its entries.

    Scores and fits are kept as they are made: the same command goes on after an interruption.
    """
    from calibrator.rows.selection import load_labelled
    from calibrator.studies.studies import study_json

    with sentences(), resumable():
        others = OthersOptions(calibrator, device, rescore, leave_out, cheap, strong)
        _check(name, method, output, files, train, others)
        test, bad = load_labelled(files)
        if name == "opinion" or name == "cascade":
            study_others(name, test, others, output)
        elif name == "failures":
            from calibrator.commands.failures import show_failures

            show_failures(test, _scorer(calibrator, device, rescore), output)
        else:
            given = [] if name in ASKING else training_files(files, train)
            found = _entries(name, test, given, method, rows, others, runs)
            if output:
                with writer(output) as stream:
                    stream.write(study_json(found) + "\n")
            _print(found)
    report_bad(bad, len(test) + len(bad))


def _entries(
    name: str,
    test: Sequence[Row],
    files: Sequence[Path],
    method: str,
    rows: int | None,
    others: OthersOptions,
    runs: Path | None,
) -> Study:
    """The entries of a study that has some; those that train read `files`."""
    from calibrator.rows.selection import load_labelled

    calibrator, device, is_renewed = others.calibrator, others.device, others.is_renewed
    if name == "probes":
        return _probe(test, rows or 2_000, _scorer(calibrator, device, is_renewed))
    if name == "answer-swap":
        return _swap(test, rows, _scorer(calibrator, device, is_renewed))
    training, _ = load_labelled(files)
    if name == "elicitations":
        return _elicitations(training, test, rows, calibrator, device)
    if name == "calls":
        return _calls(training, test, rows)
    with tempfile.TemporaryDirectory() as scratch:
        folder = runs or Path(scratch)
        return _leave_out(name, method, training, test, rows, folder, device, is_renewed)


def _check(
    name: str,
    method: str,
    output: Path | None,
    files: Sequence[Path],
    train: list[Path] | None,
    others: OthersOptions,
) -> None:
    """Before the work: raises CalibratorError for what would end it."""
    others.check(name)
    learns = name not in ASKING
    given = training_files(files, train) if train or learns else []
    check_target(output, [*files, *given])
    check_readable([*files, *given])
    if learns and not given:
        raise JudgingError("there are no training rows; give them with --train")
    if learns:
        check_scikit_learn()
    if learns and (method == "embedded" or name == "elicitations"):
        check_installed("torch", "torch", "train")


def _scorer(calibrator: str, device: str, is_renewed: bool) -> Scorer:
    from calibrator.loading import load_scorer
    from calibrator.rows.kept_scores import keeping

    return keeping(load_scorer(calibrator, device), device, is_renewed=is_renewed)


def _probe(rows: Sequence[Row], count: int, scorer: Scorer) -> Study:
    from calibrator.studies.probes import PROBES, probe, sample

    chosen = sample(rows, count)
    with Progress("probing", len(chosen) * len(PROBES)) as progress:
        return probe(scorer, chosen, progress.advance)


def _swap(rows: Sequence[Row], count: int | None, scorer: Scorer) -> Study:
    from calibrator.studies.answer_swap import MAX_PAIRS, answer_pairs, answer_swap

    most = count or MAX_PAIRS
    with Progress("swapping answers", len(answer_pairs(rows, most))) as progress:
        return answer_swap(scorer, rows, most, progress.advance)


def _elicitations(
    train: Sequence[Row], test: Sequence[Row], most: int | None, calibrator: str, device: str
) -> Study:
    from calibrator.studies.elicitations import compare_elicitations
    from calibrator.studies.probes import sample

    return compare_elicitations(calibrator, sample(train, most or len(train)), test, device, say)


def _calls(train: Sequence[Row], test: Sequence[Row], most: int | None) -> Study:
    from calibrator.studies.calls_study import calls_study

    return calls_study(train, test, most=most or 300, say=say)


def _leave_out(
    name: Any,
    method: str,
    train: Sequence[Row],
    test: Sequence[Row],
    most: int | None,
    folder: Path,
    device: str,
    is_renewed: bool,
) -> Study:
    from calibrator.rows.kept_scores import kept_folds
    from calibrator.studies.probes import sample
    from calibrator.studies.studies import run

    chosen = sample(train, most or len(train))
    fit: Fit
    if method == "tfidf":
        from calibrator.evaluation.tfidf import WordCounts

        say(f"counting the words of {len(chosen) + len(test)} rows")
        counts = WordCounts([*chosen, *test])

        def fit(train: Any, judged: Any) -> Any:
            return counts.scores(train, judged, "served")
    else:
        from calibrator.studies.embedded_fit import EmbeddedFit
        from calibrator.training.run import TrainConfig

        config = TrainConfig(data=(), name="study", device=device)
        fit = EmbeddedFit([*chosen, *test], folder, config, say)
    shown = "TF-IDF" if method == "tfidf" else "embedded"
    with Progress("fitting", 0) as bar:
        kept = kept_folds(fit, [*chosen, *test], method, device, is_renewed=is_renewed)
        return run(name, shown, kept, chosen, test, bar.say, bar.update)


def _print(study: Study) -> None:
    averaged = ("auroc", "", "within", "ece", "ece_mended", "reference", "shift")
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
        [*head, "after 100 labels", "reference", "shift"], [*rows, ["mean", "", "", "", *means]]
    )
