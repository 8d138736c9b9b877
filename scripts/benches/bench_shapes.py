"""Language-model calibrators in true and in small shapes, with random weights and prompts."""

from __future__ import annotations

import random
from typing import Any, Final, Literal

import numpy as np
import torch
import transformers

from calibrator.llm.serving.batches import ModelRow
from calibrator.llm.serving.pixels import Pixels

Shape = Literal["small", "0.8B", "2B", "8B"]
TRUE_SHAPES: Final[tuple[Shape, ...]] = ("0.8B", "2B", "8B")
IMAGE_GRID: Final = (1, 28, 28)  # the placeholder's grid, 448 x 448 pixels: 196 tokens
IMAGE_TOKENS: Final = 196
SPECIAL: Final = 10  # ids below this are not text
IDS: Final = {
    "image_token_id": 1,
    "video_token_id": 2,
    "vision_start_token_id": 3,
    "vision_end_token_id": 4,
}
THINNER: Final = 4  # divisor of the 0.8B's widths in the small shape
SHALLOWER: Final = 3  # divisor of its depths


def qwen3_5(thinner: int = 1, shallower: int = 1) -> Any:
    """Return Qwen3.5-0.8B's configuration, scaled down.

    Its widths, heads and vocabulary are divided by `thinner`, its depths by `shallower`.
    """
    return transformers.Qwen3_5Config(
        text_config={
            "vocab_size": 248_320 // thinner,
            "hidden_size": 1_024 // thinner,
            "intermediate_size": 3_584 // thinner,
            "num_hidden_layers": 24 // shallower,
            "num_attention_heads": 8 // thinner,
            "num_key_value_heads": max(2 // thinner, 1),
            "head_dim": 256,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_num_key_heads": 16 // thinner,
            "linear_num_value_heads": 16 // thinner,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000_000.0,
                "partial_rotary_factor": 0.25,
                "mrope_interleaved": True,
                "mrope_section": [11, 11, 10],
            },
        },
        vision_config={
            "depth": 12 // shallower,
            "hidden_size": 768 // thinner,
            "intermediate_size": 3_072 // thinner,
            "num_heads": 12 // thinner,
            "out_hidden_size": 1_024 // thinner,
            "num_position_embeddings": 2_304,
            "patch_size": 16,
        },
        tie_word_embeddings=True,
        **IDS,
    )


def qwen3_vl(text: dict[str, int], vision: dict[str, Any], *, is_tied: bool) -> Any:
    """Return a configuration of Qwen3-VL with these values of its text and vision parts.

    `is_tied` ties the output layer to the embeddings.
    """
    return transformers.Qwen3VLConfig(
        text_config={
            "vocab_size": 151_936,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "tie_word_embeddings": is_tied,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000.0,
                "mrope_interleaved": True,
                "mrope_section": [24, 20, 20],
            },
            **text,
        },
        vision_config={
            "num_heads": 16,
            "num_position_embeddings": 2_304,
            "patch_size": 16,
            "out_hidden_size": text["hidden_size"],
            **vision,
        },
        tie_word_embeddings=is_tied,
        **IDS,
    )


def config_of(shape: Shape) -> Any:
    """Return transformers' configuration of a shape, "small", "0.8B", "2B" or "8B".

    The first two are of Qwen3.5, the others of Qwen3-VL.
    """
    if shape == "small":
        return qwen3_5(THINNER, SHALLOWER)
    if shape == "0.8B":
        return qwen3_5()
    if shape == "2B":
        return qwen3_vl(
            {
                "hidden_size": 2_048,
                "intermediate_size": 6_144,
                "num_hidden_layers": 28,
                "num_attention_heads": 16,
            },
            {
                "depth": 24,
                "hidden_size": 1_024,
                "intermediate_size": 4_096,
                "deepstack_visual_indexes": [5, 11, 17],
            },
            is_tied=True,
        )
    return qwen3_vl(
        {
            "hidden_size": 4_096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
        },
        {
            "depth": 27,
            "hidden_size": 1_152,
            "intermediate_size": 4_304,
            "deepstack_visual_indexes": [8, 16, 24],
        },
        is_tied=False,
    )


def build(shape: Shape, device: str, dtype: torch.dtype) -> Any:
    """Return a model of a shape with random weights, made on its device for inference.

    The seed is set, so the weights are always the same.
    """
    config = config_of(shape)
    kind = (
        transformers.Qwen3_5ForConditionalGeneration
        if config.model_type == "qwen3_5"
        else transformers.Qwen3VLForConditionalGeneration
    )
    torch.manual_seed(0)
    was = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = kind(config)
    finally:
        torch.set_default_dtype(was)
    return model.eval()


def placeholder() -> Pixels:
    """Return the placeholder image as black patches."""
    patches = np.zeros((IMAGE_GRID[1] * IMAGE_GRID[2], 3 * 2 * 16 * 16), np.float32)
    return Pixels(patches, IMAGE_GRID, IMAGE_TOKENS)


def random_rows(vocabulary: int, count: int, choices: int = 1, tokens: int = 620) -> list[ModelRow]:
    """Return `count` prompts of about `tokens` tokens of random text behind a placeholder image.

    There are `choices` prompts of each question, one for each answer. As in the paper, a question
    has up to 1,500 characters and an answer up to 800; lengths vary by a third around the mean.
    """
    rng, image, rows = random.Random(0), placeholder(), []
    start = [5, 6, 3, *[IDS["image_token_id"]] * IMAGE_TOKENS, 4]

    def text(most: float) -> list[int]:
        """Return random token ids, about `most` of them."""
        return rng.choices(range(SPECIAL, vocabulary), k=int(most * rng.uniform(2 / 3, 4 / 3)))

    for _ in range(count // choices):
        question = text(0.65 * tokens)
        rows += [
            ModelRow([*start, *question, *text(0.35 * tokens)], (image,)) for _ in range(choices)
        ]
    return rows
