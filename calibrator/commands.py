"""The commands of researchers: `score` and `train`; the modules of the others are joined here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from calibrator.advise_command import advise
from calibrator.console import (
    Calibrator,
    Device,
    Files,
    RecalibrationFile,
    check_target,
    file_option,
    is_among,
    progress_bar,
    report_bad,
    say,
    sentences,
    writer,
)
from calibrator.errors import ClusterError, OutputError, RowError
from calibrator.evaluate_command import card, evaluate
from calibrator.llm.train_command import (
    Base,
    BatchRows,
    Checkpointing,
    Dropout,
    Elicited,
    MicroTokens,
    Preset,
    TextOnly,
    config_of,
    wants_language_model,
)
from calibrator.recalibrate_command import recalibrate
from calibrator.study_command import study
from calibrator.survey_command import survey

if TYPE_CHECKING:
    from calibrator.parts import Options
    from calibrator.rows import ImageUse, Row
    from calibrator.train import TrainConfig

cli = typer.Typer(no_args_is_help=True)
for command in (advise, evaluate, card, study, survey, recalibrate):
    cli.command()(command)


@cli.command()
def score(
    rows: Annotated[
        list[Path],
        typer.Argument(help="JSON lines with question or messages, and response; .gz is read too."),
    ],
    output: Annotated[
        Path | None, file_option("-o", "--output", help="Where to write; stdout otherwise.")
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
    ignore_images: Annotated[
        bool,
        typer.Option("--ignore-images", help="Score the text alone where no image can be read."),
    ] = False,
    engine: Annotated[
        Literal["process", "ray"],
        typer.Option(help="ray: on a Ray cluster, in parts, for millions of rows; needs -o."),
    ] = "process",
    ray_address: Annotated[
        str, typer.Option(envvar="RAY_ADDRESS", help="A Ray cluster; else one of this machine's.")
    ] = "",
    actors: Annotated[
        int, typer.Option(min=0, help="Calibrators on Ray; 0 is one for each core or GPU.")
    ] = 0,
) -> None:
    """Give every row a `score` (raw) and a `confidence`; a bad row is named and left out."""
    if engine == "ray":
        from calibrator.parts import Options

        calibrating = (calibrator, device, recalibration)
        options = Options(tags, is_brief=brief, ignores_images=ignore_images)
        _score_on_ray(rows, output, calibrating, options, ray_address, actors)
        return
    from calibrator.loading import load_scorer
    from calibrator.scores import image_use, score_items, scored_line

    with sentences():
        may_be_input = len(rows) == 1 and not brief  # all of a row is written again
        check_target(output, [recalibration, *([] if may_be_input else rows)])
        scorer = load_scorer(calibrator, device, recalibration=recalibration)
        good, bad = _rows(rows, image_use(scorer, are_ignored=ignore_images), brief)
        if bad and output and is_among(output, rows):
            raise OutputError(f"{output} would lose its bad rows ({bad[0]}); name another file")
        with progress_bar("scoring", len(good)) as progress:
            scores = score_items(
                scorer, [row.item(tags) for row in good], lambda n: progress.advance(0, n)
            )
        with writer(output) as stream:
            for row, found in zip(good, scores, strict=True):
                stream.write(scored_line(row, found, scorer.name, tags, is_brief=brief))
    report_bad(bad, len(good) + len(bad))


def _rows(files: Sequence[Path], use: ImageUse, is_brief: bool) -> tuple[list[Row], list[RowError]]:
    """The rows that can be scored, and what is wrong with the others."""
    from calibrator.rows import Row, read_rows
    from calibrator.scores import identified

    read = [row for path in files for _, row in read_rows(path, use)]
    if is_brief:
        read = [identified(row) for row in read]
    good = [row for row in read if isinstance(row, Row)]
    return good, [row for row in read if isinstance(row, RowError)]


def _score_on_ray(
    rows: Sequence[Path],
    output: Path | None,
    calibrating: tuple[str, str, Path | None],
    options: Options,
    address: str,
    actors: int,
) -> None:
    """The same rows in the same order; an interrupted run goes on where it was."""
    with sentences():
        from calibrator.parts import begin
        from calibrator.ray_scoring import Calibrating, score_files

        if output is None:
            raise ClusterError("--engine ray needs -o OUT: what is done is kept beside it")
        check_target(output, [calibrating[-1], *rows])
        told = Calibrating.told(*calibrating)
        run = begin(output, rows, told.version(), options)
        with progress_bar("scoring on Ray", None) as bar:
            score_files(
                run, told, address=address, actors=actors, progress=lambda n: bar.advance(0, n)
            )
        bad, total = run.check()
        with writer(output) as stream:
            run.write_all(stream)
        run.remove()
    report_bad(bad, total)


PARTS = ("tower", "forest", "encoder", "inspector", "calls")
Share = Annotated[float, typer.Option(min=0, max=1)]


@cli.command()
def train(
    context: typer.Context,
    files: Files,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The run's folder; an interrupted run goes on.")
    ],
    name: Annotated[str, typer.Option(help="The checkpoint's name.")] = "embedded",
    start: Annotated[
        str, typer.Option(help="A checkpoint to begin from, or to add --inspector or --calls to.")
    ] = "",
    finish_now: Annotated[
        bool, typer.Option("--finish-now", help="Train no further: a checkpoint of what there is.")
    ] = False,
    rows: Annotated[int, typer.Option(min=0, help="This many training rows; 0 takes all.")] = 0,
    epochs: Annotated[int, typer.Option(min=1, help="3 of a language model.")] = 4,
    max_tokens: Annotated[int, typer.Option(min=16, max=512, help="Word pieces read.")] = 192,
    learning_rate: Annotated[
        float, typer.Option(min=1e-7, max=1e-1, help="1e-4 of a language model.")
    ] = 1.5e-4,
    balance_power: Annotated[float, typer.Option(help="1 takes benchmarks as they are.")] = 0.85,
    model_dropout: Annotated[float, typer.Option(help="Chance to hide the model's name.")] = 0.4,
    benchmark_dropout: Annotated[float, typer.Option(help="The same of the benchmark.")] = 0.8,
    addressed_share: Annotated[
        float, typer.Option(help="Rows with text that addresses the reader.")
    ] = 0.35,
    label_smoothing: Share = 0.0,
    focal_gamma: Annotated[float, typer.Option(min=0)] = 0.0,
    soft_labels: Annotated[float, typer.Option(help="Share of the tower's own opinion.")] = 0.0,
    averaging: Annotated[float, typer.Option(help="0 ships the last weights.")] = 0.998,
    tower: Annotated[bool, typer.Option(help="With the tower over n-grams.")] = True,
    forest: Annotated[bool, typer.Option(help="With boosted trees beside the tower.")] = False,
    encoder: Annotated[bool, typer.Option(help="Instead of trees; takes hours.")] = False,
    inspector: Annotated[
        bool, typer.Option(help="With checks that a reply answers and agrees with itself.")
    ] = False,
    calls: Annotated[
        bool, typer.Option(help="With trees for rows that call tools; they learn from no others.")
    ] = False,
    seed: Annotated[int, typer.Option()] = 20_261_121,
    device: Annotated[str, typer.Option(help="auto is a GPU where there is one.")] = "auto",
    preset: Preset = "",
    base: Base = "",
    text_only: TextOnly = False,
    elicitation: Elicited = "logit",
    batch_rows: BatchRows = 16,
    micro_tokens: MicroTokens = 8_192,
    dropout: Dropout = 0.05,
    checkpointing: Checkpointing = True,
) -> None:
    """Train a calibrator on labelled rows; files marked __nc are left out.

    The embedded one, or with --preset a language model: see calibrator/llm/training.md.
    """
    asked = {name: value for name, value in context.params.items() if _is_given(context, name)}
    with sentences():
        if wants_language_model(asked):
            _train_language_model(files, output, asked)
        else:
            config = _embedded_config(files, context.params)
            typer.echo(f"the checkpoint is in {_trained(output, config, finish_now)}")


def _embedded_config(files: list[Path], given: dict[str, Any]) -> TrainConfig:
    from calibrator.layout import Layout
    from calibrator.train import TrainConfig
    from calibrator.training_data import Selection

    alike = (
        *("name", "start", "epochs", "learning_rate", "averaging", "device"),
        *("model_dropout", "benchmark_dropout", "addressed_share"),
        *("label_smoothing", "focal_gamma", "soft_labels"),
    )
    return TrainConfig(
        data=tuple(map(str, sorted(files))),
        selection=Selection(**{name: given[name] for name in ("rows", "balance_power", "seed")}),
        layout=Layout(max_tokens=given["max_tokens"]),
        **{f"has_{part}": given[part] for part in PARTS},
        **{name: given[name] for name in alike},
    )


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, or has its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _train_language_model(files: list[Path], output: Path, asked: dict[str, Any]) -> None:
    from calibrator.llm.train import train_llm

    with progress_bar("training", 0) as bar:
        train_llm(
            output,
            config_of(files, asked),
            bar.console.print if sys.stderr.isatty() else say,
            progress=lambda done, total: bar.update(0, completed=done, total=total),
        )


def _trained(folder: Path, config: TrainConfig, finish_now: bool) -> Path:
    """Runs the training with a bar on a terminal, with lines elsewhere."""
    from calibrator.train import train

    with progress_bar("training", 0) as bar:
        return train(
            folder,
            config,
            bar.console.print if sys.stderr.isatty() else partial(typer.echo, err=True),
            progress=lambda done, total: bar.update(0, completed=done, total=total),
            finish_now=finish_now,
        )
