"""Begin, load and copy LoRA adapters that are trained (B05, E01, E10)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor, nn

from calibrator.checkpoints.llm_config import AdapterConfig
from calibrator.llm.serving.loading import load_adapter, silence_loading

TARGETS = "all-linear"  # every linear layer but the head, including the vision tower's


def begin_adapter(model: Any, config: AdapterConfig, dropout: float, seed: int) -> PeftModel:
    """Add a new LoRA adapter to `model`, in place, and return the adapted model.

    It changes no result yet, and is in fp32 whatever the base's dtype. `seed` sets torch's random
    numbers, which give its weights.
    """
    torch.manual_seed(seed)
    lora = LoraConfig(
        r=config.rank, lora_alpha=config.alpha or 1, lora_dropout=dropout, target_modules=TARGETS
    )
    with silence_loading():
        adapted: PeftModel = get_peft_model(model, lora)
    return adapted


def go_on_from_adapter(model: Any, folder: Path, config: AdapterConfig) -> PeftModel:
    """Add the adapter of a checkpoint's folder to `model`, in place, to train it further.

    Returns the adapted model, whose adapter weights require gradients. Raises CheckpointError for
    an adapter that differs from `config` or does not fit.
    """
    adapted = load_adapter(model, folder, config)
    for parameter in adapter_weights(adapted).values():
        parameter.requires_grad_(True)
    return adapted


def adapter_weights(adapted: PeftModel) -> dict[str, nn.Parameter]:
    """Return the adapter's parameters, which are trained, by their names in the model."""
    return {name: p for name, p in adapted.named_parameters() if "lora_" in name}


def adapter_state(adapted: PeftModel) -> dict[str, Tensor]:
    """Return copies of the adapter's weights on the CPU, by their names in the adapter's file."""
    state: Mapping[str, Tensor] = get_peft_model_state_dict(adapted)
    return {name: weight.detach().cpu().clone().contiguous() for name, weight in state.items()}


def set_adapter_state(adapted: PeftModel, state: Mapping[str, Tensor]) -> None:
    """Replace the adapter's weights by `state`, named as in `adapter_state`."""
    with silence_loading():
        set_peft_model_state_dict(adapted, dict(state))


def trainable_share(adapted: PeftModel) -> float:
    """Return the number of adapter weights over that of the base (E10: below 0.01 in the paper)."""
    mine = sum(parameter.numel() for parameter in adapter_weights(adapted).values())
    return mine / (sum(parameter.numel() for parameter in adapted.parameters()) - mine)
