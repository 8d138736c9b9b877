"""`pinocchio evaluate` and `pinocchio card`: from labelled rows to figures, a report and a card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from calibrator.console import (
    Calibrator,
    Device,
    Files,
    RecalibrationFile,
    TrainFiles,
    check_target,
    file_option,
    json_line,
    print_table,
    progress_bar,
    report_bad,
    say,
    sentences,
    training_files,
    writer,
)
from calibrator.wording import bounds, chance_text, figure

if TYPE_CHECKING:
    from calibrator.errors import RowError
    from calibrator.evaluate import Evaluation
    from calibrator.rows import Row, Tags
    from calibrator.scorer import Scorer
    from calibrator.scores import Scores
    from calibrator.sensitivity import Sensitivity
    from calibrator.studies import Study

StudyFiles = Annotated[
    list[Path] | None, typer.Option("--study", help="Add what `pinocchio study` wrote.")
]
IsSensitive = Annotated[
    bool,
    typer.Option(
        "--sensitivity",
        help="Also make right replies wrong in one respect, and measure how far the confidence "
        "falls; ask everyday questions too.",
    ),
]
MaxPairs = Annotated[
    int, typer.Option(min=1, help="Pairs of one benchmark and kind, at most, for --sensitivity.")
]


def evaluate(
    files: Files,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
    tags: Annotated[
        str,
        typer.Option(
            help="Names told to the calibrator: the model's as served, the benchmark's too with "
            "all, or none; served,all,none judges them beside each other."
        ),
    ] = "served",
    scores: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge the scores of this file, [NAME=]FILE, instead of scoring; several may be "
            "given, the first is compared with the others."
        ),
    ] = None,
    recalibration: RecalibrationFile = None,
    train: TrainFiles = None,
    is_sensitive: IsSensitive = False,
    max_pairs: MaxPairs = 300,
    keep: Annotated[
        Path | None,
        typer.Option("--keep-scores", help="Write the scores of every method into this folder."),
    ] = None,
    output: Annotated[
        Path | None, file_option("-o", "--output", help="Write all figures as JSON.")
    ] = None,
    report: Annotated[
        Path | None, file_option("--report", help="Write an HTML page with figures.")
    ] = None,
    studies: StudyFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Judge a calibrator on labelled rows, for each benchmark and pooled, beside baselines."""
    from calibrator.judging import judge_all, keep_scores, methods_of
    from calibrator.studies import read_study

    with sentences():
        read = [*files, *training_files(files, train), *map(_scores_file, scores or [])]
        _check_targets(output, report, keep, [*read, *(studies or []), recalibration])
        shown_studies = [read_study(path) for path in studies or []]
        scorer = _scorer(calibrator, device, recalibration, scores, is_sensitive)
        rows, bad, found = _scores_of(files, scorer, scores or [], tags)
        train_rows = _training(files, train)
        methods = methods_of(found, train_rows, rows)
        if keep:
            keep_scores(keep, rows, methods)
        evaluation = judge_all(rows, methods, train_rows)
        if scorer is not None and is_sensitive:
            evaluation = replace(evaluation, sensitivity=_sensitivity(scorer, rows, max_pairs))
        _write(evaluation, output, report, shown_studies)
        _print(evaluation, as_json)
    report_bad(bad, len(rows) + len(bad))


def card(
    evaluation: Annotated[Path, typer.Argument(help="What `pinocchio evaluate -o` wrote.")],
    readme: Annotated[Path, typer.Argument(help="The model card, with marks for its figures.")],
    studies: StudyFiles = None,
    of: Annotated[str, typer.Option(help="A part of the card with marks of its own.")] = "",
) -> None:
    """Write the figures of a model card from an evaluation."""
    from calibrator.evaluate import read_evaluation
    from calibrator.model_card import update_card
    from calibrator.studies import read_study

    with sentences():
        found = [read_study(path) for path in studies or []]
        update_card(readme, read_evaluation(evaluation), found, of)


