"""`pinocchio evaluate` and `pinocchio card`: from labelled rows to figures, a report and a card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from calibrator.console import (
    NO_FIGURE,
    Calibrator,
    Device,
    Files,
    RecalibrationFile,
    TrainFiles,
    json_line,
    progress_bar,
    report_bad,
    say,
    sentences,
    training_files,
    writer,
)

if TYPE_CHECKING:
    from calibrator.evaluate import Evaluation
    from calibrator.results import Method, Result
    from calibrator.rows import Row, Tags
    from calibrator.scores import Scores

StudyFiles = Annotated[
    list[Path] | None, typer.Option("--study", help="Add what `pinocchio study` wrote.")
]


def evaluate(
    files: Files,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
    tags: Annotated[
        list[Literal["served", "all", "none"]] | None,
        typer.Option(
            help="Names told to the calibrator: the model's as served (default), the benchmark's "
            "too, or none; several are judged beside each other."
        ),
    ] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge the scores of this file, [NAME=]FILE, instead of scoring; several may be "
            "given, the first is compared with the others."
        ),
    ] = None,
    recalibration: RecalibrationFile = None,
    train: TrainFiles = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep-scores", help="Write the scores of every method into this folder."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write all figures as JSON.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML page with figures.")] = None,
    studies: StudyFiles = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Judge a calibrator on labelled rows, for each benchmark and pooled, beside baselines."""
    from calibrator.evaluate import to_json
    from calibrator.report import render
    from calibrator.studies import read_study
    from calibrator.training_data import load_labelled

    with sentences():
        shown_studies = [read_study(path) for path in studies or []]
        rows, bad = load_labelled(files)
        if scores:
            found = [_read(given, rows) for given in scores]
        else:
            found = _score(calibrator, device, recalibration, rows, tags or ["served"])
        training = training_files(files, train)
        if not training:
            say("no training rows beside the test rows, so no baselines; give them with --train")
        evaluation = _judge(rows, found, training, keep)
        if output:
            with writer(output) as stream:
                stream.write(to_json(evaluation) + "\n")
        if report:
            with writer(report) as stream:
                stream.write(render(evaluation, shown_studies))
        _print(evaluation, as_json)
    report_bad(bad, len(rows) + len(bad))


def card(
    evaluation: Annotated[Path, typer.Argument(help="What `pinocchio evaluate -o` wrote.")],
    readme: Annotated[Path, typer.Argument(help="The model card, with marks for its figures.")],
    studies: StudyFiles = None,
) -> None:
    """Write the figures of a model card from an evaluation."""
    from calibrator.evaluate import read_evaluation
    from calibrator.model_card import update_card
    from calibrator.studies import read_study

    with sentences():
        found = [read_study(path) for path in studies or []]
        update_card(readme, read_evaluation(evaluation), found)


def _read(given: str, rows: Sequence[Row]) -> Scores:
    from calibrator.scores import read_scores

    name, separator, path = given.partition("=")
    if separator and not Path(given).exists():
        return read_scores(Path(path), rows, name)
    return read_scores(Path(given), rows)


def _score(
    calibrator: str,
    device: str,
    recalibration: Path | None,
    rows: Sequence[Row],
    tags: Sequence[Tags],
) -> list[Scores]:
    from calibrator.loading import load_scorer
    from calibrator.scores import score_rows

    scorer = load_scorer(calibrator, device, recalibration=recalibration)
    chosen = list(dict.fromkeys(tags))
    with progress_bar("scoring", len(rows) * len(chosen)) as progress:
        return [score_rows(scorer, rows, each, lambda n: progress.advance(0, n)) for each in chosen]


