"""`pinocchio train-llm`: it trains a language model as a calibrator on labelled rows."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import Files, resumable, sentences
from calibrator.errors import TrainingError
from calibrator.lab.commands.train import RunFolder, TrainingRows
from calibrator.rows.files import check_readable

Preset = Annotated[
    str | None, typer.Option(help="Prompt, base and adapter of a known recipe.  [default: paper]")
]
Base = Annotated[
    str, typer.Option(help="Train this language model, a folder or hub name, not the preset's.")
]
Elicited = Annotated[
    Literal["logit", "probe", "both"],
    typer.Option(help="Take P(correct) from the labels, from a probe of the last state, or both."),
]
BatchRows = Annotated[int, typer.Option(min=1, help="Rows in one step, of all processes together.")]
MicroTokens = Annotated[
    int, typer.Option(min=1, help="Padded tokens in one forward pass, as memory allows.")
]
Dropout = Annotated[
    float, typer.Option(min=0, max=0.9, help="Dropout before each adapter, in training.")
]
Checkpointing = Annotated[bool, typer.Option(help="Use less memory for a third more time.")]


Name = Annotated[str, typer.Option(help="The checkpoint's name, if not the preset's.")]
Start = Annotated[
    str, typer.Option(help="Continue from this checkpoint, which keeps its base and prompt.")
]
TextOnly = Annotated[
    bool, typer.Option("--text-only", help="Show no images to a model that could see them.")
]
BalancePower = Annotated[
    float,
    typer.Option(help="With --rows: a benchmark's share is its rows to this power."),
]
Epochs = Annotated[int, typer.Option(min=1, help="How often all rows are shown.")]
LearningRate = Annotated[
    float, typer.Option(min=1e-7, max=1e-1, help="How far a step of training moves the weights.")
]
ModelDropout = Annotated[float, typer.Option(help="Chance to hide the model's name.")]
BenchmarkDropout = Annotated[float, typer.Option(help="Chance to hide the benchmark's name.")]
Seed = Annotated[int, typer.Option(help="The same seed shuffles alike.")]
Threads = Annotated[
    int,
    typer.Option(
        min=0,
        help="Threads on the CPU; 0 leaves it to PyTorch, which takes all cores. On cores that "
        "others use too, and in containers with a CPU quota, 1 is often fastest.",
    ),
]
Device = Annotated[str, typer.Option(help="auto uses a GPU if there is one.")]


def train_llm(
    files: Files,
    output: RunFolder,
    name: Name = "",
    preset: Preset = None,
    base: Base = "",
    start: Start = "",
    text_only: TextOnly = False,
    elicitation: Elicited = "logit",
    rows: TrainingRows = 0,
    balance_power: BalancePower = 0.85,
    epochs: Epochs = 3,
    learning_rate: LearningRate = (1e-4),
    batch_rows: BatchRows = 16,
    micro_tokens: MicroTokens = 8_192,
    dropout: Dropout = 0.05,
    model_dropout: ModelDropout = 0.2,
    benchmark_dropout: BenchmarkDropout = 0.5,
    checkpointing: Checkpointing = True,
    seed: Seed = 20_261_121,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Train a language model to be a calibrator, with an adapter as in the paper.

    See calibrator/lab/training/llm/training.md. Files with __nc in their name (data of
    non-commercial licences) are left out.
    """
    with sentences(), resumable():
        from calibrator.lab.training.llm.config import PAPER, LlmTrainConfig
        from calibrator.lab.training.llm.processes import use_threads
        from calibrator.lab.training.llm.train import train_llm as run
        from calibrator.rows.selection import Selection

        if start and preset is not None:
            raise TrainingError("a checkpoint to start from keeps its preset; leave out --preset")
        selection = Selection(rows=rows, balance_power=balance_power, seed=seed)
        config = LlmTrainConfig(
            data=tuple(map(str, sorted(files))),
            selection=selection,
            name=name,
            preset=preset or PAPER,
            base=base,
            start=start,
            is_text_only=text_only,
            elicitation=elicitation,
            epochs=epochs,
            learning_rate=learning_rate,
            batch_rows=batch_rows,
            micro_tokens=micro_tokens,
            dropout=dropout,
            model_dropout=model_dropout,
            benchmark_dropout=benchmark_dropout,
            has_checkpointing=checkpointing,
            device=device,
        )
        check_readable(files)
        use_threads(threads)
        with Progress("training", 0) as bar:
            run(output, config, bar.say, progress=bar.update)