def _check_targets(
    output: Path | None, report: Path | None, keep: Path | None, inputs: Sequence[Path | None]
) -> None:
    from calibrator.errors import OutputError

    check_target(output, inputs)
    check_target(report, inputs)
    if output and report and output.resolve() == report.resolve():
        raise OutputError(f"-o and --report both say {output}; name two files")
    if keep and keep.exists() and not keep.is_dir():
        raise OutputError(f"--keep-scores writes into a folder, and {keep} is a file")


def _has_name(given: str) -> bool:
    """Whether --scores says NAME=FILE; a file may have that sign in its own name."""
    return "=" in given and not Path(given).exists()


def _scores_file(given: str) -> Path:
    return Path(given.partition("=")[2] if _has_name(given) else given)


def _read(given: str, rows: Sequence[Row]) -> Scores:
    from calibrator.scores import read_scores

    name = given.partition("=")[0] if _has_name(given) else None
    return read_scores(_scores_file(given), rows, name)


def _tags(given: str) -> list[Tags]:
    from calibrator.errors import JudgingError
    from calibrator.rows import Tags

    known: dict[str, Tags] = {name: name for name in get_args(Tags)}
    try:
        return [known[name.strip()] for name in dict.fromkeys(given.split(","))]
    except KeyError as error:
        raise JudgingError(f"--tags are {', '.join(known)}, not {given!r}") from error


def _training(files: Sequence[Path], given: Sequence[Path] | None) -> list[Row]:
    from calibrator.training_data import load_labelled

    found = training_files(files, given)
    if not found:
        say("no training rows beside the test rows, so no baselines; give them with --train")
        return []
    rows, _ = load_labelled(found)
    say(f"baselines are fitted on {len(rows)} training rows")
    return rows


def _scorer(
    calibrator: str,
    device: str,
    recalibration: Path | None,
    scores: Sequence[str] | None,
    is_sensitive: bool,
) -> Scorer | None:
    """The calibrator, or None where scores were given in its place."""
    from calibrator.errors import JudgingError
    from calibrator.loading import load_scorer

    if not scores:
        return load_scorer(calibrator, device, recalibration=recalibration)
    if is_sensitive:
        raise JudgingError(
            "--sensitivity needs a calibrator, which scores changed replies; --scores has numbers "
            "of the unchanged ones only. Leave one of the two out"
        )
    return None


def _scores_of(
    files: Sequence[Path], scorer: Scorer | None, given: Sequence[str], tags: str
) -> tuple[list[Row], list[RowError], list[Scores]]:
    """The labelled rows that the calibrator can read, the others, and its scores, or given ones."""
    from calibrator.scores import image_use, score_rows
    from calibrator.training_data import load_labelled

    if scorer is None:
        rows, bad = load_labelled(files, "read")
        return rows, bad, [_read(each, rows) for each in given]
    chosen = _tags(tags)
    rows, bad = load_labelled(files, image_use(scorer))
    with progress_bar("scoring", len(rows) * len(chosen)) as progress:
        found = [
            score_rows(scorer, rows, each, lambda n: progress.advance(0, n)) for each in chosen
        ]
    return rows, bad, found


def _sensitivity(scorer: Scorer, rows: Sequence[Row], max_pairs: int) -> Sensitivity:
    from calibrator.sensitivity import items_to_score, measure, pairs_of

    pairs = pairs_of(rows, max_pairs)
    with progress_bar("scoring replies made wrong", items_to_score(pairs)) as progress:
        return measure(scorer, pairs, lambda n: progress.advance(0, n))


def _write(
    evaluation: Evaluation, output: Path | None, report: Path | None, studies: Sequence[Study]
) -> None:
    from calibrator.evaluate import to_json
    from calibrator.report import render

    if output:
        with writer(output) as stream:
            stream.write(to_json(evaluation) + "\n")
    if report:
        with writer(report) as stream:
            stream.write(render(evaluation, studies))


