"""Tiny random-initialised Qwen3.5 and Qwen3-VL models, as folders like those of a model hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

Family = Literal["qwen3_5", "qwen3_5_text", "qwen3_vl"]
OfFamily = Callable[[Family], Path]  # makes the folder of a base or checkpoint, once
FAMILIES: tuple[Family, ...] = ("qwen3_5", "qwen3_5_text", "qwen3_vl")
# The second is the first without its vision part. Where both use the same layers, its test is slow.
EACH_FAMILY = ("qwen3_5", pytest.param("qwen3_5_text", marks=pytest.mark.slow), "qwen3_vl")
SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
THINKING = ("<think>", "</think>")
# The shape of Qwen's own template: the parts of a turn in order, then a block of reasoning, open or
# closed.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\nENDING{% endif %}"
)
OPEN_THINKING = "<think>\n"
TEXT = (
    "Question: what is the sum of 2 and 3? Answer: the sum is 5, i think. Is the answer correct? "
    "(i) No (ii) Yes ii iii Benchmark: arithmetic Source model: gpt Analyze whether the answer "
    "above is correct. Consider: factual errors or logical flaws, complete, based on your analysis."
)
TEXT_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 4096,
}
LINEAR_SIZES: dict[str, Any] = {
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "num_hidden_layers": 4,  # three with linear attention, one with full
}
VISION_SIZES: dict[str, Any] = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_heads": 2,
    "num_position_embeddings": 256,
    "out_hidden_size": 32,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}


def write_tiny_base(folder: Path, family: Family = "qwen3_5", *, seed: int = 0) -> Path:
    """Write a base model with tokenizer, chat template and image processor; return the folder."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = small_tokenizer(OPEN_THINKING if family.startswith("qwen3_5") else "")
    torch.manual_seed(seed)
    model = _model(family, tokenizer)
    with torch.no_grad():  # a random head gives 0.5 for everything; a wider one separates rows
        model.get_output_embeddings().weight.mul_(20)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if family != "qwen3_5_text":
        image_processor().save_pretrained(folder)
    return folder


def small_tokenizer(ending: str) -> Any:
    """Return a tokenizer of about 400 tokens; its chat template opens an answer with `ending`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([TEXT] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.add_special_tokens(
        {"additional_special_tokens": list(SPECIAL)}, replace_extra_special_tokens=False
    )
    tokenizer.add_tokens(list(THINKING))
    tokenizer.chat_template = CHAT_TEMPLATE.replace("ENDING", ending)
    return tokenizer


def image_ids(tokenizer: Any) -> dict[str, int]:
    """Return the ids of the image tokens by their names in a model's configuration."""
    return {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>")
        for name, token in (
            ("image", "image_pad"),
            ("video", "video_pad"),
            ("vision_start", "vision_start"),
            ("vision_end", "vision_end"),
        )
    }


def _model(family: Family, tokenizer: Any) -> Any:
    import transformers

    text = {**TEXT_SIZES, "vocab_size": len(tokenizer), "tie_word_embeddings": family != "qwen3_vl"}
    ids = image_ids(tokenizer)
    # Of the 4 half dimensions that rotate (Qwen3.5), and of 8 (Qwen3-VL).
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_interleaved": True}
    if family == "qwen3_vl":
        text |= {"num_hidden_layers": 3, "rope_parameters": {**rope, "mrope_section": [4, 2, 2]}}
        config = transformers.Qwen3VLConfig(
            text_config=text,
            vision_config={**VISION_SIZES, "deepstack_visual_indexes": [0, 1]},
            tie_word_embeddings=False,
            **ids,
        )
        return transformers.Qwen3VLForConditionalGeneration(config)
    partial = {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]}
    text |= {**LINEAR_SIZES, "rope_parameters": {**rope, **partial}}
    if family == "qwen3_5_text":
        return transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**text))
    config = transformers.Qwen3_5Config(
        text_config=text, vision_config=VISION_SIZES, tie_word_embeddings=True, **ids
    )
    return transformers.Qwen3_5ForConditionalGeneration(config)


def image_processor() -> Any:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(
        patch_size=16,
        temporal_patch_size=2,
        merge_size=2,
        size={"shortest_edge": 65_536, "longest_edge": 16_777_216},
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )


def write_tiny_adapter(
    folder: Path, base: Path, family: Family = "qwen3_5", *, seed: int = 1, **config: Any
) -> Path:
    """Write a checkpoint with a random LoRA adapter for a tiny base; return the folder.

    `config` goes into calibrator.json. The rank is 4 unless `config` has an `adapter`.
    """
    import peft
    import torch

    from calibrator.llm.serving.loading import load_base, silence_loading

    architecture = "causal-lm" if family == "qwen3_5_text" else "image-text-to-text"
    adapter = config.pop("adapter", {"rank": 4, "alpha": 8})
    torch.manual_seed(seed)
    with silence_loading():
        adapted = peft.get_peft_model(
            load_base(base, architecture),
            peft.LoraConfig(
                r=adapter["rank"],
                lora_alpha=adapter["alpha"],
                target_modules="all-linear",
                init_lora_weights=False,
            ),
        )
        adapted.save_pretrained(str(folder))
    values = {"preset": "paper", "base": str(base), "adapter": adapter, **config}
    if architecture == "causal-lm":
        values |= {"architecture": architecture, "images": None}
    (folder / "calibrator.json").write_text(json.dumps(values), encoding="utf-8")
    return folder
