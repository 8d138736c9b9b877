"""`pinocchio train` where it is a language model that is trained: from options to a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from calibrator.errors import TrainingError

if TYPE_CHECKING:
    from calibrator.llm.training.config import LlmTrainConfig

Preset = Annotated[
    str, typer.Option(help="Train a language model instead, as the paper does: paper.")
]
Base = Annotated[
    str, typer.Option(help="The language model, a folder or hub name, if not the preset's.")
]
TextOnly = Annotated[bool, typer.Option("--text-only", help="Show no images to one that sees.")]
Elicited = Annotated[
    Literal["logit", "probe", "both"],
    typer.Option(help="P(correct) from the labels, from a probe of the last state, or both."),
]
BatchRows = Annotated[int, typer.Option(min=1, help="Rows of a step, all processes together.")]
MicroTokens = Annotated[
    int, typer.Option(min=1, help="Padded tokens of one forward pass, as memory allows.")
]
Dropout = Annotated[float, typer.Option(min=0, max=0.9, help="Before each adapter, in training.")]
Checkpointing = Annotated[bool, typer.Option(help="Less memory for a third more time.")]

OWN: Final = ("preset", "base", "text_only", "elicitation", "batch_rows", "micro_tokens", "dropout")
_FIELDS: Final = {"text_only": "is_text_only", "checkpointing": "has_checkpointing"}
_TAKEN: Final = (
    *OWN,
    *("name", "start", "epochs", "learning_rate", "model_dropout", "benchmark_dropout"),
    *("checkpointing", "device"),
)
_SELECTION: Final = ("rows", "balance_power", "seed")
_ELSEWHERE: Final = ("files", "output")


def wants_language_model(asked: Mapping[str, Any]) -> bool:
    """Whether options that were given are those of a language model, or start from one.

    Raises CheckpointError or HubError for a start that cannot be had.
    """
    if any(name in asked for name in OWN):
        return True
    if not asked.get("start"):
        return False
    from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint
    from calibrator.checkpoints.llm_config import LlmConfig

    found = read_config(resolve_checkpoint(asked["start"]), asked["start"])
    return isinstance(found, LlmConfig)


def config_of(files: Sequence[Path], asked: Mapping[str, Any]) -> LlmTrainConfig:
    """A run's configuration from the options that were given; raises TrainingError for one that
    belongs to the embedded calibrator."""
    from calibrator.llm.training.config import LlmTrainConfig
    from calibrator.rows.selection import Selection

    if strange := sorted(set(asked) - {*_TAKEN, *_SELECTION, *_ELSEWHERE}):
        option = strange[0].replace("_", "-")
        raise TrainingError(f"--{option} is for the embedded calibrator; leave it out here")
    if "start" in asked and "preset" in asked:
        raise TrainingError("a checkpoint to start from keeps its preset; leave out --preset")
    return LlmTrainConfig(
        data=tuple(map(str, sorted(files))),
        selection=Selection(**{name: asked[name] for name in _SELECTION if name in asked}),
        **{_FIELDS.get(name, name): asked[name] for name in _TAKEN if name in asked},
    )
