"""`pinocchio train-encoder`: it trains a calibrator with an encoder, as once shipped."""

from __future__ import annotations

from typing import Annotated

import typer

from calibrator.commands.terminal import Files, resumable, sentences
from calibrator.commands.train import (
    AddressedShare,
    BalancePower,
    MaxTokens,
    Name,
    RunFolder,
    Seed,
    TrainingRows,
    report,
    trained,
)

Share = Annotated[
    float, typer.Option(min=0, max=1, help="0.05 trains towards 0.05 and 0.95, not 0 and 1.")
]
FocalGamma = Annotated[
    float, typer.Option(min=0, help="Weigh rows that are already right less; 0 weighs all alike.")
]
SoftLabels = Annotated[
    float, typer.Option(help="Share of the target that is the tower's own estimate.")
]
Averaging = Annotated[
    float, typer.Option(help="Decay of the averaged weights; 0 takes the last weights.")
]


Start = Annotated[
    str, typer.Option(help="Begin from this checkpoint's encoder, not from all-MiniLM-L6-v2.")
]
FinishNow = Annotated[
    bool, typer.Option("--finish-now", help="Stop training; write what there is so far.")
]
Epochs = Annotated[int, typer.Option(min=1, help="How often all rows are shown.")]
LearningRate = Annotated[
    float, typer.Option(min=1e-7, max=1e-1, help="How far a step of training moves the weights.")
]
ModelDropout = Annotated[float, typer.Option(help="Chance to hide the model's name.")]
BenchmarkDropout = Annotated[float, typer.Option(help="Chance to hide the benchmark's name.")]
Tower = Annotated[
    bool, typer.Option(help="Fit a tower over n-grams first; train on what it leaves over.")
]
Inspector = Annotated[
    bool, typer.Option("--inspector", help="Check that a reply answers and is consistent.")
]
Calls = Annotated[
    bool, typer.Option("--calls", help="Fit trees for rows that call tools, from those alone.")
]
Device = Annotated[str, typer.Option(help="auto uses a GPU if there is one.")]


def train_encoder(
    files: Files,
    output: RunFolder,
    name: Name = "embedded",
    start: Start = "",
    finish_now: FinishNow = False,
    rows: TrainingRows = 0,
    epochs: Epochs = 4,
    max_tokens: MaxTokens = 192,
    learning_rate: LearningRate = (1.5e-4),
    balance_power: BalancePower = 0.85,
    model_dropout: ModelDropout = 0.4,
    benchmark_dropout: BenchmarkDropout = 0.8,
    addressed_share: AddressedShare = 0.35,
    label_smoothing: Share = 0.0,
    focal_gamma: FocalGamma = 0.0,
    soft_labels: SoftLabels = 0.0,
    averaging: Averaging = 0.998,
    tower: Tower = True,
    inspector: Inspector = False,
    calls: Calls = False,
    seed: Seed = 20_261_121,
    device: Device = "auto",
) -> None:
    """Train a calibrator with an encoder in place of trees; this takes hours.

    It was no better than the shipped kind (calibrator/ablations.md). Files with __nc in their name
    (data of non-commercial licences) are left out.
    """
    with sentences(), resumable():
        from calibrator.rows.selection import Selection
        from calibrator.text.layout import Layout
        from calibrator.training.run import TrainConfig

        config = TrainConfig(
            data=tuple(map(str, sorted(files))),
            name=name,
            start=start,
            selection=Selection(rows=rows, balance_power=balance_power, seed=seed),
            layout=Layout(max_tokens=max_tokens),
            epochs=epochs,
            learning_rate=learning_rate,
            model_dropout=model_dropout,
            benchmark_dropout=benchmark_dropout,
            addressed_share=addressed_share,
            label_smoothing=label_smoothing,
            focal_gamma=focal_gamma,
            soft_labels=soft_labels,
            averaging=averaging,
            has_tower=tower,
            has_encoder=True,
            has_inspector=inspector,
            has_calls=calls,
            device=device,
        )
        report(trained(output, config, finish_now=finish_now), config)