def _print(evaluation: Evaluation, as_json: bool) -> None:
    if as_json:
        for result in evaluation.results:
            typer.echo(json_line(result.as_dict()), nl=False)
        for line in evaluation.sensitivity.lines() if evaluation.sensitivity else ():
            typer.echo(json_line(line), nl=False)
        return
    if evaluation.sensitivity:
        _print_sensitivity(evaluation.sensitivity)
    _print_groups(evaluation)
    _print_methods(evaluation)
    _print_within(evaluation)


def _print_sensitivity(sensitivity: Sensitivity) -> None:
    """Each kind of corruption, the everyday answers, and each benchmark."""
    from calibrator.sensitivity.tables import benchmarks_table, everyday_table, kinds_table

    if not sensitivity.benchmarks:
        say("no kind of corruption applies to enough right replies; 20 of a benchmark are needed")
    typer.echo(f"{sensitivity.calibrator}, right replies made wrong")
    for table in (kinds_table, everyday_table, benchmarks_table):
        head, rows = table(sensitivity)
        if rows:
            print_table(head, rows)
            typer.echo()


def _print_groups(evaluation: Evaluation) -> None:
    """The judged method on each benchmark and task, with the first baseline's AUROC beside it."""
    kinds = ("benchmark", "task", "mean")
    found = [one for kind in kinds for one in evaluation.of_kind(kind)]
    found += [one for one in evaluation.of_kind("pooled") if one.rows == evaluation.rows]
    rivals = evaluation.baselines[:1]
    seen = ["sensitivity"] if evaluation.sensitivity else []
    rows = []
    for one in found:
        theirs = [evaluation.find(one.group, rival) for rival in rivals]
        rows.append(
            [
                one.group,
                f"{one.rows:,}",
                figure(one.accuracy),
                figure(one.auroc),
                bounds(one.question_low, one.question_high),
                *(figure(evaluation.sensitivity_on(one)) for _ in seen),
                *(figure(value) for value in (one.within, one.brier, one.ece)),
                *(figure(rival.auroc if rival else math.nan) for rival in theirs),
            ]
        )
    head = ["", "rows", "right", "AUROC", "95 % over questions", *seen, "within", "Brier", "ECE"]
    typer.echo(evaluation.judged)
    print_table([*head, *rivals], rows)


def _print_methods(evaluation: Evaluation) -> None:
    """Every method on all rows; on the rows with a stated confidence too, where there are any."""
    from calibrator.groups import POOLED

    means = {one.method: one.auroc for one in evaluation.results if one.kind == "mean"}
    head = ["", "AUROC", "95 % over replies", "mean", "within", "Brier", "ECE", "kept at 90 %"]
    for group in dict.fromkeys(one.group for one in evaluation.results if one.kind == "pooled"):
        rows = [
            [
                one.method,
                figure(one.auroc),
                bounds(one.low, one.high),
                figure(means[one.method] if group == POOLED else math.nan),
                *(figure(v) for v in (one.within, one.brier, one.ece)),
                figure(one.coverage_90),
                figure(one.coverage_95),
            ]
            for one in evaluation.results
            if one.group == group
        ]
        typer.echo(f"\n{group}")
        print_table([*head, "at 95 % right"], rows)


def _print_within(evaluation: Evaluation) -> None:
    """Ranking among replies to one question, and p of permuting labels within questions."""
    if not evaluation.within:
        return
    first = evaluation.within[0]
    rows = [
        [
            one.method,
            figure(one.auroc.value),
            bounds(one.auroc.low, one.auroc.high),
            figure(one.pairs),
            chance_text(one.p_auroc),
        ]
        for one in evaluation.within
    ]
    typer.echo(f"\nwithin {first.questions:,} questions, {first.replies:,} replies")
    head = ["", "AUROC", "95 % over questions", "pairs in order", "chance"]
    print_table(head, rows)
