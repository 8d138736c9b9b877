"""Make prompts as token ids for a checkpoint whose model runs elsewhere, and read its scores.

Such engines return the probability of one label token against the other. They read text only, so a
checkpoint that shows a placeholder image beside every text (F05) is used differently from its
training. That has to be configured, and then neither its name nor its own recalibration is that of
the checkpoint itself. Needs transformers, no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrator.checkpoints.checkpoint import base_folder, read_config, resolve_checkpoint
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.errors import CheckpointError, MissingExtraError, NotScorableError
from calibrator.llm.serving.prompts import CANARIES, Prompt, Prompts, load_prompts
from calibrator.scorer import Item, Score


@dataclass(frozen=True, slots=True)
class TokenPrompts:
    """The prompts for an engine, and the meaning of its answers.

    `name` is that of the scores, `label_ids` are the tokens for incorrect and correct.
    """

    name: str
    label_ids: tuple[int, int]
    config: LlmConfig
    prompts: Prompts

    def read(self, items: Sequence[Item]) -> list[Prompt]:
        """Return the prompts of items, in order; raises NotScorableError for images."""
        if any(item.images for item in items):
            raise NotScorableError("image", f"{self.name} is asked with text only")
        return self.prompts.read(items)

    @property
    def canaries(self) -> list[tuple[Item, float]]:
        """Items with the scores, before recalibration, that an engine gives with the right weights.

        The list is empty if the checkpoint has no such scores, or if a placeholder is left out.
        """
        is_shown = self.config.images is not None and self.config.images.placeholder is not None
        if is_shown or len(self.config.canary) != len(CANARIES):
            return []
        return list(zip(CANARIES, self.config.canary, strict=True))

    def score(self, prompt: Prompt, probability: float) -> Score:
        """Return the score of an engine's probability of the correct label (B09), recalibrated."""
        recalibration = self.config.recalibration
        confidence = recalibration.apply(probability) if recalibration else probability
        return Score(probability, confidence, prompt.is_truncated)


def name_elsewhere(checkpoint: str, engine: str, *, omits_placeholder: bool = False) -> str:
    """Return the name of the scores that `engine` computes, e.g. `pinocchio@3f2a91c0~vllm`.

    `checkpoint` is a folder or a hub name. Raises HubError, and CheckpointError for a checkpoint
    that is no language model, or shows a placeholder image that may not be omitted.
    """
    return _config(checkpoint, engine, omits_placeholder)[0]


def load_token_prompts(
    checkpoint: str, engine: str, *, omits_placeholder: bool = False
) -> TokenPrompts:
    """Load the prompts of a checkpoint for an engine that computes label probabilities.

    With `omits_placeholder` a placeholder image is left out, and with it the recalibration. Raises
    the errors of `name_elsewhere`, and MissingExtraError without transformers.
    """
    name, config, folder = _config(checkpoint, engine, omits_placeholder)
    try:
        prompts = load_prompts(config, base_folder(config, folder))
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} (for the tokenizer of {name})", "torch") from error
    return TokenPrompts(name, prompts.label_ids, config, prompts)


def _config(checkpoint: str, engine: str, omits_placeholder: bool) -> tuple[str, LlmConfig, Path]:
    """Return the name of the scores, the prompts' configuration, and the checkpoint's folder.

    Raises as `name_elsewhere`.
    """
    folder = resolve_checkpoint(checkpoint)
    config = read_config(folder, checkpoint)
    if not isinstance(config, LlmConfig):
        raise CheckpointError(
            f"checkpoint {checkpoint!r} is no language model; {engine} cannot compute its scores"
        )
    if config.elicitation != "logit":
        raise CheckpointError(
            f"checkpoint {checkpoint!r} reads a probe, and {engine} gives label probabilities alone"
        )
    if config.images is None or config.images.placeholder is None:
        return f"{config.version}~{engine}", config, folder
    if not omits_placeholder:
        raise CheckpointError(
            f"checkpoint {checkpoint!r} shows an image beside every text, and {engine} is asked "
            "with text only: use a checkpoint without, or say omit_placeholder: true and fit a "
            "recalibration on what it then gives"
        )
    bare = replace(config, recalibration=None)
    return f"{bare.version}~{engine}-no-placeholder", bare, folder
