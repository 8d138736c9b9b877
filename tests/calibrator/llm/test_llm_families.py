"""Bases of other families: those that can be served are trained, others refused before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrator.errors import TrainingError
from calibrator.lab.training.llm.config import LlmTrainConfig
from calibrator.lab.training.llm.train import train_llm
from calibrator.loading import load_scorer
from calibrator.rows.selection import Selection
from calibrator.scorer import Item
from tests.builders.sums import write_sums
from tests.builders.tiny_models import small_tokenizer
from tests.calibrator.lab.training.llm.test_llm_train import silent

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2_048,
}


def write_base(folder: Path, name: str, **more: Any) -> Path:
    """Write a tiny base of one of transformers' families, such as Llama; return its folder."""
    import torch
    import transformers

    tokenizer = small_tokenizer("")
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokenizer), **SIZES, **more)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def config_for(base: Path, folder: Path) -> LlmTrainConfig:
    return LlmTrainConfig(
        data=(str(write_sums(folder / "sums.jsonl", 60)),),
        name="tiny",
        base=str(base),
        selection=Selection(validation_share=0.25),
        epochs=1,
        batch_rows=32,
        device="cpu",
    )


@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3"])
def test_what_is_trained_can_be_loaded(tmp_path: Path, name: str) -> None:
    """A trained checkpoint of each family loads and scores.

    The families differ in norms of queries and keys and in biases.
    """
    base = write_base(tmp_path / "base", name)
    made = train_llm(tmp_path / "run", config_for(base, tmp_path), silent)
    scores = load_scorer(str(made), "cpu").score_batch([Item("1+1", "2"), Item("1+1", "3")])
    assert all(0 < each.score < 1 for each in scores)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Gemma2", {"head_dim": 16}),
        ("Granite", {"residual_multiplier": 0.5}),
        ("Phi3", {"pad_token_id": 0}),
    ],
)
def test_what_cannot_be_served_is_refused_before_training(
    tmp_path: Path, name: str, more: dict[str, Any]
) -> None:
    """A family whose layers cannot be served is refused before training."""
    base = write_base(tmp_path / "base", name, **more)
    with pytest.raises(TrainingError, match="could be trained, but not be served"):
        train_llm(tmp_path / "run", config_for(base, tmp_path), silent)


@pytest.mark.parametrize("is_folder", [False, True])
def test_gguf_is_refused_with_its_conversion(tmp_path: Path, is_folder: bool) -> None:
    """A file or folder of GGUF is refused with the command that converts it."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    config = config_for(tmp_path if is_folder else file, tmp_path)
    with pytest.raises(TrainingError, match=r"GGUF, which is not trained.*from_gguf FILE FOLDER"):
        train_llm(tmp_path / "run", replace(config), silent)
