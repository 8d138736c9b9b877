"""The commands of researchers: `score`, `evaluate` and `train`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from calibrator.errors import CalibratorError, MissingExtraError, RowError, TrainingError

if TYPE_CHECKING:
    from calibrator.train import TrainConfig

cli = typer.Typer(no_args_is_help=True)

FAILED, UNUSABLE_INPUT = 1, 2
Calibrator = Annotated[str, typer.Option(help="embedded, a folder, a hub name, or fake:0.73.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ..")]
Files = Annotated[list[Path], typer.Argument(help="JSON lines of labelled rows; .gz is read too.")]


@contextmanager
def _sentences() -> Iterator[None]:
    """Turns the errors of a person's mistake into one sentence and an exit status."""
    try:
        yield
    except (CalibratorError, OSError) as error:
        status = FAILED if isinstance(error, MissingExtraError) else UNUSABLE_INPUT
        typer.echo(f"pinocchio: {error}", err=True)
        raise typer.Exit(status) from error


def _progress(title: str, total: int) -> Any:
    """A bar on a terminal's stderr; silent elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    progress = Progress(
        console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True
    )
    progress.add_task(title, total=total)
    return progress


@cli.command()
def score(
    rows: Annotated[
        Path,
        typer.Argument(help="JSON lines with question or messages, and response; .gz is read too."),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; stdout otherwise.")
    ] = None,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
) -> None:
    """Give every row a `score` (raw) and a `confidence`; a bad row is named and left out."""
    from calibrator.evaluate import score_items
    from calibrator.loading import load_scorer
    from calibrator.rows import Row, read_rows

    with _sentences():
        read = [row for _, row in read_rows(rows)]
        good = [row for row in read if isinstance(row, Row)]
        bad = [row for row in read if isinstance(row, RowError)]
        scorer = load_scorer(calibrator, device)
        with _progress("scoring", len(good)) as progress:
            scores = score_items(
                scorer, [row.item() for row in good], lambda n: progress.advance(0, n)
            )
        with _writer(output) as stream:
            for row, found in zip(good, scores, strict=True):
                facts = {"score": round(found.score, 6), "confidence": round(found.confidence, 6)}
                stream.write(_json_line({**row.raw, **facts, "calibrator": scorer.name}))
    _report_bad(bad, len(read))


def _json_line(values: Any) -> str:
    """UTF-8 stays; half a surrogate pair, which has no UTF-8, becomes the escape that it was."""
    text = json.dumps(values, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode() + "\n"


@contextmanager
def _writer(path: Path | None) -> Iterator[TextIO]:
    """Writes beside the target and moves it there when it is whole."""
    if path is None:
        yield sys.stdout
        return
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8") as stream:
            yield stream
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _report_bad(bad: Sequence[RowError], total: int) -> None:
    for error in bad:
        typer.echo(str(error), err=True)
    if bad:
        typer.echo(f"pinocchio: {len(bad)} of {total} rows could not be used", err=True)
        raise typer.Exit(FAILED)


@cli.command()
def evaluate(
    files: Files,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
    train: Annotated[
        list[Path] | None,
        typer.Option(
            help="Fit the baselines on these rows: files or folders, one for each --train."
        ),
    ] = None,
    untagged: Annotated[
        bool, typer.Option(help="Hide model and benchmark from the calibrator.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print AUROC, Brier score and ECE for each benchmark and pooled, beside two baselines."""
    import numpy as np

    from calibrator.evaluate import judge, score_items
    from calibrator.loading import load_scorer
    from calibrator.scorer import Item
    from calibrator.training_data import load_labelled

    with _sentences():
        rows, bad = load_labelled(files)
        scorer = load_scorer(calibrator, device)
        items = [Item(row.question, row.answer) if untagged else row.item() for row in rows]
        with _progress("scoring", len(rows)) as progress:
            scores = score_items(scorer, items, lambda n: progress.advance(0, n))
        methods = {scorer.name: np.array([found.confidence for found in scores])}
        if (train_files := _training_files(files, train)) is not None:
            methods |= _baselines(train_files, rows, calibrator)
        else:
            typer.echo(
                "no training rows beside the test rows, so no baselines; give them with --train",
                err=True,
            )
        _print_results(judge(rows, methods), as_json)
    _report_bad(bad, len(rows) + len(bad))


def _training_files(files: Sequence[Path], given: Sequence[Path] | None) -> list[Path] | None:
    """The files asked for; else, for `$DATA/test/*`, those of `$DATA/train/`, if there are any."""
    beside = [file.parent.parent / "train" for file in files[:1] if file.parent.name == "test"]
    folders = given or [folder for folder in beside if folder.is_dir()]
    found = [
        f
        for folder in folders
        for f in (sorted(folder.glob("*.jsonl*")) if folder.is_dir() else [folder])
    ]
    if given and not found:
        raise TrainingError(f"no *.jsonl file in {', '.join(map(str, given))}")
    return found or None


