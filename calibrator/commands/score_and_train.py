"""The commands of researchers: `score` and `train`; the modules of the others are joined here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from calibrator.commands.advise import advise
from calibrator.commands.evaluate import card, evaluate
from calibrator.commands.progress import Progress
from calibrator.commands.recalibrate import recalibrate
from calibrator.commands.study import study
from calibrator.commands.survey import survey
from calibrator.commands.terminal import (
    Calibrator,
    Device,
    Files,
    RecalibrationFile,
    Rescore,
    check_target,
    file_option,
    is_among,
    report_bad,
    resumable,
    say,
    sentences,
    writer,
)
from calibrator.commands.train_llm import (
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
from calibrator.errors import ClusterError, OutputError, RowError
from calibrator.rows.files import check_readable
from calibrator.rows.row_fields import SAMPLE

if TYPE_CHECKING:
    from calibrator.rows.rows import ImageUse, Row
    from calibrator.rows.shards import Options
    from calibrator.training.run import TrainConfig

cli = typer.Typer(no_args_is_help=True)
for command in (advise, evaluate, card, study, survey, recalibrate):
    cli.command()(command)


Rows = Annotated[
    list[Path],
    typer.Argument(
        help="JSON lines with question or messages, and response; .gz is read too. "
        f"A sample: {SAMPLE}"
    ),
]
Output = Annotated[
    Path | None, file_option("-o", "--output", help="Where to write; stdout otherwise.")
]
ToldNames = Annotated[
    Literal["served", "all", "none"],
    typer.Option(help="Names told to the calibrator: the model's, the benchmark's too, none."),
]
Brief = Annotated[
    bool,
    typer.Option("--brief", help="Write ids and scores alone; a row without id gets a digest."),
]
IgnoreImages = Annotated[
    bool, typer.Option("--ignore-images", help="Score the text alone where no image can be read.")
]
Engine = Annotated[
    Literal["process", "ray"],
    typer.Option(help="ray: on a Ray cluster, in parts, for millions of rows; needs -o."),
]
RayAddress = Annotated[
    str, typer.Option(envvar="RAY_ADDRESS", help="A Ray cluster; else one of this machine's.")
]
Actors = Annotated[
    int, typer.Option(min=0, help="Calibrators on Ray; 0 is one for each core or GPU.")
]


@cli.command()
def score(
    rows: Rows,
    output: Output = None,
    calibrator: Calibrator = "embedded",
    device: Device = "auto",
    tags: ToldNames = "served",
    recalibration: RecalibrationFile = None,
    rescore: Rescore = False,
    brief: Brief = False,
    ignore_images: IgnoreImages = False,
    engine: Engine = "process",
    ray_address: RayAddress = "",
    actors: Actors = 0,
) -> None:
    """Give every row a `score` (raw) and a `confidence`; a bad row is named and left out.

    Scores are kept as they are made: the same command goes on after an interruption.
    """
    if engine == "ray":
        from calibrator.rows.shards import Options

        calibrating = (calibrator, device, recalibration)
        options = Options(tags, is_brief=brief, ignores_images=ignore_images)
        _score_on_ray(rows, output, calibrating, options, ray_address, actors)
        return
    from calibrator.loading import load_scorer
    from calibrator.rows.kept_scores import keeping, reused_sentence
    from calibrator.rows.scores import image_use, score_items, scored_line

    with sentences(), resumable():
        may_be_input = len(rows) == 1 and not brief  # all of a row is written again
        check_target(output, [recalibration, *([] if may_be_input else rows)])
        check_readable(rows)
        scorer = load_scorer(calibrator, device, recalibration=recalibration)
        scorer = keeping(scorer, device, is_renewed=rescore)
        good, bad = _rows(rows, image_use(scorer, are_ignored=ignore_images))
        if bad and output and is_among(output, rows):
            raise OutputError(f"{output} would lose its bad rows ({bad[0]}); name another file")
        with Progress("scoring", len(good)) as progress:
            scores = score_items(scorer, [row.item(tags) for row in good], progress.advance)
        if sentence := reused_sentence(scorer):
            say(sentence)
        with writer(output) as stream:
            for row, found in zip(good, scores, strict=True):
                stream.write(scored_line(row, found, scorer.name, tags, is_brief=brief))
    report_bad(bad, len(good) + len(bad))


def _rows(files: Sequence[Path], use: ImageUse) -> tuple[list[Row], list[RowError]]:
    """The rows that can be scored, and what is wrong with the others."""
    from calibrator.rows.rows import Row, read_rows

    read = [row for path in files for _, row in read_rows(path, use)]
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
    with sentences(), resumable():
        from calibrator.cluster.ray_scoring import Calibrating, score_files
        from calibrator.rows.shards import begin

        if output is None:
            raise ClusterError("--engine ray needs -o OUT: what is done is kept beside it")
        check_target(output, [calibrating[-1], *rows])
        check_readable(rows)
        told = Calibrating.told(*calibrating)
        run = begin(output, rows, told.version(), options)
        with Progress("scoring on Ray", None) as bar:
            score_files(run, told, address=address, actors=actors, progress=bar.advance)
        bad, total = run.check()
        with writer(output) as stream:
            run.write_all(stream)
        run.remove()
    report_bad(bad, total)


PARTS = ("tower", "forest", "encoder", "inspector", "calls", "opinion")
Share = Annotated[
    float, typer.Option(min=0, max=1, help="0.05 trains towards 0.05 and 0.95, not 0 and 1.")
]
FocalGamma = Annotated[
    float, typer.Option(min=0, help="Weigh rows that are already right less; 0 weighs all alike.")
]
Forest = Annotated[bool, typer.Option("--forest", help="With boosted trees beside the tower.")]
Encoder = Annotated[
    bool, typer.Option("--encoder", help="With an encoder instead of trees; takes hours.")
]


RunFolder = Annotated[
    Path, typer.Option("-o", "--output", help="The run's folder; an interrupted run goes on.")
]
Start = Annotated[str, typer.Option(help="A checkpoint to begin from, or to add such parts to.")]
FinishNow = Annotated[
    bool, typer.Option("--finish-now", help="Train no further: a checkpoint of what there is.")
]
LearningRate = Annotated[
    float, typer.Option(min=1e-7, max=1e-1, help="Step size (language models: 1e-4).")
]
BalancePower = Annotated[
    float,
    typer.Option(
        help="Weight of a benchmark is its rows to this power; 1 leaves them as they are."
    ),
]
AddressedShare = Annotated[
    float, typer.Option(help="Share of rows that get a sentence addressed to the reader.")
]
SoftLabels = Annotated[
    float, typer.Option(help="Share of the target that is the tower's own estimate.")
]
Averaging = Annotated[
    float, typer.Option(help="Decay of the averaged weights; 0 takes the last weights.")
]
Inspector = Annotated[
    bool,
    typer.Option("--inspector", help="With checks that a reply answers and agrees with itself."),
]
Calls = Annotated[
    bool,
    typer.Option("--calls", help="With trees for rows that call tools; they learn from no others."),
]
Opinion = Annotated[
    bool,
    typer.Option(
        "--opinion", help="With --start: a second stage that reads what other models replied."
    ),
]


@cli.command()
def train(
    context: typer.Context,
    files: Files,
    output: RunFolder,
    name: Annotated[str, typer.Option(help="The checkpoint's name.")] = "embedded",
    start: Start = "",
    finish_now: FinishNow = False,
    rows: Annotated[int, typer.Option(min=0, help="This many training rows; 0 takes all.")] = 0,
    epochs: Annotated[
        int, typer.Option(min=1, help="Passes over the data (language models: 3).")
    ] = 4,
    max_tokens: Annotated[int, typer.Option(min=16, max=512, help="Word pieces read.")] = 192,
    learning_rate: LearningRate = 1.5e-4,
    balance_power: BalancePower = 0.85,
    model_dropout: Annotated[float, typer.Option(help="Chance to hide the model's name.")] = 0.4,
    benchmark_dropout: Annotated[
        float, typer.Option(help="Chance to hide the benchmark's name.")
    ] = 0.8,
    addressed_share: AddressedShare = 0.35,
    label_smoothing: Share = 0.0,
    focal_gamma: FocalGamma = 0.0,
    soft_labels: SoftLabels = 0.0,
    averaging: Averaging = 0.998,
    tower: Annotated[bool, typer.Option(help="With the tower over n-grams.")] = True,
    forest: Forest = False,
    encoder: Encoder = False,
    inspector: Inspector = False,
    calls: Calls = False,
    opinion: Opinion = False,
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
    """Train a calibrator on labelled rows.

    The embedded one, or with --preset a language model: see calibrator/llm/training.md. Files with
    __nc in their name (data of non-commercial licences) are left out.
    """
    asked = {name: value for name, value in context.params.items() if _is_given(context, name)}
    with sentences(), resumable():
        if wants_language_model(asked):
            _train_language_model(files, output, asked)
        else:
            config = _embedded_config(files, context.params)
            checkpoint = _trained(output, config, finish_now)
            typer.echo(f"the checkpoint is in {checkpoint}")
            _print_what_to_do(checkpoint, config)


def _print_what_to_do(checkpoint: Path, config: TrainConfig) -> None:
    """What it is worth beside the shipped one, how to judge it and where to name it."""
    from calibrator.studies.beside_shipped import MOST_ROWS, beside_shipped

    with Progress("comparing", 2 * MOST_ROWS) as bar:
        lines = list(beside_shipped(checkpoint, config, bar.advance))
    for line in (
        *lines,
        "judge it on rows that it did not learn from: "
        f"pinocchio evaluate TEST.jsonl --calibrator {checkpoint}",
        f"to serve it, say in proxy.yaml: calibrator: {{checkpoint: {checkpoint}}}",
    ):
        typer.echo(line)


def _embedded_config(files: list[Path], given: dict[str, Any]) -> TrainConfig:
    from calibrator.rows.selection import Selection
    from calibrator.text.layout import Layout
    from calibrator.training.run import TrainConfig

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
    from calibrator.llm.training.train import train_llm

    check_readable(files)
    with Progress("training", 0) as bar:
        train_llm(
            output,
            config_of(files, asked),
            bar.say,
            progress=bar.update,
        )


def _trained(folder: Path, config: TrainConfig, finish_now: bool) -> Path:
    """Runs the training with a bar on a terminal, with lines elsewhere."""
    from calibrator.training.train import train

    with Progress("training", 0) as bar:
        return train(
            folder,
            config,
            bar.say,
            progress=bar.update,
            finish_now=finish_now,
        )
