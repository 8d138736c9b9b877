"""Train an encoder on the tower's residual: its logit is added to the tower's.

The base is all-MiniLM-L6-v2 or an earlier checkpoint. The learning rate is constant until the last
part of the run, and the shipped weights are a running average, so that a checkpoint can be made
at any moment.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from calibrator.checkpoints.checkpoint import EncoderConfig, resolve_checkpoint
from calibrator.checkpoints.devices import choose_device
from calibrator.embedded.parts import read_checkpoint
from calibrator.embedded.torch_encoder import CrossEncoderModel, collate, load_base, load_weights
from calibrator.metrics.metrics import Floats
from calibrator.text.layout import TokenRow, assemble
from calibrator.training.examples import Batch, Example, Visits
from calibrator.training.run import STATE
from calibrator.training.stages.averaging import AveragedAdam
from calibrator.training.stages.tower_stage import TowerStage

if TYPE_CHECKING:
    from calibrator.training.run import Run, TrainConfig, TrainData

FEATURE_BATCH = 32
NAMED = (0.0, 1.0)  # (model, benchmark) dropout, as rows of known models are served


def load_start(model: CrossEncoderModel, name: str) -> None:
    """Copy a checkpoint's encoder and head into `model`.

    For a checkpoint without a side tower the head's last layer begins at zero, because the tower
    says the same (stacked on validation questions, its logit got a weight of 0.04).
    """
    found = read_checkpoint(resolve_checkpoint(name))
    load_weights(model, found.weights)
    if found.parts.tower is None:
        model.weaken(0)


def loss_of(
    model: CrossEncoderModel, batch: Batch, device: torch.device, config: TrainConfig
) -> Tensor:
    """Return the cross-entropy on the label alone (paper B10), with the tower's log-odds added.

    Targets may be soft. The focal weight (1 - p_t) ** gamma (Lin et al., 2017) is off at 0.
    """
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
    """Return the rate: linear warm-up, constant, linear to zero in the last `decay_share`.

    `seen` and `total` are rows. The paper's E09 states no schedule. The rate does not depend on a
    run's length until the end, so that a checkpoint can be made at any time (Hägele et al., 2024).
    """
    warm = (seen + 1) / config.warmup_rows if config.warmup_rows else 1.0
    falling = (total - seen) / max(1.0, total * config.decay_share)
    return config.learning_rate * max(0.0, min(1.0, warm, falling))


class EncoderRun:
    """The encoder's part of a run: its weights, and its position."""

    def __init__(self, run: Run, base: Path) -> None:
        config = run.config
        self.run, self.config = run, config
        self.device = choose_device(config.device)
        torch.manual_seed(config.seed)
        self.geometry = EncoderConfig()
        self.model = CrossEncoderModel(self.geometry, attention="eager").to(self.device)
        if config.start:
            load_start(self.model, config.start)
        else:
            load_base(self.model, base)
        self.model.ready_for_training()
        self.optimizer = AveragedAdam(
            self.model, config.weight_decay, config.gradient_norm, config.averaging
        )
        self.epoch = self.batch = self.rows_seen = 0  # `batch` counts within the epoch
        self.watched: list[float] = []  # validation losses so far
        if (run.folder / STATE).exists():
            self._go_on()

    def _go_on(self) -> None:
        state = torch.load(self.run.folder / STATE, weights_only=True, map_location=self.device)
        self.optimizer.load_state(state["optimizer"])
        self.epoch, self.batch, self.rows_seen = state["position"]
        self.watched = state["watched"]
        torch.set_rng_state(state["rng"].cpu())  # so that dropout continues
        self.run.say(f"going on after {self.rows_seen} rows")

    def save_state(self) -> None:
        state = {
            "optimizer": self.optimizer.state(),
            "position": (self.epoch, self.batch, self.rows_seen),
            "watched": self.watched,
            "rng": torch.get_rng_state(),
        }
        partial = self.run.folder / "state.tmp"
        torch.save(state, partial)
        partial.replace(self.run.folder / STATE)

    def fit(
        self,
        data: TrainData,
        tower: TowerStage,
        progress: Callable[[int, int], None],
        save_every_s: float,
    ) -> None:
        """Train to the end, from the start or a saved state.

        `progress` is called after each step with the number of rows shown, and the total. The state
        is saved every `save_every_s` seconds and at the end.
        """
        total = round(float(data.weights.sum())) * self.config.epochs
        self.run.say(f"{len(data.train)} rows, {total} visits planned")
        self.model.train()
        clock = Clock(self, total, save_every_s)
        while not self.is_over:
            for batch in self.epoch_batches(data, tower):
                clock.tick(self.update(batch, total), lambda: self.watch(data, tower))
                progress(self.rows_seen, total)
                if self.is_over:
                    break
            else:
                self.epoch, self.batch = self.epoch + 1, 0
        self.save_state()

    def visits(self, dropout: tuple[float, float] | None = None) -> Visits:
        """Return how rows are shown in training, or with the given (model, benchmark) dropout."""
        c = self.config
        model, benchmark = dropout or (c.model_dropout, c.benchmark_dropout)
        return Visits(self.run.tags, c.layout, c.token_budget, model, benchmark)

    def epoch_batches(self, data: TrainData, tower: TowerStage) -> Iterator[Batch]:
        """Yield the remaining batches of the current epoch.

        Their order depends on the seed and the epoch's number alone.
        """
        rng = random.Random(f"{self.config.seed} epoch {self.epoch}")
        visits = self.visits()
        order = visits.order(data.weights, rng)
        every = visits.batches(data.train, tower.train_logits, order, rng)
        return islice(every, self.batch, None)

    def update(self, batch: Batch, total: int) -> float:
        """Take one optimizer step, and return the loss."""
        loss = loss_of(self.model, batch, self.device, self.config)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        self.optimizer.step(learning_rate(self.rows_seen, self.config, total))
        self.batch += 1
        self.rows_seen += len(batch.rows)
        return loss.item()

    def watch(self, data: TrainData, tower: TowerStage) -> float:
        """Return the averaged weights' loss on some validation rows, named as in service.

        The loss is appended to `watched`.
        """
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
            targets, scores = self.predict(given)
        p = np.clip(scores, 1e-6, 1 - 1e-6)
        loss = -float(np.mean(targets * np.log(p) + (1 - targets) * np.log(1 - p)))
        self.watched.append(loss)
        return loss

    @torch.inference_mode()
    def predict(self, given: Iterable[Batch]) -> tuple[Floats, Floats]:
        """Return targets and P(correct) of all rows, in the batches' order."""
        self.model.eval()
        targets: list[float] = []
        scores: list[float] = []
        for batch in given:
            logits = self.model(*(t.to(self.device) for t in collate(batch.rows)))
            odds = logits[:, 1] - logits[:, 0] + torch.tensor(batch.offsets, device=self.device)
            scores += torch.sigmoid(odds).tolist()
            targets += batch.targets
        self.model.train()
        return np.array(targets), np.array(scores)

    @torch.inference_mode()
    def features_of(self, examples: Sequence[Example]) -> NDArray[np.float32]:
        """Return the features (N, D) of examples, every other one with its tags."""
        self.model.eval()
        rows = [self._token_row(each, is_tagged=i % 2 == 1) for i, each in enumerate(examples)]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
        found: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), FEATURE_BATCH):
            chosen = order[start : start + FEATURE_BATCH]
            tokens = (t.to(self.device) for t in collate([rows[i] for i in chosen]))
            features = self.model.features(*tokens).float().cpu().numpy()
            found.update(zip(chosen, features, strict=True))
        self.model.train()
        return np.stack([found[i] for i in range(len(rows))])

    def _token_row(self, example: Example, is_tagged: bool) -> TokenRow:
        tags = self.run.tags
        told = tags(example.benchmark, example.source_model) if is_tagged else tags(None, None)
        question, answer = example.question.tolist(), example.answer.tolist()
        return assemble(told, question, answer, self.config.layout)

    @property
    def is_over(self) -> bool:
        """Whether all epochs are done, or the loss has not fallen for `patience` measurements."""
        best = int(np.argmin(self.watched)) if self.watched else 0
        return self.epoch >= self.config.epochs or len(self.watched) - best > self.config.patience