def _baselines(files: Sequence[Path], rows: Sequence[Any], calibrator: str) -> dict[str, Any]:
    """Both baselines, on the very rows that the checkpoint was trained on where it says so."""
    from calibrator.baselines import length_baseline, tfidf_baseline
    from calibrator.loading import read_selection
    from calibrator.training_data import select_rows

    chosen, _ = select_rows(files, read_selection(calibrator))
    typer.echo(f"baselines are fitted on {len(chosen)} training rows", err=True)
    try:
        return {"length": length_baseline(chosen, rows), "TF-IDF": tfidf_baseline(chosen, rows)}
    except ValueError as error:  # rows of one label alone, or too few words
        raise TrainingError(f"the baselines cannot be fitted: {error}") from error


def _print_results(results: Sequence[Any], as_json: bool) -> None:
    if as_json:
        for result in results:
            typer.echo(json.dumps(result.as_dict()))
        return
    methods = list(dict.fromkeys(result.method for result in results))
    groups = list(dict.fromkeys(result.group for result in results))
    found = {(result.group, result.method): result for result in results}
    width = max(len(group) for group in groups)
    typer.echo(
        f"{'':{width}}  {'rows':>6} {'acc':>5}   "
        + "   ".join(f"{method:^20.20}" for method in methods)
    )
    typer.echo(
        f"{'':{width}}  {'':6} {'':5}   " + "   ".join(["AUROC  Brier    ECE "] * len(methods))
    )
    for group in groups:
        first = found[group, methods[0]]
        cells = [found[group, method] for method in methods]
        figures = "   ".join(f"{c.auroc:5.3f}  {c.brier:5.3f}  {c.ece:5.3f} " for c in cells)
        typer.echo(f"{group:{width}}  {first.rows:6} {first.accuracy:5.3f}   {figures}")


Share = Annotated[float, typer.Option(min=0, max=1)]


@cli.command()
def train(
    files: Files,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The run's folder; an interrupted run goes on.")
    ],
    name: Annotated[str, typer.Option(help="The checkpoint's name.")] = "embedded",
    start: Annotated[
        str, typer.Option(help="A checkpoint to begin from; the base model otherwise.")
    ] = "",
    finish_now: Annotated[
        bool, typer.Option("--finish-now", help="Train no further: a checkpoint of what there is.")
    ] = False,
    rows: Annotated[int, typer.Option(min=0, help="This many training rows; 0 takes all.")] = 0,
    epochs: Annotated[int, typer.Option(min=1)] = 4,
    max_tokens: Annotated[int, typer.Option(min=16, max=512, help="Word pieces read.")] = 192,
    learning_rate: Annotated[float, typer.Option(min=1e-7, max=1e-1)] = 1.5e-4,
    balance_power: Annotated[float, typer.Option(help="1 takes benchmarks as they are.")] = 0.85,
    model_dropout: Annotated[float, typer.Option(help="Chance to hide the model's name.")] = 0.4,
    benchmark_dropout: Annotated[float, typer.Option(help="The same of the benchmark.")] = 0.8,
    addressed_share: Annotated[
        float, typer.Option(help="Rows with text that addresses the reader.")
    ] = 0.12,
    label_smoothing: Share = 0.0,
    focal_gamma: Annotated[float, typer.Option(min=0)] = 0.0,
    soft_labels: Annotated[float, typer.Option(help="Share of the tower's own opinion.")] = 0.0,
    averaging: Annotated[float, typer.Option(help="0 ships the last weights.")] = 0.998,
    tower: Annotated[bool, typer.Option(help="With the side tower, or the encoder alone.")] = True,
    seed: Annotated[int, typer.Option()] = 20_261_121,
    device: Device = "auto",
) -> None:
    """Train the embedded calibrator on labelled rows; files marked __nc are left out."""
    with _sentences():
        from calibrator.layout import Layout
        from calibrator.train import TrainConfig
        from calibrator.training_data import Selection

        config = TrainConfig(
            data=tuple(map(str, sorted(files))),
            name=name,
            start=start,
            selection=Selection(rows=rows, balance_power=balance_power, seed=seed),
            epochs=epochs,
            learning_rate=learning_rate,
            model_dropout=model_dropout,
            benchmark_dropout=benchmark_dropout,
            addressed_share=addressed_share,
            label_smoothing=label_smoothing,
            focal_gamma=focal_gamma,
            soft_labels=soft_labels,
            averaging=averaging,
            is_towered=tower,
            device=device,
            layout=Layout(max_tokens=max_tokens),
        )
        typer.echo(f"the checkpoint is in {_trained(output, config, finish_now)}")


def _trained(folder: Path, config: TrainConfig, finish_now: bool) -> Path:
    """Runs the training with a bar on a terminal, with lines elsewhere."""
    from calibrator.train import train

    with _progress("training", 0) as bar:
        return train(
            folder,
            config,
            bar.console.print if sys.stderr.isatty() else partial(typer.echo, err=True),
            progress=lambda done, total: bar.update(0, completed=done, total=total),
            finish_now=finish_now,
        )
