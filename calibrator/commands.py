"""The commands of researchers: `score` and `train`; the modules of the others are joined here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from calibrator.console import (
    Calibrator,
    Device,
    Files,
    RecalibrationFile,
    json_line,
    progress_bar,
    report_bad,
    sentences,
    writer,
)
from calibrator.errors import RowError
from calibrator.evaluate_command import card, evaluate
from calibrator.recalibrate_command import recalibrate
from calibrator.study_command import study

cli = typer.Typer(no_args_is_help=True)
for command in (evaluate, card, study, recalibrate):
    cli.command()(command)


@cli.command()
def score(
    rows: Annotated[
        list[Path],
        typer.Argument(help="JSON lines with question or messages, and response; .gz is read too."),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; stdout otherwise.")
    ] = None,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
    tags: Annotated[
        Literal["served", "all", "none"],
        typer.Option(help="Names told to the calibrator: the model's, the benchmark's too, none."),
    ] = "served",
    recalibration: RecalibrationFile = None,
    brief: Annotated[
        bool, typer.Option("--brief", help="Write the ids and scores alone, not the rows.")
    ] = False,
) -> None:
    """Give every row a `score` (raw) and a `confidence`; a bad row is named and left out."""
    from calibrator.loading import load_scorer
    from calibrator.rows import Row, read_rows
    from calibrator.scores import score_items

    with sentences():
        read = [row for path in rows for _, row in read_rows(path)]
        good = [row for row in read if isinstance(row, Row)]
        bad = [row for row in read if isinstance(row, RowError)]
        scorer = load_scorer(calibrator, device, recalibration=recalibration)
        with progress_bar("scoring", len(good)) as progress:
            scores = score_items(
                scorer, [row.item(tags) for row in good], lambda n: progress.advance(0, n)
            )
        with writer(output) as stream:
            for row, found in zip(good, scores, strict=True):
                kept = {"id": row.raw.get("id")} if brief else row.raw
                facts = {"score": round(found.score, 6), "confidence": round(found.confidence, 6)}
                stream.write(json_line({**kept, **facts, "calibrator": scorer.name, "tags": tags}))
    report_bad(bad, len(read))


@cli.command()
def train(
    files: Files,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The run's folder; an interrupted run goes on.")
    ],
    name: Annotated[str, typer.Option(help="The checkpoint's name.")] = "embedded",
    rows: Annotated[
        int, typer.Option(min=10, help="Training rows, balanced by benchmark.")
    ] = 45_000,
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    learning_rate: Annotated[float, typer.Option(min=1e-7, max=1e-1)] = 1.5e-4,
    tag_dropout: Annotated[
        float, typer.Option(min=0, max=1, help="Chance that a tag is hidden.")
    ] = 0.4,
    seed: Annotated[int, typer.Option()] = 20_261_121,
    device: Device = "auto",
) -> None:
    """Train the embedded calibrator on labelled rows; files marked __nc are left out."""
    with sentences():
        from calibrator.train import TrainConfig
        from calibrator.train import train as run
        from calibrator.training_data import Selection

        config = TrainConfig(
            data=tuple(map(str, sorted(files))),
            name=name,
            selection=Selection(rows=rows, seed=seed),
            epochs=epochs,
            learning_rate=learning_rate,
            tag_dropout=tag_dropout,
            device=device,
        )
        typer.echo(f"the checkpoint is in {run(output, config, typer.echo)}")
