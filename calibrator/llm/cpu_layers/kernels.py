"""Which code computes the layers of linear attention."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

FLASH_LINEAR_ATTENTION = "flash-linear-attention"
PLAIN_TORCH = "torch"


def linear_attention_of(model: Any) -> str | None:
    """What transformers chose when it was imported; None for a model without such layers."""
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ()
    if "linear_attention" not in kinds:
        return None
    return FLASH_LINEAR_ATTENTION if find_spec("fla") else PLAIN_TORCH