def _judge(
    rows: Sequence[Row], found: Sequence[Scores], training: Sequence[Path], keep: Path | None
) -> Evaluation:
    """Judges the scores beside baselines, and apart from that on the rows with a confidence of
    their own, where there are any on both sides."""
    from dataclasses import replace

    from calibrator.baselines import STATED, with_stated_confidence
    from calibrator.evaluate import STATED_ROWS, judge
    from calibrator.results import Method
    from calibrator.training_data import load_labelled

    methods = _named(found)
    train: list[Row] = []
    if training:
        train, _ = load_labelled(training)
        say(f"baselines are fitted on {len(train)} training rows")
        methods += _baselines(train, rows, [one.tags for one in found])
    if keep:
        _keep(keep, rows, methods)
    evaluation = judge(rows, methods)
    at = [i for i, row in enumerate(rows) if row.verbalized_confidence is not None]
    stated = with_stated_confidence(train)
    if len({row.correct for row in stated}) < 2 or len({rows[i].correct for i in at}) < 2:
        return evaluation
    chosen = [rows[i] for i in at]
    others = [
        Method(name, baseline(stated, chosen), None, True) for name, baseline in STATED.items()
    ]
    same = [replace(one, confidence=one.confidence[at]) for one in methods]
    return evaluation.joined(judge(chosen, [*same, *others], name=STATED_ROWS))


def _named(found: Sequence[Scores]) -> list[Method]:
    """Methods with names of their own, also where one calibrator was told different names."""
    from calibrator.groups import shown
    from calibrator.results import Method

    methods: list[Method] = []
    for one in found:
        name = shown(one.name)
        if one.tags != "served":
            name += {"all": ", names told", "none": ", no names"}[one.tags]
        taken = [method.name for method in methods]
        methods.append(
            Method(
                f"{name} ({len(taken) + 1})" if name in taken else name, one.confidence, one.tags
            )
        )
    return methods


def _baselines(train: Sequence[Row], rows: Sequence[Row], tags: Sequence[Tags]) -> list[Method]:
    """Those that any labelled rows allow; TF-IDF is told the same names as the calibrator."""
    from calibrator.baselines import NAMES_ONLY, length_baseline
    from calibrator.results import Method
    from calibrator.tfidf import tfidf_baseline

    chosen = list(dict.fromkeys(tags))
    titles = {"served": "TF-IDF", "all": "TF-IDF, names told", "none": "TF-IDF, no names"}
    words = tfidf_baseline(train, rows, chosen)
    return [
        *(Method(titles[t], p, t, True) for t, p in zip(chosen, words, strict=True)),
        Method("length", length_baseline(train, rows), None, True),
        *(Method(name, fit(train, rows), None, True) for name, fit in NAMES_ONLY.items()),
    ]


def _keep(folder: Path, rows: Sequence[Row], methods: Sequence[Method]) -> None:
    """One file of scores for each method, by its name as a file name."""
    import re

    from calibrator.scores import Scores, write_scores

    folder.mkdir(parents=True, exist_ok=True)
    for method in methods:
        name = re.sub(r"[^\w.@+-]+", "_", method.name).strip("_.") or "scores"
        scores = Scores(method.name, method.tags or "served", method.confidence)
        write_scores(folder / f"{name}.jsonl", rows, scores)


def _print(evaluation: Evaluation, as_json: bool) -> None:
    if as_json:
        for result in evaluation.results:
            typer.echo(json_line(result.as_dict()), nl=False)
        return
    shown = [r for r in evaluation.results if r.kind in ("benchmark", "task", "mean", "pooled")]
    methods = list(dict.fromkeys(result.method for result in shown))
    groups = list(dict.fromkeys(result.group for result in shown))
    found = {(result.group, result.method): result for result in shown}
    width = max(len(group) for group in groups)
    heads = "   ".join(f"{method:^26.26}" for method in methods)
    typer.echo(f"{'':{width}}  {'rows':>6} {'acc':>5}   {heads}")
    columns = "   ".join(["AUROC within  Brier    ECE"] * len(methods))
    typer.echo(f"{'':{width}}  {'':6} {'':5}   {columns}")
    for group in groups:
        typer.echo(_line(group, width, [found.get((group, method)) for method in methods]))


def _line(group: str, width: int, cells: Sequence[Result | None]) -> str:
    first = next(cell for cell in cells if cell is not None)
    figures = "   ".join(
        f"{c.auroc:5.3f}  {c.within:5.3f}  {c.brier:5.3f}  {c.ece:5.3f}" if c else " " * 26
        for c in cells
    ).replace("nan", f"  {NO_FIGURE}")
    return f"{group:{width}}  {first.rows:6} {first.accuracy:5.3f}   {figures}".rstrip()
