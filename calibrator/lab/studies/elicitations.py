"""A comparison of ways to read P(correct) from one adapter, on the same rows (K14, K15, I16).

Asking the calibrator to write a number, the paper's worst way, is left out, as it needs generation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor, nn

from calibrator.checkpoints.checkpoint import base_folder, read_config, resolve_checkpoint
from calibrator.checkpoints.devices import choose_device
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.errors import CheckpointError, JudgingError
from calibrator.lab.judging.baselines.fitted import check_questions
from calibrator.lab.studies.studies import SEED, Study, entry_of
from calibrator.lab.training.llm.probe import fit_probe
from calibrator.lab.training.llm.states import last_states
from calibrator.llm.layers.replace import use_faster_layers
from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.llm.serving.loading import check_digest, load_adapter, load_base
from calibrator.llm.serving.model import LabelModel
from calibrator.llm.serving.pixels import load_pixel_reader
from calibrator.llm.serving.probe import features_of
from calibrator.llm.serving.prompts import load_prompts
from calibrator.metrics.metrics import Floats
from calibrator.recalibration.curves import sigmoid
from calibrator.recalibration.fit import fit_temperature
from calibrator.rows.rows import Row, labels_of
from calibrator.rows.scores import score_items
from calibrator.rows.selection import share_of
from calibrator.scorer import Item, Score

PASSES: Final = 5
DROPOUT: Final = 0.1  # for an adapter that was trained without dropout
HELD_SHARE = 0.2  # share of training questions held out to stop a probe and fit a temperature
BUDGET = 8_192  # tokens in a forward pass


def compare_elicitations(
    checkpoint: str,
    train: Sequence[Row],
    test: Sequence[Row],
    device: str = "auto",
    say: Callable[[str], None] = lambda _: None,
) -> Study:
    """Score the test rows in each way and return a study with an entry for each way.

    Ways are the labels' tokens, plain and with a temperature, MC dropout, probes on the last state,
    and the entropy of the next token. Probes and temperature are fitted on the training rows.
    `reference` is the AUROC of the labels' tokens. Raises JudgingError for questions on both sides,
    too few training questions, or a calibrator that is no language model, CheckpointError for one
    without an adapter.
    """
    check_questions(train, test)
    folder = resolve_checkpoint(checkpoint)
    config = read_config(folder, checkpoint)
    if not isinstance(config, LlmConfig):
        raise JudgingError(f"{checkpoint} is no language model: it has one way to be read")
    calibrator, adapted = load_unmerged(config, folder, device)
    # This hash differs from the one that split the training files.
    is_held = [share_of(f"elicitations {row.question_id}") < HELD_SHARE for row in train]
    fitted, held = (
        [row for row, h in zip(train, is_held, strict=True) if h == side] for side in (False, True)
    )
    if not (fitted and held):
        raise JudgingError("too few training questions to fit a probe and to say where it stops")
    say(f"reading {len(train) + len(test)} rows")
    states, odds = zip(*(_states(calibrator, rows) for rows in (fitted, held, test)), strict=True)
    found = {"labels": sigmoid(odds[2].double().numpy())}
    warm = fit_temperature(labels_of(held), sigmoid(odds[1].double().numpy()))
    found["labels, temperature"] = warm.apply_all(found["labels"])
    say(f"{PASSES} passes with dropout")
    scores = score_items(McDropout(calibrator, adapted), [row.item() for row in test])
    found[f"MC dropout, {PASSES} passes"] = np.array([score.score for score in scores])
    for label, has_odds in (("state", False), ("state and labels", True)):
        say(f"fitting a probe on {label}")
        features = [
            features_of(one, its_odds, has_odds=has_odds)
            for one, its_odds in zip(states, odds, strict=True)
        ]
        probe = fit_probe(features[0], _targets(fitted), features[1], _targets(held), SEED)
        found[label] = sigmoid(probe.odds(features[2]).double().numpy())
    found["token entropy"] = _certainty(calibrator, states[2])
    entries = [
        entry_of(label, len(fitted), test, confidence, found["labels"])
        for label, confidence in found.items()
    ]
    return Study("elicitations", calibrator.name, entries)


def _states(calibrator: LlmCalibrator, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Return the rows' last hidden states (n, width) and the labels' log-odds (n,)."""
    return last_states(calibrator, [row.item() for row in rows], BUDGET)


