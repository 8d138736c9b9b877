"""Train an adapter with cross-entropy on the answer token alone (B10).

The loss is over the whole vocabulary, as the paper's; for one position that is a single row of
logits. The score (B09) would be the same from the two labels' own cross-entropy, but a model that
answers with a label also works with engines that return the likeliest tokens only.

A step depends on the seed, its number and the process alone. So an interrupted run resumes without
a difference, and two processes end with the result of one (except for dropout, which each draws
itself).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import cross_entropy

from calibrator.errors import TrainingError
from calibrator.lab.training.llm.adapters import adapter_state, adapter_weights, set_adapter_state
from calibrator.lab.training.llm.config import LlmTrainConfig
from calibrator.lab.training.llm.processes import Processes
from calibrator.lab.training.llm.samples import (
    Sample,
    Samples,
    hidden_names,
    step_numbers,
    steps_of_epoch,
)
from calibrator.lab.training.llm.states import last_states, pack_batches, precision
from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.llm.serving.model import ModelRow
from calibrator.metrics.metrics import Floats
from calibrator.recalibration.curves import sigmoid

STATE = "state.pt"


@dataclass(slots=True)
class RunProgress:
    """The position of a run; `losses` are the validation losses after each epoch."""

    step: int = 0
    losses: list[float] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)  # the adapter of the best epoch


class AdapterRun:
    """An adapter in training; `calibrator` reads samples with it, `adapted` is the same model."""

    def __init__(
        self,
        folder: Path,
        config: LlmTrainConfig,
        calibrator: LlmCalibrator,
        adapted: PeftModel,
        processes: Processes,
        say: Callable[[str], None],
    ) -> None:
        """Set up the optimizer, and continue from `state.pt` if the folder has it.

        `say` gets lines of progress. With `config.has_checkpointing` the base is switched to
        computing its activations twice, which saves memory. Raises TrainingError for a state that
        cannot be loaded.
        """
        self.folder, self.config, self.processes, self.say = folder, config, processes, say
        self.calibrator, self.adapted = calibrator, adapted
        self.parameters = list(adapter_weights(adapted).values())
        self.adam = torch.optim.AdamW(
            self.parameters, lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.at = RunProgress()
        if config.has_checkpointing:
            calibrator.model.model.activation_checkpointing_enable({"use_reentrant": False})
        if (folder / STATE).exists():
            self._go_on()

    # --- state ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Load step, losses, adapter, best adapter and optimizer from `state.pt`, and report it.

        Raises TrainingError, with the advice to remove the file, if it cannot be loaded.
        """
        path = self.folder / STATE
        try:
            state = torch.load(path, weights_only=True, map_location="cpu")
            self.at = RunProgress(state["step"], state["losses"], state["best"])
            set_adapter_state(self.adapted, state["adapter"])
            self.adam.load_state_dict(state["adam"])
        except Exception as error:  # torch and pickle may raise anything
            raise TrainingError(f"{path} cannot be gone on from: {error}; remove it") from error
        self.say(f"going on after {self.at.step} steps")

    def save_state(self) -> None:
        """Write `state.pt` in the first process; do nothing in the others.

        It is written as `state.tmp` and then renamed, so that it is never incomplete.
        """
        if not self.processes.is_first:
            return
        state = {
            "step": self.at.step,
            "losses": self.at.losses,
            "best": self.at.best,
            "adapter": adapter_state(self.adapted),
            "adam": self.adam.state_dict(),
        }
        partial = self.folder / "state.tmp"
        torch.save(state, partial)
        partial.replace(self.folder / STATE)

    # --- training -------------------------------------------------------------------------------

    def fit(
        self,
        samples: Samples,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
        save_every_s: float = 600,
    ) -> None:
        """Train all epochs, from the start or a saved state; then load the best epoch's adapter.

        The best is the epoch with the least loss on the validation samples. `progress` is called
        after each step with the number of steps, and the total. The state is saved after each epoch
        and every `save_every_s` seconds; `say` gets the mean loss of each 50 steps.
        """
        each = steps_of_epoch(len(samples.train), self.config.batch_rows)
        total = each * self.config.epochs
        saved = time.monotonic()
        recent: list[float] = []
        while self.at.step < total:
            recent.append(self.update(samples.train, total))
            self.at.step += 1
            progress(self.at.step, total)
            if len(recent) == 50:
                self.say(f"step {self.at.step}/{total}  loss {np.mean(recent):.4f}")
                recent = []
            is_epoch = self.at.step % each == 0
            if is_epoch:
                self.watch(samples.validation)
            if is_epoch or time.monotonic() - saved > save_every_s:
                self.save_state()
                saved = time.monotonic()
        set_adapter_state(self.adapted, self.at.best)

    def update(self, samples: Sequence[Sample], total: int) -> float:
        """Take one optimizer step on the rows of step `at.step`, and return a mean loss.

        The loss is that of this process's rows, 0.0 if it has none; gradients are summed over all
        processes and clipped. `total` is the number of steps of the run, on which the learning rate
        depends. Changes the adapter and the optimizer, not `at.step`.
        """
        torch.manual_seed(self._seed("dropout", self.processes.rank))
        self.adapted.train()
        chosen = step_numbers(len(samples), self.at.step, self.config)
        mine = self.processes.part_of(self._step_samples(samples, chosen))
        rows, _ = self.calibrator.rows([sample.item for sample in mine])
        losses = 0.0
        for batch in pack_batches([len(row.ids) for row in rows], self.config.micro_tokens):
            targets = [mine[i].target for i in batch]
            loss = self.loss([rows[i] for i in batch], targets) / len(chosen)
            loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
            losses += loss.item()
        self.processes.sum_gradients(self.parameters)
        torch.nn.utils.clip_grad_norm_(self.parameters, self.config.gradient_norm)
        self.adam.param_groups[0]["lr"] = learning_rate(self.at.step, total, self.config)
        self.adam.step()
        self.adam.zero_grad()
        return losses * len(chosen) / max(1, len(mine))

    def _step_samples(self, samples: Sequence[Sample], chosen: Sequence[int]) -> list[Sample]:
        """Return the samples at the indexes `chosen`, the longest first, some without names.

        The model's and the benchmark's names are hidden at random. The order lets the processes
        share the long ones.
        """
        rng = random.Random(self._seed("names"))
        named = [
            samples[i].with_item(hidden_names(samples[i].item, self.config, rng)) for i in chosen
        ]
        return sorted(named, key=lambda s: -len(s.item.question) - len(s.item.answer))

    def _seed(self, what: str, rank: int = 0) -> int:
        """Return a seed of 62 bits for a purpose, such as `dropout`, in this step.

        It also depends on `rank`, a process's number.
        """
        return random.Random(f"{self.config.seed} {what} {self.at.step} {rank}").getrandbits(62)

    def loss(self, rows: Sequence[ModelRow], targets: Sequence[int]) -> Tensor:
        """Return the sum of the rows' cross-entropies over the vocabulary at the answer, a scalar.

        `targets` are 0 or 1 for each row; the right token is the label's.
        """
        labels = self.calibrator.model.label_ids
        wanted = torch.tensor([labels[target] for target in targets], device=self.processes.device)
        with precision(self.processes.device):
            states = self.calibrator.model.hidden_states(rows)
            head = self.calibrator.model.model.get_output_embeddings()
            logits: Tensor = head(states.to(head.weight.dtype)).float()
        return cross_entropy(logits, wanted, reduction="sum")

    # --- evaluation -----------------------------------------------------------------------------

    def states(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """Return (states (N, hidden), log-odds (N,) of the label correct) of the samples.

        Each process reads its part, and all get the whole, in the order of `samples`, in fp32 on
        the CPU. The model is put in evaluation mode.
        """
        self.adapted.eval()
        mine = [sample.item for sample in self.processes.part_of(samples)]
        found = last_states(self.calibrator, mine, self.config.micro_tokens)
        states, odds = (self.processes.gather(each, len(samples)) for each in found)
        return states, odds

    def scores(self, samples: Sequence[Sample]) -> Floats:
        """Return P(correct) of the samples, (N,), before any recalibration."""
        return np.asarray(sigmoid(self.states(samples)[1].double().numpy()))

    def watch(self, validation: Sequence[Sample]) -> None:
        """Append the loss on the validation samples to `at.losses`, and report it.

        If it is the least so far, a copy of the adapter becomes `at.best`.
        """
        targets = np.array([sample.target for sample in validation])
        p = np.clip(self.scores(validation), 1e-6, 1 - 1e-6)
        loss = -float(np.mean(targets * np.log(p) + (1 - targets) * np.log(1 - p)))
        if not self.at.losses or loss < min(self.at.losses):
            self.at.best = adapter_state(self.adapted)
        self.at.losses.append(loss)
        self.say(f"epoch {len(self.at.losses)}: validation loss {loss:.4f}")


def learning_rate(step: int, total: int, config: LlmTrainConfig) -> float:
    """Return the learning rate of a step, counted from 0, of `total` steps.

    It rises linearly over the share `config.warmup_share` of the steps, then falls to 0 along half
    a cosine (E09 states none).
    """
    warm = max(1, round(total * config.warmup_share))
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    return config.learning_rate * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm))) / 2
