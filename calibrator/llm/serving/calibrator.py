"""Join prompts, images and the forward pass of a language model to a Scorer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from calibrator.checkpoints.checkpoint import base_folder
from calibrator.checkpoints.devices import choose_device, default_dtype
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.errors import CheckpointError, NotScorableError
from calibrator.llm.layers.replace import use_faster_layers
from calibrator.llm.serving.loading import check_digest, load_adapter, load_base
from calibrator.llm.serving.model import LabelModel, ModelRow
from calibrator.llm.serving.pixels import PixelReader, Pixels, load_pixel_reader
from calibrator.llm.serving.probe import load_probe
from calibrator.llm.serving.prompts import CANARIES, CANARY, Prompts, load_prompts
from calibrator.scorer import Item, Score

log = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 4
COMBINED = "combined"  # the paper's word for its prompt of question, answer and tags


class LlmCalibrator:
    """A loaded checkpoint; a Scorer."""

    def __init__(
        self,
        config: LlmConfig,
        model: LabelModel,
        prompts: Prompts,
        pixels: PixelReader | None = None,
    ) -> None:
        self.config = config
        self.model = model
        self.prompts = prompts
        self.pixels = pixels

    @property
    def name(self) -> str:
        """The checkpoint's name and version, such as `pinocchio-0.8b@3f2a91c0`."""
        return self.config.version

    @property
    def reads_images(self) -> bool:
        return self.pixels is not None

    @property
    def batch_characters(self) -> int:
        """The number of characters that fill a batch, four for each token."""
        return CHARACTERS_PER_TOKEN * self.model.budget.tokens

    def variant(self, name: str) -> LlmCalibrator:
        """Return the same model under the prompt of this name in `calibrator.json` (G05).

        `combined` is the one of its training, and returns the calibrator itself; others have no
        recalibration. Raises CheckpointError for an unknown name.
        """
        if name == COMBINED:
            return self
        if (prompt := self.config.variants.get(name)) is None:
            known = ", ".join([COMBINED, *self.config.variants])
            raise CheckpointError(f"{self.name} has no prompt variant {name!r}; it has: {known}")
        config = replace(
            self.config,
            name=f"{self.config.name}-{name}",
            prompt=prompt,
            recalibration=None,
            quality={},
        )
        return LlmCalibrator(
            config, self.model, Prompts(config, self.prompts.tokenizer), self.pixels
        )

    def with_answer_characters(self, characters: int) -> LlmCalibrator:
        """Return the same model, reading at most this many characters of an answer (K13).

        Its name says so.
        """
        prompt = replace(self.config.prompt, answer_characters=characters)
        name = f"{self.config.name}-answer-{characters}"
        config = replace(self.config, name=name, prompt=prompt)
        prompts = Prompts(config, self.prompts.tokenizer)
        return LlmCalibrator(config, self.model, prompts, self.pixels)

    def keep_placeholder(self) -> None:
        """Compute the common beginning of text prompts, the placeholder image, once and keep it.

        The weights may not change afterwards. Nothing happens without a placeholder.
        """
        [row], _ = self.rows([CANARY])
        if row.images:
            end = row.spans(self.model.image_id)[-1][1]
            self.model.keep(row.cut(end, self.model.image_id))

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        """Return the scores of items, in order, from one forward pass (A02).

        Raises NotScorableError for an image that cannot be read, and for images if it reads none.
        """
        rows, cut = self.rows(items)
        logits = self.model.logits(rows)
        scores = (logits[:, 1] - logits[:, 0]).double().sigmoid().tolist()
        recalibration = self.config.recalibration
        return [
            Score(score, recalibration.apply(score) if recalibration else score, was_cut)
            for score, was_cut in zip(scores, cut, strict=True)
        ]

    def canary_scores(self) -> tuple[float, ...]:
        """Return the scores of the `CANARIES`, before recalibration, as `calibrator.json` has."""
        return tuple(round(score.score, 6) for score in self.score_batch(CANARIES))

    def rows(self, items: Sequence[Item]) -> tuple[list[ModelRow], list[bool]]:
        """Return the model's input for each item, and whether a part of the item was cut off.

        Raises NotScorableError as `score_batch`.
        """
        read: dict[bytes, Pixels] = {}  # a repeated image is the same object
        images = [self._images(item, read) for item in items]
        prompts = self.prompts.read(items, [[each.tokens for each in row] for row in images])
        rows = [ModelRow(p.ids, pixels) for p, pixels in zip(prompts, images, strict=True)]
        return rows, [prompt.is_truncated for prompt in prompts]

    def _images(self, item: Item, read: dict[bytes, Pixels]) -> tuple[Pixels, ...]:
        """Return the item's images as pixels, or the placeholder if it has none.

        `read` holds images by their file, so that a repeated one is the same object; new ones are
        added. Raises NotScorableError for images that a text-only model cannot read.
        """
        if item.images and self.pixels is None:
            raise NotScorableError("image", f"{self.name} reads text only, the question has images")
        if self.pixels is None:
            return ()
        if item.images:
            for data in item.images:
                if data not in read:
                    read[data] = self.pixels.read(data)
            return tuple(read[data] for data in item.images)
        return () if self.pixels.placeholder is None else (self.pixels.placeholder,)


def load_llm(
    config: LlmConfig,
    folder: Path,
    device: str = "auto",
    *,
    dtype: str | None = None,
    threads: int | None = None,
) -> LlmCalibrator:
    """Load a checkpoint ready to score: on a GPU in bf16 if there is one, else in fp32.

    `dtype` names another number format; `threads` bounds torch's CPU threads in the whole process.
    Raises CheckpointError or HubError for a checkpoint that cannot be loaded, or a device that does
    not exist.
    """
    where = choose_device(device)
    if threads is not None and where.type == "cpu":
        torch.set_num_threads(threads)
    check_digest(config, folder)
    base = base_folder(config, folder)
    prompts = load_prompts(config, base)
    pixels = None if config.images is None else load_pixel_reader(config.images, base)
    model = load_base(base, config.architecture)
    use_faster_layers(model)  # before the canary: flash-linear-attention cannot score on a CPU
    if config.adapter is not None:
        adapted = load_adapter(model, folder, config.adapter)
        _check_canary(adapted, LlmCalibrator(config, _label_model(model, prompts), prompts, pixels))
        model = adapted.merge_and_unload()  # in fp32; cast below
    model.to(where, getattr(torch, dtype) if dtype else default_dtype(where))
    labels = _label_model(model, prompts)
    if config.elicitation != "logit":
        labels.has_odds = config.elicitation == "both"
        labels.probe = load_probe(folder, labels.label_rows().shape[1] + labels.has_odds)
    loaded = LlmCalibrator(config, labels, prompts, pixels)
    loaded.keep_placeholder()
    return loaded


def _label_model(model: Any, prompts: Prompts) -> LabelModel:
    """Return the model, to be read at the two labels of its prompts."""
    return LabelModel(model, prompts.label_ids)


def _check_canary(adapted: PeftModel, calibrator: LlmCalibrator) -> None:
    """Raise CheckpointError if a score is the same with and without the adapter.

    The adapter was never applied then.
    """
    [on] = calibrator.score_batch([CANARY])
    with adapted.disable_adapter():
        [off] = calibrator.score_batch([CANARY])
    if on.score == off.score:
        raise CheckpointError(
            f"the adapter of {calibrator.name} changes nothing: the score is {on.score:.6f} "
            "with and without it"
        )