def _targets(rows: Sequence[Row]) -> Tensor:
    """Return the rows' labels as floats, (n,)."""
    return torch.tensor(labels_of(rows), dtype=torch.float32)


@torch.no_grad()
def _certainty(calibrator: LlmCalibrator, states: Tensor) -> Floats:
    """Return for each state a certainty from 0 to 1, (n,): 1 less the next token's entropy.

    The entropy is divided by that of a uniform token; it does not depend on which token is likely.
    """
    model = calibrator.model.model
    head = model.get_output_embeddings()
    found = []
    for some in torch.split(states, 64):
        log_p = head(some.to(model.device, head.weight.dtype)).float().log_softmax(dim=-1)
        found.append(1 + (log_p.exp() * log_p).sum(dim=-1).cpu() / math.log(log_p.shape[-1]))
    return np.asarray(torch.cat(found).double().numpy())


def load_unmerged(
    config: LlmConfig, folder: Path, device: str = "auto"
) -> tuple[LlmCalibrator, PeftModel]:
    """Load a language model's checkpoint in fp32 with the adapter unmerged, beside the base.

    Returns the calibrator, which reads P(correct) from the labels' tokens, and the adapted model
    inside it. Raises CheckpointError or HubError, also for a checkpoint that has no adapter.
    """
    if config.adapter is None:
        raise CheckpointError(f"{config.name} has no adapter of its own; it was merged")
    check_digest(config, folder)
    base = base_folder(config, folder)
    prompts = load_prompts(config, base)
    pixels = None if config.images is None else load_pixel_reader(config.images, base)
    model = load_base(base, config.architecture)
    use_faster_layers(model)
    adapted = load_adapter(model, folder, config.adapter)
    model.to(choose_device(device))
    labels = LabelModel(model, prompts.label_ids)
    return LlmCalibrator(config, labels, prompts, pixels), adapted


class McDropout:
    """A Scorer that drops other parts of the adapter in each of several passes (MC dropout, I16).

    Its scores are the means, the same for the same items. It is a baseline and not served: each
    pass costs as much as a score, and the paper found no gain (K14). The adapter stays unmerged,
    because the dropout is there.
    """

    def __init__(
        self, calibrator: LlmCalibrator, adapted: PeftModel, passes: int = PASSES, seed: int = 0
    ) -> None:
        """Keep the dropouts of `adapted`, the model inside the calibrator, to be switched on."""
        self._calibrator, self._passes, self._seed = calibrator, passes, seed
        self._dropouts = _adapter_dropouts(adapted)

    @property
    def name(self) -> str:
        """The checkpoint's name with the number of passes, such as `NAME~mc-dropout-5`."""
        return f"{self._calibrator.name}~mc-dropout-{self._passes}"

    @property
    def reads_images(self) -> bool:
        return self._calibrator.reads_images

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """Return the mean P(correct) of several passes with dropout on, as a score for each item.

        The seed is set first, so the same items get the same scores; dropout is off afterwards.
        Raises what the checkpoint's own scorer raises.
        """
        torch.manual_seed(self._seed)
        for each in self._dropouts:
            each.train()
        try:
            passes = [self._calibrator.score_batch(items) for _ in range(self._passes)]
        finally:
            for each in self._dropouts:
                each.eval()
        means = np.mean([[score.score for score in one] for one in passes], axis=0)
        return [
            Score(float(mean), float(mean), score.is_truncated)
            for mean, score in zip(means, passes[0], strict=True)
        ]


def _adapter_dropouts(adapted: PeftModel) -> list[nn.Dropout]:
    """Return the dropout module before each adapter, switched off.

    An adapter without one gets one with rate `DROPOUT`, in place.
    """
    found = []
    for module in adapted.modules():
        dropouts = getattr(module, "lora_dropout", None)
        if not isinstance(dropouts, nn.ModuleDict):
            continue
        for name, each in dropouts.items():
            dropout = each if isinstance(each, nn.Dropout) else nn.Dropout(DROPOUT)
            dropouts[name] = dropout.eval()
            found.append(dropout)
    return found
