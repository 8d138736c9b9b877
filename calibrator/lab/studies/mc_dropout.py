"""MC dropout: the mean of several passes, each with other parts of the adapter left out (I16).

It is a baseline for studies and not served: each pass costs as much as a score, and the paper found
no gain (K14). The adapter stays unmerged, because the dropout is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from peft import PeftModel
from torch import nn

from calibrator.checkpoints.checkpoint import base_folder
from calibrator.checkpoints.devices import choose_device
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.errors import CheckpointError
from calibrator.llm.layers.replace import use_faster_layers
from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.llm.serving.loading import check_digest, load_adapter, load_base
from calibrator.llm.serving.model import LabelModel
from calibrator.llm.serving.pixels import load_pixel_reader
from calibrator.llm.serving.prompts import load_prompts
from calibrator.scorer import Item, Score

PASSES: Final = 5
DROPOUT: Final = 0.1  # for an adapter that was trained without dropout


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
    """A Scorer over an unmerged checkpoint; the same items get the same scores."""

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
