"""`pinocchio train`: it trains a calibrator with the parts of the shipped one on labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import UNUSABLE_INPUT, Files, resumable, say, sentences
from calibrator.errors import TrainingError

if TYPE_CHECKING:
    from calibrator.lab.training.run import TrainConfig

PARTS: Final = ("forest", "abilities", "inspector", "calls", "opinion")
ELSEWHERE: Final = {  # former options of `train`, by the commands that have them now
    "train-llm": (
        *("--preset", "--base", "--text-only", "--elicitation", "--batch-rows", "--micro-tokens"),
        *("--dropout", "--checkpointing", "--no-checkpointing", "--epochs", "--learning-rate"),
        *("--model-dropout", "--benchmark-dropout", "--device"),
    ),
    "tune": ("--from-store", "--tune"),
}
DOES: Final = {
    "train-llm": "trains language models",
    "tune": "fine-tunes the calibrator in use on verdicts or labelled rows",
}

RunFolder = Annotated[
    Path,
    typer.Option(
        "-o", "--output", help="The folder of the run; an interrupted run in it is continued."
    ),
]
Name = Annotated[str, typer.Option(help="The name that the checkpoint carries.")]
TrainingRows = Annotated[
    int, typer.Option(min=0, help="Train on about this many rows; 0 takes all of them.")
]
BalancePower = Annotated[
    float,
    typer.Option(help="Weight of a benchmark: its number of rows to this power; 1 changes none."),
]
MaxTokens = Annotated[
    int, typer.Option(min=16, max=512, help="How many word pieces of a text are read.")
]
AddressedShare = Annotated[
    float, typer.Option(help="Share of rows that get a sentence addressed to the reader.")
]
Seed = Annotated[int, typer.Option(help="The same seed and rows give the same checkpoint.")]
Forest = Annotated[
    bool | None, typer.Option("--forest/--no-forest", help="Boosted trees beside the tower.")
]
Abilities = Annotated[
    bool | None,
    typer.Option(
        "--abilities/--no-abilities",
        help="What a model's name says whatever it is asked, for kinds of text that are new.",
    ),
]
Inspector = Annotated[
    bool | None,
    typer.Option(
        "--inspector/--no-inspector",
        help="Checks that a reply answers and agrees with itself.",
    ),
]
Knowledge = Annotated[
    bool,
    typer.Option(
        "--knowledge", help="Add a small encoder that knows some facts, for short replies."
    ),
]
Calls = Annotated[
    bool | None,
    typer.Option("--calls/--no-calls", help="Trees for replies that call tools."),
]
Opinion = Annotated[
    bool | None,
    typer.Option(
        "--opinion/--no-opinion",
        help="A second stage that reads other models' replies.",
    ),
]


class TrainCommand(TyperCommand):
    """The command `train`; for a former option it names the command that has it now."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; for one that another command has, name that command and exit."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # NoSuchOption, which is click's or a newer typer's own
            name = getattr(error, "option_name", None)
            command = next((each for each, names in ELSEWHERE.items() if name in names), None)
            if command is None:
                raise
            does = f", which {DOES[command]}" if command in DOES else ""
            say(f"pinocchio: {name} is for `pinocchio {command}`{does}; `train` has no such option")
            raise typer.Exit(UNUSABLE_INPUT) from error


def train(
    context: typer.Context,
    files: Files,
    output: RunFolder,
    name: Name = "embedded",
    start: Annotated[
        str, typer.Option(help="Add the parts that you ask for to this checkpoint.")
    ] = "",
    rows: TrainingRows = 0,
    balance_power: BalancePower = 0.85,
    max_tokens: MaxTokens = 192,
    addressed_share: AddressedShare = 0.35,
    forest: Forest = None,
    abilities: Abilities = None,
    inspector: Inspector = None,
    knowledge: Knowledge = False,
    calls: Calls = None,
    opinion: Opinion = None,
    seed: Seed = 20_261_121,
) -> None:
    """Train a calibrator like the shipped one on labelled rows.

    A part that the rows cannot teach is left out, and you are told why. Files with __nc in their
    name (data of non-commercial licences) are left out. See `train-llm` for language models and
    `tune` for fine-tuning the calibrator that you use.
    """
    if forest is False and opinion is None:
        opinion = False  # a second stage needs the forest's numbers
    wishes = dict(zip(PARTS, (forest, abilities, inspector, calls, opinion), strict=True))
    with sentences(), resumable():
        from calibrator.lab.training.run import TrainConfig
        from calibrator.rows.selection import Selection
        from calibrator.text.word_pieces import Layout

        _check(context, start, rows, forest)
        parts: dict[str, Any] = {
            f"has_{part}": not start if wish is None else wish for part, wish in wishes.items()
        }
        config = TrainConfig(
            data=tuple(map(str, sorted(files))),
            name=name,
            start=start,
            selection=Selection(rows=rows, balance_power=balance_power, seed=seed),
            layout=Layout(max_tokens=max_tokens),
            addressed_share=addressed_share,
            has_knowledge=knowledge,
            **parts,
        )
        unasked = [part for part, wish in wishes.items() if wish is None]
        report(run_training(output, config, optional=unasked), config)


def _check(context: typer.Context, start: str, rows: int, forest: bool | None) -> None:
    """Raise TrainingError for options that would have no effect."""
    if start and forest is not None:
        raise TrainingError("a checkpoint to start from keeps its forest; leave out --forest")
    source = context.get_parameter_source("balance_power")
    if not rows and source is not None and source.name == "COMMANDLINE":
        raise TrainingError("--balance-power chooses among rows; say how many with --rows")


def run_training(folder: Path, config: TrainConfig, **options: Any) -> Path:
    """Run a training and return the checkpoint.

    Progress is a bar on a terminal, and lines elsewhere.
    """
    from calibrator.lab.training.train import train as run

    with Progress("training", 0) as bar:
        return run(folder, config, bar.say, progress=bar.update, **options)


def report(checkpoint: Path, config: TrainConfig) -> None:
    """Print the checkpoint's place, its quality beside the shipped one, and how to use it."""
    from calibrator.lab.studies.trained.beside_shipped import MOST_ROWS, beside_shipped

    typer.echo(f"the checkpoint is in {checkpoint}")
    with Progress("comparing", 2 * MOST_ROWS) as bar:
        lines = list(beside_shipped(checkpoint, config, bar.advance))
    for line in (
        *lines,
        "judge it on rows that it did not learn from: "
        f"pinocchio evaluate TEST.jsonl --calibrator {checkpoint}",
        f"to serve it, say in proxy.yaml: calibrator: {{checkpoint: {checkpoint}}}",
    ):
        typer.echo(line)
