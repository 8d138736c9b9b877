"""`pinocchio train`: it trains a calibrator on labelled rows.

Either one with the parts of the shipped one, or a language model with an adapter as in the paper.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import typer

from calibrator.commands.progress import Progress
from calibrator.commands.terminal import Files, refuse, resumable, sentences
from calibrator.errors import TrainingError
from calibrator.rows.files import check_readable

if TYPE_CHECKING:
    from calibrator.lab.training.run import TrainConfig
    from calibrator.rows.selection import Selection

PART_NAMES: Final = ("forest", "abilities", "inspector", "knowledge", "calls", "opinion")
EXTRA: Final = ("knowledge",)  # only where it is asked for
OF_LLM: Final = ("preset", "base", "text_only", "elicitation", "epochs", "learning_rate")
OF_PARTS: Final = ("having", "without")
LLM_PANEL: Final = "Language models"


class Bounds(NamedTuple):
    """The smallest and largest value of a setting, and whether it must be a whole number."""

    low: float
    high: float
    is_whole: bool = False


BALANCE: Final = {"balance_power": Bounds(0, 1)}
SETTINGS: Final = {"max_tokens": Bounds(16, 512, True), "addressed_share": Bounds(0, 1)} | BALANCE
LLM_SETTINGS: Final = {
    "batch_rows": Bounds(1, 1e9, True),
    "micro_tokens": Bounds(1, 1e9, True),
    "dropout": Bounds(0, 0.9),
    "model_dropout": Bounds(0, 1),
    "benchmark_dropout": Bounds(0, 1),
    "checkpointing": Bounds(0, 1, True),
} | BALANCE

RunFolder = Annotated[
    Path,
    typer.Option(
        "-o", "--output", help="The folder of the run; an interrupted run in it is continued."
    ),
]
Name = Annotated[
    str, typer.Option(help="The checkpoint's name; else `embedded`, or the language model's.")
]
Start = Annotated[
    str,
    typer.Option(
        help="Begin with this checkpoint: add the parts of --with to it, or continue to train a "
        "language model, which keeps its base and prompt."
    ),
]
TrainingRows = Annotated[
    int, typer.Option(min=0, help="Train on about this many rows; 0 takes all of them.")
]
Seed = Annotated[int, typer.Option(help="The same seed and rows give the same checkpoint.")]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="PART",
        help=f"Insist on a part, which is else left out where the rows cannot teach it; repeat. "
        f"Parts beside the tower: {', '.join(PART_NAMES)}; knowledge only if named here.",
    ),
]
Without = Annotated[
    list[str] | None, typer.Option(metavar="PART", help="Leave out a part; repeat.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help=f"Another setting of the recipe: {', '.join(SETTINGS)}; of a language model "
        f"{', '.join(LLM_SETTINGS)}; repeat.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=LLM_PANEL, help="Train a language model by this recipe, such as paper."
    ),
]
Base = Annotated[
    str,
    typer.Option(
        rich_help_panel=LLM_PANEL,
        help="Train this language model, a folder or hub name, not the preset's.",
    ),
]
TextOnly = Annotated[
    bool,
    typer.Option(
        "--text-only",
        rich_help_panel=LLM_PANEL,
        help="Show no images to a model that could see them.",
    ),
]
Elicited = Annotated[
    Literal["logit", "probe", "both"],
    typer.Option(
        rich_help_panel=LLM_PANEL,
        help="Take P(correct) from the labels, from a probe of the last state, or both.",
    ),
]
Epochs = Annotated[
    int, typer.Option(min=1, rich_help_panel=LLM_PANEL, help="How often all rows are shown.")
]
LearningRate = Annotated[
    float,
    typer.Option(
        min=1e-7,
        max=1e-1,
        rich_help_panel=LLM_PANEL,
        help="How far a step of training moves the weights.",
    ),
]


def train(
    context: typer.Context,
    files: Files,
    output: RunFolder,
    name: Name = "",
    start: Start = "",
    rows: TrainingRows = 0,
    having: With = None,
    without: Without = None,
    seed: Seed = 20_261_121,
    settings: Settings = None,
    preset: Preset = None,
    base: Base = "",
    text_only: TextOnly = False,
    elicitation: Elicited = "logit",
    epochs: Epochs = 3,
    learning_rate: LearningRate = 1e-4,
) -> None:
    """Train a calibrator on labelled rows: like the shipped one, or a language model.

    A part that the rows cannot teach is left out, and you are told why. With --preset, --base, or
    --start of one, a language model is trained, see calibrator/lab/training/llm/training.md. Files
    with __nc in their name (data of non-commercial licences) are left out. `tune` fine-tunes the
    calibrator that you use.
    """
    with sentences(), resumable():
        from calibrator.rows.selection import Selection

        is_llm = bool(preset or base) or _is_llm(start)
        if is_llm:
            refuse(context, OF_PARTS, "is not for language models; leave it out")
        else:
            refuse(context, OF_LLM, "is for language models: add --preset paper, or --base")
        values = parse_settings(settings or (), LLM_SETTINGS if is_llm else SETTINGS)
        if "balance_power" in values and not rows:
            raise TrainingError("balance_power chooses among rows; say how many with --rows")
        power = values.pop("balance_power", 0.85)
        selection = Selection(rows=rows, balance_power=power, seed=seed)
        if not is_llm:
            _train_parts(output, files, name, start, selection, having, without, values)
            return
        if start and preset is not None:
            raise TrainingError("a checkpoint to start from keeps its preset; leave out --preset")
        chosen = {"preset": preset} if preset else {}
        llm = {"base": base, "is_text_only": text_only, "elicitation": elicitation}
        llm |= {"epochs": epochs, "learning_rate": learning_rate, "start": start, "name": name}
        if "checkpointing" in values:
            values["has_checkpointing"] = bool(values.pop("checkpointing"))
        _train_llm(output, files, {**llm, **chosen, **values, "selection": selection})


def parse_settings(texts: Sequence[str], known: Mapping[str, Bounds]) -> dict[str, Any]:
    """Return the values of settings such as `batch_rows=64` by name, as int or float.

    `true` counts as 1. Raises TrainingError for an unknown name, and for a value out of its bounds.
    """
    found: dict[str, Any] = {}
    for each in texts:
        name, _, text = each.partition("=")
        if name not in known:
            raise TrainingError(f"--set knows {', '.join(known)}, not {name!r}")
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        low, high, is_whole = known[name]
        if not isinstance(value, int if is_whole else int | float) or not low <= value <= high:
            number = "a whole number" if is_whole else "a number"
            raise TrainingError(f"--set {name} takes {number} from {low:g} to {high:g}: {each}")
        found[name] = int(value) if is_whole else float(value)
    return found


def _is_llm(start: str) -> bool:
    """Return whether a checkpoint is a language model; False for an empty name."""
    from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint
    from calibrator.checkpoints.llm_config import LlmConfig

    return bool(start) and isinstance(read_config(resolve_checkpoint(start), start), LlmConfig)


def _train_llm(output: Path, files: Sequence[Path], values: Mapping[str, Any]) -> None:
    """Train a language model with these values of an LlmTrainConfig, while progress is shown."""
    from calibrator.lab.training.llm.config import LlmTrainConfig
    from calibrator.lab.training.llm.train import train_llm as run

    config = LlmTrainConfig(data=tuple(map(str, sorted(files))), **values)
    check_readable(files)
    with Progress("training", 0) as bar:
        run(output, config, bar.say, progress=bar.update)


def _train_parts(
    output: Path,
    files: Sequence[Path],
    name: str,
    start: str,
    selection: Selection,
    having: Sequence[str] | None,
    without: Sequence[str] | None,
    settings: Mapping[str, Any],
) -> None:
    """Train a calibrator like the shipped one, or add parts to one, and print what came of it.

    `settings` has max_tokens and addressed_share where they were set.
    """
    from calibrator.lab.training.run import TrainConfig
    from calibrator.text.word_pieces import Layout

    wishes = _wishes(having or (), without or ())
    if start and wishes["forest"] is not None:
        raise TrainingError("a checkpoint to start from keeps its forest; name other parts")
    parts: dict[str, Any] = {
        f"has_{part}": (not start and part not in EXTRA) if wish is None else wish
        for part, wish in wishes.items()
    }
    values = dict(settings)
    layout = Layout(max_tokens=values.pop("max_tokens", 192))
    config = TrainConfig(
        data=tuple(map(str, sorted(files))),
        name=name or "embedded",
        start=start,
        selection=selection,
        layout=layout,
        **values,
        **parts,
    )
    unasked = [part for part, wish in wishes.items() if wish is None and part not in EXTRA]
    report(run_training(output, config, optional=unasked), config)


def _wishes(having: Sequence[str], without: Sequence[str]) -> dict[str, bool | None]:
    """Return for each part True if it is asked for, False if it is left out, None if neither.

    Raises TrainingError for an unknown part, and for one that is named in both.
    """
    for part in (*having, *without):
        if part not in PART_NAMES:
            raise TrainingError(f"there is no part {part!r}; there are: {', '.join(PART_NAMES)}")
    if both := sorted({*having} & {*without}):
        raise TrainingError(f"--with and --without both name {both[0]}")
    wishes: dict[str, bool | None] = dict.fromkeys(PART_NAMES)
    wishes |= dict.fromkeys(having, True) | dict.fromkeys(without, False)
    if wishes["forest"] is False and wishes["opinion"] is None:
        wishes["opinion"] = False  # a second stage needs the forest's numbers
    return wishes


def run_training(folder: Path, config: TrainConfig, **options: Any) -> Path:
    """Run a training in `folder`, or continue one, and return the checkpoint's folder.

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