class Clock:
    """The actions between steps: a line of progress, the validation loss, the saved state."""

    def __init__(self, encoder: EncoderRun, total: int, save_every_s: float) -> None:
        self.encoder, self.total, self.save_every_s = encoder, total, save_every_s
        self.started = self.saved = time.monotonic()
        self.first = encoder.rows_seen
        self.losses: list[float] = []

    def tick(self, loss: float, watch: Callable[[], float]) -> None:
        """Record a step's loss, and log, call `watch` and save the state when each is due."""
        run, every = self.encoder, self.encoder.config.watch_every_rows
        self.losses.append(loss)
        if len(self.losses) == 50:
            recent = sum(self.losses) / 50
            pace = (time.monotonic() - self.started) / max(1, run.rows_seen - self.first)
            run.run.say(
                f"{run.rows_seen}/{self.total} rows  loss {recent:.4f}  {pace * 1e3:.0f} ms a row"
                f"  {pace * (self.total - run.rows_seen) / 60:.0f} min left"
            )
            run.run.log(rows=run.rows_seen, loss=round(recent, 5))
            self.losses = []
        if run.rows_seen // every > len(run.watched):
            found = watch()
            run.run.say(f"validation loss {found:.4f}")
            run.run.log(rows=run.rows_seen, validation_loss=round(found, 5))
        if time.monotonic() - self.saved > self.save_every_s:
            run.save_state()
            self.saved = time.monotonic()
